//! Watches: recorded, made up and broken ones give, cut in every way, what an independent decode of the full body gives.

use crate::support::watch::{Seen, reference, see, watch};
use crate::support::{body_of, cut, fixture, framed, len_field, tag, varint};
use allocation_counter::measure;
use listwatch::error::Fault;
use listwatch::{DecodeErrorKind, Limits, WatchDecoder, WatchEvent};
use proptest::collection::vec;
use proptest::prelude::*;

const PROTOBUF: &[&str] = &[
    "watch-configmaps.pb",
    "watch-configmaps-metadata.pb",
    "watch-expired.pb",
    "watch-initial-events.pb",
    "watch-initial-events-pods.pb",
    "watch-quiet-bookmarks.pb",
];

#[cfg(feature = "json")]
const JSON: &[&str] =
    &["watch-configmaps.json", "watch-expired.json", "watch-initial-events.json", "watch-widgets-negotiated.json"];
#[cfg(not(feature = "json"))]
const JSON: &[&str] = &[];

fn fixtures() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    PROTOBUF.iter().chain(JSON).map(|name| (*name, fixture(name)))
}

/// The lengths of the frames, that of a frame or its line break included.
fn frame_lengths(body: &[u8]) -> Vec<usize> {
    if body.starts_with(b"{") {
        return body.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
    }
    let (mut lengths, mut rest) = (Vec::new(), body);
    while let Some(length) = rest.first_chunk() {
        let length = 4 + usize::try_from(u32::from_be_bytes(*length)).unwrap();
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

/// A protobuf frame with this event.
fn protobuf(event: &str, api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let raw = len_field(1, &body_of(api_version, kind, object));
    framed(&[len_field(1, event.as_bytes()), len_field(2, &raw)].concat())
}

/// The frame with its length before it.
#[test]
fn recorded_watches_are_what_was_recorded() {
    let changes = |seen: &[Seen], wanted| {
        seen.iter().filter(|seen| matches!(seen, Seen::Changed { event, .. } if *event == wanted)).count()
    };
    for (name, added, modified, deleted, bookmarks) in [
        ("watch-configmaps.pb", 1, 3, 1, &[("549", false), ("549", false)][..]),
        ("watch-configmaps-metadata.pb", 14, 3, 1, &[][..]),
        ("watch-initial-events.pb", 14, 3, 1, &[("591", true), ("600", false)]),
        ("watch-initial-events-pods.pb", 120, 0, 0, &[("604", true)]),
        ("watch-quiet-bookmarks.pb", 0, 0, 0, &[("604", true), ("610", false), ("642", false)]),
        #[cfg(feature = "json")]
        ("watch-configmaps.json", 14, 3, 1, &[]),
        #[cfg(feature = "json")]
        ("watch-initial-events.json", 13, 0, 0, &[("605", true)]),
        #[cfg(feature = "json")]
        ("watch-widgets-negotiated.json", 31, 3, 1, &[]),
    ] {
        let (seen, end) = watch(Limits::default(), [&fixture(name)[..]]);
        end.unwrap();
        let counts = [changes(&seen, "ADDED"), changes(&seen, "MODIFIED"), changes(&seen, "DELETED")];
        assert_eq!(counts, [added, modified, deleted], "{name}");
        let seen = seen.into_iter().filter(|seen| matches!(seen, Seen::Bookmark { .. })).collect::<Vec<_>>();
        let bookmark = |(version, end): &(&str, bool)| Seen::Bookmark {
            version: (*version).to_owned(),
            ends_initial_events: *end,
        };
        assert_eq!(seen, bookmarks.iter().map(bookmark).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn an_expired_watch_says_so() {
    for (name, body) in fixtures().filter(|(name, _)| name.starts_with("watch-expired")) {
        let (seen, end) = watch(Limits::default(), [&body[..]]);
        end.unwrap();
        let [Seen::Error(status)] = &seen[..] else { panic!("{name}: {seen:?}") };
        assert_eq!(status.to_string(), "410 Expired: too old resource version: 2 (463)", "{name}");
    }
}

#[test]
fn every_chunking_gives_the_same() {
    for (name, body) in fixtures() {
        let expected = reference(&body);
        assert!(!expected.0.is_empty() && expected.1, "{name}");
        for lengths in [&[body.len()][..], &[1], &[3], &[7], &[4096], &[64 << 10], &[1, 4, 300, 2, 9000]] {
            let (seen, end) = watch(Limits::default(), cut(&body, lengths));
            assert_eq!((seen, end.is_ok()), expected, "{name} in chunks of {lengths:?}");
        }
    }
}

/// Also that only the frame on the split is copied, and that objects are lent from where they are.
#[test]
fn every_split_into_two_gives_the_same() {
    for (name, body) in fixtures() {
        let lengths = frame_lengths(&body);
        // Of the long ones, the last three.
        let last: usize = lengths.iter().rev().take(3).sum();
        let body = if body.len() > 8 << 10 { &body[body.len() - last..] } else { &body[..] };
        let (expected, _) = reference(body);
        let lengths = frame_lengths(body);
        for split in 0..=body.len() {
            let mut decoder = WatchDecoder::new();
            let (mut events, mut start) = (0, 0);
            for mut chunk in [&body[..split], &body[split..]] {
                while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                    assert!(see(event, events as u64) == expected[events], "{name} split at {split}, event {events}");
                    let end = start + lengths[events];
                    if let WatchEvent::Added(changed) | WatchEvent::Modified(changed) = event {
                        assert_eq!(changed.object.offset(), start as u64, "{name} split at {split}");
                        let is_lent = body.as_ptr_range().contains(&changed.object.bytes().as_ptr());
                        // Behind its length a frame is whole; a line ends with its line break.
                        let (from, to) = if PROTOBUF.contains(&name) { (start + 4, end) } else { (start, end) };
                        assert_eq!(is_lent, split <= from || split >= to, "{name} split at {split}, event {events}");
                    }
                    (events, start) = (events + 1, end);
                }
            }
            decoder.finish().unwrap();
            assert_eq!(events, expected.len(), "{name} split at {split}");
        }
    }
}

#[test]
fn a_prefix_ends_between_frames_or_in_an_error() {
    for (name, body) in fixtures() {
        let body = &body[..body.len().min(6 << 10)];
        let (expected, _) = reference(body);
        let ends: Vec<usize> = frame_lengths(&fixture(name))
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        for len in 0..=body.len() {
            for lengths in [&[len.max(1)][..], &[61]] {
                let (seen, end) = watch(Limits::default(), cut(&body[..len], lengths));
                let whole = ends.iter().filter(|end| **end <= len).count();
                assert_eq!(seen, expected[..whole], "{name} cut at {len}");
                if len == 0 || ends.contains(&len) {
                    end.unwrap();
                    continue;
                }
                let error = end.unwrap_err();
                assert!(matches!(error.kind(), DecodeErrorKind::CutFrame) && error.is_incomplete(), "{name}: {error}");
                assert_eq!(
                    (error.offset(), error.items(), error.index()),
                    (len as u64, whole as u64, Some(whole as u64))
                );
            }
        }
    }
}

#[track_caller]
fn check(limits: Limits, body: &[u8], events: usize, expected: &str) {
    for chunk in [body.len(), 1, 3] {
        let (seen, end) = watch(limits, cut(body, &[chunk]));
        let text = String::from_utf8_lossy(body);
        assert_eq!(seen.len(), events, "{text:?} in chunks of {chunk}");
        let end = end.map_or_else(|error| error.to_string(), |()| "whole".to_owned());
        assert_eq!(end, expected, "{text:?} in chunks of {chunk}");
    }
}

/// What comes behind a whole frame of 41 bytes.
#[test]
fn faults_of_protobuf() {
    let good = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    assert_eq!(good.len(), 41);
    let pod = |object: &[u8]| protobuf("ADDED", "v1", "Pod", object);
    let event = |event: &str| protobuf(event, "v1", "Pod", b"\x0a\x03\x32\x017");
    let raw = |raw: &[u8]| framed(&[len_field(1, b"ADDED"), len_field(2, &len_field(1, raw))].concat());
    let status = |status: &[u8]| protobuf("ERROR", "v1", "Status", status);
    for (frame, fault) in [
        (vec![0; 4], "malformed: no bytes in the frame"),
        (
            b"\x01\x00\x00\x01".to_vec(),
            "limit: an item's size in bytes of 16777217 is over the limit of 16777216, which Limits::item_size raises",
        ),
        (
            b"\xff\xff\xff\xff".to_vec(),
            "limit: an item's size in bytes of 4294967295 is over the limit of 16777216, which Limits::item_size raises",
        ),
        (framed(b"\x08\x01"), "malformed: the wrong wire type in type"),
        (framed(b"\x10\x01"), "malformed: the wrong wire type in object"),
        (framed(b"\x0a\x05ADD"), "malformed: a length past the end of its parent in the frame"),
        (framed(b"\x0f"), "malformed: an impossible tag in the frame"),
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
            "malformed: a value where none is supported in contentEncoding",
        ),
        (
            raw(b"k8s\0\x0a\x00\x12\x05\x0a\x03\x32\x017\x1a\x00\x22\x01x"),
            "malformed: a value where none is supported in contentType",
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
        (protobuf("BOOKMARK", "v1", "Pod", b"\x0a\x00"), "malformed: no value in metadata.resourceVersion"),
        (
            protobuf("BOOKMARK", "v1", "Pod", b"\x0a\x08\x32\x017\x62\x03\x0a\x01\xff"),
            "malformed: invalid UTF-8 in metadata.annotations",
        ),
        (protobuf("ERROR", "v1", "Pod", b""), "malformed: something else than a Status in object"),
        (status(b"\x30"), "malformed: something else than a Status in object"),
        (status(&[0x1a, 0x80, 0x80, 0x40]), "malformed: something else than a Status in object"),
    ] {
        let body = [&good[..], &frame, &good].concat();
        check(Limits::default(), &body, 1, &format!("{fault} in event 1, at byte 41, 1 event delivered"));
    }
    // What is not at fault: unknown fields anywhere, a version in pieces of metadata, members in another order, an empty Status.
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
    ] {
        check(Limits::default(), &[&good[..], &frame].concat(), 2, "whole");
    }
}

#[cfg(feature = "json")]
#[test]
fn faults_of_json() {
    const GOOD: &str = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#;
    const ENDS: &str = r#"{"metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let deep =
        |depth: usize| GOOD.replace(r#""kind""#, &format!(r#""a":{}{},"kind""#, "[".repeat(depth), "]".repeat(depth)));
    for (line, fault) in [
        (r#"{"type":"ADDED"}"#.to_owned(), "malformed: no value in object"),
        (r#"{"object":{"metadata":{"resourceVersion":"7"}}}"#.into(), "malformed: no value in type"),
        (r#"{"type":null,"object":{"metadata":{"resourceVersion":"7"}}}"#.into(), "malformed: no value in type"),
        ("{}".into(), "malformed: no value in type"),
        (r#"{"type":7}"#.into(), "malformed: a value of another type in type"),
        (r#"{"type":"ADDED","object":[]}"#.into(), "malformed: a value of another type in object"),
        (r#"{"type":"ADDED","object":null}"#.into(), "malformed: a value of another type in object"),
        (r#"{"type":"ADDED","object":"x"}"#.into(), "malformed: a value of another type in object"),
        (GOOD.replace("ADDED", "SYNCED"), "malformed: an unknown value in type"),
        (GOOD.replace("ADDED", "added"), "malformed: an unknown value in type"),
        (GOOD.replace("resourceVersion", "version"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, r#""""#), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, "null"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, "7"), "malformed: a value of another type in metadata.resourceVersion"),
        (GOOD.replace(r#""7""#, r#""\ud800""#), "malformed: a fault of JSON syntax in metadata.resourceVersion"),
        (GOOD.replace("metadata", "spec"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#"{"resourceVersion":"7"}"#, "[]"), "malformed: no value in metadata.resourceVersion"),
        (GOOD.replace(r#""Pod""#, "{}"), "malformed: a value of another type in kind"),
        (GOOD.replace(r#""Pod""#, "tru"), "malformed: a value of another type in kind"),
        (GOOD.replace(r#""Pod""#, ""), "malformed: a fault of JSON syntax in kind"),
        (GOOD.replace(r#""kind":"Pod""#, r#""other":tru"#), "malformed: a fault of JSON syntax in object"),
        (GOOD.replace(r#""kind":"Pod""#, r#""other":{"#), "malformed: a fault of JSON syntax in the frame"),
        (GOOD.replace(r#""Pod","#, r#""Pod""#), "malformed: a fault of JSON syntax in object"),
        (GOOD.replace(r#""kind":"#, r#""kind""#), "malformed: a fault of JSON syntax in object"),
        (GOOD.replace(r#""kind""#, "kind"), "malformed: a fault of JSON syntax in object"),
        (GOOD.replace(r#""ADDED","#, r#""ADDED",,"#), "malformed: a fault of JSON syntax in the frame"),
        (GOOD.replace("}}}", "}},}"), "malformed: a fault of JSON syntax in the frame"),
        (GOOD.replace("}}}", "}}"), "malformed: a fault of JSON syntax in the frame"),
        (GOOD.replace("}}}", "}"), "malformed: a fault of JSON syntax in object"),
        (format!("{GOOD}{GOOD}"), "malformed: a fault of JSON syntax in the frame"),
        (format!("{GOOD}]"), "malformed: a fault of JSON syntax in the frame"),
        ("[]".into(), "malformed: a value of another type in the frame"),
        ("null".into(), "malformed: a value of another type in the frame"),
        ("x".into(), "malformed: a fault of JSON syntax in the frame"),
        ("{".into(), "malformed: a fault of JSON syntax in the frame"),
        (GOOD.replace("ADDED", "ERROR"), "malformed: something else than a Status in object"),
        (
            r#"{"type":"ERROR","object":{"kind":"Status","code":"x"}}"#.into(),
            "malformed: something else than a Status in object",
        ),
        (
            GOOD.replace("ADDED", "BOOKMARK")
                .replace("{\"res", "{\"annotations\":{\"k8s.io/initial-events-end\":7},\"res"),
            "malformed: a value of another type in metadata.annotations",
        ),
        (deep(9_999), "malformed: nested too deep in object"),
    ] {
        let body = format!("{GOOD}\n{line}\n{GOOD}\n");
        check(Limits::default(), body.as_bytes(), 1, &format!("{fault} in event 1, at byte 76, 1 event delivered"));
    }
    // What is not at fault: spaces, escapes, unknown members anywhere, names that come again, blank lines, a line break of CR LF.
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
        // Of two objects the last counts, with its own annotations; metadata in two parts has both.
        format!(r#"{{"type":"BOOKMARK","object":{ENDS},"object":{{"metadata":{{"resourceVersion":"7"}}}}}}"#),
        format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7"}}}},"object":{ENDS}}}"#),
        format!(r#"{{"type":"BOOKMARK","object":{ENDS}}}"#).replace("}}}", r#"},"metadata":{"resourceVersion":"7"}}}"#),
        deep(9_998),
    ] {
        let body = format!("{GOOD}\n{line}\n{GOOD}\n");
        check(Limits::default(), body.as_bytes(), 3, "whole");
        let (expected, is_whole) = reference(body.as_bytes());
        assert!(is_whole, "{body}");
        assert_eq!(watch(Limits::default(), cut(body.as_bytes(), &[9])).0, expected, "{body}");
        // As the first document it is an event by the name that it begins with.
        if line.starts_with("{\"type\"") || line.starts_with("{\"object\"") {
            check(Limits::default(), format!("\n{line}\n").as_bytes(), 1, "whole");
        }
    }
}

#[cfg(feature = "json")]
#[test]
fn json_that_is_no_watch() {
    let over = "limit: an item's size in bytes of 75 is over the limit of 74, which Limits::item_size raises in event 0, at byte 1, 0 events delivered";
    let line = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}"#;
    assert_eq!(line.len(), 75);
    check(Limits::default().item_size(75), format!("\n{line}\n").as_bytes(), 1, "whole");
    for (body, expected) in [
        (format!("\n{line}\n"), over),
        ("\n".to_owned() + &" ".repeat(100), "whole"),
        (
            r#"{"kind":"Status","apiVersion":"v1","reason":"Gone","code":410}"#.into(),
            "API error: 410 Gone, at byte 0, 0 events delivered",
        ),
        (
            "{\n  \"kind\": \"Status\",\n \"apiVersion\": \"v1\", \"code\": 410}\n".into(),
            "API error: 410, at byte 0, 0 events delivered",
        ),
        (
            r#"{"kind":"Status","apiVersion":"v1","#.into(),
            "incomplete: the body ended inside a frame in event 0, at byte 35, 0 events delivered",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1"}"#.into(),
            "not a watch: the body is a Pod of \"v1\", at byte 0, 0 events delivered",
        ),
        ("{\"ty".into(), "incomplete: the body ended inside a frame in event 0, at byte 4, 0 events delivered"),
        (
            "{\n\"type\":\"ADDED\",\"object\":{}}\n".into(),
            "malformed: a fault of JSON syntax in the frame, at byte 0, 0 events delivered",
        ),
        ("{\" type\":\"ADDED\"}\n".into(), "malformed: no value in kind, at byte 0, 0 events delivered"),
        ("{}".into(), "malformed: no value in kind, at byte 0, 0 events delivered"),
        ("[]".into(), "malformed: a value of another type in the body, at byte 0, 0 events delivered"),
        (
            "\n<html>".into(),
            "unexpected encoding: the body looks like HTML, not like a watch, at byte 1, 0 events delivered",
        ),
    ] {
        check(Limits::default().item_size(74).bytes(0), body.as_bytes(), 0, expected);
    }
}

#[test]
fn limits() {
    let good = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    let item_size = |max| Limits::default().item_size(max);
    check(item_size(37).items(0).bytes(1), &good, 1, "whole");
    check(
        item_size(36),
        &good,
        0,
        "limit: an item's size in bytes of 37 is over the limit of 36, which Limits::item_size raises in event 0, at byte 0, 0 events delivered",
    );
    let status = protobuf("ERROR", "v1", "Status", &len_field(3, &[b'x'; 20]));
    check(Limits::default().metadata_size(22), &status, 1, "whole");
    check(
        Limits::default().metadata_size(21),
        &status,
        0,
        "limit: a metadata size in bytes of 22 is over the limit of 21, which Limits::metadata_size raises in event 0, at byte 0, 0 events delivered",
    );
}

/// The 17 MiB of client-go's own test.
#[test]
fn a_frame_over_the_limit_is_refused_before_anything_is_allocated() {
    let mut body = (17_u32 << 20).to_be_bytes().to_vec();
    body.resize(body.len() + (17 << 20), 0xff);
    for chunk in [1, 3, 4096, body.len()] {
        let counted = measure(|| {
            let mut decoder = WatchDecoder::new();
            let error = cut(&body, &[chunk]).find_map(|mut chunk| decoder.decode(&mut chunk).err()).unwrap();
            assert!(matches!(error.kind(), DecodeErrorKind::Limit { size: 0x0110_0000, max: 0x0100_0000, .. }));
            assert_eq!(decoder.position(), 4);
        });
        assert!(counted.bytes_total < 300, "{} bytes, which are the error's", counted.bytes_total);
    }
    // Nor is what a frame under the limit claims.
    let counted = measure(|| {
        let mut decoder = WatchDecoder::new();
        assert!(decoder.decode(&mut &b"\x00\xff\xff\xff\x0a\x05ADD"[..]).unwrap().is_none());
        assert!(decoder.finish().unwrap_err().is_incomplete());
    });
    assert!(counted.bytes_max < 300, "{} bytes", counted.bytes_max);
}

#[test]
fn what_is_no_watch_is_refused_by_name() {
    for (name, expected) in [
        ("pods-page-1.pb", "not a watch: the body is a PodList of \"v1\", at byte 0, 0 events delivered"),
        ("pods-empty.pb", "not a watch: the body is a PodList of \"v1\", at byte 0, 0 events delivered"),
        ("single-configmap.pb", "not a watch: the body is a ConfigMap of \"v1\", at byte 0, 0 events delivered"),
        ("error-401.pb", "API error: 401 Unauthorized: Unauthorized, at byte 0, 0 events delivered"),
        (
            "error-410-exact.pb",
            "API error: 410 Expired: The resourceVersion for the provided list is too old., at byte 0, 0 events delivered",
        ),
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a watch; ask for application/vnd.kubernetes.protobuf, at byte 0, 0 events delivered",
        ),
        (
            "pods-gzip.pb.gz",
            "unexpected encoding: the body looks like gzip, not like a watch, at byte 0, 0 events delivered",
        ),
        #[cfg(feature = "json")]
        ("pods.json", "not a watch: the body is a PodList of \"v1\", at byte 0, 0 events delivered"),
        #[cfg(feature = "json")]
        ("widgets-page-1.json", "not a watch: the body is a List of \"example.com/v1\", at byte 0, 0 events delivered"),
        #[cfg(feature = "json")]
        ("pods-table.json", "not a watch: the body is a Table of \"meta.k8s.io/v1\", at byte 0, 0 events delivered"),
        #[cfg(not(feature = "json"))]
        (
            "watch-configmaps.json",
            "unexpected encoding: the body looks like JSON, not like a watch, and the feature `json` is off, at byte 0, 0 events delivered",
        ),
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
        (
            &fixture("error-401.pb")[..30],
            "incomplete: the body ended inside a frame in event 0, at byte 30, 0 events delivered",
        ),
        (
            b"\xff\xff\xff\xff",
            "unexpected encoding: the body looks like unknown binary data, not like a watch, at byte 0, 0 events delivered",
        ),
    ] {
        check(Limits::default(), body, 0, expected);
    }
}

#[test]
fn nothing_comes_after_finish() {
    let body = fixture("watch-configmaps.pb");
    let mut decoder = WatchDecoder::new();
    decoder.finish().unwrap();
    decoder.finish().unwrap();
    assert!(decoder.decode(&mut &b""[..]).unwrap().is_none());
    for _ in 0..2 {
        let error = decoder.decode(&mut &body[..]).unwrap_err();
        assert_eq!(error.to_string(), "misuse: bytes after finish, at byte 0, 0 events delivered");
    }
}

/// Type metas change from event to event, and one that is the same is the same.
#[test]
fn each_object_has_its_own_type_meta() {
    let pod = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    let job = protobuf("MODIFIED", "batch/v1", "Job", b"\x0a\x03\x32\x018");
    let none = protobuf("DELETED", "", "", b"\x0a\x03\x32\x019");
    let body = [&pod[..], &pod, &job, &none, &job, &pod].concat();
    let (seen, end) = watch(Limits::default(), [&body[..]]);
    end.unwrap();
    assert_eq!((seen, true), reference(&body));
}

#[test]
fn no_event_allocates() {
    for name in [
        "watch-initial-events-pods.pb",
        "watch-initial-events.pb",
        #[cfg(feature = "json")]
        "watch-configmaps.json",
    ] {
        let body = fixture(name);
        for chunk in [100, 4096, body.len()] {
            let mut decoder = WatchDecoder::new();
            let run = |decoder: &mut WatchDecoder| {
                let mut events = 0;
                for mut chunk in cut(&body, &[chunk]) {
                    while decoder.decode(&mut chunk).unwrap().is_some() {
                        events += 1;
                    }
                }
                assert!(events > 0);
            };
            // The buffer of split frames, and the type meta.
            run(&mut decoder);
            let counted = measure(|| run(&mut decoder));
            assert_eq!(counted.count_total, 0, "{name} in chunks of {chunk}");
        }
    }
}

#[test]
fn the_buffer_shrinks_when_frames_are_small_again() {
    let large = protobuf(
        "ADDED",
        "v1",
        "ConfigMap",
        &[&b"\x0a\x03\x32\x017"[..], &len_field(2, &vec![b'x'; 2 << 20])].concat(),
    );
    let small = protobuf("ADDED", "v1", "ConfigMap", b"\x0a\x03\x32\x017");
    let mut decoder = None;
    let mut feed = |body: &[u8], chunk| {
        let counted = measure(|| {
            let decoder = decoder.get_or_insert_with(WatchDecoder::new);
            for mut chunk in cut(body, &[chunk]) {
                while decoder.decode(&mut chunk).unwrap().is_some() {}
            }
        });
        (counted.bytes_current, counted.bytes_max)
    };
    let (kept, peak) = feed(&large, 4096);
    assert!(kept >= 2 << 20 && peak <= 2 * large.len() as u64 + 1000, "{kept} and {peak} bytes");
    // It may be needed again at once, and is not when two small ones came.
    feed(&small, 4096);
    let (kept, _) = feed(&small, 4096);
    assert!(kept <= -(2 << 20), "{kept} bytes");
}

fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    let number = 14..1000_u32;
    prop_oneof![
        (number.clone(), vec(any::<u8>(), 0..50)).prop_map(|(number, value)| len_field(number, &value)),
        (number, any::<u64>()).prop_map(|(number, value)| {
            let mut field = tag(number, 0);
            varint(value, &mut field);
            field
        }),
    ]
}

/// Fields in any order, with unknown ones between them.
fn message(known: impl Strategy<Value = Vec<Vec<u8>>>) -> impl Strategy<Value = Vec<u8>> {
    (known, vec(unknown_field(), 0..2))
        .prop_map(|(known, unknown)| [known, unknown].concat())
        .prop_shuffle()
        .prop_map(|fields| fields.concat())
}

/// Of two letters, so that there are all kinds of them, and without a version now and then.
fn event() -> impl Strategy<Value = (&'static str, &'static str, &'static str, String, bool)> {
    (
        prop::sample::select(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK"][..]),
        prop::sample::select(
            &[("v1", "Pod"), ("apps/v1", "Deployment"), ("meta.k8s.io/v1", "PartialObjectMetadata")][..],
        ),
        "[1-9][0-9]{0,8}",
        any::<bool>(),
    )
        .prop_map(|(event, (api_version, kind), version, ends)| (event, api_version, kind, version, ends))
}

fn protobuf_body() -> impl Strategy<Value = Vec<u8>> {
    let frame = (event(), vec(unknown_field(), 0..3), vec(any::<u8>(), 0..300)).prop_flat_map(
        |((event, api_version, kind, version, ends), more, spec)| {
            let value: &[u8] = if ends { b"true" } else { b"false" };
            let annotation = [len_field(1, b"k8s.io/initial-events-end"), len_field(2, value)].concat();
            let metadata = message(Just(vec![len_field(6, version.as_bytes()), len_field(12, &annotation)]));
            let object = metadata.prop_flat_map(move |metadata| {
                message(Just([vec![len_field(1, &metadata), len_field(2, &spec)], more.clone()].concat()))
            });
            let type_meta = message(Just(vec![len_field(1, api_version.as_bytes()), len_field(2, kind.as_bytes())]));
            let envelope = (type_meta, object).prop_flat_map(|(type_meta, object)| {
                message(Just(vec![
                    len_field(1, &type_meta),
                    len_field(2, &object),
                    len_field(3, b""),
                    len_field(4, b""),
                ]))
            });
            let object = envelope
                .prop_flat_map(|envelope| message(Just(vec![len_field(1, &[b"k8s\0", &envelope[..]].concat())])));
            object
                .prop_flat_map(move |object| message(Just(vec![len_field(1, event.as_bytes()), len_field(2, &object)])))
                .prop_map(|frame| framed(&frame))
        },
    );
    vec(frame, 0..6).prop_map(|frames| frames.concat())
}

fn chunk_lengths() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..10_usize, 1..2000_usize], 1..20)
}

/// A recorded body with some of its bytes changed, inserted or removed.
fn broken_body() -> impl Strategy<Value = Vec<u8>> {
    let names: Vec<_> = fixtures().filter(|(_, body)| body.len() < 64 << 10).map(|(name, _)| name).collect();
    let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    (prop::sample::select(names), vec(edit, 1..6)).prop_map(|(name, edits)| {
        let mut body = fixture(name);
        for (place, byte, edit) in edits {
            // Most faults are where the framing is.
            let place = if edit == 3 { place.index(60) } else { place.index(body.len()) };
            match edit {
                0 => body.insert(place, byte),
                1 => drop(body.remove(place)),
                _ => body[place] = byte,
            }
        }
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_watches_equal_the_reference(body in protobuf_body(), lengths in chunk_lengths()) {
        let (expected, is_whole) = reference(&body);
        prop_assert!(is_whole);
        let (seen, end) = watch(Limits::default(), cut(&body, &lengths));
        prop_assert!(end.is_ok(), "{:?}", end);
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_cut_watch_has_the_events_of_its_whole_frames(body in protobuf_body(), lengths in chunk_lengths(), at in any::<prop::sample::Index>()) {
        let body = &body[..at.index(body.len() + 1)];
        let (seen, end) = watch(Limits::default(), cut(body, &lengths));
        prop_assert_eq!((seen, end.is_ok()), reference(body));
    }

    /// The same fault is found whatever the chunks are, and what passes is what the reference has.
    #[test]
    fn broken_bodies_end_the_same_in_all_chunkings(body in broken_body(), lengths in chunk_lengths()) {
        let whole = watch(Limits::default(), [&body[..]]);
        let chunked = watch(Limits::default(), cut(&body, &lengths));
        prop_assert_eq!(&whole.0, &chunked.0);
        prop_assert_eq!(whole.1.as_ref().map_err(ToString::to_string), chunked.1.as_ref().map_err(ToString::to_string));
        let (expected, is_whole) = reference(&body);
        let both = whole.0.len().min(expected.len());
        prop_assert_eq!(&whole.0[..both], &expected[..both]);
        match whole.1.map_err(|error| error.kind().clone()) {
            // What is malformed inside an object is found by who decodes it, and prost takes the last of several values.
            Ok(()) | Err(DecodeErrorKind::Malformed { fault: Fault::NotEmpty, .. }) => {}
            Err(kind) => prop_assert!(!is_whole && expected.len() == both, "{:?}", kind),
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..300), start in 0..3_usize, lengths in chunk_lengths()) {
        let start: &[u8] = [&b""[..], b"\0\0\0\x20\x0a\x05ADDED\x12", b"{\"type\":\"ADDED\",\"object\":"][start];
        let body = [start, &bytes].concat();
        let (whole, chunked) = (watch(Limits::default(), [&body[..]]), watch(Limits::default(), cut(&body, &lengths)));
        prop_assert_eq!(whole.0, chunked.0);
        prop_assert_eq!(whole.1.err().map(|error| error.to_string()), chunked.1.err().map(|error| error.to_string()));
    }
}
