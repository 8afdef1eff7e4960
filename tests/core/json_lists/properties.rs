//! Arbitrary, edited and truncated JSON lists end as in `serde_json`, for every chunking.

use listwatch::Limits;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::{LIST, LISTS, reference};
use crate::random::{chunk_lengths, edited, randomized};
use crate::support::{List, cut, decode, fixture};

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t\r ")]
}

/// A string with the escapes that JSON requires, or with every character escaped.
fn text(characters: &'static str) -> impl Strategy<Value = String> {
    (characters, prop_oneof![3 => Just(false), 1 => Just(true)]).prop_map(|(text, escaped)| {
        if escaped {
            let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            format!("\"{}\"", units.concat())
        } else {
            serde_json::to_string(&text).unwrap()
        }
    })
}

/// The name of a known member, or another name.
fn name(known: &'static [&'static str]) -> impl Strategy<Value = (Option<&'static str>, String)> {
    let escaped =
        |name: &'static str| name.chars().map(|c| format!("\\u{:04X}", c as u32)).collect::<Vec<_>>().concat();
    let known = (prop::sample::select(known), prop_oneof![4 => Just(false), 1 => Just(true)]).prop_map(
        move |(name, in_escapes)| {
            (Some(name), if in_escapes { format!("\"{}\"", escaped(name)) } else { format!("\"{name}\"") })
        },
    );
    prop_oneof![4 => known, 1 => text("[a-j{}\\[\\]\",:\\\\é✓]{0,20}").prop_map(|name| (None, name))]
}

fn join(open: char, parts: &[(String, &str)], close: char) -> String {
    let parts: Vec<_> = parts.iter().map(|(part, space)| format!("{space}{part}{space}")).collect();
    format!("{open}{}{close}", parts.join(","))
}

fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        text("[a-z{}\\[\\]\",:\\\\é✓😀\n]{0,80}"),
        any::<i32>().prop_map(|number| number.to_string()),
        any::<f32>().prop_filter_map("finite", |number| number.is_finite().then(|| format!("{number:e}"))),
        prop::sample::select(&["null", "true", "false", "{}", "[ ]", "1E+2"][..]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        let member = (text("[a-z\"{}\\\\]{0,9}"), space(), inner.clone())
            .prop_map(|(name, space, value)| format!("{name}{space}:{space}{value}"));
        prop_oneof![
            vec((inner, space()), 0..4).prop_map(|parts| join('[', &parts, ']')),
            vec((member, space()), 0..4).prop_map(|parts| join('{', &parts, '}')),
        ]
    })
}

fn object() -> impl Strategy<Value = String> {
    let member = (text("[a-z\"{}\\\\]{0,9}"), value()).prop_map(|(name, value)| format!("{name}:{value}"));
    vec((member, space()), 0..5).prop_map(|parts| join('{', &parts, '}'))
}

fn list_meta() -> impl Strategy<Value = String> {
    let names = name(&["resourceVersion", "continue", "remainingItemCount", "shardInfo", "selfLink"]);
    let member =
        (names, text("[a-z0-9é\"]{0,9}"), any::<i64>(), value()).prop_map(|((known, name), text, count, value)| {
            let value = match known {
                Some("remainingItemCount") => count.to_string(),
                Some("shardInfo") => format!("{{\"selector\":{text},\"more\":{value}}}"),
                Some(_) => text,
                None => value,
            };
            let value = if count % 7 == 0 { "null".to_owned() } else { value };
            format!("{name}: {value}")
        });
    vec((member, space()), 0..6).prop_map(|parts| join('{', &parts, '}'))
}

/// A list with its members in any order, some of them repeated, null or of a wrong type; most bodies are valid lists.
fn list_body() -> impl Strategy<Value = String> {
    let member =
        (name(&["kind", "apiVersion", "metadata", "items"]), list_meta(), value(), vec((object(), space()), 0..6))
            .prop_map(|((known, name), list_meta, value, items)| {
                let value = match known {
                    Some("kind") => "\"WidgetList\"".to_owned(),
                    Some("apiVersion") => "\"example.com/v1\"".to_owned(),
                    Some("metadata") => list_meta,
                    Some(_) => join('[', &items, ']'),
                    None => value,
                };
                format!("{name}:{value}")
            });
    let extra = prop_oneof![8 => member, 1 => prop::sample::select(&[r#""kind":null"#, r#""items":null"#, r#""items":[null]"#, r#""metadata":null"#, r#""kind":"OtherList""#, r#""items":[1]"#][..]).prop_map(str::to_owned)];
    let required = (list_meta(), vec((object(), space()), 0..6)).prop_map(|(list_meta, items)| {
        let metadata = format!("\"metadata\" :{list_meta}");
        let items = format!("\"items\":{}", join('[', &items, ']'));
        vec![r#""kind":"PodList""#.to_owned(), r#""apiVersion": "v1""#.to_owned(), metadata, items]
    });
    (required, vec(extra, 0..4), space(), space()).prop_flat_map(|(mut members, extra, before, after)| {
        members.extend(extra);
        (Just(members).prop_shuffle(), vec(space(), 8)).prop_map(move |(members, spaces)| {
            let members: Vec<_> = members.into_iter().zip(spaces).collect();
            format!("{before}{}{after}", join('{', &members, '}'))
        })
    })
}

/// A body with random edits. Many edits write bytes that have a meaning in JSON.
fn edited_json(body: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![prop::sample::select(&b"{}[]\",:\\ nul\x00\xff"[..]), any::<u8>()];
    edited(body, byte, usize::MAX)
}

/// Checks that both chunkings end the same, and that the decoder reads each list that `serde_json` reads; returns the
/// list.
fn agree(body: &[u8], lengths: &[usize]) -> Result<Option<List>, TestCaseError> {
    let whole = decode(Limits::default(), [body]);
    let chunked = decode(Limits::default(), cut(body, lengths));
    let expected = reference(body);
    match (whole, chunked) {
        (Ok((whole, _)), Ok((chunked, _))) => {
            prop_assert_eq!(&whole, &chunked);
            if expected.is_some() {
                prop_assert_eq!(Some(&whole), expected.as_ref());
            }
            Ok(Some(whole))
        }
        (Err(whole), Err(chunked)) => {
            prop_assert_eq!(whole.to_string(), chunked.to_string());
            prop_assert!(expected.is_none(), "{}", whole);
            Ok(None)
        }
        (whole, chunked) => {
            prop_assert!(false, "{:?}, but in chunks {:?}", whole, chunked);
            unreachable!()
        }
    }
}

proptest! {
    #![proptest_config(randomized(100, 3000))]

    #[test]
    fn arbitrary_lists_equal_the_reference(body in list_body(), lengths in chunk_lengths()) {
        let list = agree(body.as_bytes(), &lengths)?;
        prop_assert_eq!(list, reference(body.as_bytes()));
    }

    #[test]
    fn a_truncated_list_is_never_a_shorter_list(body in list_body(), lengths in chunk_lengths(), at in any::<prop::sample::Index>()) {
        let Some(expected) = reference(body.as_bytes()) else { return Ok(()) };
        let truncated = &body.as_bytes()[..at.index(body.len())];
        match decode(Limits::default(), cut(truncated, &lengths)) {
            Ok((list, _)) => prop_assert_eq!(list, expected),
            Err(error) => prop_assert!(error.is_incomplete() && error.offset() == truncated.len() as u64, "{}", error),
        }
    }

    /// The decoder refuses what `serde_json` refuses, unless the fault is in an item: the caller that decodes the item
    /// finds it.
    #[test]
    fn edited_recorded_lists_are_refused_or_one_of_their_items_is(
        body in edited_json(prop::sample::select(&LISTS[1..]).prop_map(fixture)),
        lengths in chunk_lengths(),
    ) {
        if let Some(list) = agree(&body, &lengths)? && reference(&body).is_none() {
            let refused = |item: &Vec<u8>| serde_json::from_slice::<&RawValue>(item).is_err();
            prop_assert!(list.items.iter().any(refused));
        }
    }

    #[test]
    fn edited_lists_end_the_same_in_all_chunkings(body in edited_json(list_body().prop_map(String::into_bytes)), lengths in chunk_lengths()) {
        agree(&body, &lengths)?;
    }

    #[test]
    fn arbitrary_bytes_end_the_same_in_all_chunkings(bytes in vec(any::<u8>(), 0..300), text in "[\\[\\]{}\",:\\\\ nul1]{0,100}", lengths in chunk_lengths()) {
        agree(&[b"{", &bytes[..]].concat(), &lengths)?;
        agree(&[&LIST.as_bytes()[..80], text.as_bytes()].concat(), &lengths)?;
    }
}
