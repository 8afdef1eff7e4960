//! What a watch requests: its settings, the version at which it starts, and the phase, on which the next request
//! depends.
//!
//! | phase | next request | next phase |
//! |---|---|---|
//! | `InitialEvents` | the collection, as initial events of the watch | `Changes` after the bookmark that ends them |
//! | | | `InitialList` if the server refuses them, does not end them, or interrupts them twice |
//! | `InitialList` | the collection, as a list | `Changes` after the list |
//! | `Changes` | the changes after the last complete version | `InitialEvents` after an expired version, if it starts over |

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tracing::{Instrument, Span, field};

use crate::client::api_client::Client;
use crate::client::error::Error;
use crate::client::params::WatchParams;
use crate::client::resource::Resource;
use crate::client::span::record_namespaces;
use crate::error::InvalidInput;
use crate::limits::Limits;

/// How many interruptions of the initial events lead to a list instead.
const MAX_INTERRUPTIONS: u32 = 2;

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

    pub(super) fn of_namespace(&self, namespace: &str) -> Self {
        let (namespace, bookmarks) = (Some(namespace.to_owned()), self.bookmarks);
        let (limits, idle_timeout, wrong_kind) = (self.limits, self.idle_timeout, self.wrong_kind.clone());
        let plan = Self::new(&self.client, &self.resource, self.params.clone());
        Self { wrong_kind, namespace, limits, idle_timeout, bookmarks, ..plan }
    }

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

pub(super) enum WatchPhase {
    InitialEvents {
        /// True if a part of the initial state was delivered, which the next request delivers again.
        is_partial: bool,
        interruptions: u32,
    },
    InitialList {
        is_partial: bool,
        /// True if the server refused the initial events or did not end them.
        replaces_refused: bool,
    },
    /// The initial state was delivered, or the watch began without it. From now on, events are in order.
    Changes {
        /// How many connections in a row, all from one version, may have failed because the version has expired.
        fruitless: u32,
    },
}

impl WatchPhase {
    pub(super) fn of_initial_state() -> Self {
        Self::InitialEvents { is_partial: false, interruptions: 0 }
    }

    pub(super) fn of_changes() -> Self {
        Self::Changes { fruitless: 0 }
    }

    pub(super) fn is_synced(&self) -> bool {
        matches!(self, Self::Changes { .. })
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::InitialList { .. })
    }

    /// Returns true if the next request is for the collection as initial events.
    pub(super) fn is_initial_events(&self) -> bool {
        matches!(self, Self::InitialEvents { .. })
    }

    pub(super) fn record_delivery(&mut self) {
        if let Self::InitialEvents { is_partial, .. } | Self::InitialList { is_partial, .. } = self {
            *is_partial = true;
        }
    }

    /// Returns true, once, if the caller must discard what was delivered.
    pub(super) fn take_partial(&mut self) -> bool {
        match self {
            Self::InitialEvents { is_partial, .. } | Self::InitialList { is_partial, .. } => std::mem::take(is_partial),
            Self::Changes { .. } => false,
        }
    }

    /// Lists the collection instead of requesting initial events.
    pub(super) fn list_instead(&mut self, replaces_refused: bool) {
        if let Self::InitialEvents { is_partial, .. } = *self {
            *self = Self::InitialList { is_partial, replaces_refused };
        }
    }

    /// Counts an interruption of the initial events. After the second one, the collection is listed.
    pub(super) fn count_interruption(&mut self) {
        let Self::InitialEvents { interruptions, .. } = self else { return };
        *interruptions += 1;
        if *interruptions >= MAX_INTERRUPTIONS {
            self.list_instead(false);
        }
    }

    /// Starts over with the collection, after the caller has discarded the objects.
    pub(super) fn restart(&mut self) {
        match self {
            Self::InitialEvents { is_partial, .. } | Self::InitialList { is_partial, .. } => *is_partial = false,
            Self::Changes { .. } => *self = Self::of_initial_state(),
        }
    }

    /// Starts over with the collection, so that the caller must discard all delivered objects.
    pub(super) fn start_over(&mut self) {
        *self = Self::InitialEvents { is_partial: true, interruptions: 0 };
    }
}
