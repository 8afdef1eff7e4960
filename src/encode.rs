//! Writes lists, single objects, watch frames and Statuses from stored items, byte for byte as an API server does.
//!
//! This is the counterpart of [`ListDecoder`](crate::ListDecoder) and [`WatchDecoder`](crate::WatchDecoder), for
//! servers that serve a stored collection over the Kubernetes API. It does no IO: it appends to a `Vec` that the caller
//! may flush after each item, so a list of any size needs memory for one item.
//!
//! ```
//! use listwatch::encode::Encoder;
//! use listwatch::{Encoding, Event, ItemRef, ListDecoder, TypeMeta};
//!
//! # let recorded = &include_bytes!("../fixtures/configmaps.pb")[..];
//! let mut stored = Vec::new();
//! let (mut decoder, mut input) = (ListDecoder::new(), recorded);
//! while let Some(event) = decoder.decode(&mut input)? {
//!     if let Event::Item(item) = event {
//!         stored.push(item.to_box());
//!     }
//! }
//! let list_meta = decoder.finish()?.list_meta;
//!
//! let encoder = Encoder::new(Encoding::Protobuf, TypeMeta::new("v1", "ConfigMap"), "ConfigMapList");
//! let items: Vec<_> = stored.iter().map(|bytes| ItemRef::new(Encoding::Protobuf, bytes)).collect();
//! let items_len = items.iter().map(|item| encoder.item_len(item)).sum::<Result<u64, _>>()?;
//! let mut body = Vec::new();
//! let mut written = encoder.list_head(&list_meta, items_len, &mut body);
//! for item in &items {
//!     encoder.item(&mut written, item, &mut body)?;
//! }
//! encoder.list_tail(written, &list_meta, &mut body);
//! assert!(body == recorded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which bytes
//!
//! The encoder writes what kube-apiserver 1.36 writes without `?pretty`:
//!
//! | kind | items are stored in | JSON bodies |
//! |---|---|---|
//! | built-in: in the [table of fields](crate::schema) | protobuf or JSON | `kind` first, as Go writes structs; items of a list have no `kind` |
//! | other: custom resources | JSON | members in alphabetical order; items have their `kind` |
//! | [`metadata_only`](Encoder::metadata_only) | as the kind | `kind` first; items have the kind `PartialObjectMetadata` |
//!
//! An item that is stored in the encoding to be written is copied. An item in protobuf can be converted to JSON, as by
//! [`ItemRef::to_json`], but an item in JSON cannot be converted to protobuf.
//!
//! Sources: the packages `runtime/serializer/json`, `runtime/serializer/protobuf` and `apis/meta/v1` of
//! `k8s.io/apimachinery`, and `endpoints/handlers/response.go` of `k8s.io/apiserver`.

use std::borrow::Cow;

use crate::encoding::item_ref::ItemRef;
use crate::encoding::protobuf::to_json;
use crate::encoding::protobuf::zero::zero_object;
use crate::encoding::with_codec;
use crate::encoding::writer::{Layout, WrittenKind, ZeroMeta};
use crate::error::ItemError;
use crate::meta::{EventType, INITIAL_EVENTS_END, ListMeta, Status, TypeMeta};
use crate::schema::Message;
use crate::wire::{Encoding, FieldFault};

/// Writes objects of one kind as an API server does.
///
/// After an error, `out` is unchanged.
#[derive(Clone, Debug)]
pub struct Encoder {
    encoding: Encoding,
    kind: WrittenKind,
}

/// A list that is being written.
#[derive(Debug)]
#[must_use = "a list without its tail is incomplete"]
pub struct ListBody {
    is_empty: bool,
}

impl Encoder {
    /// Creates an encoder for objects of a kind, such as `v1`, `Pod` and `PodList`.
    ///
    /// The encoder ignores the type meta of the items. It writes a kind that is not in the [table of
    /// fields](crate::schema) as a custom resource.
    pub fn new(encoding: Encoding, type_meta: TypeMeta, list_kind: impl Into<String>) -> Self {
        let TypeMeta { api_version, kind } = &type_meta;
        let layout = match (api_version.as_str(), kind.as_str()) {
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => Layout::Metadata,
            _ if Message::of(api_version, kind).is_some() => Layout::Typed,
            _ => Layout::Unstructured,
        };
        let list = TypeMeta::new(api_version, list_kind);
        Self { encoding, kind: WrittenKind { type_meta, list, layout, is_projected: false } }
    }

    /// Writes only the metadata of the objects, as `PartialObjectMetadata` of `meta.k8s.io/v1` and its list.
    ///
    /// The metadata of an item in protobuf is copied as it is. The metadata of an item in JSON is written in the order
    /// of Go's structs, without members that are not in the table of fields. As on a server, the list meta has no
    /// `shardInfo`.
    #[must_use]
    pub fn metadata_only(self) -> Self {
        let type_meta = TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata");
        let mut encoder = Self::new(self.encoding, type_meta, "PartialObjectMetadataList");
        encoder.kind.is_projected = true;
        encoder
    }

    /// Returns the encoding that this encoder writes.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns true if [`list_head`](Self::list_head) needs the lengths of all items, as in protobuf.
    #[must_use]
    pub fn needs_items_len(&self) -> bool {
        with_codec!(self.encoding, C => C::DECLARES_LENGTHS)
    }

    /// Returns how many bytes the item takes in a protobuf list, for [`list_head`](Self::list_head). JSON needs no
    /// lengths: 0.
    ///
    /// This copies nothing.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongEncoding`] for an item in JSON; [`ItemError::Metadata`] when only the metadata is written and
    /// the item is malformed.
    pub fn item_len(&self, item: &ItemRef<'_>) -> Result<u64, ItemError> {
        if !self.needs_items_len() {
            return Ok(0);
        }
        let len = self.bytes(item)?.len() as u64;
        Ok(with_codec!(self.encoding, C => C::item_len(len)))
    }

    /// Returns how many bytes a whole object of this length takes in a protobuf list.
    #[must_use]
    pub fn whole_item_len(&self, len: usize) -> u64 {
        with_codec!(self.encoding, C => C::item_len(len as u64))
    }

    /// Appends the beginning of a list. [`item`](Self::item) then appends each item, and [`list_tail`](Self::list_tail)
    /// the end.
    ///
    /// `items_len` is the sum of [`item_len`](Self::item_len) over all items, because a protobuf list begins with its
    /// length. If the items turn out to have another length, the body is malformed. JSON ignores the sum.
    pub fn list_head(&self, list_meta: &ListMeta, items_len: u64, out: &mut Vec<u8>) -> ListBody {
        let list_meta = self.served(list_meta);
        with_codec!(self.encoding, C => C::write_list_head(&self.kind, &list_meta, items_len, out));
        ListBody { is_empty: true }
    }

    /// Appends an item of a list.
    ///
    /// An item in the encoding to be written is copied without a check, except that JSON loses its white space. The
    /// result is the number of fields that were left out because the table of fields does not know them, which happens
    /// only when an item in protobuf is written as JSON.
    ///
    /// # Errors
    ///
    /// [`ItemError::WrongEncoding`] when an item in JSON is added to a protobuf list; the errors of
    /// [`item_len`](Self::item_len) when only the metadata is written, and of [`ItemRef::to_json`] when the item is
    /// converted. A JSON list can continue with the next item.
    pub fn item(&self, body: &mut ListBody, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        let bytes = self.bytes(item)?;
        let start = out.len();
        let to_json = |out: &mut Vec<u8>| {
            let (item, layout) = (self.own(item, &bytes), self.kind.layout);
            if self.kind.is_projected {
                with_codec!(item.encoding, C => C::to_partial_metadata(&item, out))
            } else {
                with_codec!(item.encoding, C => C::to_list_item(&item, layout, out))
            }
        };
        let written = with_codec!(self.encoding, C => C::write_item(&self.kind, body.is_empty, &bytes, to_json, out));
        let unknown_fields = written.inspect_err(|_| out.truncate(start))?;
        body.is_empty = false;
        Ok(unknown_fields)
    }

    /// Appends the end of a list. Pass the list meta of [`list_head`](Self::list_head), which some lists write after
    /// the items.
    #[expect(clippy::needless_pass_by_value, reason = "a list ends once")]
    pub fn list_tail(&self, body: ListBody, list_meta: &ListMeta, out: &mut Vec<u8>) {
        let ListBody { is_empty } = body;
        let list_meta = self.served(list_meta);
        with_codec!(self.encoding, C => C::write_list_tail(&self.kind, is_empty, &list_meta, out));
    }

    /// Appends the body of a single object, and returns the number of fields left out, as [`item`](Self::item) does.
    ///
    /// # Errors
    ///
    /// The errors of [`item`](Self::item), and [`ItemError::Metadata`] when an item in JSON is not a JSON object.
    pub fn object(&self, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        let bytes = self.bytes(item)?;
        let start = out.len();
        let to_json = |out: &mut Vec<u8>| self.write_json(item, &bytes, out);
        let written = with_codec!(self.encoding, C => C::write_object(&self.kind, &bytes, to_json, out));
        written.inspect_err(|_| out.truncate(start))
    }

    /// Appends the frame of a change, and returns the number of fields left out, as [`item`](Self::item) does.
    ///
    /// A frame is a length and a `WatchEvent` in protobuf, and a line in JSON.
    ///
    /// A `resource_version` replaces the version in the object's metadata, for which the object is copied twice. A
    /// server does this when it sends a deletion at the version of the deletion or, to a watch with a selector, an old
    /// state at the new version.
    ///
    /// # Errors
    ///
    /// The errors of [`object`](Self::object), and [`ItemError::Metadata`] when the object has no resource version to
    /// replace or the frame would be longer than 2³²-1 bytes.
    pub fn event(
        &self,
        kind: EventType,
        item: &ItemRef<'_>,
        resource_version: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Result<u64, ItemError> {
        let mut bytes = self.bytes(item)?;
        if let Some(version) = resource_version {
            let written = with_codec!(item.encoding, C => C::with_version(&bytes, version));
            bytes = Cow::Owned(written.map_err(malformed)?);
        }
        let start = out.len();
        let to_json = |out: &mut Vec<u8>| self.write_json(item, &bytes, out);
        let name = kind.name();
        let written = with_codec!(self.encoding, C => C::write_event(name, &self.kind, &bytes, to_json, out));
        written.inspect_err(|_| out.truncate(start))
    }

    /// Appends the frame of a bookmark, an object of the kind that has only a resource version.
    ///
    /// With `ends_initial_events`, the bookmark carries the annotation `k8s.io/initial-events-end: "true"`, which marks
    /// the end of the initial events.
    ///
    /// Go writes even empty fields in protobuf unless they are pointers, slices or maps, so the object contains these
    /// fields. They are the same as kube-apiserver's, except for two kinds whose fields differ between releases:
    /// `CSINode` of 1.37 and `DeviceTaintRule` of 1.36 also have an empty `status`. A kind that is not in the table of
    /// fields is written with its metadata only.
    pub fn bookmark(&self, resource_version: &str, ends_initial_events: bool, out: &mut Vec<u8>) {
        let annotation = ends_initial_events.then_some((INITIAL_EVENTS_END, "true"));
        let meta = ZeroMeta { resource_version, annotation };
        let TypeMeta { api_version, kind } = &self.kind.type_meta;
        let message = Message::of(api_version, kind);
        // Of any other kind, only the metadata are known.
        let message = message.or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata"));
        let object = message.map(|message| zero_object(message, &meta)).unwrap_or_default();
        let to_json = |out: &mut Vec<u8>| {
            to_json::to_json(&ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&self.kind.type_meta), out)
        };
        with_codec!(self.encoding, C => C::write_bookmark(&self.kind, &meta, &object, to_json, out));
    }

    /// Appends the frame of an error, after which a server ends the watch.
    pub fn error(&self, status: &Status, out: &mut Vec<u8>) {
        with_codec!(self.encoding, C => C::write_error(status, out));
    }

    fn bytes<'a>(&self, item: &ItemRef<'a>) -> Result<Cow<'a, [u8]>, ItemError> {
        if !with_codec!(self.encoding, C => C::converts(item.encoding)) {
            return Err(ItemError::WrongEncoding { found: item.encoding, expected: self.encoding });
        }
        if !self.kind.is_projected {
            return Ok(Cow::Borrowed(item.bytes));
        }
        with_codec!(item.encoding, C => C::metadata_only(item.bytes)).map_err(malformed)
    }

    /// Returns an item with these bytes, and with the type meta that is written.
    fn own<'b>(&'b self, item: &ItemRef<'b>, bytes: &'b [u8]) -> ItemRef<'b> {
        item.with_bytes(bytes).with_type_meta(&self.kind.type_meta)
    }

    /// Appends an object with its type meta, without a newline.
    fn write_json(&self, item: &ItemRef<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<u64, ItemError> {
        let item = self.own(item, bytes);
        if self.kind.is_projected {
            with_codec!(item.encoding, C => C::to_partial_metadata(&item, out))
        } else {
            with_codec!(item.encoding, C => C::to_json(&item, out))
        }
    }

    /// Returns the list meta as the server writes it. Lists of metadata and of custom resources have no `shardInfo`.
    fn served<'m>(&self, list_meta: &'m ListMeta) -> Cow<'m, ListMeta> {
        let has_shard_info = match self.kind.layout {
            Layout::Typed => true,
            Layout::Metadata => false,
            // A kind that has a form in protobuf is typed.
            Layout::Unstructured => !self.encoding.is_self_describing(),
        };
        match list_meta.shard_info {
            None => Cow::Borrowed(list_meta),
            Some(_) if has_shard_info => Cow::Borrowed(list_meta),
            Some(_) => Cow::Owned(ListMeta { shard_info: None, ..list_meta.clone() }),
        }
    }
}

/// Appends the body of a Status, in protobuf with its envelope, in JSON as a line.
///
/// A server writes errors in the encoding that the request prefers, even for custom resources.
pub fn status(encoding: Encoding, status: &Status, out: &mut Vec<u8>) {
    with_codec!(encoding, C => C::write_status(status, out));
}

fn malformed((field, fault): FieldFault) -> ItemError {
    ItemError::Metadata { field, fault }
}
