//! The events that a watch delivers, and the stream of the events of one connection.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::connection::Connection;
use super::plan::WatchPlan;
use crate::client::error::Error;
use crate::decode::WatchEventRef;
use crate::error::ItemError;
use crate::object::ItemRef;

/// A change of the collection, or of the state of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent<O> {
    /// An object was created, or belongs to the initial state.
    Added(O),
    /// An object was modified.
    Modified(O),
    /// An object was deleted, or no longer matches the selectors. The value is the last state that matched.
    Deleted(O),
    /// The initial state is complete: the delivered objects are the collection at this version.
    Synced {
        /// The version of the collection.
        resource_version: String,
    },
    /// All changes up to this version were delivered.
    ///
    /// Only [`WatchEvents`](crate::client::WatchEvents) delivers bookmarks.
    Bookmark {
        /// The version from which a watch can resume.
        resource_version: String,
    },
    /// The stream starts over with the collection: discard all delivered objects.
    ///
    /// Only [`Watch`](crate::client::Watch) starts over, after an expired version or when the initial state was
    /// interrupted.
    Reset,
}

impl<O> WatchEvent<O> {
    pub(super) fn bookmark(resource_version: String, ends_initial_events: bool) -> Self {
        if ends_initial_events { Self::Synced { resource_version } } else { Self::Bookmark { resource_version } }
    }

    pub(super) fn has_object(&self) -> bool {
        matches!(self, Self::Added(_) | Self::Modified(_) | Self::Deleted(_))
    }
}

/// The events of one connection as a stream, which ends after an error or when the server ends the watch.
///
/// The server ends it after [`WatchParams::timeout`](crate::client::WatchParams::timeout), by default 5 to 10 minutes
/// at random. A refused request is not retried, except once after a 401 if the transport renews credentials. An error
/// event is an error of the stream, which [is expired](Error::is_expired) if the server has forgotten the version.
///
/// If the consumer does not poll, the server must wait once the buffers of the transport are full. The transports of
/// this crate buffer up to three pieces of about 256 KiB. Servers end watches that wait too long. Dropping the stream
/// closes the connection, or resets the HTTP/2 stream.
pub struct WatchEvents<F> {
    pub(super) plan: WatchPlan,
    pub(super) decode: F,
    /// `None` after the end.
    pub(super) connection: Option<Box<Connection>>,
    pub(super) delivered: u64,
}

/// No field is pinned.
impl<F> Unpin for WatchEvents<F> {}

impl<F, O, E> WatchEvents<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Returns the next event, or `None` after the end of the response or an error.
    ///
    /// # Errors
    ///
    /// [`Error`] when the connection fails, or the server sends an error.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<O>, Error>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<O>, Error>>> {
        let next = ready!(self.advance(cx));
        if !matches!(next, Ok(Some(_))) {
            self.connection = None;
        }
        Poll::Ready(next.transpose())
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(None)) };
        let decode = &mut self.decode;
        let next = connection.next(cx, &mut |event, is_in_shard| {
            if !is_in_shard {
                return Ok(None);
            }
            let mut decode = |object: ItemRef<'_>| decode(object).map_err(Into::into);
            Ok(Some(match event {
                WatchEventRef::Added { object, .. } => WatchEvent::Added(decode(object)?),
                WatchEventRef::Modified { object, .. } => WatchEvent::Modified(decode(object)?),
                WatchEventRef::Deleted { object, .. } => WatchEvent::Deleted(decode(object)?),
                WatchEventRef::Bookmark { resource_version, ends_initial_events } => {
                    WatchEvent::bookmark(resource_version.to_owned(), ends_initial_events)
                }
                WatchEventRef::Error(_) => return Ok(None),
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
    type Item = Result<WatchEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx)
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
