//! Compares lists, stores and caches of custom resources in JSON: three kinds of different size.

use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use listwatch::{Event, ListDecoder};
use listwatch_corpus::custom::CustomKind;
use serde::{Deserialize, Serialize};

use crate::custom_server::CustomServer;
use crate::follow::{self, Followed, Following};
use crate::process::{self, Run};
use crate::report::{bytes, count, float, median, seconds, size, three_digits};
use crate::ways::{CUSTOM, CUSTOM_FOLLOWERS, Program, Way};
use crate::{Programs, TRIAL, available_memory};

/// Compares lists, stores and caches of custom resources with listwatch, kube and client-go.
///
/// The server is a thread of this program and sends JSON only. A way that does not read exactly the objects that were
/// sent is an error. Ways that need more memory than is available are skipped.
#[derive(clap::Args)]
pub struct Args {
    /// Number of objects of each kind
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,

    /// Measure only these kinds
    #[arg(long, value_name = "KIND", num_args = 1.., default_values = ["certificate", "revision", "application"])]
    kinds: Vec<String>,

    /// Number of runs of each way
    #[arg(long, value_name = "K", default_value_t = 3)]
    runs: u32,

    /// Number of runs of each cache that follows changes
    #[arg(long, value_name = "K", default_value_t = 3)]
    follow_runs: u32,

    /// Changes per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Duration of the changes
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Measure only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = CUSTOM.iter().chain(CUSTOM_FOLLOWERS).map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    #[command(flatten)]
    output: crate::Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    rate: u32,
    seconds: u32,
    cores: usize,
    versions: String,
    kinds: Vec<KindResults>,
}

/// The results of all ways with one kind.
#[derive(Serialize, Deserialize)]
struct KindResults {
    kind: String,
    objects: u32,
    /// The length of all objects in JSON, in bytes.
    json: u64,
    /// Bytes of a list that are split in a second of CPU, in chunks of 64 KiB.
    split: f64,
    runs: Vec<(String, Vec<Run>)>,
    followed: Vec<(String, Vec<Followed>)>,
    skipped: Vec<String>,
}

/// Time for the background threads of a runtime to return memory to the system.
const REST: Duration = Duration::from_secs(1);

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        self.output.write("custom", || self.measure(), tables).map(drop)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut results = Results {
            rate: self.rate,
            seconds: self.seconds,
            cores: thread::available_parallelism()?.get(),
            versions: programs.versions()?,
            kinds: Vec::new(),
        };
        for name in &self.kinds {
            let kind = CustomKind::by_name(name).with_context(|| format!("unknown kind {name:?}"))?;
            eprintln!("making {} objects: {name}", self.objects);
            let objects = kind.objects(self.objects);
            results.kinds.push(KindResults {
                kind: name.to_lowercase(),
                objects: self.objects,
                json: objects.iter().map(|object| object.json.len() as u64).sum(),
                split: split(&kind.list(&objects[..objects.len().min(10_000)]))?,
                runs: Vec::new(),
                followed: Vec::new(),
                skipped: Vec::new(),
            });
            let server = CustomServer::start(kind, objects)?;
            self.measure_kind(&programs, server, &mut results)?;
        }
        Ok(results)
    }

    fn measure_kind(&self, programs: &Programs, server: CustomServer, results: &mut Results) -> anyhow::Result<()> {
        let is_asked_for = |way: &&Way| {
            (self.only.is_empty() || self.only.iter().any(|id| id == way.id))
                && (way.program == Program::Rust || programs.go.is_some())
        };
        let last = results.kinds.len() - 1;
        let kind = results.kinds[last].kind.clone();
        let (mut skipped, trial) = (Vec::new(), TRIAL.min(self.objects));
        for way in CUSTOM.iter().filter(is_asked_for).filter(|_| self.runs > 0) {
            let peak = list(programs, way, &kind, &server, trial)?.peak;
            let needed = peak * u64::from(self.objects) / u64::from(trial) / 10 * 11;
            let available = available_memory()?;
            if needed > available {
                skipped.push(way.id);
                let (needed, available) = (size(needed), size(available));
                let skipped = format!("{}: needs about {needed}, {available} are available", way.name);
                eprintln!("{skipped}");
                results.kinds[last].skipped.push(skipped);
            }
        }
        for number in 1..=self.runs {
            for way in CUSTOM.iter().filter(is_asked_for).filter(|way| !skipped.contains(&way.id)) {
                let run = list(programs, way, &kind, &server, self.objects)?;
                eprintln!("{kind}, run {number}, {}: user {:.2} s, peak {}", way.name, run.user, size(run.peak));
                add(&mut results.kinds[last].runs, way, run);
                self.output.save("custom", &results)?;
            }
        }
        let mut served = Served { server, rate: self.rate, seconds: self.seconds };
        for number in 1..=self.follow_runs {
            for way in CUSTOM_FOLLOWERS.iter().filter(is_asked_for).filter(|way| !skipped.contains(&way.id)) {
                served.server.reset(self.objects as usize);
                let mut command = programs.command(way, "follower")?;
                command.arg(&kind).arg(&served.server.url);
                let followed = follow::measure(way, command, &mut served).context(way.name)?;
                eprintln!("{kind}, follow {number}, {}: CPU {:.2} s", way.name, followed.cpu);
                add(&mut results.kinds[last].followed, way, followed);
                self.output.save("custom", &results)?;
            }
        }
        Ok(())
    }
}

fn add<R>(to: &mut Vec<(String, Vec<R>)>, way: &Way, run: R) {
    match to.iter_mut().find(|(id, _)| id == way.id) {
        Some((_, runs)) => runs.push(run),
        None => to.push((way.id.to_owned(), vec![run])),
    }
}

/// Lists or caches the first `objects` objects once.
fn list(programs: &Programs, way: &Way, kind: &str, server: &CustomServer, objects: u32) -> anyhow::Result<Run> {
    server.reset(objects as usize);
    let (_, hash) = server.list();
    let mut client = programs.command(way, "client")?;
    client.arg(kind).arg(&server.url);
    process::measure_client(client, objects, hash, REST).with_context(|| format!("{}, {objects} objects", way.name))
}

/// The server, and the changes that it makes.
struct Served {
    server: CustomServer,
    rate: u32,
    seconds: u32,
}

impl Following for Served {
    fn list(&self) -> anyhow::Result<(u64, u64)> {
        Ok(self.server.list())
    }

    fn change(&mut self) -> anyhow::Result<u64> {
        Ok(self.server.change(self.rate, self.seconds))
    }
}

/// Returns the bytes that are split in a second of CPU time: the best of five.
fn split(list: &str) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = on_cpu()?;
        let mut decoder = ListDecoder::new().accept_json();
        for mut chunk in list.as_bytes().chunks(64 << 10) {
            while let Some(event) = decoder.decode(&mut chunk)? {
                if let Event::Item(item) = event {
                    black_box(item.bytes());
                }
            }
        }
        decoder.finish()?;
        best = best.min(on_cpu()? - start);
    }
    Ok(float(list.len() as u64) / best)
}

/// Returns the CPU time of this thread, in seconds.
fn on_cpu() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(float(stat.split(' ').next().context("schedstat is empty")?.parse()?) / 1e9)
}

/// A column: its title, a function of a run, its number of objects and its bytes of JSON, and the format of the value.
type Column<R> = (&'static str, fn(&R, f64, f64) -> Option<f64>, fn(f64) -> String);

const LISTS: [Column<Run>; 11] = [
    ("user CPU", |run, _, _| Some(run.user), seconds),
    ("system CPU", |run, _, _| Some(run.system), seconds),
    ("peak", |run, _, _| Some(float(run.peak)), bytes),
    ("held", |run, _, _| Some(float(run.held)), bytes),
    ("held ÷ JSON", |run, _, json| Some(float(run.held) / json), three_digits),
    ("look up a key", |run, _, _| Some(run.store.as_ref()?.look_up), seconds),
    ("look up and decode", |run, _, _| run.store.as_ref()?.look_up_decoded, seconds),
    ("look up, few fields", |run, _, _| run.store.as_ref()?.look_up_six, seconds),
    ("iterate, per object", |run, _, _| Some(run.store.as_ref()?.iterate), seconds),
    ("add an index, per object", |run, _, _| run.store.as_ref()?.add_index, seconds),
    ("look up an index value", |run, _, _| run.store.as_ref()?.look_up_node, seconds),
];

const FOLLOWED: [Column<Followed>; 7] = [
    ("user CPU to sync", |run, _, _| Some(run.sync_user), seconds),
    ("system CPU to sync", |run, _, _| Some(run.sync_system), seconds),
    ("peak to sync", |run, _, _| Some(float(run.sync_peak)), bytes),
    ("peak with changes", |run, _, _| Some(float(run.peak)), bytes),
    ("CPU per change", |run, _, _| (run.changes > 0).then(|| run.cpu / float(run.changes)), seconds),
    ("median latency", |run, _, _| Some(float(run.latency.p50) / 1e6), seconds),
    ("99 % latency", |run, _, _| Some(float(run.latency.p99) / 1e6), seconds),
];

fn tables(results: &Results) -> String {
    let Results { rate, seconds, cores, versions, kinds } = results;
    let mut out = format!(
        "{cores} cores, {versions}. Each value is a median; in brackets: the lowest and the highest of the runs.\n"
    );
    for results in kinds {
        let KindResults { kind, objects, json, split, runs, followed, skipped } = results;
        let (objects, json) = (*objects, float(*json));
        let mean = bytes(json / f64::from(objects));
        out += &format!(
            "\n### {}: {} objects of {mean}, {} of JSON\n\nA list is split in chunks of 64 KiB at {} GB/s.\n\n",
            kind,
            count(objects),
            bytes(json),
            three_digits(split / 1e9)
        );
        write(&LISTS, CUSTOM, runs, f64::from(objects), json, &mut out);
        out += &format!("\nWith {rate} changes a second for {seconds} s:\n\n");
        write(&FOLLOWED, CUSTOM_FOLLOWERS, followed, f64::from(objects), json, &mut out);
        for skipped in skipped {
            out += &format!("\nNot run: {skipped}.\n");
        }
    }
    out
}

fn write<R>(columns: &[Column<R>], ways: &[Way], runs: &[(String, Vec<R>)], objects: f64, json: f64, out: &mut String) {
    let titles: Vec<_> = columns.iter().map(|(title, ..)| *title).collect();
    *out += &format!("| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(columns.len()));
    for way in ways {
        let Some((_, runs)) = runs.iter().find(|(id, _)| id == way.id) else { continue };
        *out += &format!("| {} |", way.name);
        for (_, value, show) in columns {
            let values: Option<Vec<_>> = runs.iter().map(|run| value(run, objects, json)).collect();
            let Some(values) = values else {
                *out += " — |";
                continue;
            };
            let (low, high) =
                (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max));
            *out += &format!(" {}", show(median(values)));
            let (low, high) = (show(low), show(high));
            if low != high {
                *out += &format!(" ({low}–{high})");
            }
            *out += " |";
        }
        *out += "\n";
    }
}
