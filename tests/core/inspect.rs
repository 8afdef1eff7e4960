//! Metadata views, field paths and projections of an item agree with prost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use allocation_counter::measure;
use k8s_pb::api::core::v1::{Container, ContainerStatus, Pod, PodIp, PodSpec, PodStatus};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{self as meta_v1, ObjectMeta, PartialObjectMetadata};
use listwatch::path::{meta, pod};
use listwatch::{Encoding, FieldPath, ItemRef, ListReader, MetaView, Projection, Time, TypeMeta};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::random::{edited, randomized};
use crate::support::{each_item, fixture, len_field, lists};

#[test]
fn metadata_views_equal_decoded_items() {
    let mut items = 0;
    for (name, body) in lists() {
        each_item(&body, |item| {
            let meta = PartialObjectMetadata::decode(item.bytes()).unwrap().metadata.unwrap();
            assert_same_meta(&item.meta().unwrap(), &meta, &name);
            items += 1;
        });
    }
    assert!(items > 500);
}

#[test]
fn a_metadata_view_has_every_field() {
    let text = |text: &str| Some(text.to_owned());
    let map = |keys: [&str; 3]| keys.map(|key| (key.to_owned(), format!("value of {key}"))).into();
    let time = |seconds, nanos| Some(meta_v1::Time { seconds: Some(seconds), nanos });
    let metadata = ObjectMeta {
        name: text("name"),
        generate_name: text("generate-"),
        namespace: text("namespace"),
        self_link: text("link"),
        uid: text("uid"),
        resource_version: text("12345678901234567890"),
        generation: Some(-3),
        creation_timestamp: time(-1, Some(-2)),
        deletion_timestamp: time(0, None),
        deletion_grace_period_seconds: Some(30),
        labels: map(["a", "b/c", ""]),
        annotations: map(["ü", "d", "e"]),
        owner_references: [Some(true), None]
            .map(|flag| meta_v1::OwnerReference {
                api_version: text("apps/v1"),
                kind: text("ReplicaSet"),
                name: text("owner"),
                uid: text("owner-uid"),
                controller: flag,
                block_owner_deletion: flag,
            })
            .into(),
        finalizers: vec!["first".to_owned(), String::new()],
        managed_fields: vec![meta_v1::ManagedFieldsEntry {
            manager: text("kubectl"),
            operation: text("Apply"),
            api_version: text("v1"),
            time: time(1, None),
            fields_type: text("FieldsV1"),
            fields_v1: Some(meta_v1::FieldsV1 { raw: Some(b"{\"f:a\":{}}".to_vec()) }),
            subresource: text("status"),
        }],
    };
    let object = Pod { metadata: Some(metadata.clone()), spec: None, status: None }.encode_to_vec();
    let view = protobuf(&object).meta().unwrap();
    assert_eq!((view.label("b/c").unwrap().as_deref(), view.label("c").unwrap()), (Some("value of b/c"), None));
    assert_eq!((view.annotation("ü").unwrap().as_deref(), view.annotation("a").unwrap()), (Some("value of ü"), None));
    assert_same_meta(&view, &metadata, "every field");
}

#[test]
fn field_paths_read_what_prost_decodes() {
    let text = |text: &str| Some(text.to_owned());
    let mut pods = vec![Pod {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![Container { name: text("c"), image: text("i"), ..Container::default() }; 2],
            restart_policy: text("Never"),
            service_account_name: text("account"),
            node_name: text("node"),
            host_network: Some(true),
            scheduler_name: text("scheduler"),
            priority_class_name: text("class"),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: text("Failed"),
            reason: text("Evicted"),
            host_ip: text("10.0.0.1"),
            pod_ip: text("10.0.0.2"),
            pod_ips: vec![PodIp { ip: text("10.0.0.2") }, PodIp { ip: text("::1") }],
            container_statuses: vec![ContainerStatus { restart_count: Some(7), ..ContainerStatus::default() }; 2],
            qos_class: text("Burstable"),
            nominated_node_name: text("other"),
            ..PodStatus::default()
        }),
    }];
    pods.extend(recorded_pods().iter().map(|pod| Pod::decode(&pod[..]).unwrap()));
    for decoded in pods {
        let object = decoded.encode_to_vec();
        let item = protobuf(&object);
        let Pod { metadata, spec, status } = decoded;
        let (spec, status) = (spec.unwrap(), status.unwrap());
        let str = |path: FieldPath| path.str(item).unwrap().map(String::from);
        let strs = |path: FieldPath| path.strs(item).map(|found| found.unwrap().into_owned()).collect::<Vec<_>>();
        let names = |name: fn(&Container) -> &Option<String>| {
            spec.containers.iter().flat_map(name).cloned().collect::<Vec<_>>()
        };
        for (path, expected) in [
            (pod::RESTART_POLICY, &spec.restart_policy),
            (pod::SERVICE_ACCOUNT_NAME, &spec.service_account_name),
            (pod::NODE_NAME, &spec.node_name),
            (pod::SCHEDULER_NAME, &spec.scheduler_name),
            (pod::PRIORITY_CLASS_NAME, &spec.priority_class_name),
            (pod::PHASE, &status.phase),
            (pod::REASON, &status.reason),
            (pod::HOST_IP, &status.host_ip),
            (pod::POD_IP, &status.pod_ip),
            (pod::QOS_CLASS, &status.qos_class),
            (pod::NOMINATED_NODE_NAME, &status.nominated_node_name),
        ] {
            assert_eq!(str(path.clone()), *expected, "{path}");
        }
        assert_eq!(pod::HOST_NETWORK.int(item).unwrap(), spec.host_network.map(i64::from));
        assert_eq!(strs(pod::CONTAINER_NAMES), names(|container| &container.name));
        assert_eq!(strs(pod::IMAGES), names(|container| &container.image));
        let ips = status.pod_ips.iter().filter_map(|pod| pod.ip.clone()).collect::<Vec<_>>();
        assert_eq!(strs(pod::POD_IPS), ips);
        let restarts = status.container_statuses.iter().filter_map(|status| status.restart_count.map(i64::from));
        let found = pod::RESTART_COUNTS.ints(item).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(found, restarts.collect::<Vec<_>>());
        assert_eq!(pod::SPEC.bytes(item).unwrap(), Some(&spec.encode_to_vec()[..]));
        assert_eq!(pod::STATUS.bytes(item).unwrap(), Some(&status.encode_to_vec()[..]));
        let Some(metadata) = metadata else { continue };
        for (key, value) in &metadata.labels {
            assert_eq!(str(meta::LABELS.key(key.clone())).as_ref(), Some(value));
        }
        for (key, value) in &metadata.annotations {
            assert_eq!(str(meta::ANNOTATIONS.key(key.clone())).as_ref(), Some(value));
        }
        assert_eq!(str(meta::LAST_APPLIED).as_ref(), metadata.annotations.get(LAST_APPLIED));
        assert_eq!(meta::MANAGED_FIELDS.all_bytes(item).count(), metadata.managed_fields.len());
    }
}

/// A path to drop, and the same change to a decoded Pod.
type Drop = (&'static str, fn(&mut Pod));

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const DROPS: &[Drop] = &[
    ("metadata.managedFields", |pod| clear(&mut pod.metadata, |meta| meta.managed_fields.clear())),
    ("metadata.annotations", |pod| clear(&mut pod.metadata, |meta| meta.annotations.clear())),
    ("metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]", |pod| {
        clear(&mut pod.metadata, |meta| drop(meta.annotations.remove(LAST_APPLIED)));
    }),
    ("metadata.labels[\"app.kubernetes.io/name\"]", |pod| {
        clear(&mut pod.metadata, |meta| drop(meta.labels.remove("app.kubernetes.io/name")));
    }),
    ("metadata.creationTimestamp", |pod| clear(&mut pod.metadata, |meta| meta.creation_timestamp = None)),
    ("status", |pod| pod.status = None),
    ("spec", |pod| pod.spec = None),
    ("2.10", |pod| clear(&mut pod.spec, |spec| spec.node_name = None)),
    ("2.2.2", |pod| clear(&mut pod.spec, |spec| spec.containers.iter_mut().for_each(|each| each.image = None))),
    ("2.2.7", |pod| clear(&mut pod.spec, |spec| spec.containers.iter_mut().for_each(|each| each.env.clear()))),
    ("3.8.5", |pod| {
        clear(&mut pod.status, |status| {
            status.container_statuses.iter_mut().for_each(|each| each.restart_count = None);
        });
    }),
];

fn clear<T>(message: &mut Option<T>, clear: impl FnOnce(&mut T)) {
    message.as_mut().map(clear);
}

fn protobuf(object: &[u8]) -> ItemRef<'_> {
    ItemRef::new(Encoding::Protobuf, object)
}

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text, &TypeMeta::new("v1", "Pod")).unwrap()
}

/// Checks that the projection equals the decoded Pod without these fields, if prost decodes the Pod.
fn assert_drops(object: &[u8], drops: &[Drop]) {
    let projection = drops.iter().fold(Projection::new(), |projection, (text, _)| projection.drop(&path(text)));
    let projected = protobuf(object).project(&projection);
    if let Ok(mut decoded) = Pod::decode(object) {
        for (_, clear) in drops {
            clear(&mut decoded);
        }
        assert_eq!(Pod::decode(&projected.unwrap()[..]), Ok(decoded), "{drops:?}");
    }
}

/// As [`assert_drops`], for a projection that keeps the phase and the metadata without annotations.
fn assert_keeps(object: &[u8]) {
    let projection = Projection::new().keep(&path("metadata")).keep(&pod::PHASE).drop(&meta::ANNOTATIONS);
    let projected = protobuf(object).project(&projection);
    if let Ok(mut decoded) = Pod::decode(object) {
        decoded.spec = None;
        clear(&mut decoded.metadata, |meta| meta.annotations.clear());
        let phase = |status: PodStatus| PodStatus { phase: status.phase, ..PodStatus::default() };
        decoded.status = decoded.status.map(phase);
        assert_eq!(Pod::decode(&projected.unwrap()[..]), Ok(decoded));
    }
}

#[test]
fn projections_drop_and_keep_fields_of_recorded_pods() {
    for object in recorded_pods() {
        for drop in DROPS {
            assert_drops(object, &[*drop]);
        }
        assert_drops(object, DROPS);
        assert_keeps(object);
        assert_eq!(protobuf(object).project(&Projection::new()).unwrap(), *object);
        let phase = protobuf(object).project(&Projection::new().keep(&pod::PHASE)).unwrap();
        assert!(phase.len() < 20);
    }
}

#[test]
fn adapters_project_items() {
    let body = fixture("pods.pb");
    let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&pod::STATUS);
    let boxes = ListReader::with(&body[..], |item| item.project(&slim));
    let pods = ListReader::with(&body[..], |item| slim.decode::<Pod>(item));
    let mut whole = 0;
    for (bytes, pod) in boxes.zip(pods) {
        let (bytes, pod) = (bytes.unwrap(), pod.unwrap());
        assert_eq!(Pod::decode(&bytes[..]).as_ref(), Ok(&*pod));
        assert!(pod.status.is_none() && pod.metadata.is_some_and(|meta| meta.managed_fields.is_empty()));
        whole += 1;
    }
    assert_eq!(whole, 120);
}

#[test]
fn views_allocate_nothing_and_projections_once() {
    let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&pod::STATUS);
    for object in recorded_pods() {
        let counted = measure(|| {
            let view = protobuf(object).meta().unwrap();
            assert!(!view.name().is_empty() && view.label("x").unwrap().is_none());
        });
        assert_eq!(counted.count_total, 0);
        let mut projected = Box::default();
        let counted = measure(|| projected = protobuf(object).project(&slim).unwrap());
        assert_eq!((counted.count_total, counted.bytes_total), (1, projected.len() as u64));
    }
}

/// A recorded Pod with its messages in pieces and their fields in any order, some of them twice.
fn rearranged_pod() -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..20);
    (any::<Index>(), vec(edits, 3), vec(any::<Index>(), 0..6)).prop_map(|(pod, edits, cuts)| {
        let mut messages = Vec::new();
        for (number, edits) in (1..).zip(edits) {
            let [.., message] = &fields(&pod.get(recorded_pods())[..])
                .into_iter()
                .filter(|(found, _)| *found == number)
                .map(|(_, field)| len_value(&field))
                .collect::<Vec<_>>()[..]
            else {
                continue;
            };
            let mut inner: Vec<Vec<u8>> = fields(message).into_iter().map(|(_, field)| field).collect();
            for (from, to, twice) in edits {
                let (from, to) = (from.index(inner.len()), to.index(inner.len()));
                if twice { inner.insert(to, inner[from].clone()) } else { inner.swap(from, to) }
            }
            messages.push((number, inner));
        }
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for (number, inner) in &messages {
            let at = cuts.get(*number as usize).map_or(0, |cut| cut.index(inner.len()));
            pieces.push(len_field(*number, &inner[..at].concat()));
            pieces.push(len_field(*number, &inner[at..].concat()));
        }
        let swaps = cuts.iter().rev().zip(&cuts);
        swaps.for_each(|(a, b)| pieces.swap(a.index(6), b.index(6)));
        pieces.concat()
    })
}

/// A Pod as recorded or rearranged, with edits.
fn edited_pod() -> impl Strategy<Value = Vec<u8>> {
    let recorded = any::<Index>().prop_map(|pod| pod.get(recorded_pods()).to_vec());
    edited(prop_oneof![recorded, rearranged_pod()], any::<u8>(), usize::MAX)
}

fn drops() -> impl Strategy<Value = Vec<Drop>> {
    subsequence(DROPS, 1..5)
}

/// Checks that the view and the field paths return the decoded values, if prost decodes the Pod.
fn assert_same(object: &[u8]) {
    let item = protobuf(object);
    let view = item.meta();
    if let Ok(decoded) = Pod::decode(object)
        && !has_map_of_another_wire_type(object)
    {
        let status = decoded.status.unwrap_or_default();
        let spec = decoded.spec.unwrap_or_default();
        assert_eq!(pod::PHASE.str(item).unwrap().as_deref(), status.phase.as_deref());
        assert_eq!(pod::NODE_NAME.str(item).unwrap().as_deref(), spec.node_name.as_deref());
        assert_eq!(pod::HOST_NETWORK.int(item).unwrap().map(|int| int != 0), spec.host_network);
        let metadata = decoded.metadata.unwrap_or_default();
        let last_applied = metadata.annotations.get(LAST_APPLIED).map(String::as_str);
        assert_eq!(meta::LAST_APPLIED.str(item).unwrap().as_deref(), last_applied);
        assert_same_meta(&view.unwrap(), &metadata, "a Pod that prost decodes");
    }
}

/// Returns true if a map field in the metadata or the spec of the Pod is not length-delimited. prost ignores the wire
/// type of map fields (`prost::encoding::btree_map::merge` has no parameter for it), so it decodes such a Pod. Go and
/// this crate refuse it.
fn has_map_of_another_wire_type(object: &[u8]) -> bool {
    const METADATA: (u32, [u32; 2]) = (1, [11, 12]);
    const SPEC: (u32, [u32; 2]) = (2, [7, 32]);
    let fields = |mut rest: &[u8], visit: &mut dyn FnMut(u32, WireType, &[u8])| {
        while let Ok((number, wire_type)) = decode_key(&mut rest) {
            visit(number, wire_type, rest);
            if skip_field(wire_type, number, &mut rest, DecodeContext::default()).is_err() {
                break;
            }
        }
    };
    let mut found = false;
    fields(object, &mut |number, _, mut value| {
        let Some((_, maps)) = [METADATA, SPEC].into_iter().find(|(message, _)| *message == number) else { return };
        let message = decode_varint(&mut value).ok().and_then(|len| value.get(..usize::try_from(len).ok()?));
        fields(message.unwrap_or_default(), &mut |number, wire_type, _| {
            found |= maps.contains(&number) && wire_type != WireType::LengthDelimited;
        });
    });
    found
}

#[test]
fn a_map_of_another_wire_type_is_an_error() {
    let label = len_field(11, &[len_field(1, b"app"), len_field(2, b"web")].concat());
    let mut metadata = [len_field(1, b"web-1"), label].concat();
    assert!(!has_map_of_another_wire_type(&len_field(1, &metadata)));
    let tag = metadata.iter().position(|byte| *byte == 11 << 3 | 2).unwrap();
    metadata[tag] = 11 << 3 | 3;
    let object = len_field(1, &metadata);
    assert!(has_map_of_another_wire_type(&object) && Pod::decode(&object[..]).is_ok());
    assert!(protobuf(&object).meta().and_then(|meta| meta.labels().map(drop)).is_err());
}

proptest! {
    #![proptest_config(randomized(500, 5000))]

    #[test]
    fn rearranged_pods_read_as_in_prost(object in rearranged_pod(), drops in drops()) {
        prop_assert!(Pod::decode(&object[..]).is_ok());
        assert_same(&object);
        assert_drops(&object, &drops);
        assert_keeps(&object);
    }

    #[test]
    fn edited_pods_read_as_in_prost(object in edited_pod(), drops in drops()) {
        assert_same(&object);
        assert_drops(&object, &drops);
        assert_keeps(&object);
    }

    /// Most bytes are small, as the tags and lengths in Pods are.
    #[test]
    fn arbitrary_bytes_read_as_in_prost(object in vec(prop_oneof![3 => 0..0x70_u8, 1 => any::<u8>()], 0..60), drops in drops()) {
        assert_same(&object);
        assert_drops(&object, &drops);
        assert_keeps(&object);
    }
}

fn assert_same_meta(view: &MetaView<'_>, meta: &ObjectMeta, what: &str) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let time = |time: Option<meta_v1::Time>| {
        let meta_v1::Time { seconds, nanos } = time?;
        let is_set = seconds.or(nanos.map(i64::from)).is_some();
        is_set.then(|| Time { seconds: seconds.unwrap_or_default(), nanos: nanos.unwrap_or_default() })
    };
    let map = |map: &BTreeMap<String, String>| map.clone().into_iter().collect::<Vec<_>>();
    let owned = |(key, value): (Cow<'_, str>, Cow<'_, str>)| (key.into_owned(), value.into_owned());
    assert_eq!(view.name(), text(&meta.name), "{what}");
    assert_eq!(view.generate_name(), text(&meta.generate_name));
    assert_eq!(view.namespace(), text(&meta.namespace));
    assert_eq!(view.uid(), text(&meta.uid));
    assert_eq!(view.resource_version(), text(&meta.resource_version));
    assert_eq!(view.generation(), meta.generation.unwrap_or_default());
    assert_eq!(view.creation_timestamp().unwrap(), time(meta.creation_timestamp));
    assert_eq!(view.deletion_timestamp().unwrap(), time(meta.deletion_timestamp));
    assert_eq!(view.deletion_grace_period_seconds(), meta.deletion_grace_period_seconds);
    assert_eq!(view.labels().unwrap().map(owned).collect::<Vec<_>>(), map(&meta.labels), "{what}");
    assert_eq!(view.annotations().unwrap().map(owned).collect::<Vec<_>>(), map(&meta.annotations), "{what}");
    assert_eq!(view.finalizers().unwrap().collect::<Vec<_>>(), meta.finalizers);
    let owners = view.owner_references().unwrap().map(|owner| meta_v1::OwnerReference {
        api_version: Some(owner.api_version.into_owned()),
        kind: Some(owner.kind.into_owned()),
        name: Some(owner.name.into_owned()),
        uid: Some(owner.uid.into_owned()),
        controller: Some(owner.controller),
        block_owner_deletion: Some(owner.block_owner_deletion),
    });
    let expected = meta.owner_references.iter().map(|owner| meta_v1::OwnerReference {
        api_version: Some(text(&owner.api_version)),
        kind: Some(text(&owner.kind)),
        name: Some(text(&owner.name)),
        uid: Some(text(&owner.uid)),
        controller: Some(owner.controller.unwrap_or_default()),
        block_owner_deletion: Some(owner.block_owner_deletion.unwrap_or_default()),
    });
    assert_eq!(owners.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let entries = view.managed_fields().unwrap().map(|entry| {
        let [manager, operation, api_version] =
            [entry.manager, entry.operation, entry.api_version].map(Cow::into_owned);
        let [fields_type, subresource] = [entry.fields_type, entry.subresource].map(Cow::into_owned);
        (manager, operation, api_version, entry.time, fields_type, entry.fields_v1.to_vec(), subresource)
    });
    let expected = meta.managed_fields.iter().map(|entry| {
        let [manager, operation, api_version] = [&entry.manager, &entry.operation, &entry.api_version].map(text);
        let [fields_type, subresource] = [&entry.fields_type, &entry.subresource].map(text);
        let fields_v1 = entry.fields_v1.clone().and_then(|fields| fields.raw).unwrap_or_default();
        (manager, operation, api_version, time(entry.time), fields_type, fields_v1, subresource)
    });
    assert_eq!(entries.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

fn recorded_pods() -> &'static [Box<[u8]>] {
    static PODS: LazyLock<Vec<Box<[u8]>>> =
        LazyLock::new(|| ListReader::new::<[u8]>(&fixture("pods.pb")[..]).collect::<Result<_, _>>().unwrap());
    &PODS
}

/// The number and the bytes of each field, split by prost.
fn fields(mut message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let start = message;
        let (number, wire_type) = decode_key(&mut message).unwrap();
        skip(wire_type, number, &mut message);
        fields.push((number, start[..start.len() - message.len()].to_vec()));
    }
    fields
}

fn skip(wire_type: WireType, number: u32, message: &mut &[u8]) {
    skip_field(wire_type, number, message, DecodeContext::default()).unwrap();
}

fn len_value(mut field: &[u8]) -> Vec<u8> {
    decode_key(&mut field).unwrap();
    let len = prost::encoding::decode_varint(&mut field).unwrap();
    assert_eq!(len, field.len() as u64);
    field.to_vec()
}
