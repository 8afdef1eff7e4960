//! Compares caches that relist a collection, one cache at a time.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use listwatch_peers::{Serving, State};
use serde::{Deserialize, Serialize};

use crate::process::{self, Process, REST};
use crate::report::{self, Row, Title, bytes, count, float, seconds, size, three_digits};
use crate::ways::{Program, RELISTERS, Way};
use crate::{Output, Programs, TRIAL, available_memory};

/// Compares caches of listwatch and client-go that relist because the version of their watch is too old.
///
/// The server is the same as for lists, and so are the Pods without --diverse. A cache that does not have exactly the
/// Pods that were sent is an error. Ways that need more memory than is available are skipped.
#[derive(clap::Args)]
pub struct Args {
    /// Number of Pods; each takes about 8.5 kB on the wire, or 10.6 kB with --diverse
    #[arg(long, value_name = "N", default_value_t = 570_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Send the Pods of benches/corpus, each once, instead of recorded Pods repeated; the server keeps all of them in
    /// memory
    #[arg(long)]
    diverse: bool,

    /// Give every Pod a new version in the second list
    #[arg(long)]
    renewed: bool,

    /// Measure only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = RELISTERS.iter().map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    #[command(flatten)]
    output: Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    pods: u32,
    /// False in results of older runs, which had uniform Pods only.
    #[serde(default)]
    diverse: bool,
    renewed: bool,
    cores: usize,
    versions: String,
    runs: Vec<Relisted>,
    skipped: Vec<String>,
}

/// The measurements of one way.
#[derive(Serialize, Deserialize)]
struct Relisted {
    way: String,
    /// Until the handler had received all Pods of the first list, in seconds.
    sync: f64,
    first: List,
    /// The second list; its CPU time is without the first list's.
    second: List,
}

#[derive(Serialize, Deserialize)]
struct List {
    /// User and system time, in seconds.
    cpu: f64,
    /// The peak of resident memory so far, in bytes.
    peak: u64,
    /// Resident memory at rest, in bytes.
    held: u64,
}

/// The duration of a watch, in seconds. It leaves a slow handler time to receive the first list, and the runner time to
/// measure memory at rest.
fn watch_time(pods: u32) -> u32 {
    3 + pods / 20_000
}

/// The server's peak memory for each diverse Pod, in bytes; a server of uniform Pods takes little.
const SERVER_PER_DIVERSE_POD: u64 = 32_000;

/// Each request for the state iterates over the whole cache.
const ASK_EVERY: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(20);

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        let name = match (self.diverse, self.renewed) {
            (false, false) => "relist",
            (false, true) => "relist-renewed",
            (true, false) => "relist-diverse",
            (true, true) => "relist-diverse-renewed",
        };
        self.output.write(name, || self.measure(), table).map(drop)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut results = Results {
            pods: self.pods,
            diverse: self.diverse,
            renewed: self.renewed,
            cores: thread::available_parallelism()?.get(),
            versions: programs.versions()?,
            runs: Vec::new(),
            skipped: Vec::new(),
        };
        for way in RELISTERS {
            let is_asked_for = self.only.is_empty() || self.only.iter().any(|id| id == way.id);
            if !is_asked_for || (way.program != Program::Rust && programs.go.is_none()) {
                continue;
            }
            eprintln!("{}", way.name);
            let relist = |pods| self.relist(way, &programs, pods).with_context(|| format!("{}, {pods} Pods", way.name));
            let server = if self.diverse { SERVER_PER_DIVERSE_POD * u64::from(self.pods) } else { 0 };
            let needed = relist(TRIAL)?.second.peak * u64::from(self.pods) / u64::from(TRIAL) / 10 * 11 + server;
            let available = available_memory()?;
            if needed > available {
                let (needed, available) = (size(needed), size(available));
                results.skipped.push(format!("{}: needs about {needed}, {available} are available", way.name));
            } else {
                results.runs.push(relist(self.pods)?);
            }
        }
        Ok(results)
    }

    fn relist(&self, way: &Way, programs: &Programs, pods: u32) -> anyhow::Result<Relisted> {
        let mut server = Command::new(programs.rust.join("server"));
        let variety = if self.diverse { "diverse" } else { "uniform" };
        let versions = if self.renewed { "renewed" } else { "same" };
        server.args([&pods.to_string(), variety, &watch_time(pods).to_string(), versions]);
        let mut server = Process::start(server)?;
        let Serving { url, hash, relisted } = server.message()?;
        let mut command = programs.command(way, "follower")?;
        command.arg(url);
        let mut follower = Process::start(command)?;
        let _: String = follower.message()?;

        follower.go()?;
        let start = Instant::now();
        let _: String = follower.message()?;
        let sync = start.elapsed().as_secs_f64();
        let first = at_rest(&follower, 0.0)?;
        let State { items, hash: found, version, .. } = follower.ask()?;
        ensure!((items, found) == (pods.into(), hash), "the cache differs from the list");

        let mut second_version = None;
        let second = loop {
            thread::sleep(ASK_EVERY);
            let state = follower.ask()?;
            if state.version != version {
                if (state.items, state.hash) == (pods.into(), relisted) {
                    break at_rest(&follower, first.cpu)?;
                }
                // client-go sets the version before it has updated its store.
                let second_version = second_version.get_or_insert_with(|| state.version.clone());
                ensure!(state.version == *second_version, "the cache differs from the second list");
            }
            ensure!(start.elapsed() < LONGEST, "the cache did not relist");
        };
        Ok(Relisted { way: way.id.into(), sync, first, second })
    }
}

/// Measures the follower at rest. Its CPU time is without `cpu_before`.
fn at_rest(follower: &Process, cpu_before: f64) -> anyhow::Result<List> {
    let proc = follower.proc()?;
    let (user, system) = process::cpu(&proc)?;
    let peak = process::peak(&proc)?;
    thread::sleep(REST);
    let held = proc.status()?.vmrss.context("/proc has no VmRSS")? * 1024;
    Ok(List { cpu: user + system - cpu_before, peak, held })
}

const COLUMNS: [Title; 8] = [
    ("time to sync", seconds),
    ("CPU to sync", seconds),
    ("peak memory to sync", bytes),
    ("memory after sync", bytes),
    ("CPU of the relist", seconds),
    ("peak memory with the relist", bytes),
    ("memory after the relist", bytes),
    ("ratio of the peaks", three_digits),
];

fn table(results: &Results) -> String {
    let Results { pods, diverse, renewed, cores, versions, runs, skipped } = results;
    let variety = if *diverse { "diverse" } else { "uniform" };
    let second = if *renewed { "a new version of each in the second list" } else { "unchanged in the second list" };
    let mut out = format!(
        "{} {variety} Pods, {second}; one run on {cores} cores. In brackets: the ratio to the first row. Bold: the best of the column.\n\n\
         {versions}.\n\n",
        count(*pods),
    );
    let ways = runs.iter().filter_map(|run| Some(run.row(RELISTERS.iter().find(|way| way.id == run.way)?)));
    let best = report::write_rows(&COLUMNS, &ways.collect::<Vec<_>>(), &mut out);
    if !best.is_empty() {
        out += &format!("\n{best}\n");
    }
    if !skipped.is_empty() {
        out += "\nNot run, because the memory needed, extrapolated from fewer Pods, exceeds the available memory:\n\n";
        for skipped in skipped {
            out += &format!("- {skipped}\n");
        }
    }
    out
}

impl Relisted {
    fn row(&self, way: &Way) -> Row {
        let Self { sync, first, second, .. } = self;
        let (peak, with_second) = (float(first.peak), float(second.peak));
        let values = [
            *sync,
            first.cpu,
            peak,
            float(first.held),
            second.cpu,
            with_second,
            float(second.held),
            with_second / peak,
        ];
        Row { name: way.name.into(), is_ours: way.is_ours(), values: values.map(Some).into() }
    }
}
