//! Objects that readers cannot decode stay in the store, and are counted.

use listwatch::Encoding::Json as JsonEncoding;
use listwatch::{FieldPath, ItemError, Json, TypeMeta};
use listwatch_cache::{Change, Object, StorageFormat, Store, StoreError};

use crate::support::chain;

#[derive(serde::Deserialize, serde::Serialize)]
struct Widget {
    spec: Spec,
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Spec {
    size: u32,
}

type Widgets = Store<Json<Widget>>;

/// Writes a widget whose labels and size are JSON.
fn apply(store: &Widgets, name: &str, version: u32, labels: &str, size: &str) -> Result<(), StoreError> {
    let json = format!(
        r#"{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"{version}","labels":{labels}}},"spec":{{"size":{size}}}}}"#
    );
    store.apply(JsonEncoding, json.as_bytes()).map(drop)
}

fn store(format: StorageFormat) -> Widgets {
    let store = Widgets::new(format);
    apply(&store, "a", 1, r#"{"app":"web"}"#, "3").unwrap();
    apply(&store, "b", 2, r#"{"app":"web"}"#, r#""large""#).unwrap();
    store
}

#[test]
fn a_store_of_another_kind_than_its_type_decodes_no_object() {
    use k8s_pb::api::core::v1::Secret;

    let config_map = b"\x0a\x06\x0a\x01a\x32\x011";
    let of = |kind: &str| {
        let store = Store::<Secret>::new(StorageFormat::Encoded);
        store.set_type_meta(TypeMeta::new("v1", kind));
        drop(store.apply(listwatch::Encoding::Protobuf, config_map).unwrap());
        store.get(("", "a")).unwrap().decode().map(drop).map_err(|error| error.to_string())
    };
    let expected = "unexpected kind: the object is a ConfigMap of v1, the type reads a Secret of v1";
    assert_eq!(of("ConfigMapList"), Err(expected.to_owned()));
    assert_eq!(of("ConfigMap"), Err(expected.to_owned()));
    assert_eq!(of("Secret"), Ok(()));
}

#[test]
fn the_limit_of_a_store_applies_to_its_objects() {
    let store = Store::<Json<serde_json::Value>>::new(StorageFormat::Encoded);
    let object = format!(
        r#"{{"kind":"W","apiVersion":"v1","metadata":{{"name":"a","resourceVersion":"1"}},"a":[{}1]}}"#,
        "[1],".repeat(9000)
    );
    drop(store.apply(JsonEncoding, object.as_bytes()).unwrap());
    let decode = || store.get(("", "a")).unwrap().decode().map(drop);
    decode().unwrap();
    store.set_decoded_size(1 << 20);
    assert!(matches!(decode(), Err(ItemError::DecodedSize { max: 1_048_576, .. })));
}

fn is_large(object: &Object<Json<Widget>>) -> bool {
    object.decode().is_ok_and(|widget| widget.spec.size > 1)
}

#[test]
fn an_undecodable_object_is_kept_and_each_state_is_counted_once() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let store = store(format);
        assert_eq!(store.len(), 2);
        assert_eq!(store.decode_errors().0, 0, "nobody has decoded an object");
        assert!(store.get(("shop", "a")).unwrap().decode().is_ok());
        assert_eq!(store.decode_errors().0, 0);
        for _ in 0..2 {
            let object = store.get(("shop", "b")).unwrap();
            for object in [&object, &object.clone()] {
                assert!(matches!(object.decode(), Err(ItemError::Json(_))));
            }
            // The bytes can be read, and the metadata.
            let size = FieldPath::new("spec.size", &[]);
            assert_eq!(size.str(object.item().unwrap()).unwrap().as_deref(), Some("large"));
            assert_eq!(object.meta().unwrap().label("app").unwrap().as_deref(), Some("web"));
            // Compressing the object does not make it another state.
            _ = store.memory();
        }
        let (count, last) = store.decode_errors();
        assert_eq!(count, 1, "{format:?}");
        let expected = "cannot decode shop/b at version 2: cannot decode the JSON: invalid type: string \"large\", \
                        expected u32 at line 1 column ";
        assert!(chain(&last.unwrap()).starts_with(expected));

        apply(&store, "b", 3, "{}", "[]").unwrap();
        assert!(store.get(("shop", "b")).unwrap().decode().is_err());
        let (count, last) = store.decode_errors();
        assert_eq!((count, &*last.unwrap().resource_version), (2, "3"));
        apply(&store, "b", 4, "{}", "5").unwrap();
        assert!(store.get(("shop", "b")).unwrap().decode().is_ok());
        assert_eq!(store.decode_errors().0, 2);
    }
}

#[test]
fn the_last_error_ends_when_the_object_is_repaired_or_deleted() {
    let last = |store: &Widgets| store.decode_errors().1.map(|object| object.name);
    let store = store(StorageFormat::Encoded);
    apply(&store, "c", 3, "{}", "true").unwrap();
    for name in ["b", "c"] {
        assert!(store.get(("shop", name)).unwrap().decode().is_err());
    }
    assert_eq!(last(&store).as_deref(), Some("c"));
    // The state that replaces it has not been read yet.
    apply(&store, "c", 4, "{}", "[]").unwrap();
    assert_eq!(last(&store).as_deref(), Some("b"));
    assert!(store.get(("shop", "c")).unwrap().decode().is_err());
    assert_eq!(last(&store).as_deref(), Some("c"));
    store.delete(JsonEncoding, br#"{"metadata":{"namespace":"shop","name":"c","resourceVersion":"4"}}"#).unwrap();
    assert_eq!(last(&store).as_deref(), Some("b"));
    apply(&store, "b", 5, "{}", "5").unwrap();
    assert_eq!(store.decode_errors().0, 3);
    assert_eq!(last(&store), None);
    // Old errors are forgotten, and those of a repeatedly broken object are one.
    for version in 10..60 {
        let name = format!("d{}", version % 20);
        apply(&store, &name, version, "{}", "[]").unwrap();
        assert!(store.get(("shop", &*name)).unwrap().decode().is_err());
    }
    assert_eq!((store.decode_errors().0, last(&store).as_deref()), (53, Some("d19")));
}

#[test]
fn functions_that_cannot_decode_an_object_are_visible() {
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        // A filter leaves the object out.
        let filtered = store(format);
        let mut changes = filtered.subscribe().with_initial_state().filter(is_large).start();
        assert!(matches!(changes.try_next(), Some(Change::Applied { new, .. }) if new.name() == "a"));
        assert!(changes.try_next().is_none());
        assert_eq!(filtered.decode_errors().0, 1, "{format:?}");
        apply(&filtered, "c", 3, "{}", "true").unwrap();
        assert!(changes.try_next().is_none());
        let (count, last) = filtered.decode_errors();
        assert_eq!((count, &*last.unwrap().name), (2, "c"));

        // An index does not have it.
        let indexed = store(format);
        let by_size = indexed.index("size", |object| Ok::<_, ItemError>([object.decode()?.spec.size]));
        assert_eq!(by_size.values(), [3]);
        assert_eq!(by_size.errors().len(), 1);
        assert_eq!(indexed.decode_errors().0, 1, "{format:?}");
    }
}

#[test]
fn objects_whose_labels_cannot_be_read_are_counted() {
    for labels in ["7", r#"{"app":7}"#, r#"{"app":["web"]}"#] {
        let selected = Widgets::new(StorageFormat::Encoded);
        apply(&selected, "a", 1, labels, "3").unwrap();
        assert!(selected.list_labels(None, &"app=web".parse().unwrap()).is_empty());
        assert_eq!(selected.decode_errors().0, 1, "{labels}");

        let subscribed = Widgets::new(StorageFormat::Encoded);
        let mut changes = subscribed.subscribe().labels("app=web".parse().unwrap()).start();
        apply(&subscribed, "a", 1, labels, "3").unwrap();
        assert!(changes.try_next().is_none());
        assert_eq!(subscribed.decode_errors().0, 1, "{labels}");
    }
}
