//! One connection of a watch: its request, its bytes, and the checks of each event.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tracing::Instrument;

use super::idle::Idle;
use super::plan::WatchPlan;
use crate::client::api_client::Client;
use crate::client::body;
use crate::client::error::{Error, ErrorKind};
use crate::client::metrics::OpenWatch;
use crate::client::params::{Selection, WatchStart};
use crate::client::progress::Counters;
use crate::client::runtime::on_own_runtime;
use crate::client::send::{Answer, accept_header};
use crate::decode::{WatchDecoder, WatchEventRef};
use crate::error::{DecodeError, DecodeErrorKind, ItemError};
use crate::meta::TypeMeta;
use crate::object::shard::Shard;
use crate::object::version::is_resumable;

/// The shortest timeout that the client requests for a watch, unless the caller sets one; the longest is twice as long.
/// Both are client-go's (`tools/cache/reflector.go`, `minWatchTimeout`).
const MIN_TIMEOUT: Duration = Duration::from_secs(300);

pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

impl WatchPlan {
    /// Requests a connection. `gap` is the longest time between two bookmarks of earlier connections.
    pub(super) fn open(&self, start: &WatchStart, gap: Option<Duration>) -> Result<Opening, Error> {
        let Self { client, resource, params, limits, idle_timeout, .. } = self;
        let timeout = params.timeout.unwrap_or_else(|| MIN_TIMEOUT + Duration::from_secs(fastrand::u64(0..=300)));
        let query = params.query(start, self.bookmarks, timeout);
        let path = format!("{}?{query}", resource.list_path(self.namespace.as_deref())?);
        let (client, limits, shard, idle_timeout) =
            (client.clone(), *limits, params.selection.shard_of(), *idle_timeout);
        let expected = params.selection.type_meta(resource);
        let (resource, selection) = (resource.clone(), params.selection.clone());
        let opening = async move {
            let (mut answer, requested, counters) = loop {
                tracing::debug!(path, "requesting");
                let requested = client.acceptable(&resource, &selection)?;
                let accept = accept_header(requested.accept_watch())?;
                let counters = Arc::new(Counters::new(&client.totals));
                let answer = client.head(path.clone(), accept, None, None, &counters).await;
                match answer.map_err(|error| error.redacted(&*client.transport)) {
                    Ok(answer) => break (answer, requested, counters),
                    Err(error) if client.needs_plain_json(&error, &resource, &requested)? => {}
                    Err(error) => return Err(error),
                }
            };
            for warning in mem::take(&mut answer.warnings) {
                if let Some(left_out) = client.warnings.admit(("listwatch.server_warning", &warning)) {
                    tracing::warn!(name: "listwatch.server_warning", warning, left_out, "the server warns");
                }
            }
            let idle = Idle::new(idle_timeout, timeout, gap);
            let decoder = WatchDecoder::with_limits(limits).accept_json();
            let opened = OpenWatch::begin(&client.totals);
            Ok(Connection {
                client,
                answer,
                requested,
                counters,
                opened,
                timeout,
                decoder,
                chunk: Bytes::new(),
                expected,
                shard,
                idle,
            })
        };
        Ok(Box::pin(on_own_runtime(opening).instrument(self.span.clone())))
    }
}

pub(super) struct Connection {
    client: Client,
    pub(super) answer: Answer,
    /// The selection in the form of the request.
    pub(super) requested: Selection,
    pub(super) counters: Arc<Counters>,
    /// Counts the connection as open since the server sent the head of the response.
    pub(super) opened: OpenWatch,
    /// When the server should end the watch.
    pub(super) timeout: Duration,
    decoder: WatchDecoder,
    /// The rest of the last chunk, which is not decoded yet.
    chunk: Bytes,
    expected: TypeMeta,
    /// The shard that the client selects, because a watch does not report whether the server did.
    shard: Option<Shard>,
    pub(super) idle: Idle,
}

impl Connection {
    /// Returns the next event that `on_event` delivers, or `None` at the end of the watch.
    ///
    /// The second argument of `on_event` is true if the event is of the selected shard. `on_event` receives no error
    /// events.
    pub(super) fn next<R>(
        &mut self,
        cx: &mut Context<'_>,
        on_event: &mut impl FnMut(WatchEventRef<'_>, bool) -> Result<Option<R>, ItemError>,
    ) -> Poll<Result<Option<R>, Error>> {
        loop {
            match self.decode(on_event) {
                Ok(None) => {}
                done => return Poll::Ready(done.map_err(|kind| self.error(kind))),
            }
            let waker = self.idle.begin_poll(cx);
            let cx = &mut Context::from_waker(&waker);
            // The bytes are polled before the clock, because bytes that waited for a slow consumer are not late.
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
                    let idle = ready!(self.idle.poll(cx, self.decoder.frame_bytes()));
                    return Poll::Ready(Err(self.error(idle)));
                }
            }
        }
    }

    /// Returns the next event in the chunk, or `None` at its end.
    fn decode<R>(
        &mut self,
        on_event: &mut impl FnMut(WatchEventRef<'_>, bool) -> Result<Option<R>, ItemError>,
    ) -> Result<Option<R>, ErrorKind> {
        let Self { client, answer, decoder, chunk, expected, shard, idle, .. } = self;
        loop {
            let mut rest = &chunk[..];
            let made = match decoder.decode(&mut rest) {
                Ok(None) => {
                    // A waiting watch keeps no chunk alive.
                    *chunk = Bytes::new();
                    return Ok(None);
                }
                Ok(Some(WatchEventRef::Error(status))) => {
                    return Err(body::of_status(status.clone(), 500, &answer.headers));
                }
                Ok(Some(event)) => {
                    idle.event(&event);
                    check_event(event, expected, *shard, on_event)?
                }
                Err(error) => {
                    return Err(match error.kind() {
                        DecodeErrorKind::UnexpectedEncoding(found) => {
                            let mut kind = client.unexpected(chunk, &answer.headers);
                            if let ErrorKind::UnexpectedBody { format, .. } = &mut kind {
                                *format = *found;
                            }
                            kind
                        }
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

/// Checks the kind and the shard of an event's object, and passes the event to `on_event`. Bookmarks from which no
/// watch can resume are dropped.
fn check_event<R>(
    event: WatchEventRef<'_>,
    expected: &TypeMeta,
    shard: Option<Shard>,
    on_event: &mut impl FnMut(WatchEventRef<'_>, bool) -> Result<Option<R>, ItemError>,
) -> Result<Option<R>, ErrorKind> {
    let (made, offset, index) = match event {
        WatchEventRef::Added { object, .. }
        | WatchEventRef::Modified { object, .. }
        | WatchEventRef::Deleted { object, .. } => {
            if !object.type_meta().is_expected(expected) {
                return Err(ErrorKind::OtherKind { expected: expected.clone(), found: object.type_meta().clone() });
            }
            let is_in_shard = shard.map_or(Ok(true), |shard| {
                let meta = object.meta()?;
                // Some servers send only the name of a deleted object.
                let is_named_only = matches!(event, WatchEventRef::Deleted { .. }) && meta.uid().is_empty();
                Ok(is_named_only || shard.contains(&meta.uid()))
            });
            let made = is_in_shard.and_then(|is_in_shard| on_event(event, is_in_shard));
            (made, object.offset(), object.index())
        }
        WatchEventRef::Bookmark { resource_version, .. } if !is_resumable(resource_version) => return Ok(None),
        WatchEventRef::Bookmark { .. } | WatchEventRef::Error(_) => (on_event(event, true), 0, 0),
    };
    made.map_err(|error| {
        let kind = DecodeErrorKind::Item(error);
        ErrorKind::Decode(DecodeError::new(kind, offset, Some(index), index).of_watch())
    })
}
