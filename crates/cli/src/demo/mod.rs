//! `listwatch demo`: reads the same list in four ways, and measures each in its own process.

pub mod client;
mod machine;
mod measurement;
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
use tokio::time::{MissedTickBehavior, interval};

use self::measurement::{ListMethod, ListedPods, ListingTimes, Measurement, MemorySample, SkippedMethod};
use self::process::{ChildProcess, MemorySampler};
use self::report::format_size;
use crate::failure::Failure;
use crate::notices;
use crate::number::number_in;
use crate::signals::interrupted;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// List many Pods with and without this crate, and compare time and memory. Needs no cluster.
///
/// A server on loopback synthesizes the Pods from Pods of a real API server. It sends them in chunks of 4 KiB, as an
/// API server does. A full-buffer decode lists them once and this crate three times, each time in a separate process.
/// The command prints a table, and writes a plot of memory over time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  listwatch demo                          50,000 Pods, in less than a minute
  listwatch demo --pods 500000            skips ways that need more memory than is available
  listwatch demo --svg /tmp/memory.svg    writes the plot to another file")]
pub struct DemoArgs {
    /// Number of Pods, of about 8.5 kB each on the wire
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = number_in(1..=u32::MAX))]
    pods: u32,

    /// File to write the plot to
    #[arg(long, value_name = "FILE", default_value = "listwatch-demo.svg")]
    svg: PathBuf,
}

pub async fn run(args: DemoArgs) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the measurements are not complete".into())),
        done = compare(args) => done,
    }
}

async fn compare(args: DemoArgs) -> Result<(), Failure> {
    check_writable(&args.svg)?;
    let list = ListedPods::new(args.pods)?;
    let pods = HumanCount(args.pods.into());
    notices::print_line(format_args!(
        "Listing {pods} Pods ({}) in {} ways.",
        format_size(list.bytes),
        ListMethod::IN_TURN.len()
    ));
    let (mut runs, mut skipped) = (Vec::new(), Vec::new());
    for method in ListMethod::IN_TURN {
        let (needed, available) = (method.memory_needed(&list), machine::available_memory());
        if needed > available {
            skipped.push(SkippedMethod { method, needed, available });
            continue;
        }
        let run = measure(method, &list).await.with_context(|| format!("demo: {}", method.name()))?;
        runs.push(run);
    }
    runs.sort_by_key(|run| run.method);
    skipped.sort_by_key(|skipped: &SkippedMethod| skipped.method);
    plot::write(&args.svg, &list, &runs).with_context(|| format!("cannot write {}", args.svg.display()))?;
    report::print_report(&list, &runs, &skipped, &args.svg)?;
    Ok(())
}

async fn measure(method: ListMethod, list: &ListedPods) -> anyhow::Result<Measurement> {
    let bar = progress(method, list);
    let pods = list.pods.to_string();
    let mut server = ChildProcess::start(["demo-server", &pods])?;
    let url: String = server.next_message().await?;
    let argument = method.to_possible_value().context("the way has no name")?;
    let mut client = ChildProcess::start(["demo-client", argument.get_name(), &url, &pods])?;
    let () = client.next_message().await?;

    let mut sampler = MemorySampler::new(client.id());
    let before = sampler.sample()?;
    let cpu_before = machine::cpu_times(client.id());
    let mut memory = vec![MemorySample { at: Duration::ZERO, resident: before }];
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    client.send_go().await?;
    let start = Instant::now();
    let done: ListingTimes = loop {
        tokio::select! {
            done = client.next_message() => break done?,
            sent = server.next_message() => bar.set_position(sent?),
            _ = ticks.tick() => {
                // Fails if the client has exited: then `next_message` returns the reason.
                let Ok(resident) = sampler.sample() else { continue };
                bar.set_message(format!("{} in memory", format_size(resident)));
                memory.push(MemorySample { at: start.elapsed(), resident });
            }
        }
    };
    let after = sampler.sample()?;
    let cpu = cpu_before.zip(machine::cpu_times(client.id()));
    let cpu = cpu.map(|(before, after)| [0, 1].map(|kind| after[kind].saturating_sub(before[kind])));
    memory.push(MemorySample { at: done.wall, resident: after });
    let sampled_peak = memory.iter().map(|sample| sample.resident).max().unwrap_or(0);
    let peak = machine::peak_memory(client.id()).unwrap_or(sampled_peak);
    // The memory of both processes is free before the next method starts.
    client.end().await?;
    server.end().await?;
    Ok(Measurement { method, done, cpu, peak, growth: after.saturating_sub(before), memory })
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

fn progress(method: ListMethod, list: &ListedPods) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:24} {percent:>3}% {wide_bar} {msg:18}");
    let number = ListMethod::IN_TURN.iter().position(|other| *other == method).map_or(0, |index| index + 1);
    ProgressBar::new(list.bytes)
        .with_style(style.expect("the template is valid"))
        .with_prefix(format!("{number}/{} {}", ListMethod::IN_TURN.len(), method.name()))
        .with_finish(ProgressFinish::AndClear)
}
