//! One watch: [`WatchEvents`] are those of a single connection, and [`ResumedWatch`] goes on where one ended.

mod idle;
mod resume;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_core::Stream;
use tracing::{Instrument, Span};

use self::idle::Idle;
#[cfg(feature = "cache")]
pub(crate) use self::resume::{Change, Connections, PAGE};
pub use self::resume::{Disconnect, ResumedWatch};
use super::body;
use super::error::{Error, ErrorKind};
use super::options::{ListOptions, Shard};
use super::resource::Resource;
use super::{Answer, Client, accept_header};
use crate::adapt::FromRef;
use crate::decode::{WatchDecoder, WatchEvent};
use crate::error::{DecodeError, DecodeErrorKind, ItemError};
use crate::limits::Limits;
use crate::meta::{Status, TypeMeta};
use crate::object::Item;
use crate::object::ItemRef;
use crate::wire::Encoding;

/// The shortest time for which a server is asked to keep a watch open, unless the options say; the longest is twice that.
/// The same as client-go's (`tools/cache/reflector.go`, `minWatchTimeout`).
const MIN_TIMEOUT: Duration = Duration::from_secs(300);

/// What to watch, and how; see [`Client::watch`].
///
/// It is of one connection ([`stream`](Self::stream)), which the server ends after some minutes, or goes on for ever
/// ([`resume`](Self::resume)).
#[must_use = "nothing is sent until a poll of stream or resume"]
pub struct Watch<T: Item + ?Sized, F = FromRef<T>> {
    plan: Plan,
    initial_events: bool,
    own: F,
    item: PhantomData<fn() -> T::Owned>,
}

/// What is the same for all connections of a watch.
struct Plan {
    client: Client,
    resource: Resource,
    options: ListOptions,
    namespace: Option<String>,
    limits: Limits,
    idle_timeout: Option<Duration>,
    bookmarks: bool,
    span: Span,
}

/// What happened in a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedEvent<O> {
    /// An object was created; among the initial events, it is there.
    Added(O),
    /// An object was changed.
    Modified(O),
    /// An object was deleted, or does not match the watch's selectors any more. It is as it was before.
    Deleted(O),
    /// All initial events are out: they are the collection at this version.
    Synced {
        /// The version.
        resource_version: String,
    },
    /// Nothing happened, up to this version. Only a single connection tells.
    Bookmark {
        /// The version.
        resource_version: String,
    },
    /// The stream starts over with the collection: discard what was delivered. Only [`ResumedWatch`] does that, when the
    /// initial events or the list are interrupted, and after an expired version.
    Reset,
}

impl<T: Item + ?Sized> Watch<T> {
    pub(super) fn new(client: Client, resource: Resource, options: ListOptions) -> Self {
        let options = if T::ENCODING == Some(Encoding::Json) { options.json() } else { options };
        let limits = Limits::default();
        let span = tracing::info_span!("watch", %resource);
        let plan =
            Plan { client, resource, options, namespace: None, limits, idle_timeout: None, bookmarks: true, span };
        Self { plan, initial_events: false, own: T::from_ref, item: PhantomData }
    }
}

impl<T: Item + ?Sized, F> Watch<T, F> {
    /// Only this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.plan.namespace = Some(namespace.into());
        self
    }

    /// Asks for the objects that there are, as added, and for a bookmark behind them, which becomes
    /// [`OwnedEvent::Synced`] (KEP-3157, on by default from 1.34). Servers without it refuse or, worse, never send that
    /// bookmark: [`resume`](Self::resume) takes care of both, and needs not be told.
    pub fn initial_events(mut self) -> Self {
        self.initial_events = true;
        self
    }

    /// The caps on what the server may claim: [`Limits::item_size`] is that of a frame.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// How long no byte may come before the connection is given up as dead, with [`ReadIdle`](super::TransportErrorKind::ReadIdle).
    ///
    /// Unless set, it is as long as the bookmarks of the server allow: 2.5 times the longest time between two, at least
    /// 90 s. Before a second one came, and at the latest, it is when the server should have ended the watch itself, 30 s
    /// after its timeout: some resources, like events, have no bookmarks. The time that the consumer takes does not count,
    /// but may make the time between two bookmarks look longer.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.plan.idle_timeout = Some(timeout);
        self
    }

    /// Gives each object to a closure in place of [`Item::from_ref`]: for projections, filters and tuples.
    pub fn map_item<O, E, G>(self, own: G) -> Watch<T, G>
    where
        G: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let Self { plan, initial_events, own: _, item } = self;
        Watch { plan, initial_events, own, item }
    }

    /// The events of one connection. Nothing is sent before it is polled.
    pub fn stream(self) -> WatchEvents<T, F> {
        let Self { plan, initial_events, own, item } = self;
        WatchEvents { plan, initial_events, own, state: State::Start, delivered: 0, item }
    }

    /// Whether the server sends bookmarks: yes unless set.
    ///
    /// Without them [`idle_timeout`](Self::idle_timeout) cannot tell a quiet collection from a dead connection, and the version
    /// to resume from grows old while nothing changes. [`initial_events`](Self::initial_events) needs them.
    pub fn bookmarks(mut self, bookmarks: bool) -> Self {
        self.plan.bookmarks = bookmarks;
        self
    }

    /// Opens one connection and returns its events once the server has sent the head of its response.
    ///
    /// As [`stream`](Self::stream), but a request that fails is an error here, and a resource version of any form is sent as it
    /// is.
    ///
    /// # Errors
    ///
    /// [`Error`] when the options cannot be sent, the server cannot be reached, or it refuses the watch.
    pub async fn open(self) -> Result<WatchEvents<T, F>, Error> {
        let Self { plan, initial_events, own, item } = self;
        let connection = plan.open(&plan.options, initial_events, None)?.await?;
        let state = State::Reading(Box::new(connection));
        Ok(WatchEvents { plan, initial_events, own, state, delivered: 0, item })
    }

    /// The events of as many connections as it takes: see [`ResumedWatch`]. Nothing is sent before it is polled.
    pub fn resume(self) -> ResumedWatch<T, F> {
        let Self { plan, initial_events: _, own, item } = self;
        ResumedWatch::new(plan, own, item)
    }
}

/// The events of one connection, as a stream. It ends when the server ends the watch, which it does after
/// [`timeout`](ListOptions::timeout), 5 to 10 minutes at random unless set; or after an error.
///
/// A request that is refused is not retried, except once after a 401 if the transport reads its credentials again. An error event
/// is an error, too: for a version that the server has forgotten, one that [is expired](Error::is_expired).
///
/// A consumer that does not poll makes the server wait, once the transport's buffers are full: by those of this crate up to
/// three pieces of about 256 KiB. Servers give up on watches that wait too long. Dropping it closes the connection, or
/// resets the stream.
#[must_use = "nothing is sent until it is polled"]
pub struct WatchEvents<T: Item + ?Sized, F = FromRef<T>> {
    plan: Plan,
    initial_events: bool,
    own: F,
    state: State,
    delivered: u64,
    item: PhantomData<fn() -> T::Owned>,
}

/// Nothing in it is pinned by itself.
impl<T: Item + ?Sized, F> Unpin for WatchEvents<T, F> {}

enum State {
    Start,
    Opening(Opening),
    Reading(Box<Connection>),
    Ended,
}

impl<T, F, O, E> WatchEvents<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        loop {
            match &mut self.state {
                State::Start => {
                    self.plan.options.validate_watch(self.initial_events)?;
                    self.state = State::Opening(self.plan.open(&self.plan.options, self.initial_events, None)?);
                }
                State::Opening(opening) => self.state = State::Reading(Box::new(ready!(opening.as_mut().poll(cx))?)),
                State::Reading(connection) => {
                    let own = &mut self.own;
                    let next = connection.next(cx, &mut |event, is_in_shard| {
                        if !is_in_shard {
                            return Ok(None);
                        }
                        let mut own = |object: ItemRef<'_>| own(object).map_err(Into::into);
                        Ok(Some(match event {
                            WatchEvent::Added { object, .. } => OwnedEvent::Added(own(object)?),
                            WatchEvent::Modified { object, .. } => OwnedEvent::Modified(own(object)?),
                            WatchEvent::Deleted { object, .. } => OwnedEvent::Deleted(own(object)?),
                            WatchEvent::Bookmark { resource_version, ends_initial_events } => {
                                OwnedEvent::bookmark(resource_version.to_owned(), ends_initial_events)
                            }
                            WatchEvent::Error(_) => return Ok(None),
                        }))
                    });
                    let next = ready!(next).map_err(|error| error.with_items(self.delivered));
                    self.delivered += u64::from(matches!(next, Ok(Some(ref event)) if event.has_object()));
                    return Poll::Ready(next);
                }
                State::Ended => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl<T, F, O, E> Stream for WatchEvents<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<OwnedEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.advance(cx));
        if !matches!(next, Ok(Some(_))) {
            self.state = State::Ended;
        }
        Poll::Ready(next.transpose())
    }
}

impl<O> OwnedEvent<O> {
    fn bookmark(resource_version: String, ends_initial_events: bool) -> Self {
        if ends_initial_events { Self::Synced { resource_version } } else { Self::Bookmark { resource_version } }
    }

    fn has_object(&self) -> bool {
        matches!(self, Self::Added(_) | Self::Modified(_) | Self::Deleted(_))
    }
}

impl<T: Item + ?Sized, F> fmt::Debug for Watch<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("resource", &self.plan.resource).finish_non_exhaustive()
    }
}

impl<T: Item + ?Sized, F> fmt::Debug for WatchEvents<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchEvents")
            .field("resource", &self.plan.resource)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// A watch that is asked for.
type Opening = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

impl Plan {
    /// Asks for a watch, whose server may have shown before how far its bookmarks are apart.
    fn open(&self, options: &ListOptions, initial_events: bool, gap: Option<Duration>) -> Result<Opening, Error> {
        let Self { client, resource, limits, idle_timeout, .. } = self;
        let timeout = options.timeout.unwrap_or_else(|| MIN_TIMEOUT + Duration::from_secs(fastrand::u64(0..=300)));
        let query = options.watch_query(initial_events, self.bookmarks, timeout);
        let path = format!("{}?{query}", resource.list_path(self.namespace.as_deref())?);
        let accept = accept_header(options.watch_accept())?;
        let (api_version, kind) = if options.metadata_only {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
        } else {
            (resource.api_version(), resource.kind())
        };
        let (client, limits, shard, idle_timeout) = (client.clone(), *limits, options.shard, *idle_timeout);
        let expected = TypeMeta { api_version, kind: kind.to_owned() };
        let opening = async move {
            tracing::debug!(path, "watching");
            let answer = client.head(path, accept, None, None, &Arc::default()).await;
            let mut answer = answer.map_err(|error| error.redacted(&*client.transport))?;
            for warning in mem::take(&mut answer.warnings) {
                tracing::warn!(server_warning = warning, "the server warns");
            }
            let idle = Idle::new(idle_timeout, timeout, gap);
            let decoder = WatchDecoder::with_limits(limits).accept_json();
            Ok(Connection { client, answer, decoder, chunk: Bytes::new(), expected, shard, idle })
        };
        Ok(Box::pin(opening.instrument(self.span.clone())))
    }
}

/// One response that is being watched.
struct Connection {
    client: Client,
    answer: Answer,
    decoder: WatchDecoder,
    /// What of the last chunk is not decoded yet.
    chunk: Bytes,
    expected: TypeMeta,
    /// What to restrict the watch to here, since no watch says that the server did.
    shard: Option<Shard>,
    idle: Idle,
}

impl Connection {
    /// The next event of which `on_event` makes something; `None` at the end of the watch. It is told whether the event is of
    /// the shard that was asked for. Errors do not get to it.
    fn next<R>(
        &mut self,
        cx: &mut Context<'_>,
        on_event: &mut impl FnMut(WatchEvent<'_>, bool) -> Result<Option<R>, ItemError>,
    ) -> Poll<Result<Option<R>, Error>> {
        loop {
            match self.decode(on_event) {
                Ok(None) => {}
                done => return Poll::Ready(done.map_err(|kind| self.error(kind))),
            }
            // First the bytes, then the clock: bytes that waited for a slow consumer are not late.
            match self.answer.chunks.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.chunk = chunk;
                    self.idle.byte();
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.error(error))),
                Poll::Ready(None) => {
                    let end = self.decoder.finish().map_err(|error| self.error(ErrorKind::Decode(error)));
                    return Poll::Ready(end.map(|()| None));
                }
                Poll::Pending => {
                    let idle = ready!(self.idle.poll(cx));
                    return Poll::Ready(Err(self.error(body::idle_error(idle))));
                }
            }
        }
    }

    /// The next in the chunk; `None` when all of it is decoded.
    fn decode<R>(
        &mut self,
        on_event: &mut impl FnMut(WatchEvent<'_>, bool) -> Result<Option<R>, ItemError>,
    ) -> Result<Option<R>, ErrorKind> {
        let Self { client, answer, decoder, chunk, expected, shard, idle } = self;
        let api_error = |status: &Status| ErrorKind::from(body::of_status(status.clone(), 500, &answer.headers));
        loop {
            let is_first = decoder.position() == 0;
            let mut rest = &chunk[..];
            let made = match decoder.decode(&mut rest) {
                Ok(None) => {
                    // A waiting watch keeps no chunk alive.
                    *chunk = Bytes::new();
                    return Ok(None);
                }
                Ok(Some(WatchEvent::Error(status))) => return Err(api_error(status)),
                Ok(Some(event)) => {
                    idle.event(&event);
                    judge(event, expected, *shard, on_event)?
                }
                Err(error) => {
                    return Err(match error.kind() {
                        DecodeErrorKind::UnexpectedWatchEncoding(_) if is_first => {
                            client.unexpected(chunk, &answer.headers)
                        }
                        DecodeErrorKind::Api(status) => api_error(status),
                        _ => ErrorKind::Decode(error),
                    });
                }
            };
            let taken = chunk.len() - rest.len();
            chunk.advance(taken);
            if made.is_some() {
                return Ok(made);
            }
        }
    }

    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(kind).with_audit_id(self.answer.audit_id.clone()).redacted(&*self.client.transport)
    }
}

/// What becomes of an event, whose object is of the kind that was asked for.
fn judge<R>(
    event: WatchEvent<'_>,
    expected: &TypeMeta,
    shard: Option<Shard>,
    on_event: &mut impl FnMut(WatchEvent<'_>, bool) -> Result<Option<R>, ItemError>,
) -> Result<Option<R>, ErrorKind> {
    let (made, offset, index) = match event {
        WatchEvent::Added { object, .. } | WatchEvent::Modified { object, .. } | WatchEvent::Deleted { object, .. } => {
            if !object.type_meta().is_expected(expected) {
                return Err(ErrorKind::OtherKind { expected: expected.clone(), found: object.type_meta().clone() });
            }
            let is_in_shard = shard.map_or(Ok(true), |shard| object.meta().map(|meta| shard.contains(&meta.uid())));
            let made = is_in_shard.and_then(|is_in_shard| on_event(event, is_in_shard));
            (made, object.offset(), object.index())
        }
        WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => (on_event(event, true), 0, 0),
    };
    made.map_err(|error| {
        let kind = DecodeErrorKind::Item(error);
        ErrorKind::Decode(DecodeError::new(kind, offset, Some(index), index).of_watch())
    })
}
