//! The watches of several namespaces as one stream.
//!
//! - Each namespace has a watch of its own ([`Connections`]), with its own requests, version, backoff and phase. A
//!   namespace that is forbidden, or whose server fails, delays the others only in that `Synced` waits for it.
//! - `Synced` follows once, when the last namespace is synced. Until then, changes of the namespaces that are already
//!   synced are delivered.
//! - The version of the whole is the oldest version of any namespace, because versions order the writes of all
//!   namespaces of a resource. A watch from it repeats changes of the other namespaces and loses none.
//! - `Reset` means the same as for one namespace, discard all objects, so when one namespace starts over, all do.
//! - An error that ends the watch of one namespace ends the stream, and names the namespace.
//! - The namespaces are polled in turn, so that a busy one does not delay the others.

use std::task::{Context, Poll, ready};

use super::connections::Connections;
use super::events::WatchEvent;
use crate::client::error::Error;
use crate::error::{InvalidInput, ItemError};
use crate::meta::EventType;
use crate::object::ItemRef;
use crate::object::version::compare_resource_versions;

pub(super) struct Merged {
    watches: Vec<NamespaceWatch>,
    /// The index of the watch to poll next.
    next: usize,
    has_ended: bool,
}

struct NamespaceWatch {
    namespace: String,
    connections: Connections,
    /// True once the namespace has delivered its initial state, for which `Synced` waits.
    is_synced: bool,
}

impl Merged {
    pub(super) fn new(settings: &Connections, namespaces: &[String]) -> Self {
        let watch = |namespace: &String| NamespaceWatch {
            namespace: namespace.clone(),
            connections: settings.of_namespace(namespace),
            is_synced: false,
        };
        Self { watches: namespaces.iter().map(watch).collect(), next: 0, has_ended: false }
    }

    /// Returns the oldest version of any namespace; `None` while one of them has no version, or if two cannot be
    /// compared.
    pub(super) fn resource_version(&self) -> Option<&str> {
        let mut versions = self.watches.iter().map(|watch| watch.connections.resource_version());
        let first = versions.next()??;
        versions.try_fold(first, |oldest, version| {
            let version = version?;
            Some(if compare_resource_versions(version, oldest)?.is_lt() { version } else { oldest })
        })
    }

    /// Returns the next event, whose object `decode` decodes. No event follows an error.
    pub(super) fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        if self.has_ended {
            return Poll::Ready(Ok(None));
        }
        if self.watches.is_empty() {
            self.has_ended = true;
            let reason = "no namespaces: a watch of none would never deliver an event";
            return Poll::Ready(Err(InvalidInput::new(reason, "").into()));
        }
        for _ in 0..self.watches.len() {
            let at = self.next;
            self.next = (at + 1) % self.watches.len();
            match self.advance_one(at, cx, decode) {
                Poll::Pending => {}
                ready @ Poll::Ready(_) => return ready,
            }
        }
        Poll::Pending
    }

    fn advance_one<O, E: Into<ItemError>>(
        &mut self,
        at: usize,
        cx: &mut Context<'_>,
        decode: &mut impl FnMut(EventType, ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        loop {
            let Some(watch) = self.watches.get_mut(at) else { return Poll::Pending };
            match ready!(watch.connections.advance(cx, decode)) {
                Ok(Some(WatchEvent::Synced { resource_version })) => {
                    watch.is_synced = true;
                    if self.watches.iter().all(|watch| watch.is_synced) {
                        // Among versions that cannot be compared, none is the oldest.
                        let resource_version = self.resource_version().map_or(resource_version, str::to_owned);
                        return Poll::Ready(Ok(Some(WatchEvent::Synced { resource_version })));
                    }
                }
                Ok(Some(WatchEvent::Reset)) => {
                    for (other, watch) in self.watches.iter_mut().enumerate() {
                        watch.is_synced = false;
                        if other != at {
                            watch.connections.restart();
                        }
                    }
                    return Poll::Ready(Ok(Some(WatchEvent::Reset)));
                }
                Ok(event) => return Poll::Ready(Ok(event)),
                Err(error) => {
                    let error = error.with_namespace(Some(watch.namespace.clone()));
                    let delivered = self.delivered();
                    self.has_ended = true;
                    // Closes the connections of the others, whose versions stay.
                    self.watches.iter_mut().for_each(|watch| watch.connections.close());
                    return Poll::Ready(Err(error.with_items(delivered)));
                }
            }
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.watches.iter().map(|watch| watch.connections.run.delivered.events).sum()
    }
}
