//! What a single item is, whatever its encoding: its kind, its bytes, and the types that it is decoded as.

use k8s_pb::api::core::v1::ConfigMap;
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::encode::Encoder;
use listwatch::{Encoding, FieldPath, ItemError, ItemRef, Json, Limits, StoreType, TypeMeta, WatchEventRef};
use prost::Message as _;

use crate::support::{config_map, fixture, watch_decoder};

#[test]
fn an_item_knows_its_encoding_and_its_own_type_meta() {
    let message = config_map("a", "u", "7");
    let protobuf = ItemRef::new(Encoding::Protobuf, &message);
    assert_eq!((protobuf.as_message(), protobuf.as_json()), (Some(&message[..]), None));
    assert_eq!(protobuf.own_type_meta().unwrap(), None);
    for (json, api_version, kind) in [
        (r#"{"kind":"Widget","apiVersion":"example.com/v1"}"#, "example.com/v1", "Widget"),
        (r#"{"kind":"Widget","spec":{"apiVersion":"v1"}}"#, "", "Widget"),
        (r#"{"apiVersion":"v1","kind":null}"#, "v1", ""),
        ("{}", "", ""),
    ] {
        let item = ItemRef::new(Encoding::Json, json.as_bytes());
        assert_eq!((item.as_message(), item.as_json()), (None, Some(json.as_bytes())));
        assert_eq!(item.own_type_meta().unwrap(), Some(TypeMeta::new(api_version, kind)), "{json}");
    }
    let error = ItemRef::new(Encoding::Json, b"[]").own_type_meta().unwrap_err();
    assert!(matches!(error, ItemError::Metadata { .. }), "{error}");
}

#[test]
fn a_type_is_decoded_from_its_encoding() {
    for (encoding, other) in [(Encoding::Protobuf, Encoding::Json), (Encoding::Json, Encoding::Protobuf)] {
        let item = ItemRef::empty(encoding);
        let checks = [item.check_encoding::<ConfigMap>(), item.check_encoding::<Json<serde_json::Value>>()];
        let accepts = checks.map(|check| match check {
            Ok(()) => true,
            Err(ItemError::WrongEncoding { found, expected }) => {
                assert_eq!((found, expected), (encoding, other));
                false
            }
            Err(error) => panic!("{error}"),
        });
        assert_eq!(accepts, [encoding == Encoding::Protobuf, encoding == Encoding::Json]);
        item.check_encoding::<[u8]>().unwrap();
    }
}

/// What a store keeps of an object that a caller wrote decodes to the same object.
#[test]
fn a_stored_type_is_encoded_as_it_is_decoded() {
    let message = config_map("a", "u", "7");
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata: Some(metadata), ..ConfigMap::default() };
    assert_eq!(<ConfigMap as StoreType>::encode(&object).unwrap(), object.encode_to_vec());
    let decoded = <ConfigMap as StoreType>::decode(ItemRef::new(Encoding::Protobuf, &message)).unwrap();
    assert_eq!(decoded, <ConfigMap as prost::Message>::decode(&message[..]).unwrap());

    let json = br#"{"kind":"Widget"}"#;
    let decoded = <Json<serde_json::Value> as StoreType>::decode(ItemRef::new(Encoding::Json, json)).unwrap();
    assert_eq!(decoded, serde_json::json!({"kind": "Widget"}));
    assert_eq!(Json::<serde_json::Value>::encode(&decoded).unwrap(), json);

    let decoded = <[u8] as StoreType>::decode(ItemRef::new(Encoding::Json, json)).unwrap();
    assert_eq!((&decoded[..], <[u8]>::encode(&decoded).unwrap()), (&json[..], json.to_vec()));
}

/// Only an item over 16 KiB is estimated.
#[test]
fn the_limit_of_the_decoded_size_is_inclusive() {
    let large = ConfigMap { data: [("k".into(), "x".repeat(20_000))].into(), ..ConfigMap::default() }.encode_to_vec();
    let json = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(20_000));
    let decode = |item: ItemRef<'_>| match item.encoding() {
        Encoding::Json => item.decode_json::<serde_json::Value>().map(drop),
        _ => item.decode::<ConfigMap>().map(drop),
    };
    for (encoding, object) in [(Encoding::Protobuf, &large[..]), (Encoding::Json, json.as_bytes())] {
        let type_meta = TypeMeta::new("v1", "ConfigMap");
        let item = ItemRef::new(encoding, object).with_type_meta(&type_meta);
        let Err(ItemError::DecodedSize { estimate, max: 0 }) = decode(item.with_decoded_size(0)) else {
            panic!("decodes {encoding} over the limit")
        };
        assert!(estimate >= 20_000, "{estimate}");
        decode(item.with_decoded_size(estimate)).unwrap();
        let refused = decode(item.with_decoded_size(estimate - 1)).unwrap_err();
        assert!(matches!(refused, ItemError::DecodedSize { .. }), "{refused}");
    }
}

#[test]
fn an_item_in_a_list_of_protobuf_takes_its_tag_its_length_and_its_bytes() {
    let encoder = |encoding| Encoder::new(encoding, TypeMeta::new("v1", "ConfigMap"), "ConfigMapList");
    for (len, expected) in [(0, 2), (1, 3), (127, 129), (128, 131), (20_000, 20_004)] {
        assert_eq!(encoder(Encoding::Protobuf).whole_item_len(len), expected);
        assert_eq!(encoder(Encoding::Json).whole_item_len(len), 0);
    }
}

#[test]
fn a_metadata_view_of_json_has_the_members_of_gos_struct() {
    let json = br#"{"metadata":{"deletionGracePeriodSeconds":30,"labels":{"a":"x"},"annotations":{"a":"1","b":"2"}}}"#;
    let meta = ItemRef::new(Encoding::Json, json).meta().unwrap();
    assert_eq!(meta.deletion_grace_period_seconds(), Some(30));
    for (key, label, annotation) in [("a", Some("x"), Some("1")), ("b", None, Some("2")), ("c", None, None)] {
        assert_eq!(meta.label(key).unwrap().as_deref(), label, "{key}");
        assert_eq!(meta.annotation(key).unwrap().as_deref(), annotation, "{key}");
    }
}

/// A decoder of JSON remembers where the values of an object end. Other bytes have other ends.
#[test]
fn an_item_with_other_bytes_is_read_by_them() {
    let body = fixture("watch-configmaps.json");
    let (mut decoder, mut rest, mut objects) = (watch_decoder(Limits::default()), &body[..], 0);
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        let (WatchEventRef::Added { object, .. } | WatchEventRef::Modified { object, .. }) = event else { continue };
        let text = str::from_utf8(object.bytes()).unwrap();
        let name = object.meta().unwrap().name().into_owned();
        let other =
            text.replace(&format!(r#""name":"{name}""#), r#""name":"a name of another length, which moves all ends""#);
        assert_ne!(other, text);
        let read = object.with_bytes(other.as_bytes());
        assert_eq!(read.meta().unwrap().name(), "a name of another length, which moves all ends");
        let (path, whole) = (FieldPath::parse("data", &TypeMeta::new("v1", "ConfigMap")).unwrap(), object);
        assert_eq!(path.bytes(read).unwrap(), path.bytes(whole).unwrap());
        // Nothing is where the object has it.
        let other = br#"{"spec":{"metadata":{"name":"x"}},"metadata":{"labels":{"a":"b"},"name":"c"},"data":{}}"#;
        let meta = object.with_bytes(other).meta().unwrap();
        assert_eq!((&*meta.name(), meta.label("a").unwrap().as_deref()), ("c", Some("b")));
        objects += 1;
    }
    assert!(objects > 0);
}

#[test]
fn malformed_json_is_no_value_and_no_value_of_another_type() {
    for (json, expected) in [
        (r#"{"metadata":7}"#, "a value of the wrong type in metadata"),
        (r#"{"metadata":]}"#, "invalid JSON in metadata"),
        (r#"{"metadata":"#, "invalid JSON in metadata"),
    ] {
        let error = ItemRef::new(Encoding::Json, json.as_bytes()).meta().unwrap_err();
        assert_eq!(error.to_string(), expected, "{json}");
    }
    let path = FieldPath::parse("a", &TypeMeta::default()).unwrap();
    for json in [r#"{"a":{"#, r#"{"a":{"b":[1"#, r#"{"a":"x"#] {
        let first = path.all_bytes(ItemRef::new(Encoding::Json, json.as_bytes())).next();
        assert!(first.is_some_and(|value| value.is_err()), "{json}");
    }
}

#[test]
fn a_path_has_at_most_100_names() {
    for (names, is_path) in [(1, true), (100, true), (101, false), (102, false)] {
        let text = vec!["a"; names].join(".");
        assert_eq!(FieldPath::parse(&text, &TypeMeta::default()).is_ok(), is_path, "{names}");
    }
}
