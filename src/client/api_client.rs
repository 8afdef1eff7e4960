//! [`Client`]: the settings of a client, and what it has learned about its server.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::ExponentialBackoff;
use tokio::time::Instant;

use super::classify::{RetryAdvice, classify};
use super::error::Error;
use super::metrics::{Metrics, Totals};
use super::outage::Outage;
use super::params::Selection;
use super::resource::Resource;
use super::retry::{Retry, Tries};
use super::runtime::LONGEST;
use super::transport::{Transport, chain};
use super::warning_limit::WarningLimit;
use crate::limits::Limits;
use crate::sync::{Mutex, lock};

/// How long a client remembers that a server does not send protobuf, or the initial events of a collection. After that
/// the client tries again, because the server may have been upgraded or may have been busy.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// A client of one API server, whose clones are cheap and share connections and metrics.
#[derive(Clone)]
pub struct Client {
    pub(super) transport: Arc<dyn Transport>,
    retry: Retry,
    pub(super) compression: Compression,
    pub(super) read_idle_timeout: Duration,
    pub(super) limits: Limits,
    pub(super) deadline: Option<Duration>,
    pub(super) totals: Arc<Totals>,
    /// The paths of collections whose initial events failed while a list succeeded, and when each list succeeded.
    without_initial_events: Arc<Mutex<HashMap<String, Instant>>>,
    /// The paths of collections for which the server returned 406, whether only metadata was requested, and when.
    only_json: Arc<Mutex<HashMap<(String, bool), Instant>>>,
    /// True once the server has answered a request, with any status.
    pub(super) was_reached: Arc<AtomicBool>,
    pub(super) warnings: Arc<WarningLimit>,
}

/// Which compression of responses a client requests.
///
/// API servers gzip lists over 128 KiB, to about a ninth for uniform Pods, which costs CPU on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// No compression if the server is [near](Transport::is_near), otherwise gzip.
    #[default]
    Auto,
    /// No compression.
    Identity,
    /// gzip.
    Gzip,
}

impl Client {
    /// The default of [`read_idle_timeout`](Self::read_idle_timeout): 90 s, longer than a server's request timeout of
    /// 60 s.
    pub const DEFAULT_READ_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

    /// Creates a client over this transport.
    pub fn new(transport: impl Transport) -> Self {
        Self {
            transport: Arc::new(transport),
            retry: Retry::default(),
            compression: Compression::default(),
            read_idle_timeout: Self::DEFAULT_READ_IDLE_TIMEOUT,
            limits: Limits::default(),
            deadline: None,
            totals: Arc::default(),
            without_initial_events: Arc::default(),
            only_json: Arc::default(),
            was_reached: Arc::default(),
            warnings: Arc::default(),
        }
    }

    /// Sets how often failed requests are retried.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets whether the server may compress responses. The default is [`Compression::Auto`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets how long to wait for the head of a response, and then for each further byte.
    ///
    /// A list that stalls longer ends in [`TransportErrorKind::ReadIdle`](crate::client::TransportErrorKind::ReadIdle).
    /// The time that the consumer takes does not count. The default is
    /// [`DEFAULT_READ_IDLE_TIMEOUT`](Self::DEFAULT_READ_IDLE_TIMEOUT); watches have their own
    /// [`idle_timeout`](crate::client::Watch::idle_timeout).
    #[must_use]
    pub fn read_idle_timeout(mut self, timeout: Duration) -> Self {
        self.read_idle_timeout = timeout.min(LONGEST);
        self
    }

    /// Sets the limits on the bodies of lists, watches and gets that do not set their own.
    ///
    /// They also apply to the requests of reflectors. The default is [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long a list, a get or a count may take, including retries. There is no limit by default.
    ///
    /// Afterwards it ends in [`TransportErrorKind::Deadline`](crate::client::TransportErrorKind::Deadline). A single
    /// call may set its own deadline. Watches and reflectors have none, and neither have the lists that they send.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time.min(LONGEST));
        self
    }

    /// Returns a client without a [deadline](Self::deadline), for calls that retry until they succeed.
    #[doc(hidden)]
    #[must_use]
    pub fn without_deadline(&self) -> Self {
        Self { deadline: None, ..self.clone() }
    }

    /// Returns the counters of this client and its clones.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.totals.metrics()
    }

    /// Returns the limit on warnings that the server can cause.
    #[doc(hidden)]
    #[must_use]
    pub fn warnings(&self) -> &WarningLimit {
        &self.warnings
    }

    /// Starts reporting failures of the requests for a collection.
    #[doc(hidden)]
    #[must_use]
    pub fn outage(&self, resource: &Resource) -> Arc<Outage> {
        Arc::new(Outage::new(resource.to_string(), self.transport.server()))
    }

    /// Counts a retry in the [metrics](Self::metrics).
    #[doc(hidden)]
    pub fn count_retry(&self) {
        self.totals.retry();
    }

    /// Returns false if the server is known not to send this collection as the initial events of a watch.
    #[doc(hidden)]
    pub fn has_initial_events(&self, resource: &Resource) -> Result<bool, Error> {
        let failed = lock(&self.without_initial_events).get(&resource.list_path(None)?).copied();
        Ok(failed.is_none_or(|at| at.elapsed() >= REMEMBERED))
    }

    /// Remembers that a list succeeded after the initial events of the same collection had failed.
    pub(super) fn set_without_initial_events(&self, resource: &Resource) -> Result<(), Error> {
        lock(&self.without_initial_events).insert(resource.list_path(None)?, Instant::now());
        Ok(())
    }

    /// Returns the selection in a form that the server sends: plain JSON for an hour after a 406.
    pub(super) fn acceptable(&self, resource: &Resource, selection: &Selection) -> Result<Selection, Error> {
        let key = (resource.list_path(None)?, selection.is_metadata_only());
        let refused = lock(&self.only_json).get(&key).is_some_and(|at| at.elapsed() < REMEMBERED);
        let selection = selection.clone();
        Ok(if refused { selection.plain_json() } else { selection })
    }

    /// Returns true if the server refused the requested form, so that the next request should be for plain JSON.
    ///
    /// Aggregated API servers return 406 for protobuf if a type does not implement it, although the request also
    /// accepts JSON (apimachinery `runtime/serializer/protobuf`, `errNotMarshalable`). The client and its clones
    /// remember the refusal for an hour.
    pub(super) fn needs_plain_json(
        &self,
        error: &Error,
        resource: &Resource,
        requested: &Selection,
    ) -> Result<bool, Error> {
        if error.code() != Some(406) || *requested == requested.clone().plain_json() {
            return Ok(false);
        }
        tracing::debug!(error = %chain(error), %resource, "requesting plain JSON");
        lock(&self.only_json).insert((resource.list_path(None)?, requested.is_metadata_only()), Instant::now());
        Ok(true)
    }

    /// Returns what to do after an error.
    #[doc(hidden)]
    #[must_use]
    pub fn classify(&self, error: &Error) -> RetryAdvice {
        classify(error, self.was_reached.load(Ordering::Relaxed))
    }

    pub(super) fn tries(&self) -> Tries {
        Tries::new(self.retry, &self.totals)
    }

    /// Returns the waits between any number of retries.
    #[doc(hidden)]
    #[must_use]
    pub fn backoff(&self, max: Duration) -> ExponentialBackoff {
        self.retry.backoff(max)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("retry", &self.retry)
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}
