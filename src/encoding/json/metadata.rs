//! The JSON form of an object's metadata.
//!
//! Members are read as in `messages.rs`. Source of the names: `ObjectMeta` in
//! `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter;

use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimeParser;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::encoding::codec;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::json::messages::{members, set, set_text, skip, whole};
use crate::encoding::json::reader::{JsonText, Reader};
use crate::encoding::meta_parts::{ManagedFieldsEntry, OwnerReference, SingleFields, Time};
use crate::error::{Fault, ItemError};
use crate::wire::FieldFault;

/// The JSON of the metadata's times, maps and lists, or nothing. Each is parsed when it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JsonMetadata<'a> {
    creation_timestamp: &'a [u8],
    deletion_timestamp: &'a [u8],
    labels: &'a [u8],
    annotations: &'a [u8],
    owner_references: &'a [u8],
    finalizers: &'a [u8],
    managed_fields: &'a [u8],
}

/// An owner of an object. A repeated name is an error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonOwner<'a> {
    #[serde(borrow)]
    api_version: JsonText<'a>,
    kind: JsonText<'a>,
    name: JsonText<'a>,
    uid: JsonText<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

/// The fields that one manager set. A repeated name is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonManager<'a> {
    #[serde(borrow)]
    manager: JsonText<'a>,
    operation: JsonText<'a>,
    api_version: JsonText<'a>,
    time: Option<Time>,
    fields_type: JsonText<'a>,
    fields_v1: Option<&'a RawValue>,
    subresource: JsonText<'a>,
}

/// Reads the metadata of an object. Only the ends of other members are found. Texts without escapes borrow from the
/// JSON.
pub(crate) fn read<'a>(item: &ItemRef<'a>, single: &mut SingleFields<'a>) -> Result<JsonMetadata<'a>, ItemError> {
    let mut json = Reader::with_ends(item.bytes, item.ends);
    if json.peek() == Some(b'n') {
        return Err(ItemError::Metadata { field: "the object", fault: Fault::Type });
    }
    let mut unparsed = JsonMetadata::default();
    whole("the object", json, |name, json| match name {
        // A repeated `metadata` is merged into the first, as in Go.
        "metadata" => merge(single, &mut unparsed, json),
        _ => skip("the object", json),
    })
    .map_err(|(field, fault)| ItemError::Metadata { field, fault })?;
    Ok(unparsed)
}

fn merge<'a>(
    single: &mut SingleFields<'a>,
    unparsed: &mut JsonMetadata<'a>,
    json: &mut Reader<'a>,
) -> Result<(), FieldFault> {
    members("metadata", json, |name, json| match name {
        "name" => set_text(&mut single.name, "metadata.name", json),
        "generateName" => set_text(&mut single.generate_name, "metadata.generateName", json),
        "namespace" => set_text(&mut single.namespace, "metadata.namespace", json),
        "uid" => set_text(&mut single.uid, "metadata.uid", json),
        "resourceVersion" => set_text(&mut single.resource_version, "metadata.resourceVersion", json),
        "generation" => set(&mut single.generation, "metadata.generation", json),
        "creationTimestamp" => set_json(&mut unparsed.creation_timestamp, "metadata.creationTimestamp", json),
        "deletionTimestamp" => set_json(&mut unparsed.deletion_timestamp, "metadata.deletionTimestamp", json),
        "deletionGracePeriodSeconds" => {
            set(&mut single.deletion_grace_period_seconds, "metadata.deletionGracePeriodSeconds", json)
        }
        "labels" => set_json(&mut unparsed.labels, "metadata.labels", json),
        "annotations" => set_json(&mut unparsed.annotations, "metadata.annotations", json),
        "ownerReferences" => set_json(&mut unparsed.owner_references, "metadata.ownerReferences", json),
        "finalizers" => set_json(&mut unparsed.finalizers, "metadata.finalizers", json),
        "managedFields" => set_json(&mut unparsed.managed_fields, "metadata.managedFields", json),
        _ => skip("metadata", json),
    })
}

impl<'a> codec::Metadata<'a> for JsonMetadata<'a> {
    fn creation_timestamp(self) -> Result<Option<Time>, Fault> {
        time(self.creation_timestamp)
    }

    fn deletion_timestamp(self) -> Result<Option<Time>, Fault> {
        time(self.deletion_timestamp)
    }

    fn labels(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        Ok(map(self.labels)?.into_iter())
    }

    fn label(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        value_of(self.labels, key)
    }

    fn annotations(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        Ok(map(self.annotations)?.into_iter())
    }

    fn annotation(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        value_of(self.annotations, key)
    }

    fn owner_references(self) -> Result<impl Iterator<Item = OwnerReference<'a>>, Fault> {
        elements(self.owner_references, |json| {
            json.parse::<JsonOwner<'a>>()?.map(OwnerReference::from).ok_or(Fault::Type)
        })
    }

    fn finalizers(self) -> Result<impl Iterator<Item = Cow<'a, str>>, Fault> {
        elements(self.finalizers, |json| json.text()?.ok_or(Fault::Type))
    }

    fn managed_fields(self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>>, Fault> {
        elements(self.managed_fields, |json| {
            json.parse::<JsonManager<'a>>()?.map(ManagedFieldsEntry::from).ok_or(Fault::Type)
        })
    }
}

fn time(json: &[u8]) -> Result<Option<Time>, Fault> {
    if json.is_empty() { Ok(None) } else { Reader::new(json, 0).parse() }
}

fn set_json<'a>(place: &mut &'a [u8], field: &'static str, json: &mut Reader<'a>) -> Result<(), FieldFault> {
    let value = json.value().map_err(|fault| (field, fault))?;
    if value != b"null" {
        *place = value;
    }
    Ok(())
}

fn map(json: &[u8]) -> Result<BTreeMap<Cow<'_, str>, Cow<'_, str>>, Fault> {
    let mut map = BTreeMap::new();
    entries(json, |key, value| {
        map.insert(key, value);
    })?;
    Ok(map)
}

fn value_of<'a>(json: &'a [u8], key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let mut found = None;
    entries(json, |known, value| {
        if known == key {
            found = Some(value);
        }
    })?;
    Ok(found)
}

/// Reads an object whose values are strings.
fn entries<'a>(json: &'a [u8], mut on_entry: impl FnMut(Cow<'a, str>, Cow<'a, str>)) -> Result<(), Fault> {
    if json.is_empty() {
        return Ok(());
    }
    let mut json = Reader::new(json, 0);
    let mut members = json.object()?;
    while let Some(key) = members.next(&mut json)? {
        on_entry(key, json.text()?.ok_or(Fault::Type)?);
    }
    Ok(())
}

/// Checks all elements of an array, and then reads them one at a time.
///
/// An element of three bytes may become 200 bytes, so they are not all kept.
fn elements<'a, T>(
    json: &'a [u8],
    read: impl Fn(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<impl Iterator<Item = T>, Fault> {
    let json = if json.is_empty() { b"[]" } else { json };
    let mut reader = Reader::new(json, 0);
    let mut elements = reader.array()?;
    while elements.next(&mut reader)? {
        read(&mut reader)?;
    }
    let mut reader = Reader::new(json, 0);
    let mut elements = reader.array()?;
    Ok(iter::from_fn(move || if elements.next(&mut reader).ok()? { read(&mut reader).ok() } else { None }))
}

impl<'a> From<JsonOwner<'a>> for OwnerReference<'a> {
    fn from(owner: JsonOwner<'a>) -> Self {
        Self {
            api_version: owner.api_version.0,
            kind: owner.kind.0,
            name: owner.name.0,
            uid: owner.uid.0,
            controller: owner.controller.unwrap_or_default(),
            block_owner_deletion: owner.block_owner_deletion.unwrap_or_default(),
        }
    }
}

impl<'a> From<JsonManager<'a>> for ManagedFieldsEntry<'a> {
    fn from(entry: JsonManager<'a>) -> Self {
        Self {
            manager: entry.manager.0,
            operation: entry.operation.0,
            api_version: entry.api_version.0,
            time: entry.time,
            fields_type: entry.fields_type.0,
            fields_v1: entry.fields_v1.map(|fields| fields.get().as_bytes()).unwrap_or_default(),
            subresource: entry.subresource.0,
        }
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Parses RFC 3339, as Go does.
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JsonText(text) = JsonText::deserialize(deserializer)?;
        // A `jiff::Timestamp` ends 26 hours before the year 9999 does.
        let parts = DateTimeParser::new().parse_pieces(&*text).map_err(D::Error::custom)?;
        let (Some(time), Some(offset)) = (parts.time(), parts.to_numeric_offset()) else {
            return Err(D::Error::custom("expected a date, a time and an offset"));
        };
        let since = DateTime::from_parts(parts.date(), time).duration_since(EPOCH);
        Ok(Self { seconds: since.as_secs() - i64::from(offset.seconds()), nanos: since.subsec_nanos() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::codec::Metadata as _;
    use crate::wire::Encoding;

    fn read(object: &[u8]) -> Result<(SingleFields<'_>, JsonMetadata<'_>), ItemError> {
        let mut single = SingleFields::default();
        let unparsed = super::read(&ItemRef::new(Encoding::Json, object), &mut single)?;
        Ok((single, unparsed))
    }

    #[test]
    fn metadata_is_read_as_go_reads_it() {
        let object = br#"{"spec":{"metadata":{"name":"not me"}},"metadata":{
            "name":"first","name":"a\u002db","generateName":"g","namespace":"n","uid":null,"resourceVersion":"7",
            "generation":3,"creationTimestamp":"2026-11-21T10:22:37Z","deletionTimestamp":null,
            "labels":{"b":"1","a":"2","b":"3"},"annotations":{},"finalizers":["f"],"unknown":[{}],
            "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"o","uid":"u","controller":true,"more":1}],
            "managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:a":{}}}]},
            "metadata":{"namespace":"later"},"status":[[]]}"#;
        let (meta, unparsed) = read(object).unwrap();
        assert_eq!((&*meta.name, &*meta.generate_name, &*meta.namespace, &*meta.uid), ("a-b", "g", "later", ""));
        assert_eq!((&*meta.resource_version, meta.generation), ("7", 3));
        assert_eq!(unparsed.creation_timestamp(), Ok(Some(Time { seconds: 1_795_256_557, nanos: 0 })));
        assert_eq!(unparsed.deletion_timestamp(), Ok(None));
        let labels = [("a", "2"), ("b", "3")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(unparsed.labels().unwrap().collect::<Vec<_>>(), labels);
        assert_eq!(unparsed.label("b"), Ok(Some("3".into())));
        assert_eq!((unparsed.annotations().unwrap().count(), unparsed.annotation("a")), (0, Ok(None)));
        assert_eq!(unparsed.finalizers().unwrap().collect::<Vec<_>>(), ["f"]);
        assert!(matches!(meta.namespace, Cow::Borrowed(_)));
        assert!(unparsed.finalizers().unwrap().all(|finalizer| matches!(finalizer, Cow::Borrowed(_))));
        let owner = unparsed.owner_references().unwrap().next().unwrap();
        assert_eq!((&*owner.kind, owner.controller, owner.block_owner_deletion), ("Node", true, false));
        let manager = unparsed.managed_fields().unwrap().next().unwrap();
        assert_eq!((&*manager.manager, manager.fields_v1), ("m", &br#"{"f:a":{}}"#[..]));
    }

    #[test]
    fn text_that_is_not_unicode_is_read_as_go_reads_it() {
        let object = b"{\"metadata\":{\"name\":\"a\xe2\x82\",\"uid\":\"\\ud800\",\"labels\":{\"\xff\":\"\\n\xff\"},
            \"ownerReferences\":[{\"name\":\"o\xff\"}],\"managedFields\":[{\"manager\":\"m\xff\\t\"}]}}";
        let (meta, unparsed) = read(object).unwrap();
        assert_eq!((&*meta.name, &*meta.uid), ("a\u{fffd}\u{fffd}", "\u{fffd}"));
        let labels = [("\u{fffd}".into(), "\n\u{fffd}".into())];
        assert_eq!(unparsed.labels().unwrap().collect::<Vec<_>>(), labels);
        assert_eq!(unparsed.owner_references().unwrap().next().unwrap().name, "o\u{fffd}");
        assert_eq!(unparsed.managed_fields().unwrap().next().unwrap().manager, "m\u{fffd}\t");
    }

    #[test]
    fn refuses_malformed_metadata() {
        for (object, expected) in [
            (&br#"{"metadata":{"name":7}}"#[..], "a value of the wrong type in metadata.name"),
            (br#"{"metadata":[]}"#, "a value of the wrong type in metadata"),
            (br#"{"metadata":{"name":"\ud8"}}"#, "invalid JSON in metadata.name"),
            (br#"{"metadata":{}"#, "invalid JSON in the object"),
            (br#"{"spec":tru}"#, "invalid JSON in the object"),
            (br"{} {}", "invalid JSON in the object"),
            (b"7", "a value of the wrong type in the object"),
            (b" null", "a value of the wrong type in the object"),
        ] {
            let error = read(object).unwrap_err();
            assert_eq!(error.to_string(), expected, "{}", String::from_utf8_lossy(object));
        }
    }

    /// The other fields of an object with a malformed time are readable.
    #[test]
    fn parses_a_time_when_it_is_read() {
        let time = |seconds, nanos| Ok(Some(Time { seconds, nanos }));
        for (json, expected) in [
            ("null", Ok(None)),
            (r#""2026-11-21T10:22:37Z""#, time(1_795_256_557, 0)),
            (r#""2026-11-21T12:22:37.5+02:00""#, time(1_795_256_557, 500_000_000)),
            (r#""2026-11-21t10:22:37z""#, time(1_795_256_557, 0)),
            (r#""1969-12-31T23:59:58Z""#, time(-2, 0)),
            (r#""0001-01-01T00:00:00Z""#, time(-62_135_596_800, 0)),
            (r#""9999-12-31T23:59:59Z""#, time(253_402_300_799, 0)),
            (r#""9999-12-31T23:59:59-14:00""#, time(253_402_351_199, 0)),
            (r#""10000-01-01T00:00:00Z""#, Err(Fault::Type)),
            (r#""2026-11-21T10:22:37""#, Err(Fault::Type)),
            (r#""2026-11-21""#, Err(Fault::Type)),
            (r#""today""#, Err(Fault::Type)),
            (r#""""#, Err(Fault::Type)),
            ("7", Err(Fault::Type)),
        ] {
            let object =
                format!(r#"{{"metadata":{{"name":"n","creationTimestamp":{json},"deletionTimestamp":{json}}}}}"#);
            let (meta, unparsed) = read(object.as_bytes()).unwrap();
            assert_eq!(meta.name, "n");
            assert_eq!((unparsed.creation_timestamp(), unparsed.deletion_timestamp()), (expected, expected), "{json}");
        }
    }

    #[test]
    fn refuses_malformed_maps_and_lists() {
        for (metadata, expected) in [
            (&br#"{"labels":{"a":null}}"#[..], Fault::Type),
            (br#"{"labels":["a"]}"#, Fault::Type),
            (br#"{"annotations":{"a":1}}"#, Fault::Type),
            (br#"{"finalizers":["f",1]}"#, Fault::Type),
            (br#"{"finalizers":["f",null]}"#, Fault::Type),
            (br#"{"finalizers":"f"}"#, Fault::Type),
            (br#"{"finalizers":["f" "g"]}"#, Fault::Syntax),
            (br#"{"ownerReferences":[{},7]}"#, Fault::Type),
            (br#"{"ownerReferences":[{"name":7}]}"#, Fault::Type),
            (br#"{"managedFields":[null]}"#, Fault::Type),
            (br#"{"managedFields":[{"time":"today"}]}"#, Fault::Type),
        ] {
            let object = [b"{\"metadata\":", metadata, b"}"].concat();
            let (_, unparsed) = read(&object).unwrap();
            let faults = [
                unparsed.labels().err(),
                unparsed.label("x").err(),
                unparsed.annotations().err(),
                unparsed.annotation("x").err(),
                unparsed.finalizers().err(),
                unparsed.owner_references().err(),
                unparsed.managed_fields().err(),
            ];
            let faults: Vec<_> = faults.into_iter().flatten().collect();
            assert!(
                !faults.is_empty() && faults.iter().all(|fault| *fault == expected),
                "{faults:?} of {}",
                String::from_utf8_lossy(metadata)
            );
        }
    }
}
