//! What follows the end of a connection of a watch.
//!
//! | state | next |
//! |---|---|
//! | `Start`, `Waiting` | `Locating`, `Opening` or `Listing`, as `WatchRun::request` decides |
//! | `Locating`, `Listing` | `Opening`; `Waiting` after an error |
//! | `Opening` | `Watching`; `Waiting` after an error |
//! | `Watching` | `Waiting` at its end and after an error |
//! | any | `Ended` after an error that no retry fixes |
//!
//! - A watch resumes only from a version whose events were all delivered; `delivered` decides which version that is.
//! - `WatchPhase` decides what is requested: initial events, a list, or changes. No other field repeats this.
//! - `classify` decides whether an error is retried. This file only turns the answer into a phase and a wait.
//! - `after` runs once for each end of a connection. The order of its steps matters:
//!   1. An end may prove that the version has expired. That error then replaces the connection's own.
//!   2. A connection that lived long enough resets the backoff, before the next wait is taken from it (`next_wait`).
//!   3. A refusal of initial events is not an error for the caller, because the collection is listed at once.
//!   4. Only then is the error classified, and the stream ends or retries.
//! - A server may end watches early and often, and each wait delays the changes meanwhile. A connection that lived for
//!   2 s and delivered is therefore replaced at once, and a shorter one after a second. Only failures, and connections
//!   that deliver nothing, lead to longer and longer waits.
//! - If the version before the newest has expired, the server may still know the newest: see `delivered`.
//! - A 406 changes the form of the request but not the phase. `Client::needs_plain_json` remembers it for all clones.
//! - A partial initial state is delivered again from its beginning, so the caller first receives `Reset`.
//! - `uses_pages` is not a phase, because the server's request timeout stays the same when the stream starts over.
//!
//! `tests/watch/model.rs` compares random servers with a model, and `tests/watch/resume.rs` tests single rules.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use tracing::field;

use super::connection::{Connection, Opening};
use super::delivered::Delivered;
use super::events::WatchEvent;
use super::plan::{Locating, WatchPhase, WatchPlan};
use crate::client::classify::{MAX_RETRY_AFTER, RetryAdvice, most_fruitless};
use crate::client::error::{Error, ErrorKind};
use crate::client::list::Pages;
use crate::client::outage::Outage;
use crate::client::params::{ListParams, ResourceVersion, WatchStart};
use crate::client::retry::{Retry, exponential};
use crate::client::transport::{TransportErrorKind, chain};
use crate::decode::WatchEventRef;
use crate::error::ItemError;
use crate::meta::EventType;
use crate::object::ItemRef;
use crate::object::version::is_older;
use crate::sync::{Mutex, lock};

/// The longest wait before a connection, except for a server's `Retry-After`.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A connection that lived this long resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

/// A connection is replaced at once if it lived this long and brought an event or a bookmark, or if it ended as
/// requested.
const STEADY: Duration = Duration::from_secs(2);

/// The longest wait in that case. It is random, so that a server that ends all watches does not receive all requests
/// together.
const AT_MOST: Duration = Duration::from_millis(200);

/// The shortest wait after a watch that the server ended sooner. client-go waits about as long
/// (`tools/cache/reflector.go`).
const AFTER_BRIEF: Duration = Duration::from_millis(800);

/// A connection without an event that ended sooner than this may have ended because its version has expired. client-go
/// uses the same time (`tools/cache/reflector.go`, `VeryShortWatchError`).
const AT_ONCE: Duration = Duration::from_secs(1);

/// The page size of a list that the server could not write within its request timeout. client-go uses the same
/// (`tools/pager`).
pub const PAGE: u32 = 500;

/// The default of [`Watch::initial_events_timeout`].
const DEFAULT_INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// The end of a connection, or a failed one, and the request that follows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Disconnect {
    /// The namespace, if the watch is limited to one or several.
    pub namespace: Option<String>,
    /// The error; `None` if the server ended the watch without one.
    pub error: Option<Error>,
    /// The version from which the watch resumes; `None` if it starts over with the collection or has no version yet.
    pub resource_version: Option<String>,
    /// True if the next request lists the collection instead of requesting initial events.
    pub lists: bool,
    /// The time until the next request. It is zero if a list replaces initial events that the server refused or did
    /// not end.
    pub wait: Duration,
}

/// The connection, or the steps before it.
pub(super) enum ConnectionState {
    Start,
    Locating(Locating),
    Waiting(Waiting),
    Opening(Opening),
    Watching(Box<Connection>),
    Listing(Box<Pages>),
    Ended,
}

/// The request after the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextRequest {
    /// A list in place of refused initial events.
    ListAtOnce,
    /// The same request for plain JSON.
    PlainJson,
    Retry {
        needs_repair: bool,
    },
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Shared by the watches of several namespaces, which one task polls.
pub(super) type OnDisconnect = Arc<Mutex<dyn FnMut(&Disconnect) + Send>>;

/// The progress of a watch, which chooses its next request.
pub(super) struct WatchRun {
    pub(super) plan: WatchPlan,
    pub(super) initial_events_timeout: Duration,
    pub(super) on_disconnect: Option<OnDisconnect>,
    /// True if errors that somebody must repair outside of the client end the stream.
    pub(super) fails_fast: bool,
    /// True if an expired version does not end the stream.
    pub(super) starts_over: bool,
    pub(super) phase: WatchPhase,
    pub(super) delivered: Delivered,
    pub(super) received: ReceivedEvents,
    /// True if lists use pages, because the server could not write a list within its request timeout.
    uses_pages: bool,
    /// The longest time between two bookmarks of any connection.
    gap: Option<Duration>,
    /// The waits after failures.
    backoff: ExponentialBackoff,
    /// The waits after watches that the server ended early.
    brief: ExponentialBackoff,
    /// How many events were received and delivered when the connection began.
    before: (u64, u64),
    pub(super) outage: Arc<Outage>,
    /// How many requests were sent, without retries of a list's pages.
    pub(super) requests: u64,
}

/// Counts events of any kind, except bookmarks that are older or have no version.
#[derive(Default)]
pub(super) struct ReceivedEvents {
    pub(super) all: u64,
    /// The value of `all` at the end of the previous connection.
    before: u64,
}

impl ReceivedEvents {
    /// Ends a connection. Returns true if an event was received since the previous end.
    fn end_connection(&mut self) -> bool {
        self.all != mem::replace(&mut self.before, self.all)
    }
}

impl WatchRun {
    pub(super) fn new(plan: WatchPlan) -> Self {
        let (phase, version) = match &plan.params.start {
            WatchStart::Now => (WatchPhase::of_changes(), String::new()),
            WatchStart::Version(version) => (WatchPhase::of_changes(), version.clone()),
            WatchStart::State(_) => (WatchPhase::of_initial_state(), String::new()),
        };
        Self {
            initial_events_timeout: DEFAULT_INITIAL_EVENTS_TIMEOUT,
            on_disconnect: None,
            fails_fast: false,
            starts_over: false,
            phase,
            delivered: Delivered::up_to(version),
            received: ReceivedEvents::default(),
            uses_pages: false,
            gap: None,
            backoff: plan.client.backoff(MAX_DELAY),
            brief: exponential(AFTER_BRIEF, MAX_DELAY),
            before: (0, 0),
            outage: plan.client.outage(&plan.resource),
            requests: 0,
            plan,
        }
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> Self {
        Self {
            initial_events_timeout: self.initial_events_timeout,
            on_disconnect: self.on_disconnect.clone(),
            fails_fast: self.fails_fast,
            starts_over: self.starts_over,
            ..Self::new(self.plan.of_namespace(namespace))
        }
    }

    pub(super) fn start(&mut self) -> Result<ConnectionState, Error> {
        self.plan.validate()?;
        self.request()
    }

    pub(super) fn start_after(&mut self, version: &str) -> Result<ConnectionState, Error> {
        self.delivered.complete_version(version);
        self.request()
    }

    pub(super) fn request(&mut self) -> Result<ConnectionState, Error> {
        self.requests += 1;
        let WatchPlan { client, resource, params, .. } = &self.plan;
        if self.phase.is_initial_events() && !client.has_initial_events(resource)? {
            self.phase.list_instead(false);
        }
        Ok(match self.phase {
            WatchPhase::InitialEvents { .. } => ConnectionState::Opening(self.plan.open(&params.start, self.gap)?),
            WatchPhase::InitialList { .. } => ConnectionState::Listing(Box::new(self.list())),
            WatchPhase::Changes { .. } => match self.version() {
                // `after` retries this request.
                None => ConnectionState::Locating(self.plan.locate(&client.clone().retry(Retry::never()))),
                Some(version) => {
                    ConnectionState::Opening(self.plan.open(&WatchStart::Version(version.to_owned()), self.gap)?)
                }
            },
        })
    }

    fn list(&self) -> Pages {
        let WatchPlan { client, resource, params, namespace, limits, span, .. } = &self.plan;
        let mut list = ListParams::new(params.selection.clone());
        if let WatchStart::State(version) = &params.start {
            list = list.resource_version(version.clone());
        }
        // The list itself retries an interrupted page. `after` retries a list without pages.
        let (client, list) = if self.uses_pages {
            (client.clone(), list.page_size(PAGE))
        } else {
            (client.clone().retry(Retry::never()), list)
        };
        let list = span.in_scope(|| client.list::<[u8]>(resource, &list)).limits(*limits);
        let list = match namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        };
        list.accept_versions().into_pages()
    }

    pub(super) fn version(&self) -> Option<&str> {
        let version = self.delivered.resumes_from();
        (self.phase.is_synced() && !version.is_empty()).then_some(version)
    }

    pub(super) fn begin_connection(&mut self, mut connection: Connection) -> Connection {
        self.delivered.begin_connection();
        self.before = (self.received.all, self.delivered.events);
        if self.phase.is_synced() {
            self.outage.succeed();
        } else {
            connection.idle.expect_initial_events(Some(self.initial_events_timeout));
        }
        connection
    }

    /// Returns the event for the consumer; `None` for a bookmark, an object of another shard, and a repeated event.
    pub(super) fn event<O, E: Into<ItemError>>(
        &mut self,
        event: WatchEventRef<'_>,
        is_in_shard: bool,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Result<Option<WatchEvent<O>>, ItemError> {
        let is_synced = self.phase.is_synced();
        // A bookmark of an older version means that the server went back, not that the watch is up to date.
        let went_back = matches!(&event, WatchEventRef::Bookmark { resource_version, .. }
            if is_older(resource_version, self.delivered.newest()));
        self.received.all += u64::from(!went_back);
        let (object, version, change, made): (_, _, _, fn(O) -> WatchEvent<O>) = match event {
            WatchEventRef::Added { object, resource_version } => {
                (object, resource_version, EventType::Added, WatchEvent::Added)
            }
            WatchEventRef::Modified { object, resource_version } => {
                (object, resource_version, EventType::Modified, WatchEvent::Modified)
            }
            WatchEventRef::Deleted { object, resource_version } => {
                (object, resource_version, EventType::Deleted, WatchEvent::Deleted)
            }
            WatchEventRef::Bookmark { resource_version, ends_initial_events } => {
                if is_synced {
                    self.delivered.complete_version(resource_version);
                } else if ends_initial_events {
                    let resource_version = self.complete_initial_state(resource_version);
                    return Ok(Some(WatchEvent::Synced { resource_version }));
                }
                return Ok(None);
            }
            WatchEventRef::Error(_) => return Ok(None),
        };
        if !is_in_shard {
            if is_synced {
                self.delivered.record_other_shard(change, version);
            }
            return Ok(None);
        }
        // The bookmark after the initial events has the version of all events before it.
        let fingerprint = is_synced.then(|| self.delivered.fingerprint(change, object, version)).flatten();
        if fingerprint.as_ref().is_some_and(|fingerprint| self.delivered.is_repeated(fingerprint)) {
            return Ok(None);
        }
        let object = decode(change, object).map_err(Into::into)?;
        if is_synced {
            self.delivered.record_event(fingerprint, change, version);
        }
        self.delivered.events += 1;
        self.plan.client.totals.event();
        self.phase.record_delivery();
        Ok(Some(made(object)))
    }

    /// Records that the initial state was delivered, at this version.
    pub(super) fn complete_initial_state(&mut self, version: &str) -> String {
        self.phase = WatchPhase::of_changes();
        self.delivered.complete_version(version);
        self.outage.succeed();
        self.delivered.newest().to_owned()
    }

    pub(super) fn record_listed(&mut self) {
        self.delivered.events += 1;
        self.phase.record_delivery();
    }

    pub(super) fn complete_list(&mut self, version: &str) -> Result<String, Error> {
        let replaces_refused = matches!(self.phase, WatchPhase::InitialList { replaces_refused: true, .. });
        let version = self.complete_initial_state(version);
        if replaces_refused {
            self.plan.client.set_without_initial_events(&self.plan.resource)?;
        }
        Ok(version)
    }

    /// Returns the wait before the request that follows the end of a connection, or the error if it ends the stream.
    pub(super) fn after(&mut self, ended: &ConnectionState, error: Option<Error>) -> Result<Duration, Error> {
        let error = self.or_expired(ended, error).map(|error| error.with_items(self.delivered.events));
        let connection = match ended {
            ConnectionState::Watching(connection) => Some(&**connection),
            _ => None,
        };
        let is_stalled = error.as_ref().is_some_and(is_stalled);
        if let Some(connection) = connection {
            // A server may have stopped sending bookmarks.
            self.gap = if is_stalled { None } else { connection.idle.gap() };
        }
        let is_refused = error.as_ref().is_some_and(|error| matches!(error.code(), Some(400 | 422)));
        let is_unended = connection.is_some() && is_stalled;
        let lists_at_once = self.phase.is_initial_events() && (is_refused || is_unended);
        let wait = if lists_at_once { Duration::ZERO } else { self.next_wait(connection, error.as_ref()) };
        let advice = error.as_ref().map(|error| self.plan.client.classify(error));
        let needs_plain_json = match (&error, connection) {
            (Some(error), Some(connection)) => {
                let WatchPlan { client, resource, .. } = &self.plan;
                client.needs_plain_json(error, resource, &connection.requested)?
            }
            _ => false,
        };
        if lists_at_once {
            self.phase.list_instead(true);
        } else {
            let interrupts = advice == Some(RetryAdvice::StartOver)
                || is_stalled
                || connection.is_some() && advice != Some(RetryAdvice::RetryAfterRepair);
            let is_interrupted = self.phase.is_initial_events() && interrupts;
            if let Some(error) = &error
                && !needs_plain_json
                && !self.prepare_retry(error, connection.is_some())
            {
                return Err(error.clone());
            }
            if is_interrupted {
                self.phase.count_interruption();
            }
        }
        let next = match advice {
            _ if lists_at_once => NextRequest::ListAtOnce,
            _ if needs_plain_json => NextRequest::PlainJson,
            advice => NextRequest::Retry { needs_repair: advice == Some(RetryAdvice::RetryAfterRepair) },
        };
        Ok(self.disconnect(error, wait, next))
    }

    /// Returns the wait after a connection, or after a request without one.
    fn next_wait(&mut self, connection: Option<&Connection>, error: Option<&Error>) -> Duration {
        let lived = connection.map_or(Duration::ZERO, |connection| connection.opened.elapsed());
        let ended = connection.filter(|_| error.is_none() && self.phase.is_synced());
        let (received, delivered) = self.before;
        let has_received = self.phase.is_synced() && self.received.all != received;
        let has_delivered = self.phase.is_synced() && self.delivered.events != delivered;
        let is_steady = lived >= STEADY && has_received && error.is_none_or(is_break)
            || ended.is_some_and(|connection| lived >= connection.timeout.mul_f32(0.9));
        if is_steady || lived >= HEALTHY {
            self.backoff = self.plan.client.backoff(MAX_DELAY);
        }
        if is_steady || has_delivered || lived >= HEALTHY {
            self.brief = exponential(AFTER_BRIEF, MAX_DELAY);
        }
        if is_steady {
            AT_MOST.mul_f32(fastrand::f32())
        } else if ended.is_none() {
            self.backoff.next().unwrap_or(MAX_DELAY)
        } else {
            let wait = self.brief.next().unwrap_or(MAX_DELAY);
            // In a quiet collection, a change must not wait much longer than the watches live.
            if lived >= STEADY { wait.min(lived) } else { wait }
        }
    }

    /// Reports the end of a connection, and returns the wait before the next request.
    fn disconnect(&mut self, error: Option<Error>, wait: Duration, next: NextRequest) -> Duration {
        let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
        let wait = if next == NextRequest::ListAtOnce { wait } else { wait.max(asked) };
        if !self.phase.is_synced() {
            self.delivered.forget_versions();
        }
        let resource_version = self.version().map(str::to_owned);
        let namespace = self.plan.namespace.clone();
        let disconnect = Disconnect { namespace, resource_version, lists: self.phase.is_list(), wait, error };
        let Disconnect { error, resource_version, .. } = &disconnect;
        if error.is_some() {
            self.plan.client.totals.retry();
        }
        self.plan.span.in_scope(|| {
            if let (Some(error), NextRequest::Retry { needs_repair }) = (error, next) {
                self.outage.fail(error, wait, needs_repair);
            }
            let error = error.as_ref().map(|error| field::display(chain(error)));
            let WatchPlan { client, resource, .. } = &self.plan;
            if next == NextRequest::ListAtOnce && client.warnings.admit(("listwatch.resume", resource)).is_some() {
                tracing::warn!(name: "listwatch.resume", error, resource_version, "the server does not send the initial events: listing the collection");
            } else {
                let wait = wait.as_secs_f64();
                tracing::debug!(name: "listwatch.resume", error, resource_version, "resuming in {wait:.1} s");
            }
        });
        if let Some(on_disconnect) = &self.on_disconnect {
            lock(on_disconnect)(&disconnect);
        }
        wait
    }

    /// Counts the connections that have brought nothing since the version advanced. After too many of them the version
    /// counts as expired, and that error replaces the error of this connection.
    fn or_expired(&mut self, ended: &ConnectionState, error: Option<Error>) -> Option<Error> {
        let lived = match ended {
            ConnectionState::Watching(connection) => Some(connection.opened.elapsed()),
            ConnectionState::Opening(_) => None,
            _ => return error,
        };
        let Some(version) = self.version().map(str::to_owned) else { return error };
        let WatchPhase::Changes { fruitless } = &mut self.phase else { return error };
        if self.received.end_connection() || lived.is_some_and(|lived| lived >= HEALTHY) {
            *fruitless = 0;
            return error;
        }
        let at_once = AT_ONCE.min(self.plan.params.timeout.unwrap_or(AT_ONCE) / 2);
        let Some(most) = most_fruitless(error.as_ref(), lived.is_some_and(|lived| lived < at_once)) else {
            return error;
        };
        *fruitless += 1;
        if *fruitless < most {
            return error;
        }
        let watches = mem::take(fruitless);
        Some(Error::new(ErrorKind::NoProgress { resource_version: version, watches, last: error.map(Box::new) }))
    }

    /// Returns true if a retry may help, and prepares it.
    fn prepare_retry(&mut self, error: &Error, was_open: bool) -> bool {
        match (self.plan.client.classify(error), error.kind()) {
            // A page is short enough for the request timeout.
            (_, ErrorKind::Incomplete { request_timeout: Some(_), .. }) => self.uses_pages = true,
            (RetryAdvice::Retry, _) => {}
            (RetryAdvice::RetryAfterRepair, _) if !self.fails_fast => {}
            (RetryAdvice::StartOver, _) if !self.phase.is_synced() => {}
            (RetryAdvice::StartOver, _)
                if !(was_open && self.delivered.has_advanced()) && self.delivered.resume_from_newest() => {}
            (RetryAdvice::StartOver, _) if self.starts_over => self.start_over(),
            _ => return false,
        }
        true
    }

    fn start_over(&mut self) {
        self.phase.start_over();
        self.start_with_state();
        self.plan.client.totals.restart();
    }

    /// Starts over with the collection, after the caller has discarded the objects.
    pub(super) fn restart(&mut self) {
        self.phase.restart();
        self.start_with_state();
        self.delivered.forget_versions();
    }

    fn start_with_state(&mut self) {
        if !matches!(self.plan.params.start, WatchStart::State(_)) {
            self.plan.params.start = WatchStart::State(ResourceVersion::MostRecent);
        }
    }
}

/// Returns true if the connection broke, as when a proxy or a server restarts.
fn is_break(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Transport(error) => error.kind() == TransportErrorKind::Broken,
        ErrorKind::Decode(error) => error.is_incomplete(),
        _ => false,
    }
}

fn is_stalled(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Transport(error) if error.kind() == TransportErrorKind::ReadIdle)
}
