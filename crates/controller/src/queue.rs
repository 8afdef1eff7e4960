//! The keys of the objects that are to be reconciled, each at most once.
//!
//! # Advice
//!
//! This is client-go's workqueue (`util/workqueue`) without its locks and goroutines. Deduplication, delays and the
//! number of failures are one table, and the caller passes the time. The cells are the phase after an event:
//!
//! | phase | a request | due | started | finished |
//! |---|---|---|---|---|
//! | none, `Idle` | `Ready` or `Delayed` | | | |
//! | `Delayed` | the earlier time stays | `Ready` | | |
//! | `Ready` | nothing | | `Running` | |
//! | `Running` | kept, the earlier time stays | | | `Ready`, `Delayed`, `Idle` or none |
//!
//! Invariants:
//!
//! - A key is in `ready` exactly if its phase is `Ready`. It is in `delayed` exactly if it is `Delayed`, with that
//!   time.
//! - A key without a request, a reconcile and failures is in no table. So memory follows the work, not the collection.
//! - Of two requests the earlier time stays, so no delay is ever prolonged.
//!
//! Odd parts: `remove_requests` leaves a `Ready` key in its place, because removing it from the middle of `ready` would
//! scan the queue. `start_next` returns it, and the caller finds no object. `Idle` only keeps the number of failures
//! until the next request, or until the object is deleted.
//!
//! Not done: rate limits over all keys, as client-go's default has (10 per second). The concurrency limit bounds the
//! load.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use listwatch_cache::ObjectKey;
use tokio::time::Instant;

/// A larger table is freed when it is empty.
const MAX_IDLE_CAPACITY: usize = 1024;

/// The queue of a controller.
#[derive(Default)]
pub(crate) struct RequestQueue {
    /// All keys with a request, a reconcile or failures. The key is shared with the fields below.
    keys: HashMap<Arc<ObjectKey>, KeyState>,
    /// The keys in the phase `Ready`, in the order in which they became due.
    ready: VecDeque<Arc<ObjectKey>>,
    /// The keys in the phase `Delayed`, and their times.
    delayed: BTreeSet<(Instant, Arc<ObjectKey>)>,
}

/// The state of one key.
struct KeyState {
    phase: KeyPhase,
    reason: ReconcileReason,
    /// The failures since the last success.
    failures: u32,
}

/// Where a key is: see the table above.
enum KeyPhase {
    /// Only the failures are kept.
    Idle,
    Delayed(Instant),
    Ready,
    /// The reconcile runs. Holds the next request.
    Running(Option<ReconcileRequest>),
}

/// A request to reconcile an object.
#[derive(Clone, Copy)]
pub(crate) struct ReconcileRequest {
    pub(crate) at: Instant,
    pub(crate) reason: ReconcileReason,
}

/// The cause of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReconcileReason {
    Changed,
    RelatedChanged,
    Requested,
    Requeued,
    Retried,
}

impl ReconcileReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "object changed",
            Self::RelatedChanged => "related object changed",
            Self::Requested => "requested",
            Self::Requeued => "requeued",
            Self::Retried => "retried",
        }
    }
}

impl RequestQueue {
    /// Adds a request. If the object has one, the earlier time stays.
    pub(crate) fn add_request(&mut self, key: ObjectKey, request: ReconcileRequest, now: Instant) {
        self.schedule_key(Arc::new(key), request, now);
    }

    /// Adds a request of this key.
    fn schedule_key(&mut self, key: Arc<ObjectKey>, request: ReconcileRequest, now: Instant) {
        let entry = self.keys.entry(key);
        let key = Arc::clone(entry.key());
        let state = entry.or_insert(KeyState { phase: KeyPhase::Idle, reason: request.reason, failures: 0 });
        match &mut state.phase {
            KeyPhase::Ready => return,
            KeyPhase::Delayed(at) if *at <= request.at => return,
            KeyPhase::Running(Some(next)) if next.at <= request.at => return,
            KeyPhase::Running(next) => {
                *next = Some(request);
                return;
            }
            KeyPhase::Delayed(at) => drop(self.delayed.remove(&(*at, Arc::clone(&key)))),
            KeyPhase::Idle => {}
        }
        state.reason = request.reason;
        state.phase = if request.at <= now {
            self.ready.push_back(key);
            KeyPhase::Ready
        } else {
            self.delayed.insert((request.at, key));
            KeyPhase::Delayed(request.at)
        };
    }

    /// Removes the requests of an object that was deleted.
    pub(crate) fn remove_requests(&mut self, key: &ObjectKey) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.failures = 0;
        match &mut state.phase {
            // `start_next` returns the key, and the caller finds no object.
            KeyPhase::Ready => return,
            KeyPhase::Running(next) => {
                *next = None;
                return;
            }
            KeyPhase::Idle | KeyPhase::Delayed(_) => {}
        }
        if let Some((key, KeyState { phase: KeyPhase::Delayed(at), .. })) = self.keys.remove_entry(key) {
            self.delayed.remove(&(at, key));
        }
        self.free_capacity();
    }

    /// Returns the time at which the next delayed key is due.
    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Returns the number of due keys.
    pub(crate) fn due_count(&self) -> usize {
        self.ready.len()
    }

    /// Makes the delayed keys ready whose time has come.
    pub(crate) fn move_due(&mut self, now: Instant) {
        while self.next_due_at().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.delayed.pop_first() else { return };
            if let Some(state) = self.keys.get_mut(&key) {
                state.phase = KeyPhase::Ready;
                self.ready.push_back(key);
            }
        }
    }

    /// Removes and returns the next due key. Its reconcile runs until [`finish_reconcile`](Self::finish_reconcile).
    pub(crate) fn start_next(&mut self) -> Option<(Arc<ObjectKey>, ReconcileReason)> {
        let key = self.ready.pop_front()?;
        let state = self.keys.get_mut(&key)?;
        state.phase = KeyPhase::Running(None);
        Some((key, state.reason))
    }

    /// Removes a started key whose object does not exist.
    pub(crate) fn remove_key(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
        self.free_capacity();
    }

    /// Records the result of a reconcile, and returns the number of failures in a row.
    pub(crate) fn record_result(&mut self, key: &ObjectKey, has_failed: bool) -> u32 {
        let Some(state) = self.keys.get_mut(key) else { return u32::from(has_failed) };
        state.failures = if has_failed { state.failures.saturating_add(1) } else { 0 };
        state.failures
    }

    /// Ends a reconcile. `next` is the request that follows from its result.
    pub(crate) fn finish_reconcile(&mut self, key: &Arc<ObjectKey>, next: Option<ReconcileRequest>, now: Instant) {
        let Entry::Occupied(mut entry) = self.keys.entry(Arc::clone(key)) else { return };
        let KeyPhase::Running(held) = mem::replace(&mut entry.get_mut().phase, KeyPhase::Idle) else { return };
        let earliest = held.into_iter().chain(next).min_by_key(|request| request.at);
        match earliest {
            Some(request) => self.schedule_key(Arc::clone(key), request, now),
            None if entry.get().failures == 0 => {
                entry.remove();
                self.free_capacity();
            }
            None => {}
        }
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Frees a large table that is empty.
    fn free_capacity(&mut self) {
        if self.keys.is_empty() && self.keys.capacity() > MAX_IDLE_CAPACITY {
            self.clear();
        }
    }
}
