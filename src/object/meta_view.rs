//! The metadata of an object, read off its bytes without decoding the rest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "json")]
use std::mem;

#[cfg(feature = "json")]
use super::json::{JsonManager, JsonMeta, JsonOwner};
use crate::error::{Fault, ItemError};
use crate::wire::Encoding;
#[cfg(feature = "json")]
use crate::wire::json::JsonText;
use crate::wire::protobuf::{Fields, Value, WireField};

/// The metadata of an object (`ObjectMeta`), borrowed from the object's bytes: see [`ItemRef::meta`](super::ItemRef::meta).
///
/// The accessors return data of the object, not of the view, so the view may be dropped before the data. Strings are borrowed; only
/// for a string with escapes in JSON each call returns a copy.
///
/// For protobuf, creating a view reads and checks the single fields and allocates nothing. Labels, annotations, owner references,
/// finalizers and managed fields are read on each call, and all of them are checked before the first is returned. For JSON, creating
/// a view parses all metadata. Each of the iterators allocates for the borrowed keys and values.
///
/// Absent fields are empty, 0, false or `None`. The last value of a repeated field counts, and metadata in pieces is merged.
///
/// The names and numbers of the fields are from `ObjectMeta`, `OwnerReference`, `ManagedFieldsEntry` and `Time` in
/// `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`. The deprecated `selfLink` is not read.
///
/// ```
/// use listwatch::{Encoding, ItemRef};
///
/// # let pod = b"\x0a\x03\x0a\x01n";
/// let item = ItemRef::new(Encoding::Protobuf, pod);
/// let name = item.meta()?.name();
/// assert_eq!(name, "n");
/// # Ok::<(), listwatch::ItemError>(())
/// ```
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
    collections: Collections<'a>,
}

/// The maps and lists of the metadata.
#[derive(Clone)]
enum Collections<'a> {
    /// The bytes of the object. The fields of the metadata are checked, but not the contents of maps and lists.
    Protobuf(&'a [u8]),
    #[cfg(feature = "json")]
    Json(Box<JsonMeta<'a>>),
}

impl Default for Collections<'_> {
    fn default() -> Self {
        Self::Protobuf(&[])
    }
}

impl<'a> MetaView<'a> {
    /// Reads the metadata of an object in this encoding.
    pub(crate) fn new(encoding: Encoding, object: &'a [u8]) -> Result<Self, ItemError> {
        match encoding {
            Encoding::Protobuf => Self::from_protobuf(object),
            #[cfg(feature = "json")]
            Encoding::Json => Self::from_json(object),
            #[cfg(not(feature = "json"))]
            Encoding::Json => Err(ItemError::WrongEncoding { found: encoding, expected: Encoding::Protobuf }),
        }
    }

    fn from_protobuf(object: &'a [u8]) -> Result<Self, ItemError> {
        let mut view = Self { collections: Collections::Protobuf(object), ..Self::default() };
        for field in Fields::new(object) {
            let field = field.map_err(at("the object"))?;
            if field.number == METADATA {
                view.merge(field.value.bytes().map_err(at("metadata"))?)?;
            }
        }
        Ok(view)
    }

    /// Reads all metadata. Of other values it only finds the end.
    #[cfg(feature = "json")]
    fn from_json(object: &'a [u8]) -> Result<Self, ItemError> {
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
            collections: Collections::Json(meta),
        })
    }

    /// Returns namespace, name, uid and resource version.
    #[cfg(feature = "cache")]
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

    /// Returns the name.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        self.name.clone()
    }

    /// Returns the prefix from which the server generated the name; empty if the client chose the name.
    #[must_use]
    #[inline]
    pub fn generate_name(&self) -> Cow<'a, str> {
        self.generate_name.clone()
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    #[must_use]
    #[inline]
    pub fn namespace(&self) -> Cow<'a, str> {
        self.namespace.clone()
    }

    /// Returns the uid.
    #[must_use]
    #[inline]
    pub fn uid(&self) -> Cow<'a, str> {
        self.uid.clone()
    }

    /// Returns the resource version of the object.
    #[must_use]
    #[inline]
    pub fn resource_version(&self) -> Cow<'a, str> {
        self.resource_version.clone()
    }

    /// Returns the number of changes of the desired state; 0 for kinds that do not count them.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns the time of creation. An empty time, which is Go's zero time, is `None`.
    #[must_use]
    pub fn creation_timestamp(&self) -> Option<Time> {
        self.creation_timestamp
    }

    /// Returns the time at which the object is to be deleted, if its deletion was requested.
    #[must_use]
    pub fn deletion_timestamp(&self) -> Option<Time> {
        self.deletion_timestamp
    }

    /// Returns the grace period of a requested deletion, in seconds.
    #[must_use]
    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.deletion_grace_period_seconds
    }

    /// Returns the labels, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn labels(&self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a>, ItemError> {
        match &self.collections {
            Collections::Protobuf(object) => {
                let borrowed = all(object, LABELS, entry).map_err(at("metadata.labels"))?;
                Ok(entries(borrowed, BTreeMap::new()))
            }
            #[cfg(feature = "json")]
            Collections::Json(meta) => Ok(entries(BTreeMap::new(), copied(&meta.labels))),
        }
    }

    /// Returns the value of one label. For protobuf it allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`labels`](Self::labels).
    pub fn label(&self, key: &str) -> Result<Option<Cow<'a, str>>, ItemError> {
        match &self.collections {
            Collections::Protobuf(object) => value_of(object, LABELS, key).map_err(at("metadata.labels")),
            #[cfg(feature = "json")]
            Collections::Json(meta) => Ok(meta.labels.get(key).map(|value| value.0.clone())),
        }
    }

    /// Returns the annotations, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn annotations(&self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a>, ItemError> {
        match &self.collections {
            Collections::Protobuf(object) => {
                let borrowed = all(object, ANNOTATIONS, entry).map_err(at("metadata.annotations"))?;
                Ok(entries(borrowed, BTreeMap::new()))
            }
            #[cfg(feature = "json")]
            Collections::Json(meta) => Ok(entries(BTreeMap::new(), copied(&meta.annotations))),
        }
    }

    /// Returns the value of one annotation. For protobuf it allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`annotations`](Self::annotations).
    pub fn annotation(&self, key: &str) -> Result<Option<Cow<'a, str>>, ItemError> {
        match &self.collections {
            Collections::Protobuf(object) => value_of(object, ANNOTATIONS, key).map_err(at("metadata.annotations")),
            #[cfg(feature = "json")]
            Collections::Json(meta) => Ok(meta.annotations.get(key).map(|value| value.0.clone())),
        }
    }

    /// Returns the owners of the object.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn owner_references(&self) -> Result<impl Iterator<Item = OwnerReference<'a>> + use<'a>, ItemError> {
        let owners: Vec<_> = match &self.collections {
            Collections::Protobuf(object) => {
                all(object, OWNER_REFERENCES, OwnerReference::read).map_err(at("metadata.ownerReferences"))?
            }
            #[cfg(feature = "json")]
            Collections::Json(meta) => meta.owner_references.iter().map(JsonOwner::view).collect(),
        };
        Ok(owners.into_iter())
    }

    /// Returns the finalizers, all of which must be removed before the object is deleted.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn finalizers(&self) -> Result<impl Iterator<Item = Cow<'a, str>> + use<'a>, ItemError> {
        let finalizers: Vec<_> = match &self.collections {
            Collections::Protobuf(object) => {
                all(object, FINALIZERS, |value| value.str().map(Cow::Borrowed)).map_err(at("metadata.finalizers"))?
            }
            #[cfg(feature = "json")]
            Collections::Json(meta) => meta.finalizers.iter().map(|finalizer| finalizer.0.clone()).collect(),
        };
        Ok(finalizers.into_iter())
    }

    /// Returns the fields that each manager set.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of the entries is malformed.
    pub fn managed_fields(&self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>> + use<'a>, ItemError> {
        let entries: Vec<_> = match &self.collections {
            Collections::Protobuf(object) => {
                all(object, MANAGED_FIELDS, ManagedFieldsEntry::read).map_err(at("metadata.managedFields"))?
            }
            #[cfg(feature = "json")]
            Collections::Json(meta) => meta.managed_fields.iter().map(JsonManager::view).collect(),
        };
        Ok(entries.into_iter())
    }
}

/// Shows the identity of the object, but no annotations, which may contain secrets.
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

/// A point in time: UTC, since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Additional nanoseconds. The API server itself reads and writes whole seconds.
    pub nanos: i32,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: Cow<'a, str>,
    /// Its kind.
    pub kind: Cow<'a, str>,
    /// Its name; the owner is in the same namespace, or cluster-scoped.
    pub name: Cow<'a, str>,
    /// Its uid.
    pub uid: Cow<'a, str>,
    /// True if the owner is the controller that manages the object.
    pub controller: bool,
    /// True if a foreground deletion of the owner waits until the object is deleted.
    pub block_owner_deletion: bool,
}

/// The fields of an object that one manager set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagedFieldsEntry<'a> {
    /// The name of the manager.
    pub manager: Cow<'a, str>,
    /// `Apply` or `Update`.
    pub operation: Cow<'a, str>,
    /// The API version that the fields belong to.
    pub api_version: Cow<'a, str>,
    /// The time at which the manager last set them.
    pub time: Option<Time>,
    /// The format of the fields: `FieldsV1`.
    pub fields_type: Cow<'a, str>,
    /// The fields, as JSON text.
    pub fields_v1: &'a [u8],
    /// The subresource that the manager wrote to; empty for the object itself.
    pub subresource: Cow<'a, str>,
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

/// Returns the value of a key in a map of the metadata.
fn value_of<'a>(object: &'a [u8], number: u32, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let mut found = None;
    each(object, number, |value| {
        let (known, value) = entry(value)?;
        if known == key {
            found = Some(Cow::Borrowed(value));
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

/// Reads an entry of a map, which protobuf encodes as a message of key and value.
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

/// Returns the entries of both maps; one of the two is empty. A map of `&str` is cheaper to build than a map of `Cow`.
fn entries<'a>(
    borrowed: BTreeMap<&'a str, &'a str>,
    copied: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
    borrowed.into_iter().map(|(key, value)| (key.into(), value.into())).chain(copied)
}

#[cfg(feature = "json")]
fn copied<'a>(map: &BTreeMap<JsonText<'a>, JsonText<'a>>) -> BTreeMap<Cow<'a, str>, Cow<'a, str>> {
    map.iter().map(|(key, value)| (key.0.clone(), value.0.clone())).collect()
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
            let WireField { number, value, .. } = field?;
            match number {
                1 => owner.kind = value.str()?.into(),
                3 => owner.name = value.str()?.into(),
                4 => owner.uid = value.str()?.into(),
                5 => owner.api_version = value.str()?.into(),
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
            let WireField { number, value, .. } = field?;
            match number {
                1 => entry.manager = value.str()?.into(),
                2 => entry.operation = value.str()?.into(),
                3 => entry.api_version = value.str()?.into(),
                4 => Time::merge(&mut entry.time, value)?,
                6 => entry.fields_type = value.str()?.into(),
                7 => {
                    for field in Fields::new(value.bytes()?) {
                        let field = field?;
                        if field.number == 1 {
                            entry.fields_v1 = field.value.bytes()?;
                        }
                    }
                }
                8 => entry.subresource = value.str()?.into(),
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
    fn reads_the_single_fields() {
        for (object, expected) in [
            (&b""[..], Some(["", "", "", ""])),
            (b"\x0a\x03\x0a\x01n", Some(["n", "", "", ""])),
            // All four, with generateName between them and spec after them.
            (b"\x0a\x0f\x0a\x01n\x12\x01g\x1a\x01s\x2a\x01u\x32\x01v\x12\x02??", Some(["n", "s", "u", "v"])),
            // Metadata after spec, and in two pieces.
            (b"\x12\x01?\x0a\x03\x0a\x01n\x0a\x06\x0a\x01m\x1a\x01s", Some(["m", "s", "", ""])),
            // Not UTF-8, truncated, of the wrong wire type.
            (b"\x0a\x03\x0a\x01\xff", None),
            (b"\x0a\x03\x0a\x02n", None),
            (b"\x0a\x05\x0a\x01n", None),
            (b"\x08\x05", None),
            (b"\x0a\x02\x08\x01", None),
        ] {
            let view = MetaView::new(Encoding::Protobuf, object).ok();
            let four = view.as_ref().map(|view| [view.name(), view.namespace(), view.uid(), view.resource_version()]);
            assert_eq!(four, expected.map(|four| four.map(Cow::Borrowed)), "{object:x?}");
        }
    }

    /// Tests labels; the same code reads annotations.
    #[test]
    fn returns_each_key_once_with_its_last_value() {
        for (metadata, expected) in [
            (&[&b""[..]][..], &[][..]),
            (&[b"\x5a\x06\x0a\x01a\x12\x011\x5a\x06\x0a\x01b\x12\x012"], &[("a", "1"), ("b", "2")]),
            // Without key, without value, the value first, and twice.
            (&[b"\x5a\x03\x12\x011\x5a\x03\x0a\x01b"], &[("", "1"), ("b", "")]),
            (&[b"\x5a\x09\x12\x011\x0a\x01b\x12\x012"], &[("b", "2")]),
            // Not sorted, and a key twice, also with metadata in pieces.
            (&[b"\x5a\x06\x0a\x01b\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1"), ("b", "2")]),
            (&[b"\x5a\x06\x0a\x01a\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1")]),
            (&[b"\x5a\x06\x0a\x01b\x12\x012", b"\x0a\x01n", b"\x5a\x06\x0a\x01b\x12\x011"], &[("b", "1")]),
        ] {
            let object = metadata.iter().flat_map(|piece| len_field(METADATA, piece)).collect::<Vec<_>>();
            let view = MetaView::new(Encoding::Protobuf, &object).unwrap();
            let expected =
                expected.iter().map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value))).collect::<Vec<_>>();
            assert_eq!(view.labels().unwrap().collect::<Vec<_>>(), expected, "{metadata:x?}");
            for (key, value) in expected {
                assert_eq!(view.label(&key).unwrap(), Some(value));
            }
            assert_eq!(view.label("c").unwrap(), None);
            assert_eq!(view.annotations().unwrap().count(), 0);
        }
    }

    #[test]
    fn refuses_malformed_fields() {
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
        let view = MetaView::new(Encoding::Protobuf, object)?;
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
