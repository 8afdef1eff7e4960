//! The JSON form of an object's metadata.
//!
//! Members are read as Go's `encoding/json` reads them: the last value of a repeated member counts, `null` sets nothing. Source of
//! the names: `ObjectMeta` in `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;

use super::meta_view::{ManagedFieldsEntry, OwnerReference, Time};
use super::{Item, ItemRef};
use crate::error::ItemError;
use crate::meta::json::{members, set, set_text, skip, whole};
use crate::wire::json::{JsonText, Reader};
use crate::wire::{Encoding, FieldFault};

/// Decodes the items of a JSON list as `Box<T>`, for any `T` that serde deserializes.
///
/// Servers send lists of custom resources in JSON only. An item in protobuf is an error, and so is an item that is nested deeper
/// than the 128 levels that `serde_json` allows.
///
/// ```
/// use listwatch::{Json, ListReader};
///
/// #[derive(serde::Deserialize)]
/// struct Widget {
///     spec: Spec,
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     size: u32,
/// }
///
/// # let body = &include_bytes!("../../fixtures/widgets-page-1.json")[..];
/// let mut size = 0;
/// for widget in ListReader::new::<Json<Widget>>(body) {
///     size += widget?.spec.size;
/// }
/// # assert_eq!(size, 336);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned + Send + 'static> Item for Json<T> {
    type Owned = Box<T>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn from_ref(item: ItemRef<'_>) -> Result<Box<T>, ItemError> {
        item.decode_json()
    }
}

/// The metadata of an object. Texts without escapes are borrowed from its JSON.
///
/// Absent fields are empty. It allocates for the entries of the maps and lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonMeta<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) generate_name: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
    pub(crate) generation: i64,
    pub(crate) creation_timestamp: Option<Time>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    pub(crate) labels: BTreeMap<JsonText<'a>, JsonText<'a>>,
    pub(crate) annotations: BTreeMap<JsonText<'a>, JsonText<'a>>,
    pub(crate) owner_references: Vec<JsonOwner<'a>>,
    pub(crate) finalizers: Vec<JsonText<'a>>,
    pub(crate) managed_fields: Vec<JsonManager<'a>>,
}

/// An owner of an object. A repeated name is an error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JsonOwner<'a> {
    #[serde(borrow)]
    pub(crate) api_version: JsonText<'a>,
    pub(crate) kind: JsonText<'a>,
    pub(crate) name: JsonText<'a>,
    pub(crate) uid: JsonText<'a>,
    pub(crate) controller: Option<bool>,
    pub(crate) block_owner_deletion: Option<bool>,
}

/// The fields that one manager set. A repeated name is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JsonManager<'a> {
    #[serde(borrow)]
    pub(crate) manager: JsonText<'a>,
    pub(crate) operation: JsonText<'a>,
    pub(crate) api_version: JsonText<'a>,
    pub(crate) time: Option<Time>,
    pub(crate) fields_type: JsonText<'a>,
    pub(crate) fields_v1: Option<&'a RawValue>,
    pub(crate) subresource: JsonText<'a>,
}

impl<'a> JsonOwner<'a> {
    pub(crate) fn view(&self) -> OwnerReference<'a> {
        OwnerReference {
            api_version: self.api_version.0.clone(),
            kind: self.kind.0.clone(),
            name: self.name.0.clone(),
            uid: self.uid.0.clone(),
            controller: self.controller.unwrap_or_default(),
            block_owner_deletion: self.block_owner_deletion.unwrap_or_default(),
        }
    }
}

impl<'a> JsonManager<'a> {
    pub(crate) fn view(&self) -> ManagedFieldsEntry<'a> {
        ManagedFieldsEntry {
            manager: self.manager.0.clone(),
            operation: self.operation.0.clone(),
            api_version: self.api_version.0.clone(),
            time: self.time,
            fields_type: self.fields_type.0.clone(),
            fields_v1: self.fields_v1.map(|fields| fields.get().as_bytes()).unwrap_or_default(),
            subresource: self.subresource.0.clone(),
        }
    }
}

/// Parses RFC 3339, as Go does.
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JsonText(text) = JsonText::deserialize(deserializer)?;
        let timestamp: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self { seconds: timestamp.as_second(), nanos: timestamp.subsec_nanosecond() })
    }
}

/// Reads the metadata of an object. Of other members it only finds the end.
pub(crate) fn meta(object: &[u8]) -> Result<JsonMeta<'_>, ItemError> {
    let mut meta = JsonMeta::default();
    whole("the object", object, |name, json| match name {
        // A repeated `metadata` is merged into the first, as in Go.
        "metadata" => meta.merge(json),
        _ => skip("the object", json),
    })
    .map_err(|(field, fault)| ItemError::Metadata { field, fault })?;
    Ok(meta)
}

impl<'a> JsonMeta<'a> {
    fn merge(&mut self, json: &mut Reader<'a>) -> Result<(), FieldFault> {
        members("metadata", json, |name, json| match name {
            "name" => set_text(&mut self.name, "metadata.name", json),
            "generateName" => set_text(&mut self.generate_name, "metadata.generateName", json),
            "namespace" => set_text(&mut self.namespace, "metadata.namespace", json),
            "uid" => set_text(&mut self.uid, "metadata.uid", json),
            "resourceVersion" => set_text(&mut self.resource_version, "metadata.resourceVersion", json),
            "generation" => set(&mut self.generation, "metadata.generation", json),
            "creationTimestamp" => set(&mut self.creation_timestamp, "metadata.creationTimestamp", json),
            "deletionTimestamp" => set(&mut self.deletion_timestamp, "metadata.deletionTimestamp", json),
            "deletionGracePeriodSeconds" => {
                set(&mut self.deletion_grace_period_seconds, "metadata.deletionGracePeriodSeconds", json)
            }
            "labels" => set(&mut self.labels, "metadata.labels", json),
            "annotations" => set(&mut self.annotations, "metadata.annotations", json),
            "ownerReferences" => set(&mut self.owner_references, "metadata.ownerReferences", json),
            "finalizers" => set(&mut self.finalizers, "metadata.finalizers", json),
            "managedFields" => set(&mut self.managed_fields, "metadata.managedFields", json),
            _ => skip("metadata", json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_as_go_reads_it() {
        let object = br#"{"spec":{"metadata":{"name":"not me"}},"metadata":{
            "name":"first","name":"a\u002db","generateName":"g","namespace":"n","uid":null,"resourceVersion":"7",
            "generation":3,"creationTimestamp":"2026-11-21T10:22:37Z","deletionTimestamp":null,
            "labels":{"b":"1","a":"2","b":"3"},"annotations":{},"finalizers":["f"],"unknown":[{}],
            "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"o","uid":"u","controller":true,"more":1}],
            "managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:a":{}}}]},
            "metadata":{"namespace":"later"},"status":[[]]}"#;
        let meta = meta(object).unwrap();
        assert_eq!((&*meta.name, &*meta.generate_name, &*meta.namespace, &*meta.uid), ("a-b", "g", "later", ""));
        assert_eq!((&*meta.resource_version, meta.generation), ("7", 3));
        assert_eq!(meta.creation_timestamp, Some(Time { seconds: 1_795_256_557, nanos: 0 }));
        assert_eq!(meta.deletion_timestamp, None);
        let labels: Vec<_> = meta.labels.iter().map(|(key, value)| (&*key.0, &*value.0)).collect();
        assert_eq!((labels, meta.annotations.len(), &*meta.finalizers[0].0), (vec![("a", "2"), ("b", "3")], 0, "f"));
        assert!(matches!(meta.namespace, Cow::Borrowed(_)) && matches!(meta.finalizers[0].0, Cow::Borrowed(_)));
        let owner = &meta.owner_references[0];
        assert_eq!((&*owner.kind.0, owner.controller, owner.block_owner_deletion), ("Node", Some(true), None));
        let manager = &meta.managed_fields[0];
        assert_eq!((&*manager.manager.0, manager.fields_v1.unwrap().get()), ("m", r#"{"f:a":{}}"#));
    }

    #[test]
    fn refuses_malformed_metadata() {
        for (object, expected) in [
            (&br#"{"metadata":{"name":7}}"#[..], "a value of the wrong type in metadata.name"),
            (br#"{"metadata":{"labels":{"a":null}}}"#, "a value of the wrong type in metadata.labels"),
            (br#"{"metadata":{"finalizers":[1]}}"#, "a value of the wrong type in metadata.finalizers"),
            (
                br#"{"metadata":{"creationTimestamp":"today"}}"#,
                "a value of the wrong type in metadata.creationTimestamp",
            ),
            (br#"{"metadata":[]}"#, "a value of the wrong type in metadata"),
            (br#"{"metadata":{"name":"\ud800"}}"#, "invalid JSON in metadata.name"),
            (br#"{"metadata":{}"#, "invalid JSON in the object"),
            (br#"{"spec":tru}"#, "invalid JSON in the object"),
            (br"{} {}", "invalid JSON in the object"),
            (b"7", "a value of the wrong type in the object"),
            (b"{\"metadata\":{\"name\":\"\xff\"}}", "invalid UTF-8 in metadata.name"),
            (b"{\"metadata\":{\"labels\":{\"a\":\"\xff\"}}}", "invalid JSON in metadata.labels"),
        ] {
            let error = meta(object).unwrap_err();
            assert_eq!(error.to_string(), expected, "{}", String::from_utf8_lossy(object));
        }
    }
}
