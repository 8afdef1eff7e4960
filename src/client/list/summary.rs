//! The metadata and counts of a list.

use std::time::Duration;

use crate::meta::{ListMeta, TypeMeta};

/// A list that started over, because its next page had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restart {
    /// The namespace, if the caller chose namespaces.
    pub namespace: Option<String>,
    /// The number of items that were delivered from the old snapshot. All items that follow, up to the next namespace,
    /// belong to a new snapshot.
    pub items: u64,
}

/// The metadata and counts of a complete list.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListSummary {
    /// The type meta of the list: `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta of the last response: after [`List::single_page`](super::List::single_page) it has the token of
    /// the next page. Its version is the version of the first page, from which a watch loses no change.
    pub list_meta: ListMeta,
    /// The list meta of each namespace, if the caller chose namespaces. Each is a separate snapshot.
    pub namespaces: Vec<(String, ListMeta)>,
    /// True if each list is one snapshot: false after [`List::allow_inconsistent`](super::List::allow_inconsistent)
    /// continued a list at a newer version, and after pages of different versions.
    pub consistent: bool,
    /// Items delivered, without the items of abandoned snapshots.
    pub items: u64,
    /// Items skipped because the caller set [`List::skip_item_errors`](super::List::skip_item_errors).
    pub skipped: u64,
    /// Items of other shards, which the client left out because the server does not support shards.
    pub other_shards: u64,
    /// Responses that make up the list.
    pub pages: u64,
    /// Requests sent.
    pub attempts: u64,
    /// Restarts of the list after expired pages.
    pub restarts: u32,
    /// Bytes of bodies on the network, including failed attempts.
    pub wire_bytes: u64,
    /// Bytes of the bodies that make up the list, after decompression.
    pub bytes: u64,
    /// Time from the first request to the first item.
    pub time_to_first_item: Option<Duration>,
    /// Time from the first request to the end.
    pub elapsed: Duration,
    /// The id of the last request in the server's audit log.
    pub audit_id: Option<String>,
    /// The texts of the server's `Warning` headers, each once, at most 100.
    pub warnings: Vec<String>,
}

impl ListSummary {
    /// Returns the number of items that were received, delivered or not.
    pub(super) fn seen(&self) -> u64 {
        self.items + self.skipped + self.other_shards
    }
}
