//! The settings of a list, and the counts that its pages share.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::summary::ListSummary;
use crate::client::handle::Client;
use crate::client::params::ListParams;
use crate::client::progress::Counters;
use crate::client::resource::Resource;
use crate::error::{DecodeError, InvalidInput, SkipHook};
use crate::limits::Limits;
use crate::meta::TypeMeta;

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
    /// True if pages may have several versions, because a watch from the first version follows.
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

/// A list in progress.
pub(super) struct Listing {
    pub(super) plan: ListPlan,
    /// The type meta that the response must have.
    pub(super) expected: TypeMeta,
    pub(super) started: Instant,
    /// Filled while the list runs. It counts the items of finished pages.
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
