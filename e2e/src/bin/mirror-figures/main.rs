//! Measures a running mirror beside its API server: the figures of docs/mirror.md.
//!
//! ```sh
//! bin/server -dir state &                                      # in e2e/apiserver, as bin/load
//! bin/load -n 5000                                             # 1000 for watches: then each change matches one
//! KUBECONFIG=state/kubeconfig listwatch mirror pods & pid=$!
//! mirror-figures lists                                         # the share from memory, and the added latency
//! mirror-figures watches --pid $pid                            # CPU time, while bin/load -change 100 -for 60s runs
//! mirror-figures watches --pid $pid --count 0                  # for comparison
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    servers: Servers,
    #[command(subcommand)]
    figures: Figures,
}

#[derive(Args)]
struct Servers {
    #[arg(long, global = true, default_value = "http://127.0.0.1:8002")]
    mirror: String,
    #[arg(long, global = true, default_value = "https://127.0.0.1:16443")]
    server: String,
    /// A token of the server
    #[arg(long, global = true, default_value = "admin")]
    token: String,
}

#[derive(Subcommand)]
enum Figures {
    /// Lists Pods without a version at random times, while another collection changes
    Lists {
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// The longest pause between two lists, in milliseconds
        #[arg(long, default_value_t = 2000)]
        pause: u64,
    },
    /// Opens watches of Pods with selectors, and measures the CPU time of the mirror while Pods change
    Watches {
        /// The process of the mirror
        #[arg(long)]
        pid: u32,
        #[arg(long, default_value_t = 1000)]
        count: usize,
        #[arg(long, value_enum, default_value_t = Selector::Node)]
        selector: Selector,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
}

/// What a watch selects by. Each one has a value of its own.
#[derive(Clone, Copy, ValueEnum)]
enum Selector {
    Node,
    Name,
    Label,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { servers, figures } = Arguments::parse();
    let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
    let measured = Measured { servers, http };
    match figures {
        Figures::Lists { count, pause } => measured.lists(count, Duration::from_millis(pause)).await,
        Figures::Watches { pid, count, selector, seconds } => {
            measured.watches(pid, count, selector, Duration::from_secs(seconds)).await
        }
    }
}

struct Measured {
    servers: Servers,
    http: reqwest::Client,
}

impl Measured {
    /// Returns the time until the head and until the end of a list, and whether it is from memory.
    async fn list(&self, url: &str) -> Result<(Duration, Duration, bool)> {
        let start = Instant::now();
        let request = self.http.get(format!("{url}/api/v1/pods")).header(ACCEPT, PROTOBUF);
        let response = request.bearer_auth(&self.servers.token).send().await?.error_for_status()?;
        let (head, is_cached) = (start.elapsed(), response.headers().contains_key("listwatch-lag-seconds"));
        let mut body = response;
        while body.chunk().await?.is_some() {}
        Ok((head, start.elapsed(), is_cached))
    }

    /// Changes a ConfigMap 20 times a second.
    async fn change_others(http: reqwest::Client, server: String, token: String) -> Result<()> {
        let url = format!("{server}/api/v1/namespaces/default/configmaps");
        let config_map = json!({"metadata": {"name": "mirror-figures"}});
        let request = http.post(&url).bearer_auth(&token).body(config_map.to_string());
        request.header(CONTENT_TYPE, "application/json").send().await?;
        let mut changes = interval(Duration::from_millis(50));
        for number in 0_u64.. {
            changes.tick().await;
            let patch = json!({"data": {"number": number.to_string()}}).to_string();
            let request = http.patch(format!("{url}/mirror-figures")).bearer_auth(&token).body(patch);
            request.header(CONTENT_TYPE, "application/merge-patch+json").send().await?.error_for_status()?;
        }
        Ok(())
    }

    async fn lists(&self, count: usize, pause: Duration) -> Result<()> {
        let Servers { mirror, server, token } = &self.servers;
        let changing = tokio::spawn(Self::change_others(self.http.clone(), server.clone(), token.clone()));
        let (mut heads, mut totals, mut forwarded, mut from_memory) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..count {
            sleep(pause.mul_f64(fastrand::f64())).await;
            let (head, total, is_cached) = self.list(mirror).await?;
            heads.push(head);
            totals.push(total);
            from_memory += usize::from(is_cached);
            forwarded.push(self.list(server).await?.1);
        }
        assert!(!changing.is_finished(), "the other collection does not change");
        println!("from memory: {from_memory} of {count}");
        for (name, times) in [("until the head", heads), ("in all", totals), ("directly from the server", forwarded)] {
            println!("{name}: {}", quantiles(times));
        }
        Ok(())
    }

    async fn watches(&self, pid: u32, count: usize, selector: Selector, time: Duration) -> Result<()> {
        let queries = self.queries(count, selector).await?;
        let events = Arc::new(AtomicU64::new(0));
        // A client for some watches, because the server limits the streams of a connection.
        for queries in queries.chunks(100) {
            let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
            for query in queries {
                let url = format!(
                    "{}/api/v1/pods?watch=1&resourceVersion=0&sendInitialEvents=false&{query}",
                    self.servers.mirror
                );
                let url = format!("{url}&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600");
                let request = http.get(url).header(ACCEPT, PROTOBUF).bearer_auth(&self.servers.token);
                let (response, events) = (request.send().await?.error_for_status()?, Arc::clone(&events));
                tokio::spawn(async move {
                    let mut body = response;
                    while let Ok(Some(_)) = body.chunk().await {
                        events.fetch_add(1, Relaxed);
                    }
                });
            }
        }
        println!("{} watches are open", queries.len());
        let before = (cpu_seconds(pid)?, events.load(Relaxed), self.changes().await?);
        sleep(time).await;
        let after = (cpu_seconds(pid)?, events.load(Relaxed), self.changes().await?);
        let (cpu, received, changes) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        println!("{cpu:.2} s of CPU time, {changes} changes and {received} chunks of events in {} s", time.as_secs());
        Ok(())
    }

    /// Returns the number of changes of Pods that the mirror has received.
    async fn changes(&self) -> Result<u64> {
        let request = self.http.get(format!("{}/metrics", self.servers.mirror)).bearer_auth(&self.servers.token);
        let metrics = request.send().await?.error_for_status()?.text().await?;
        let sample = "listwatch_mirror_changes_total{resource=\"pods\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(sample)).ok_or("no changes in the metrics")?;
        Ok(count.parse()?)
    }

    /// Returns a query for each watch, of the values that Pods have, and then of values that none has.
    async fn queries(&self, count: usize, selector: Selector) -> Result<Vec<String>> {
        let url = format!("{}/api/v1/pods?resourceVersion=0", self.servers.server);
        let list = self.http.get(url).bearer_auth(&self.servers.token).send().await?.bytes().await?;
        let list: Value = serde_json::from_slice(&list)?;
        let (pointer, query) = match selector {
            Selector::Node => ("/spec/nodeName", "fieldSelector=spec.nodeName%3D"),
            Selector::Name => ("/metadata/name", "fieldSelector=metadata.name%3D"),
            Selector::Label => ("/metadata/labels/pod-template-hash", "labelSelector=pod-template-hash%3D"),
        };
        let items = list["items"].as_array().ok_or("no items")?;
        let values: BTreeSet<_> = items.iter().filter_map(|item| item.pointer(pointer)?.as_str()).collect();
        let none = (0..).map(|number| format!("none-{number}"));
        Ok(values
            .into_iter()
            .map(str::to_owned)
            .chain(none)
            .take(count)
            .map(|value| format!("{query}{value}"))
            .collect())
    }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "few")]
        let index = (times.len() as f64 * part) as usize;
        times.get(index.min(times.len().saturating_sub(1))).map_or(0, Duration::as_millis)
    };
    format!("{} ms at the median, {} ms at 99 %", at(0.5), at(0.99))
}

/// Returns the CPU time of a process so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).ok_or("no CPU time");
    Ok(f64::from(ticks(11)? + ticks(12)?) / 100.0)
}
