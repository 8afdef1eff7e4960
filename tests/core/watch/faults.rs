//! A fault in a watch is an error with its position, the same for every chunking.

use listwatch::{Limits, WatchDecoder, WatchEventRef};

use super::{check, protobuf};
use crate::support::cut;
use crate::support::watch::{reference, watch};
use crate::support::{body_of, fixture, framed, len_field};

/// Each fault follows a whole frame of 41 bytes.
#[test]
fn checks_protobuf_frames() {
    let good = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    assert_eq!(good.len(), 41);
    let pod = |object: &[u8]| protobuf("ADDED", "v1", "Pod", object);
    let event = |event: &str| protobuf(event, "v1", "Pod", b"\x0a\x03\x32\x017");
    let raw = |raw: &[u8]| framed(&[len_field(1, b"ADDED"), len_field(2, &len_field(1, raw))].concat());
    let status = |status: &[u8]| protobuf("ERROR", "v1", "Status", status);
    for (frame, fault) in [
        (vec![0; 4], "malformed: no bytes in the frame"),
        (b"\x01\x00\x00\x01".to_vec(), "event 1 is 16777217 bytes, over the limit of 16 MiB"),
        (b"\xff\xff\xff\xff".to_vec(), "event 1 is 4294967295 bytes, over the limit of 16 MiB"),
        (framed(b"\x08\x01"), "malformed: the wrong wire type in type"),
        (framed(b"\x10\x01"), "malformed: the wrong wire type in object"),
        (framed(b"\x0a\x05ADD"), "malformed: a length past the end of its parent in the frame"),
        (framed(b"\x0f"), "malformed: an invalid tag in the frame"),
        (framed(b"\x0a\x05ADDED"), "malformed: no value in object"),
        (framed(b"\x0a\x05ADDED\x12\x00"), "malformed: no value in object"),
        (framed(b"\x0a\x05ADDED\x12\x02\x0a\x03"), "malformed: a length past the end of its parent in object"),
        (
            framed(&len_field(2, &len_field(1, &body_of("v1", "Pod", b"\x0a\x03\x32\x017")))),
            "malformed: no value in type",
        ),
        (event("SYNCED"), "malformed: an unknown value in type"),
        (event("added"), "malformed: an unknown value in type"),
        (event(""), "malformed: an unknown value in type"),
        (raw(b""), "malformed: no k8s\\0 at the beginning in object"),
        (raw(b"{\"kind\":\"Pod\"}"), "malformed: no k8s\\0 at the beginning in object"),
        (raw(b"k8s\0"), "malformed: no value in metadata.resourceVersion"),
        (raw(b"k8s\0\x0a\x03\x0a\x02v"), "malformed: a length past the end of its parent in typeMeta"),
        (raw(b"k8s\0\x0a\x03\x0a\x01\xff"), "malformed: invalid UTF-8 in apiVersion"),
        (raw(b"k8s\0\x0a\x03\x12\x01\xff"), "malformed: invalid UTF-8 in kind"),
        (
            raw(b"k8s\0\x0a\x00\x12\x05\x0a\x03\x32\x017\x1a\x04gzip\x22\x00"),
            "malformed: an unsupported value in contentEncoding",
        ),
        (
            raw(b"k8s\0\x0a\x00\x12\x05\x0a\x03\x32\x017\x1a\x00\x22\x01x"),
            "malformed: an unsupported value in contentType",
        ),
        (raw(b"k8s\0\x12\x09\x0a\x03\x32\x017"), "malformed: a length past the end of its parent in object"),
        (pod(b""), "malformed: no value in metadata.resourceVersion"),
        (pod(b"\x0a\x02\x32\x00"), "malformed: no value in metadata.resourceVersion"),
        (pod(b"\x0a\x03\x0a\x01n"), "malformed: no value in metadata.resourceVersion"),
        (pod(b"\x12\x03\x32\x017"), "malformed: no value in metadata.resourceVersion"),
        (pod(b"\x0a\x03\x32\x01\xff"), "malformed: invalid UTF-8 in metadata.resourceVersion"),
        (pod(b"\x0a\x02\x30\x07"), "malformed: the wrong wire type in metadata.resourceVersion"),
        (pod(b"\x08\x01"), "malformed: the wrong wire type in metadata"),
        (pod(b"\x0a\x03\x32\x027"), "malformed: a length past the end of its parent in metadata"),
        (pod(b"\x0a\x03\x32\x017\x12\x01"), "malformed: a length past the end of its parent in the object"),
        (protobuf("MODIFIED", "v1", "Pod", b"\x0a\x00"), "malformed: no value in metadata.resourceVersion"),
        (
            protobuf("BOOKMARK", "v1", "Pod", b"\x0a\x07\x32\x017\x62\x02\x08\x01"),
            "malformed: the wrong wire type in metadata.annotations",
        ),
        (protobuf("ERROR", "v1", "Pod", b""), "malformed: no valid Status in object"),
        (status(b"\x30"), "malformed: no valid Status in object"),
        (status(&[0x1a, 0x80, 0x80, 0x40]), "malformed: no valid Status in object"),
    ] {
        let body = [&good[..], &frame, &good].concat();
        let place = if fault.starts_with("malformed") { " in event 1" } else { "" };
        check(Limits::default(), &body, 1, &format!("{fault}{place}, at byte 41, 1 event delivered"));
    }
    // Valid: unknown fields anywhere, a version in pieces of metadata, members in another order, an empty Status.
    let unknown = b"\x18\x05\x1d....\x33\x3a\x01x\x34";
    for frame in [
        framed(&[&unknown[..], &good[4..], unknown].concat()),
        framed(
            &[
                len_field(
                    2,
                    &[&unknown[..], &len_field(1, &body_of("v1", "Pod", b"\x0a\x03\x32\x017")), unknown].concat(),
                ),
                len_field(1, b"DELETED"),
            ]
            .concat(),
        ),
        raw(b"k8s\0\x12\x0a\x0a\x03\x32\x017\x0a\x03\x0a\x01n\x0a\x00\x1a\x00\x22\x00\x28\x01"),
        status(b""),
        // A bookmark without an object.
        framed(&len_field(1, b"BOOKMARK")),
    ] {
        check(Limits::default(), &[&good[..], &frame].concat(), 2, "whole");
    }
}

#[test]
fn checks_json_frames() {
    const GOOD: &str = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#;
    const ENDS: &str = r#"{"metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let deep =
        |depth: usize| GOOD.replace(r#""kind""#, &format!(r#""a":{}{},"kind""#, "[".repeat(depth), "]".repeat(depth)));
    for (line, fault) in [
        (r#"{"type":"ADDED"}"#.to_owned(), "malformed: no value in object"),
        (r#"{"object":{"metadata":{"resourceVersion":"7"}}}"#.into(), "malformed: no value in type"),
        (r#"{"type":null,"object":{"metadata":{"resourceVersion":"7"}}}"#.into(), "malformed: no value in type"),
        ("{}".into(), "malformed: no value in type"),
        (r#"{"type":7}"#.into(), "malformed: a value of the wrong type in type"),
        (r#"{"type":"ADDED","object":[]}"#.into(), "malformed: a value of the wrong type in object"),
        (r#"{"type":"ADDED","object":null}"#.into(), "malformed: no value in object"),
        (r#"{"type":"ADDED","object":"x"}"#.into(), "malformed: a value of the wrong type in object"),
        (GOOD.replace("ADDED", "SYNCED"), "malformed: an unknown value in type"),
        (GOOD.replace("ADDED", "added"), "malformed: an unknown value in type"),
        (GOOD.replace("resourceVersion", "version"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, r#""""#), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, "null"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, "7"), "malformed: a value of the wrong type in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, r#""\ud800""#), "malformed: invalid UTF-8 in metadata.resourceVersion"),
        (GOOD.replace("metadata", "spec"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#"{"resourceVersion":"7"}"#, "[]"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""Pod""#, "{}"), "malformed: a value of the wrong type in kind"),
        (GOOD.replace(r#""Pod""#, "tru"), "malformed: a value of the wrong type in kind"),
        (GOOD.replace(r#""Pod""#, ""), "malformed: invalid JSON in kind"),
        (GOOD.replace(r#""kind":"Pod""#, r#""other":tru"#), "malformed: invalid JSON in object"),
        (GOOD.replace(r#""Pod","#, r#""Pod""#), "malformed: invalid JSON in object"),
        (GOOD.replace(r#""kind":"#, r#""kind""#), "malformed: invalid JSON in object"),
        (GOOD.replace(r#""kind""#, "kind"), "malformed: invalid JSON in object"),
        (GOOD.replace(r#""ADDED","#, r#""ADDED",,"#), "malformed: invalid JSON in the frame"),
        (GOOD.replace("}}}", "}},}"), "malformed: invalid JSON in the frame"),
        ("[]".into(), "malformed: invalid JSON in the frame"),
        ("null".into(), "malformed: invalid JSON in the frame"),
        ("x".into(), "malformed: invalid JSON in the frame"),
        (GOOD.replace("ADDED", "ERROR"), "malformed: no valid Status in object"),
        (r#"{"type":"ERROR","object":{"kind":"Status","code":"x"}}"#.into(), "malformed: no valid Status in object"),
        (
            GOOD.replace("ADDED", "BOOKMARK")
                .replace("{\"res", "{\"annotations\":{\"k8s.io/initial-events-end\":7},\"res"),
            "malformed: a value of the wrong type in metadata.annotations",
        ),
        (deep(9_999), "malformed: nested too deep in the frame"),
    ] {
        let body = format!("{GOOD}\n{line}\n{GOOD}\n");
        check(Limits::default(), body.as_bytes(), 1, &format!("{fault} in event 1, at byte 76, 1 event delivered"));
    }
    // A frame ends with its object, so an unclosed object includes all bytes after it.
    for line in [
        GOOD.replace(r#""kind":"Pod""#, r#""other":{"#),
        GOOD.replace("}}}", "}}"),
        GOOD.replace("}}}", "}"),
        "{".into(),
    ] {
        let body = format!("{GOOD}\n{line}\n{GOOD}\n");
        let expected =
            format!("incomplete: the body ended inside a frame in event 1, at byte {}, 1 event delivered", body.len());
        check(Limits::default(), body.as_bytes(), 1, &expected);
    }
    // A bookmark needs no object.
    check(Limits::default(), format!("{GOOD}\n{{\"type\":\"BOOKMARK\"}}\n").as_bytes(), 2, "whole");
    // Two objects need no separator, and the last object needs no line break.
    check(Limits::default(), format!("{GOOD}{GOOD}\n{GOOD}").as_bytes(), 3, "whole");
    check(
        Limits::default(),
        format!("{GOOD}]\n{GOOD}").as_bytes(),
        1,
        "malformed: invalid JSON in the frame in event 1, at byte 75, 1 event delivered",
    );
    // A proxy may print objects over several lines.
    let pretty = GOOD.replace('{', "{\n  ").replace(',', ",\r\n  ").replace('}', "\n}");
    check(Limits::default(), format!("{pretty}\n{pretty}").as_bytes(), 2, "whole");
    // Valid: spaces, escapes, unknown members anywhere, repeated names, blank lines, CR LF as a line break.
    for line in [
        format!(" \t{}\t\r", GOOD.replace(':', " : ").replace(',', "\t,  ").replace('{', "{ ").replace('}', " }")),
        GOOD.replace("type", r"\u0074ype")
            .replace("ADDED", r"\u0041DDED")
            .replace("resourceVersion", r"resource\u0056ersion"),
        GOOD.replace(r#""7""#, r#""\u0037""#),
        GOOD.replace("Pod", r#"P\"o\\d"#),
        GOOD.replace("{\"type\"", "{\"more\":[{}],\"type\"").replace("}}}", "}},\"n\":-1.5e3,\"t\":true}"),
        GOOD.replace("\"kind\"", "\"items\":[{\"kind\":\"X\"},\"]\",\"\\\"\"],\"kind\""),
        GOOD.replace("{\"type\"", "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\"},\"type\""),
        GOOD.replace("{\"res", "{\"resourceVersion\":\"6\",\"res").replace("\"7\"", "\"7\",\"resourceVersion\":null"),
        GOOD.replace("}}}", "},\"metadata\":{\"resourceVersion\":\"8\"},\"metadata\":null}}"),
        "\n \r\n\t".to_owned() + GOOD,
        r#"{"object":{"kind":"Status"},"type":"ERROR"}"#.to_owned(),
        // The last of two objects counts, with its own annotations; metadata in two parts is merged.
        format!(r#"{{"type":"BOOKMARK","object":{ENDS},"object":{{"metadata":{{"resourceVersion":"7"}}}}}}"#),
        format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7"}}}},"object":{ENDS}}}"#),
        format!(r#"{{"type":"BOOKMARK","object":{ENDS}}}"#).replace("}}}", r#"},"metadata":{"resourceVersion":"7"}}}"#),
        // Annotations that are no object are none.
        format!(r#"{{"type":"BOOKMARK","object":{ENDS}}}"#).replace(r#"{"k8s.io/initial-events-end":"true"}"#, "null"),
        deep(9_998),
    ] {
        let body = format!("{GOOD}\n{line}\n{GOOD}\n");
        check(Limits::default(), body.as_bytes(), 3, "whole");
        let (expected, is_whole) = reference(body.as_bytes());
        assert!(is_whole, "{body}");
        assert_eq!(watch(Limits::default(), cut(body.as_bytes(), &[9])).0, expected, "{body}");
        // At the start of the body, its first member identifies it as an event.
        if line.starts_with("{\"type\"") || line.starts_with("{\"object\"") {
            check(Limits::default(), format!("\n{line}\n").as_bytes(), 1, "whole");
        }
    }
}

/// The error of a list, an object or a Status in place of a watch.
const DOCUMENT: &str =
    "unexpected encoding: the body looks like a list or an object, not like a watch, at byte 0, 0 events delivered";

#[test]
fn names_the_json_that_is_not_a_watch() {
    let over = "event 0 is 75 bytes, over the limit of 74 bytes, at byte 1, 0 events delivered";
    let line = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#;
    assert_eq!(line.len(), 75);
    check(Limits::default().item_size(75), format!("\n{line}\n").as_bytes(), 1, "whole");
    for (body, expected) in [
        (format!("\n{line}\n"), over),
        ("\n".to_owned() + &" ".repeat(100), "whole"),
        (r#"{"kind":"Status","apiVersion":"v1","reason":"Gone","code":410}"#.into(), DOCUMENT),
        ("{\n  \"kind\": \"Status\",\n \"apiVersion\": \"v1\", \"code\": 410}\n".into(), DOCUMENT),
        (r#"{"kind":"Status","apiVersion":"v1","#.into(), DOCUMENT),
        (r#"{"kind":"Pod","apiVersion":"v1"}"#.into(), DOCUMENT),
        ("{\"ty".into(), "incomplete: the body ended inside a frame in event 0, at byte 4, 0 events delivered"),
        (
            "{\n\"type\":\"ADDED\",\"object\":{}}\n".into(),
            "malformed: no value in metadata.resourceVersion in event 0, at byte 0, 0 events delivered",
        ),
        ("{\" type\":\"ADDED\"}\n".into(), DOCUMENT),
        ("{}".into(), DOCUMENT),
        ("[]".into(), DOCUMENT),
        (
            "\n<html>".into(),
            "unexpected encoding: the body looks like HTML, not like a watch, at byte 1, 0 events delivered",
        ),
    ] {
        check(Limits::default().item_size(74).bytes(0), body.as_bytes(), 0, expected);
    }
}

#[test]
fn applies_limits() {
    let good = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    let item_size = |max| Limits::default().item_size(max);
    check(item_size(37).items(0).bytes(1), &good, 1, "whole");
    check(item_size(36), &good, 0, "event 0 is 37 bytes, over the limit of 36 bytes, at byte 0, 0 events delivered");
    let long = protobuf("ADDED", "v1", &"K".repeat(30), b"\x0a\x03\x32\x017");
    check(Limits::default().metadata_size(36), &long, 1, "whole");
    check(
        Limits::default().metadata_size(35),
        &long,
        0,
        "the metadata of event 0 is 36 bytes, over the limit of 35 bytes, at byte 0, 0 events delivered",
    );
    let status = protobuf("ERROR", "v1", "Status", &len_field(3, &[b'x'; 20]));
    check(Limits::default().metadata_size(22), &status, 1, "whole");
    check(
        Limits::default().metadata_size(21),
        &status,
        0,
        "the metadata of event 0 is 22 bytes, over the limit of 21 bytes, at byte 0, 0 events delivered",
    );
}

#[test]
fn names_the_body_that_is_not_a_watch() {
    for (name, expected) in [
        ("pods-page-1.pb", DOCUMENT),
        ("pods-empty.pb", DOCUMENT),
        ("single-configmap.pb", DOCUMENT),
        ("error-401.pb", DOCUMENT),
        ("error-410-exact.pb", DOCUMENT),
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a watch, at byte 0, 0 events delivered",
        ),
        (
            "pods-gzip.pb.gz",
            "unexpected encoding: the body looks like gzip, not like a watch, at byte 0, 0 events delivered",
        ),
        ("pods.json", DOCUMENT),
        ("widgets-page-1.json", DOCUMENT),
        ("pods-table.json", DOCUMENT),
    ] {
        check(Limits::default().items(0).bytes(0), &fixture(name), 0, expected);
    }
    for (body, expected) in [
        (
            &b"<html><body>Bad Gateway"[..],
            "unexpected encoding: the body looks like HTML, not like a watch, at byte 0, 0 events delivered",
        ),
        (
            b"Too many requests\n",
            "unexpected encoding: the body looks like text, not like a watch, at byte 0, 0 events delivered",
        ),
        (b"k8t", "unexpected encoding: the body looks like text, not like a watch, at byte 0, 0 events delivered"),
        (b"k8s", "incomplete: the body ended inside a frame in event 0, at byte 3, 0 events delivered"),
        (&fixture("error-401.pb")[..30], DOCUMENT),
        (
            b"\xff\xff\xff\xff",
            "unexpected encoding: the body looks like unknown binary data, not like a watch, at byte 0, 0 events delivered",
        ),
    ] {
        check(Limits::default(), body, 0, expected);
        // Such a body has no event that could be at fault.
        let error = watch(Limits::default(), [body]).1.unwrap_err();
        assert_eq!(error.index(), error.is_incomplete().then_some(0), "{error}");
    }
}

#[test]
fn refuses_bytes_after_finish() {
    let body = fixture("watch-configmaps.pb");
    let mut decoder = crate::support::watch_decoder(Limits::default());
    decoder.finish().unwrap();
    decoder.finish().unwrap();
    assert!(decoder.decode(&mut &b""[..]).unwrap().is_none());
    for _ in 0..2 {
        let error = decoder.decode(&mut &body[..]).unwrap_err();
        assert_eq!(error.to_string(), "misuse: bytes after finish, at byte 0, 0 events delivered");
    }
}

/// As in Go, `null` sets nothing.
#[test]
fn metadata_may_be_null_before_it_is_an_object() {
    let metadata = r#""metadata":null,"metadata":{"resourceVersion":"7"}"#;
    let frame = format!(r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","apiVersion":"v1",{metadata}}}}}"#);
    let (mut decoder, mut rest) = (WatchDecoder::new().accept_json(), frame.as_bytes());
    match decoder.decode(&mut rest).unwrap() {
        Some(WatchEventRef::Added { resource_version, .. }) => assert_eq!(resource_version, "7"),
        other => panic!("{other:?}"),
    }
}
