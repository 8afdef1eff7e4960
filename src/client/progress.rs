//! How far a list is, for a progress bar on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a list is. Cheap to clone and to read, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Progress(pub(super) Arc<Counters>);

/// Written by the one task that reads the list, so that no number needs another's order.
#[derive(Debug)]
pub(super) struct Counters {
    wire_bytes: AtomicU64,
    bytes: AtomicU64,
    items: AtomicU64,
    expected_bytes: AtomicU64,
    expected_items: AtomicU64,
    requests: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl Progress {
    /// Bytes that came over the network, as compressed as they were.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.0.wire_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of bodies decoded, after decompression.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Items delivered.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.0.items.load(Ordering::Relaxed)
    }

    /// What [`bytes`](Self::bytes) will be at the end of the page that is being read, give or take a few; known as soon as
    /// its first bytes are there.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        known(self.0.expected_bytes.load(Ordering::Relaxed))
    }

    /// What [`items`](Self::items) will be at the end, about; known where the list comes in pages and the server counts.
    #[must_use]
    pub fn expected_items(&self) -> Option<u64> {
        known(self.0.expected_items.load(Ordering::Relaxed))
    }
}

impl Counters {
    pub(super) fn wire(&self, bytes: usize) {
        self.wire_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a request that is about to be sent.
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
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

impl Default for Counters {
    fn default() -> Self {
        Self {
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
