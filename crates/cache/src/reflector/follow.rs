//! One attempt of a reflector, which writes what a list and a watch deliver and reports its progress to the status.
//!
//! - The version in the status advances last, after the objects were written and the skipped ones counted.
//! - A silent watch proves nothing, because a restored server sends nothing to a watch from a newer version.
//!   [`SilenceCheck`] therefore requests the server's version. A newer version alone is no reason to relist, because a
//!   quiet server may send no bookmarks. The cache's own version proves that the cache was up to date at the request,
//!   unless the last change was a deletion, whose version other deletions may share.
//! - The loop yields to other tasks after each batch and each step of a commit, so that a long list does not block the
//!   runtime.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use listwatch::StoreType;
use listwatch::client::Error;
use listwatch::internal::{Timer, chain};
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, Sleep, sleep};

use crate::contain::Panicked;
use crate::reflector::feed::{BATCH, Feed, FeedStep, Received};
use crate::reflector::prepared::{PreparedReflector, TARGET};
use crate::reflector::status::record_error;
use crate::reflector::sync::{Attempt, NextStep, QuietSpan};

/// Servers send a bookmark about once a minute (`bookmarkFrequency` in kubernetes apiserver/pkg/storage/cacher).
const SILENCE: Duration = Duration::from_secs(120);

pub(super) type AttemptEnd = (Option<Error>, NextStep);

/// What an attempt waits for: a step of its feed, what a cache has confirmed, or the version of the server of a silent
/// watch.
enum Progress {
    Fed(FeedStep),
    Confirmed(QuietSpan),
    Probed(Probe),
}

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    pub(super) async fn follow(&mut self, mut feed: Feed<'_, T>, attempt: &Attempt) -> AttemptEnd {
        let (mut silence, mut slow) = (SilenceCheck::new(), Timer::default());
        loop {
            let progress = poll_fn(|cx| match feed.poll(cx) {
                Poll::Ready(step) => Poll::Ready(Progress::Fed(step)),
                Poll::Pending if self.synced_at.is_some() => {
                    self.report_connection(feed.is_watching());
                    // Never `None`: this reflector has a sender.
                    if let Poll::Ready(Some(span)) = self.quiet_spans.1.poll_recv(cx) {
                        return Poll::Ready(Progress::Confirmed(span));
                    }
                    silence.poll(cx, || Box::pin(self.recent_version())).map(Progress::Probed)
                }
                Poll::Pending => {
                    self.poll_slow_sync(cx, &mut slow, &feed);
                    Poll::Pending
                }
            });
            let progress = progress.await;
            // In this order, because a reader of the status who sees the version must see the skipped objects too.
            let resumes_from = feed.resumes_from().map(str::to_owned);
            let (received, version) = feed.take_received();
            let is_full_batch = received.written >= BATCH;
            silence.restart_clock(received.has_event);
            let received = self.report_received(received);
            match &progress {
                Progress::Fed(FeedStep::Synced(version)) => self.report_synced(version, 1),
                Progress::Fed(FeedStep::Resumed(version)) => self.report_synced(version, 0),
                _ => {}
            }
            self.advance_version(&received, version, resumes_from);
            let end = match progress {
                Progress::Fed(step) => self.react_to_step(step, &mut feed, attempt),
                Progress::Confirmed(span) => {
                    self.record_quiet_span(&span);
                    None
                }
                Progress::Probed((at, Ok(version))) => {
                    self.judge_silence(at, &version, &feed, &mut silence).map(|next| (None, next))
                }
                Progress::Probed((_, Err(error))) => {
                    record_error(&self.status, error);
                    None
                }
            };
            if let Some(end) = end {
                return end;
            }
            if self.synced_at.is_some()
                && let Some(because) = self.attached.store.needs_relist()
            {
                tracing::info!(name: "listwatch.relist", target: TARGET, "relisting: {because}");
                return (None, NextStep::RetryLater);
            }
            if is_full_batch { yield_now().await } else { consume_budget().await }
        }
    }

    /// Returns why the attempt ends, if this step ends it.
    fn react_to_step(&mut self, step: FeedStep, feed: &mut Feed<'_, T>, attempt: &Attempt) -> Option<AttemptEnd> {
        match step {
            FeedStep::Synced(version) if feed.needs_watch() => {
                feed.set_watch(self.watch().after_version(version));
                None
            }
            FeedStep::Written | FeedStep::Synced(_) | FeedStep::Resumed(_) => None,
            FeedStep::Superseded => Some((None, NextStep::RetryLater)),
            FeedStep::WentBack => Some((None, self.sync.record_older_server())),
            FeedStep::ListFailed(error) => {
                let next = self.sync.list_failed(attempt, &error, self.client.classify(&error));
                Some((Some(error), next))
            }
            FeedStep::WatchFailed(error) => {
                let next = self.sync.watch_failed(attempt, &error, self.client.classify(&error));
                Some((Some(error), next))
            }
        }
    }

    /// Logs a warning if the collection has been incomplete for long.
    fn poll_slow_sync(&self, cx: &mut Context<'_>, timer: &mut Timer, feed: &Feed<'_, T>) {
        while let Some(at) = self.outage.warns_of_slow_sync_at()
            && timer.poll(at, cx).is_ready()
        {
            let (objects, bytes) = feed.totals();
            self.outage.warn_of_slow_sync(objects, bytes);
        }
    }

    /// Compares the cache with the version that the server had when it was asked during a silent watch, or later.
    /// Returns the next step if the attempt must end.
    fn judge_silence(
        &mut self,
        at: Instant,
        version: &str,
        feed: &Feed<'_, T>,
        silence: &mut SilenceCheck,
    ) -> Option<NextStep> {
        if feed.is_complete_at(version) {
            silence.is_suspect = false;
            self.status.send_modify(|status| status.last_synced_at = Some(at.into_std()));
            return None;
        }
        if self.sync.is_ahead_of(version) {
            return Some(self.sync.record_older_server());
        }
        let is_watching = feed.is_watching();
        // At an equal version, a watch that opens receives the changes that may be missing.
        if !self.sync.is_behind(version) && !is_watching {
            return None;
        }
        // A server that is too busy for watches must not get lists instead.
        let is_refused = |error: &Error| error.code() == Some(429);
        let is_throttled = self.status.borrow().last_error.as_ref().is_some_and(is_refused);
        // A server may send no bookmarks and have no changes, so an open watch gets a second probe.
        let relists = if is_watching { silence.is_suspect } else { !is_throttled };
        if relists {
            tracing::info!(
                name: "listwatch.relist",
                target: TARGET,
                resource_version = version,
                "relisting: the watch is silent, and may lack changes of the server"
            );
            return Some(self.sync.record_missed_changes());
        }
        silence.is_suspect = true;
        None
    }

    /// Notes that the watch of a synced cache is open. An error of the watch clears this.
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
        let (errors, mut last_index_error) = self.attached.store.take_index_errors();
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
        let skipped = self.attached.store.skipped();
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
            self.attached.store.advance(version);
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

    /// Advances the version over a span without changes, as a bookmark does.
    fn record_quiet_span(&mut self, span: &QuietSpan) {
        let to = &span.to;
        if self.sync.record_unchanged(span) {
            self.attached.store.advance(to);
            self.status.send_modify(|status| {
                status.resource_version = Some(to.clone());
                status.resumes_from = Some(to.clone());
                status.last_synced_at = Some(Instant::now().into_std());
            });
        }
    }

    /// Notes that the collection is complete. `sent` is 1 if the server has sent all of it.
    fn report_synced(&mut self, version: &str, sent: u64) {
        self.sync.record_sync(version);
        let now = Instant::now();
        self.synced_at = Some(now);
        self.outage.end_sync();
        let skipped = self.attached.store.skipped();
        tracing::Span::current().record("resource_version", version);
        tracing::info!(
            name: "listwatch.synced",
            target: TARGET,
            resource_version = version,
            objects = self.attached.store.len(),
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

/// When the server was asked, and the version that it had at that time or later.
type Probe = (Instant, Result<String, Error>);

type VersionRequest = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// Requests the server's version when a watch is silent. A server that was restored from a backup at an older version
/// sends nothing, because its changes are older than the start of the watch.
struct SilenceCheck {
    deadline: Pin<Box<Sleep>>,
    /// When the request was sent, and the request.
    request: Option<(Instant, VersionRequest)>,
    /// True if the server was found to have newer versions, and the watch has been silent since then.
    is_suspect: bool,
}

impl SilenceCheck {
    fn new() -> Self {
        Self { deadline: Box::pin(sleep(SILENCE)), request: None, is_suspect: false }
    }

    /// Resolves to the server's version after the watch was silent for [`SILENCE`].
    fn poll(&mut self, cx: &mut Context<'_>, send: impl FnOnce() -> VersionRequest) -> Poll<Probe> {
        if self.request.is_none() {
            ready!(self.deadline.as_mut().poll(cx));
        }
        let (at, request) = self.request.get_or_insert_with(|| (Instant::now(), send()));
        request.as_mut().poll(cx).map(|version| (*at, version))
    }

    /// Restarts the clock. If the watch has delivered an event, the server is no longer suspect.
    fn restart_clock(&mut self, has_event: bool) {
        self.deadline.as_mut().reset(Instant::now() + SILENCE);
        self.request = None;
        self.is_suspect &= !has_event;
    }
}
