//! Exports what an alert needs to know of caches and their client, in the text format of Prometheus:
//! `cargo run -p listwatch-cache --example metrics [URL]`, with the URL that `kubectl proxy` prints.
//!
//! The figures are read at each scrape. A program returns the text of `encode` from `/metrics` of its HTTP server. The
//! guide (`docs/guide/failure_modes.md`) says which figures to alert on.

#![allow(clippy::cast_precision_loss, reason = "a metric is a float")]

use std::error::Error;
use std::fmt;
use std::time::Instant;

use k8s_pb::api::core::v1::Pod;
use listwatch::client::{Client, Config, ErrorClass};
use listwatch_cache::{Cache, Reflector, ReflectorStatus, StoreType};
use listwatch_testserver::{Answer, Body, Server};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Reads the status of a cache of any type, and its number of objects.
type ReadStatus = Box<dyn Fn() -> (usize, ReflectorStatus) + Send + Sync>;

/// The caches of a program, by resource, and their client.
struct CacheCollector {
    client: Client,
    caches: Vec<(&'static str, ReadStatus)>,
    started: Instant,
}

impl CacheCollector {
    fn new(client: &Client) -> Self {
        Self { client: client.clone(), caches: Vec::new(), started: Instant::now() }
    }

    fn add<T: StoreType + ?Sized>(mut self, resource: &'static str, cache: &Cache<T>) -> Self {
        let cache = cache.clone();
        self.caches.push((resource, Box::new(move || (cache.len(), cache.status()))));
        self
    }
}

impl fmt::Debug for CacheCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheCollector").field("caches", &self.caches.len()).finish_non_exhaustive()
    }
}

impl Collector for CacheCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let caches: Vec<_> = self.caches.iter().map(|(resource, read)| (*resource, read())).collect();
        // Each family once, with the values of all caches.
        let mut family = |name, help, kind, value: &dyn Fn(usize, &ReflectorStatus) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            caches.iter().try_for_each(|(resource, (objects, status))| {
                let labels = [("resource", *resource)];
                let metric = family.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(value(*objects, status)).encode(metric),
                    _ => ConstGauge::new(value(*objects, status)).encode(metric),
                }
            })
        };
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        family("cache_objects", "Objects in the cache", gauge, &|objects, _| objects as f64)?;
        family("cache_up_to_date", "1 while the cache follows the changes of the server", gauge, &|_, status| {
            f64::from(u8::from(status.is_up_to_date))
        })?;
        family("cache_ended", "1 if the reflector has ended: the cache gets no more changes", gauge, &|_, status| {
            f64::from(u8::from(status.ended_by.is_some()))
        })?;
        family("cache_age_seconds", "Time since the cache was last known to be up to date", gauge, &|_, status| {
            status.last_synced_at.unwrap_or(self.started).elapsed().as_secs_f64()
        })?;
        family("cache_skipped", "Objects that the cache lacks", gauge, &|_, status| status.skipped as f64)?;
        family(
            "cache_undecodable",
            "1 while the cache has an object that its readers cannot decode",
            gauge,
            &|_, status| f64::from(u8::from(status.last_decode_error.is_some())),
        )?;
        family("cache_index_errors", "Failures of index functions", counter, &|_, status| status.index_errors as f64)?;
        family("cache_relists", "Times that the whole collection was requested again", counter, &|_, status| {
            status.relists as f64
        })?;
        family("cache_changes", "Changes that the watch delivered", counter, &|_, status| status.changes as f64)?;

        let mut errors = encoder.encode_descriptor("cache_errors", "Failed lists and watches", None, counter)?;
        for (resource, (_, status)) in &caches {
            // All classes from the start, so that a rate sees the first error.
            for class in ErrorClass::ALL {
                let count = status.errors_by_class.get(class).copied().unwrap_or_default();
                let labels = [("resource", *resource), ("class", class.as_str())];
                ConstCounter::new(count).encode(errors.encode_family(&labels)?)?;
            }
        }

        let totals = self.client.metrics();
        for (name, help, count) in [
            ("client_requests", "Requests sent", totals.requests),
            ("client_retries", "Retries after an error", totals.retries),
            ("client_received_bytes", "Bytes of bodies on the network", totals.wire_bytes),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, counter)?)?;
        }
        let watches =
            encoder.encode_descriptor("client_open_watches", "Watches that the server serves", None, gauge)?;
        ConstGauge::new(totals.open_watches as f64).encode(watches)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let server = if url.is_none() { Some(recorded().await?) } else { None };
    let base = url.or(server.as_ref().map(Server::url)).unwrap_or_default();
    let client = Client::new(Config::new(base).build()?);

    let pods = Reflector::<Pod>::of(&client).spawn();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CacheCollector::new(&client).add("pods", &pods)));

    pods.synced().await?;
    let mut text = String::new();
    encode(&mut text, &registry)?;
    print!("{text}");
    for expected in [
        "cache_objects{resource=\"pods\"} ",
        "cache_up_to_date{resource=\"pods\"} ",
        "cache_ended{resource=\"pods\"} 0",
        "cache_skipped{resource=\"pods\"} 0",
        "cache_relists_total{resource=\"pods\"} 0",
        "cache_errors_total{resource=\"pods\",class=\"denied\"} 0",
        "client_requests_total ",
        "client_open_watches ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(expected)), "no {expected}");
    }
    Ok(())
}

/// Without a URL, a local server replays a recorded watch.
async fn recorded() -> Result<Server, Box<dyn Error>> {
    let recorded = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/watch-initial-events-pods.pb"))?;
    let body = Answer::ok(Body::replay(recorded)).content_type("application/vnd.kubernetes.protobuf;stream=watch");
    Ok(Server::start(body.always()).await?)
}
