//! The counters of a client, for an exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The counters of a [`Client`](super::Client) and its clones: see [`Client::metrics`](super::Client::metrics).
///
/// All but the last two only grow, from the creation of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Requests that were sent, including retries.
    pub requests: u64,
    /// Retries after an error, of lists, documents, connections of watches, and attempts of reflectors.
    pub retries: u64,
    /// Bytes of bodies on the network.
    pub wire_bytes: u64,
    /// Items that lists delivered.
    pub items: u64,
    /// Events with an object that watches have delivered.
    pub events: u64,
    /// Lists and watches that started over because a continue token or a version had expired.
    pub restarts: u64,
    /// Connections of watches that the server has accepted and that are open now.
    pub open_watches: u64,
    /// Requests that now wait for the head of their response.
    ///
    /// The number stays high while the server is slow, and while the transport queues requests, for example because the
    /// server allows no more streams on an HTTP/2 connection.
    pub waiting_requests: u64,
}

/// The counters that [`Metrics`] reports. They are independent, so relaxed ordering suffices.
#[derive(Debug, Default)]
pub(super) struct Totals {
    requests: AtomicU64,
    retries: AtomicU64,
    wire_bytes: AtomicU64,
    items: AtomicU64,
    events: AtomicU64,
    restarts: AtomicU64,
    open_watches: AtomicU64,
    waiting_requests: AtomicU64,
}

pub(super) struct WaitingRequest(Arc<Totals>);

impl WaitingRequest {
    pub(super) fn begin(totals: &Arc<Totals>) -> Self {
        totals.waiting_requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(totals))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.waiting_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct OpenWatch {
    totals: Arc<Totals>,
    since: Instant,
}

impl OpenWatch {
    pub(super) fn begin(totals: &Arc<Totals>) -> Self {
        totals.open_watches.fetch_add(1, Ordering::Relaxed);
        Self { totals: Arc::clone(totals), since: Instant::now() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.totals.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Totals {
    pub(super) fn metrics(&self) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            requests: read(&self.requests),
            retries: read(&self.retries),
            wire_bytes: read(&self.wire_bytes),
            items: read(&self.items),
            events: read(&self.events),
            restarts: read(&self.restarts),
            open_watches: read(&self.open_watches),
            waiting_requests: read(&self.waiting_requests),
        }
    }

    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wire(&self, bytes: u64) {
        self.wire_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn item(&self) {
        self.items.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}
