//! The metrics of a mirror, for Prometheus.

mod counters;
mod labels;
mod process;
mod resource;

pub(crate) use self::counters::{GaugeGuard, MirrorMetrics, PoolMetrics, content_type};
pub(crate) use self::resource::{ResourceMetrics, ShownResources};
