//! The traits that the folder of each encoding implements.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::body_state::{BodyState, FoundEvent};
use super::frame::{FoundFrame, Frame};
use super::item_ref::ItemRef;
use super::meta_parts::{ManagedFieldsEntry, OwnerReference, SingleFields, Time};
use super::paths::{ProjectionRules, Steps};
use super::value::Place;
use super::writer::Layout;
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError};
use crate::meta::{Status, TypeMeta};
use crate::wire::FieldFault;

pub(crate) trait Codec {
    /// The bytes at the beginning of a body, before its own state machine takes over.
    const MAGIC: &'static [u8];

    /// An object without any fields.
    const EMPTY: &'static [u8];

    type List: ListBody;

    type Watch: WatchBody;

    type Metadata<'a>: Metadata<'a>;

    type Values<'a, 'p>: Values<'a>;

    fn list(list: BodyState) -> Self::List;

    fn watch() -> Self::Watch;

    /// Reads the encoded type meta of a frame, if it has one, into the frame's texts.
    fn merge_type_meta(frame: &mut Frame<'_>) -> Result<(), FieldFault>;

    /// Returns the type meta and the bytes of the object that is the whole body.
    fn document(body: &[u8]) -> Result<(TypeMeta, &[u8]), DecodeErrorKind>;

    fn status(bytes: &[u8]) -> Option<Status>;

    /// Returns the object's own `apiVersion` and `kind`, or `None` if objects in this encoding have none.
    fn own_type_meta(item: &ItemRef<'_>) -> Result<Option<TypeMeta>, FieldFault>;

    /// Reads the metadata of an object. The single fields go into `single`, which is empty.
    fn metadata<'a>(item: &ItemRef<'a>, single: &mut SingleFields<'a>) -> Result<Self::Metadata<'a>, ItemError>;

    /// Returns true if a path can be followed in this encoding, or leads nowhere at all.
    fn can_follow(path: Steps<'_>) -> bool;

    /// Walks to all values at the end of a path, in their order. An error is the last value.
    fn values<'a, 'p>(item: &ItemRef<'a>, path: Steps<'p>) -> Self::Values<'a, 'p>;

    /// Appends the copy of an object, reduced by these rules.
    fn project(item: &ItemRef<'_>, rules: ProjectionRules<'_>, copy: &mut Vec<u8>) -> Result<(), Fault>;

    /// Decodes an object into a new message of prost. Fails if the object may take too much memory, or if only serde
    /// decodes this encoding.
    fn merge<M: prost::Message + Default>(message: &mut M, item: &ItemRef<'_>) -> Result<(), ItemError>;

    /// Decodes an object by serde. Fails if the object may take too much memory, or if only prost decodes this
    /// encoding.
    fn deserialize<T: DeserializeOwned>(item: &ItemRef<'_>) -> Result<T, ItemError>;

    /// Returns the object as a message of protobuf, whose fields a view can read.
    fn message<'a>(item: &ItemRef<'a>) -> Result<&'a [u8], ItemError>;

    fn json<'a>(item: &ItemRef<'a>) -> Option<&'a [u8]>;

    /// Returns the place of the whole object, whose members can be read as those of its JSON form.
    fn json_form(item: &ItemRef<'_>) -> Result<Place, ItemError>;

    /// Appends the object as JSON on one line, and returns the number of unknown fields that the line lacks.
    fn to_json(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError>;

    /// Returns true if the line of [`to_json`](Self::to_json) lacks an unknown field.
    fn has_unknown_fields(item: &ItemRef<'_>) -> Result<bool, ItemError>;

    /// Appends the object as an item of a list in JSON.
    fn to_list_item(item: &ItemRef<'_>, layout: Layout, out: &mut Vec<u8>) -> Result<u64, ItemError>;

    /// Appends the metadata of the object as a `PartialObjectMetadata` in JSON.
    fn to_partial_metadata(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError>;

    /// Returns the object with its metadata only.
    ///
    /// Returns it unchanged if [`to_partial_metadata`](Self::to_partial_metadata) leaves out the rest.
    fn metadata_only(object: &[u8]) -> Result<Cow<'_, [u8]>, FieldFault>;

    /// Returns the object with this resource version in its metadata, and with all other bytes unchanged.
    fn with_version(object: &[u8], version: &str) -> Result<Vec<u8>, FieldFault>;
}

/// The times, maps and lists of an object's metadata. Each is read only when it is needed.
pub(crate) trait Metadata<'a>: Copy {
    fn creation_timestamp(self) -> Result<Option<Time>, Fault>;

    fn deletion_timestamp(self) -> Result<Option<Time>, Fault>;

    /// Sorted by key.
    fn labels(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault>;

    fn label(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault>;

    /// Sorted by key.
    fn annotations(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault>;

    fn annotation(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault>;

    fn owner_references(self) -> Result<impl Iterator<Item = OwnerReference<'a>>, Fault>;

    fn finalizers(self) -> Result<impl Iterator<Item = Cow<'a, str>>, Fault>;

    fn managed_fields(self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>>, Fault>;
}

pub(crate) trait Values<'a> {
    type Value: Value<'a>;

    fn next(&mut self) -> Option<Result<Self::Value, Fault>>;
}

pub(crate) trait Value<'a>: Copy {
    fn to_str(self) -> Result<Cow<'a, str>, Fault>;

    /// Returns the bytes of a string, a bytes field or a message. In a text format, this is the text of the value.
    fn to_bytes(self) -> Result<&'a [u8], Fault>;

    /// Returns an integer, or 0 or 1 for a boolean.
    fn to_int(self) -> Result<i64, Fault>;

    /// Returns the text of a string, an integer or a boolean, as a field selector compares it.
    fn to_text(self, is_bool: bool) -> Result<Cow<'a, str>, Fault>;
}

pub(crate) trait ListBody {
    /// Consumes bytes from the front of the input up to the next event, or all of them if there is none.
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError>;

    /// Returns true if the body may end here.
    fn is_complete(&self) -> bool;

    /// Returns the index of the item in which the input so far ends.
    fn unfinished_item(&self) -> Option<u64>;

    /// Returns the offset at which the list's fields end, if the body has declared it.
    fn expected_bytes(&self) -> Option<u64>;

    fn list(&self) -> &BodyState;

    fn list_mut(&mut self) -> &mut BodyState;
}

/// The state machine that finds the frames of a watch, and reads them.
pub(crate) trait WatchBody {
    /// Advances by one state. `input` is not empty.
    fn step<'i>(
        &mut self,
        watch: &mut BodyState,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind>;

    /// Returns true if the body may end here.
    fn is_between_frames(&self) -> bool;

    /// Reads the frame that was found last into `frame`, which is empty.
    fn read<'f>(&'f self, bytes: &'f [u8], frame: &mut Frame<'f>) -> Result<(), FieldFault>;
}
