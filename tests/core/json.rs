//! JSON lists: cut anywhere, they give what `serde_json` makes of the full buffer; what is wrong with them is said where.

use crate::support::members::Members;
use crate::support::{List, cut, fixture};
use allocation_counter::{AllocationInfo, measure};
use k8s_pb::api::core::v1::Pod;
use listwatch::{
    DecodeError, Encoding, Event, ItemError, Json, Limits, ListDecoder, ListEnd, ListMeta, ListReader, OnItemError,
    TypeMeta,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::Deserialize;
use serde_json::value::RawValue;

const LISTS: [&str; 3] = ["pods.json", "widgets-page-1.json", "widgets-negotiated.json"];

fn members(json: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(json).ok().map(|Members(members)| members)
}

/// Sets a field, unless the value is `null`.
fn set<'a, T: Deserialize<'a>>(place: &mut T, value: &'a RawValue) -> Option<()> {
    if let Some(value) = serde_json::from_str(value.get()).ok()? {
        *place = value;
    }
    Some(())
}

/// What `serde_json` makes of the full buffer, with duplicates and nulls as Go reads them; `None` when it is no list.
fn reference(body: &[u8]) -> Option<List> {
    let (mut type_meta, mut list_meta, mut items) = (TypeMeta::default(), ListMeta::default(), None::<Vec<Vec<u8>>>);
    for (name, value) in members(str::from_utf8(body).ok()?)? {
        match name.as_str() {
            "apiVersion" => set(&mut type_meta.api_version, value)?,
            "kind" => {
                set(&mut type_meta.kind, value)?;
                // Refused when it comes, though a later one would count.
                if !type_meta.kind.is_empty() && !is_list(&type_meta.kind) {
                    return None;
                }
            }
            "metadata" if value.get() != "null" => {
                for (name, value) in members(value.get())? {
                    match name.as_str() {
                        "resourceVersion" => set(&mut list_meta.resource_version, value)?,
                        "continue" => set(&mut list_meta.continue_token, value)?,
                        "remainingItemCount" => {
                            list_meta.remaining_item_count = serde_json::from_str(value.get()).ok()?;
                        }
                        "shardInfo" if value.get() == "null" => list_meta.shard_info = None,
                        "shardInfo" => {
                            let shard_info = list_meta.shard_info.get_or_insert_default();
                            for (name, value) in members(value.get())? {
                                if name == "selector" {
                                    set(&mut shard_info.selector, value)?;
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            "items" => {
                if items.is_some_and(|items| !items.is_empty()) {
                    return None;
                }
                let values: Vec<&RawValue> = serde_json::from_str::<Option<_>>(value.get()).ok()?.unwrap_or_default();
                if values.iter().any(|item| !item.get().starts_with('{') && item.get() != "null") {
                    return None;
                }
                items = Some(values.into_iter().map(|item| item.get().as_bytes().to_vec()).collect());
            }
            _ => {}
        }
    }
    let is_list = is_list(&type_meta.kind) && !type_meta.api_version.is_empty();
    is_list.then_some(List { type_meta, list_meta, items: items? })
}

fn is_list(kind: &str) -> bool {
    kind.ends_with("List") && kind != "APIResourceList" && kind != "APIGroupList"
}

/// What the decoder makes of it, with its events checked against each other.
fn decode<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<(List, ListEnd), DecodeError> {
    let mut decoder = ListDecoder::with_limits(limits);
    let mut list = List { type_meta: TypeMeta::default(), list_meta: ListMeta::default(), items: Vec::new() };
    let mut received = 0;
    for mut chunk in chunks {
        received += chunk.len() as u64;
        while let Some(event) = decoder.decode(&mut chunk)? {
            match event {
                Event::TypeMeta(type_meta) => list.type_meta = type_meta.clone(),
                Event::ListMeta(list_meta) => list.list_meta = list_meta.clone(),
                Event::Item(item) => {
                    assert_eq!(item.encoding(), Encoding::Json);
                    assert!(item.index() >= list.items.len() as u64, "skipped items count");
                    list.items.push(item.bytes().to_vec());
                }
                _ => unreachable!("no other events"),
            }
        }
        assert!(chunk.is_empty());
        assert_eq!(decoder.position(), received);
    }
    let end = decoder.finish()?;
    assert_eq!((&end.type_meta, &end.list_meta), (&list.type_meta, &list.list_meta));
    assert_eq!((end.items, end.bytes), (list.items.len() as u64, received));
    Ok((list, end))
}

#[test]
fn every_chunking_of_a_recorded_list_gives_the_same() {
    let random: Vec<usize> = (1..1000).map(|n| n * 7919 % 6007).collect();
    for (name, items) in LISTS.into_iter().zip([30, 20, 30]) {
        let body = fixture(name);
        let expected = reference(&body).unwrap();
        assert_eq!((expected.items.len(), expected.list_meta.resource_version.as_str()), (items, "525"), "{name}");
        for lengths in [&[body.len()][..], &[1], &[7], &[64], &[4096], &[64 << 10], &random] {
            let (list, _) = decode(Limits::default(), cut(&body, lengths)).unwrap();
            assert_eq!(list, expected, "{name} in chunks of {lengths:?}");
        }
    }
}

#[test]
fn every_split_into_two_gives_the_same() {
    let body = fixture("widgets-page-1.json");
    let expected = reference(&body).unwrap();
    for split in 0..=body.len() {
        assert_eq!(
            decode(Limits::default(), [&body[..split], &body[split..]]).unwrap().0,
            expected,
            "split at {split}"
        );
    }
}

#[test]
fn an_item_whole_in_a_chunk_is_lent_from_it() {
    let body = fixture("pods.json");
    let mut decoder = ListDecoder::new();
    let mut rest = &body[..];
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        if let Event::Item(item) = event {
            assert_eq!(item.bytes().as_ptr(), body[usize::try_from(item.offset()).unwrap()..].as_ptr());
        }
    }
    assert_eq!(decoder.finish().unwrap().items, 30);
}

#[test]
fn every_prefix_is_incomplete() {
    for name in LISTS {
        let body = fixture(name);
        let ends: Vec<usize> = {
            let (mut decoder, mut rest, mut ends) = (ListDecoder::new(), &body[..], Vec::new());
            while let Some(event) = decoder.decode(&mut rest).unwrap() {
                if let Event::Item(item) = event {
                    ends.push(usize::try_from(item.offset()).unwrap() + item.bytes().len());
                }
            }
            ends
        };
        // Behind the brace comes a line feed.
        assert_eq!(decode(Limits::default(), [&body[..body.len() - 1]]).unwrap().0, reference(&body).unwrap());
        for len in (0..body.len() - 1).step_by(body.len() / 10_000 + 1) {
            let error = decode(Limits::default(), [&body[..len]]).unwrap_err();
            assert!(error.is_incomplete() && error.offset() == len as u64, "{name} cut at {len}: {error}");
            let whole = ends.iter().filter(|end| **end <= len).count() as u64;
            assert_eq!(error.items(), whole, "{name} cut at {len}");
            assert!(error.index().is_none_or(|index| index == whole), "{name} cut at {len}: {error}");
        }
    }
}

#[track_caller]
fn check(name: &str, limits: Limits, body: &[u8], expected: Result<&[&str], &str>) {
    for chunk in [body.len(), 1, 3, 70] {
        let outcome = decode(limits, cut(body, &[chunk.max(1)])).map(|(list, _)| list.items);
        match (outcome, expected) {
            (Ok(items), Ok(expected)) => {
                let items: Vec<_> = items.iter().map(|item| str::from_utf8(item).unwrap()).collect();
                assert_eq!(items, expected, "{name}, in chunks of {chunk}");
            }
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{name}, in chunks of {chunk}"),
            (outcome, _) => panic!("{name}, in chunks of {chunk}: {outcome:?}, expected {expected:?}"),
        }
    }
}

/// A list of two items; byte 80 is the first's, byte 90 the closing bracket.
const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"a":1},{}]}"#;
const ITEMS: &[&str] = &[r#"{"a":1}"#, "{}"];

/// The list with this in place of its last bracket and brace.
fn ending(more: &str) -> String {
    format!("{}{more}", &LIST[..90])
}

/// The list with this in place of its items, which begin at byte 80.
fn items(items: &str) -> String {
    format!("{}{items}]}}", &LIST[..80])
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn faults() {
    let spaced = " \t\r\n{ \"kind\" : \"PodList\" , \"apiVersion\" :\n\"v1\", \"items\" : [ {\"a\":1} , {} ] }\n ";
    let deep = |brackets| items(&["{\"a\":", &"[".repeat(brackets), &"]".repeat(brackets), "}"].concat());
    for (name, body, expected) in [
        ("the list", LIST.to_owned(), Ok(ITEMS)),
        ("whitespace", spaced.to_owned(), Ok(ITEMS)),
        ("no items", items(""), Ok(&[][..])),
        ("items of null", r#"{"kind":"PodList","apiVersion":"v1","items":null}"#.to_owned(), Ok(&[])),
        ("an item of null", items("null , {}"), Ok(&["null", "{}"])),
        ("names in escapes", LIST.replace("kind", r"\u006bi\u006Ed").replace("items", r"\u0069tems"), Ok(ITEMS)),
        ("names in other cases", ending(r#"],"Items":1,"KIND":2}"#), Ok(ITEMS)),
        (
            "unknown members",
            ending(r#"],"a":"]\"","b":[{"items":[1]}],"c":-1.5e+3,"d":true,"e":null,"":{}}"#),
            Ok(ITEMS),
        ),
        (
            "items before all others",
            r#"{"items":[{"a":1},{}],"kind":"PodList","apiVersion":"v1"}"#.to_owned(),
            Ok(ITEMS),
        ),
        ("what kubectl prints", LIST.replace("PodList", "List"), Ok(ITEMS)),
        ("the last kind counts", ending(r#"],"kind":"WidgetList","kind":null}"#), Ok(ITEMS)),
        (
            "items again, where there were none",
            r#"{"kind":"PodList","apiVersion":"v1","items":null,"items":[],"items":[{}]}"#.to_owned(),
            Ok(&["{}"]),
        ),
        (
            "items again",
            ending(r#"],"items":null}"#),
            Err("malformed: a second value in items, at byte 92, 2 items delivered"),
        ),
        (
            "the last kind is none of a list",
            ending(r#"],"kind":"Pod"}"#),
            Err("not a list: the body is a Pod of \"v1\", at byte 92, 2 items delivered"),
        ),
        ("nothing", String::new(), Err("incomplete: the body ended before the list did, at byte 0, 0 items delivered")),
        (
            "whitespace alone",
            " \n".to_owned(),
            Err("incomplete: the body ended before the list did, at byte 2, 0 items delivered"),
        ),
        (
            "an item cut",
            LIST[..85].to_owned(),
            Err("incomplete: the body ended before the list did in item 0, at byte 85, 0 items delivered"),
        ),
        (
            "a null cut",
            format!("{}nul", &LIST[..80]),
            Err("incomplete: the body ended before the list did in item 0, at byte 83, 0 items delivered"),
        ),
        (
            "cut before the last brace",
            ending("]"),
            Err("incomplete: the body ended before the list did, at byte 91, 2 items delivered"),
        ),
        (
            "an array",
            " []".to_owned(),
            Err("malformed: a value of another type in the body, at byte 1, 0 items delivered"),
        ),
        (
            "HTML behind whitespace",
            "\n<html>".to_owned(),
            Err("malformed: a fault of JSON syntax in the body, at byte 1, 0 items delivered"),
        ),
        (
            "bytes behind the list",
            format!("{LIST}\n{{"),
            Err("malformed: a fault of JSON syntax in the body, at byte 93, 2 items delivered"),
        ),
        (
            "a comma too many",
            ending("],}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 92, 2 items delivered"),
        ),
        (
            "no comma",
            ending("] \"a\":1}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 92, 2 items delivered"),
        ),
        (
            "no colon",
            ending("],\"a\"1}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 95, 2 items delivered"),
        ),
        (
            "no value",
            ending("],\"a\":}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 96, 2 items delivered"),
        ),
        (
            "no name",
            ending("],a:1}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 92, 2 items delivered"),
        ),
        (
            "another bracket",
            ending("}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 90, 2 items delivered"),
        ),
        (
            "a comma before the items' end",
            ending(",]}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 91, 2 items delivered"),
        ),
        (
            "no comma between items",
            items("{} {}"),
            Err("malformed: a fault of JSON syntax in the body, at byte 83, 1 item delivered"),
        ),
        (
            "another literal",
            ending("],\"a\":nul}"),
            Err("malformed: a fault of JSON syntax in an unknown field, at byte 92, 2 items delivered"),
        ),
        (
            "a number with a zero",
            ending("],\"a\":01}"),
            Err("malformed: a fault of JSON syntax in an unknown field, at byte 92, 2 items delivered"),
        ),
        (
            "an item of another literal",
            items("nil"),
            Err("malformed: a fault of JSON syntax in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "a number for an item",
            items("{},7"),
            Err("malformed: a value of another type in items in item 1, at byte 83, 1 item delivered"),
        ),
        (
            "a list for an item",
            items("[]"),
            Err("malformed: a value of another type in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "a string for an item",
            items("\"\""),
            Err("malformed: a value of another type in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "an item with another last bracket",
            items("{},{]"),
            Err("malformed: a fault of JSON syntax in items in item 1, at byte 83, 1 item delivered"),
        ),
        (
            "an object for items",
            LIST.replace("[{\"a\":1},{}]", "{}"),
            Err("malformed: a value of another type in items, at byte 71, 0 items delivered"),
        ),
        (
            "a number for kind",
            LIST.replace("\"PodList\"", "7"),
            Err("malformed: a value of another type in kind, at byte 1, 0 items delivered"),
        ),
        (
            "an object for apiVersion",
            LIST.replace("\"v1\"", "{}"),
            Err("malformed: a value of another type in apiVersion, at byte 18, 0 items delivered"),
        ),
        (
            "a string for metadata",
            LIST.replace("{\"resourceVersion\":\"7\"}", "\"\""),
            Err("malformed: a value of another type in metadata, at byte 36, 0 items delivered"),
        ),
        (
            "a number for a version",
            LIST.replace("\"7\"", "7"),
            Err("malformed: a value of another type in metadata.resourceVersion, at byte 36, 0 items delivered"),
        ),
        (
            "a wrong escape in metadata",
            LIST.replace("\"7\"", r#""\x""#),
            Err("malformed: a fault of JSON syntax in metadata, at byte 36, 0 items delivered"),
        ),
        (
            "a wrong escape in a name",
            LIST.replace("kind", r"k\ind"),
            Err("malformed: a fault of JSON syntax in an unknown field, at byte 1, 0 items delivered"),
        ),
        (
            "no kind",
            r#"{"apiVersion":"v1","items":[{}]}"#.to_owned(),
            Err("malformed: no value in kind, at byte 31, 1 item delivered"),
        ),
        ("an empty object", "{}".to_owned(), Err("malformed: no value in kind, at byte 1, 0 items delivered")),
        (
            "no apiVersion",
            r#"{"kind":"PodList","items":[]}"#.to_owned(),
            Err("malformed: no value in apiVersion, at byte 28, 0 items delivered"),
        ),
        (
            "no items",
            r#"{"kind":"PodList","apiVersion":"v1"}"#.to_owned(),
            Err("malformed: no value in items, at byte 35, 0 items delivered"),
        ),
        (
            "an object with items, and its kind behind them",
            r#"{"apiVersion":"v1","items":[{}],"kind":"Thing"}"#.to_owned(),
            Err("not a list: the body is a Thing of \"v1\", at byte 32, 1 item delivered"),
        ),
        (
            "an object with items, and its kind before them",
            r#"{"kind":"Thing","items":[{}],"apiVersion":"v1"}"#.to_owned(),
            Err("not a list: the body is a Thing of \"\", at byte 16, 0 items delivered"),
        ),
        ("as deep as Go reads", deep(9997), Ok(&[&deep(9997)[80..20_080]])),
        ("one deeper", deep(9998), Err("malformed: nested too deep in items in item 0, at byte 80, 0 items delivered")),
        (
            "an unknown member too deep",
            ending(&format!("],\"a\":{}", "[".repeat(10_000))),
            Err("malformed: nested too deep in an unknown field, at byte 92, 2 items delivered"),
        ),
    ] {
        check(name, Limits::default(), body.as_bytes(), expected);
    }
    let body = LIST.replace("\"7\"", "\"?\"").into_bytes();
    let body: Vec<u8> = body.into_iter().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
    check(
        "invalid UTF-8 in the metadata",
        Limits::default(),
        &body,
        Err("malformed: invalid UTF-8 in metadata, at byte 36, 0 items delivered"),
    );
}

#[test]
fn a_status_in_place_of_a_list_is_the_servers_error() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"token"},"status":"Failure","message":"too old","reason":"Expired","details":{"retryAfterSeconds":3,"causes":[{"reason":"R","message":"M","field":"F"}]},"code":410}"#;
    let sorted =
        r#"{"apiVersion":"v1","code":410,"message":"too old","metadata":{},"reason":"Expired","kind":"Status"}"#;
    let expired = "API error: 410 Expired: too old, at byte 0, 0 items delivered";
    for (name, body, expected) in [
        ("kind first", status.to_owned(), expired),
        ("kind last", sorted.to_owned(), expired),
        ("whitespace", format!("\n{}", sorted.replace(',', " ,\n ")), expired),
        (
            "cut",
            status[..status.len() - 1].to_owned(),
            "incomplete: the body ended before the list did, at byte 221, 0 items delivered",
        ),
        (
            "of another group",
            sorted.replace("v1", "example.com/v1"),
            "not a list: the body is a Status of \"example.com/v1\", at byte 95, 0 items delivered",
        ),
        (
            "of another shape",
            status.replace("410", "\"410\""),
            "malformed: something else than a Status in the body, at byte 0, 0 items delivered",
        ),
        // As an API server ends a list of which it cannot encode an item.
        (
            "behind an item",
            format!("{},{status}\n", &LIST[..87]),
            "API error: 410 Expired: too old, at byte 88, 1 item delivered",
        ),
        (
            "before the first item",
            format!("{}{status}\n", &LIST[..80]),
            "API error: 410 Expired: too old, at byte 80, 0 items delivered",
        ),
    ] {
        check(name, Limits::default(), body.as_bytes(), Err(expected));
    }
    let error = decode(Limits::default(), [status.as_bytes()]).unwrap_err();
    let status = error.status().unwrap();
    let details = status.details.as_ref().unwrap();
    assert_eq!(status.metadata.as_ref().unwrap().continue_token, "token");
    assert_eq!((details.retry_after_seconds, details.causes[0].field.as_str()), (3, "F"));
}

#[test]
fn what_is_no_list_is_refused_by_name() {
    for (name, expected) in [
        (
            "pods-table.json",
            "not a list: the body is a Table of \"meta.k8s.io/v1\"; ask for the list, without as=Table, at byte 16, 0 items delivered",
        ),
        (
            "watch-configmaps.json",
            "unexpected encoding: the body looks like a watch stream, not like a list, at byte 0, 0 items delivered",
        ),
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a list; \
             ask for application/vnd.kubernetes.protobuf, at byte 0, 0 items delivered",
        ),
    ] {
        check(name, Limits::default(), &fixture(name), Err(expected));
    }
    for (kind, expected) in [
        ("Pod", "not a list: the body is a Pod of \"v1\", at byte 14, 0 items delivered"),
        ("APIResourceList", "not a list: the body is a APIResourceList of \"v1\", at byte 26, 0 items delivered"),
        ("APIGroupList", "not a list: the body is a APIGroupList of \"v1\", at byte 23, 0 items delivered"),
    ] {
        check(kind, Limits::default(), LIST.replace("PodList", kind).as_bytes(), Err(expected));
    }
}

#[test]
fn limits() {
    let three = items(r#"{"x":"1234"},{"y":"}"},null"#);
    // The items are 12, 9 and 4 bytes long and begin at 80, 93 and 103; the body is 109 bytes long.
    let [x, y] = [r#"{"x":"1234"}"#, r#"{"y":"}"}"#];
    let limits = Limits::default();
    for (name, limits, expected) in [
        ("an item of just the size", limits.item_size(12), Ok(&[x, y, "null"][..])),
        (
            "an item over the size",
            limits.item_size(11),
            Err(
                "limit: an item's size in bytes of 12 is over the limit of 11, which Limits::item_size raises in item 0, \
                 at byte 80, 0 items delivered",
            ),
        ),
        ("oversized items left out", limits.item_size(9).on_oversized(OnItemError::Skip), Ok(&[y, "null"])),
        ("just as many items", limits.items(3), Ok(&[x, y, "null"])),
        (
            "an item too many",
            limits.items(2),
            Err("limit: a number of items of 3 is over the limit of 2, which Limits::items raises in item 2, \
                 at byte 103, 2 items delivered"),
        ),
        (
            "items left out count",
            limits.items(2).item_size(8).on_oversized(OnItemError::Skip),
            Err("limit: a number of items of 3 is over the limit of 2, which Limits::items raises in item 2, \
                 at byte 103, 0 items delivered"),
        ),
        ("just as many bytes", limits.bytes(109), Ok(&[x, y, "null"])),
        (
            "a byte too many",
            limits.bytes(108),
            Err("limit: a body's size in bytes of 109 is over the limit of 108, which Limits::bytes raises, \
                 at byte 108, 3 items delivered"),
        ),
        (
            "too many bytes within an item",
            limits.bytes(85),
            Err("limit: a body's size in bytes of 86 is over the limit of 85, which Limits::bytes raises, \
                 at byte 85, 0 items delivered"),
        ),
        ("no limits", limits.item_size(u64::MAX).metadata_size(u64::MAX), Ok(&[x, y, "null"])),
        ("metadata of just the size", limits.metadata_size(23), Ok(&[x, y, "null"])),
        (
            "metadata over the size",
            limits.metadata_size(22),
            Err("limit: a metadata size in bytes of 23 is over the limit of 22, which Limits::metadata_size raises, \
                 at byte 36, 0 items delivered"),
        ),
    ] {
        check(name, limits, three.as_bytes(), expected);
    }
    let status = r#"{"apiVersion":"v1","message":"1234567890","kind":"Status","code":500}"#;
    check(
        "a Status over the size",
        limits.metadata_size(65),
        status.as_bytes(),
        Err("limit: a metadata size in bytes of 66 is over the limit of 65, which Limits::metadata_size raises, \
             at byte 0, 0 items delivered"),
    );
    check(
        "a Status over the size before its kind",
        limits.metadata_size(30),
        status.as_bytes(),
        Err("not a list: the body is a Status of \"v1\", at byte 42, 0 items delivered"),
    );
}

/// `kind` stands behind the items in lists of custom resources.
#[test]
fn the_type_meta_of_an_item_is_what_came_before_it() {
    let (mut decoder, body) = (ListDecoder::new(), fixture("widgets-page-1.json"));
    let (mut rest, mut events) = (&body[..], Vec::new());
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        events.push(match event {
            Event::TypeMeta(type_meta) => format!("{} {}", type_meta.api_version, type_meta.kind),
            Event::ListMeta(list_meta) => format!("{:?} left", list_meta.remaining_item_count),
            Event::Item(item) => format!("{}: {:?}", item.index(), item.type_meta().api_version),
            _ => unreachable!("no other events"),
        });
    }
    assert_eq!(events[..2], ["0: \"example.com/v1\"", "1: \"example.com/v1\""]);
    assert_eq!(events[20..], ["example.com/v1 WidgetList", "Some(10) left"]);
}

#[derive(Debug, serde::Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Debug, serde::Deserialize)]
struct Name {
    name: String,
}

#[test]
fn items_become_what_serde_makes_of_them() {
    let names = ListReader::<_, Json<Named>>::new(&fixture("pods.json")[..])
        .map(|item| item.map(|item| item.metadata.name))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    assert_eq!((names.len(), names[0].as_str()), (30, "billing-401f53e7-00028"));

    let (list, broken) =
        (items(r#"{"metadata":{"name":"a"}},{"metadata":{"name":7}},{"#), r#"{"metadata":{"name":tru}}]}"#);
    let body = list.replace("{]}", broken);
    let mut items = ListReader::<_, Json<Named>>::new(body.as_bytes()).on_item_error(OnItemError::Skip);
    assert_eq!(items.by_ref().map(|item| item.unwrap().metadata.name).collect::<Vec<_>>(), ["a"]);
    assert_eq!(items.end().unwrap().skipped, 2);
    let error = ListReader::<_, Json<Named>>::new(body.as_bytes()).find_map(Result::err).unwrap();
    assert_eq!(
        error.to_string(),
        "item: invalid type: integer `7`, expected a string at line 1 column 21 in item 1, at byte 106, 1 item delivered"
    );
}

#[test]
fn no_encoding_is_taken_for_the_other() {
    let (json, protobuf) = (fixture("pods.json"), fixture("pods.pb"));
    for (error, expected) in [
        (
            ListReader::<_, Pod>::new(&json[..]).find_map(Result::err).unwrap(),
            "item: it is in JSON, where protobuf is to be read in item 0, at byte 224, 0 items delivered",
        ),
        (
            ListReader::<_, Json<Named>>::new(&protobuf[..]).find_map(Result::err).unwrap(),
            "item: it is in protobuf, where JSON is to be read in item 0, at byte 34, 0 items delivered",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

/// The same collection in both encodings, of which the JSON is the first page.
#[test]
fn the_metadata_is_the_same_as_in_protobuf() {
    fn read(body: &[u8]) -> Vec<String> {
        let items = ListReader::<_, [u8]>::new(body).map_item(|item| {
            let meta = item.meta()?;
            let managers = meta.managed_fields()?.map(|entry| (entry.manager.to_owned(), entry.time));
            Ok::<_, ItemError>(format!(
                "{meta:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                meta.generate_name(),
                meta.generation(),
                meta.creation_timestamp(),
                meta.deletion_timestamp(),
                meta.deletion_grace_period_seconds(),
                meta.labels()?.collect::<Vec<_>>(),
                meta.label("app.kubernetes.io/name")?,
                meta.annotations()?.collect::<Vec<_>>(),
                meta.annotation("kubernetes.io/config.source")?,
                meta.owner_references()?.collect::<Vec<_>>(),
                meta.finalizers()?.collect::<Vec<_>>(),
                managers.collect::<Vec<_>>(),
            ))
        });
        items.collect::<Result<_, _>>().unwrap()
    }
    let (json, protobuf) = (read(&fixture("pods.json")), read(&fixture("pods.pb")));
    assert_eq!((json.len(), protobuf.len()), (30, 120));
    assert_eq!(json, protobuf[..30]);
}

#[cfg(feature = "async")]
#[test]
fn streams_and_codecs_read_json() {
    use bytes::Bytes;
    use futures::{StreamExt as _, executor::block_on, stream};
    use listwatch::{ListCodec, ListStream};
    use tokio_util::codec::FramedRead;

    let body = fixture("widgets-negotiated.json");
    let expected: Vec<_> = reference(&body).unwrap().items.into_iter().map(Vec::into_boxed_slice).collect();
    let chunks = stream::iter(cut(&body, &[100]).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk))));
    let streamed: Vec<_> = block_on(ListStream::<_, [u8]>::new(chunks).map(Result::unwrap).collect());
    let framed: Vec<_> = block_on(FramedRead::new(&body[..], ListCodec::<[u8]>::new()).map(Result::unwrap).collect());
    assert_eq!((&streamed, &framed), (&expected, &expected));
}

// ---- memory ----

fn count(body: &[u8], chunk: usize, limits: Limits) -> (u64, AllocationInfo) {
    let mut items = 0;
    let counted = measure(|| {
        let mut decoder = ListDecoder::with_limits(limits);
        for mut chunk in body.chunks(chunk) {
            while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                items += u64::from(matches!(event, Event::Item(_)));
            }
        }
        decoder.finish().unwrap();
    });
    (items, counted)
}

#[test]
fn what_is_dropped_allocates_the_same_for_any_number_of_items() {
    let list = |times| items(&vec![r#"{"metadata":{"name":"a-\"name\""}}"#; times].join(", "));
    let (few, many) = (list(100), list(100_000));
    for (few_chunk, many_chunk) in [(7, 7), (few.len(), many.len())] {
        let (few_items, few) = count(few.as_bytes(), few_chunk, Limits::default());
        let (many_items, many) = count(many.as_bytes(), many_chunk, Limits::default());
        assert_eq!((few_items, many_items), (100, 100_000));
        assert_eq!((many.count_total, many.bytes_total), (few.count_total, few.bytes_total));
    }
}

/// JSON does not say how long an item is, so its buffer doubles: at worst while it holds all but the last byte.
#[test]
fn a_split_item_takes_at_most_three_times_its_length() {
    let body = fixture("pods.json");
    let longest = reference(&body).unwrap().items.iter().map(Vec::len).max().unwrap() as u64;
    for chunk in [1, 7, 1000, 4096, 5000] {
        let (_, counted) = count(&body, chunk, Limits::default());
        assert!(counted.bytes_max <= 3 * longest + 1500, "{} for {longest}, in chunks of {chunk}", counted.bytes_max);
    }
    let (_, counted) = count(&body, body.len(), Limits::default());
    assert!(counted.bytes_max <= 1500, "{} bytes for a body in memory", counted.bytes_max);
}

#[test]
fn what_is_not_read_takes_constant_memory() {
    let long = "x".repeat(10 << 20);
    let unknown = format!(r#","{long}":1,"s":"{long}","n":{},"o":{{"{long}":[1]}}"#, "1".repeat(1 << 20));
    let body = LIST.replace(",\"metadata\"", &format!("{unknown},\"metadata\""));
    let oversized = items(&format!(r#"{{"a":"{long}"}},{{}}"#));
    let limits = Limits::default().item_size(1000).on_oversized(OnItemError::Skip);
    for (body, expected) in [(body, 2), (oversized, 1)] {
        let (items, counted) = count(body.as_bytes(), 4096, limits);
        assert_eq!(items, expected);
        assert!(counted.bytes_max < 4000, "{} bytes", counted.bytes_max);
    }
}

// ---- properties ----

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t\r ")]
}

/// A string, with as many escapes as it takes, or in escapes altogether.
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

/// A name: of a known member, or another.
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

/// A list of members in any order, some twice, null, missing or of another type: most are lists.
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
    (required, vec(extra, 0..4), space(), space()).prop_flat_map(|(mut members, extra, before, behind)| {
        members.extend(extra);
        (Just(members).prop_shuffle(), vec(space(), 8)).prop_map(move |(members, spaces)| {
            let members: Vec<_> = members.into_iter().zip(spaces).collect();
            format!("{before}{}{behind}", join('{', &members, '}'))
        })
    })
}

fn chunk_lengths() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..10_usize, 1..2000_usize], 1..20)
}

/// A body with some of its bytes changed, inserted or removed.
fn broken(body: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![prop::sample::select(&b"{}[]\",:\\ nul\x00\xff"[..]), any::<u8>()];
    (body, vec((any::<prop::sample::Index>(), byte, 0..3_u8), 1..4)).prop_map(|(mut body, edits)| {
        for (place, byte, edit) in edits {
            let place = place.index(body.len());
            match edit {
                0 => body.insert(place, byte),
                1 if body.len() > 1 => drop(body.remove(place)),
                _ => body[place] = byte,
            }
        }
        body
    })
}

/// However it is cut, it ends in the same; and if `serde_json` sees a list, so does the decoder.
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
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_lists_equal_the_reference(body in list_body(), lengths in chunk_lengths()) {
        let list = agree(body.as_bytes(), &lengths)?;
        prop_assert_eq!(list, reference(body.as_bytes()));
    }

    #[test]
    fn a_cut_list_is_never_a_shorter_one(body in list_body(), lengths in chunk_lengths(), at in any::<prop::sample::Index>()) {
        let Some(expected) = reference(body.as_bytes()) else { return Ok(()) };
        let cut_body = &body.as_bytes()[..at.index(body.len())];
        match decode(Limits::default(), cut(cut_body, &lengths)) {
            Ok((list, _)) => prop_assert_eq!(list, expected),
            Err(error) => prop_assert!(error.is_incomplete() && error.offset() == cut_body.len() as u64, "{}", error),
        }
    }

    /// What `serde_json` refuses is refused, or it is an item that is at fault: that is found by whoever decodes it.
    #[test]
    fn broken_recorded_lists_are_refused_or_their_items(
        body in broken(prop::sample::select(&LISTS[1..]).prop_map(fixture)),
        lengths in chunk_lengths(),
    ) {
        if let Some(list) = agree(&body, &lengths)? && reference(&body).is_none() {
            let refused = |item: &Vec<u8>| serde_json::from_slice::<&RawValue>(item).is_err();
            prop_assert!(list.items.iter().any(refused));
        }
    }

    #[test]
    fn broken_lists_end_the_same_in_all_chunkings(body in broken(list_body().prop_map(String::into_bytes)), lengths in chunk_lengths()) {
        agree(&body, &lengths)?;
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..300), text in "[\\[\\]{}\",:\\\\ nul1]{0,100}", lengths in chunk_lengths()) {
        agree(&[b"{", &bytes[..]].concat(), &lengths)?;
        agree(&[&LIST.as_bytes()[..80], text.as_bytes()].concat(), &lengths)?;
    }
}

#[test]
fn item_errors_tell_the_encodings() {
    let error = ItemError::WrongEncoding { found: Encoding::Json, expected: Encoding::Protobuf };
    assert_eq!(error.to_string(), "it is in JSON, where protobuf is to be read");
}
