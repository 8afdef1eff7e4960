//! The counters of requests, and the page `/metrics`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use listwatch::client::{self, Resource};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::labels::{LabelledCounter, LabelledGauge, LabelledHistogram, Labels, counter_at, histogram, histograms};
use super::process::ProcessMetrics;
use super::resource::ShownResources;

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

struct Counters {
    requests: LabelledCounter<2>,
    request_seconds: LabelledHistogram<1>,
    review_seconds: LabelledHistogram<1>,
    forward_seconds: Histogram,
    wait_seconds: LabelledHistogram<1>,
    pool_limit: LabelledGauge<1>,
    pool_used: LabelledGauge<1>,
    pool_refused: LabelledCounter<1>,
    denied: LabelledCounter<1>,
    stale_reviews: Counter,
    forwarded: LabelledCounter<1>,
    sent_bytes: LabelledCounter<1>,
    connections: Gauge,
    watchers: LabelledGauge<1>,
    expired: LabelledCounter<1>,
    default_reads: LabelledCounter<2>,
    /// 0 if it is unknown.
    certificate_expiry: Gauge,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: LabelledCounter::default(),
            request_seconds: histograms(),
            review_seconds: histograms(),
            forward_seconds: histogram(),
            wait_seconds: histograms(),
            pool_limit: LabelledGauge::default(),
            pool_used: LabelledGauge::default(),
            pool_refused: LabelledCounter::default(),
            denied: LabelledCounter::default(),
            stale_reviews: Counter::default(),
            forwarded: LabelledCounter::default(),
            sent_bytes: LabelledCounter::default(),
            connections: Gauge::default(),
            watchers: LabelledGauge::default(),
            expired: LabelledCounter::default(),
            default_reads: LabelledCounter::default(),
            certificate_expiry: Gauge::default(),
        }
    }
}

/// What is measured of a pool that readers share.
#[derive(Clone, Debug)]
pub(crate) struct PoolMetrics {
    used: Gauge,
    refused: Counter,
    wait_seconds: Histogram,
}

impl PoolMetrics {
    pub(crate) fn set_used(&self, units: usize) {
        self.used.set(i64::try_from(units).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_refused(&self) {
        self.refused.inc();
    }

    /// Measures how long a request has waited for a unit.
    pub(crate) fn observe_wait(&self, time: Duration) {
        self.wait_seconds.observe(time.as_secs_f64());
    }
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
    /// Counts a request, whose response has begun after this time. `kind` is one of a few words.
    pub(crate) fn count_request(&self, kind: &'static str, code: StatusCode, time: Duration) {
        let labels = [("kind", kind.to_owned())];
        self.0.request_seconds.get_or_create(&labels).observe(time.as_secs_f64());
        let [kind] = labels;
        self.0.requests.get_or_create(&[kind, ("code", code.as_str().to_owned())]).inc();
    }

    /// Measures a review: `token` or `access`.
    pub(crate) fn observe_review(&self, review: &'static str, time: Duration) {
        self.0.review_seconds.get_or_create(&[("review", review.to_owned())]).observe(time.as_secs_f64());
    }

    /// Measures the time until the API server has begun its response to a forwarded request.
    pub(crate) fn observe_forward(&self, time: Duration) {
        self.0.forward_seconds.observe(time.as_secs_f64());
    }

    /// Returns what is measured of a pool with this name, which is one of a few words, and this many units.
    pub(crate) fn pool(&self, name: &'static str, units: usize) -> PoolMetrics {
        let labels = [("pool", name.to_owned())];
        self.0.pool_limit.get_or_create(&labels).set(i64::try_from(units).unwrap_or(i64::MAX));
        PoolMetrics {
            used: self.0.pool_used.get_or_create(&labels).clone(),
            refused: self.0.pool_refused.get_or_create(&labels).clone(),
            wait_seconds: self.0.wait_seconds.get_or_create(&labels).clone(),
        }
    }

    /// Counts a request that was refused for this reason, which is one of a few words.
    pub(crate) fn count_denied(&self, reason: &'static str) {
        self.0.denied.get_or_create(&[("reason", reason.to_owned())]).inc();
    }

    /// Counts the use of an older review because the API server did not answer a new one.
    pub(crate) fn count_stale_review(&self) {
        self.0.stale_reviews.inc();
    }

    /// Counts a request that is forwarded for this reason, which is one of a few words.
    pub(crate) fn count_forwarded(&self, reason: &'static str) {
        self.0.forwarded.get_or_create(&[("reason", reason.to_owned())]).inc();
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

    /// Counts a read without a version by its answer, which is one of a few words.
    pub(crate) fn count_default_read(&self, resource: &Resource, answer: &'static str) {
        let [resource] = resource_label(resource);
        self.0.default_reads.get_or_create(&[resource, ("answer", answer.to_owned())]).inc();
    }

    /// Sets when the serving certificate expires, in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, expiry: Option<i64>) {
        self.0.certificate_expiry.set(expiry.unwrap_or_default());
    }

    /// Returns the metrics in the text format `OpenMetrics`: of the mirror, the client of its reflectors and the
    /// process, and of its resources.
    pub(crate) fn encode_text(
        &self,
        resources: ShownResources,
        upstream: Option<client::Metrics>,
    ) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        if let Some(process) = ProcessMetrics::read() {
            process.register(&mut registry);
        }
        let mirror = registry.sub_registry_with_prefix("listwatch_mirror");
        let build = LabelledGauge::<1>::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        mirror.register("build_info", "1, with the version of the mirror", build);
        self.register(mirror);
        resources.register_totals(mirror);
        if resources.are_named {
            self.register_by_resource(mirror);
            resources.register(mirror);
        }
        if let Some(upstream) = &upstream {
            register_upstream(mirror, upstream);
        }
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn register(&self, registry: &mut Registry) {
        let Counters { requests, denied, forwarded, connections, certificate_expiry, .. } = &*self.0;
        registry.register("requests", "Requests by kind and status code", requests.clone());
        registry.register("denied", "Requests that were denied, by reason", denied.clone());
        let help = "Reviews in place of which an older one was used, because the API server did not answer";
        registry.register("stale_reviews", help, self.0.stale_reviews.clone());
        registry.register("forwarded", "Requests that were forwarded to the API server, by reason", forwarded.clone());
        registry.register("connections", "Open connections of readers", connections.clone());
        self.register_pools(registry);
        let help = "Seconds until the responses to requests began, by kind";
        registry.register("request_duration_seconds", help, self.0.request_seconds.clone());
        let help = "Seconds that reviews took, without the time that they waited";
        registry.register("review_duration_seconds", help, self.0.review_seconds.clone());
        let help = "Seconds until the API server began its responses to forwarded requests";
        registry.register("forward_duration_seconds", help, self.0.forward_seconds.clone());
        if certificate_expiry.get() != 0 {
            let help = "When the serving certificate expires, in seconds since unix epoch";
            registry.register("certificate_expiry_timestamp_seconds", help, certificate_expiry.clone());
        }
    }

    fn register_pools(&self, registry: &mut Registry) {
        let Counters { pool_limit, pool_used, pool_refused, wait_seconds, .. } = &*self.0;
        registry.register("pool_limit", "Units of a pool that readers share", pool_limit.clone());
        registry.register("pool_used", "Units of the pool that are used", pool_used.clone());
        registry.register("pool_refused", "Requests that got no unit of the pool", pool_refused.clone());
        let help = "Seconds that requests waited for a unit of the pool, if they had to";
        registry.register("wait_duration_seconds", help, wait_seconds.clone());
    }

    fn register_by_resource(&self, registry: &mut Registry) {
        let Counters { sent_bytes, watchers, expired, default_reads, .. } = &*self.0;
        registry.register("sent_bytes", "Bytes of bodies that were sent to readers, by resource", sent_bytes.clone());
        registry.register("watchers", "Open watches", watchers.clone());
        registry.register("expired", "Watches that began or ended with a 410", expired.clone());
        registry.register("default_reads", "Reads without a version, by their answer", default_reads.clone());
    }
}

/// Registers the counters of the client of the reflectors.
fn register_upstream(registry: &mut Registry, upstream: &client::Metrics) {
    let client::Metrics { requests, retries, wire_bytes, open_watches, .. } = *upstream;
    registry.register("upstream_requests", "Requests of the reflectors", counter_at(requests));
    registry.register("upstream_retries", "Retries of the reflectors after an error", counter_at(retries));
    let help = "Bytes of bodies that the reflectors received, before decompression";
    registry.register("upstream_received_bytes", help, counter_at(wire_bytes));
    let open = Gauge::<i64>::default();
    open.set(i64::try_from(open_watches).unwrap_or(i64::MAX));
    registry.register("upstream_watches", "Open watches of the reflectors", open);
}

fn resource_label(resource: &Resource) -> Labels<1> {
    [("resource", resource.to_string())]
}
