//! A fault in a list is an error with its position, the same for every chunking.

use std::iter;

use listwatch::Limits;

use crate::support::{body_of, cut, decode, decode_by, len_field, list_decoder, tag, varint};

/// Returns the items of a body, or the text of its error.
fn outcome(limits: Limits, body: &[u8], chunk: usize) -> Result<Vec<Vec<u8>>, String> {
    decode(limits, cut(body, &[chunk])).map(|(list, _)| list.items).map_err(|error| error.to_string())
}

#[track_caller]
fn check(name: &str, limits: Limits, body: &[u8], expected: Result<&[&[u8]], &str>) {
    for chunk in [body.len(), 1, 3] {
        let outcome = outcome(limits, body, chunk);
        match (&outcome, expected) {
            (Ok(items), Ok(expected)) => assert_eq!(items, expected, "{name}, in chunks of {chunk}"),
            (Err(error), Err(expected)) => assert_eq!(error, expected, "{name}, in chunks of {chunk}"),
            _ => panic!("{name}, in chunks of {chunk}: {outcome:?}, expected {expected:?}"),
        }
    }
}

/// Returns a list with `more` after its metadata and the items `a` and `bc`, at byte 21 + 2 + 3 + 4 = 30.
fn list(more: &[u8]) -> Vec<u8> {
    let raw = [&len_field(1, b"")[..], &len_field(2, b"a"), &len_field(2, b"bc"), more].concat();
    body_of("v1", "PodList", &raw)
}

/// Returns the envelope up to `raw`, and then `more`, which begins at byte 19.
fn envelope(more: &[u8]) -> Vec<u8> {
    let type_meta = [len_field(1, b"v1"), len_field(2, b"PodList")].concat();
    [b"k8s\0", &len_field(1, &type_meta)[..], more].concat()
}

const ITEMS: &[&[u8]] = &[b"a", b"bc"];
const RAW: &[u8] = b"\x12\x07\x0a\x00\x12\x01a\x12\x00";

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn checks_the_wire_format() {
    let groups = |depth: usize| [[0x73].repeat(depth), [0x74].repeat(depth)].concat();
    for (name, more, expected) in [
        ("no more bytes", vec![], Ok(ITEMS)),
        ("a varint of ten bytes, overlong", [&[0x18][..], &[0x80; 9], &[0]].concat(), Ok(ITEMS)),
        ("a length of ten bytes, overlong", [&[0x1a, 0x83][..], &[0x80; 8], &[0], b"xyz"].concat(), Ok(ITEMS)),
        (
            "a varint of eleven bytes",
            [&[0x18][..], &[0x80; 10], &[0]].concat(),
            Err("malformed: a varint over 64 bits in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "a varint over u64",
            [&[0x18][..], &[0xff; 9], &[2]].concat(),
            Err("malformed: a varint over 64 bits in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "a length of eleven bytes",
            [&[0x12][..], &[0x80; 10], &[0]].concat(),
            Err("malformed: a varint over 64 bits in items in item 2, at byte 30, 2 items delivered"),
        ),
        ("tag 0", vec![0], Err("malformed: an invalid tag in an unknown field, at byte 30, 2 items delivered")),
        (
            "a field number over 2^29-1",
            vec![0x82, 0x80, 0x80, 0x80, 0x10],
            Err("malformed: an invalid tag in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "wire type 6",
            vec![0x1e],
            Err("malformed: an invalid tag in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "wire type 7",
            vec![0x1f],
            Err("malformed: an invalid tag in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "items as varint",
            vec![0x10, 0],
            Err("malformed: the wrong wire type in items in item 2, at byte 30, 2 items delivered"),
        ),
        (
            "metadata as group",
            vec![0x0b, 0x0c],
            Err("malformed: the wrong wire type in metadata, at byte 30, 2 items delivered"),
        ),
        (
            "unknown fields of every wire type",
            b"\x18\x05\x1d....\x21........\x2a\x03xyz\x33\x3a\x01x\x34".to_vec(),
            Ok(ITEMS),
        ),
        ("groups nested 100 deep", groups(100), Ok(ITEMS)),
        (
            // The length of the longer `raw` takes one more byte.
            "groups nested 101 deep",
            groups(101),
            Err("malformed: groups nested deeper than 100 in an unknown field, at byte 131, 2 items delivered"),
        ),
        (
            "the end of a group that was not begun",
            vec![0x74],
            Err("malformed: the end of a group that was not begun in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "the end of another group",
            vec![0x73, 0x7c],
            Err("malformed: the end of a group that was not begun in an unknown field, at byte 31, 2 items delivered"),
        ),
        (
            "a group past its parent",
            vec![0x73, 0x18, 0x01],
            Err("malformed: a length past the end of its parent in an unknown field, at byte 33, 2 items delivered"),
        ),
        (
            "a tag past its parent",
            vec![0x98],
            Err("malformed: a length past the end of its parent in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "a fixed64 past its parent",
            vec![0x19, 0, 0, 0],
            Err("malformed: a length past the end of its parent in an unknown field, at byte 30, 2 items delivered"),
        ),
        (
            "an item past its list",
            vec![0x12, 3, 0, 0],
            Err("malformed: a length past the end of its parent in items in item 2, at byte 30, 2 items delivered"),
        ),
        (
            "list meta past its list",
            vec![0x0a, 3, 0, 0],
            Err("malformed: a length past the end of its parent in metadata, at byte 30, 2 items delivered"),
        ),
        (
            "a string past the list meta",
            vec![0x0a, 3, 0x12, 2, b'1', b'2'],
            Err(
                "malformed: a length past the end of its parent in metadata.resourceVersion, at byte 32, 2 items delivered",
            ),
        ),
        (
            "a string that is not UTF-8",
            vec![0x0a, 3, 0x1a, 1, 0xff],
            Err("malformed: invalid UTF-8 in metadata.continue, at byte 32, 2 items delivered"),
        ),
        (
            "remainingItemCount as a string",
            vec![0x0a, 2, 0x22, 0],
            Err("malformed: the wrong wire type in metadata.remainingItemCount, at byte 32, 2 items delivered"),
        ),
        (
            "an item of 2^31-1 bytes",
            vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x07],
            Err("malformed: a length past the end of its parent in items in item 2, at byte 30, 2 items delivered"),
        ),
        (
            "an item over 2^31-1 bytes",
            vec![0x12, 0x80, 0x80, 0x80, 0x80, 0x08],
            Err("malformed: a length over 2³¹-1 in items in item 2, at byte 30, 2 items delivered"),
        ),
    ] {
        check(name, Limits::default(), &list(&more), expected);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn checks_the_envelope() {
    let status =
        [b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x10", &b"\x1a\x04boom\x22\x05Oops!\x30\xf4\x03"[..]].concat();
    let status_bytes = &status[..];
    for (name, body, expected) in [
        ("the list", envelope(RAW), Ok(&[&b"a"[..], b""][..])),
        (
            "another magic",
            b"k8t\0".to_vec(),
            Err("unexpected encoding: the body looks like text, not like a list, at byte 0, 0 items delivered"),
        ),
        (
            "HTML",
            b"<html>".to_vec(),
            Err("unexpected encoding: the body looks like HTML, not like a list, at byte 0, 0 items delivered"),
        ),
        (
            "raw before typeMeta",
            [b"k8s\0", RAW].concat(),
            Err("malformed: a value before its typeMeta in raw, at byte 4, 0 items delivered"),
        ),
        (
            "typeMeta after raw",
            envelope(&[RAW, b"\x0a\x00"].concat()),
            Err("malformed: a second value in typeMeta, at byte 28, 2 items delivered"),
        ),
        ("empty raw", envelope(b"\x12\x00"), Err("malformed: no bytes in raw, at byte 19, 0 items delivered")),
        (
            "no raw",
            envelope(b"\x1a\x00\x22\x00"),
            Err("incomplete: the body ended before the list did, at byte 23, 0 items delivered"),
        ),
        (
            "raw twice",
            envelope(&[RAW, RAW].concat()),
            Err("malformed: a second value in raw, at byte 28, 2 items delivered"),
        ),
        (
            "contentEncoding before the items",
            envelope(&[b"\x1a\x01x", RAW].concat()),
            Err("malformed: an unsupported value in contentEncoding, at byte 19, 0 items delivered"),
        ),
        (
            "contentType after the items",
            envelope(&[RAW, b"\x22\x01x"].concat()),
            Err("malformed: an unsupported value in contentType, at byte 28, 2 items delivered"),
        ),
        ("unknown fields around raw", envelope(&[b"\x2a\x02xy", RAW, b"\x30\x05"].concat()), Ok(&[b"a", b""])),
        ("an unknown group 13", envelope(&[RAW, b"\x6b\x38\x73\x6c"].concat()), Ok(&[b"a", b""])),
        (
            "k8s\\0 within a group",
            envelope(&[RAW, b"\x73\x6b\x38\x73\0"].concat()),
            Err("malformed: an invalid tag in an unknown field, at byte 32, 2 items delivered"),
        ),
        (
            "8s\\0 after an overlong k",
            envelope(&[RAW, b"\xeb\0\x38\x73\0"].concat()),
            Err("malformed: an invalid tag in an unknown field, at byte 32, 2 items delivered"),
        ),
        (
            "other bytes in the envelope tail",
            envelope(&[RAW, b"\0"].concat()),
            Err("malformed: an invalid tag in an unknown field, at byte 28, 2 items delivered"),
        ),
        (
            "a raw length of 2^64-1",
            envelope(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            Err("malformed: a length past the end of its parent in raw, at byte 19, 0 items delivered"),
        ),
        (
            "a raw length of 2^63-1",
            envelope(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x0a\x00"),
            Err("incomplete: the body ended before the list did, at byte 31, 0 items delivered"),
        ),
        (
            "a Status after the list",
            [&envelope(RAW), status_bytes].concat(),
            Err("API error: 500 Oops!: boom, at byte 28, 2 items delivered"),
        ),
        (
            "a Status between two items",
            [&envelope(b"\x12\x50\x0a\x00\x12\x01a"), status_bytes].concat(),
            Err("API error: 500 Oops!: boom, at byte 26, 1 item delivered"),
        ),
        (
            "half a Status after the list",
            [&envelope(RAW), &status_bytes[..30]].concat(),
            Err("incomplete: the body ended before the list did, at byte 58, 2 items delivered"),
        ),
        (
            "a second list after the list",
            [envelope(RAW), envelope(RAW)].concat(),
            Err("malformed: no valid Status in raw, at byte 47, 2 items delivered"),
        ),
        (
            "a Status of another shape",
            body_of("v1", "Status", b"\x1a\x05x"),
            Err("malformed: no valid Status in raw, at byte 18, 0 items delivered"),
        ),
        ("a Status alone", status_bytes.to_vec(), Err("API error: 500 Oops!: boom, at byte 0, 0 items delivered")),
    ] {
        check(name, Limits::default(), &body, expected);
    }
}

#[test]
fn refuses_kinds_that_are_not_lists() {
    for (api_version, kind, expected) in [
        ("v1", "PodList", None),
        ("example.com/v1", "WidgetList", None),
        ("meta.k8s.io/v1", "PartialObjectMetadataList", None),
        ("v1", "ConfigMap", Some("not a list: the body has the kind \"ConfigMap\" of \"v1\"")),
        ("v1", "List", Some("not a list: the body has the kind \"List\" of \"v1\"")),
        ("v1", "APIResourceList", Some("not a list: the body has the kind \"APIResourceList\" of \"v1\"")),
        ("v1", "APIGroupList", Some("not a list: the body has the kind \"APIGroupList\" of \"v1\"")),
        (
            "meta.k8s.io/v1",
            "WatchEventRef",
            Some("not a list: the body has the kind \"WatchEventRef\" of \"meta.k8s.io/v1\""),
        ),
        ("", "", Some("malformed: a value before its typeMeta in raw")),
    ] {
        let body = body_of(api_version, kind, b"\x0a\x00");
        let expected = expected.map(|reason| {
            // The tag of raw follows the magic, three tags with lengths, and two strings.
            format!("{reason}, at byte {}, 0 items delivered", 4 + 2 + 2 + api_version.len() + 2 + kind.len())
        });
        check(kind, Limits::default(), &body, expected.as_deref().map_or(Ok(&[]), Err));
    }
}

#[test]
fn merges_metadata_in_pieces_and_after_the_items() {
    let pieces = [
        len_field(2, b"item"),
        len_field(1, b"\x12\x018\x1a\x05token"),
        len_field(1, b""),
        len_field(1, b"\x12\x0242\x20\x07\x2a\x03\x0a\x01s\x7a\x05other"),
        len_field(1, b"\x2a\x00"),
    ];
    for chunk in [1, 5, 100] {
        let body = body_of("v1", "PodList", &pieces.concat());
        let (list, end) = decode(Limits::default(), cut(&body, &[chunk])).unwrap();
        let meta = end.list_meta;
        assert_eq!(list.items, [b"item"]);
        assert_eq!((meta.resource_version.as_str(), meta.continue_token.as_str()), ("42", "token"));
        assert_eq!((meta.remaining_item_count, meta.shard_info.unwrap().selector.as_str()), (Some(7), "s"));
    }
}

#[test]
fn applies_limits() {
    let three = {
        let items = [&[b'x'; 10][..], &[b'y'; 20], &[b'z'; 5]].map(|item| len_field(2, item)).concat();
        body_of("v1", "PodList", &[&len_field(1, b"\x12\x0242")[..], &items].concat())
    };
    // raw begins at byte 21, the items at 27, 39 and 61; the body is 72 bytes long.
    let limits = Limits::default();
    let [x, y, z] = [&[b'x'; 10][..], &[b'y'; 20], &[b'z'; 5]];
    for (name, limits, expected) in [
        ("an item at the limit", limits.item_size(20), Ok(&[x, y, z][..])),
        (
            "an item over the limit",
            limits.item_size(19),
            Err("item 1 is 20 bytes, over the limit of 19 bytes, \
                 at byte 39, 1 item delivered"),
        ),
        ("as many items as the limit", limits.items(3), Ok(&[x, y, z])),
        (
            "one item over the limit",
            limits.items(2),
            Err("the list has at least 3 items, over the limit of 2, \
                 at byte 61, 2 items delivered"),
        ),
        ("as many bytes as the limit", limits.bytes(72), Ok(&[x, y, z])),
        (
            "one byte over the limit",
            limits.bytes(71),
            Err("the body is at least 72 bytes, over the limit of 71 bytes, \
                 at byte 70, 3 items delivered"),
        ),
        (
            "a list that declares too many bytes",
            limits.bytes(67),
            Err("the body is at least 68 bytes, over the limit of 67 bytes, \
                 at byte 19, 0 items delivered"),
        ),
        ("metadata at the limit", limits.metadata_size(7), Ok(&[x, y, z])),
        (
            "metadata over the limit",
            limits.metadata_size(6),
            Err("the metadata is 7 bytes, over the limit of 6 bytes, \
                 at byte 10, 0 items delivered"),
        ),
    ] {
        check(name, limits, &three, expected);
    }
    // A field after the list counts up to its last byte.
    let trailing = [&three[..], &tag(9, 0), b"\xff\x01"].concat();
    check("a varint after the list", limits.bytes(75), &trailing, Ok(&[x, y, z]));
    check(
        "a varint that ends over the limit",
        limits.bytes(74),
        &trailing,
        Err("the body is at least 75 bytes, over the limit of 74 bytes, \
             at byte 72, 3 items delivered"),
    );
}

#[test]
fn counts_skipped_items() {
    let items = [vec![1; 10], vec![2; 2], vec![3; 11], vec![]].map(|item| len_field(2, &item)).concat();
    let body = body_of("v1", "PodList", &items);
    for chunk in [1, 4, 1000] {
        let limits = Limits::default().item_size(9);
        let mut decoder = listwatch::ListDecoder::with_limits(limits).skip_item_errors(true);
        let mut indexes = Vec::new();
        for mut chunk in body.chunks(chunk) {
            let flow = decoder.feed(&mut chunk, |event| {
                if let listwatch::Event::Item(item) = event {
                    indexes.push((item.index(), item.bytes().len()));
                }
                std::ops::ControlFlow::<()>::Continue(())
            });
            assert!(flow.unwrap().is_continue());
        }
        let end = decoder.finish().unwrap();
        assert_eq!((indexes, end.items, end.skipped), (vec![(1, 2), (3, 0)], 2, 2));
        // Skipped items count.
        let decoder = list_decoder(limits.items(3)).skip_item_errors(true);
        let error = decode_by(decoder, cut(&body, &[chunk])).unwrap_err().to_string();
        assert!(error.starts_with("the list has at least 4 items, over the limit of 3, "), "{error}");
    }
}

#[test]
fn a_truncation_names_the_item_that_it_cuts() {
    let item = [&tag(1, 2)[..], &[20], &[7; 20]].concat();
    let items = [len_field(2, &[]), len_field(2, &item), len_field(2, &[])].concat();
    let body = body_of("v1", "PodList", &items);
    let start = body.windows(item.len()).position(|window| *window == *item).unwrap();
    for (item_size, skipped) in [(100, 0), (9, 1)] {
        for (cut, index, delivered) in [
            (start - 2, None, 1),
            (start, Some(1), 1),
            (start + 5, Some(1), 1),
            (start + item.len(), None, 2 - skipped),
        ] {
            let limits = Limits::default().item_size(item_size);
            let mut decoder = listwatch::ListDecoder::with_limits(limits).skip_item_errors(true);
            let mut chunk = &body[..cut];
            while decoder.decode(&mut chunk).unwrap().is_some() {}
            let error = decoder.finish().unwrap_err();
            assert!(error.is_incomplete());
            assert_eq!((error.index(), error.items()), (index, delivered), "{item_size} {cut}");
        }
    }
}

/// Each unknown field is longer than the decoder's limits; tests/allocations counts its memory.
#[test]
fn skips_unknown_fields_of_any_size() {
    let long = [
        tag(9, 2),
        {
            let mut len = Vec::new();
            varint(1 << 20, &mut len);
            len
        },
        vec![0xff; 1 << 20],
    ]
    .concat();
    let raw = [&long, &len_field(1, b"\x12\x017")[..], &long, &len_field(2, b"item"), &long].concat();
    let body = [&envelope(&long)[..], &len_field(2, &raw), &long].concat();
    check("megabytes of unknown fields", Limits::default().metadata_size(7).item_size(4), &body, Ok(&[b"item"]));
}

#[test]
fn returns_the_same_error_again() {
    for fault in [&b"\0"[..], b"\x12\x50"] {
        let body = list(fault);
        let mut decoder = listwatch::ListDecoder::new();
        let mut rest = &body[..];
        let first = iter::from_fn(|| {
            decoder.decode(&mut rest).map_or_else(|error| Some(Err(error)), |event| event.map(|_| Ok(())))
        })
        .find_map(Result::err)
        .unwrap()
        .to_string();
        assert_eq!(decoder.decode(&mut &b"\x12\x00"[..]).unwrap_err().to_string(), first);
        assert_eq!(decoder.finish().unwrap_err().to_string(), first);
    }
}

#[test]
fn refuses_bytes_after_finish() {
    let mut decoder = listwatch::ListDecoder::new();
    let body = envelope(RAW);
    assert!(decoder.feed(&mut &body[..], |_| std::ops::ControlFlow::<()>::Continue(())).unwrap().is_continue());
    assert_eq!(decoder.finish().unwrap(), decoder.finish().unwrap());
    let error = decoder.decode(&mut &b"\x12"[..]).unwrap_err();
    assert_eq!(error.to_string(), "misuse: bytes after finish, at byte 28, 2 items delivered");
}
