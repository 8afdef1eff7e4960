//! The types of metrics with labels.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// The labels of a sample. The names are few, and so are the values.
pub(super) type Labels<const N: usize> = [(&'static str, String); N];

pub(super) type LabelledCounter<const N: usize> = Family<Labels<N>, Counter>;

pub(super) type LabelledGauge<const N: usize> = Family<Labels<N>, Gauge>;

/// Gauges of seconds.
pub(super) type LabelledSeconds<const N: usize> = Family<Labels<N>, Gauge<f64, AtomicU64>>;

/// Returns a counter with a value that was counted elsewhere.
pub(super) fn counter_at(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}
