//! The metadata of an object, read off its bytes without decoding the rest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "json")]
use std::mem;

#[cfg(feature = "json")]
use super::json::{JsonManager, JsonMeta, JsonOwner};
use crate::error::{Fault, ItemError};
use crate::wire::protobuf::{Field, Fields, Value};

/// The metadata of an object (`ObjectMeta`), borrowed from its bytes.
///
/// Of protobuf [`new`](Self::new) reads and checks what there is one of, and allocates nothing. Labels and whatever else
/// there may be many of are read when they are asked for, and checked all together before the first is lent. JSON has to
/// be parsed to its end, so that all of it is read at once; what has escapes in it is a copy. To ask for what there may be
/// many of costs a small allocation for the borrowed keys and values.
///
/// What is absent is empty, 0, false or `None`. A field that comes twice counts as last seen, metadata in pieces are
/// merged.
///
/// The names and numbers of the fields are those of `ObjectMeta`, `OwnerReference`, `ManagedFieldsEntry` and `Time` in
/// `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`. The deprecated `selfLink` is not read.
#[derive(Clone, Default)]
pub struct MetaView<'a> {
    name: Cow<'a, str>,
    generate_name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    uid: Cow<'a, str>,
    resource_version: Cow<'a, str>,
    generation: i64,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    many: Many<'a>,
}

/// What there may be many of.
#[derive(Clone)]
enum Many<'a> {
    /// In the bytes of the object, checked down to the fields of the metadata, but not inside these.
    Protobuf(&'a [u8]),
    #[cfg(feature = "json")]
    Json(Box<JsonMeta<'a>>),
}

impl Default for Many<'_> {
    fn default() -> Self {
        Self::Protobuf(&[])
    }
}

impl<'a> MetaView<'a> {
    /// Reads it off the protobuf bytes of an object.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the bytes are no protobuf, down to the fields of the metadata, or when one that is read
    /// here is of the wrong wire type or not UTF-8.
    pub fn new(object: &'a [u8]) -> Result<Self, ItemError> {
        let mut view = Self { many: Many::Protobuf(object), ..Self::default() };
        for field in Fields::new(object) {
            let field = field.map_err(at("the object"))?;
            if field.number == METADATA {
                view.merge(field.value.bytes().map_err(at("metadata"))?)?;
            }
        }
        Ok(view)
    }

    /// Reads it off the JSON of an object. Values that are not metadata are checked only for where they end.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the object or its metadata is malformed, or a field of the metadata has another type
    /// than it should have.
    #[cfg(feature = "json")]
    pub fn from_json(object: &'a [u8]) -> Result<Self, ItemError> {
        let mut meta = Box::new(super::json::meta(object)?);
        Ok(Self {
            name: mem::take(&mut meta.name),
            generate_name: mem::take(&mut meta.generate_name),
            namespace: mem::take(&mut meta.namespace),
            uid: mem::take(&mut meta.uid),
            resource_version: mem::take(&mut meta.resource_version),
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            many: Many::Json(meta),
        })
    }

    #[cfg(feature = "cache")]
    /// Returns namespace, name, uid and resource version.
    pub(crate) fn into_identity(self) -> [Cow<'a, str>; 4] {
        [self.namespace, self.name, self.uid, self.resource_version]
    }

    fn merge(&mut self, metadata: &'a [u8]) -> Result<(), ItemError> {
        for field in Fields::new(metadata) {
            let field = field.map_err(at("metadata"))?;
            let value = field.value;
            match field.number {
                1 => self.name = value.str().map_err(at("metadata.name"))?.into(),
                2 => self.generate_name = value.str().map_err(at("metadata.generateName"))?.into(),
                3 => self.namespace = value.str().map_err(at("metadata.namespace"))?.into(),
                5 => self.uid = value.str().map_err(at("metadata.uid"))?.into(),
                6 => self.resource_version = value.str().map_err(at("metadata.resourceVersion"))?.into(),
                7 => self.generation = value.int().map_err(at("metadata.generation"))?,
                8 => Time::merge(&mut self.creation_timestamp, value).map_err(at("metadata.creationTimestamp"))?,
                9 => Time::merge(&mut self.deletion_timestamp, value).map_err(at("metadata.deletionTimestamp"))?,
                10 => {
                    let seconds = value.int().map_err(at("metadata.deletionGracePeriodSeconds"))?;
                    self.deletion_grace_period_seconds = Some(seconds);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the name was made from, if the server made it.
    #[must_use]
    pub fn generate_name(&self) -> &str {
        &self.generate_name
    }

    /// The namespace; empty for an object without one.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The version of the object.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// How often the desired state was changed; 0 for kinds that do not count it.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// When the object was created. A time without any bytes, as which Go writes its zero time, is none.
    #[must_use]
    pub fn creation_timestamp(&self) -> Option<Time> {
        self.creation_timestamp
    }

    /// When the object goes, if its deletion was asked for.
    #[must_use]
    pub fn deletion_timestamp(&self) -> Option<Time> {
        self.deletion_timestamp
    }

    /// How many seconds an object whose deletion was asked for is given to end.
    #[must_use]
    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.deletion_grace_period_seconds
    }

    /// The labels, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn labels(&self) -> Result<impl Iterator<Item = (&str, &str)>, ItemError> {
        let labels: BTreeMap<_, _> = match &self.many {
            Many::Protobuf(object) => all(object, LABELS, entry).map_err(at("metadata.labels"))?,
            #[cfg(feature = "json")]
            Many::Json(meta) => meta.labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect(),
        };
        Ok(labels.into_iter())
    }

    /// The value of one label. It allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`labels`](Self::labels).
    pub fn label(&self, key: &str) -> Result<Option<&str>, ItemError> {
        match &self.many {
            Many::Protobuf(object) => value_of(object, LABELS, key).map_err(at("metadata.labels")),
            #[cfg(feature = "json")]
            Many::Json(meta) => Ok(meta.labels.get(key).map(AsRef::as_ref)),
        }
    }

    /// The annotations, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn annotations(&self) -> Result<impl Iterator<Item = (&str, &str)>, ItemError> {
        let annotations: BTreeMap<_, _> = match &self.many {
            Many::Protobuf(object) => all(object, ANNOTATIONS, entry).map_err(at("metadata.annotations"))?,
            #[cfg(feature = "json")]
            Many::Json(meta) => meta.annotations.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect(),
        };
        Ok(annotations.into_iter())
    }

    /// The value of one annotation. It allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`annotations`](Self::annotations).
    pub fn annotation(&self, key: &str) -> Result<Option<&str>, ItemError> {
        match &self.many {
            Many::Protobuf(object) => value_of(object, ANNOTATIONS, key).map_err(at("metadata.annotations")),
            #[cfg(feature = "json")]
            Many::Json(meta) => Ok(meta.annotations.get(key).map(AsRef::as_ref)),
        }
    }

    /// The objects that this one belongs to.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn owner_references(&self) -> Result<impl Iterator<Item = OwnerReference<'_>>, ItemError> {
        let owners: Vec<_> = match &self.many {
            Many::Protobuf(object) => {
                all(object, OWNER_REFERENCES, OwnerReference::read).map_err(at("metadata.ownerReferences"))?
            }
            #[cfg(feature = "json")]
            Many::Json(meta) => meta.owner_references.iter().map(JsonOwner::view).collect(),
        };
        Ok(owners.into_iter())
    }

    /// What must be done and struck off before the object goes.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn finalizers(&self) -> Result<impl Iterator<Item = &str>, ItemError> {
        let finalizers: Vec<_> = match &self.many {
            Many::Protobuf(object) => all(object, FINALIZERS, Value::str).map_err(at("metadata.finalizers"))?,
            #[cfg(feature = "json")]
            Many::Json(meta) => meta.finalizers.iter().map(AsRef::as_ref).collect(),
        };
        Ok(finalizers.into_iter())
    }

    /// Who set which fields.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of the entries is malformed.
    pub fn managed_fields(&self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'_>>, ItemError> {
        let entries: Vec<_> = match &self.many {
            Many::Protobuf(object) => {
                all(object, MANAGED_FIELDS, ManagedFieldsEntry::read).map_err(at("metadata.managedFields"))?
            }
            #[cfg(feature = "json")]
            Many::Json(meta) => meta.managed_fields.iter().map(JsonManager::view).collect(),
        };
        Ok(entries.into_iter())
    }
}

/// Says which object it is, not what is in it: annotations may hold a Secret.
impl fmt::Debug for MetaView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaView")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("uid", &self.uid)
            .field("resource_version", &self.resource_version)
            .finish_non_exhaustive()
    }
}

/// A point in time, as Kubernetes has it: UTC, since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds on top. The API server itself reads and writes whole seconds.
    pub nanos: i32,
}

/// An object that another one belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name; it is in the same namespace, or in none.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Whether it is the one that manages the object.
    pub controller: bool,
    /// Whether it stays until the object is gone, when it is deleted in the foreground.
    pub block_owner_deletion: bool,
}

/// Which fields of an object somebody set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedFieldsEntry<'a> {
    /// Who.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// The version of the resource that the fields are those of.
    pub api_version: &'a str,
    /// When.
    pub time: Option<Time>,
    /// How the fields are written: `FieldsV1`.
    pub fields_type: &'a str,
    /// The fields, as JSON text.
    pub fields_v1: &'a [u8],
    /// Through which subresource; empty for the object itself.
    pub subresource: &'a str,
}

const METADATA: u32 = 1;
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
const OWNER_REFERENCES: u32 = 13;
const FINALIZERS: u32 = 14;
const MANAGED_FIELDS: u32 = 17;

fn all<'a, C: Default + Extend<T>, T>(
    object: &'a [u8],
    number: u32,
    read: impl Fn(Value<'a>) -> Result<T, Fault>,
) -> Result<C, Fault> {
    let mut all = C::default();
    each(object, number, |value| {
        all.extend([read(value)?]);
        Ok(())
    })?;
    Ok(all)
}

/// The value of a key of a map.
fn value_of<'a>(object: &'a [u8], number: u32, key: &str) -> Result<Option<&'a str>, Fault> {
    let mut found = None;
    each(object, number, |value| {
        let (known, value) = entry(value)?;
        if known == key {
            found = Some(value);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads all values of a field of the metadata.
fn each<'a>(object: &'a [u8], number: u32, mut read: impl FnMut(Value<'a>) -> Result<(), Fault>) -> Result<(), Fault> {
    for piece in Fields::new(object) {
        let piece = piece?;
        if piece.number == METADATA {
            for field in Fields::new(piece.value.bytes()?) {
                let field = field?;
                if field.number == number {
                    read(field.value)?;
                }
            }
        }
    }
    Ok(())
}

/// Protobuf has a map as messages of key and value.
#[inline]
pub(crate) fn entry(value: Value<'_>) -> Result<(&str, &str), Fault> {
    let mut entry = ("", "");
    for field in Fields::new(value.bytes()?) {
        let field = field?;
        match field.number {
            1 => entry.0 = field.value.str()?,
            2 => entry.1 = field.value.str()?,
            _ => {}
        }
    }
    Ok(entry)
}

impl Time {
    fn merge(time: &mut Option<Self>, value: Value<'_>) -> Result<(), Fault> {
        for field in Fields::new(value.bytes()?) {
            let field = field?;
            match field.number {
                1 => time.get_or_insert_default().seconds = field.value.int()?,
                2 => time.get_or_insert_default().nanos = int32(field.value)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// An int32 is written as an int64, and read by its lower half.
#[expect(clippy::cast_possible_truncation)]
fn int32(value: Value<'_>) -> Result<i32, Fault> {
    Ok(value.int()? as i32)
}

impl<'a> OwnerReference<'a> {
    fn read(value: Value<'a>) -> Result<Self, Fault> {
        let mut owner = Self::default();
        for field in Fields::new(value.bytes()?) {
            let Field { number, value, .. } = field?;
            match number {
                1 => owner.kind = value.str()?,
                3 => owner.name = value.str()?,
                4 => owner.uid = value.str()?,
                5 => owner.api_version = value.str()?,
                6 => owner.controller = value.int()? != 0,
                7 => owner.block_owner_deletion = value.int()? != 0,
                _ => {}
            }
        }
        Ok(owner)
    }
}

impl<'a> ManagedFieldsEntry<'a> {
    fn read(value: Value<'a>) -> Result<Self, Fault> {
        let mut entry = Self::default();
        for field in Fields::new(value.bytes()?) {
            let Field { number, value, .. } = field?;
            match number {
                1 => entry.manager = value.str()?,
                2 => entry.operation = value.str()?,
                3 => entry.api_version = value.str()?,
                4 => Time::merge(&mut entry.time, value)?,
                6 => entry.fields_type = value.str()?,
                7 => {
                    for field in Fields::new(value.bytes()?) {
                        let field = field?;
                        if field.number == 1 {
                            entry.fields_v1 = field.value.bytes()?;
                        }
                    }
                }
                8 => entry.subresource = value.str()?,
                _ => {}
            }
        }
        Ok(entry)
    }
}

fn at(field: &'static str) -> impl Fn(Fault) -> ItemError {
    move |fault| ItemError::Metadata { field, fault }
}

#[cfg(test)]
mod tests {
    use prost::encoding::{WireType, encode_key};

    use super::*;

    #[test]
    fn reads_what_is_there() {
        for (object, expected) in [
            (&b""[..], Some(["", "", "", ""])),
            (b"\x0a\x03\x0a\x01n", Some(["n", "", "", ""])),
            // All four, with generateName between them and spec behind.
            (b"\x0a\x0f\x0a\x01n\x12\x01g\x1a\x01s\x2a\x01u\x32\x01v\x12\x02??", Some(["n", "s", "u", "v"])),
            // Metadata behind spec, and in two pieces.
            (b"\x12\x01?\x0a\x03\x0a\x01n\x0a\x06\x0a\x01m\x1a\x01s", Some(["m", "s", "", ""])),
            // Not UTF-8, cut, of the wrong wire type.
            (b"\x0a\x03\x0a\x01\xff", None),
            (b"\x0a\x03\x0a\x02n", None),
            (b"\x0a\x05\x0a\x01n", None),
            (b"\x08\x05", None),
            (b"\x0a\x02\x08\x01", None),
        ] {
            let view = MetaView::new(object).ok();
            let four = view.as_ref().map(|view| [view.name(), view.namespace(), view.uid(), view.resource_version()]);
            assert_eq!(four, expected, "{object:x?}");
        }
    }

    /// Labels, which annotations are read like.
    #[test]
    fn each_key_comes_once_with_its_last_value() {
        for (metadata, expected) in [
            (&[&b""[..]][..], &[][..]),
            (&[b"\x5a\x06\x0a\x01a\x12\x011\x5a\x06\x0a\x01b\x12\x012"], &[("a", "1"), ("b", "2")]),
            // Without key, without value, the value first, and twice.
            (&[b"\x5a\x03\x12\x011\x5a\x03\x0a\x01b"], &[("", "1"), ("b", "")]),
            (&[b"\x5a\x09\x12\x011\x0a\x01b\x12\x012"], &[("b", "2")]),
            // Not sorted, and a key twice, also where metadata comes in pieces.
            (&[b"\x5a\x06\x0a\x01b\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1"), ("b", "2")]),
            (&[b"\x5a\x06\x0a\x01a\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1")]),
            (&[b"\x5a\x06\x0a\x01b\x12\x012", b"\x0a\x01n", b"\x5a\x06\x0a\x01b\x12\x011"], &[("b", "1")]),
        ] {
            let object = metadata.iter().flat_map(|piece| len_field(METADATA, piece)).collect::<Vec<_>>();
            let view = MetaView::new(&object).unwrap();
            assert_eq!(view.labels().unwrap().collect::<Vec<_>>(), expected, "{metadata:x?}");
            for (key, value) in expected {
                assert_eq!(view.label(key).unwrap(), Some(*value));
            }
            assert_eq!(view.label("c").unwrap(), None);
            assert_eq!(view.annotations().unwrap().count(), 0);
        }
    }

    #[test]
    fn nothing_malformed_is_lent() {
        let text: &[(&[u8], Fault)] = &[(b"\xff", Fault::Utf8)];
        let message: &[(&[u8], Fault)] = &[(b"\x0a", Fault::PastParent), (b"\x0d1234", Fault::WireType)];
        for (number, name, broken) in [
            (1, "metadata.name", text),
            (2, "metadata.generateName", text),
            (3, "metadata.namespace", text),
            (5, "metadata.uid", text),
            (6, "metadata.resourceVersion", text),
            (7, "metadata.generation", &[]),
            (8, "metadata.creationTimestamp", message),
            (9, "metadata.deletionTimestamp", message),
            (10, "metadata.deletionGracePeriodSeconds", &[]),
            (LABELS, "metadata.labels", message),
            (LABELS, "metadata.labels", &[(b"\x12\x01\xff", Fault::Utf8)]),
            (ANNOTATIONS, "metadata.annotations", message),
            (OWNER_REFERENCES, "metadata.ownerReferences", message),
            (FINALIZERS, "metadata.finalizers", text),
            (MANAGED_FIELDS, "metadata.managedFields", message),
            (MANAGED_FIELDS, "metadata.managedFields", &[(b"\x3a\x01\x08", Fault::PastParent)]),
        ] {
            let fixed32 = (field(number, WireType::ThirtyTwoBit, b"1234"), Fault::WireType);
            let broken = broken.iter().map(|(value, fault)| (len_field(number, value), *fault));
            for (metadata, fault) in broken.chain([fixed32]) {
                let error = read_all(&len_field(METADATA, &metadata)).expect_err(name);
                assert_eq!(error.to_string(), format!("{fault} in {name}"), "{metadata:x?}");
            }
        }
    }

    fn read_all(object: &[u8]) -> Result<(), ItemError> {
        let view = MetaView::new(object)?;
        drop(view.labels()?);
        drop(view.annotations()?);
        drop(view.owner_references()?);
        drop(view.finalizers()?);
        drop(view.managed_fields()?);
        view.label("x")?;
        view.annotation("x")?;
        Ok(())
    }

    fn len_field(number: u32, value: &[u8]) -> Vec<u8> {
        let len = u8::try_from(value.len()).unwrap();
        field(number, WireType::LengthDelimited, &[&[len], value].concat())
    }

    fn field(number: u32, wire_type: WireType, value: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        encode_key(number, wire_type, &mut field);
        field.extend_from_slice(value);
        field
    }
}
