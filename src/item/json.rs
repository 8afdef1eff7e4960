//! The JSON form of an object's metadata, and of what stands around the items of a list.
//!
//! Members are read as Go's `encoding/json` reads them: the last one of a name counts, `null` sets nothing. Source of the
//! names: `ObjectMeta`, `ListMeta` and `Status` in `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::view::{ManagedFieldsEntry, OwnerReference, Time};
use super::{Item, ListMeta, ShardInfo, Status, StatusCause, StatusDetails, TypeMeta};
use crate::decode::{Encoding, ItemRef};
use crate::error::{Fault, ItemError};

/// Makes the items of a JSON list a `Box<T>`, for any `T` that serde deserializes.
///
/// Lists of custom resources come in JSON only. An item nested deeper than the 128 levels that `serde_json` allows is an
/// error, and so is one in protobuf.
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
/// for widget in ListReader::<_, Json<Widget>>::new(body) {
///     size += widget?.spec.size;
/// }
/// # assert_eq!(size, 336);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned + Send + 'static> Item for Json<T> {
    type Owned = Box<T>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn own(item: ItemRef<'_>) -> Result<Box<T>, ItemError> {
        item.decode_json()
    }
}

/// The metadata of an object, borrowed from its JSON as far as no escapes are in it.
///
/// What is absent is empty. It takes memory for the entries of the maps and lists.
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
    pub(crate) labels: BTreeMap<Text<'a>, Text<'a>>,
    pub(crate) annotations: BTreeMap<Text<'a>, Text<'a>>,
    pub(crate) owner_references: Vec<JsonOwner<'a>>,
    pub(crate) finalizers: Vec<Text<'a>>,
    pub(crate) managed_fields: Vec<JsonManager<'a>>,
}

/// An owner of an object. A name that comes twice is an error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JsonOwner<'a> {
    #[serde(borrow)]
    pub(crate) api_version: Text<'a>,
    pub(crate) kind: Text<'a>,
    pub(crate) name: Text<'a>,
    pub(crate) uid: Text<'a>,
    pub(crate) controller: Option<bool>,
    pub(crate) block_owner_deletion: Option<bool>,
}

/// What one manager set. A name that comes twice is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JsonManager<'a> {
    #[serde(borrow)]
    pub(crate) manager: Text<'a>,
    pub(crate) operation: Text<'a>,
    pub(crate) api_version: Text<'a>,
    pub(crate) time: Option<Time>,
    pub(crate) fields_type: Text<'a>,
    pub(crate) fields_v1: Option<&'a RawValue>,
    pub(crate) subresource: Text<'a>,
}

/// A string, borrowed where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// So that maps are asked by `str`.
impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl JsonOwner<'_> {
    pub(crate) fn view(&self) -> OwnerReference<'_> {
        OwnerReference {
            api_version: self.api_version.as_ref(),
            kind: self.kind.as_ref(),
            name: self.name.as_ref(),
            uid: self.uid.as_ref(),
            controller: self.controller.unwrap_or_default(),
            block_owner_deletion: self.block_owner_deletion.unwrap_or_default(),
        }
    }
}

impl JsonManager<'_> {
    pub(crate) fn view(&self) -> ManagedFieldsEntry<'_> {
        ManagedFieldsEntry {
            manager: self.manager.as_ref(),
            operation: self.operation.as_ref(),
            api_version: self.api_version.as_ref(),
            time: self.time,
            fields_type: self.fields_type.as_ref(),
            fields_v1: self.fields_v1.map(|fields| fields.get().as_bytes()).unwrap_or_default(),
            subresource: self.subresource.as_ref(),
        }
    }
}

/// From RFC 3339, as Go reads times.
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let timestamp: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self { seconds: timestamp.as_second(), nanos: timestamp.subsec_nanosecond() })
    }
}

/// A field, and what is wrong with it.
type Unread = (&'static str, Fault);

/// Reads the metadata of an object, and of the rest only where it ends.
pub(crate) fn meta(object: &[u8]) -> Result<JsonMeta<'_>, ItemError> {
    let mut meta = JsonMeta::default();
    members("the object", object, |name, value| match name {
        // A second one is merged into the first, as Go does.
        "metadata" => meta.merge(value),
        _ => Ok(()),
    })
    .map_err(|(field, fault)| ItemError::Metadata { field, fault })?;
    Ok(meta)
}

impl<'a> JsonMeta<'a> {
    fn merge(&mut self, metadata: &'a RawValue) -> Result<(), Unread> {
        members("metadata", metadata.get().as_bytes(), |name, value| match name {
            "name" => set_text(&mut self.name, "metadata.name", value),
            "generateName" => set_text(&mut self.generate_name, "metadata.generateName", value),
            "namespace" => set_text(&mut self.namespace, "metadata.namespace", value),
            "uid" => set_text(&mut self.uid, "metadata.uid", value),
            "resourceVersion" => set_text(&mut self.resource_version, "metadata.resourceVersion", value),
            "generation" => set(&mut self.generation, "metadata.generation", value),
            "creationTimestamp" => set(&mut self.creation_timestamp, "metadata.creationTimestamp", value),
            "deletionTimestamp" => set(&mut self.deletion_timestamp, "metadata.deletionTimestamp", value),
            "deletionGracePeriodSeconds" => {
                set(&mut self.deletion_grace_period_seconds, "metadata.deletionGracePeriodSeconds", value)
            }
            "labels" => set(&mut self.labels, "metadata.labels", value),
            "annotations" => set(&mut self.annotations, "metadata.annotations", value),
            "ownerReferences" => set(&mut self.owner_references, "metadata.ownerReferences", value),
            "finalizers" => set(&mut self.finalizers, "metadata.finalizers", value),
            "managedFields" => set(&mut self.managed_fields, "metadata.managedFields", value),
            _ => Ok(()),
        })
    }
}

/// Reads the `metadata` of a list into what came of it before.
pub(crate) fn merge_list_meta(list_meta: &mut ListMeta, metadata: &[u8]) -> Result<(), Unread> {
    members("metadata", metadata, |name, value| match name {
        "resourceVersion" => set(&mut list_meta.resource_version, "metadata.resourceVersion", value),
        "continue" => set(&mut list_meta.continue_token, "metadata.continue", value),
        "remainingItemCount" => {
            let count = &mut list_meta.remaining_item_count;
            *count = parse("metadata.remainingItemCount", value)?;
            Ok(())
        }
        "shardInfo" if value.get() == "null" => {
            list_meta.shard_info = None;
            Ok(())
        }
        "shardInfo" => {
            let ShardInfo { selector } = list_meta.shard_info.get_or_insert_default();
            members("metadata.shardInfo", value.get().as_bytes(), |name, value| match name {
                "selector" => set(selector, "metadata.shardInfo.selector", value),
                _ => Ok(()),
            })
        }
        _ => Ok(()),
    })
}

/// The `apiVersion` and `kind` that an object has of its own; empty where it has none.
pub(crate) fn type_meta(object: &[u8]) -> Result<TypeMeta, ItemError> {
    let mut type_meta = TypeMeta::default();
    members("the object", object, |name, value| match name {
        "apiVersion" => set(&mut type_meta.api_version, "apiVersion", value),
        "kind" => set(&mut type_meta.kind, "kind", value),
        _ => Ok(()),
    })
    .map_err(|(field, fault)| ItemError::Metadata { field, fault })?;
    Ok(type_meta)
}

/// Reads a Status; `None` where it is none that can be read.
pub(crate) fn status(json: &[u8]) -> Option<Status> {
    let mut status = Status::default();
    members("the body", json, |name, value| match name {
        "metadata" => merge_list_meta(status.metadata.get_or_insert_default(), value.get().as_bytes()),
        "status" => set(&mut status.status, "status", value),
        "message" => set(&mut status.message, "message", value),
        "reason" => set(&mut status.reason, "reason", value),
        "details" => merge_details(status.details.get_or_insert_default(), value),
        "code" => set(&mut status.code, "code", value),
        _ => Ok(()),
    })
    .ok()?;
    Some(status)
}

fn merge_details(details: &mut StatusDetails, json: &RawValue) -> Result<(), Unread> {
    members("details", json.get().as_bytes(), |name, value| match name {
        "name" => set(&mut details.name, "details.name", value),
        "group" => set(&mut details.group, "details.group", value),
        "kind" => set(&mut details.kind, "details.kind", value),
        "uid" => set(&mut details.uid, "details.uid", value),
        "retryAfterSeconds" => set(&mut details.retry_after_seconds, "details.retryAfterSeconds", value),
        "causes" => {
            let causes: Vec<&RawValue> = parse("details.causes", value)?;
            details.causes = causes.into_iter().map(cause).collect::<Result<_, _>>()?;
            Ok(())
        }
        _ => Ok(()),
    })
}

fn cause(json: &RawValue) -> Result<StatusCause, Unread> {
    let mut cause = StatusCause::default();
    members("details.causes", json.get().as_bytes(), |name, value| match name {
        "reason" => set(&mut cause.reason, "details.causes.reason", value),
        "message" => set(&mut cause.message, "details.causes.message", value),
        "field" => set(&mut cause.field, "details.causes.field", value),
        _ => Ok(()),
    })?;
    Ok(cause)
}

/// A string with its quotes.
pub(crate) fn string(json: &[u8]) -> Result<Cow<'_, str>, Fault> {
    let json = str::from_utf8(json).map_err(|_| Fault::Utf8)?;
    let Text(text) = serde_json::from_str(json).map_err(|_| Fault::Syntax)?;
    Ok(text)
}

/// Whether it is a number or a literal.
pub(crate) fn is_scalar(json: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(json).is_ok()
}

/// For field selectors: the text of the string, integer or boolean that a path of names leads to; `None` where nothing is,
/// or `null`.
#[cfg(feature = "client")]
pub(crate) fn text_at<'a>(object: &'a [u8], path: &str) -> Result<Option<Cow<'a, str>>, ItemError> {
    let at = |fault| ItemError::Field { path: path.into(), fault };
    let mut found = object;
    for name in path.split('.') {
        let mut next = None;
        if matches!(found.trim_ascii_start(), [b'{', ..]) {
            members("", found, |member, value| {
                if member == name {
                    next = Some(value.get().as_bytes());
                }
                Ok(())
            })
            .map_err(|(_, fault)| at(fault))?;
        }
        let Some(next) = next else { return Ok(None) };
        found = next;
    }
    match found {
        b"null" => Ok(None),
        [b'"', ..] => serde_json::from_slice(found).map(|Text(text)| Some(text)).map_err(|error| at(fault(&error))),
        [b'{' | b'[', ..] => Err(at(Fault::Type)),
        scalar => Ok(Some(String::from_utf8_lossy(scalar))),
    }
}

/// Calls `on_member` with each member of an object, in order. `null` has none.
fn members<'a>(
    field: &'static str,
    object: &'a [u8],
    on_member: impl FnMut(&str, &'a RawValue) -> Result<(), Unread>,
) -> Result<(), Unread> {
    struct Members<'e, F>(F, &'e mut Option<Unread>);

    impl<'a, F: FnMut(&str, &'a RawValue) -> Result<(), Unread>> Visitor<'a> for Members<'_, F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((Text(name), value)) = map.next_entry()? {
                if let Err(unread) = (self.0)(&name, value) {
                    *self.1 = Some(unread);
                    return Err(A::Error::custom("what is wrong is kept beside"));
                }
            }
            Ok(())
        }
    }

    let json = str::from_utf8(object).map_err(|_| (field, Fault::Utf8))?;
    let mut unread = None;
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde::Deserializer::deserialize_any(&mut deserializer, Members(on_member, &mut unread))
        .and_then(|()| deserializer.end())
        .map_err(|error| unread.unwrap_or((field, fault(&error))))
}

/// Sets a field, unless the value is `null`.
fn set<'a, T: Deserialize<'a>>(place: &mut T, field: &'static str, value: &'a RawValue) -> Result<(), Unread> {
    if let Some(value) = parse(field, value)? {
        *place = value;
    }
    Ok(())
}

fn set_text<'a>(place: &mut Cow<'a, str>, field: &'static str, value: &'a RawValue) -> Result<(), Unread> {
    if let Some(Text(text)) = parse(field, value)? {
        *place = text;
    }
    Ok(())
}

fn parse<'a, T: Deserialize<'a>>(field: &'static str, value: &'a RawValue) -> Result<T, Unread> {
    serde_json::from_str(value.get()).map_err(|error| (field, fault(&error)))
}

fn fault(error: &serde_json::Error) -> Fault {
    if error.is_data() { Fault::Type } else { Fault::Syntax }
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
    fn malformed_metadata_is_an_error() {
        for (object, expected) in [
            (&br#"{"metadata":{"name":7}}"#[..], "a value of another type in metadata.name"),
            (br#"{"metadata":{"labels":{"a":null}}}"#, "a value of another type in metadata.labels"),
            (br#"{"metadata":{"finalizers":[1]}}"#, "a value of another type in metadata.finalizers"),
            (br#"{"metadata":{"creationTimestamp":"today"}}"#, "a value of another type in metadata.creationTimestamp"),
            (br#"{"metadata":[]}"#, "a value of another type in metadata"),
            (br#"{"metadata":{"name":"\ud800"}}"#, "a fault of JSON syntax in metadata.name"),
            (br#"{"metadata":{}"#, "a fault of JSON syntax in the object"),
            (br#"{"spec":tru}"#, "a fault of JSON syntax in the object"),
            (br"{} {}", "a fault of JSON syntax in the object"),
            (b"7", "a value of another type in the object"),
            (b"{\"a\":\"\xff\"}", "invalid UTF-8 in the object"),
        ] {
            let error = meta(object).unwrap_err();
            assert_eq!(error.to_string(), expected, "{}", String::from_utf8_lossy(object));
        }
    }
}
