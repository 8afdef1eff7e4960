//! Runs the reconciles of a controller.
//!
//! # Advice
//!
//! One `poll` does all the work. Its order is: shutdown, the wait for caches, requests, due reconciles, one finished
//! reconcile, the timer. Everything is polled from the caller's stream, so a stream that is not polled starts nothing.
//!
//! Invariants:
//!
//! - Each object has at most one reconcile that runs: the queue returns a key again only after `finish_reconcile`.
//! - A change is never lost: in the call that takes it from its source, it becomes a request.
//! - Each path that returns `Pending` has registered the waker for everything that it left unread. If nothing would
//!   wake the task, `poll` wakes itself (`is_paused`, `MAX_READS`).
//! - The reconciler is called with the state in the cache at the start, not with the state of the change.
//! - All caches are synced before the first reconcile, so a reconcile never sees half a collection.
//!
//! Odd parts, and their reasons:
//!
//! - Own changes are read slowly while many keys are due. A subscriber coalesces them and reads the initial state step
//!   by step, in less memory than the queue. `changes.lag()` bounds that, because pending changes keep old states
//!   alive.
//! - Related caches are subscribed before the own one, without their initial state: the own initial state requests
//!   every object anyway.
//! - The keys of related objects come from `inspect`, which runs for each write. A coalesced change would hide the
//!   owner in a state in between.
//! - A panic of a reconcile is resumed in the caller's task, as if there were no task.
//! - A timer of tokio panics after its runtime has ended, so the timer moves to the runtime that polls. A reconcile
//!   stays on the runtime on which it began. If that runtime ends, the object is reconciled again.
//!
//! Not done: kube's debounce, which starts again at each change and can starve an object. A task that polls by itself:
//! its errors would need a channel, and dropping the stream would not stop it.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use listwatch::internal::Timer;
use listwatch_cache::{Cache, Change, Object, ObjectKey, Predicate, StoreType, Subscriber, SyncError};
use tokio::runtime::{self, Handle};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::action::{Action, Error, NextReconcile};
use crate::queue::{ReconcileReason, ReconcileRequest, RequestQueue};
use crate::related::{KeyStream, NO_WRITER, StartSubscription};

/// The number of due keys at which changes of the cache stay in their subscriber, which keeps them in less memory.
const MAX_DUE: usize = 256;

/// A subscriber with more pending changes is read even then, because pending changes keep old states of objects in
/// memory.
const MAX_PENDING: usize = 64;

/// The time after which the pending changes are counted again, if no reconcile ends before.
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// The number of requests from each source that one poll reads, so that other tasks run too.
const MAX_READS: usize = 64;

/// The delays of [`Action::backoff`]: the first, and the longest. Jitter adds up to a half.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// The state of a controller that runs.
pub(crate) struct ControllerRun<T: StoreType + ?Sized, E> {
    pub(crate) cache: Cache<T>,
    pub(crate) debounce: Duration,
    /// The number of reconciles at once; 0 for no limit.
    pub(crate) concurrency: usize,
    pub(crate) phase: RunPhase,
    /// Selects the changes of the objects themselves.
    pub(crate) predicate: Option<Predicate>,
    /// The changes of the objects themselves.
    pub(crate) changes: Option<Subscriber<T>>,
    pub(crate) related: SelectAll<KeyStream>,
    pub(crate) requested: SelectAll<BoxStream<'static, ObjectKey>>,
    pub(crate) graceful: Vec<BoxFuture<'static, ()>>,
    pub(crate) forceful: Vec<BoxFuture<'static, ()>>,
    pub(crate) queue: RequestQueue,
    /// True if the last poll left requests unread, because the queue had many due keys.
    pub(crate) is_paused: bool,
    pub(crate) tasks: JoinSet<FinishedReconcile<T, E>>,
    /// The runtimes and the objects of `tasks`.
    pub(crate) running: HashMap<task::Id, (runtime::Id, Arc<ObjectKey>)>,
    pub(crate) timer: Timer,
    /// True if the log says that the stream was polled outside of a runtime.
    pub(crate) is_reported: bool,
}

/// How far a controller has come.
pub(crate) enum RunPhase {
    /// Waits until all caches are synced.
    Syncing(BoxFuture<'static, Result<(), SyncError>>, Vec<StartSubscription>),
    Reconciling,
    /// Waits for the last reconciles.
    Draining,
    Ended,
}

/// A reconcile that has ended.
pub(crate) struct FinishedReconcile<T: StoreType + ?Sized, E> {
    key: Arc<ObjectKey>,
    object: Object<T>,
    result: Result<Action, E>,
}

/// The item of a controller's stream.
type ReconcileResult<E> = Result<(ObjectKey, Action), Error<E>>;

impl<T: StoreType + ?Sized, E: Send + 'static> ControllerRun<T, E> {
    /// Returns the next item of the controller's stream.
    pub(crate) fn poll<Reconcile>(
        &mut self,
        cx: &mut Context<'_>,
        mut reconcile: impl FnMut(Object<T>) -> Reconcile,
        error_policy: impl FnOnce(Object<T>, &E) -> Action,
    ) -> Poll<Option<ReconcileResult<E>>>
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let Some(runtime) = self.current_runtime() else { return Poll::Pending };
        self.poll_shutdown(cx);
        match self.poll_caches(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return self.end_with(error),
            Poll::Ready(Ok(())) => {}
        }
        if matches!(self.phase, RunPhase::Reconciling)
            && let Err(error) = self.read_requests(cx)
        {
            return self.end_with(error);
        }
        self.start_due(runtime, &mut reconcile);
        // Nothing else wakes this task for the requests that were left unread.
        if self.is_paused && self.queue.due_count() < MAX_DUE {
            cx.waker().wake_by_ref();
        }
        match self.tasks.poll_join_next_with_id(cx) {
            Poll::Ready(Some(Ok((id, done)))) => {
                self.running.remove(&id);
                let item = self.finish_reconcile(done, error_policy);
                self.start_due(runtime, &mut reconcile);
                return Poll::Ready(Some(item));
            }
            Poll::Ready(Some(Err(error))) => self.restart_cancelled(error, runtime, cx),
            Poll::Ready(None) if matches!(self.phase, RunPhase::Draining) => self.phase = RunPhase::Ended,
            Poll::Ready(None) | Poll::Pending => {}
        }
        if matches!(self.phase, RunPhase::Ended) {
            return Poll::Ready(None);
        }
        if self.poll_timer(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns the runtime that polls the stream. Outside of a runtime nothing can start, which is logged once.
    fn current_runtime(&mut self) -> Option<runtime::Id> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        if runtime.is_none() && !self.is_reported {
            self.is_reported = true;
            tracing::error!(
                name: "listwatch.no_runtime",
                "the controller is polled outside of a tokio runtime: it does nothing until a runtime polls it"
            );
        }
        runtime
    }

    /// Requests the object of a reconcile again that ended with its runtime, unless that is the current one, which then
    /// shuts down. Resumes a panic.
    fn restart_cancelled(&mut self, error: JoinError, runtime: runtime::Id, cx: &Context<'_>) {
        let began = self.running.remove(&error.id());
        if let Ok(panic) = error.try_into_panic() {
            resume_unwind(panic);
        }
        let Some((_, key)) = began.filter(|(began, _)| *began != runtime) else {
            self.phase = RunPhase::Ended;
            return;
        };
        let now = Instant::now();
        self.queue.finish_reconcile(&key, Some(ReconcileRequest { at: now, reason: ReconcileReason::Retried }), now);
        // The next poll starts it, and waits for the other reconciles.
        cx.waker().wake_by_ref();
    }

    /// Polls the triggers of a shutdown.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) {
        if self.forceful.iter_mut().any(|trigger| trigger.poll_unpin(cx).is_ready()) {
            self.stop_requests();
            self.forceful.clear();
            self.tasks = JoinSet::new();
            self.running.clear();
            self.phase = RunPhase::Ended;
        }
        if self.graceful.iter_mut().any(|trigger| trigger.poll_unpin(cx).is_ready()) {
            self.stop_requests();
        }
    }

    /// Waits until all caches are synced, and then subscribes to them.
    fn poll_caches(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SyncError>> {
        let RunPhase::Syncing(synced, related) = &mut self.phase else { return Poll::Ready(Ok(())) };
        ready!(synced.poll_unpin(cx))?;
        // The objects' own changes are last: their reconciles see all that the other subscribers leave out.
        self.related.extend(related.drain(..).map(|subscribe| subscribe()));
        let changes = self.cache.subscribe().predicate_filter(self.predicate.take());
        self.changes = Some(changes.with_initial_state().start());
        self.phase = RunPhase::Reconciling;
        Poll::Ready(Ok(()))
    }

    /// Stops requests, and lets the running reconciles end.
    fn stop_requests(&mut self) {
        if !matches!(self.phase, RunPhase::Ended) {
            self.phase = RunPhase::Draining;
        }
        self.changes = None;
        self.related.clear();
        self.requested.clear();
        self.graceful.clear();
        self.queue.clear();
        self.is_paused = false;
    }

    /// Ends the controller with the error of a cache, after the reconciles that run.
    fn end_with(&mut self, error: SyncError) -> Poll<Option<ReconcileResult<E>>> {
        self.stop_requests();
        Poll::Ready(Some(Err(Error::Cache(error))))
    }

    /// Moves requests into the queue. If it has many due keys, changes of the objects themselves stay in their
    /// subscriber, which keeps one for each object.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<(), SyncError> {
        let Self { changes, related, requested, queue, is_paused, .. } = self;
        let now = Instant::now();
        let at = now.checked_add(self.debounce).unwrap_or(now);
        for _ in 0..MAX_READS {
            let mut is_idle = true;
            *is_paused = queue.due_count() >= MAX_DUE;
            if let Some(changes) = changes.as_mut().filter(|changes| !*is_paused || changes.lag() > MAX_PENDING)
                && let Poll::Ready(change) = changes.poll_next_unpin(cx)
            {
                is_idle = false;
                match change {
                    Some(Change::Applied { new, .. }) => {
                        queue.add_request(new.key(), ReconcileRequest { at, reason: ReconcileReason::Changed }, now);
                    }
                    Some(Change::Deleted { last, .. }) => queue.remove_requests(&last.key()),
                    Some(Change::Ended(reason)) => return Err(SyncError::Ended(reason)),
                    None => return Err(NO_WRITER),
                    Some(_) => {}
                }
            }
            if let Poll::Ready(Some(keys)) = related.poll_next_unpin(cx) {
                is_idle = false;
                for key in keys? {
                    queue.add_request(key, ReconcileRequest { at, reason: ReconcileReason::RelatedChanged }, now);
                }
            }
            if !*is_paused && let Poll::Ready(Some(key)) = requested.poll_next_unpin(cx) {
                is_idle = false;
                queue.add_request(key, ReconcileRequest { at, reason: ReconcileReason::Requested }, now);
            }
            if is_idle {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Starts the reconciles of due objects.
    fn start_due<Reconcile>(&mut self, runtime: runtime::Id, reconcile: &mut impl FnMut(Object<T>) -> Reconcile)
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
    {
        self.queue.move_due(Instant::now());
        while self.concurrency == 0 || self.tasks.len() < self.concurrency {
            let Some((key, reason)) = self.queue.start_next() else { return };
            let Some(object) = self.cache.get(&*key) else {
                self.queue.remove_key(&key);
                continue;
            };
            let span = tracing::info_span!("listwatch.reconcile", object = %key, reason = reason.as_str());
            let reconcile = span.in_scope(|| reconcile(object.clone()));
            let running = Arc::clone(&key);
            let task = async move { FinishedReconcile { key, object, result: reconcile.await } }.instrument(span);
            self.running.insert(self.tasks.spawn(task).id(), (runtime, running));
        }
    }

    /// Records the result of a reconcile, requests the next one, and returns the item of the stream.
    fn finish_reconcile(
        &mut self,
        done: FinishedReconcile<T, E>,
        error_policy: impl FnOnce(Object<T>, &E) -> Action,
    ) -> ReconcileResult<E> {
        let FinishedReconcile { key, object, result } = done;
        let (action, reason) = match &result {
            Ok(action) => (*action, ReconcileReason::Requeued),
            Err(error) => (error_policy(object, error), ReconcileReason::Retried),
        };
        let failures = self.queue.record_result(&key, result.is_err() || action == Action::backoff());
        let after = match action.0 {
            NextReconcile::Requeue(after) => Some(after),
            NextReconcile::AwaitChange => None,
            NextReconcile::Backoff => Some(backoff_delay(failures)),
        };
        if failures > 0 && after.is_none() && self.cache.get(&*key).is_none() {
            // The object was deleted during the reconcile: nothing else removes its failures.
            self.queue.record_result(&key, false);
        }
        let now = Instant::now();
        let next = after.and_then(|after| now.checked_add(after)).map(|at| ReconcileRequest { at, reason });
        self.queue.finish_reconcile(&key, next, now);
        let key = Arc::unwrap_or_clone(key);
        match result {
            Ok(action) => Ok((key, action)),
            Err(error) => Err(Error::ReconcilerFailed(error, key)),
        }
    }

    /// Waits until a delayed key is due.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let count_at = (self.queue.due_count() >= MAX_DUE).then(|| Instant::now() + RECOUNT_AFTER);
        let Some(at) = self.queue.next_due_at().into_iter().chain(count_at).min() else { return Poll::Pending };
        self.timer.poll(at, cx)
    }
}

/// Returns the delay after a number of failures in a row.
fn backoff_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    delay.mul_f64(1.0 + fastrand::f64() / 2.0)
}
