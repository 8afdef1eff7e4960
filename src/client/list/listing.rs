//! A list: its settings, its counts so far, and the summary at its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::api_client::Client;
use crate::client::params::ListParams;
use crate::client::progress::Counters;
use crate::client::resource::Resource;
use crate::error::{DecodeError, InvalidInput, SkipHook};
use crate::limits::Limits;
use crate::meta::{ListMeta, TypeMeta};

/// The settings that all requests of a list share.
#[expect(clippy::struct_excessive_bools, reason = "they are independent settings")]
pub(super) struct ListPlan {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) params: ListParams,
    /// The token of the first request.
    pub(super) continue_token: Option<String>,
    pub(super) follows_pages: bool,
    /// The error of a type that reads another kind than the resource's.
    pub(super) wrong_kind: Option<InvalidInput>,
    /// `None` means all namespaces, or the cluster.
    pub(super) namespaces: Vec<Option<String>>,
    pub(super) allows_inconsistent: bool,
    /// True if pages may have different versions, because a watch from the first version follows.
    pub(super) accepts_versions: bool,
    pub(super) limits: Limits,
    pub(super) skips_item_errors: bool,
    pub(super) on_skip: Option<SkipHook>,
    pub(super) deadline: Option<Duration>,
    pub(super) counters: Arc<Counters>,
}

impl ListPlan {
    /// Returns the namespace for an error, if there are several.
    pub(super) fn one_of_several(&self, namespace: usize) -> Option<String> {
        let several = (self.namespaces.len() > 1).then_some(&self.namespaces);
        several.and_then(|all| all.get(namespace)).cloned().flatten()
    }

    pub(super) fn report(&mut self, error: &DecodeError) {
        if let Some(on_skip) = &mut self.on_skip {
            on_skip(error);
        }
    }

    pub(super) fn new(client: Client, resource: Resource, params: ListParams) -> Self {
        Self {
            counters: Arc::new(Counters::new(&client.totals)),
            limits: client.limits,
            deadline: client.deadline,
            client,
            resource,
            params,
            continue_token: None,
            follows_pages: true,
            wrong_kind: None,
            namespaces: vec![None],
            allows_inconsistent: false,
            accepts_versions: false,
            skips_item_errors: false,
            on_skip: None,
        }
    }
}

pub(super) struct Listing {
    pub(super) plan: ListPlan,
    /// The type meta that the response must have.
    pub(super) expected: TypeMeta,
    pub(super) started: Instant,
    /// Filled while the list runs. It counts only the items of finished pages.
    pub(super) summary: ListSummary,
}

impl Listing {
    pub(super) fn new(plan: ListPlan) -> Self {
        let mut expected = plan.params.selection.type_meta(&plan.resource);
        if !expected.kind.is_empty() {
            expected.kind.push_str("List");
        }
        let summary = ListSummary { consistent: true, ..ListSummary::default() };
        Self { expected, started: Instant::now(), summary, plan }
    }
}

/// A list that started over because its next page had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restart {
    /// The namespace, if the caller chose namespaces.
    pub namespace: Option<String>,
    /// How many items were delivered from the old snapshot.
    ///
    /// The items that follow, up to the next namespace, belong to a new snapshot.
    pub items: u64,
}

/// The metadata and the counts of a list that is complete.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListSummary {
    /// The type meta of the list, such as `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta of the last response.
    ///
    /// Its version is the first page's, so a watch from it misses no change. After
    /// [`List::single_page`](super::List::single_page), it contains the token of the next page.
    pub list_meta: ListMeta,
    /// The list meta of each namespace, if the caller chose namespaces. Each namespace is a separate snapshot.
    pub namespaces: Vec<(String, ListMeta)>,
    /// True if each list is a single snapshot.
    ///
    /// It is false if [`List::allow_inconsistent`](super::List::allow_inconsistent) continued a list at a newer
    /// version, or if pages had different versions.
    pub consistent: bool,
    /// How many items were delivered, without the items of abandoned snapshots.
    pub items: u64,
    /// How many items were skipped, because the caller set [`List::skip_item_errors`](super::List::skip_item_errors).
    pub skipped: u64,
    /// How many items of other shards the client left out, because the server does not support shards.
    pub other_shards: u64,
    /// How many responses make up the list.
    pub pages: u64,
    /// How many requests were sent.
    pub attempts: u64,
    /// How often the list started over after a page had expired.
    pub restarts: u32,
    /// The bytes of bodies on the network, including failed attempts.
    pub wire_bytes: u64,
    /// The bytes of the bodies that make up the list, after decompression.
    pub bytes: u64,
    /// The time from the first request to the first item.
    pub time_to_first_item: Option<Duration>,
    /// The time from the first request to the end.
    pub elapsed: Duration,
    /// The id of the last request in the server's audit log.
    pub audit_id: Option<String>,
    /// The texts of the server's `Warning` headers, without duplicates and at most 100.
    pub warnings: Vec<String>,
}

impl ListSummary {
    pub(super) fn seen(&self) -> u64 {
        self.items + self.skipped + self.other_shards
    }
}
