//! The metrics of a cache, for Prometheus.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::Cached;
use super::status::{lag, parts, relists};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the metrics in the text format `OpenMetrics`.
pub fn text(cached: &Cached) -> Result<String, fmt::Error> {
    let status = cached.cache.status();
    let labels = [("resource".into(), cached.resource.to_string().into())].into_iter();
    let mut registry = Registry::with_prefix_and_labels("listwatch_cache", labels);

    registry.register("objects", "Objects in the cache", ConstGauge::new(count(cached.cache.len())));
    let bytes = Family::<Vec<(&str, &str)>, Gauge>::default();
    for (part, held) in parts(&cached.cache.memory()) {
        bytes.get_or_create(&vec![("part", part)]).set(count(held));
    }
    registry.register("bytes", "Memory of the cache in bytes, by part", bytes);
    let is_synced = i64::from(status.resource_version.is_some());
    registry.register("synced", "1 once the cache has received the whole collection", ConstGauge::new(is_synced));
    if let Some(lag) = lag(&status) {
        let help = "Time since the cache last received an event, a bookmark or a complete list";
        registry.register("lag_seconds", help, ConstGauge::new(lag));
    }
    let help = "Objects and deletions received from lists and watches";
    registry.register("events", help, ConstCounter::new(status.events));
    registry.register("errors", "Connections and lists that ended in an error", ConstCounter::new(status.errors));
    registry.register("syncs", "Times that the whole collection was received", ConstCounter::new(status.syncs));
    registry.register(
        "relists",
        "Times that the whole collection was received again",
        ConstCounter::new(relists(&status)),
    );
    let help = "Objects whose latest state the cache lacks, because it could not store it";
    registry.register("skipped", help, ConstGauge::new(count(status.skipped)));
    let errors = Family::<Vec<(&str, String)>, Gauge>::default();
    for (by, index) in &cached.indexes {
        errors.get_or_create(&vec![("index", by.name.clone())]).set(count(index.errors().len()));
    }
    registry.register("index_errors", "Objects that an index lacks, because it could not read them", errors);

    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
