//! A watch that resumes after each connection.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backon::ExponentialBackoff;
use futures_core::Stream;
use tokio::time::{Sleep, sleep};
use tracing::field;

use super::delivered::Delivered;
use super::{Connection, Locating, Opening, OwnedEvent, Plan};
use crate::client::error::{Error, ErrorKind};
use crate::client::list::Pages;
use crate::client::params::{ListParams, ResourceVersion, WatchStart};
use crate::client::retry::{Class, Retry};
use crate::client::transport::{TransportErrorKind, chain};
use crate::decode::WatchEvent;
use crate::encode::EventType;
use crate::error::ItemError;
use crate::object::{ItemRef, is_older};

/// The longest wait before a connection, except for a server's `Retry-After`.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A connection that lived for this time resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

/// The page size of a list that the server could not write within its request timeout; the same as client-go's (`tools/pager`).
pub(crate) const PAGE: u32 = 500;

/// A watch, as a stream over consecutive connections; see [`Client::watch`](crate::client::Client::watch).
///
/// Nothing is sent before it is polled: set it up before. [`once`](Self::once) and [`open`](Self::open) use one connection instead,
/// which the server ends after some minutes.
///
/// From [`WatchParams::from_version`](crate::client::WatchParams::from_version) and
/// [`WatchParams::from_now`](crate::client::WatchParams::from_now) it delivers changes. From
/// [`WatchParams::with_initial_state`](crate::client::WatchParams::with_initial_state) it delivers the collection first: each object
/// as [`OwnedEvent::Added`], then [`OwnedEvent::Synced`], then changes.
///
/// It requests the collection as initial events of the watch. It lists the collection if the server refuses initial events,
/// interrupts them twice, or does not end them ([`initial_events_timeout`](Self::initial_events_timeout)). Once a list has
/// succeeded after refused or endless initial events, the [`Client`](crate::client::Client) and its clones list this resource
/// for an hour. If the initial state is interrupted, or its version expires, the stream starts over with [`OwnedEvent::Reset`].
/// If the server's request timeout interrupted a list, the next list uses pages of 500.
///
/// After that, changes are neither lost nor repeated nor reordered, whatever happens to connections. The watch resumes from the
/// version of the last event or of a later bookmark when the server ends it, when the connection breaks or [is
/// dead](Self::idle_timeout), and on 408, 429 and 5xx. It also retries 401, 403, 404, unreadable credentials and a
/// proxy's page, with a warning in the log, because a role or a resource may be created later;
/// [`fail_fast`](Self::fail_fast) turns that off. Retries back off exponentially with jitter, from the
/// [`delay`](Retry::delay) of the client's [`Retry`] to 30 s (doubled at most by jitter), and wait at least the server's
/// `Retry-After`. A connection that lived for 10 s resets the backoff. A list in place of initial events is requested at once.
/// The number of retries is not limited.
///
/// The stream ends in an error that [is expired](Error::is_expired) when the server has forgotten the version, unless it
/// [starts over](Self::start_over). It also ends in errors that no retry fixes: parameters that the server refuses (400, 422), a
/// malformed or oversized frame, an object that cannot be decoded. [`resource_version`](Self::resource_version) is then before the
/// event that failed.
///
/// Events whose versions do not [compare](crate::compare_resource_versions) are all delivered. A deletion may have an older version
/// than earlier events, so the stream remembers hashes of the last 1,024 deletions, and of all since the version advanced.
///
/// ```no_run
/// use futures::TryStreamExt;
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::client::{Client, OwnedEvent, Resource, WatchParams};
///
/// # async fn run(client: Client) -> Result<(), listwatch::client::Error> {
/// let mut pods = client.watch::<Pod>(&Resource::PODS, &WatchParams::with_initial_state());
/// while let Some(event) = pods.try_next().await? {
///     match event {
///         OwnedEvent::Added(pod) | OwnedEvent::Modified(pod) => println!("{:?} exists", pod.metadata),
///         OwnedEvent::Deleted(pod) => println!("{:?} was deleted", pod.metadata),
///         OwnedEvent::Synced { resource_version } => println!("the initial state is complete at {resource_version}"),
///         OwnedEvent::Reset => println!("discard all objects: the stream starts over"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until it is polled"]
pub struct Watch<F> {
    pub(super) connections: Connections,
    pub(super) decode: F,
}

/// No field is pinned.
impl<F> Unpin for Watch<F> {}

/// A connection that ended or failed, and the next request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Disconnect {
    /// The error; `None` if the server ended the watch without an error.
    pub error: Option<Error>,
    /// The version from which the watch resumes; `None` when it starts over with the collection, or has no version yet.
    pub resource_version: Option<String>,
    /// True if the next request is a list of the collection instead of initial events.
    pub lists: bool,
    /// The time until the next request.
    pub wait: Duration,
}

/// The connections of a watch, without a decoder of its objects.
pub(crate) struct Connections {
    pub(super) run: Run,
    state: State,
}

/// | state | next |
/// |---|---|
/// | `Start`, `Waiting` | `Locating`, `Opening` or `Listing`, as `Run::request` decides |
/// | `Locating`, `Listing` | `Opening`; `Waiting` after an error |
/// | `Opening` | `Watching`; `Waiting` after an error |
/// | `Watching` | `Waiting` at its end and after an error |
/// | any | `Ended` after an error that no retry fixes |
enum State {
    Start,
    Locating(Locating),
    Waiting(Pin<Box<Sleep>>),
    Opening(Opening),
    Watching(Box<Connection>),
    Listing(Box<Pages>),
    Ended,
}

/// The default of [`Watch::initial_events_timeout`].
const DEFAULT_INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(30);

impl<F> Watch<F> {
    /// Sets the timeout for each initial event, and for the bookmark after them: 30 s unless set. After it the collection is listed
    /// instead.
    ///
    /// Some servers and proxies never send that bookmark. The time that the consumer takes does not count. After the bookmark
    /// [`idle_timeout`](Self::idle_timeout) applies.
    pub fn initial_events_timeout(mut self, timeout: Duration) -> Self {
        self.connections.run.initial_events_timeout = timeout;
        self
    }

    /// Ends in an error on 401, 403, 404, unreadable credentials and a proxy's page, instead of retrying.
    pub fn fail_fast(mut self) -> Self {
        self.connections.run.fails_fast = true;
        self
    }

    /// Starts over with the collection when the server has forgotten the version (410), instead of ending in an error.
    ///
    /// The stream then delivers [`OwnedEvent::Reset`] and the collection. Changes in between are lost: an object that was
    /// deleted is missing from the collection, without an [`OwnedEvent::Deleted`].
    pub fn start_over(mut self) -> Self {
        self.connections.run.starts_over = true;
        self
    }

    /// Sets a function that is called after a connection ended or failed, before the wait for the next connection.
    pub fn on_disconnect(mut self, on_disconnect: impl FnMut(&Disconnect) + Send + 'static) -> Self {
        self.connections.run.on_disconnect = Some(Box::new(on_disconnect));
        self
    }

    /// Returns the version up to which all events were delivered, from which another watch can resume; `None` before the first
    /// [`OwnedEvent::Synced`].
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.connections.resource_version()
    }

    /// Returns the connections without a decoder.
    #[cfg(feature = "cache")]
    pub(crate) fn into_connections(self) -> Connections {
        self.connections
    }
}

impl Connections {
    pub(super) fn new(plan: Plan) -> Self {
        Self { run: Run::new(plan), state: State::Start }
    }

    /// Starts after a version that a server sent, in any form.
    #[cfg(feature = "cache")]
    pub(crate) fn after_version(mut self, version: String) -> Self {
        self.run.is_synced = true;
        self.run.delivered.version = version;
        self
    }

    /// Returns true if a server has accepted the watch.
    #[cfg(feature = "cache")]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Watching(_))
    }

    /// As [`Watch::resource_version`].
    pub(crate) fn resource_version(&self) -> Option<&str> {
        self.run.version()
    }

    /// Returns the number of events, delivered or not, and of bookmarks that are not older.
    #[cfg(feature = "cache")]
    pub(crate) fn heard(&self) -> u64 {
        self.run.heard
    }

    /// Returns the next event, with the object decoded by `decode`. No event follows an error.
    pub(crate) fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        let next = ready!(self.try_advance(cx, decode));
        if next.is_err() {
            self.state = State::Ended;
        }
        Poll::Ready(next)
    }

    fn try_advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        let Self { run, state } = self;
        loop {
            let ended = match state {
                State::Start => {
                    run.plan.validate()?;
                    *state = run.request()?;
                    continue;
                }
                State::Waiting(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    *state = run.request()?;
                    continue;
                }
                State::Locating(locating) => match ready!(locating.as_mut().poll(cx)) {
                    Ok(version) => {
                        run.delivered.version = version;
                        *state = run.request()?;
                        continue;
                    }
                    Err(error) => Some(error),
                },
                State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(connection) => {
                        *state = State::Watching(Box::new(run.opened(connection)));
                        continue;
                    }
                    Err(error) => Some(error),
                },
                State::Watching(connection) => {
                    let next = connection.next(cx, &mut |event, is_in_shard| run.event(event, is_in_shard, decode));
                    match ready!(next) {
                        Ok(Some(event)) => {
                            if let OwnedEvent::Synced { .. } = event {
                                connection.idle.expect_initial_events(None);
                            }
                            return Poll::Ready(Ok(Some(event)));
                        }
                        Ok(None) => None,
                        Err(error) => Some(error),
                    }
                }
                State::Listing(pages) => match ready!(pages.advance(cx, &mut |item| decode(EventType::Added, item))) {
                    Ok(Some(item)) => {
                        run.delivered.events += 1;
                        run.has_begun = true;
                        return Poll::Ready(Ok(Some(OwnedEvent::Added(item))));
                    }
                    Ok(None) => {
                        let resource_version = run.synced(&pages.version()?);
                        if mem::take(&mut run.lacks_initial_events) {
                            run.plan.client.set_without_initial_events(&run.plan.resource)?;
                        }
                        *state = run.request()?;
                        return Poll::Ready(Ok(Some(OwnedEvent::Synced { resource_version })));
                    }
                    Err(error) => Some(error),
                },
                State::Ended => return Poll::Ready(Ok(None)),
            };
            let wait = run.after(state, ended)?;
            *state = State::Waiting(Box::pin(sleep(wait)));
            if mem::take(&mut run.has_begun) {
                return Poll::Ready(Ok(Some(OwnedEvent::Reset)));
            }
        }
    }
}

impl<F, O, E> Stream for Watch<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<OwnedEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { connections, decode } = &mut *self;
        connections.advance(cx, &mut |_, item| decode(item)).map(Result::transpose)
    }
}

impl<F> fmt::Debug for Watch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("resource", &self.connections.run.plan.resource)
            .field("resource_version", &self.resource_version())
            .field("delivered", &self.connections.run.delivered.events)
            .finish_non_exhaustive()
    }
}

type OnDisconnect = Box<dyn FnMut(&Disconnect) + Send>;

/// The progress of a watch, and the choice of its next request.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct Run {
    pub(super) plan: Plan,
    initial_events_timeout: Duration,
    on_disconnect: Option<OnDisconnect>,
    delivered: Delivered,
    /// The number of events of any kind, except bookmarks of older versions.
    heard: u64,
    /// True if the initial state was delivered, or the watch began without it. From then on events are in order.
    is_synced: bool,
    /// True if a part of the initial state was delivered.
    has_begun: bool,
    /// True if the initial state is listed.
    lists: bool,
    /// True if the list uses pages.
    pages: bool,
    /// The number of consecutive interruptions of initial events.
    interruptions: u32,
    /// True if the server refused the initial events or did not end them, and no list has succeeded since.
    lacks_initial_events: bool,
    /// True if lasting errors end the stream.
    fails_fast: bool,
    /// True if an expired version does not end the stream.
    starts_over: bool,
    /// The longest time between two bookmarks of any connection.
    gap: Option<Duration>,
    backoff: ExponentialBackoff,
}

impl Run {
    fn new(plan: Plan) -> Self {
        let (is_synced, version) = match &plan.params.start {
            WatchStart::Now => (true, String::new()),
            WatchStart::Version(version) => (true, version.clone()),
            WatchStart::State(_) => (false, String::new()),
        };
        Self {
            initial_events_timeout: DEFAULT_INITIAL_EVENTS_TIMEOUT,
            on_disconnect: None,
            is_synced,
            delivered: Delivered::up_to(version),
            heard: 0,
            has_begun: false,
            lists: false,
            pages: false,
            interruptions: 0,
            lacks_initial_events: false,
            fails_fast: false,
            starts_over: false,
            gap: None,
            backoff: plan.client.backoff(MAX_DELAY),
            plan,
        }
    }

    fn request(&mut self) -> Result<State, Error> {
        let Plan { client, resource, params, namespace, limits, span, .. } = &self.plan;
        // `after` retries these requests.
        let once = || client.clone().retry(Retry::never());
        if self.is_synced {
            return Ok(match self.version() {
                None => State::Locating(self.plan.locate(&once())),
                Some(version) => State::Opening(self.plan.open(&WatchStart::Version(version.to_owned()), self.gap)?),
            });
        }
        self.lists |= !client.has_initial_events(resource)?;
        if !self.lists {
            return Ok(State::Opening(self.plan.open(&params.start, self.gap)?));
        }
        let mut list = ListParams::new(params.selection.clone());
        if let WatchStart::State(version) = &params.start {
            list = list.resource_version(version.clone());
        }
        // The list retries an interrupted page.
        let (client, list) = if self.pages { (client.clone(), list.page_size(PAGE)) } else { (once(), list) };
        let list = span.in_scope(|| client.list::<[u8]>(resource, &list)).limits(*limits);
        let list = match namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        };
        Ok(State::Listing(Box::new(list.into_pages())))
    }

    /// Returns the version from which the watch resumes.
    fn version(&self) -> Option<&str> {
        let version = &*self.delivered.version;
        (self.is_synced && !version.is_empty()).then_some(version)
    }

    fn opened(&self, mut connection: Connection) -> Connection {
        if !self.is_synced {
            connection.idle.expect_initial_events(Some(self.initial_events_timeout));
        }
        connection
    }

    /// Returns the event for the consumer; `None` for a bookmark, an object of another shard, and an event that was delivered.
    fn event<O, E: Into<ItemError>>(
        &mut self,
        event: WatchEvent<'_>,
        is_in_shard: bool,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Result<Option<OwnedEvent<O>>, ItemError> {
        // A bookmark of an older version means that the server went back, not that the watch is up to date.
        let went_back = matches!(&event, WatchEvent::Bookmark { resource_version, .. }
            if is_older(resource_version, &self.delivered.version));
        self.heard += u64::from(!went_back);
        let (object, version, change, made): (_, _, _, fn(O) -> OwnedEvent<O>) = match event {
            WatchEvent::Added { object, resource_version } => {
                (object, resource_version, EventType::Added, OwnedEvent::Added)
            }
            WatchEvent::Modified { object, resource_version } => {
                (object, resource_version, EventType::Modified, OwnedEvent::Modified)
            }
            WatchEvent::Deleted { object, resource_version } => {
                (object, resource_version, EventType::Deleted, OwnedEvent::Deleted)
            }
            WatchEvent::Bookmark { resource_version, ends_initial_events } => {
                if self.is_synced {
                    self.delivered.advance(resource_version);
                } else if ends_initial_events {
                    let resource_version = self.synced(resource_version);
                    return Ok(Some(OwnedEvent::Synced { resource_version }));
                }
                return Ok(None);
            }
            WatchEvent::Error(_) => return Ok(None),
        };
        if !is_in_shard {
            if self.is_synced {
                self.delivered.advance(version);
            }
            return Ok(None);
        }
        let is_initial = !self.is_synced && change == EventType::Added;
        let deletion = (change == EventType::Deleted).then(|| self.delivered.deletion(object, version)).transpose()?;
        if !is_initial && self.delivered.has(version, deletion) {
            return Ok(None);
        }
        let object = decode(change, object).map_err(Into::into)?;
        // Initial events have no order, and a deletion may have any version.
        if self.is_synced || change == EventType::Modified {
            self.delivered.advance(version);
        }
        if let Some(deletion) = deletion {
            self.delivered.remember(deletion);
        }
        self.delivered.events += 1;
        self.plan.client.totals.event();
        self.has_begun = !self.is_synced;
        Ok(Some(made(object)))
    }

    /// Records that the initial state was delivered, at this version.
    fn synced(&mut self, version: &str) -> String {
        self.is_synced = true;
        self.has_begun = false;
        self.delivered.advance(version);
        self.delivered.version.clone()
    }

    /// Returns the wait before the next request after the end of a connection, or the error if it ends the stream.
    fn after(&mut self, ended: &State, error: Option<Error>) -> Result<Duration, Error> {
        let error = error.map(|error| error.with_items(self.delivered.events));
        let connection = match ended {
            State::Watching(connection) => Some(connection),
            _ => None,
        };
        let is_stalled = error.as_ref().is_some_and(is_stalled);
        let is_idle = connection.is_some() && is_stalled;
        if let Some(connection) = connection {
            // A server may have stopped sending bookmarks.
            self.gap = if is_idle { None } else { connection.idle.gap() };
            // Events do not reset the backoff: otherwise the client would send requests without a pause to a server that ends each
            // connection after one event.
            if connection.answer.started.elapsed() >= HEALTHY {
                self.backoff = self.plan.client.backoff(MAX_DELAY);
            }
        }
        let asks_initial_events = !self.is_synced && !self.lists;
        let is_refused = error.as_ref().is_some_and(|error| matches!(error.code(), Some(400 | 422)));
        let class = error.as_ref().map(|error| self.plan.client.classify(error));
        let falls_back = asks_initial_events && (is_refused || is_idle);
        if falls_back {
            self.lacks_initial_events = true;
            self.lists = true;
        } else if let Some(error) = &error
            && !self.passes(error)
        {
            return Err(error.clone());
        } else if asks_initial_events
            && (class == Some(Class::Expired) || is_stalled || connection.is_some() && class != Some(Class::Lasting))
        {
            self.interruptions += 1;
            self.lists = self.interruptions >= 2;
        }
        let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default();
        let wait = if falls_back { Duration::ZERO } else { self.backoff.next().unwrap_or(MAX_DELAY).max(asked) };
        if !self.is_synced {
            self.delivered.forget();
        }
        let disconnect = Disconnect {
            resource_version: self.version().map(str::to_owned),
            lists: self.lists && !self.is_synced,
            wait,
            error,
        };
        let Disconnect { error, resource_version, .. } = &disconnect;
        let error = error.as_ref().map(|error| field::display(chain(error)));
        if error.is_some() {
            self.plan.client.totals.retry();
        }
        self.plan.span.in_scope(|| {
            let wait = wait.as_secs_f64();
            if falls_back {
                tracing::warn!(name: "listwatch.resume", error, resource_version, "the server does not send the initial events: listing the collection");
            } else if class == Some(Class::Lasting) {
                tracing::warn!(name: "listwatch.resume", error, resource_version, "retrying in {wait:.1} s");
            } else {
                tracing::debug!(name: "listwatch.resume", error, resource_version, "resuming in {wait:.1} s");
            }
        });
        if let Some(on_disconnect) = &mut self.on_disconnect {
            on_disconnect(&disconnect);
        }
        Ok(wait)
    }

    /// Returns true if a retry may help, and prepares it.
    fn passes(&mut self, error: &Error) -> bool {
        match (self.plan.client.classify(error), error.kind()) {
            // A page is short enough for the request timeout.
            (_, ErrorKind::Incomplete { request_timeout: Some(_), .. }) => self.pages = true,
            (Class::Transient, _) => {}
            (Class::Lasting, _) if !self.fails_fast => {}
            (Class::Expired, _) if !self.is_synced => {}
            (Class::Expired, _) if self.starts_over => self.begin_again(),
            _ => return false,
        }
        true
    }

    /// Starts over with the collection.
    fn begin_again(&mut self) {
        self.is_synced = false;
        self.has_begun = true;
        self.lists = false;
        self.interruptions = 0;
        if !matches!(self.plan.params.start, WatchStart::State(_)) {
            self.plan.params.start = WatchStart::State(ResourceVersion::MostRecent);
        }
        self.plan.client.totals.restart();
    }
}

fn is_stalled(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Transport(error) if error.kind() == TransportErrorKind::ReadIdle)
}
