//! Caches that are sent the same collection again, one after the other.

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

/// Fills caches of listwatch and client-go, and has them list again: the version of their watch is too old.
///
/// The Pods are those of the lists, from a server that makes them while it sends them. A cache that does not have them exactly
/// ends it all; ways that the memory of this machine does not allow are skipped.
#[derive(clap::Args)]
pub struct Args {
    /// How many Pods there are; each takes about 8.5 kB on the wire
    #[arg(long, value_name = "N", default_value_t = 570_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Every Pod has another version in the second list, not none
    #[arg(long)]
    renewed: bool,

    /// Only these ways
    #[arg(long, value_name = "WAY", num_args = 1.., value_parser = RELISTERS.iter().map(|way| way.id).collect::<Vec<_>>())]
    only: Vec<String>,

    #[command(flatten)]
    output: Output,
}

#[derive(Serialize, Deserialize)]
struct Results {
    pods: u32,
    renewed: bool,
    cores: usize,
    versions: String,
    runs: Vec<Relisted>,
    skipped: Vec<String>,
}

/// How a way did.
#[derive(Serialize, Deserialize)]
struct Relisted {
    way: String,
    /// Until the handler was told of all, in seconds.
    sync: f64,
    first: List,
    /// What came on top.
    second: List,
}

#[derive(Serialize, Deserialize)]
struct List {
    /// User and system time, in seconds.
    cpu: f64,
    /// The most that was ever resident, in bytes.
    peak: u64,
    /// What is resident at rest.
    held: u64,
}

/// How long the watches last, in seconds: a handler that is behind is told of the first list meanwhile, and what is at rest is
/// looked at.
fn watch_time(pods: u32) -> u32 {
    3 + pods / 20_000
}

/// Each time the whole cache is gone through.
const ASK_EVERY: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(20);

impl Args {
    pub fn run(&self) -> anyhow::Result<()> {
        let name = if self.renewed { "relist-renewed" } else { "relist" };
        self.output.write(name, || self.measure(), table).map(drop)
    }

    fn measure(&self) -> anyhow::Result<Results> {
        let programs = Programs::build()?;
        let mut results = Results {
            pods: self.pods,
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
            let needed = relist(TRIAL)?.second.peak * u64::from(self.pods) / u64::from(TRIAL) / 10 * 11;
            let available = available_memory()?;
            if needed > available {
                let (needed, available) = (size(needed), size(available));
                results.skipped.push(format!("{}: about {needed}, there are {available}", way.name));
            } else {
                results.runs.push(relist(self.pods)?);
            }
        }
        Ok(results)
    }

    fn relist(&self, way: &Way, programs: &Programs, pods: u32) -> anyhow::Result<Relisted> {
        let mut server = Command::new(programs.rust.join("server"));
        let versions = if self.renewed { "renewed" } else { "same" };
        server.args([&pods.to_string(), &watch_time(pods).to_string(), versions]);
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
        ensure!((items, found) == (pods.into(), hash), "what it has is not what was sent");

        let second = loop {
            thread::sleep(ASK_EVERY);
            let state = follower.ask()?;
            if state.version != version {
                ensure!((state.items, state.hash) == (pods.into(), relisted), "what it has is not what was sent again");
                break at_rest(&follower, first.cpu)?;
            }
            ensure!(start.elapsed() < LONGEST, "it did not list again");
        };
        Ok(Relisted { way: way.id.into(), sync, first, second })
    }
}

/// Less what it had taken before.
fn at_rest(follower: &Process, cpu_before: f64) -> anyhow::Result<List> {
    let proc = follower.proc()?;
    let (user, system) = process::cpu(&proc)?;
    let peak = process::peak(&proc)?;
    thread::sleep(REST);
    let held = proc.status()?.vmrss.context("no memory")? * 1024;
    Ok(List { cpu: user + system - cpu_before, peak, held })
}

const COLUMNS: [Title; 8] = [
    ("time to sync", seconds),
    ("CPU to sync", seconds),
    ("peak memory to sync", bytes),
    ("memory then", bytes),
    ("CPU of the second list", seconds),
    ("peak memory with it", bytes),
    ("memory then", bytes),
    ("peak over that to sync", three_digits),
];

fn table(results: &Results) -> String {
    let Results { pods, renewed, cores, versions, runs, skipped } = results;
    let second = if *renewed { "a new version of each in the second list" } else { "unchanged in the second list" };
    let mut out = format!(
        "{} Pods, {second}; one run on {cores} cores. In brackets: times the first row. Bold: the best of its column.\n\n\
         {versions}.\n\n",
        count(*pods),
    );
    let ways = runs.iter().filter_map(|run| Some(run.row(RELISTERS.iter().find(|way| way.id == run.way)?)));
    let best = report::write_rows(&COLUMNS, &ways.collect::<Vec<_>>(), &mut out);
    if !best.is_empty() {
        out += &format!("\n{best}\n");
    }
    if !skipped.is_empty() {
        out += "\nSkipped for want of memory:\n\n";
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
