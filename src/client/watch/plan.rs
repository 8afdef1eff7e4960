//! The settings of a watch, and the request for the version at which it starts.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tracing::{Instrument, Span, field};

use crate::client::error::Error;
use crate::client::handle::Client;
use crate::client::params::WatchParams;
use crate::client::resource::Resource;
use crate::client::span::record_namespaces;
use crate::error::InvalidInput;
use crate::limits::Limits;

/// The settings that all connections of a watch share.
pub(super) struct WatchPlan {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) params: WatchParams,
    /// The error of a type that reads another kind than the resource's.
    pub(super) wrong_kind: Option<InvalidInput>,
    pub(super) namespace: Option<String>,
    pub(super) limits: Limits,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) bookmarks: bool,
    pub(super) span: Span,
}

/// The request for the version at which the watch starts.
pub(super) type Locating = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

impl WatchPlan {
    pub(super) fn new(client: &Client, resource: &Resource, params: WatchParams) -> Self {
        let (client, resource) = (client.without_deadline(), resource.clone());
        let span = tracing::info_span!(
            "listwatch.watch",
            %resource,
            namespace = field::Empty,
            label_selector = params.selection.label_text(),
            field_selector = params.selection.field_text(),
            attempts = field::Empty,
            status = field::Empty,
        );
        let limits = client.limits;
        let (wrong_kind, namespace, idle_timeout) = (None, None, None);
        Self { client, resource, params, wrong_kind, namespace, limits, idle_timeout, bookmarks: true, span }
    }

    /// Creates a plan for a namespace with the same settings.
    pub(super) fn of_namespace(&self, namespace: &str) -> Self {
        let (namespace, bookmarks) = (Some(namespace.to_owned()), self.bookmarks);
        let (limits, idle_timeout, wrong_kind) = (self.limits, self.idle_timeout, self.wrong_kind.clone());
        let plan = Self::new(&self.client, &self.resource, self.params.clone());
        Self { wrong_kind, namespace, limits, idle_timeout, bookmarks, ..plan }
    }

    /// Requests the version of the collection.
    pub(super) fn locate(&self, client: &Client) -> Locating {
        let Self { resource, params, namespace, span, .. } = self;
        let located = span.in_scope(|| client.current_version(resource, &params.selection, namespace.as_deref()));
        Box::pin(located.instrument(span.clone()))
    }

    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        record_namespaces(&self.span, self.namespace.iter());
        if let Some(error) = &self.wrong_kind {
            return Err(error.clone());
        }
        self.resource.check_watchable()?;
        self.params.validate()
    }
}
