//! `listwatch demo`: reads the same list in four ways, and measures each in its own process.

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
use crate::notices;
use crate::number::number;
use crate::signals::interrupted;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Lists many Pods with and without this crate, and compares time and memory. Needs no cluster.
///
/// A server on loopback synthesizes the Pods from Pods of a real API server, and sends them in chunks of 4 KiB, as an API
/// server does. A full-buffer decode lists them once and this crate three times, each time in a separate process. The
/// command prints a table, and writes a plot of memory over time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch demo                          50,000 Pods, in less than a minute
  listwatch demo --pods 500000            skips ways that need more memory than is available
  listwatch demo --svg /tmp/memory.svg    writes the plot to another file")]
pub struct Args {
    /// Number of Pods, of about 8.5 kB each on the wire
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = number(1..=u32::MAX))]
    pods: u32,

    /// File to write the plot to
    #[arg(long, value_name = "FILE", default_value = "listwatch-demo.svg")]
    svg: PathBuf,
}

/// How the client reads the list, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Way {
    FullBuffer,
    Drop,
    KeepPods,
    KeepBytes,
}

/// The measurements of one way.
struct Run {
    way: Way,
    done: client::Done,
    /// User and system time of the client.
    cpu: Option<[Duration; 2]>,
    peak: u64,
    /// Growth of resident memory until the list was complete, with all kept items in memory.
    growth: u64,
    memory: Vec<Sample>,
}

/// A way that needs more memory than is available.
struct Skipped {
    way: Way,
    needed: u64,
    available: u64,
}

/// Resident memory of the client at a time after the request.
struct Sample {
    at: Duration,
    resident: u64,
}

/// The list that the server sends.
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
    notices::line(format_args!("Listing {pods} Pods ({}) in {} ways.", size(list.bytes), Way::IN_TURN.len()));
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
    let argument = way.to_possible_value().context("the way has no name")?;
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
                // Fails if the client has exited: then `message` returns the reason.
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
    // The memory of both processes is free before the next way starts.
    client.end().await?;
    server.end().await?;
    Ok(Run { way, done, cpu, peak, growth: after.saturating_sub(before), memory })
}

/// Checks that the plot can be written, before anything is measured. Leaves no empty file.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let is_new = !path.exists();
    let cannot_write = || format!("cannot write {}", path.display());
    File::options().create(true).append(true).open(path).with_context(cannot_write)?;
    if is_new {
        std::fs::remove_file(path).with_context(cannot_write)?;
    }
    Ok(())
}

fn progress(way: Way, list: &List) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:24} {percent:>3}% {wide_bar} {msg:18}");
    let number = Way::IN_TURN.iter().position(|other| *other == way).map_or(0, |index| index + 1);
    ProgressBar::new(list.bytes)
        .with_style(style.expect("the template is valid"))
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
    /// The order of the runs, by growing memory: recently used memory is faster to allocate, above all in a virtual machine,
    /// and this crate must not benefit from that.
    const IN_TURN: [Self; 4] = [Self::Drop, Self::KeepBytes, Self::KeepPods, Self::FullBuffer];

    fn name(self) -> &'static str {
        match self {
            Self::FullBuffer => "full buffer",
            Self::Drop => "listwatch, drop",
            Self::KeepPods => "listwatch, Box<Pod>",
            Self::KeepBytes => "listwatch, Box<[u8]>",
        }
    }

    /// Returns the memory that the way needs: measured in tenths of the body, plus a margin of a tenth.
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
