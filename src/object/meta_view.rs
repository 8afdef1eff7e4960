//! The metadata of an object, read without decoding the rest.

use std::borrow::Cow;
use std::fmt;

use crate::encoding::codec::Metadata as _;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::meta_parts::{ManagedFieldsEntry, OwnerReference, SingleFields, Time};
use crate::encoding::{AnyMetadata, map_codec};
use crate::error::{Fault, ItemError};

/// The metadata of an object (`ObjectMeta`), borrowed from its bytes: see [`ItemRef::meta`](super::ItemRef::meta).
///
/// The accessors return data of the object rather than of the view, so you may drop the view first. Strings are
/// borrowed, but for a string with escapes in JSON, or one that is not UTF-8, each call returns a copy. As in Go and
/// kubectl, each byte that is not UTF-8 becomes U+FFFD.
///
/// Creating a view reads and checks the single fields, and allocates only for strings with escapes in JSON. Labels,
/// annotations, owner references, finalizers, managed fields and the times of JSON are read on each call. Lists and
/// maps are checked completely before the first element is returned. Labels and annotations are sorted in a map of
/// borrowed strings, and the others are read one element at a time.
///
/// Absent fields are empty, 0, false or `None`. The last value of a repeated field counts, and metadata in pieces is
/// merged. The deprecated `selfLink` is not read.
///
/// Source: `ObjectMeta`, `OwnerReference`, `ManagedFieldsEntry` and `Time` in
/// `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`.
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
    single: SingleFields<'a>,
    rest: AnyMetadata<'a>,
}

impl<'a> MetaView<'a> {
    pub(super) fn of(item: &ItemRef<'a>) -> Result<Self, ItemError> {
        let mut single = SingleFields::default();
        let rest = map_codec!(item.encoding, C => C::metadata(item, &mut single)?);
        Ok(Self { single, rest })
    }

    /// Returns namespace, name, uid and resource version.
    #[doc(hidden)]
    #[must_use]
    pub fn into_identity(self) -> [Cow<'a, str>; 4] {
        let SingleFields { namespace, name, uid, resource_version, .. } = self.single;
        [namespace, name, uid, resource_version]
    }

    /// Returns the name.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        self.single.name.clone()
    }

    /// Returns the prefix from which the server generated the name; empty if the client chose the name.
    #[must_use]
    #[inline]
    pub fn generate_name(&self) -> Cow<'a, str> {
        self.single.generate_name.clone()
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    #[must_use]
    #[inline]
    pub fn namespace(&self) -> Cow<'a, str> {
        self.single.namespace.clone()
    }

    /// Returns the uid.
    #[must_use]
    #[inline]
    pub fn uid(&self) -> Cow<'a, str> {
        self.single.uid.clone()
    }

    /// Returns the resource version of the object.
    #[must_use]
    #[inline]
    pub fn resource_version(&self) -> Cow<'a, str> {
        self.single.resource_version.clone()
    }

    /// Returns how often the desired state has changed; 0 for kinds that do not count this.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.single.generation
    }

    /// Returns the time of creation; `None` if it is empty, which is Go's zero time.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the object is in JSON and the value is neither a time of RFC 3339 nor `null`.
    pub fn creation_timestamp(&self) -> Result<Option<Time>, ItemError> {
        self.rest.creation_timestamp().map_err(at("metadata.creationTimestamp"))
    }

    /// Returns the time at which the object is to be deleted, if somebody requested its deletion.
    ///
    /// # Errors
    ///
    /// The same as [`creation_timestamp`](Self::creation_timestamp).
    pub fn deletion_timestamp(&self) -> Result<Option<Time>, ItemError> {
        self.rest.deletion_timestamp().map_err(at("metadata.deletionTimestamp"))
    }

    /// Returns the grace period of the requested deletion, in seconds.
    #[must_use]
    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.single.deletion_grace_period_seconds
    }

    /// Returns the labels, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn labels(&self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a>, ItemError> {
        self.rest.labels().map_err(at("metadata.labels"))
    }

    /// Returns the value of a label. This allocates nothing for protobuf.
    ///
    /// # Errors
    ///
    /// The same as [`labels`](Self::labels).
    pub fn label(&self, key: &str) -> Result<Option<Cow<'a, str>>, ItemError> {
        self.rest.label(key).map_err(at("metadata.labels"))
    }

    /// Returns the annotations, sorted by key.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn annotations(&self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a>, ItemError> {
        self.rest.annotations().map_err(at("metadata.annotations"))
    }

    /// Returns the value of an annotation. This allocates nothing for protobuf.
    ///
    /// # Errors
    ///
    /// The same as [`annotations`](Self::annotations).
    pub fn annotation(&self, key: &str) -> Result<Option<Cow<'a, str>>, ItemError> {
        self.rest.annotation(key).map_err(at("metadata.annotations"))
    }

    /// Returns the owners of the object.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn owner_references(&self) -> Result<impl Iterator<Item = OwnerReference<'a>> + use<'a>, ItemError> {
        self.rest.owner_references().map_err(at("metadata.ownerReferences"))
    }

    /// Returns the finalizers. The object is deleted only once all of them were removed.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of them is malformed.
    pub fn finalizers(&self) -> Result<impl Iterator<Item = Cow<'a, str>> + use<'a>, ItemError> {
        self.rest.finalizers().map_err(at("metadata.finalizers"))
    }

    /// Returns the fields that each manager set.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when one of the entries is malformed.
    pub fn managed_fields(&self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>> + use<'a>, ItemError> {
        self.rest.managed_fields().map_err(at("metadata.managedFields"))
    }
}

/// Shows the identity of the object, but no annotations, which may contain secrets.
impl fmt::Debug for MetaView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaView")
            .field("name", &self.single.name)
            .field("namespace", &self.single.namespace)
            .field("uid", &self.single.uid)
            .field("resource_version", &self.single.resource_version)
            .finish_non_exhaustive()
    }
}

fn at(field: &'static str) -> impl Fn(Fault) -> ItemError {
    move |fault| ItemError::Metadata { field, fault }
}

#[cfg(test)]
mod tests {
    use prost::encoding::{WireType, encode_key};

    use super::*;
    use crate::wire::Encoding;

    const METADATA: u32 = 1;
    const LABELS: u32 = 11;
    const ANNOTATIONS: u32 = 12;
    const OWNER_REFERENCES: u32 = 13;
    const FINALIZERS: u32 = 14;
    const MANAGED_FIELDS: u32 = 17;

    #[test]
    fn reads_the_single_fields() {
        for (object, expected) in [
            (&b""[..], Some(["", "", "", ""])),
            (b"\x0a\x03\x0a\x01n", Some(["n", "", "", ""])),
            // All four, with generateName between them and spec after them.
            (b"\x0a\x0f\x0a\x01n\x12\x01g\x1a\x01s\x2a\x01u\x32\x01v\x12\x02??", Some(["n", "s", "u", "v"])),
            // Metadata after spec, and in two pieces.
            (b"\x12\x01?\x0a\x03\x0a\x01n\x0a\x06\x0a\x01m\x1a\x01s", Some(["m", "s", "", ""])),
            // Cut within a character.
            (b"\x0a\x05\x0a\x03a\xe2\x82", Some(["a\u{fffd}\u{fffd}", "", "", ""])),
            // Truncated, of the wrong wire type.
            (b"\x0a\x03\x0a\x02n", None),
            (b"\x0a\x05\x0a\x01n", None),
            (b"\x08\x05", None),
            (b"\x0a\x02\x08\x01", None),
        ] {
            let view = ItemRef::new(Encoding::Protobuf, object).meta().ok();
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
            // Cut within a character.
            (&[b"\x5a\x08\x0a\x01b\x12\x03\xf0\x9f\x98"], &[("b", "\u{fffd}\u{fffd}\u{fffd}")]),
            // Not sorted, and a key twice, also with metadata in pieces.
            (&[b"\x5a\x06\x0a\x01b\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1"), ("b", "2")]),
            (&[b"\x5a\x06\x0a\x01a\x12\x012\x5a\x06\x0a\x01a\x12\x011"], &[("a", "1")]),
            (&[b"\x5a\x06\x0a\x01b\x12\x012", b"\x0a\x01n", b"\x5a\x06\x0a\x01b\x12\x011"], &[("b", "1")]),
        ] {
            let object = metadata.iter().flat_map(|piece| len_field(METADATA, piece)).collect::<Vec<_>>();
            let view = ItemRef::new(Encoding::Protobuf, &object).meta().unwrap();
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
        let text: &[(&[u8], Fault)] = &[];
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
        let view = ItemRef::new(Encoding::Protobuf, object).meta()?;
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
