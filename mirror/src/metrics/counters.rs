//! The metrics of a mirror, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use listwatch::client::Resource;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels<const N: usize> = [(&'static str, String); N];

/// A gauge of each resource.
type Gauges = Family<Labels<1>, Gauge>;

/// A gauge of seconds of each resource.
type Seconds = Family<Labels<1>, Gauge<f64, AtomicU64>>;

/// What the metrics show of a mirrored resource.
pub(crate) struct ResourceGauges {
    /// The label of the resource, as users type it.
    pub(crate) resource: String,
    pub(crate) objects: usize,
    pub(crate) is_ready: bool,
    pub(crate) paged_snapshots: usize,
    pub(crate) lag: Option<Duration>,
    pub(crate) log_age: Option<Duration>,
}

/// Returns the content type of [`MirrorMetrics::encode_text`]: `OpenMetrics` if the reader accepts it, else the older
/// text format of Prometheus, whose parsers read the same text.
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
pub(crate) struct MirrorMetrics(Arc<Counters>);

#[derive(Default)]
struct Counters {
    requests: Family<Labels<2>, Counter>,
    denied: Family<Labels<1>, Counter>,
    forwarded: Counter,
    sent_bytes: Family<Labels<1>, Counter>,
    connections: Gauge,
    watchers: Family<Labels<1>, Gauge>,
    expired: Family<Labels<1>, Counter>,
    unconfirmed: Family<Labels<1>, Counter>,
}

/// Adds 1 to a gauge until it is dropped.
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl MirrorMetrics {
    /// Counts a request. `kind` is one of a few words.
    pub(crate) fn count_request(&self, kind: &'static str, code: StatusCode) {
        let labels = [("kind", kind.to_owned()), ("code", code.as_str().to_owned())];
        self.0.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that was refused for this reason, which is one of a few words.
    pub(crate) fn count_denied(&self, reason: &'static str) {
        self.0.denied.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    pub(crate) fn count_forwarded(&self) {
        self.0.forwarded.inc();
    }

    /// Returns the counter of the bytes of bodies, for a body to keep. `None` is for all bodies that are not from
    /// memory.
    pub(crate) fn sent_bytes(&self, resource: Option<&Resource>) -> Counter {
        let labels = resource.map_or_else(|| [("resource", "other".to_owned())], resource_label);
        self.0.sent_bytes.get_or_create(&labels).clone()
    }

    /// Counts a connection as open until the result is dropped.
    pub(crate) fn open_connection(&self) -> GaugeGuard {
        GaugeGuard::new(self.0.connections.clone())
    }

    /// Counts a watch as open until the result is dropped.
    pub(crate) fn open_watch(&self, resource: &Resource) -> GaugeGuard {
        GaugeGuard::new(self.0.watchers.get_or_create(&resource_label(resource)).clone())
    }

    /// Counts a watch that begins or ends with a 410.
    pub(crate) fn count_expired(&self, resource: &Resource) {
        self.0.expired.get_or_create(&resource_label(resource)).inc();
    }

    /// Counts a watch whose initial state may be older than the API server's.
    pub(crate) fn count_unconfirmed(&self, resource: &Resource) {
        self.0.unconfirmed.get_or_create(&resource_label(resource)).inc();
    }

    /// Returns the metrics in the text format `OpenMetrics`.
    pub(crate) fn encode_text(
        &self,
        resources: impl IntoIterator<Item = ResourceGauges>,
    ) -> Result<String, fmt::Error> {
        let Counters { requests, denied, forwarded, sent_bytes, connections, watchers, expired, unconfirmed } =
            &*self.0;
        let mut registry = Registry::with_prefix("listwatch_mirror");
        registry.register("requests", "Requests by kind and status code", requests.clone());
        registry.register("denied", "Requests that were denied, by reason", denied.clone());
        registry.register("forwarded", "Requests that were forwarded to the API server", forwarded.clone());
        registry.register("sent_bytes", "Bytes of bodies that were sent to readers, by resource", sent_bytes.clone());
        registry.register("connections", "Open connections of readers", connections.clone());
        registry.register("watchers", "Open watches", watchers.clone());
        registry.register("expired", "Watches that began or ended with a 410", expired.clone());
        let help = "Watches without a version that may have begun with an older state than the API server's";
        registry.register("unconfirmed", help, unconfirmed.clone());

        // One family has the samples of all resources: a parser refuses a second HELP or TYPE of the same name.
        let (objects, ready, paged) = (Gauges::default(), Gauges::default(), Gauges::default());
        let (lags, log_ages) = (Seconds::default(), Seconds::default());
        for ResourceGauges { resource, objects: count, is_ready, paged_snapshots, lag, log_age } in resources {
            let labels = [("resource", resource)];
            objects.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
            ready.get_or_create(&labels).set(i64::from(is_ready));
            paged.get_or_create(&labels).set(i64::try_from(paged_snapshots).unwrap_or(i64::MAX));
            if let Some(lag) = lag {
                lags.get_or_create(&labels).set(lag.as_secs_f64());
            }
            if let Some(age) = log_age {
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

fn resource_label(resource: &Resource) -> Labels<1> {
    [("resource", resource.to_string())]
}
