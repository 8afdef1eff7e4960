//! The attempts of a reflector to sync, one after the other, until an error ends it.
//!
//! | part | does | knows |
//! |---|---|---|
//! | [`SyncPolicy`](super::sync::SyncPolicy) | decides: which strategy, which version, what after an error | neither IO nor time |
//! | [`Feed`] | writes what a list and a watch deliver into the store | the store, neither errors' classes nor retries |
//! | this file and [`follow`](super::follow) | request, wait, and report to the status | both |
//!
//! - An attempt is a list, a watch, or both, until an error. The next attempt depends only on
//!   [`SyncPolicy`](super::sync::SyncPolicy).
//! - The client's watch reconnects and resumes on its own. An attempt ends when that is impossible, because the version
//!   has expired or the server went back. A relist is expensive, so every reason for one has a name in the log
//!   (`because`, `listwatch.relist`).
//! - The store serves its objects meanwhile. Only the commit of a complete list deletes objects.

use std::convert::Infallible;
use std::time::Duration;

use listwatch::client::{Error, ResourceVersion};
use listwatch::internal::{Connections, MAX_RETRY_AFTER, Pages, RetryAdvice, chain, is_comparable};
use listwatch::{StoreType, TypeMeta};
use tokio::time::sleep;
use tracing::{Instrument, Span, field};

use crate::reflector::cache::Collection;
use crate::reflector::feed::Feed;
use crate::reflector::follow::AttemptEnd;
use crate::reflector::prepared::{PreparedReflector, TARGET};
use crate::reflector::status::record_error;
use crate::reflector::sync::{Attempt, MAX_DELAY, NextStep, Strategy};

/// A watch that kept the cache synced this long resets the backoff, even without events.
const HEALTHY: Duration = Duration::from_secs(10);

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    pub(super) async fn run_until_error(&mut self) -> Result<Infallible, Error> {
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
                status.strategy = attempt.resumes.is_none().then_some(attempt.strategy);
                let relists = attempt.resumes.is_none() && status.resource_version.is_some();
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

    /// Tells the readers of the cache which collection it contains.
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
        self.attached.store.set_type_meta(self.selection.type_meta(&self.resource));
        Ok(())
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
        let (store, projection) = (self.attached.store.clone(), self.projection.take());
        let feed = Feed::new(&store, projection.as_ref(), list, watch, attempt);
        let end = self.follow(feed, attempt).await;
        self.projection = projection;
        end
    }

    /// Returns the list and the watch of an attempt. Only the strategy `WatchFirst` waits for the server here.
    async fn connect(&mut self, attempt: &Attempt) -> Result<(Option<Pages>, Option<Connections>), AttemptEnd> {
        let pages = attempt.pages;
        if let Some(version) = &attempt.resumes {
            return Ok((None, Some(self.watch().after_version(version.clone()))));
        }
        Ok(match attempt.strategy {
            Strategy::WatchList => (None, Some(self.watch())),
            Strategy::ListThenWatch => (Some(self.list(attempt.version.clone(), pages).into_pages()), None),
            Strategy::WatchFirst => match self.recent_version().await {
                Ok(version) if self.sync.is_ahead_of(&version) => return Err((None, self.sync.record_older_server())),
                // If both delivered an object, nobody could tell which state is older.
                Ok(version) if !is_comparable(&version) => {
                    (Some(self.list(ResourceVersion::MostRecent, pages).into_pages()), None)
                }
                Ok(version) => {
                    let list_version = match &attempt.version {
                        ResourceVersion::MostRecent => ResourceVersion::MostRecent,
                        _ => ResourceVersion::AtLeast(version.clone()),
                    };
                    // The parallel watch makes up for pages of different versions.
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
}
