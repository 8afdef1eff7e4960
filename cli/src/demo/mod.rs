//! `listwatch demo`: the same list read in four ways, each measured in a process of its own.

pub mod client;
mod machine;
mod plot;
mod process;
mod report;
pub mod server;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{HumanCount, ProgressBar, ProgressFinish, ProgressStyle};
use listwatch_testserver::{Synthesizer, recorded_pods};
use tokio::time::{MissedTickBehavior, interval};

use self::process::{Process, Sampler};
use self::report::size;
use crate::failure::Failure;
use crate::signals::interrupted;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Lists many Pods with and without this crate, and shows time and memory side by side. Needs no cluster.
///
/// Pods recorded from a real API server are multiplied to as many as are asked for and served on loopback, in chunks
/// of 4 KiB as an API server sends them. They are listed once with a full-buffer decode and three times with this
/// crate, each time by a process of its own. Ends with a table, and a plot of memory over time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch demo                          50,000 Pods, in less than a minute
  listwatch demo --pods 500000            ways that memory does not allow are skipped
  listwatch demo --svg /tmp/memory.svg    the plot goes elsewhere")]
pub struct Args {
    /// How many Pods; each takes about 8.5 kB on the wire
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,

    /// Where the plot is written
    #[arg(long, value_name = "FILE", default_value = "listwatch-demo.svg")]
    svg: PathBuf,
}

/// What becomes of the list, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Way {
    FullBuffer,
    Drop,
    KeepPods,
    KeepBytes,
}

/// One way, measured.
struct Run {
    way: Way,
    done: client::Done,
    /// User and system time of the process that listed.
    cpu: Option<[Duration; 2]>,
    peak: u64,
    /// How much more was resident when the list was complete, and all that is kept of it still kept.
    growth: u64,
    memory: Vec<Sample>,
}

/// A way that this machine's memory does not allow.
struct Skipped {
    way: Way,
    needed: u64,
    available: u64,
}

/// Resident memory at a time.
struct Sample {
    at: Duration,
    resident: u64,
}

/// The list that is served.
struct List {
    pods: u32,
    bytes: u64,
    recorded: u32,
}

pub async fn run(args: Args) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the measurements are not complete".into())),
        done = compare(args) => done,
    }
}

async fn compare(args: Args) -> Result<(), Failure> {
    check_writable(&args.svg)?;
    let list = List::new(args.pods)?;
    let pods = HumanCount(args.pods.into());
    eprintln!("Listing {pods} Pods ({}) in {} ways.", size(list.bytes), Way::IN_TURN.len());
    let (mut runs, mut skipped) = (Vec::new(), Vec::new());
    for way in Way::IN_TURN {
        let (needed, available) = (way.memory_needed(&list), machine::available_memory());
        if needed > available {
            skipped.push(Skipped { way, needed, available });
            continue;
        }
        let run = measure(way, &list).await.with_context(|| format!("demo: {}", way.name()))?;
        runs.push(run);
    }
    runs.sort_by_key(|run| run.way);
    skipped.sort_by_key(|skipped: &Skipped| skipped.way);
    plot::write(&args.svg, &list, &runs).with_context(|| format!("cannot write {}", args.svg.display()))?;
    report::print(&list, &runs, &skipped, &args.svg)?;
    Ok(())
}

async fn measure(way: Way, list: &List) -> anyhow::Result<Run> {
    let bar = progress(way, list);
    let pods = list.pods.to_string();
    let mut server = Process::start(["demo-server", &pods])?;
    let url: String = server.message().await?;
    let argument = way.to_possible_value().context("no way")?;
    let mut client = Process::start(["demo-client", argument.get_name(), &url, &pods])?;
    let () = client.message().await?;

    let mut sampler = Sampler::new(client.id());
    let before = sampler.sample()?;
    let cpu_before = machine::cpu_times(client.id());
    let mut memory = vec![Sample { at: Duration::ZERO, resident: before }];
    let mut ticks = interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    client.go().await?;
    let start = Instant::now();
    let done: client::Done = loop {
        tokio::select! {
            done = client.message() => break done?,
            sent = server.message() => bar.set_position(sent?),
            _ = ticks.tick() => {
                // A client that is gone has said why.
                let Ok(resident) = sampler.sample() else { continue };
                bar.set_message(format!("{} in memory", size(resident)));
                memory.push(Sample { at: start.elapsed(), resident });
            }
        }
    };
    let after = sampler.sample()?;
    let cpu = cpu_before.zip(machine::cpu_times(client.id()));
    let cpu = cpu.map(|(before, after)| [0, 1].map(|kind| after[kind].saturating_sub(before[kind])));
    memory.push(Sample { at: done.wall, resident: after });
    let sampled_peak = memory.iter().map(|sample| sample.resident).max().unwrap_or(0);
    let peak = machine::peak_memory(client.id()).unwrap_or(sampled_peak);
    // The next way finds the memory of this one free again.
    client.end().await?;
    server.end().await?;
    Ok(Run { way, done, cpu, peak, growth: after.saturating_sub(before), memory })
}

/// So that the work is not done for nothing.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    File::options().create(true).append(true).open(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn progress(way: Way, list: &List) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:24} {percent:>3}% {wide_bar} {msg:18}");
    let number = Way::IN_TURN.iter().position(|other| *other == way).map_or(0, |index| index + 1);
    ProgressBar::new(list.bytes)
        .with_style(style.expect("the template is right"))
        .with_prefix(format!("{number}/{} {}", Way::IN_TURN.len(), way.name()))
        .with_finish(ProgressFinish::AndClear)
}

impl List {
    fn new(pods: u32) -> anyhow::Result<Self> {
        let recorded = recorded_pods();
        let bytes = Synthesizer::new(&recorded, pods)?.len();
        let mut recorded = listwatch::ListReader::new::<[u8]>(recorded.as_slice());
        let count = recorded.by_ref().try_fold(0, |count, item| item.map(|_| count + 1))?;
        Ok(Self { pods, bytes, recorded: count })
    }
}

impl Way {
    /// By growing memory: memory that was in use a moment ago is quicker to get, most of all in a virtual machine, and
    /// this crate is not to gain by that.
    const IN_TURN: [Self; 4] = [Self::Drop, Self::KeepBytes, Self::KeepPods, Self::FullBuffer];

    fn name(self) -> &'static str {
        match self {
            Self::FullBuffer => "full buffer",
            Self::Drop => "listwatch, drop",
            Self::KeepPods => "listwatch, Box<Pod>",
            Self::KeepBytes => "listwatch, Box<[u8]>",
        }
    }

    /// In tenths of the body, as measured and a tenth more.
    fn memory_needed(self, list: &List) -> u64 {
        let tenths = match self {
            Self::FullBuffer => 81,
            Self::Drop => 0,
            Self::KeepPods => 70,
            Self::KeepBytes => 11,
        };
        list.bytes / 10 * tenths
    }
}
