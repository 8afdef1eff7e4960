//! The counters of a client, for an exporter.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a [`Client`](super::Client) and its clones since the client was created: see
/// [`Client::metrics`](super::Client::metrics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Requests sent, including retries.
    pub requests: u64,
    /// Retries after an error: of lists, documents, and connections of watches.
    pub retries: u64,
    /// Bytes of bodies on the network.
    pub wire_bytes: u64,
    /// Items that lists delivered.
    pub items: u64,
    /// Events with an object that watches delivered.
    pub events: u64,
    /// Lists and watches that started over, because a continue token or a version had expired.
    pub restarts: u64,
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
