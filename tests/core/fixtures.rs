//! The recorded bodies of a real API server, cut in every way, give what prost makes of the full buffer.

use crate::support::{cut, decode, fixture, lists, reference};
use k8s_pb::api::core::v1::Pod;
use listwatch::{DecodeErrorKind, Event, Limits, ListDecoder, ListReader};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

#[test]
fn every_chunking_gives_the_same() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let random: Vec<usize> = (0..4096).map(|_| random.next_u32() as usize % 9000).collect();
    for (name, body) in lists() {
        let expected = reference(&body).unwrap();
        let whole = [body.len()];
        for lengths in [&whole, &[1], &[7], &[4096], &[64 << 10], &random[..]] {
            let (list, end) = decode(Limits::default(), cut(&body, lengths)).unwrap();
            assert_eq!(list, expected, "{name} in chunks of {lengths:?}");
            assert_eq!(end.skipped, 0);
        }
    }
}

/// Items on either side of the split must be lent from the body itself, so only the one on it needs comparing.
#[test]
fn every_split_into_two_gives_the_same() {
    for (name, body) in lists() {
        let expected = reference(&body).unwrap();
        if name == "pods-rv0.pb" {
            continue; // byte for byte pods.pb
        }
        let places = places(&body);
        assert_eq!(places.len(), expected.items.len());
        for split in 0..=body.len() {
            let mut decoder = ListDecoder::new();
            let mut items = 0;
            for mut chunk in [&body[..split], &body[split..]] {
                while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                    let Event::Item(item) = event else { continue };
                    let place = &body[places[items].clone()];
                    if places[items].contains(&split) && split != places[items].start {
                        assert!(item.bytes() == place, "{name} split at {split}, item {items}");
                    } else {
                        assert_eq!(
                            item.bytes().as_ptr_range(),
                            place.as_ptr_range(),
                            "{name} split at {split}: a copy"
                        );
                    }
                    items += 1;
                }
            }
            let end = decoder.finish().unwrap();
            assert_eq!((items, &end.list_meta), (expected.items.len(), &expected.list_meta), "{name} split at {split}");
        }
    }
}

/// Where the items of a body lie, by their bytes: prost says what they are, and they come one after the other.
fn places(body: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut from = 0;
    let items = reference(body).unwrap().items;
    let place = |item: Vec<u8>| {
        let start = from + body[from..].windows(item.len()).position(|window| window == item).unwrap();
        from = start + item.len();
        start..from
    };
    items.into_iter().map(place).collect()
}

#[test]
fn every_prefix_is_incomplete() {
    for (name, body) in lists() {
        if body.len() > 64 << 10 {
            continue;
        }
        let places = places(&body);
        // Behind raw come two empty strings; the cuts before each of them have lost no item.
        let complete = [body.len() - 4, body.len() - 2];
        for len in 0..body.len() {
            let result = decode(Limits::default(), [&body[..len]]);
            if complete.contains(&len) {
                let (list, _) = result.unwrap();
                assert_eq!(list.items.len(), places.len(), "{name} cut at {len}");
                continue;
            }
            let error = result.unwrap_err();
            assert!(matches!(error.kind(), DecodeErrorKind::Incomplete), "{name} cut at {len}: {error}");
            assert_eq!(error.offset(), len as u64, "{name}");
            let whole = places.iter().filter(|place| place.end <= len).count();
            assert_eq!(error.items(), whole as u64, "{name} cut at {len}");
        }
    }
}

#[test]
fn what_is_no_list_is_refused_by_name() {
    for (name, expected) in [
        ("single-configmap.pb", "not a list: the body is a ConfigMap of \"v1\", at byte 21, 0 items delivered"),
        ("error-401.pb", "API error: 401 Unauthorized: Unauthorized, at byte 0, 0 items delivered"),
        (
            "error-504-version-too-large.pb",
            "API error: 504 Timeout: Timeout: Too large resource version: 99999999, current: 527, at byte 0, 0 items delivered",
        ),
        (
            "watch-configmaps.pb",
            "unexpected encoding: the body looks like a watch stream, not like a list, at byte 0, \
             0 items delivered",
        ),
        #[cfg(not(feature = "json"))]
        (
            "pods.json",
            "unexpected encoding: the body looks like JSON, not like a list, and the feature `json` is off, \
             at byte 0, 0 items delivered",
        ),
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a list; \
             ask for application/vnd.kubernetes.protobuf, at byte 0, 0 items delivered",
        ),
        (
            "pods-gzip.pb.gz",
            "unexpected encoding: the body looks like gzip, not like a list, at byte 0, 0 items delivered",
        ),
    ] {
        let body = fixture(name);
        for lengths in [&[1], &[body.len()]] {
            let error = decode(Limits::default(), cut(&body, lengths)).unwrap_err();
            assert_eq!(error.to_string(), expected, "{name}");
        }
    }
}

#[test]
fn an_expired_token_comes_with_another() {
    let error = decode(Limits::default(), [&fixture("error-410-continue.pb")[..]]).unwrap_err();
    let status = error.status().unwrap();
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(status.metadata.as_ref().unwrap().continue_token.starts_with("eyJ2Ijoi"));
}

#[test]
fn a_version_too_large_says_why_and_when_to_come_back() {
    let error = decode(Limits::default(), [&fixture("error-504-version-too-large.pb")[..]]).unwrap_err();
    let details = error.status().unwrap().details.clone().unwrap();
    assert_eq!((details.causes[0].reason.as_str(), details.retry_after_seconds), ("ResourceVersionTooLarge", 1));
}

#[test]
fn a_shard_echoes_its_selector() {
    let (list, _) = decode(Limits::default(), [&fixture("pods-shard.pb")[..]]).unwrap();
    assert_eq!(
        list.list_meta.shard_info.unwrap().selector,
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    );
    assert!(decode(Limits::default(), [&fixture("pods.pb")[..]]).unwrap().0.list_meta.shard_info.is_none());
}

#[test]
fn pages_say_what_is_left() {
    for (name, items, left) in
        [("pods-page-1.pb", 50, Some(70)), ("pods-page-2.pb", 50, Some(20)), ("pods-page-3.pb", 20, None)]
    {
        let (list, end) = decode(Limits::default(), [&fixture(name)[..]]).unwrap();
        assert_eq!((end.items, list.list_meta.remaining_item_count), (items, left), "{name}");
        assert_eq!(list.list_meta.continue_token.is_empty(), left.is_none(), "{name}");
    }
}

#[test]
fn the_view_of_the_metadata_is_that_of_the_typed_pod() {
    let mut views = Vec::new();
    let pods = ListReader::<_, [u8]>::new(&fixture("pods.pb")[..])
        .map_item(|item| {
            let meta = item.meta()?;
            views.push([meta.name(), meta.namespace(), meta.uid(), meta.resource_version()].map(str::to_owned));
            item.decode::<Pod>()
        })
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    assert_eq!(pods.len(), 120);
    for (pod, view) in pods.into_iter().zip(views) {
        let meta = pod.metadata.unwrap();
        let typed = [meta.name, meta.namespace, meta.uid, meta.resource_version].map(Option::unwrap);
        assert_eq!(typed, view);
    }
}
