//! A synthesized body decodes with prost to the recorded items, repeated under unique names.

use std::collections::HashSet;
use std::io::Read;

use listwatch_testserver::{SynthesizeError, Synthesizer, recorded_pods};
use prost::Message;

/// Every field is optional or repeated, so that encoding restores the decoded bytes, including empty fields.
#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, optional, tag = "1")]
    api_version: Option<String>,
    #[prost(string, optional, tag = "2")]
    kind: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    content_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Item>,
}

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, optional, tag = "1")]
    self_link: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
    #[prost(string, optional, tag = "3")]
    r#continue: Option<String>,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "5")]
    shard_info: Option<Vec<u8>>,
}

/// A Pod, or any object with no more than three fields.
#[derive(Clone, PartialEq, Message)]
struct Item {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    spec: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    status: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    self_link: Option<String>,
    #[prost(string, optional, tag = "5")]
    uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    generation: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "8")]
    creation_timestamp: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "11")]
    labels: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "12")]
    annotations: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "13")]
    owner_references: Vec<Vec<u8>>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
    #[prost(bytes = "vec", repeated, tag = "17")]
    managed_fields: Vec<Vec<u8>>,
}

fn decode(body: &[u8]) -> (Unknown, List) {
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").unwrap()).unwrap();
    let list = List::decode(envelope.raw.as_deref().unwrap()).unwrap();
    (envelope, list)
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn repeats_recorded_items_under_unique_names() {
    for name in
        ["pods.pb", "pods-page-1.pb", "pods-shard.pb", "pods-metadata.pb", "clusterroles.pb", "leases.pb", "nodes.pb"]
    {
        let recorded = fixture(name);
        let (recorded_envelope, recorded_list) = decode(&recorded);
        let raw = recorded_envelope.raw.as_deref().unwrap();
        assert!(recorded_list.encode_to_vec() == raw, "{name} has fields that this test does not know");

        for count in [0, 1, 119, 120, 121, 1000] {
            let synthesizer = Synthesizer::new(&recorded, count).unwrap();
            let body = synthesizer.to_vec();
            assert_eq!((synthesizer.items(), synthesizer.len()), (count, body.len() as u64), "{name}");

            let (envelope, list) = decode(&body);
            assert_eq!(envelope.type_meta, recorded_envelope.type_meta);
            assert_eq!((envelope.content_encoding.as_deref(), envelope.content_type.as_deref()), (Some(""), Some("")));
            assert!(list.encode_to_vec() == envelope.raw.unwrap(), "{name} has additional fields");
            let list_meta = ListMeta {
                r#continue: Some(String::new()),
                remaining_item_count: None,
                ..recorded_list.metadata.clone().unwrap()
            };
            assert_eq!(list.metadata.unwrap(), list_meta);

            assert_eq!(list.items.len(), count as usize);
            let mut seen = HashSet::new();
            for (i, mut item) in list.items.into_iter().enumerate() {
                let mut expected = recorded_list.items[i % recorded_list.items.len()].clone();
                let (given, recorded) = (item.metadata.as_mut().unwrap(), expected.metadata.as_mut().unwrap());
                let name = given.name.take().unwrap();
                assert_eq!(name, format!("{}-{i:08x}", recorded.name.take().unwrap()));
                let uid = given.uid.take().unwrap();
                assert_eq!(uid[8..], recorded.uid.take().unwrap()[8..]);
                assert!(uid[..8].bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{uid}");
                let version = given.resource_version.take().unwrap();
                assert!(version.len() == 10 && version.parse::<u64>().unwrap() > 999_999_999, "{version}");
                recorded.resource_version = None;
                assert!(seen.insert(name) && seen.insert(uid) && seen.insert(version), "item {i} is not unique");
                assert!(item == expected, "item {i} differs in other fields");
            }
        }
    }
}

#[test]
fn embeds_the_fixture() {
    assert!(recorded_pods() == fixture("pods.pb"));
}

#[test]
fn reads_the_same_body_in_pieces_of_any_size() {
    let synthesizer = Synthesizer::new(&recorded_pods(), 250).unwrap();
    let whole = synthesizer.to_vec();
    for size in [1, 7, 4096, 8000, 1 << 16] {
        let (mut reader, mut body, mut piece) = (synthesizer.reader(), Vec::new(), vec![0; size]);
        loop {
            let length = reader.read(&mut piece).unwrap();
            if length == 0 {
                break;
            }
            body.extend_from_slice(&piece[..length]);
        }
        assert!(body == whole, "{size}");
    }
}

#[test]
fn knows_the_length_of_a_long_list_before_it_is_read() {
    let short = Synthesizer::new(&recorded_pods(), 120_000).unwrap();
    let long = Synthesizer::new(&recorded_pods(), 120_000_000).unwrap();
    // It is a thousand times as long, except for the heads of a thousand short lists.
    assert!(long.len().abs_diff(1000 * short.len()) < 1000 * 100);
    let mut start = Vec::new();
    long.reader().take(1000).read_to_end(&mut start).unwrap();
    assert_eq!(start.len(), 1000);
}

#[test]
fn rejects_bodies_that_are_not_a_complete_list() {
    let pods = recorded_pods();
    let list = |type_meta: TypeMeta, raw: Vec<u8>| {
        let envelope = Unknown { type_meta: Some(type_meta), raw: Some(raw), ..Unknown::default() };
        [b"k8s\0", &envelope.encode_to_vec()[..]].concat()
    };
    let pod_list = || TypeMeta { api_version: Some("v1".into()), kind: Some("PodList".into()) };
    let without = |change: fn(&mut ObjectMeta)| {
        let (_, mut recorded) = decode(&pods);
        change(recorded.items[3].metadata.as_mut().unwrap());
        list(pod_list(), recorded.encode_to_vec())
    };
    let missing = |field| SynthesizeError::MissingField { item: 3, field };
    let encoded = Unknown { content_encoding: Some("gzip".into()), ..decode(&pods).0 };
    let cases = [
        (b"{}".to_vec(), SynthesizeError::NoMagic),
        (pods[..pods.len() / 2].to_vec(), SynthesizeError::Malformed("the envelope")),
        ([&pods[..], b"k8s\0"].concat(), SynthesizeError::Malformed("the envelope")),
        (list(pod_list(), b"\x0a\x05".to_vec()), SynthesizeError::Malformed("the list")),
        (list(pod_list(), b"\x12\x01\x0a".to_vec()), SynthesizeError::Malformed("an item")),
        (list(pod_list(), b"\x12\x03\x0a\x01\x0a".to_vec()), SynthesizeError::Malformed("an item's metadata")),
        (fixture("error-403.pb"), SynthesizeError::NotAList("Status".into())),
        (fixture("single-configmap.pb"), SynthesizeError::NotAList("ConfigMap".into())),
        (fixture("pods-metadata-v1beta1.pb"), SynthesizeError::OtherLayout("meta.k8s.io/v1beta1")),
        ([b"k8s\0", &encoded.encode_to_vec()[..]].concat(), SynthesizeError::Encoded),
        (fixture("pods-empty.pb"), SynthesizeError::NoItems),
        (without(|metadata| metadata.name = None), missing("metadata.name")),
        (without(|metadata| metadata.name = Some(String::new())), missing("metadata.name")),
        (without(|metadata| metadata.uid = None), missing("metadata.uid")),
        (without(|metadata| metadata.uid = Some("8".repeat(36))), missing("metadata.uid")),
        (without(|metadata| metadata.resource_version = None), missing("metadata.resourceVersion")),
    ];
    for (body, error) in cases {
        assert_eq!(Synthesizer::new(&body, 1).unwrap_err(), error);
    }
    assert_eq!(Synthesizer::new(&fixture("pods-empty.pb"), 0).unwrap().to_vec(), fixture("pods-empty.pb"));
}
