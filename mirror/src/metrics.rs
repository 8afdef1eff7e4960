//! The metrics of a mirror, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::mirrored::Mirrored;

type Labels<const N: usize> = [(&'static str, String); N];

/// A gauge of each resource.
type Gauges = Family<Labels<1>, Gauge>;

/// A gauge of seconds of each resource.
type Seconds = Family<Labels<1>, Gauge<f64, AtomicU64>>;

/// Returns the content type of [`Metrics::text`]: `OpenMetrics` if the reader accepts it, else the older text format of
/// Prometheus, whose parsers read the same text.
pub(crate) fn content_type(headers: &HeaderMap) -> &'static str {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accept.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    }
}

/// The counters of a mirror. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<Counters>);

#[derive(Default)]
struct Counters {
    requests: Family<Labels<2>, Counter>,
    denied: Family<Labels<1>, Counter>,
    forwarded: Counter,
    bytes: Family<Labels<1>, Counter>,
    connections: Gauge,
    watchers: Family<Labels<1>, Gauge>,
    expired: Family<Labels<1>, Counter>,
    unconfirmed: Family<Labels<1>, Counter>,
}

/// Counts something as open until it is dropped.
pub(crate) struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts a request. `kind` is one of a few words.
    pub(crate) fn request(&self, kind: &'static str, code: StatusCode) {
        let labels = [("kind", kind.to_owned()), ("code", code.as_str().to_owned())];
        self.0.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that was refused for this reason, which is one of a few words.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.0.denied.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    pub(crate) fn forwarded(&self) {
        self.0.forwarded.inc();
    }

    /// Returns the counter of the bytes of bodies, for a body to keep. `None` is for all bodies that are not from memory.
    pub(crate) fn bytes(&self, mirrored: Option<&Mirrored>) -> Counter {
        let labels = mirrored.map_or_else(|| [("resource", "other".to_owned())], of);
        self.0.bytes.get_or_create(&labels).clone()
    }

    /// Counts a connection until the result is dropped.
    pub(crate) fn connection(&self) -> Open {
        Open::new(self.0.connections.clone())
    }

    /// Counts a watcher until the result is dropped.
    pub(crate) fn watching(&self, mirrored: &Mirrored) -> Open {
        Open::new(self.0.watchers.get_or_create(&of(mirrored)).clone())
    }

    /// Counts a 410, as a response or in a watch.
    pub(crate) fn expired(&self, mirrored: &Mirrored) {
        self.0.expired.get_or_create(&of(mirrored)).inc();
    }

    /// Counts a watch whose initial state may be older than the API server's.
    pub(crate) fn unconfirmed(&self, mirrored: &Mirrored) {
        self.0.unconfirmed.get_or_create(&of(mirrored)).inc();
    }

    /// Returns the metrics in the text format `OpenMetrics`.
    pub(crate) fn text(&self, resources: &[Arc<Mirrored>]) -> Result<String, fmt::Error> {
        let Counters { requests, denied, forwarded, bytes, connections, watchers, expired, unconfirmed } = &*self.0;
        let mut registry = Registry::with_prefix("listwatch_mirror");
        registry.register("requests", "Requests by kind and status code", requests.clone());
        registry.register("denied", "Requests that were denied, by reason", denied.clone());
        registry.register("forwarded", "Requests that were forwarded to the API server", forwarded.clone());
        registry.register("sent_bytes", "Bytes of bodies that were sent to readers, by resource", bytes.clone());
        registry.register("connections", "Open connections of readers", connections.clone());
        registry.register("watchers", "Open watches", watchers.clone());
        registry.register("expired", "Watches that began or ended with a 410", expired.clone());
        let help = "Watches without a version that may have begun with an older state than the API server's";
        registry.register("unconfirmed", help, unconfirmed.clone());

        // One family has the samples of all resources: a parser refuses a second HELP or TYPE of the same name.
        let (objects, ready, paged) = (Gauges::default(), Gauges::default(), Gauges::default());
        let (lags, log_ages) = (Seconds::default(), Seconds::default());
        for mirrored in resources {
            let (status, labels) = (mirrored.status(), of(mirrored));
            objects.get_or_create(&labels).set(i64::try_from(mirrored.cache.len()).unwrap_or(i64::MAX));
            ready.get_or_create(&labels).set(i64::from(status.ready));
            paged.get_or_create(&labels).set(i64::try_from(mirrored.paged_snapshots()).unwrap_or(i64::MAX));
            if let Some(lag) = status.lag {
                lags.get_or_create(&labels).set(lag.as_secs_f64());
            }
            if let Some(age) = mirrored.log_age() {
                log_ages.get_or_create(&labels).set(age.as_secs_f64());
            }
        }
        registry.register("objects", "Objects in the cache", objects);
        registry.register("ready", "1 if the cache has the whole collection", ready);
        registry.register("paged_snapshots", "Snapshots that are kept for lists in pages", paged);
        registry.register("lag_seconds", "Time since the cache was last known to be up to date", lags);
        registry.register("log_age_seconds", "Age of the oldest change that a reader can resume from", log_ages);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

fn of(mirrored: &Mirrored) -> Labels<1> {
    [("resource", mirrored.resource.to_string())]
}
