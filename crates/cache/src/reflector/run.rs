//! The loop of a reflector: attempts to sync, until an error ends it.
//!
//! Three parts share the work, so that each can be read and tested alone:
//!
//! | part | does | knows |
//! |---|---|---|
//! | [`SyncState`](super::sync::SyncState) | decides: which strategy, which version, what after an error | neither IO nor time |
//! | [`Feed`] | writes what a list and a watch deliver into the store | the store, neither errors' classes nor retries |
//! | this file | requests, waits, and reports to the status | both |
//!
//! - An attempt is a list, a watch, or both, until an error. The next attempt depends on
//!   [`SyncState`](super::sync::SyncState) only.
//! - The client's watch reconnects on its own, and resumes. An attempt ends when it cannot: the version has expired, or
//!   the server went back. A relist is the expensive case, so every reason for one has a name in the log (`because`,
//!   `listwatch.relist`).
//! - The store serves its objects meanwhile. Only the commit of a complete list deletes objects.
//! - The version in the status advances last: after the objects were written, and after the number of skipped objects.
//! - A silent watch proves nothing: a restored server sends nothing to a watch from a newer version. So
//!   [`SilenceCheck`] requests the version of the server. A newer version alone is no reason to relist, because a quiet
//!   server may send no bookmarks. The cache's own version proves that the cache was up to date when it was requested,
//!   unless the last change was a deletion, whose version other deletions may share.
//! - The loop yields to other tasks after each batch, and after each step of a commit: a long list must not block the
//!   runtime.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use listwatch::TypeMeta;
use listwatch::client::{Error, ResourceVersion};
use listwatch::internal::{
    Connections, MAX_RETRY_AFTER, Pages, RetryAdvice, Timer, chain, is_comparable, on_own_runtime,
};
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, field};

use crate::contain::{Panicked, panic_message};
use crate::reflector::attached::TARGET;
use crate::reflector::cache::{Cache, Collection};
use crate::reflector::feed::{BATCH, Feed, FeedStep, Received};
use crate::reflector::prepared::PreparedReflector;
use crate::reflector::silence::SilenceCheck;
use crate::reflector::status::record_error;
use crate::reflector::sync::{Attempt, MAX_DELAY, NextStep, Strategy};
use crate::{EndReason, StoreType};

/// A watch that kept the cache synced for this time resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

/// Why an attempt ended, and what follows.
type AttemptEnd = (Option<Error>, NextStep);

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// Keeps the store synced until the future is dropped, [`Cache::stop`] is called, or an error ends it.
    ///
    /// Attempts back off exponentially with jitter, from the [`delay`](listwatch::client::Retry::delay) of the client's
    /// [`Retry`](listwatch::client::Retry) to 30 s (doubled at most by jitter). A watch that lived for 10 s resets the
    /// backoff. [`last_error`](crate::ReflectorStatus::last_error) has the last error, and the log has a warning for
    /// each until the first sync, and later for each minute of an outage: see [`listwatch::client`].
    ///
    /// However it ends, [`Cache::is_running`] is then false, [`Cache::synced`] returns
    /// [`SyncError::Ended`](crate::SyncError::Ended), and subscribers get [`Change::Ended`](crate::Change::Ended), all
    /// with the [reason](EndReason).
    ///
    /// # Errors
    ///
    /// [`Error`] when the selection is invalid, or the resource [cannot be
    /// watched](listwatch::client::Resource::without_watch).
    ///
    /// Until the collection was complete (a loaded file counts), also when the caller has to change something: the
    /// server refuses the request (400, 422), or TLS failed before its first response
    /// ([`TransportErrorKind::Tls`](listwatch::client::TransportErrorKind::Tls)). With
    /// [`fail_fast`](super::Reflector::fail_fast), lasting errors end it then too. Once the collection was complete, it
    /// retries all errors.
    ///
    /// An object that cannot be stored is not an error: it is [skipped](crate::ReflectorStatus::skipped), and the cache
    /// is incomplete. The reflector relists once the store has room for an object that exceeded the
    /// [budget](crate::Store::set_budget). A panic in an index function is an error of the object:
    /// [`Index::errors`](crate::Index::errors).
    pub async fn run(self) -> Result<(), Error> {
        self.run_until(pending()).await
    }

    /// Runs the reflector in a task of tokio, and returns the cache that it keeps synced.
    ///
    /// # What keeps it running
    ///
    /// The task runs as long as there is something through which its store can be read: this [`Cache`], a
    /// [`StoreReader`](crate::StoreReader), an [`Index`](crate::Index), a [`Subscriber`](crate::Subscriber), a
    /// [`ChangeCursor`](crate::ChangeCursor), their clones, and the [`Store`](crate::Store) if you gave it one. An
    /// [`Object`](crate::Object) and a [`Snapshot`](crate::Snapshot) do not count: they never change. When the last of
    /// them is dropped, the watch ends.
    ///
    /// [`Cache::stop`] ends it earlier. It also ends with the runtime, and with an error as [`run`](Self::run) does,
    /// which is then logged.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn spawn(mut self) -> Cache<T> {
        let cache = self.cache();
        let last_handle = self.store.last_handle();
        let resource = self.resource.clone();
        tokio::spawn(async move {
            if let Err(error) = self.run_until(last_handle).await {
                tracing::error!(
                    name: "listwatch.ended",
                    target: TARGET,
                    %resource,
                    error = field::display(chain(&error)),
                    "the reflector ended"
                );
            }
        });
        cache
    }

    /// Keeps the store synced until this future is ready, a cache stops it, or an error or a panic ends it.
    async fn run_until(mut self, end: impl Future<Output = ()>) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let (mut stopped, mut end) = (pin!(stop.notified()), pin!(end));
        let ended = {
            let mut running = pin!(on_own_runtime(self.run_until_error()));
            poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(None));
                }
                // The store is dropped afterwards, so nothing sees what a panic left half done.
                match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
                    Ok(running) => running.map(|Err(error)| Ok(Some(error))),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            })
            .await
        };
        let (reason, result) = match ended {
            Ok(None) => (EndReason::Stopped, Ok(())),
            Ok(Some(error)) => (EndReason::Failed(error.clone()), Err(error)),
            Err(panic) => {
                self.store.end = Some(EndReason::Panicked(panic_message(&*panic).into()));
                drop(self);
                resume_unwind(panic)
            }
        };
        self.store.end = Some(reason);
        result
    }

    /// Tells the readers of the cache which collection it has.
    ///
    /// # Errors
    ///
    /// An error of the parameters.
    fn describe_to_readers(&self) -> Result<(), Error> {
        self.resource.check_watchable()?;
        self.selection.validate()?;
        let description = self.describe_collection()?;
        self.collection.get_or_init(|| Collection {
            description,
            type_meta: TypeMeta::new(self.resource.api_version(), self.resource.kind()),
            namespace: self.namespace.clone(),
            selection: self.selection.clone(),
            projection: self.projection.clone(),
        });
        self.store.set_type_meta(self.selection.type_meta(&self.resource));
        Ok(())
    }

    async fn run_until_error(&mut self) -> Result<Infallible, Error> {
        self.describe_to_readers()?;
        let mut backoff = self.client.backoff(MAX_DELAY);
        let mut attempts = 0_u64;
        let mut is_relisting = false;
        loop {
            let has_initial_events = self.client.has_initial_events(&self.resource)?;
            let attempt = self.sync.attempt(has_initial_events);
            self.outage.begin_sync();
            attempts += 1;
            self.status.send_modify(|status| {
                status.strategy = (!attempt.resumes).then_some(attempt.strategy);
                let relists = !attempt.resumes && status.resource_version.is_some();
                status.relists += u64::from(relists && !is_relisting);
                is_relisting = relists;
            });
            let span = self.attempt_span(&attempt, attempts);
            let (error, next) = self.attempt(&attempt).instrument(span.clone()).await;
            self.status.send_modify(|status| status.is_up_to_date = false);
            if let Some(error) = &error {
                span.record("error", field::display(chain(error)));
                record_error(&self.status, error.clone());
            }
            if let Some(at) = self.synced_at.take() {
                is_relisting = false;
                if at.elapsed() >= HEALTHY {
                    backoff = self.client.backoff(MAX_DELAY);
                }
            }
            let wait = match (next, &error) {
                (NextStep::RetryNow, _) => Duration::ZERO,
                (NextStep::GiveUp, Some(error)) => return Err(error.clone()),
                _ => {
                    let asked = error.as_ref().and_then(Error::retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
                    backoff.next().unwrap_or(MAX_DELAY).max(asked)
                }
            };
            if error.is_some() {
                self.client.count_retry();
            }
            span.in_scope(|| {
                if let Some(error) = &error {
                    let needs_repair = self.client.classify(error) == RetryAdvice::RetryAfterRepair;
                    self.outage.fail(error, wait, needs_repair);
                }
                let error = error.as_ref().map(|error| field::display(chain(error)));
                tracing::info!(
                    name: "listwatch.attempt_ended",
                    target: TARGET,
                    error,
                    seconds = wait.as_secs_f64(),
                    "the attempt ended: retrying"
                );
            });
            sleep(wait).await;
        }
    }

    fn attempt_span(&self, attempt: &Attempt, number: u64) -> Span {
        let Attempt { strategy, because, .. } = *attempt;
        tracing::info_span!(
            target: TARGET,
            "listwatch.reflector",
            resource = %self.resource,
            resource_version = field::Empty,
            attempt = number,
            error = field::Empty,
            %strategy,
            because,
        )
    }

    /// Syncs until an error ends the attempt, another relist of the store begins, or the server went back.
    async fn attempt(&mut self, attempt: &Attempt) -> AttemptEnd {
        let (list, watch) = match self.connect(attempt).await {
            Ok(connections) => connections,
            Err(end) => return end,
        };
        let (store, projection) = (self.store.clone(), self.projection.take());
        let feed = Feed::new(&store, projection.as_ref(), list, watch, attempt);
        let end = self.follow(feed, attempt).await;
        self.projection = projection;
        end
    }

    /// Returns the list and the watch of an attempt. Only for the strategy `WatchFirst` it waits for the server.
    async fn connect(&mut self, attempt: &Attempt) -> Result<(Option<Pages>, Option<Connections>), AttemptEnd> {
        let pages = attempt.pages;
        Ok(match attempt.strategy {
            _ if attempt.resumes => (None, Some(self.watch().after_version(attempt.known.clone()))),
            Strategy::WatchList => (None, Some(self.watch())),
            Strategy::ListThenWatch => (Some(self.list(attempt.version.clone(), pages).into_pages()), None),
            Strategy::WatchFirst => match self.recent_version().await {
                Ok(version) if self.sync.is_ahead_of(&version) => return Err((None, self.sync.record_older_server())),
                // For an object from both, the older state could not be determined.
                Ok(version) if !is_comparable(&version) => {
                    (Some(self.list(ResourceVersion::MostRecent, pages).into_pages()), None)
                }
                Ok(version) => {
                    let list_version = match &attempt.version {
                        ResourceVersion::MostRecent => ResourceVersion::MostRecent,
                        _ => ResourceVersion::AtLeast(version.clone()),
                    };
                    // The parallel watch corrects pages of different versions.
                    let list = self.list(list_version, pages).allow_inconsistent();
                    (Some(list.into_pages()), Some(self.watch().after_version(version)))
                }
                Err(error) => {
                    let next = self.sync.list_failed(attempt, &error, self.client.classify(&error));
                    return Err((Some(error), next));
                }
            },
        })
    }

    /// Writes what the list and the watch deliver, until the attempt ends.
    async fn follow(&mut self, mut feed: Feed<'_, T>, attempt: &Attempt) -> AttemptEnd {
        let (mut silence, mut slow) = (SilenceCheck::new(), Timer::default());
        // True if the watch has been silent since the server was found to have newer versions.
        let mut is_suspect = false;
        loop {
            let step = poll_fn(|cx| match feed.poll(cx) {
                Poll::Pending if self.synced_at.is_none() => {
                    self.poll_slow_sync(cx, &mut slow, &feed);
                    Poll::Pending
                }
                Poll::Pending if self.synced_at.is_some() => {
                    self.report_connection(feed.is_watching());
                    silence.poll(cx, || Box::pin(self.recent_version())).map(FeedStep::Silent)
                }
                step => step,
            });
            let step = step.await;
            silence.restart_clock();
            // In this order: a reader of the status that sees the version sees the skipped objects, too.
            let resumes_from = feed.resumes_from().map(str::to_owned);
            let (received, version) = feed.take_received();
            let is_full_batch = received.written >= BATCH;
            let received = self.report_received(received);
            match &step {
                FeedStep::Synced(version) => self.report_synced(version, 1),
                FeedStep::Resumed(version) => self.report_synced(version, 0),
                _ => {}
            }
            self.advance_version(&received, version, resumes_from);
            match step {
                FeedStep::Synced(version) if feed.needs_watch() => feed.set_watch(self.watch().after_version(version)),
                FeedStep::Written => is_suspect &= !received.has_event,
                FeedStep::Synced(_) | FeedStep::Resumed(_) => {}
                FeedStep::Silent((at, Ok(version))) if feed.is_complete_at(&version) => {
                    is_suspect = false;
                    self.status.send_modify(|status| status.last_synced_at = Some(at.into_std()));
                }
                FeedStep::Silent((_, Ok(version))) => {
                    if let Some(next) = self.judge_silence(&version, feed.is_watching(), &mut is_suspect) {
                        return (None, next);
                    }
                }
                FeedStep::Silent((_, Err(error))) => record_error(&self.status, error),
                FeedStep::Superseded => return (None, NextStep::RetryLater),
                FeedStep::WentBack => return (None, self.sync.record_older_server()),
                FeedStep::ListFailed(error) => {
                    let next = self.sync.list_failed(attempt, &error, self.client.classify(&error));
                    return (Some(error), next);
                }
                FeedStep::WatchFailed(error) => {
                    let next = self.sync.watch_failed(attempt, &error, self.client.classify(&error));
                    return (Some(error), next);
                }
            }
            if self.synced_at.is_some()
                && let Some(because) = self.store.needs_relist()
            {
                tracing::info!(name: "listwatch.relist", target: TARGET, "relisting: {because}");
                return (None, NextStep::RetryLater);
            }
            if is_full_batch { yield_now().await } else { consume_budget().await }
        }
    }

    /// Warns if the collection has not been complete for long.
    fn poll_slow_sync(&self, cx: &mut Context<'_>, timer: &mut Timer, feed: &Feed<'_, T>) {
        while let Some(at) = self.outage.warns_of_slow_sync_at()
            && timer.poll(at, cx).is_ready()
        {
            let (objects, bytes) = feed.totals();
            self.outage.warn_of_slow_sync(objects, bytes);
        }
    }

    /// Compares the cache with the version of the server of a silent watch, unless that proves that the cache is up to
    /// date. Returns the next step if the attempt must end.
    fn judge_silence(&mut self, version: &str, is_watching: bool, is_suspect: &mut bool) -> Option<NextStep> {
        if self.sync.is_ahead_of(version) {
            return Some(self.sync.record_older_server());
        }
        // At an equal version, a watch that opens will get the changes that may be missing.
        if !self.sync.is_behind(version) && !is_watching {
            return None;
        }
        // A server that is too busy for watches must not get lists instead.
        let is_refused = |error: &Error| error.code() == Some(429);
        let is_throttled = self.status.borrow().last_error.as_ref().is_some_and(is_refused);
        // A server may send no bookmarks, and have no changes, so an open watch gets a second probe.
        let relists = if is_watching { *is_suspect } else { !is_throttled };
        if relists {
            tracing::info!(
                name: "listwatch.relist",
                target: TARGET,
                resource_version = version,
                "relisting: the watch is silent, and may lack changes of the server"
            );
            return Some(self.sync.record_missed_changes());
        }
        *is_suspect = true;
        None
    }

    /// Records that the watch of a synced cache is open. An error of the watch clears this.
    fn report_connection(&self, is_watching: bool) {
        if is_watching && !self.status.borrow().is_up_to_date {
            self.status.send_modify(|status| status.is_up_to_date = true);
        }
    }

    /// Updates the changes and the skipped objects in the status. Call it before the resource version in the status is
    /// updated, and before [`report_synced`](Self::report_synced).
    fn report_received(&self, mut received: Received) -> Received {
        if let Some(error) = &received.skipped
            && let (text, is_panic) = (chain(error), Panicked::is(&*error.source))
            && let Some(left_out) = self.client.warnings().admit(&text)
        {
            let message = "skipped an object: the cache is incomplete";
            if is_panic {
                tracing::error!(name: "listwatch.skipped", target: TARGET, skipped = text, left_out, message);
            } else {
                tracing::warn!(name: "listwatch.skipped", target: TARGET, skipped = text, left_out, message);
            }
        }
        let (errors, mut last_index_error) = self.store.take_index_errors();
        if let Some(error) = &last_index_error
            && let (text, is_panic) = (chain(error), Panicked::is(&*error.source))
            && let Some(left_out) = self.client.warnings().admit(&text)
        {
            let message = "an index function failed: the index lacks an object";
            if is_panic {
                tracing::error!(name: "listwatch.index_error", target: TARGET, error = text, errors, left_out, message);
            } else {
                tracing::warn!(name: "listwatch.index_error", target: TARGET, error = text, errors, left_out, message);
            }
        }
        let skipped = self.store.skipped();
        let changes = if self.synced_at.is_some() { received.written } else { 0 };
        self.status.send_if_modified(|status| {
            status.changes += changes;
            let is_news = status.skipped != skipped || received.skipped.is_some() || errors > 0;
            status.skipped = skipped;
            status.last_skipped = received.skipped.take().or(status.last_skipped.take());
            status.index_errors += errors;
            status.last_index_error = last_index_error.take().or(status.last_index_error.take());
            is_news
        });
        received
    }

    fn advance_version(&mut self, received: &Received, version: Option<&str>, resumes_from: Option<String>) {
        let version = version.filter(|version| self.sync.record_watched_version(version));
        if let Some(version) = version {
            self.store.advance(version);
        }
        let last_synced_at = (received.has_event && self.synced_at.is_some()).then(|| Instant::now().into_std());
        self.status.send_modify(|status| {
            status.events += received.written;
            status.last_synced_at = last_synced_at.or(status.last_synced_at);
            if let Some(version) = version {
                status.resource_version = Some(version.to_owned());
                status.resumes_from = resumes_from;
            }
        });
    }

    /// Records that the collection is complete; `sent` is 1 if the server has sent all of it.
    fn report_synced(&mut self, version: &str, sent: u64) {
        self.sync.record_sync(version);
        let now = Instant::now();
        self.synced_at = Some(now);
        self.outage.end_sync();
        let skipped = self.store.skipped();
        tracing::Span::current().record("resource_version", version);
        tracing::info!(
            name: "listwatch.synced",
            target: TARGET,
            resource_version = version,
            objects = self.store.len(),
            skipped,
            "synced"
        );
        self.status.send_modify(|status| {
            status.syncs += sent;
            status.last_synced_at = Some(now.into_std());
            status.resource_version = Some(version.to_owned());
            status.resumes_from = Some(version.to_owned());
        });
    }
}
