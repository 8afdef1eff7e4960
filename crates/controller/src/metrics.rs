//! The figures of a controller, for an exporter.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The figures of a [`Controller`](crate::Controller) since it was created: see [`Controller::metrics`].
///
/// ```no_run
/// # use k8s_pb::api::core::v1::ConfigMap;
/// use listwatch_controller::Controller;
///
/// # fn build(config_maps: listwatch_cache::Cache<ConfigMap>) {
/// let controller = Controller::new(config_maps);
/// let metrics = controller.metrics();
/// let scrape = move || {
///     let now = metrics.read();
///     let buckets: Vec<(f64, u64)> = now.durations.buckets().collect();
///     println!("{} due, {} failed, {} retries, durations {buckets:?}", now.due, now.failed, now.retries);
/// };
/// # scrape();
/// # drop(controller);
/// # }
/// ```
///
/// [`Controller::metrics`]: crate::Controller::metrics
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Objects that now wait for their turn, because as many reconciles run as may: the depth of the queue.
    pub due: u64,
    /// Objects that now wait for the time of a requeue, a retry or a debounce.
    pub delayed: u64,
    /// Reconciles that run now.
    pub running: u64,
    /// Reconciles that ended without an error and await a change.
    pub succeeded: u64,
    /// Reconciles that ended without an error and requested another one with their [`Action`](crate::Action).
    pub requeued: u64,
    /// Reconciles that returned an error.
    pub failed: u64,
    /// Reconciles that panicked.
    pub panicked: u64,
    /// Reconciles that were requested again after an error or a panic.
    pub retries: u64,
    /// How long the finished reconciles took.
    pub durations: Durations,
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    counts: [u64; Self::BOUNDS.len()],
    sum: Duration,
}

impl Durations {
    /// The upper bound of each bucket in seconds. The last bucket has no limit.
    pub const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, f64::MAX];

    /// Returns the bound of each bucket, and how many durations lie above the previous bound and up to this one.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        Self::BOUNDS.into_iter().zip(self.counts)
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    pub(crate) fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let mut buckets = Self::BOUNDS.iter().zip(&mut self.counts);
        if let Some((_, count)) = buckets.find(|(bound, _)| seconds <= **bound) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(duration);
    }
}

/// Reads the figures of a controller while it runs, and after its end. Clones read the same controller.
#[derive(Clone, Default)]
pub struct MetricsReader(Arc<Mutex<Metrics>>);

impl MetricsReader {
    /// Returns the figures of this moment.
    #[must_use]
    pub fn read(&self) -> Metrics {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Metrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MetricsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}
