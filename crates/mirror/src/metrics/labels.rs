//! The types of metrics with labels.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// The labels of a sample. The names are few, and so are the values.
pub(super) type Labels<const N: usize> = [(&'static str, String); N];

pub(super) type LabelledCounter<const N: usize> = Family<Labels<N>, Counter>;

pub(super) type LabelledGauge<const N: usize> = Family<Labels<N>, Gauge>;

/// Gauges of seconds.
pub(super) type LabelledSeconds<const N: usize> = Family<Labels<N>, Gauge<f64, AtomicU64>>;

/// Histograms of seconds.
pub(super) type LabelledHistogram<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// Returns a histogram with buckets from an answer of memory to the longest wait.
pub(super) fn histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0])
}

/// Returns such histograms.
pub(super) fn histograms<const N: usize>() -> LabelledHistogram<N> {
    Family::new_with_constructor(histogram)
}

/// Returns a counter with a value that was counted elsewhere.
pub(super) fn counter_at(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}
