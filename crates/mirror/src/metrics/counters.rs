//! The counters of requests, and the page `/metrics`.

use std::fmt;
use std::sync::Arc;

use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use listwatch::client::{self, Resource};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{LabelledCounter, LabelledGauge, Labels, counter_at};
use super::process::ProcessMetrics;
use super::resource::{ResourceMetrics, register_resources};

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
    requests: LabelledCounter<2>,
    denied: LabelledCounter<1>,
    forwarded: Counter,
    sent_bytes: LabelledCounter<1>,
    connections: Gauge,
    watchers: LabelledGauge<1>,
    expired: LabelledCounter<1>,
    default_reads: LabelledCounter<2>,
    /// 0 if it is unknown.
    certificate_expiry: Gauge,
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

    /// Counts a read without a version by its answer, which is one of a few words.
    pub(crate) fn count_default_read(&self, resource: &Resource, answer: &'static str) {
        let [resource] = resource_label(resource);
        self.0.default_reads.get_or_create(&[resource, ("answer", answer.to_owned())]).inc();
    }

    /// Sets when the serving certificate expires, in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, expiry: Option<i64>) {
        self.0.certificate_expiry.set(expiry.unwrap_or_default());
    }

    /// Returns the metrics in the text format `OpenMetrics`: of the mirror, its resources, the client of its reflectors
    /// and the process.
    pub(crate) fn encode_text(
        &self,
        resources: impl IntoIterator<Item = ResourceMetrics>,
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
        register_resources(mirror, resources);
        if let Some(upstream) = &upstream {
            register_upstream(mirror, upstream);
        }
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn register(&self, registry: &mut Registry) {
        let Counters {
            requests,
            denied,
            forwarded,
            sent_bytes,
            connections,
            watchers,
            expired,
            default_reads,
            certificate_expiry,
        } = &*self.0;
        registry.register("requests", "Requests by kind and status code", requests.clone());
        registry.register("denied", "Requests that were denied, by reason", denied.clone());
        registry.register("forwarded", "Requests that were forwarded to the API server", forwarded.clone());
        registry.register("sent_bytes", "Bytes of bodies that were sent to readers, by resource", sent_bytes.clone());
        registry.register("connections", "Open connections of readers", connections.clone());
        registry.register("watchers", "Open watches", watchers.clone());
        registry.register("expired", "Watches that began or ended with a 410", expired.clone());
        registry.register("default_reads", "Reads without a version, by their answer", default_reads.clone());
        if certificate_expiry.get() != 0 {
            let help = "When the serving certificate expires, in seconds since unix epoch";
            registry.register("certificate_expiry_timestamp_seconds", help, certificate_expiry.clone());
        }
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
