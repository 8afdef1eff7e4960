//! The events of a list and of a watch, and the end of a list.

use crate::encoding::item_ref::ItemRef;
use crate::error::DecodeError;
#[cfg(doc)]
use crate::limits::Limits;
use crate::meta::{ListMeta, Status, TypeMeta};

/// What a list decoder found next in the body.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The type meta of the list. A protobuf list begins with it.
    ///
    /// A JSON list delivers it once both `apiVersion` and `kind` were read, which may be after the items, because lists
    /// of custom resources write their members in alphabetical order. A list that repeats one of the two members
    /// delivers the event again.
    TypeMeta(&'a TypeMeta),
    /// The list meta as merged from what was read so far.
    ///
    /// Most servers send it in one piece before the items, but a server may also split it or send it after the items.
    /// [`ListEnd`] contains its final form.
    ListMeta(&'a ListMeta),
    /// An item.
    Item(ItemRef<'a>),
    /// An item over [`Limits::item_size`] that the decoder skipped.
    ///
    /// The decoder skips such an item only after [`skip_item_errors`](super::ListDecoder::skip_item_errors); otherwise
    /// the list ends in this error.
    Skipped(&'a DecodeError),
}

/// The metadata and the counts of a list that is complete.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListEnd {
    /// The type meta of the list, such as `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta in its final form.
    pub list_meta: ListMeta,
    /// How many items were delivered.
    pub items: u64,
    /// How many items were skipped, because the caller set `skip_item_errors`.
    pub skipped: u64,
    /// The length of the body in bytes, after decompression.
    pub bytes: u64,
}

/// A change of the collection, or an event of the watch itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WatchEventRef<'a> {
    /// An object was created, or already existed when the watch began (an initial event).
    #[non_exhaustive]
    Added {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, which is never empty.
        resource_version: &'a str,
    },
    /// An object was modified.
    #[non_exhaustive]
    Modified {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, which is never empty.
        resource_version: &'a str,
    },
    /// An object was deleted, or no longer matches the watch's selectors.
    #[non_exhaustive]
    Deleted {
        /// The last state of the object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, which may be older than the deletion; empty if the server sent none.
        resource_version: &'a str,
    },
    /// All events up to this version have been sent.
    #[non_exhaustive]
    Bookmark {
        /// The version from which a watch can resume.
        ///
        /// Some servers send bookmarks with an empty version or with version `0`. A watch must not resume from these.
        resource_version: &'a str,
        /// True for the bookmark that follows the last initial event (annotation `k8s.io/initial-events-end`).
        ///
        /// A server also sets the annotation on the first bookmark of a watch from version 0.
        ends_initial_events: bool,
    },
    /// An error of the server, which then ends the watch.
    Error(&'a Status),
}
