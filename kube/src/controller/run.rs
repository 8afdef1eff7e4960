//! Runs the reconciles of a controller.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use listwatch_cache::{Cache, Change, Object, ObjectKey, StoreType, Subscriber, SyncError};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Instrument as _;

use super::action::{Action, Error, Next};
use super::queue::{Queue, Reason, Request};
use super::related::{Keys, Subscribe, ended};

/// The number of due keys at which changes of the cache stay in their subscriber, which keeps them in less memory.
const DUE: usize = 256;

/// A subscriber with more pending changes is read even then, because pending changes keep old states of objects in memory.
const PENDING: usize = 64;

/// The time after which the pending changes are counted again, if no reconcile ends before.
const COUNT_AFTER: Duration = Duration::from_secs(1);

/// The number of requests from each source that one poll reads, so that other tasks run too.
const AT_ONCE: usize = 64;

/// The delays of [`Action::backoff`]: the first, and the longest. Jitter adds up to a half.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// A controller that runs.
pub(super) struct Running<T: StoreType + ?Sized, E> {
    pub(super) cache: Cache<T>,
    pub(super) debounce: Duration,
    /// The number of reconciles at once; 0 for no limit.
    pub(super) concurrency: usize,
    pub(super) phase: Phase,
    /// The changes of the objects themselves.
    pub(super) changes: Option<Subscriber<T>>,
    pub(super) related: SelectAll<Keys>,
    pub(super) requested: SelectAll<BoxStream<'static, ObjectKey>>,
    pub(super) graceful: Vec<BoxFuture<'static, ()>>,
    pub(super) forceful: Vec<BoxFuture<'static, ()>>,
    pub(super) queue: Queue,
    /// True if the last poll left requests unread, because the queue had many due keys.
    pub(super) is_paused: bool,
    pub(super) tasks: JoinSet<Done<T, E>>,
    pub(super) timer: Option<Pin<Box<Sleep>>>,
}

pub(super) enum Phase {
    /// Waits until all caches are synced.
    Syncing(BoxFuture<'static, Result<(), SyncError>>, Vec<Subscribe>),
    Reconciling,
    /// Waits for the last reconciles.
    Draining,
    Ended,
}

/// A reconcile that has ended.
pub(super) struct Done<T: StoreType + ?Sized, E> {
    key: Arc<ObjectKey>,
    object: Object<T>,
    result: Result<Action, E>,
}

type Item<E> = Result<(ObjectKey, Action), Error<E>>;

impl<T: StoreType + ?Sized, E: Send + 'static> Running<T, E> {
    pub(super) fn poll<Reconcile>(
        &mut self,
        cx: &mut Context<'_>,
        mut reconcile: impl FnMut(Object<T>) -> Reconcile,
        error_policy: impl FnOnce(Object<T>, &E) -> Action,
    ) -> Poll<Option<Item<E>>>
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
    {
        if self.forceful.iter_mut().any(|trigger| trigger.poll_unpin(cx).is_ready()) {
            self.drain();
            self.forceful.clear();
            self.tasks = JoinSet::new();
            self.phase = Phase::Ended;
        }
        if self.graceful.iter_mut().any(|trigger| trigger.poll_unpin(cx).is_ready()) {
            self.drain();
        }
        if let Phase::Syncing(synced, related) = &mut self.phase {
            match synced.poll_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return self.fail(error),
                Poll::Ready(Ok(())) => {
                    // The objects' own changes are last: their reconciles see all that the other subscribers leave out.
                    self.related.extend(related.drain(..).map(|subscribe| subscribe()));
                    self.changes = Some(self.cache.subscribe().with_initial_state().start());
                    self.phase = Phase::Reconciling;
                }
            }
        }
        if matches!(self.phase, Phase::Reconciling)
            && let Err(error) = self.read_requests(cx)
        {
            return self.fail(error);
        }
        self.start(&mut reconcile);
        // Nothing else wakes this task for the requests that were left unread.
        if self.is_paused && self.queue.due() < DUE {
            cx.waker().wake_by_ref();
        }
        match self.tasks.poll_join_next(cx) {
            Poll::Ready(Some(Ok(done))) => {
                let item = self.finish(done, error_policy);
                self.start(&mut reconcile);
                return Poll::Ready(Some(item));
            }
            Poll::Ready(Some(Err(error))) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime shuts down.
                Err(_) => self.phase = Phase::Ended,
            },
            Poll::Ready(None) if matches!(self.phase, Phase::Draining) => self.phase = Phase::Ended,
            Poll::Ready(None) | Poll::Pending => {}
        }
        if matches!(self.phase, Phase::Ended) {
            return Poll::Ready(None);
        }
        if self.poll_timer(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Stops requests, and lets the running reconciles end.
    fn drain(&mut self) {
        if !matches!(self.phase, Phase::Ended) {
            self.phase = Phase::Draining;
        }
        self.changes = None;
        self.related.clear();
        self.requested.clear();
        self.graceful.clear();
        self.queue.clear();
        self.is_paused = false;
    }

    fn fail(&mut self, error: SyncError) -> Poll<Option<Item<E>>> {
        self.drain();
        Poll::Ready(Some(Err(Error::Cache(error))))
    }

    /// Moves requests into the queue. If it has many due keys, changes of the objects themselves stay in their subscriber, which
    /// keeps one for each object.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<(), SyncError> {
        let Self { cache, changes, related, requested, queue, is_paused, .. } = self;
        let now = Instant::now();
        let at = now.checked_add(self.debounce).unwrap_or(now);
        for _ in 0..AT_ONCE {
            let mut is_idle = true;
            *is_paused = queue.due() >= DUE;
            if let Some(changes) = changes.as_mut().filter(|changes| !*is_paused || changes.lag() > PENDING)
                && let Poll::Ready(change) = changes.poll_next_unpin(cx)
            {
                is_idle = false;
                match change {
                    Some(Change::Applied { new, .. }) => {
                        queue.request(new.key(), Request { at, reason: Reason::Changed }, now);
                    }
                    Some(Change::Deleted { last, .. }) => queue.forget(&last.key()),
                    None | Some(Change::Ended(_)) => return Err(ended(cache)),
                    Some(_) => {}
                }
            }
            if let Poll::Ready(Some(keys)) = related.poll_next_unpin(cx) {
                is_idle = false;
                for key in keys? {
                    queue.request(key, Request { at, reason: Reason::RelatedChanged }, now);
                }
            }
            if !*is_paused && let Poll::Ready(Some(key)) = requested.poll_next_unpin(cx) {
                is_idle = false;
                queue.request(key, Request { at, reason: Reason::Requested }, now);
            }
            if is_idle {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Starts the reconciles of due objects.
    fn start<Reconcile>(&mut self, reconcile: &mut impl FnMut(Object<T>) -> Reconcile)
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
    {
        self.queue.advance(Instant::now());
        while self.concurrency == 0 || self.tasks.len() < self.concurrency {
            let Some((key, reason)) = self.queue.start() else { return };
            let Some(object) = self.cache.get(&*key) else {
                self.queue.remove(&key);
                continue;
            };
            let span = tracing::info_span!("listwatch.reconcile", object = %key, reason = reason.as_str());
            let reconcile = span.in_scope(|| reconcile(object.clone()));
            self.tasks.spawn(async move { Done { key, object, result: reconcile.await } }.instrument(span));
        }
    }

    fn finish(&mut self, done: Done<T, E>, error_policy: impl FnOnce(Object<T>, &E) -> Action) -> Item<E> {
        let Done { key, object, result } = done;
        let (action, reason) = match &result {
            Ok(action) => (*action, Reason::Requeued),
            Err(error) => (error_policy(object, error), Reason::Retried),
        };
        let failures = self.queue.count(&key, result.is_err() || action == Action::backoff());
        let after = match action.0 {
            Next::Requeue(after) => Some(after),
            Next::AwaitChange => None,
            Next::Backoff => Some(delay(failures)),
        };
        if failures > 0 && after.is_none() && self.cache.get(&*key).is_none() {
            // The object was deleted during the reconcile: nothing else removes its failures.
            self.queue.count(&key, false);
        }
        let now = Instant::now();
        let next = after.and_then(|after| now.checked_add(after)).map(|at| Request { at, reason });
        self.queue.finish(&key, next, now);
        let key = Arc::unwrap_or_clone(key);
        match result {
            Ok(action) => Ok((key, action)),
            Err(error) => Err(Error::ReconcilerFailed(error, key)),
        }
    }

    /// Waits until a delayed key is due.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let count_at = (self.queue.due() >= DUE).then(|| Instant::now() + COUNT_AFTER);
        let Some(at) = self.queue.next_due().into_iter().chain(count_at).min() else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}

/// Returns the delay after a number of failures in a row.
fn delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    delay.mul_f64(1.0 + fastrand::f64() / 2.0)
}
