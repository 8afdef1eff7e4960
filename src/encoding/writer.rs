//! The trait of what the encoder writes.

use crate::error::ItemError;
use crate::meta::{ListMeta, Status, TypeMeta};
use crate::wire::Encoding;

/// Writes bodies in an encoding.
///
/// A function that writes an object receives its bytes, in the encoding of the item, and `to_json`, which appends the
/// object as JSON. It returns the number of fields that were left out.
pub(crate) trait Writer {
    const DECLARES_LENGTHS: bool;

    fn converts(item: Encoding) -> bool;

    /// Returns the number of bytes of an item of this length in a list, or 0 if a list does not declare its length.
    fn item_len(len: u64) -> u64;

    /// Appends the beginning of a list, whose items take `items_len` bytes.
    fn write_list_head(kind: &WrittenKind, list_meta: &ListMeta, items_len: u64, out: &mut Vec<u8>);

    fn write_item(
        kind: &WrittenKind,
        is_first: bool,
        bytes: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError>;

    fn write_list_tail(kind: &WrittenKind, is_empty: bool, list_meta: &ListMeta, out: &mut Vec<u8>);

    fn write_object(
        kind: &WrittenKind,
        bytes: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError>;

    fn write_event(
        event: &str,
        kind: &WrittenKind,
        bytes: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError>;

    /// Appends the frame of a bookmark, whose object is `bytes` in protobuf.
    fn write_bookmark(
        kind: &WrittenKind,
        meta: &ZeroMeta<'_>,
        bytes: &[u8],
        to_json: impl FnOnce(&mut Vec<u8>) -> Result<u64, ItemError>,
        out: &mut Vec<u8>,
    );

    fn write_error(status: &Status, out: &mut Vec<u8>);

    fn write_status(status: &Status, out: &mut Vec<u8>);
}

#[derive(Clone, Debug)]
pub(crate) struct WrittenKind {
    /// The type meta of an object as it is written.
    pub(crate) type_meta: TypeMeta,
    pub(crate) list: TypeMeta,
    pub(crate) layout: Layout,
    /// True if only the metadata of the items are written.
    pub(crate) is_projected: bool,
}

impl WrittenKind {
    /// Returns true for the one list whose metadata follows its items, as field 2 instead of field 1.
    pub(crate) fn has_items_first(&self) -> bool {
        self.layout == Layout::Metadata && self.list.api_version == "meta.k8s.io/v1beta1"
    }
}

/// How the objects of a kind are laid out in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A Go struct.
    Typed,
    /// A Go struct whose items have a type meta in JSON: `PartialObjectMetadataList`.
    Metadata,
    /// A Go map: a custom resource.
    Unstructured,
}

/// The only values of a zero object.
pub(crate) struct ZeroMeta<'a> {
    pub(crate) resource_version: &'a str,
    /// Key and value.
    pub(crate) annotation: Option<(&'a str, &'a str)>,
}
