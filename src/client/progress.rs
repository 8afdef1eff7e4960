//! The progress of a list, for a progress bar on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::Totals;

/// A handle to the progress of a list, which is cheap to clone and to read from any thread.
#[derive(Clone, Debug)]
pub struct Progress(pub(super) Arc<Counters>);

/// The counters of one list. Only the task that reads the list writes them, so relaxed ordering suffices.
#[derive(Debug)]
pub(super) struct Counters {
    totals: Arc<Totals>,
    wire_bytes: AtomicU64,
    bytes: AtomicU64,
    items: AtomicU64,
    expected_bytes: AtomicU64,
    expected_items: AtomicU64,
    requests: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl Progress {
    /// Returns how many bytes of bodies have arrived on the network, before decompression.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.0.wire_bytes()
    }

    /// Returns how many bytes of bodies were decoded, after decompression.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns how many items were delivered.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items.load(Ordering::Relaxed)
    }

    /// Returns approximately what [`bytes`](Self::bytes) will be at the end of the current page.
    ///
    /// This is known once the envelope was read. For JSON it is always `None`.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        known(self.0.expected_bytes.load(Ordering::Relaxed))
    }

    /// Returns approximately what [`items`](Self::items) will be at the end.
    ///
    /// This is known for a list in pages if the server counts the remaining items.
    #[must_use]
    pub fn expected_items(&self) -> Option<u64> {
        known(self.0.expected_items.load(Ordering::Relaxed))
    }
}

impl Counters {
    pub(super) fn wire(&self, bytes: usize) {
        self.wire_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.totals.wire(bytes as u64);
    }

    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.totals.request();
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        self.wire_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn at(&self, bytes: u64, items: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.items.store(items, Ordering::Relaxed);
    }

    pub(super) fn expect_bytes(&self, bytes: Option<u64>) {
        self.expected_bytes.store(bytes.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    pub(super) fn expect_items(&self, items: Option<u64>) {
        self.expected_items.store(items.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }
}

impl Counters {
    pub(super) fn new(totals: &Arc<Totals>) -> Self {
        Self {
            totals: Arc::clone(totals),
            wire_bytes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            items: AtomicU64::new(0),
            expected_bytes: AtomicU64::new(UNKNOWN),
            expected_items: AtomicU64::new(UNKNOWN),
            requests: AtomicU64::new(0),
        }
    }
}

fn known(value: u64) -> Option<u64> {
    (value != UNKNOWN).then_some(value)
}
