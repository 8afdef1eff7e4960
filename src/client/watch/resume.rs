//! A watch that goes on where its connections end.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backon::ExponentialBackoff;
use futures_core::Stream;
use tokio::time::{Sleep, sleep};
use tracing::field;

use super::{Connection, Opening, OwnedEvent, Plan};
use crate::adapt::FromRef;
use crate::client::error::{Error, ErrorKind};
use crate::client::list::Pages;
use crate::client::options::ResourceVersion;
use crate::client::retry::{Class, Retry};
use crate::client::transport::TransportErrorKind;
use crate::decode::WatchEvent;
use crate::error::ItemError;
use crate::object::ItemRef;
use crate::object::{Item, compare_resource_versions, is_older};

/// The longest wait before a connection, but for what a server asks for.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// A connection that lived so long was a good one, even if nothing happened.
const HEALTHY: Duration = Duration::from_secs(10);

/// Of a list that a server did not have the time to write whole: client-go's page (`tools/pager`).
pub(crate) const PAGE: u32 = 500;

/// Deletions that are remembered at least.
const DELETIONS: usize = 1024;

/// A watch over as many connections as it takes, as a stream.
///
/// From [`ResourceVersion::Exact`] it begins with what happened after that version. Otherwise it begins with the collection:
/// each object as [`OwnedEvent::Added`], then [`OwnedEvent::Synced`], then what happens. The collection comes as initial
/// events of the watch; as a list where the server refuses those, breaks them off twice, or does not end them
/// ([`initial_events_timeout`](Self::initial_events_timeout)), which the [`Client`](crate::client::Client) and its clones
/// then remember for this resource for an hour, once the list has succeeded. When it is interrupted, or when its version
/// expires, it starts over, with [`OwnedEvent::Reset`]; in pages of 500, if the server's request timeout interrupted a list.
///
/// After that nothing is lost, and nothing comes twice or in another order, whatever happens to connections: it resumes from
/// the version of the last event, or of a later bookmark, when the server ends the watch, when the connection breaks or
/// [has gone quiet](super::Watch::idle_timeout), on 408, 429 and 5xx. It also retries 401, 403, 404, credentials that cannot be
/// read and a proxy's page, with a warning in the log, because a role or a resource may come later;
/// [`fail_fast`](Self::fail_fast) turns that off. Retries back off exponentially with jitter, from the
/// [`delay`](Retry::delay) of the client's [`Retry`] to 30 s (doubled at most by jitter), and wait for the server's `Retry-After`;
/// a connection that lived for 10 s resets that. A list in place of initial events is requested at once. The number of retries is
/// not limited.
///
/// It ends in an error that [is expired](Error::is_expired) when the server has forgotten the version, unless it
/// [starts over](Self::start_over). Other errors that end it are those that a retry does not mend: options that the server
/// refuses (400, 422), a malformed or oversized frame, an object that cannot become what was asked for. What such an error is
/// about was not delivered, and [`resource_version`](Self::resource_version) is not past it.
///
/// Events whose versions do not [compare](compare_resource_versions) are all delivered. A deletion may have an older version
/// than what came before it: those are remembered, 8 bytes and some each, to be told from repetitions, until the version
/// moves on.
///
/// ```no_run
/// use futures::TryStreamExt;
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::client::{Client, ListOptions, OwnedEvent, Resource};
///
/// # async fn run(client: Client) -> Result<(), listwatch::client::Error> {
/// let mut pods = client.watch::<Pod>(&Resource::PODS, &ListOptions::default()).resume();
/// while let Some(event) = pods.try_next().await? {
///     match event {
///         OwnedEvent::Added(pod) | OwnedEvent::Modified(pod) => println!("{:?} is there", pod.metadata),
///         OwnedEvent::Deleted(pod) => println!("{:?} is gone", pod.metadata),
///         OwnedEvent::Synced { resource_version } => println!("that is all at {resource_version}"),
///         OwnedEvent::Reset => println!("from the start"),
///         OwnedEvent::Bookmark { .. } => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until it is polled"]
pub struct ResumedWatch<T: Item + ?Sized, F = FromRef<T>> {
    connections: Connections,
    own: F,
    item: PhantomData<fn() -> T::Owned>,
}

/// Nothing in it is pinned by itself.
impl<T: Item + ?Sized, F> Unpin for ResumedWatch<T, F> {}

/// A connection that ended, and what comes next.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Disconnect {
    /// Why; `None` when the server ended the watch in good order.
    pub error: Option<Error>,
    /// The version that the watch goes on from; `None` when it begins again with the collection.
    pub resource_version: Option<String>,
    /// Whether the collection comes as a list, and not as initial events, from now on.
    pub lists: bool,
    /// The time until then.
    pub wait: Duration,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// The connections of a watch, whatever becomes of its objects.
pub(crate) struct Connections {
    run: Run,
    state: State,
}

enum State {
    Start,
    Waiting(Pin<Box<Sleep>>),
    Opening(Opening),
    Watching(Box<Connection>),
    Listing(Box<Pages>),
    Ended,
}

impl<T: Item + ?Sized, F> ResumedWatch<T, F> {
    /// The default of [`initial_events_timeout`](Self::initial_events_timeout): 30 s.
    pub const DEFAULT_INITIAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(30);

    pub(super) fn new(plan: Plan, own: F, item: PhantomData<fn() -> T::Owned>) -> Self {
        Self { connections: Connections { run: Run::new(plan), state: State::Start }, own, item }
    }

    /// How long the next initial event, or the bookmark behind them, may take before the collection is listed instead:
    /// [`DEFAULT_INITIAL_EVENTS_TIMEOUT`](Self::DEFAULT_INITIAL_EVENTS_TIMEOUT) unless set. Some servers and proxies never send
    /// that bookmark. The time that the consumer takes does not count. Behind the bookmark it is
    /// [`idle_timeout`](super::Watch::idle_timeout) that counts.
    pub fn initial_events_timeout(mut self, timeout: Duration) -> Self {
        self.connections.run.initial_events_timeout = timeout;
        self
    }

    /// Ends in an error on 401, 403, 404, credentials that cannot be read and responses that are no watch, in place of retrying
    /// them for ever.
    pub fn fail_fast(mut self) -> Self {
        self.connections.run.fails_fast = true;
        self
    }

    /// Starts over with the collection when the server has forgotten the version (410), in place of ending in an error.
    ///
    /// The stream then delivers [`OwnedEvent::Reset`], which voids all that came before, and the collection again. What
    /// happened in between is lost: an object that was deleted meanwhile just does not come again.
    pub fn start_over(mut self) -> Self {
        self.connections.run.starts_over = true;
        self
    }

    /// Calls this when a connection ended, or could not be made, and another follows.
    pub fn on_disconnect(mut self, on_disconnect: impl FnMut(&Disconnect) + Send + 'static) -> Self {
        self.connections.run.on_disconnect = Some(Box::new(on_disconnect));
        self
    }

    /// The version up to which all events were delivered, from which another watch can go on; `None` before the first
    /// [`OwnedEvent::Synced`].
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.connections.resource_version()
    }

    /// The same without what becomes of the objects.
    #[cfg(feature = "cache")]
    pub(crate) fn into_connections(self) -> Connections {
        self.connections
    }
}

impl Connections {
    /// Begins behind a version that a server gave, of whatever form.
    #[cfg(feature = "cache")]
    pub(crate) fn behind(mut self, version: String) -> Self {
        self.run.is_synced = true;
        self.run.delivered.version = version;
        self
    }

    /// Whether a server has accepted to send what happens.
    #[cfg(feature = "cache")]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Watching(_))
    }

    /// As [`ResumedWatch::resource_version`].
    pub(crate) fn resource_version(&self) -> Option<&str> {
        Some(&*self.run.delivered.version).filter(|_| self.run.is_synced)
    }

    /// How many events came, those that are not delivered among them, and bookmarks that are not older.
    #[cfg(feature = "cache")]
    pub(crate) fn heard(&self) -> u64 {
        self.run.heard
    }

    /// The next event, whose object is made by `own`. After an error there is none.
    pub(crate) fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        own: &mut impl FnMut(Change, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        let next = ready!(self.try_advance(cx, own));
        if next.is_err() {
            self.state = State::Ended;
        }
        Poll::Ready(next)
    }

    fn try_advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        own: &mut impl FnMut(Change, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        let Self { run, state } = self;
        loop {
            let ended = match state {
                State::Start => {
                    run.plan.options.validate_watch(!run.is_synced)?;
                    *state = run.ask()?;
                    continue;
                }
                State::Waiting(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    *state = run.ask()?;
                    continue;
                }
                State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(connection) => {
                        *state = State::Watching(Box::new(run.opened(connection)));
                        continue;
                    }
                    Err(error) => Some(error),
                },
                State::Watching(connection) => {
                    let next = connection.next(cx, &mut |event, is_in_shard| run.event(event, is_in_shard, own));
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
                State::Listing(pages) => match ready!(pages.advance(cx, &mut |item| own(Change::Added, item))) {
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
                        *state = run.ask()?;
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

impl<T, F, O, E> Stream for ResumedWatch<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<OwnedEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { connections, own, item: _ } = &mut *self;
        connections.advance(cx, &mut |_, item| own(item)).map(Result::transpose)
    }
}

impl<T: Item + ?Sized, F> fmt::Debug for ResumedWatch<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumedWatch")
            .field("resource", &self.connections.run.plan.resource)
            .field("resource_version", &self.resource_version())
            .field("delivered", &self.connections.run.delivered.events)
            .finish_non_exhaustive()
    }
}

type OnDisconnect = Box<dyn FnMut(&Disconnect) + Send>;

/// Where a watch is, and what comes next.
#[expect(clippy::struct_excessive_bools, reason = "they are of different things, and any may be with any")]
struct Run {
    plan: Plan,
    initial_events_timeout: Duration,
    on_disconnect: Option<OnDisconnect>,
    delivered: Delivered,
    /// Events of any kind, but bookmarks of older versions.
    heard: u64,
    /// Whether the collection is out: from now on, order is kept.
    is_synced: bool,
    /// Whether a part of it is out.
    has_begun: bool,
    /// Whether it comes as a list.
    lists: bool,
    /// Whether that is in pages.
    pages: bool,
    /// How often in a row the initial events broke off.
    broken_off: u32,
    /// Whether the server refused the initial events or did not end them, and no list has succeeded since.
    lacks_initial_events: bool,
    /// Whether errors that may last end it.
    fails_fast: bool,
    /// Whether an expired version does not end it.
    starts_over: bool,
    /// Between two bookmarks of any connection, the longest.
    gap: Option<Duration>,
    backoff: ExponentialBackoff,
}

impl Run {
    fn new(plan: Plan) -> Self {
        let version = match &plan.options.resource_version {
            ResourceVersion::Exact(version) => version.clone(),
            _ => String::new(),
        };
        Self {
            initial_events_timeout: ResumedWatch::<[u8]>::DEFAULT_INITIAL_EVENTS_TIMEOUT,
            on_disconnect: None,
            is_synced: !version.is_empty(),
            delivered: Delivered { version, ..Delivered::default() },
            heard: 0,
            has_begun: false,
            lists: false,
            pages: false,
            broken_off: 0,
            lacks_initial_events: false,
            fails_fast: false,
            starts_over: false,
            gap: None,
            backoff: plan.client.backoff(MAX_DELAY),
            plan,
        }
    }

    fn ask(&mut self) -> Result<State, Error> {
        let Plan { client, resource, options, namespace, limits, span, .. } = &self.plan;
        if self.is_synced {
            let options = options.clone().resource_version(ResourceVersion::Exact(self.delivered.version.clone()));
            return Ok(State::Opening(self.plan.open(&options, false, self.gap)?));
        }
        self.lists |= !client.has_initial_events(resource)?;
        if !self.lists {
            return Ok(State::Opening(self.plan.open(options, true, self.gap)?));
        }
        let options = options.clone().without_timeout();
        // A page that is interrupted is retried; after a list in one response this decides.
        let client = if self.pages { client.clone() } else { client.clone().retry(Retry::never()) };
        let list = client.list::<[u8]>(resource, &options).limits(*limits);
        let list = if self.pages { list.pages(PAGE) } else { list };
        let list = match namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        };
        Ok(State::Listing(Box::new(span.in_scope(|| list.into_pages()))))
    }

    fn opened(&self, mut connection: Connection) -> Connection {
        if !self.is_synced {
            connection.idle.expect_initial_events(Some(self.initial_events_timeout));
        }
        connection
    }

    /// What the consumer gets of an event: of bookmarks, of other shards and of what it had, nothing.
    fn event<O, E: Into<ItemError>>(
        &mut self,
        event: WatchEvent<'_>,
        is_in_shard: bool,
        own: &mut impl FnMut(Change, ItemRef<'_>) -> Result<O, E>,
    ) -> Result<Option<OwnedEvent<O>>, ItemError> {
        // A bookmark of an older version says that the server went back, not that this is in step with it.
        let is_behind = matches!(&event, WatchEvent::Bookmark { resource_version, .. }
            if is_older(resource_version, &self.delivered.version));
        self.heard += u64::from(!is_behind);
        let (object, version, change, made): (_, _, _, fn(O) -> OwnedEvent<O>) = match event {
            WatchEvent::Added { object, resource_version } => {
                (object, resource_version, Change::Added, OwnedEvent::Added)
            }
            WatchEvent::Modified { object, resource_version } => {
                (object, resource_version, Change::Modified, OwnedEvent::Modified)
            }
            WatchEvent::Deleted { object, resource_version } => {
                (object, resource_version, Change::Deleted, OwnedEvent::Deleted)
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
        let is_initial = !self.is_synced && change == Change::Added;
        let deletion = (change == Change::Deleted).then(|| self.delivered.deletion(object, version)).transpose()?;
        if !is_initial && self.delivered.has(version, deletion) {
            return Ok(None);
        }
        let object = own(change, object).map_err(Into::into)?;
        // Initial events come in no order, and a deletion may have any version.
        if self.is_synced || change == Change::Modified {
            self.delivered.advance(version);
        }
        if let Some(deletion) = deletion {
            self.delivered.remember(deletion);
        }
        self.delivered.events += 1;
        self.has_begun = !self.is_synced;
        Ok(Some(made(object)))
    }

    /// The collection is out, at this version.
    fn synced(&mut self, version: &str) -> String {
        self.is_synced = true;
        self.has_begun = false;
        self.delivered.advance(version);
        self.delivered.version.clone()
    }

    /// After the end of a connection, for this reason if any: how long to wait for the next.
    fn after(&mut self, ended: &State, error: Option<Error>) -> Result<Duration, Error> {
        let error = error.map(|error| error.with_items(self.delivered.events));
        let connection = match ended {
            State::Watching(connection) => Some(connection),
            _ => None,
        };
        let is_stalled = error.as_ref().is_some_and(is_stalled);
        let is_idle = connection.is_some() && is_stalled;
        if let Some(connection) = connection {
            // A server may have stopped to send bookmarks.
            self.gap = if is_idle { None } else { connection.idle.gap() };
            // Events alone do not make it a good one: a server that ends each connection after one would be asked without pause.
            if connection.answer.started.elapsed() >= HEALTHY {
                self.backoff = self.plan.client.backoff(MAX_DELAY);
            }
        }
        let asks_initial_events = !self.is_synced && !self.lists;
        let is_refused = error.as_ref().is_some_and(|error| matches!(error.code(), 400 | 422));
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
            self.broken_off += 1;
            self.lists = self.broken_off >= 2;
        }
        let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default();
        let wait = if falls_back { Duration::ZERO } else { self.backoff.next().unwrap_or(MAX_DELAY).max(asked) };
        if !self.is_synced {
            self.delivered = Delivered { events: self.delivered.events, ..Delivered::default() };
        }
        let disconnect = Disconnect {
            resource_version: self.is_synced.then(|| self.delivered.version.clone()),
            lists: self.lists && !self.is_synced,
            wait,
            error,
        };
        let Disconnect { error, resource_version, .. } = &disconnect;
        let error = error.as_ref().map(field::display);
        self.plan.span.in_scope(|| {
            if falls_back {
                tracing::warn!(error, "the server does not send the initial events: the collection is listed");
            } else if class == Some(Class::Lasting) {
                tracing::warn!(error, ?wait, "watching again");
            } else {
                tracing::debug!(error, ?resource_version, ?wait, "watching again");
            }
        });
        if let Some(on_disconnect) = &mut self.on_disconnect {
            on_disconnect(&disconnect);
        }
        Ok(wait)
    }

    /// Whether a retry may help, after what this changes.
    fn passes(&mut self, error: &Error) -> bool {
        match (self.plan.client.classify(error), error.kind()) {
            // Pages are smaller.
            (_, ErrorKind::Incomplete(incomplete)) if incomplete.request_timeout.is_some() => self.pages = true,
            (Class::Transient, _) => {}
            (Class::Lasting, _) if !self.fails_fast => {}
            (Class::Expired, _) if !self.is_synced => {}
            (Class::Expired, _) if self.starts_over => self.begin_again(),
            _ => return false,
        }
        true
    }

    /// The collection comes again.
    fn begin_again(&mut self) {
        self.is_synced = false;
        self.has_begun = true;
        self.lists = false;
        self.broken_off = 0;
        if let ResourceVersion::Exact(_) = self.plan.options.resource_version {
            self.plan.options.resource_version = ResourceVersion::MostRecent;
        }
    }
}

/// What the consumer has.
#[derive(Default)]
struct Delivered {
    events: u64,
    /// Everything up to it; empty before the first that counts.
    version: String,
    /// Hashes of the last deletions, in order and to be found.
    deletions: VecDeque<u64>,
    found: HashSet<u64>,
    /// How many of them came since the version moved on.
    since: usize,
    hasher: RandomState,
}

impl Delivered {
    /// Which object was deleted, and as which version.
    fn deletion(&self, object: ItemRef<'_>, version: &str) -> Result<u64, ItemError> {
        let meta = object.meta()?;
        Ok(self.hasher.hash_one((meta.namespace(), meta.name(), meta.uid(), version)))
    }

    /// Whether the consumer has an event of this version, or this deletion.
    fn has(&self, version: &str, deletion: Option<u64>) -> bool {
        !self.is_behind(version) && deletion.is_none_or(|deletion| self.found.contains(&deletion))
    }

    fn advance(&mut self, version: &str) {
        if self.is_behind(version) {
            version.clone_into(&mut self.version);
            self.since = 0;
        }
    }

    /// Whether this version is newer, or may be. The empty one is opaque.
    fn is_behind(&self, version: &str) -> bool {
        !matches!(compare_resource_versions(version, &self.version), Some(Ordering::Less | Ordering::Equal))
    }

    fn remember(&mut self, deletion: u64) {
        self.since += 1;
        if self.found.insert(deletion) {
            self.deletions.push_back(deletion);
        }
        while self.deletions.len() > self.since.max(DELETIONS) {
            let Some(oldest) = self.deletions.pop_front() else { break };
            self.found.remove(&oldest);
        }
    }
}

fn is_stalled(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Transport(error) if error.kind() == TransportErrorKind::ReadIdle)
}
