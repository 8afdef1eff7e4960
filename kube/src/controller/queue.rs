//! The keys of the objects that are to be reconciled, each at most once.
//!
//! | phase | a request | due | started | finished |
//! |---|---|---|---|---|
//! | none, `Idle` | `Ready` or `Delayed` | | | |
//! | `Delayed` | the earlier time stays | `Ready` | | |
//! | `Ready` | nothing | | `Running` | |
//! | `Running` | kept, the earlier time stays | | | `Ready`, `Delayed`, `Idle` or none |

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use listwatch_cache::ObjectKey;
use tokio::time::Instant;

/// A larger table is freed when it is empty.
const KEPT: usize = 1024;

#[derive(Default)]
pub(super) struct Queue {
    /// All keys with a request, a reconcile or failures. The key is shared with the fields below.
    keys: HashMap<Arc<ObjectKey>, State>,
    /// The keys in the phase `Ready`, in the order in which they became due.
    ready: VecDeque<Arc<ObjectKey>>,
    /// The keys in the phase `Delayed`, and their times.
    delayed: BTreeSet<(Instant, Arc<ObjectKey>)>,
}

struct State {
    phase: Phase,
    reason: Reason,
    /// The failures since the last success.
    failures: u32,
}

enum Phase {
    /// Only the failures are kept.
    Idle,
    Delayed(Instant),
    Ready,
    /// The reconcile runs. Holds the next request.
    Running(Option<Request>),
}

/// A request to reconcile an object.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) at: Instant,
    pub(super) reason: Reason,
}

/// The cause of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Changed,
    RelatedChanged,
    Requested,
    Requeued,
    Retried,
}

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "object changed",
            Self::RelatedChanged => "related object changed",
            Self::Requested => "requested",
            Self::Requeued => "requeued",
            Self::Retried => "retried",
        }
    }
}

impl Queue {
    /// Adds a request. If the object has one, the earlier time stays.
    pub(super) fn request(&mut self, key: ObjectKey, request: Request, now: Instant) {
        self.schedule(Arc::new(key), request, now);
    }

    fn schedule(&mut self, key: Arc<ObjectKey>, request: Request, now: Instant) {
        let entry = self.keys.entry(key);
        let key = Arc::clone(entry.key());
        let state = entry.or_insert(State { phase: Phase::Idle, reason: request.reason, failures: 0 });
        match &mut state.phase {
            Phase::Ready => return,
            Phase::Delayed(at) if *at <= request.at => return,
            Phase::Running(Some(next)) if next.at <= request.at => return,
            Phase::Running(next) => {
                *next = Some(request);
                return;
            }
            Phase::Delayed(at) => drop(self.delayed.remove(&(*at, Arc::clone(&key)))),
            Phase::Idle => {}
        }
        state.reason = request.reason;
        state.phase = if request.at <= now {
            self.ready.push_back(key);
            Phase::Ready
        } else {
            self.delayed.insert((request.at, key));
            Phase::Delayed(request.at)
        };
    }

    /// Removes the requests of an object that was deleted.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        let Some(state) = self.keys.get_mut(key) else { return };
        state.failures = 0;
        match &mut state.phase {
            // `start` returns the key, and the caller finds no object.
            Phase::Ready => return,
            Phase::Running(next) => {
                *next = None;
                return;
            }
            Phase::Idle | Phase::Delayed(_) => {}
        }
        if let Some((key, State { phase: Phase::Delayed(at), .. })) = self.keys.remove_entry(key) {
            self.delayed.remove(&(at, key));
        }
        self.free();
    }

    /// Returns the time at which the next delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Returns the number of due keys.
    pub(super) fn due(&self) -> usize {
        self.ready.len()
    }

    /// Makes the delayed keys ready whose time has come.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.next_due().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.delayed.pop_first() else { return };
            if let Some(state) = self.keys.get_mut(&key) {
                state.phase = Phase::Ready;
                self.ready.push_back(key);
            }
        }
    }

    /// Takes the next due key. Its reconcile runs until [`finish`](Self::finish).
    pub(super) fn start(&mut self) -> Option<(Arc<ObjectKey>, Reason)> {
        let key = self.ready.pop_front()?;
        let state = self.keys.get_mut(&key)?;
        state.phase = Phase::Running(None);
        Some((key, state.reason))
    }

    /// Removes a started key whose object does not exist.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
        self.free();
    }

    /// Records the result of a reconcile, and returns the number of failures in a row.
    pub(super) fn count(&mut self, key: &ObjectKey, has_failed: bool) -> u32 {
        let Some(state) = self.keys.get_mut(key) else { return u32::from(has_failed) };
        state.failures = if has_failed { state.failures.saturating_add(1) } else { 0 };
        state.failures
    }

    /// Ends a reconcile. `next` is the request that follows from its result.
    pub(super) fn finish(&mut self, key: &Arc<ObjectKey>, next: Option<Request>, now: Instant) {
        let Entry::Occupied(mut entry) = self.keys.entry(Arc::clone(key)) else { return };
        let Phase::Running(held) = mem::replace(&mut entry.get_mut().phase, Phase::Idle) else { return };
        let earliest = held.into_iter().chain(next).min_by_key(|request| request.at);
        match earliest {
            Some(request) => self.schedule(Arc::clone(key), request, now),
            None if entry.get().failures == 0 => {
                entry.remove();
                self.free();
            }
            None => {}
        }
    }

    /// Removes all requests.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn free(&mut self) {
        if self.keys.is_empty() && self.keys.capacity() > KEPT {
            self.clear();
        }
    }
}
