//! Arbitrary, edited and truncated lists end as in prost, for every chunking.

use allocation_counter::measure;
use listwatch::{Encoding, Event, ItemRef, Limits, ListDecoder};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::random::{chunk_lengths, edited, randomized, unknown_leaf, varint_field};
use crate::support::{cut, decode, fixture, len_field, reference, tag};

/// A field with a number that no message has, of any wire type, groups included.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    // Field 13 opens with the `k` of `k8s\0`; it is a group like any other.
    let group = prop_oneof![14..1000_u32, Just(13)];
    unknown_leaf().prop_recursive(4, 20, 3, move |inner| {
        (group.clone(), vec(inner, 0..3))
            .prop_map(|(number, fields)| [tag(number, 3), fields.concat(), tag(number, 4)].concat())
    })
}

/// Known fields in the given order, with unknown fields anywhere between them.
fn message(known: impl Strategy<Value = Vec<Vec<u8>>>) -> impl Strategy<Value = Vec<u8>> {
    (known, vec((any::<prop::sample::Index>(), unknown_field()), 0..4)).prop_map(|(mut fields, unknown)| {
        for (place, field) in unknown {
            fields.insert(place.index(fields.len() + 1), field);
        }
        fields.concat()
    })
}

fn list_meta() -> impl Strategy<Value = Vec<u8>> {
    let text = |number| "[a-zü0-9]{0,20}".prop_map(move |text| len_field(number, text.as_bytes()));
    let count = any::<i64>().prop_map(|count| varint_field(4, count.cast_unsigned()));
    let shard_info = message(vec(text(1), 0..2)).prop_map(|shard| len_field(5, &shard));
    message(vec(prop_oneof![text(1), text(2), text(3), count, shard_info], 0..5))
}

fn list_body(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just(("v1", "PodList", 1, 2)),
        Just(("example.com/v1", "WidgetList", 1, 2)),
        Just(("meta.k8s.io/v1beta1", "PartialObjectMetadataList", 2, 1)),
    ];
    kinds.prop_flat_map(move |(api_version, kind, meta, items)| {
        let type_meta = message(Just(vec![len_field(1, api_version.as_bytes()), len_field(2, kind.as_bytes())]));
        let item = vec(any::<u8>(), 0..longest).prop_map(move |item| len_field(items, &item));
        let pieces = list_meta().prop_map(move |list_meta| len_field(meta, &list_meta));
        let raw = message(vec(prop_oneof![4 => item, 1 => pieces], 1..12));
        let envelope = (type_meta, raw).prop_map(|(type_meta, raw)| {
            vec![len_field(1, &type_meta), len_field(2, &raw), len_field(3, b""), len_field(4, b"")]
        });
        message(envelope).prop_map(|envelope| [b"k8s\0", &envelope[..]].concat())
    })
}

const BODIES: &[&str] = &["pods-empty.pb", "configmaps.pb", "nodes.pb", "error-410-continue.pb", "single-configmap.pb"];
const LISTS: &[&str] = &["pods-empty.pb", "configmaps.pb", "nodes.pb", "customresourcedefinitions.pb"];

/// A recorded body with edits, most of them in its framing.
fn edited_body(names: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    edited(prop::sample::select(names).prop_map(fixture), any::<u8>(), 36)
}

/// Decodes a body and keeps no item; returns the length of the longest item, and the error, if any.
fn longest_item(body: &[u8], lengths: &[usize]) -> (usize, Option<String>) {
    let mut decoder = ListDecoder::new();
    let mut longest = 0;
    for mut chunk in cut(body, lengths) {
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(Event::Item(item))) => longest = longest.max(item.bytes().len()),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return (longest, Some(error.to_string())),
            }
        }
    }
    (longest, decoder.finish().err().map(|error| error.to_string()))
}

proptest! {
    #![proptest_config(randomized(200, 3000))]

    #[test]
    fn arbitrary_lists_equal_the_reference(body in list_body(300), lengths in chunk_lengths()) {
        let expected = reference(&body).unwrap();
        let (list, _) = decode(Limits::default(), cut(&body, &lengths)).unwrap();
        prop_assert_eq!(list, expected);
    }

    #[test]
    fn a_truncated_list_is_never_a_shorter_list(body in list_body(300), lengths in chunk_lengths(), at in any::<prop::sample::Index>()) {
        let expected = reference(&body).unwrap();
        let truncated = &body[..at.index(body.len())];
        match decode(Limits::default(), cut(truncated, &lengths)) {
            Ok((list, _)) => prop_assert_eq!(list, expected),
            Err(error) => prop_assert!(error.is_incomplete() && error.offset() == truncated.len() as u64, "{}", error),
        }
    }

    /// Every chunking ends in the same error, or in the list that prost decodes.
    #[test]
    fn edited_bodies_end_the_same_in_all_chunkings(body in edited_body(BODIES), lengths in chunk_lengths()) {
        let whole = decode(Limits::default(), [&body[..]]);
        let chunked = decode(Limits::default(), cut(&body, &lengths));
        match (whole, chunked) {
            (Ok((whole, _)), Ok((chunked, _))) => {
                prop_assert_eq!(&whole, &chunked);
                prop_assert_eq!(Some(whole), reference(&body));
            }
            (Err(whole), Err(chunked)) => prop_assert_eq!(whole.to_string(), chunked.to_string()),
            (whole, chunked) => prop_assert!(false, "{:?}, but in chunks {:?}", whole, chunked),
        }
    }

    #[test]
    fn arbitrary_bytes_end_the_same_in_all_chunkings(bytes in vec(any::<u8>(), 0..300), magic: bool, lengths in chunk_lengths()) {
        let start: &[u8] = if magic { b"k8s\0\x0a\x09\x12\x07PodList\x12" } else { b"" };
        let body = [start, &bytes].concat();
        prop_assert_eq!(longest_item(&body, &lengths), longest_item(&body, &[body.len().max(1)]));
        _ = ItemRef::new(Encoding::Protobuf, &body).meta();
    }

}

proptest! {
    // Generating long items takes most of the time.
    #![proptest_config(randomized(50, 1000))]

    /// The strings of the metadata and of the end take up to 1000 bytes; the caller owns the chunk.
    #[test]
    fn the_decoder_holds_at_most_twice_the_longest_item(body in list_body(20_000), lengths in chunk_lengths()) {
        let mut longest = 0;
        let counted = measure(|| longest = longest_item(&body, &lengths).0 as u64);
        prop_assert!(counted.bytes_max <= 2 * longest + 1000, "{} bytes for {}", counted.bytes_max, longest);
    }

    /// The bound is three times the bytes received: a buffer grows into one of twice its size.
    #[test]
    fn a_declared_length_reserves_nothing(body in edited_body(LISTS), lengths in chunk_lengths()) {
        let counted = measure(|| drop(longest_item(&body, &lengths)));
        prop_assert!(counted.bytes_max <= 3 * body.len() as u64 + 1000, "{} bytes for {}", counted.bytes_max, body.len());
    }
}
