//! The events of a list and of a watch, and the end of a list.

use crate::encoding::item_ref::ItemRef;
use crate::error::DecodeError;
#[cfg(doc)]
use crate::limits::Limits;
use crate::meta::{ListMeta, Status, TypeMeta};

/// The next part of the body of a list.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The type meta of the list, once and before all other events.
    ///
    /// For a JSON list the event follows once both `apiVersion` and `kind` are read, which may be after the items:
    /// lists of custom resources have their members in alphabetical order. The event is repeated if the body repeats
    /// one of the two members.
    TypeMeta(&'a TypeMeta),
    /// The list meta, merged from the pieces read so far. Most servers send it whole and before the items, but a server
    /// may send it in pieces or after the items. [`ListEnd`] has it in its final form.
    ListMeta(&'a ListMeta),
    /// An item.
    Item(ItemRef<'a>),
    /// An item over [`Limits::item_size`] was skipped, because the caller set
    /// [`skip_item_errors`](super::ListDecoder::skip_item_errors). Otherwise the list would have ended in this error.
    Skipped(&'a DecodeError),
}

/// The metadata and the counts of a complete list.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListEnd {
    /// The type meta of the list: `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta in its final form.
    pub list_meta: ListMeta,
    /// Items delivered.
    pub items: u64,
    /// Items skipped because the caller set `skip_item_errors`.
    pub skipped: u64,
    /// Length of the body in bytes, after decompression.
    pub bytes: u64,
}

/// A change of the collection, or an event of the watch itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WatchEventRef<'a> {
    /// An object was created, or existed already when the watch began (an initial event).
    #[non_exhaustive]
    Added {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, never empty.
        resource_version: &'a str,
    },
    /// An object was modified.
    #[non_exhaustive]
    Modified {
        /// The object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object, never empty.
        resource_version: &'a str,
    },
    /// An object was deleted, or no longer matches the watch's selectors.
    #[non_exhaustive]
    Deleted {
        /// The last state of the object, under its own type meta.
        object: ItemRef<'a>,
        /// The version of the object. It may be older than the deletion, and is empty if the server sent none.
        resource_version: &'a str,
    },
    /// All events up to this version have been sent.
    #[non_exhaustive]
    Bookmark {
        /// The version from which a watch can resume. Some servers send bookmarks without a version, which is then
        /// empty, or with version `0`: a watch must not resume from these.
        resource_version: &'a str,
        /// True if it follows the last initial event: the annotation `k8s.io/initial-events-end`. A server also sets it
        /// on the first bookmark of a watch from version 0.
        ends_initial_events: bool,
    },
    /// The server's error, after which the server ends the watch.
    Error(&'a Status),
}
