//! The connections of a watch, one after the other.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::sleep;

use super::connection::Connection;
use super::delivered::Delivered;
use super::events::WatchEvent;
use super::plan::{WatchPhase, WatchPlan};
use super::resume::{ConnectionState, WatchRun};
use crate::client::error::Error;
use crate::client::outage::Outage;
use crate::client::runtime::on_own_runtime;
use crate::client::span::record_end;
use crate::error::ItemError;
use crate::meta::EventType;
use crate::object::ItemRef;

/// The connections of a watch, without a decoder of its objects.
pub struct Connections {
    pub(super) run: WatchRun,
    state: ConnectionState,
}

impl Connections {
    pub(super) fn new(plan: WatchPlan) -> Self {
        Self { run: WatchRun::new(plan), state: ConnectionState::Start }
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> Self {
        Self { run: self.run.of_namespace(namespace), state: ConnectionState::Start }
    }

    /// Starts over with the collection, after the caller has discarded what was delivered.
    pub(super) fn restart(&mut self) {
        self.run.restart();
        self.state = ConnectionState::Start;
    }

    pub(super) fn close(&mut self) {
        self.state = ConnectionState::Ended;
    }

    /// Starts after a version that a server sent, whatever its form.
    #[must_use]
    pub fn after_version(mut self, version: String) -> Self {
        self.run.phase = WatchPhase::of_changes();
        self.run.delivered = Delivered::up_to(version);
        self
    }

    /// Reports failures together with the failures of the caller's other requests for the collection.
    #[must_use]
    pub fn reporting_to(mut self, outage: &Arc<Outage>) -> Self {
        self.run.outage = Arc::clone(outage);
        self
    }

    /// Returns true if a server has accepted the watch.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Watching(_))
    }

    /// The same as [`Watch::resource_version`](super::Watch::resource_version).
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        self.run.version()
    }

    /// Returns the newest version that was delivered; `None` before the initial state is complete.
    ///
    /// Further events may have this version.
    #[must_use]
    pub fn newest_version(&self) -> Option<&str> {
        self.run.version().map(|_| self.run.delivered.newest())
    }

    /// Returns true if all events up to this version of the server were delivered, and none is newer.
    #[must_use]
    pub fn is_complete_at(&self, version: &str) -> bool {
        self.newest_version() == Some(version) && self.run.delivered.has_all_of_newest()
    }

    /// Counts the events, delivered or not, and the bookmarks that are not older than an earlier one.
    #[must_use]
    pub fn received_events(&self) -> u64 {
        self.run.received.all
    }

    /// Returns how many bytes the current connection, or the list in place of initial events, has received.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        match &self.state {
            ConnectionState::Watching(connection) => connection.counters.wire_bytes(),
            ConnectionState::Listing(pages) => pages.received_bytes(),
            _ => 0,
        }
    }

    /// Returns the next event, whose object `decode` decodes. No event follows an error.
    pub fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        let next = ready!(self.try_advance(cx, decode));
        if let Err(error) = &next {
            record_end(&self.run.plan.span, self.run.requests, Some(error));
            self.state = ConnectionState::Ended;
        }
        Poll::Ready(next)
    }

    fn try_advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        let Self { run, state } = self;
        loop {
            // The next state, or the end of a request or a connection.
            let next = match state {
                ConnectionState::Start => Ok(run.start()?),
                ConnectionState::Waiting(waiting) => {
                    ready!(waiting.as_mut().poll(cx))?;
                    Ok(run.request()?)
                }
                ConnectionState::Locating(locating) => match ready!(locating.as_mut().poll(cx)) {
                    Ok(version) => Ok(run.start_after(&version)?),
                    Err(error) => Err(Some(error)),
                },
                ConnectionState::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(connection) => Ok(ConnectionState::Watching(Box::new(run.begin_connection(connection)))),
                    Err(error) => Err(Some(error)),
                },
                ConnectionState::Watching(connection) => match ready!(poll_event(run, connection, cx, decode)) {
                    Ok(Some(event)) => return Poll::Ready(Ok(Some(event))),
                    Ok(None) => Err(None),
                    Err(error) => Err(Some(error)),
                },
                ConnectionState::Listing(pages) => {
                    match ready!(pages.advance(cx, &mut |item| decode(EventType::Added, item))) {
                        Ok(Some(item)) => {
                            run.record_listed();
                            return Poll::Ready(Ok(Some(WatchEvent::Added(item))));
                        }
                        Ok(None) => {
                            let resource_version = run.complete_list(&pages.version()?)?;
                            *state = run.request()?;
                            return Poll::Ready(Ok(Some(WatchEvent::Synced { resource_version })));
                        }
                        Err(error) => Err(Some(error)),
                    }
                }
                ConnectionState::Ended => return Poll::Ready(Ok(None)),
            };
            match next {
                Ok(next) => *state = next,
                Err(error) => {
                    let wait = run.after(state, error)?;
                    *state = ConnectionState::Waiting(Box::pin(on_own_runtime(async move {
                        sleep(wait).await;
                        Ok(())
                    })));
                    if run.phase.take_partial() {
                        return Poll::Ready(Ok(Some(WatchEvent::Reset)));
                    }
                }
            }
        }
    }
}

/// Returns the next event of a connection, or `None` at its end.
fn poll_event<O, E: Into<ItemError>>(
    run: &mut WatchRun,
    connection: &mut Connection,
    cx: &mut Context<'_>,
    decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
    let next = ready!(connection.next(cx, &mut |event, is_in_shard| run.event(event, is_in_shard, decode)));
    if let Ok(Some(WatchEvent::Synced { .. })) = next {
        connection.idle.expect_initial_events(None);
    }
    Poll::Ready(next)
}
