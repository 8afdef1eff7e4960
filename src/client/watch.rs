//! Watches: [`Watch`] resumes where a connection ended, and [`WatchEvents`] are the events of one connection.

mod delivered;
mod idle;
mod resume;

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_core::Stream;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use self::idle::Idle;
use self::resume::Run;
pub use self::resume::{Connections, PAGE};
pub use self::resume::{Disconnect, Watch};
use super::body;
use super::error::{Error, ErrorKind};
use super::params::{Selection, WatchParams, WatchStart};
use super::progress::Counters;
use super::resource::Resource;
use super::{Answer, Client, LONGEST, accept_header};
use crate::decode::{WatchDecoder, WatchEvent};
use crate::error::{DecodeError, DecodeErrorKind, InvalidInput, ItemError};
use crate::limits::Limits;
use crate::meta::{Status, TypeMeta};
use crate::object::ItemRef;
use crate::object::shard::Shard;
use crate::object::version::is_resumable;

/// The shortest time for which the client requests a watch, unless the caller sets a timeout; the longest is twice that.
/// The same as client-go's (`tools/cache/reflector.go`, `minWatchTimeout`).
const MIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The settings that all connections of a watch share.
struct Plan {
    client: Client,
    resource: Resource,
    params: WatchParams,
    namespace: Option<String>,
    limits: Limits,
    idle_timeout: Option<Duration>,
    bookmarks: bool,
    span: Span,
}

/// A change of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnedEvent<O> {
    /// An object was created, or is a part of the initial state.
    Added(O),
    /// An object was modified.
    Modified(O),
    /// An object was deleted, or the selectors no longer select it. The value is its last state that they selected.
    Deleted(O),
    /// The initial state is complete: it is the collection at this version.
    Synced {
        /// The version.
        resource_version: String,
    },
    /// All changes up to this version were delivered. Only [`WatchEvents`] delivers bookmarks.
    Bookmark {
        /// The version.
        resource_version: String,
    },
    /// The stream starts over with the collection: discard all delivered objects. Only [`Watch`] starts over, when the
    /// initial state was interrupted, and after an expired version.
    Reset,
}

impl<F> Watch<F> {
    pub(super) fn new(client: &Client, resource: &Resource, params: WatchParams, decode: F) -> Self {
        let (client, resource) = (client.clone(), resource.clone());
        let span = tracing::info_span!("listwatch.watch", %resource);
        let limits = Limits::default();
        let plan =
            Plan { client, resource, params, namespace: None, limits, idle_timeout: None, bookmarks: true, span };
        Self { connections: Connections::new(plan), decode }
    }

    fn plan(&mut self) -> &mut Plan {
        &mut self.connections.run.plan
    }

    /// Watches only this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.plan().namespace = Some(namespace.into());
        self
    }

    /// Sets the limits on the body: [`Limits::item_size`] limits a frame.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan().limits = limits;
        self
    }

    /// Sets the time without a byte after which the connection counts as dead. [One connection](Self::open) then ends
    /// in [`ReadIdle`](super::TransportErrorKind::ReadIdle).
    ///
    /// Unless set, it is 2.5 times the longest time between two bookmarks of the server, at least 90 s. Before the second bookmark,
    /// and in any case, the connection is dead 30 s after the server should have ended the watch: some resources, like events, have
    /// no periodic bookmarks. The time that the consumer takes does not count, but may lengthen the measured time between bookmarks.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.plan().idle_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Sets whether to request bookmarks: true unless set.
    ///
    /// Without them [`idle_timeout`](Self::idle_timeout) cannot distinguish a quiet collection from a dead connection, and the
    /// version to resume from may expire while nothing changes. A watch [with the initial state](WatchParams::with_initial_state)
    /// always requests them, because the initial state ends in one.
    pub fn bookmarks(mut self, bookmarks: bool) -> Self {
        self.plan().bookmarks = bookmarks;
        self
    }

    /// Opens one connection, and returns its events, with its bookmarks, once the server has sent the head of its
    /// response: for callers that resume it themselves.
    ///
    /// # Errors
    ///
    /// [`Error`] when the parameters cannot be sent, the server cannot be reached, or it refuses the watch.
    pub async fn open(self) -> Result<WatchEvents<F>, Error> {
        let Self { connections: Connections { run: Run { plan, .. }, .. }, decode } = self;
        plan.validate()?;
        let located;
        let start = match &plan.params.start {
            WatchStart::Now => {
                located = WatchStart::Version(plan.locate(&plan.client).await?);
                &located
            }
            start => start,
        };
        let connection = plan.open(start, None)?.await?;
        Ok(WatchEvents { plan, decode, connection: Some(Box::new(connection)), delivered: 0 })
    }
}

/// The events of one connection, as a stream. It ends after an error, or when the server ends the watch, which it does after
/// [`WatchParams::timeout`], 5 to 10 minutes at random unless set.
///
/// A refused request is not retried, except once after a 401 if the transport renews credentials. An error event is an error of
/// the stream: it [is expired](Error::is_expired) if the server has forgotten the version.
///
/// If the consumer does not poll, the server has to wait once the transport's buffers are full, which hold up to three pieces of
/// about 256 KiB with the transports of this crate. Servers end watches that wait too long. Dropping the stream closes the
/// connection, or resets the HTTP/2 stream.
pub struct WatchEvents<F> {
    plan: Plan,
    decode: F,
    /// `None` after the end.
    connection: Option<Box<Connection>>,
    delivered: u64,
}

/// No field is pinned.
impl<F> Unpin for WatchEvents<F> {}

impl<F, O, E> WatchEvents<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<OwnedEvent<O>>, Error>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(None)) };
        let decode = &mut self.decode;
        let next = connection.next(cx, &mut |event, is_in_shard| {
            if !is_in_shard {
                return Ok(None);
            }
            let mut decode = |object: ItemRef<'_>| decode(object).map_err(Into::into);
            Ok(Some(match event {
                WatchEvent::Added { object, .. } => OwnedEvent::Added(decode(object)?),
                WatchEvent::Modified { object, .. } => OwnedEvent::Modified(decode(object)?),
                WatchEvent::Deleted { object, .. } => OwnedEvent::Deleted(decode(object)?),
                WatchEvent::Bookmark { resource_version, ends_initial_events } => {
                    OwnedEvent::bookmark(resource_version.to_owned(), ends_initial_events)
                }
                WatchEvent::Error(_) => return Ok(None),
            }))
        });
        let next = ready!(next).map_err(|error| error.with_items(self.delivered));
        if matches!(&next, Ok(Some(event)) if event.has_object()) {
            self.delivered += 1;
            self.plan.client.totals.event();
        }
        Poll::Ready(next)
    }
}

impl<F, O, E> Stream for WatchEvents<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<OwnedEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.advance(cx));
        if !matches!(next, Ok(Some(_))) {
            self.connection = None;
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

impl<F> fmt::Debug for WatchEvents<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchEvents")
            .field("resource", &self.plan.resource)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// The request for the version at which the watch starts.
type Locating = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// The request that opens a connection.
type Opening = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

impl Plan {
    /// Requests the version of the collection.
    fn locate(&self, client: &Client) -> Locating {
        let Self { resource, params, namespace, span, .. } = self;
        let located = span.in_scope(|| client.current_version(resource, &params.selection, namespace.as_deref()));
        Box::pin(located.instrument(span.clone()))
    }

    fn validate(&self) -> Result<(), InvalidInput> {
        self.resource.check_watchable()?;
        self.params.validate()
    }

    /// Requests a connection. `gap` is the longest time between two bookmarks of earlier connections.
    fn open(&self, start: &WatchStart, gap: Option<Duration>) -> Result<Opening, Error> {
        let Self { client, resource, params, limits, idle_timeout, .. } = self;
        let timeout = params.timeout.unwrap_or_else(|| MIN_TIMEOUT + Duration::from_secs(fastrand::u64(0..=300)));
        let query = params.query(start, self.bookmarks, timeout);
        let path = format!("{}?{query}", resource.list_path(self.namespace.as_deref())?);
        let (client, limits, shard, idle_timeout) =
            (client.clone(), *limits, params.selection.shard_of(), *idle_timeout);
        let expected = params.selection.type_meta(resource);
        let (resource, selection) = (resource.clone(), params.selection.clone());
        let opening = async move {
            let (mut answer, requested) = loop {
                tracing::debug!(path, "requesting");
                let requested = client.acceptable(&resource, &selection)?;
                let accept = accept_header(requested.accept_watch())?;
                let counters = Arc::new(Counters::new(&client.totals));
                let answer = client.head(path.clone(), accept, None, None, &counters).await;
                match answer.map_err(|error| error.redacted(&*client.transport)) {
                    Ok(answer) => break (answer, requested),
                    Err(error) if client.needs_plain_json(&error, &resource, &requested)? => {}
                    Err(error) => return Err(error),
                }
            };
            for warning in mem::take(&mut answer.warnings) {
                tracing::warn!(name: "listwatch.server_warning", warning, "the server warns");
            }
            let idle = Idle::new(idle_timeout, timeout, gap);
            let decoder = WatchDecoder::with_limits(limits).accept_json();
            let opened = Instant::now();
            Ok(Connection { client, answer, requested, opened, decoder, chunk: Bytes::new(), expected, shard, idle })
        };
        Ok(Box::pin(opening.instrument(self.span.clone())))
    }
}

/// A response that is being read.
struct Connection {
    client: Client,
    answer: Answer,
    /// The selection in the form of the request.
    requested: Selection,
    /// When the server sent the head of the response.
    opened: Instant,
    decoder: WatchDecoder,
    /// The rest of the last chunk, which is not decoded yet.
    chunk: Bytes,
    expected: TypeMeta,
    /// The shard that the client selects, because a watch does not report whether the server does.
    shard: Option<Shard>,
    idle: Idle,
}

impl Connection {
    /// Returns the next event that `on_event` delivers, or `None` at the end of the watch. The second argument of `on_event` is
    /// true if the event is of the selected shard. It gets no error events.
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
            // Polls the bytes before the clock: bytes that waited for a slow consumer are not late.
            match self.answer.chunks.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.chunk = chunk;
                    self.idle.bytes(self.chunk.len());
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.error(error))),
                Poll::Ready(None) => {
                    let end = self.decoder.finish().map_err(|error| self.error(ErrorKind::Decode(error)));
                    return Poll::Ready(end.map(|()| None));
                }
                Poll::Pending => {
                    let idle = ready!(self.idle.poll(cx));
                    return Poll::Ready(Err(self.error(idle)));
                }
            }
        }
    }

    /// Returns the next event in the chunk, or `None` at its end.
    fn decode<R>(
        &mut self,
        on_event: &mut impl FnMut(WatchEvent<'_>, bool) -> Result<Option<R>, ItemError>,
    ) -> Result<Option<R>, ErrorKind> {
        let Self { client, answer, decoder, chunk, expected, shard, idle, requested: _, opened: _ } = self;
        let api_error = |status: &Status| body::of_status(status.clone(), 500, &answer.headers);
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
                        DecodeErrorKind::UnexpectedEncoding(_) if is_first => client.unexpected(chunk, &answer.headers),
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

/// Checks the kind and the shard of an event's object, and passes the event to `on_event`. Drops bookmarks from which
/// no watch can resume.
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
            let is_in_shard = shard.map_or(Ok(true), |shard| {
                let meta = object.meta()?;
                // Some servers name a deleted object only.
                let is_named_only = matches!(event, WatchEvent::Deleted { .. }) && meta.uid().is_empty();
                Ok(is_named_only || shard.contains(&meta.uid()))
            });
            let made = is_in_shard.and_then(|is_in_shard| on_event(event, is_in_shard));
            (made, object.offset(), object.index())
        }
        WatchEvent::Bookmark { resource_version, .. } if !is_resumable(resource_version) => return Ok(None),
        WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => (on_event(event, true), 0, 0),
    };
    made.map_err(|error| {
        let kind = DecodeErrorKind::Item(error);
        ErrorKind::Decode(DecodeError::new(kind, offset, Some(index), index).of_watch())
    })
}
