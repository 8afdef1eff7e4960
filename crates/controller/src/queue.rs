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
//! Due keys wait in two lines. Changes go first, and a pass over all objects, such as the first one of a controller,
//! waits behind them, as in the priority queues of client-go and controller-runtime. One of eight starts is from the
//! second line, so that a constant stream of changes does not keep an object from its first reconcile.
//!
//! Invariants:
//!
//! - A key whose phase is `Ready` is in the line of its priority. A key is in `delayed` exactly if it is `Delayed`,
//!   with that time.
//! - A request of a change raises the priority of its key, and nothing lowers it before the next reconcile ends. A
//!   requeue or a retry keeps it, because objects that are requeued all the time would otherwise keep others from their
//!   first reconcile.
//! - A key without a request, a reconcile and failures is in no table, so memory follows the work and not the
//!   collection.
//! - Of two requests the earlier time stays, so no delay is ever prolonged.
//!
//! Odd parts: `remove_requests` leaves a `Ready` key in its place, because removing it from the middle of a line would
//! scan the line. `start_next` returns it, and the caller finds no object. For the same reason, a key whose priority
//! rises also stays in the line of all objects, where `start_next` passes over it. `Idle` only keeps the number of
//! failures until the next request, or until the object is deleted.
//!
//! Not done: a rate limit over all keys, as client-go has by default (10 per second). The concurrency limit bounds the
//! load.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use listwatch_cache::ObjectKey;
use tokio::time::Instant;

/// How many reconciles for changes start in a row while an object of the initial state waits.
const MAX_CHANGES_IN_A_ROW: u8 = 7;

/// A larger table is freed once it is empty.
const MAX_IDLE_CAPACITY: usize = 1024;

#[derive(Default)]
pub(crate) struct RequestQueue {
    /// All keys with a request, a reconcile or failures, which are shared with the fields below.
    keys: HashMap<Arc<ObjectKey>, KeyState>,
    /// The keys in the phase `Ready` by priority, each line in the order in which they became due. A key may also have
    /// a void place in the line of all objects.
    ready: [VecDeque<Arc<ObjectKey>>; 2],
    /// The number of keys in the phase `Ready`.
    due: usize,
    /// How many starts followed the last one from the line of all objects.
    changes_in_a_row: u8,
    /// The keys in the phase `Delayed`, and their times.
    delayed: BTreeSet<(Instant, Arc<ObjectKey>)>,
}

struct KeyState {
    phase: KeyPhase,
    reason: ReconcileReason,
    priority: Priority,
    /// The failures since the last success.
    failures: u32,
}

/// Where a key is: see the table above.
enum KeyPhase {
    /// Only the failures are kept.
    Idle,
    Delayed(Instant),
    Ready,
    /// The reconcile is running. Contains the next request.
    Running(Option<ReconcileRequest>),
}

#[derive(Clone, Copy)]
pub(crate) struct ReconcileRequest {
    pub(crate) at: Instant,
    pub(crate) reason: ReconcileReason,
}

/// The line in which a due key waits, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    AllObjects,
    Change,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ReconcileReason {
    Changed,
    RelatedChanged,
    Requested,
    AllObjects,
    Requeued,
    Retried,
}

impl ReconcileRequest {
    /// Returns a request for both, at the earlier time and for the reason of the higher priority.
    fn merge(self, other: Self) -> Self {
        let reason = if other.reason.priority() > self.reason.priority() { other.reason } else { self.reason };
        Self { at: self.at.min(other.at), reason }
    }
}

impl ReconcileReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "object changed",
            Self::RelatedChanged => "related object changed",
            Self::Requested => "requested",
            Self::AllObjects => "all objects",
            Self::Requeued => "requeued",
            Self::Retried => "retried",
        }
    }

    /// Returns the priority of a request for this reason; `None` if it keeps the priority of its object.
    fn priority(self) -> Option<Priority> {
        match self {
            Self::Changed | Self::RelatedChanged | Self::Requested => Some(Priority::Change),
            Self::AllObjects => Some(Priority::AllObjects),
            Self::Requeued | Self::Retried => None,
        }
    }
}

impl RequestQueue {
    /// Adds a request. If the object has one, the earlier time stays.
    pub(crate) fn add_request(&mut self, key: ObjectKey, request: ReconcileRequest, now: Instant) {
        self.schedule_key(Arc::new(key), request, now);
    }

    fn schedule_key(&mut self, key: Arc<ObjectKey>, request: ReconcileRequest, now: Instant) {
        let entry = self.keys.entry(key);
        let key = Arc::clone(entry.key());
        let ReconcileRequest { at, reason } = request;
        let new = || KeyState { phase: KeyPhase::Idle, reason, priority: Priority::AllObjects, failures: 0 };
        let state = entry.or_insert_with(new);
        let priority = reason.priority().unwrap_or(state.priority);
        let is_raised = priority > state.priority;
        match &mut state.phase {
            KeyPhase::Running(next) => {
                *next = Some(next.map_or(request, |next| next.merge(request)));
                return;
            }
            KeyPhase::Ready => {
                if is_raised {
                    (state.priority, state.reason) = (priority, reason);
                    line(&mut self.ready, priority).push_back(key);
                }
                return;
            }
            KeyPhase::Delayed(earlier) if *earlier <= at => {
                state.priority = state.priority.max(priority);
                return;
            }
            KeyPhase::Delayed(later) => {
                self.delayed.remove(&(*later, Arc::clone(&key)));
                state.priority = state.priority.max(priority);
            }
            KeyPhase::Idle => state.priority = priority,
        }
        state.reason = reason;
        if at <= now {
            state.phase = KeyPhase::Ready;
            line(&mut self.ready, state.priority).push_back(key);
            self.due += 1;
        } else {
            state.phase = KeyPhase::Delayed(at);
            self.delayed.insert((at, key));
        }
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

    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    pub(crate) fn due_count(&self) -> usize {
        self.due
    }

    pub(crate) fn delayed_count(&self) -> usize {
        self.delayed.len()
    }

    /// Returns the number of places in a line.
    pub(crate) fn line_length(&self, priority: Priority) -> usize {
        let [all, changes] = &self.ready;
        match priority {
            Priority::AllObjects => all.len(),
            Priority::Change => changes.len(),
        }
    }

    /// Makes the delayed keys ready whose time has come.
    pub(crate) fn move_due(&mut self, now: Instant) {
        while self.next_due_at().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.delayed.pop_first() else { return };
            if let Some(state) = self.keys.get_mut(&key) {
                state.phase = KeyPhase::Ready;
                line(&mut self.ready, state.priority).push_back(key);
                self.due += 1;
            }
        }
    }

    /// Removes and returns the next due key. Its reconcile runs until [`finish_reconcile`](Self::finish_reconcile).
    pub(crate) fn start_next(&mut self) -> Option<(Arc<ObjectKey>, ReconcileReason)> {
        loop {
            let [all, changes] = &mut self.ready;
            let is_turn_of_all = self.changes_in_a_row >= MAX_CHANGES_IN_A_ROW && !all.is_empty();
            let change = if is_turn_of_all { None } else { changes.pop_front() };
            let (key, from) = match change {
                Some(key) => (key, Priority::Change),
                None => (all.pop_front()?, Priority::AllObjects),
            };
            let Some(state) = self.keys.get_mut(&key) else { continue };
            // Otherwise the place is void, because the priority of the key has risen since.
            if matches!(state.phase, KeyPhase::Ready) && state.priority == from {
                state.phase = KeyPhase::Running(None);
                self.due -= 1;
                self.changes_in_a_row = match from {
                    Priority::Change => self.changes_in_a_row.saturating_add(1),
                    Priority::AllObjects => 0,
                };
                return Some((key, state.reason));
            }
        }
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
        match held.into_iter().chain(next).reduce(ReconcileRequest::merge) {
            Some(request) => self.schedule_key(Arc::clone(key), request, now),
            None if entry.get().failures == 0 => {
                entry.remove();
                self.free_capacity();
            }
            None => {}
        }
    }

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

/// Returns the line of a priority.
fn line(ready: &mut [VecDeque<Arc<ObjectKey>>; 2], priority: Priority) -> &mut VecDeque<Arc<ObjectKey>> {
    let [all, changes] = ready;
    match priority {
        Priority::AllObjects => all,
        Priority::Change => changes,
    }
}
