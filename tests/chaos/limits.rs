//! Compressed bodies and wrong lengths: a malformed or oversized body is an error, in bounded memory.

use futures::TryStreamExt as _;
use listwatch::client::{Compression, Error, ErrorKind, ListParams, Resource};
use listwatch::{DecodeErrorKind, Limits};
use listwatch_testserver::{Answer, Body};
use tokio::time::timeout;

use crate::support::{len_field, tag, varint};
use crate::{BROKEN, DEADLINE, INCOMPLETE, Whole, alone, client, gzip, list, list_within, resident, serve, small_raw};

#[test]
fn broken_gzip_is_never_complete() {
    alone(async {
        for whole in [Whole::small(), Whole::small_json()] {
            let gzip = gzip(&whole.body);
            let answer = |bytes: &[u8]| Answer::ok(Body::replay(bytes.to_vec())).header("content-encoding", "gzip");
            for http2 in [false, true] {
                for cut in 0..gzip.len() {
                    let case = format!("gzip cut at {cut} of {}, HTTP/2 {http2}", gzip.len());
                    let server = serve(answer(&gzip[..cut])).await;
                    let ending = list(&case, client(&server.url(), http2), &whole).await;
                    ending.expect(&case, &[INCOMPLETE, BROKEN]);
                }
                for (case, bytes, expected) in [
                    ("whole", gzip.clone(), &["complete"][..]),
                    (
                        "two members",
                        crate::gzip(&whole.body[..30]).into_iter().chain(crate::gzip(&whole.body[30..])).collect(),
                        &["complete"],
                    ),
                    ("an empty member after it", [&gzip[..], &crate::gzip(b"")].concat(), &["complete"]),
                    (
                        "garbage after it",
                        [&gzip[..], b"garbage after it"].concat(),
                        &["cannot decompress the response"],
                    ),
                    ("the list twice", [&gzip[..], &gzip].concat(), &["malformed"]),
                    ("not gzip", whole.body.clone(), &["cannot decompress the response"]),
                ] {
                    let server = serve(answer(&bytes)).await;
                    list(case, client(&server.url(), http2), &whole).await.expect(case, expected);
                }
                // Only the checksum at the end reveals that the data was changed: wrong items may be delivered before
                // it, but never a complete list.
                for at in 0..gzip.len() {
                    let server = serve(
                        Answer::ok(Body::replay(gzip.clone()).flip_at(at as u64)).header("content-encoding", "gzip"),
                    );
                    let server = server.await;
                    let client = client(&server.url(), http2);
                    let all = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec();
                    if let Ok((items, _)) = timeout(DEADLINE, all).await.unwrap() {
                        assert!(items.iter().map(|item| &**item).eq(whole.items.iter().map(|item| &**item)), "at {at}");
                        // Bytes of the header that have no effect: time, level and system.
                        assert!((4..10).contains(&at), "a change of gzip byte {at} was not detected");
                    }
                }
            }
        }
    });
}

/// 64 MB of zeros in 64 KB.
fn zeros() -> Vec<u8> {
    gzip(&vec![0; 1 << 20]).repeat(64)
}

#[test]
fn gzip_bombs_end_at_a_limit() {
    alone(async {
        let whole = Whole { body: Vec::new(), items: Vec::new() };
        let zeros = zeros();
        let in_raw = |field: Vec<u8>| {
            let mut body =
                [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
            body.extend_from_slice(&tag(2, 2));
            varint(1 << 40, &mut body);
            body.extend_from_slice(&[&len_field(1, b""), &field[..]].concat());
            varint(64 << 20, &mut body);
            body
        };
        let json = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"a":""#;
        let limits = Limits::default();
        for (case, beginning, limits, expected) in [
            ("an item", in_raw(tag(2, 2)), limits, "item 0 is "),
            ("a JSON item", json.into(), limits, "item 0 is "),
            ("a skipped field", in_raw(tag(9, 2)), limits.bytes(8 << 20), "the body is "),
            ("a skipped field, under a limit of items", in_raw(tag(9, 2)), limits.items(10), INCOMPLETE),
        ] {
            let bytes = [gzip(&beginning), zeros.clone()].concat();
            let server = serve(Answer::ok(Body::replay(bytes)).header("content-encoding", "gzip")).await;
            for http2 in [false, true] {
                let client = client(&server.url(), http2).compression(Compression::Gzip);
                list_within(case, client, &whole, limits).await.expect(case, &[expected]);
            }
        }
    });
}

#[test]
fn a_wrong_length_of_raw_is_an_error() {
    alone(async {
        let whole = Whole::small();
        let raw = small_raw();
        let envelope =
            [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
        for claimed in (0..raw.len() as u64 + 8).chain([1 << 20, 1 << 31, 1 << 62, u64::MAX]) {
            let mut body = [&envelope[..], &tag(2, 2)].concat();
            varint(claimed, &mut body);
            body.extend_from_slice(&[&raw[..], b"\x1a\0\x22\0"].concat());
            let server = serve(Answer::ok(Body::replay(body))).await;
            for http2 in [false, true] {
                let case = format!("{claimed} for {}", raw.len());
                let ending = list(&case, client(&server.url(), http2), &whole).await;
                // The empty strings after raw, two bytes each, are read as unknown fields of the list.
                let is_whole = [0, 2, 4].map(|more| raw.len() as u64 + more).contains(&claimed);
                ending.expect(&case, if is_whole { &["complete"] } else { &["malformed: ", INCOMPLETE] });
            }
        }
    });
}

/// Four million items of two bytes each, in 8 KB of gzip.
#[test]
fn millions_of_items_end_at_the_limit_in_bounded_memory() {
    const ITEMS: u64 = 4 << 20;
    const LIMIT: u64 = 1_000_000;
    const MEMORY: u64 = 16 << 20;

    alone(async {
        let type_meta = len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat());
        let list_meta = len_field(1, b"");
        let mut head = [b"k8s\0", &type_meta[..], &tag(2, 2)].concat();
        varint(list_meta.len() as u64 + 2 * ITEMS, &mut head);
        head.extend_from_slice(&list_meta);
        let items = gzip(&b"\x12\0".repeat(1 << 20)).repeat(usize::try_from(ITEMS >> 20).unwrap());
        let answer = Answer::ok(Body::replay([gzip(&head), items].concat())).header("content-encoding", "gzip");
        let server = serve(answer).await;
        for http2 in [false, true] {
            let before = resident();
            let (mut delivered, mut most) = (0_u64, before);
            let list = client(&server.url(), http2).list::<[u8]>(&Resource::PODS, &ListParams::default());
            let mut items = list.limits(Limits::default().items(LIMIT));
            let ended = async {
                while let Some(item) = items.try_next().await? {
                    assert!(item.is_empty());
                    if delivered.is_multiple_of(50_000) {
                        most = most.max(resident());
                    }
                    delivered += 1;
                }
                Ok::<_, Error>(())
            };
            let error = timeout(DEADLINE, ended).await.unwrap().unwrap_err();
            let ErrorKind::Decode(decode) = error.kind() else { panic!("{error}") };
            assert!(
                matches!(decode.kind(), DecodeErrorKind::Limit { size, max: LIMIT, .. } if *size == LIMIT + 1),
                "{error}"
            );
            assert!(error.to_string().starts_with("the list has at least 1000001 items, "), "{error}");
            assert_eq!((decode.index(), error.items(), delivered), (Some(LIMIT), LIMIT, LIMIT), "{error}");
            if let (Some(before), Some(most)) = (before, most) {
                assert!(most < before + MEMORY, "{before} bytes were resident, and then {most}");
            }
        }
    });
}
