//! Views of the objects of a store, and of borrowed items.

use std::borrow::Cow;

use listwatch::path::{meta, pod};
use listwatch::{Encoding, Fault, ItemError, ItemRef, ListReader, Projection, TypeMeta};
use listwatch_cache::{StorageFormat, Store};
use listwatch_views::core_v1::{ConfigMapView, PodView};
use listwatch_views::meta_v1::PartialObjectMetadataView;

/// A Pod `ns/web` on `node`.
const POD: &[u8] = b"\x0a\x0c\x0a\x03web\x1a\x02ns\x32\x011\x12\x06\x52\x04node";

/// The same, the messages in another order and the name twice.
const UNORDERED: &[u8] = b"\x12\x06\x52\x04node\x0a\x11\x0a\x03old\x0a\x03web\x1a\x02ns\x32\x011";

fn formats() -> [StorageFormat; 2] {
    [StorageFormat::Encoded, StorageFormat::Compressed]
}

#[test]
fn an_object_is_viewed_in_every_format() {
    for format in formats() {
        for bytes in [POD, UNORDERED] {
            let store = Store::<k8s_pb::api::core::v1::Pod>::new(format);
            let by_node = store.index("node", |object| {
                Ok::<_, ItemError>([object.view::<PodView<'_>>()?.spec().node_name().to_owned()])
            });
            drop(store.apply(Encoding::Protobuf, bytes).unwrap());
            let object = store.get(("ns", "web")).unwrap();
            // The first view checks the object.
            for _ in 0..2 {
                let pod: PodView<'_> = object.view().unwrap();
                assert_eq!((pod.metadata().name(), pod.spec().node_name()), ("web", "node"));
                assert_eq!(pod.bytes().as_ptr(), object.view::<PodView<'_>>().unwrap().bytes().as_ptr());
            }
            assert_eq!(object.encoded().unwrap().view::<PodView<'_>>().unwrap().bytes(), POD);
            // The store keeps the bytes that arrived.
            assert_eq!(**object.encoded().unwrap(), *bytes);
            assert_eq!(by_node.count("node"), 1);
            assert!(by_node.errors().is_empty());
        }
    }
}

#[test]
fn an_object_is_viewed_after_a_projection() {
    let body = include_bytes!("../../../fixtures/pods.pb");
    let drop = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&pod::STATUS);
    for projection in [drop, Projection::new().keep(&meta::LABELS).keep(&pod::NODE_NAME)] {
        let projected = |item: ItemRef<'_>| item.project(&projection);
        for bytes in ListReader::with(&body[..], projected) {
            let bytes = bytes.unwrap();
            let pod: PodView<'_> = ItemRef::new(Encoding::Protobuf, &bytes).view().unwrap();
            assert!(!pod.spec().node_name().is_empty() && !pod.metadata().labels().is_empty());
            assert!(pod.metadata().managed_fields().is_empty() && pod.status().phase().is_empty());
        }
    }
}

#[test]
fn text_that_is_not_utf8_is_viewed_with_replacements() {
    let cut = b"\x0a\x0c\x0a\x03web\x1a\x02ns\x32\x011\x12\x05\x52\x03a\xe2\x82";
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    drop(store.apply(Encoding::Protobuf, cut).unwrap());
    let object = store.get(("ns", "web")).unwrap();
    assert_eq!(object.view::<PodView<'_>>().unwrap().spec().node_name(), "a\u{fffd}\u{fffd}");
    assert_eq!(&**object.encoded().unwrap(), cut);
}

#[test]
fn a_malformed_object_is_an_error_each_time() {
    let malformed = b"\x0a\x0c\x0a\x03web\x1a\x02ns\x32\x011\x12\x02\x50\x01";
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    let index =
        store.index("node", |object| Ok::<_, ItemError>([object.view::<PodView<'_>>()?.spec().node_name().to_owned()]));
    drop(store.apply(Encoding::Protobuf, malformed).unwrap());
    let object = store.get(("ns", "web")).unwrap();
    for _ in 0..2 {
        let error = object.view::<PodView<'_>>().unwrap_err();
        let ItemError::View { path, offset, fault } = &error else { panic!("{error:?}") };
        assert_eq!((&**path, *offset, *fault), ("Pod.spec.nodeName", 16, Fault::WireType));
        assert_eq!(error.to_string(), "the wrong wire type in Pod.spec.nodeName, at byte 16 of the object");
    }
    assert_eq!(index.errors().len(), 1);
}

#[test]
fn a_view_of_another_kind_is_refused() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    drop(store.apply(Encoding::Protobuf, POD).unwrap());
    let object = store.get(("ns", "web")).unwrap();
    // The kind is unknown.
    assert_eq!(object.view::<PartialObjectMetadataView<'_>>().unwrap().metadata().name(), "web");
    let encoded = object.encoded().unwrap();
    assert!(encoded.view::<PartialObjectMetadataView<'_>>().is_ok());
    store.set_type_meta(TypeMeta::new("v1", "Pod"));
    // Checked before, as the wrong kind.
    assert!(matches!(object.view::<PartialObjectMetadataView<'_>>(), Err(ItemError::WrongKind { .. })));
    assert!(matches!(encoded.view::<PartialObjectMetadataView<'_>>(), Err(ItemError::WrongKind { .. })));
    assert!(object.view::<PodView<'_>>().is_ok());
    let error = object.view::<ConfigMapView<'_>>().unwrap_err().to_string();
    assert_eq!(error, "unexpected kind: the object is a Pod of v1, the type reads a ConfigMap of v1");
    assert!(matches!(object.view::<PartialObjectMetadataView<'_>>(), Err(ItemError::WrongKind { .. })));
    // The type meta of a list.
    let of_list = TypeMeta::new("v1", "PodList");
    let item = ItemRef::new(Encoding::Protobuf, POD).with_type_meta(&of_list);
    assert!(item.view::<PodView<'_>>().is_ok());
    assert!(matches!(item.view::<ConfigMapView<'_>>(), Err(ItemError::WrongKind { .. })));
    for api_version in ["meta.k8s.io/v1", "meta.k8s.io/v1beta1"] {
        let partial = TypeMeta::new(api_version, "PartialObjectMetadata");
        assert!(item.with_type_meta(&partial).view::<PartialObjectMetadataView<'_>>().is_ok());
    }
}

#[test]
fn an_object_that_is_not_canonical_is_rewritten_for_one_kind() {
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    drop(store.apply(Encoding::Protobuf, UNORDERED).unwrap());
    let object = store.get(("ns", "web")).unwrap();
    assert!(object.view::<PodView<'_>>().is_ok());
    assert!(matches!(object.view::<PartialObjectMetadataView<'_>>(), Err(ItemError::NotCanonical)));
    assert!(object.clone().view::<PartialObjectMetadataView<'_>>().is_ok());

    let item = ItemRef::new(Encoding::Protobuf, UNORDERED);
    assert!(matches!(item.view::<PodView<'_>>(), Err(ItemError::NotCanonical)));
    let canonical = item.canonical::<PodView<'_>>().unwrap();
    assert_eq!(canonical, POD);
    let item = ItemRef::new(Encoding::Protobuf, &canonical);
    assert_eq!(item.view::<PodView<'_>>().unwrap().metadata().name(), "web");
    assert!(matches!(item.canonical::<PodView<'_>>().unwrap(), Cow::Borrowed(_)));
}

#[test]
fn json_is_an_error_that_names_serde() {
    let json = br#"{"metadata":{"name":"web","namespace":"ns"}}"#;
    let error = ItemRef::new(Encoding::Json, json).view::<PodView<'_>>().unwrap_err();
    assert!(matches!(error, ItemError::ViewOfJson) && error.to_string().contains("serde"));
    let store = Store::<[u8]>::new(StorageFormat::Encoded);
    drop(store.apply(Encoding::Json, json).unwrap());
    let object = store.get(("ns", "web")).unwrap();
    assert!(matches!(object.view::<PodView<'_>>(), Err(ItemError::ViewOfJson)));
}
