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
use crate::client::LONGEST;
use crate::client::error::{Error, ErrorKind};
use crate::client::list::Pages;
use crate::client::params::{ListParams, ResourceVersion, WatchStart};
use crate::client::retry::{Class, MAX_RETRY_AFTER, Retry, most_fruitless};
use crate::client::transport::{TransportErrorKind, chain};
use crate::decode::WatchEvent;
use crate::error::ItemError;
use crate::meta::EventType;
use crate::object::ItemRef;
use crate::object::version::is_older;

/// The longest wait before a connection, except for a server's `Retry-After`.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A connection that lived for this time resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

/// A connection without an event that ended before this time may have ended because its version has expired. client-go
/// uses the same time (`tools/cache/reflector.go`, `VeryShortWatchError`).
const AT_ONCE: Duration = Duration::from_secs(1);

/// The page size of a list that the server could not write within its request timeout; the same as client-go's (`tools/pager`).
pub const PAGE: u32 = 500;

/// A watch, as a stream over consecutive connections; see [`Client::watch`](crate::client::Client::watch).
///
/// Nothing is sent before it is polled: set it up before. [`open`](Self::open) uses one connection instead, which the
/// server ends after some minutes.
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
/// After that, changes are neither lost nor repeated nor reordered, whatever happens to connections. The watch resumes
/// when the server ends it, when the connection breaks or [is dead](Self::idle_timeout), and on 408, 429 and 5xx. It
/// resumes from the version of the last bookmark, or from the version before the last event, because further events may
/// have the version of that event. It drops the events that the server then repeats. It remembers hashes of up to
/// 65,536 events; if one version has more, events may be repeated. It also retries 401, 403, 404, unreadable
/// credentials and a proxy's page, with a warning in the log, because a role or a resource may be created later;
/// [`fail_fast`](Self::fail_fast) turns that off. Retries back off exponentially with jitter, from the
/// [`delay`](Retry::delay) of the client's [`Retry`] to 30 s (doubled at most by jitter), and wait at least the
/// server's `Retry-After`. A connection that lived for 10 s resets the backoff. A list in place of initial events is
/// requested at once. The number of retries is not limited.
///
/// The stream ends in an error that [is expired](Error::is_expired) when the server has forgotten the version, unless
/// it [starts over](Self::start_over). Some servers do not report that: so a version also counts as expired after 3
/// connections from it that ended within a second without an event, or after 8 that failed with 500 or 504 or broke
/// within a second ([`ErrorKind::NoProgress`]). The stream also ends in errors that no retry fixes: parameters that the
/// server refuses (400, 422), a malformed or oversized frame, an object that cannot be decoded.
/// [`resource_version`](Self::resource_version) is then before the event that failed.
///
/// An event may have an older version than earlier events, and a deletion may have none. It is delivered, and does not
/// change the version to resume from. A bookmark without a version, or with version 0, is ignored.
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
pub struct Connections {
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
    /// Sets the timeout for the initial events and the bookmark after them: 30 s unless set. After it the collection is
    /// listed instead.
    ///
    /// It limits the wait for each object, and for all of them together: each MiB that the server sends adds another
    /// timeout. So a huge collection has all the time that it needs, and single objects do not defer the timeout for
    /// ever. After the first change no object adds time, because the server has sent the whole collection by then. The
    /// time that the consumer takes does not count.
    ///
    /// Some servers and proxies never send that bookmark, and then only objects that are created later. After the
    /// bookmark [`idle_timeout`](Self::idle_timeout) applies.
    pub fn initial_events_timeout(mut self, timeout: Duration) -> Self {
        self.connections.run.initial_events_timeout = timeout.min(LONGEST);
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
    ///
    /// Several events may have the same version. Until an event of a newer version or a bookmark arrives, it is the
    /// version before the last event.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.connections.resource_version()
    }

    /// Returns the connections without a decoder.
    #[doc(hidden)]
    pub fn into_connections(self) -> Connections {
        self.connections
    }
}

impl Connections {
    pub(super) fn new(plan: Plan) -> Self {
        Self { run: Run::new(plan), state: State::Start }
    }

    /// Starts after a version that a server sent, in any form.
    pub fn after_version(mut self, version: String) -> Self {
        self.run.is_synced = true;
        self.run.delivered = Delivered::up_to(version);
        self
    }

    /// Returns true if a server has accepted the watch.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Watching(_))
    }

    /// As [`Watch::resource_version`].
    pub fn resource_version(&self) -> Option<&str> {
        self.run.version()
    }

    /// Returns the newest version that was delivered; `None` before the initial state is complete. Further events may
    /// have it.
    pub fn newest_version(&self) -> Option<&str> {
        self.run.version().map(|_| self.run.delivered.newest())
    }

    /// Returns the number of events, delivered or not, and of bookmarks that are not older.
    pub fn heard(&self) -> u64 {
        self.run.heard
    }

    /// Returns the next event, with the object decoded by `decode`. No event follows an error.
    pub fn advance<O, E: Into<ItemError>>(
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
                        run.delivered.complete(&version);
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
    /// The number of events of any kind, except bookmarks without a version and of older versions.
    heard: u64,
    /// `heard` at the end of the connection before.
    heard_before: u64,
    /// The number of connections since the version advanced that may have failed because it has expired.
    fruitless: u32,
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
            heard_before: 0,
            fruitless: 0,
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
        let version = self.delivered.resumes_from();
        (self.is_synced && !version.is_empty()).then_some(version)
    }

    fn opened(&mut self, mut connection: Connection) -> Connection {
        self.delivered.reconnected();
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
            if is_older(resource_version, self.delivered.newest()));
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
                    self.delivered.complete(resource_version);
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
                self.delivered.pass(version);
            }
            return Ok(None);
        }
        // The bookmark after the initial events has the version of all events before it.
        let fingerprint = self.is_synced.then(|| self.delivered.fingerprint(change, object, version)).flatten();
        if fingerprint.as_ref().is_some_and(|fingerprint| self.delivered.is_repeated(fingerprint)) {
            return Ok(None);
        }
        let object = decode(change, object).map_err(Into::into)?;
        if self.is_synced {
            self.delivered.deliver(fingerprint, version);
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
        self.delivered.complete(version);
        self.delivered.newest().to_owned()
    }

    /// Returns the wait before the next request after the end of a connection, or the error if it ends the stream.
    fn after(&mut self, ended: &State, error: Option<Error>) -> Result<Duration, Error> {
        let error = self.or_expired(ended, error).map(|error| error.with_items(self.delivered.events));
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
        let needs_plain_json = match (&error, connection) {
            (Some(error), Some(connection)) => {
                let Plan { client, resource, .. } = &self.plan;
                client.needs_plain_json(error, resource, &connection.requested)?
            }
            _ => false,
        };
        let falls_back = asks_initial_events && (is_refused || is_idle);
        if falls_back {
            self.lacks_initial_events = true;
            self.lists = true;
        } else if let Some(error) = &error
            && !needs_plain_json
            && !self.passes(error)
        {
            return Err(error.clone());
        } else if asks_initial_events
            && (class == Some(Class::Expired) || is_stalled || connection.is_some() && class != Some(Class::Lasting))
        {
            self.interruptions += 1;
            self.lists = self.interruptions >= 2;
        }
        let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
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

    /// Counts the connections that have brought nothing since the version advanced. After too many of them, the version
    /// counts as expired: returns that error, else the error of this connection.
    fn or_expired(&mut self, ended: &State, error: Option<Error>) -> Option<Error> {
        let lived = match ended {
            State::Watching(connection) => Some(connection.opened.elapsed()),
            State::Opening(_) => None,
            _ => return error,
        };
        let Some(version) = self.version().map(str::to_owned) else { return error };
        let has_heard = self.heard != mem::replace(&mut self.heard_before, self.heard);
        if has_heard || lived.is_some_and(|lived| lived >= HEALTHY) {
            self.fruitless = 0;
            return error;
        }
        let at_once = AT_ONCE.min(self.plan.params.timeout.unwrap_or(AT_ONCE) / 2);
        let Some(most) = most_fruitless(error.as_ref(), lived.is_some_and(|lived| lived < at_once)) else {
            return error;
        };
        self.fruitless += 1;
        if self.fruitless < most {
            return error;
        }
        let watches = mem::take(&mut self.fruitless);
        Some(Error::new(ErrorKind::NoProgress { resource_version: version, watches, last: error.map(Box::new) }))
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
        self.fruitless = 0;
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
