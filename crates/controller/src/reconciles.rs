//! Runs the reconciles of a controller.
//!
//! # Advice
//!
//! One `poll` does all the work, in this order: shutdown, the wait for caches, requests, due reconciles, one finished
//! reconcile, the timer. Everything is polled from the caller's stream, so a stream that is not polled starts nothing.
//!
//! Invariants:
//!
//! - Each object has at most one running reconcile, because the queue returns a key again only after
//!   `finish_reconcile`.
//! - A change is never lost: the call that takes it from its source turns it into a request.
//! - Each path that returns `Pending` has registered the waker for everything that it left unread. If nothing would
//!   wake the task, `poll` wakes itself (`is_paused`, `MAX_READS`).
//! - The reconciler is called with the state in the cache at the start, not with the state of the change.
//! - All caches are synced before the first reconcile, so a reconcile never sees half a collection.
//!
//! Odd parts, and their reasons:
//!
//! - The first pass over all objects reads keys from the cache step by step, so that the objects of a large cache do
//!   not wait in the queue. It pauses while many of them are due (`MAX_DUE`). Changes are always read, so that they
//!   overtake.
//! - Related caches are subscribed before the own one and without their initial state, because the first pass requests
//!   every object anyway. It begins last, and so sees all that no subscriber delivers.
//! - The requested keys come from `inspect`, which runs for each write, because a coalesced change would hide an owner
//!   that only an intermediate state names.
//! - A panic of a reconcile ends at its task, or at `catch_unwind` if the function panics before it returns a future.
//! - A timer of tokio panics after its runtime has ended, so the timer moves to the runtime that polls. A reconcile
//!   stays on the runtime on which it began. If that runtime ends, the object is reconciled again.
//!
//! Not done: kube's debounce, which starts again at each change and can starve an object; and a task that polls by
//! itself, because its errors would need a channel, and dropping the stream would not stop it.

use std::any::Any;
use std::collections::HashMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use listwatch::internal::{Timer, WarningLimit};
use listwatch_cache::{Cache, Object, ObjectKey, StoreType};
use tokio::runtime::{self, Handle};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::action::{Action, CacheError, Error, NextReconcile};
use crate::metrics::MetricsReader;
use crate::queue::{Priority, ReconcileReason, ReconcileRequest, RequestQueue};
use crate::source::{Part, RequestStream, Requests, StartSubscription};

/// At this many due keys of a priority, no more of them are read from streams.
const MAX_DUE: usize = 256;

/// How many requests from each source one poll reads, so that other tasks can run too.
const MAX_READS: usize = 64;

/// The shortest and the longest delay of [`Action::backoff`]. Jitter adds up to a half.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(300);

pub(crate) struct ControllerRun<T: StoreType + ?Sized, E> {
    pub(crate) cache: Cache<T>,
    pub(crate) debounce: Duration,
    /// How many reconciles may run at the same time; 0 for no limit.
    pub(crate) concurrency: usize,
    pub(crate) phase: RunPhase,
    /// The objects that the controller reconciles.
    pub(crate) part: Arc<Part<T>>,
    /// The changes of the caches.
    pub(crate) changes: SelectAll<RequestStream>,
    pub(crate) requested: SelectAll<BoxStream<'static, ObjectKey>>,
    /// Passes over all objects.
    pub(crate) all: SelectAll<BoxStream<'static, ObjectKey>>,
    pub(crate) graceful: Vec<BoxFuture<'static, ()>>,
    pub(crate) forceful: Vec<BoxFuture<'static, ()>>,
    pub(crate) queue: RequestQueue,
    /// The priorities whose requests the last poll left unread, because many of their keys are due.
    pub(crate) paused: Vec<Priority>,
    pub(crate) tasks: JoinSet<FinishedReconcile<T, E>>,
    pub(crate) running: HashMap<task::Id, RunningReconcile>,
    pub(crate) metrics: MetricsReader,
    pub(crate) warnings: WarningLimit,
    pub(crate) timer: Timer,
    /// True if it was logged that the stream was polled outside of a runtime.
    pub(crate) is_reported: bool,
}

/// How far a controller has come.
pub(crate) enum RunPhase {
    /// Waits until all caches are synced.
    Syncing(BoxFuture<'static, Result<(), Box<CacheError>>>, Vec<StartSubscription>),
    Reconciling,
    /// Waits for the last reconciles.
    Draining,
    Ended,
}

pub(crate) struct RunningReconcile {
    runtime: runtime::Id,
    key: Arc<ObjectKey>,
    since: Instant,
}

pub(crate) struct FinishedReconcile<T: StoreType + ?Sized, E> {
    key: Arc<ObjectKey>,
    object: Object<T>,
    result: Result<Action, E>,
}

/// The item of a controller's stream.
type ReconcileResult<E> = Result<(ObjectKey, Action), Error<E>>;

impl<T: StoreType + ?Sized, E: Send + 'static> ControllerRun<T, E> {
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
        let polled = self.advance(cx, runtime, &mut reconcile, error_policy);
        let mut metrics = self.metrics.lock();
        metrics.due = self.queue.due_count() as u64;
        metrics.delayed = self.queue.delayed_count() as u64;
        metrics.running = self.tasks.len() as u64;
        polled
    }

    fn advance<Reconcile>(
        &mut self,
        cx: &mut Context<'_>,
        runtime: runtime::Id,
        reconcile: &mut impl FnMut(Object<T>) -> Reconcile,
        error_policy: impl FnOnce(Object<T>, &E) -> Action,
    ) -> Poll<Option<ReconcileResult<E>>>
    where
        Reconcile: Future<Output = Result<Action, E>> + Send + 'static,
    {
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
        self.start_due(runtime, reconcile);
        // Nothing else wakes this task for the requests that were left unread.
        if self.paused.iter().any(|priority| self.queue.line_length(*priority) < MAX_DUE) {
            cx.waker().wake_by_ref();
        }
        match self.tasks.poll_join_next_with_id(cx) {
            Poll::Ready(Some(Ok((id, done)))) => {
                self.record_duration(id);
                let item = self.finish_reconcile(done, error_policy);
                self.start_due(runtime, reconcile);
                return Poll::Ready(Some(item));
            }
            Poll::Ready(Some(Err(error))) => {
                if let Some(item) = self.finish_lost(error, runtime, cx) {
                    self.start_due(runtime, reconcile);
                    return Poll::Ready(Some(item));
                }
            }
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

    /// Ends a reconcile without a result. After a panic, it is retried. If it ended with its runtime, its object is
    /// requested again, unless that runtime is the current one, which then shuts down.
    fn finish_lost(&mut self, error: JoinError, runtime: runtime::Id, cx: &Context<'_>) -> Option<ReconcileResult<E>> {
        let RunningReconcile { key, runtime: began, .. } = self.record_duration(error.id())?;
        match error.try_into_panic() {
            Ok(panic) => {
                let message = panic_message(panic);
                self.log_panic(&key, &message, "a reconcile panicked");
                self.metrics.lock().panicked += 1;
                self.conclude(&key, true, Action::backoff(), ReconcileReason::Retried);
                return Some(Err(Error::ReconcilerPanicked(message, Arc::unwrap_or_clone(key))));
            }
            Err(_) if began == runtime => self.phase = RunPhase::Ended,
            Err(_) => {
                let now = Instant::now();
                let again = ReconcileRequest { at: now, reason: ReconcileReason::Retried };
                self.queue.finish_reconcile(&key, Some(again), now);
                // The next poll starts it, and waits for the other reconciles.
                cx.waker().wake_by_ref();
            }
        }
        None
    }

    /// Removes a reconcile that has ended from the running ones.
    fn record_duration(&mut self, id: task::Id) -> Option<RunningReconcile> {
        let running = self.running.remove(&id)?;
        self.metrics.lock().durations.add(running.since.elapsed());
        Some(running)
    }

    /// Logs a panic, and an identical one of the same object at most once a minute.
    fn log_panic(&self, object: &ObjectKey, panic: &str, what: &str) {
        if let Some(left_out) = self.warnings.admit((object, panic)) {
            let resource = self.cache.resource();
            tracing::error!(name: "listwatch.reconcile_panicked", %resource, %object, panic, left_out, "{what}");
        }
    }

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
    fn poll_caches(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Box<CacheError>>> {
        let RunPhase::Syncing(synced, subscriptions) = &mut self.phase else { return Poll::Ready(Ok(())) };
        ready!(synced.poll_unpin(cx))?;
        self.changes.extend(subscriptions.drain(..).map(|subscribe| subscribe()));
        self.all.push(self.part.keys(self.cache.clone()).boxed());
        self.phase = RunPhase::Reconciling;
        Poll::Ready(Ok(()))
    }

    /// Stops requests, and lets the running reconciles end.
    fn stop_requests(&mut self) {
        if !matches!(self.phase, RunPhase::Ended) {
            self.phase = RunPhase::Draining;
        }
        self.changes.clear();
        self.requested.clear();
        self.all.clear();
        self.graceful.clear();
        self.queue.clear();
        self.paused.clear();
    }

    /// Ends the controller with the error of a cache, after the running reconciles.
    fn end_with(&mut self, error: Box<CacheError>) -> Poll<Option<ReconcileResult<E>>> {
        self.stop_requests();
        Poll::Ready(Some(Err(Error::Cache(error))))
    }

    /// Moves requests into the queue. If many keys of a priority are due, only changes are read.
    fn read_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Box<CacheError>> {
        let Self { changes, requested, all, queue, paused, .. } = self;
        let now = Instant::now();
        let at = now.checked_add(self.debounce).unwrap_or(now);
        for _ in 0..MAX_READS {
            let mut is_idle = true;
            if let Poll::Ready(Some(requests)) = changes.poll_next_unpin(cx) {
                is_idle = false;
                let Requests { deleted, keys, reason } = requests?;
                if let Some(key) = deleted
                    && matches!(reason, ReconcileReason::Changed)
                {
                    queue.remove_requests(&key);
                }
                for key in keys {
                    queue.add_request(key, ReconcileRequest { at, reason }, now);
                }
            }
            paused.clear();
            for (keys, priority, reason) in [
                (&mut *requested, Priority::Change, ReconcileReason::Requested),
                (&mut *all, Priority::AllObjects, ReconcileReason::AllObjects),
            ] {
                if queue.line_length(priority) >= MAX_DUE {
                    paused.push(priority);
                } else if let Poll::Ready(Some(key)) = keys.poll_next_unpin(cx) {
                    is_idle = false;
                    queue.add_request(key, ReconcileRequest { at, reason }, now);
                }
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
            let Some(object) = self.cache.get(&*key).filter(|object| self.part.selects(object)) else {
                self.queue.remove_key(&key);
                continue;
            };
            let span = tracing::info_span!("listwatch.reconcile", object = %key, reason = reason.as_str());
            // The function may panic before it returns a future. Its task then panics.
            let reconcile = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| reconcile(object.clone()))));
            let running = RunningReconcile { runtime, key: Arc::clone(&key), since: Instant::now() };
            let task = async move {
                let reconcile = reconcile.unwrap_or_else(|panic| resume_unwind(panic));
                FinishedReconcile { key, object, result: reconcile.await }
            };
            self.running.insert(self.tasks.spawn(task.instrument(span)).id(), running);
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
            Err(error) => {
                let decided = catch_unwind(AssertUnwindSafe(|| error_policy(object, error)));
                let backoff = |panic| {
                    self.log_panic(&key, &panic_message(panic), "the error policy of a controller panicked");
                    Action::backoff()
                };
                (decided.unwrap_or_else(backoff), ReconcileReason::Retried)
            }
        };
        {
            let mut metrics = self.metrics.lock();
            let count = match &result {
                Ok(action) if *action == Action::await_change() => &mut metrics.succeeded,
                Ok(_) => &mut metrics.requeued,
                Err(_) => &mut metrics.failed,
            };
            *count += 1;
        }
        self.conclude(&key, result.is_err() || action == Action::backoff(), action, reason);
        let key = Arc::unwrap_or_clone(key);
        match result {
            Ok(action) => Ok((key, action)),
            Err(error) => Err(Error::ReconcilerFailed(error, key)),
        }
    }

    fn conclude(&mut self, key: &Arc<ObjectKey>, has_failed: bool, action: Action, reason: ReconcileReason) {
        let failures = self.queue.record_result(key, has_failed);
        let after = match action.0 {
            NextReconcile::Requeue(after) => Some(after),
            NextReconcile::AwaitChange => None,
            NextReconcile::Backoff => Some(backoff_delay(failures)),
        };
        if failures > 0 && after.is_none() && self.cache.get(&**key).is_none() {
            // The object was deleted during the reconcile, and nothing else would remove its failures.
            self.queue.record_result(key, false);
        }
        let now = Instant::now();
        let next = after.and_then(|after| now.checked_add(after)).map(|at| ReconcileRequest { at, reason });
        if next.is_some() && matches!(reason, ReconcileReason::Retried) {
            self.metrics.lock().retries += 1;
        }
        self.queue.finish_reconcile(key, next, now);
    }

    /// Waits until a delayed key is due.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.queue.next_due_at() else { return Poll::Pending };
        self.timer.poll(at, cx)
    }
}

/// Returns the delay after a number of failures in a row.
fn backoff_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let delay = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
    delay.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// Returns the message of a panic, and drops its value. The drop is code of the caller, and may panic too.
fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("the panic has no message").to_owned();
    _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(mem::forget);
    message
}

/// No object waits and no reconcile runs after the end.
impl<T: StoreType + ?Sized, E> Drop for ControllerRun<T, E> {
    fn drop(&mut self) {
        let mut metrics = self.metrics.lock();
        (metrics.due, metrics.delayed, metrics.running) = (0, 0, 0);
    }
}
