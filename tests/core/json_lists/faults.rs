//! A fault in a JSON list is an error with its position, the same for every chunking.

use listwatch::Limits;

use super::{ITEMS, LIST, check, ending, items};
use crate::support::{cut, decode, decode_by, fixture, list_decoder};

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn checks_json_syntax_and_members() {
    let spaced = " \t\r\n{ \"kind\" : \"PodList\" , \"apiVersion\" :\n\"v1\", \"items\" : [ {\"a\":1} , {} ] }\n ";
    let deep = |brackets| items(&["{\"a\":", &"[".repeat(brackets), &"]".repeat(brackets), "}"].concat());
    for (name, body, expected) in [
        ("the list", LIST.to_owned(), Ok(ITEMS)),
        ("whitespace", spaced.to_owned(), Ok(ITEMS)),
        ("no items", items(""), Ok(&[][..])),
        ("items of null", r#"{"kind":"PodList","apiVersion":"v1","items":null}"#.to_owned(), Ok(&[])),
        ("an item of null", items("null , {}"), Ok(&["null", "{}"])),
        ("names in escapes", LIST.replace("kind", r"\u006bi\u006Ed").replace("items", r"\u0069tems"), Ok(ITEMS)),
        (
            "the longest known name, in escapes",
            LIST.replace("apiVersion", r"\u0061\u0070\u0069\u0056\u0065\u0072\u0073\u0069\u006f\u006e"),
            Ok(ITEMS),
        ),
        ("an object in a list", LIST.replace(r#""metadata":{"#, r#""object":{"a":1},"metadata":{"#), Ok(ITEMS)),
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
        ("a List, as kubectl prints it", LIST.replace("PodList", "List"), Ok(ITEMS)),
        ("the last kind counts", ending(r#"],"kind":"WidgetList","kind":null}"#), Ok(ITEMS)),
        (
            "items after empty items",
            r#"{"kind":"PodList","apiVersion":"v1","items":null,"items":[],"items":[{}]}"#.to_owned(),
            Ok(&["{}"]),
        ),
        (
            "items twice",
            ending(r#"],"items":null}"#),
            Err("malformed: a second value in items, at byte 92, 2 items delivered"),
        ),
        (
            "the last kind is not a list",
            ending(r#"],"kind":"APIGroupList"}"#),
            Err("not a list: the body has the kind \"APIGroupList\" of \"v1\", at byte 92, 2 items delivered"),
        ),
        ("empty", String::new(), Err("incomplete: the body ended before the list did, at byte 0, 0 items delivered")),
        (
            "whitespace alone",
            " \n".to_owned(),
            Err("incomplete: the body ended before the list did, at byte 2, 0 items delivered"),
        ),
        (
            "truncated in an item",
            LIST[..85].to_owned(),
            Err("incomplete: the body ended before the list did in item 0, at byte 85, 0 items delivered"),
        ),
        (
            "truncated in a null",
            format!("{}nul", &LIST[..80]),
            Err("incomplete: the body ended before the list did in item 0, at byte 83, 0 items delivered"),
        ),
        (
            "truncated before the last brace",
            ending("]"),
            Err("incomplete: the body ended before the list did, at byte 91, 2 items delivered"),
        ),
        (
            "an array",
            " []".to_owned(),
            Err("malformed: a value of the wrong type in the body, at byte 1, 0 items delivered"),
        ),
        (
            "HTML after whitespace",
            "\n<html>".to_owned(),
            Err("unexpected encoding: the body looks like HTML, not like a list, at byte 0, 0 items delivered"),
        ),
        (
            "bytes after the list",
            format!("{LIST}\n{{"),
            Err("malformed: invalid JSON in the body, at byte 93, 2 items delivered"),
        ),
        ("an extra comma", ending("],}"), Err("malformed: invalid JSON in the body, at byte 92, 2 items delivered")),
        ("no comma", ending("] \"a\":1}"), Err("malformed: invalid JSON in the body, at byte 92, 2 items delivered")),
        ("no colon", ending("],\"a\"1}"), Err("malformed: invalid JSON in the body, at byte 95, 2 items delivered")),
        ("no value", ending("],\"a\":}"), Err("malformed: invalid JSON in the body, at byte 96, 2 items delivered")),
        ("no name", ending("],a:1}"), Err("malformed: invalid JSON in the body, at byte 92, 2 items delivered")),
        ("another bracket", ending("}"), Err("malformed: invalid JSON in the body, at byte 90, 2 items delivered")),
        (
            "a comma before the items' end",
            ending(",]}"),
            Err("malformed: invalid JSON in the body, at byte 91, 2 items delivered"),
        ),
        (
            "no comma between items",
            items("{} {}"),
            Err("malformed: invalid JSON in the body, at byte 83, 1 item delivered"),
        ),
        (
            "another literal",
            ending("],\"a\":nul}"),
            Err("malformed: invalid JSON in an unknown field, at byte 92, 2 items delivered"),
        ),
        (
            "a number with a zero",
            ending("],\"a\":01}"),
            Err("malformed: invalid JSON in an unknown field, at byte 92, 2 items delivered"),
        ),
        (
            "an item of another literal",
            items("nil"),
            Err("malformed: invalid JSON in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "a number for an item",
            items("{},7"),
            Err("malformed: a value of the wrong type in items in item 1, at byte 83, 1 item delivered"),
        ),
        (
            "a list for an item",
            items("[]"),
            Err("malformed: a value of the wrong type in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "a string for an item",
            items("\"\""),
            Err("malformed: a value of the wrong type in items in item 0, at byte 80, 0 items delivered"),
        ),
        (
            "an item with another last bracket",
            items("{},{]"),
            Err("malformed: invalid JSON in items in item 1, at byte 83, 1 item delivered"),
        ),
        (
            "an object for items",
            LIST.replace("[{\"a\":1},{}]", "{}"),
            Err("malformed: a value of the wrong type in items, at byte 71, 0 items delivered"),
        ),
        (
            "a number for kind",
            LIST.replace("\"PodList\"", "7"),
            Err("malformed: a value of the wrong type in kind, at byte 1, 0 items delivered"),
        ),
        (
            "an object for apiVersion",
            LIST.replace("\"v1\"", "{}"),
            Err("malformed: a value of the wrong type in apiVersion, at byte 18, 0 items delivered"),
        ),
        (
            "a string for metadata",
            LIST.replace("{\"resourceVersion\":\"7\"}", "\"\""),
            Err("malformed: a value of the wrong type in metadata, at byte 36, 0 items delivered"),
        ),
        (
            "a number for a version",
            LIST.replace("\"7\"", "7"),
            Err("malformed: a value of the wrong type in metadata.resourceVersion, at byte 36, 0 items delivered"),
        ),
        (
            "a wrong escape in metadata",
            LIST.replace("\"7\"", r#""\x""#),
            Err("malformed: invalid JSON in metadata.resourceVersion, at byte 36, 0 items delivered"),
        ),
        (
            "a wrong escape in a name",
            LIST.replace("kind", r"k\ind"),
            Err("malformed: invalid JSON in an unknown field, at byte 1, 0 items delivered"),
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
            "a kind of its own, after the items",
            r#"{"apiVersion":"v1","items":[{}],"kind":"Thing"}"#.to_owned(),
            Ok(&["{}"]),
        ),
        (
            "a kind of its own, before the items",
            r#"{"kind":"Thing","items":[{}],"apiVersion":"v1"}"#.to_owned(),
            Ok(&["{}"]),
        ),
        (
            "a Table with items",
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","items":[{}]}"#.to_owned(),
            Err("not a list: the body has the kind \"Table\" of \"meta.k8s.io/v1\", at byte 16, 0 items delivered"),
        ),
        ("as deep as Go reads", deep(9997), Ok(&[&deep(9997)[80..20_080]])),
        ("too deep", deep(9998), Err("malformed: nested too deep in items in item 0, at byte 80, 0 items delivered")),
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
        Err("malformed: invalid UTF-8 in metadata.resourceVersion, at byte 36, 0 items delivered"),
    );
}

#[test]
fn a_status_is_an_api_error() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"token"},"status":"Failure","message":"too old","reason":"Expired","details":{"retryAfterSeconds":3,"causes":[{"reason":"R","message":"M","field":"F"}]},"code":410}"#;
    let sorted =
        r#"{"apiVersion":"v1","code":410,"message":"too old","metadata":{},"reason":"Expired","kind":"Status"}"#;
    let expired = "API error: 410 Expired: too old, at byte 0, 0 items delivered";
    for (name, body, expected) in [
        ("kind first", status.to_owned(), expired),
        ("kind last", sorted.to_owned(), expired),
        ("whitespace", format!("\n{}", sorted.replace(',', " ,\n ")), expired),
        (
            "truncated",
            status[..status.len() - 1].to_owned(),
            "incomplete: the body ended before the list did, at byte 221, 0 items delivered",
        ),
        (
            "of another group",
            sorted.replace("v1", "example.com/v1"),
            "not a list: the body has the kind \"Status\" of \"example.com/v1\", at byte 95, 0 items delivered",
        ),
        (
            "of another shape",
            status.replace("410", "\"410\""),
            "malformed: no valid Status in the body, at byte 0, 0 items delivered",
        ),
        // An API server that cannot encode an item ends the list with a Status.
        (
            "after an item",
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
fn names_the_body_that_is_not_a_list() {
    for (name, expected) in [
        (
            "pods-table.json",
            "not a list: the body has the kind \"Table\" of \"meta.k8s.io/v1\", at byte 16, 0 items delivered",
        ),
        (
            "watch-configmaps.json",
            "unexpected encoding: the body looks like a watch stream, not like a list, at byte 0, 0 items delivered",
        ),
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a list, at byte 0, 0 items delivered",
        ),
    ] {
        check(name, Limits::default(), &fixture(name), Err(expected));
    }
    for (kind, expected) in [
        (
            "APIResourceList",
            "not a list: the body has the kind \"APIResourceList\" of \"v1\", at byte 26, 0 items delivered",
        ),
        ("APIGroupList", "not a list: the body has the kind \"APIGroupList\" of \"v1\", at byte 23, 0 items delivered"),
    ] {
        check(kind, Limits::default(), LIST.replace("PodList", kind).as_bytes(), Err(expected));
    }
}

/// As apimachinery's `unstructured` decides it (`pkg/apis/meta/v1/unstructured/helpers.go`, `detectList`), because a
/// custom resource names the kind of its lists as it likes.
#[test]
fn the_items_make_a_list() {
    let expected = [r#"{"a":1}"#, "{}"];
    for kind in ["PodList", "PodCollection", "Pods", "Pod", "List"] {
        check(kind, Limits::default(), LIST.replace("PodList", kind).as_bytes(), Ok(&expected));
    }
    let object = |kind: &str| {
        format!(r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"a"}},"spec":{{"items":[{{}}]}}}}"#)
    };
    for (kind, expected) in [
        ("Pod", "not a list: the body has the kind \"Pod\" of \"v1\", at byte 77, 0 items delivered"),
        ("PodList", "malformed: no value in items, at byte 81, 0 items delivered"),
    ] {
        check(kind, Limits::default(), object(kind).as_bytes(), Err(expected));
    }
}

#[test]
fn skips_oversized_items_if_the_caller_allows_it() {
    let three = items(r#"{"x":"1234"},{"y":"}"},null"#);
    let limits = Limits::default();
    for chunk in [1, 3, 70, 1000] {
        let outcome = |limits| {
            let decoder = list_decoder(limits).skip_item_errors(true);
            decode_by(decoder, cut(three.as_bytes(), &[chunk])).map(|(list, end)| (list.items, end.skipped))
        };
        let kept = [r#"{"y":"}"}"#, "null"].map(|item| item.as_bytes().to_vec()).to_vec();
        assert_eq!(outcome(limits.item_size(9)).unwrap(), (kept, 1));
        // Skipped items count.
        let expected = "the list has at least 3 items, over the limit of 2, at byte 103, 0 items delivered";
        assert_eq!(outcome(limits.items(2).item_size(8)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn applies_limits() {
    let three = items(r#"{"x":"1234"},{"y":"}"},null"#);
    // The items are 12, 9 and 4 bytes long and begin at 80, 93 and 103; the body is 109 bytes long.
    let [x, y] = [r#"{"x":"1234"}"#, r#"{"y":"}"}"#];
    let limits = Limits::default();
    for (name, limits, expected) in [
        ("an item at the limit", limits.item_size(12), Ok(&[x, y, "null"][..])),
        (
            "an item over the limit",
            limits.item_size(11),
            Err("item 0 is 12 bytes, over the limit of 11 bytes, \
                 at byte 80, 0 items delivered"),
        ),
        ("as many items as the limit", limits.items(3), Ok(&[x, y, "null"])),
        (
            "one item over the limit",
            limits.items(2),
            Err("the list has at least 3 items, over the limit of 2, \
                 at byte 103, 2 items delivered"),
        ),
        ("as many bytes as the limit", limits.bytes(109), Ok(&[x, y, "null"])),
        (
            "one byte over the limit",
            limits.bytes(108),
            Err("the body is at least 109 bytes, over the limit of 108 bytes, \
                 at byte 108, 3 items delivered"),
        ),
        (
            "too many bytes within an item",
            limits.bytes(85),
            Err("the body is at least 86 bytes, over the limit of 85 bytes, \
                 at byte 85, 0 items delivered"),
        ),
        ("no limits", limits.item_size(u64::MAX).metadata_size(u64::MAX), Ok(&[x, y, "null"])),
        ("metadata at the limit", limits.metadata_size(23), Ok(&[x, y, "null"])),
        (
            "metadata over the limit",
            limits.metadata_size(22),
            Err("the metadata is 23 bytes, over the limit of 22 bytes, \
                 at byte 36, 0 items delivered"),
        ),
    ] {
        check(name, limits, three.as_bytes(), expected);
    }
    check(
        "as much whitespace as the limit",
        limits.bytes(3),
        b" \t\n",
        Err("incomplete: the body ended before the list did, at byte 3, 0 items delivered"),
    );
    check(
        "whitespace over the limit",
        limits.bytes(2),
        b" \t\n",
        Err("the body is at least 3 bytes, over the limit of 2 bytes, at byte 0, 0 items delivered"),
    );
    let status = r#"{"apiVersion":"v1","message":"1234567890","kind":"Status","code":500}"#;
    check(
        "a Status over the limit",
        limits.metadata_size(65),
        status.as_bytes(),
        Err("the metadata is 66 bytes, over the limit of 65 bytes, \
             at byte 0, 0 items delivered"),
    );
    check(
        "a Status at the limit",
        // The last bracket ends the body, and is not kept.
        limits.metadata_size(status.len() as u64 - 1),
        status.as_bytes(),
        Err("API error: 500: 1234567890, at byte 0, 0 items delivered"),
    );
    check(
        "a Status over the limit before its kind",
        limits.metadata_size(30),
        status.as_bytes(),
        Err("not a list: the body has the kind \"Status\" of \"v1\", at byte 42, 0 items delivered"),
    );
}
