//! Recorded bodies of a real API server: lists, pages, shards, and bodies that are not lists.

use k8s_pb::api::core::v1::Pod;
use listwatch::{Event, Limits, ListDecoder, ListReader};

use crate::support::{cut, decode, fixture, lists};

#[test]
fn names_the_body_that_is_not_a_list() {
    for (name, expected) in [
        (
            "single-configmap.pb",
            "not a list: the body has the kind \"ConfigMap\" of \"v1\", at byte 21, 0 items delivered",
        ),
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
        (
            "configmaps.cbor",
            "unexpected encoding: the body looks like CBOR, not like a list, at byte 0, 0 items delivered",
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
fn an_expired_token_has_a_replacement() {
    let error = decode(Limits::default(), [&fixture("error-410-continue.pb")[..]]).unwrap_err();
    let status = error.status().unwrap();
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(status.metadata.as_ref().unwrap().continue_token.starts_with("eyJ2Ijoi"));
}

#[test]
fn a_version_too_large_has_its_cause_and_retry_after() {
    let error = decode(Limits::default(), [&fixture("error-504-version-too-large.pb")[..]]).unwrap_err();
    let details = error.status().unwrap().details.clone().unwrap();
    assert_eq!((details.causes[0].reason.as_str(), details.retry_after_seconds), ("ResourceVersionTooLarge", 1));
}

#[test]
fn the_list_of_a_shard_has_its_selector() {
    let (list, _) = decode(Limits::default(), [&fixture("pods-shard.pb")[..]]).unwrap();
    assert_eq!(
        list.list_meta.shard_info.unwrap().selector,
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    );
    assert!(decode(Limits::default(), [&fixture("pods.pb")[..]]).unwrap().0.list_meta.shard_info.is_none());
}

#[test]
fn pages_have_the_remaining_item_count() {
    for (name, items, left) in
        [("pods-page-1.pb", 50, Some(70)), ("pods-page-2.pb", 50, Some(20)), ("pods-page-3.pb", 20, None)]
    {
        let (list, end) = decode(Limits::default(), [&fixture(name)[..]]).unwrap();
        assert_eq!((end.items, list.list_meta.remaining_item_count), (items, left), "{name}");
        assert_eq!(list.list_meta.continue_token.is_empty(), left.is_none(), "{name}");
    }
}

#[test]
fn metadata_views_equal_decoded_pods() {
    let mut views = Vec::new();
    let pods = ListReader::with(&fixture("pods.pb")[..], |item| {
        let meta = item.meta()?;
        views.push([meta.name(), meta.namespace(), meta.uid(), meta.resource_version()].map(String::from));
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

#[test]
fn the_decoder_returns_the_metadata_that_it_has_read() {
    for (name, body) in lists().into_iter().chain([("pods.json".to_owned(), fixture("pods.json"))]) {
        let mut decoder = ListDecoder::new().accept_json();
        let mut rest = &body[..];
        while decoder.decode(&mut rest).unwrap().is_some() {}
        let end = decoder.finish().unwrap();
        assert!(!end.type_meta.kind.is_empty() && !end.list_meta.resource_version.is_empty(), "{name}");
        assert_eq!((decoder.type_meta(), decoder.list_meta()), (&end.type_meta, &end.list_meta), "{name}");
    }
}

#[test]
fn the_end_of_a_list_is_known_with_its_envelope() {
    for (name, body) in lists() {
        let mut decoder = ListDecoder::new();
        assert_eq!(decoder.expected_bytes(), None, "{name}");
        let mut rest = &body[..];
        assert!(matches!(decoder.decode(&mut rest).unwrap(), Some(Event::TypeMeta(_))), "{name}");
        let end = usize::try_from(decoder.expected_bytes().unwrap()).unwrap();
        // The empty fields `contentEncoding` and `contentType` of the envelope follow.
        assert_eq!(body[end..], [0x1a, 0, 0x22, 0], "{name}");
    }
    let mut decoder = ListDecoder::new().accept_json();
    decoder.decode(&mut &fixture("pods.json")[..]).unwrap();
    assert_eq!(decoder.expected_bytes(), None);
}
