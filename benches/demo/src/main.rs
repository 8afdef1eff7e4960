//! Lists many Pods with and without `listwatch`, and compares time and memory: `cargo run --release -p listwatch-demo`.
//!
//! It needs no cluster. A server in this process synthesizes the Pods from Pods of a real API server, and sends them in
//! chunks of 4 KiB, as an API server does. One way of listing after another runs in a child process of its own, so that
//! its time and memory can be measured. The options are `--pods N` and `--svg FILE`, the file of the plot.

mod client;
mod machine;
mod method;
mod plot;
mod process;
mod report;

use std::fs::File;
use std::future::pending;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use listwatch::internal::without_os_numbers;
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};
use tokio::runtime;

use self::method::{ListMethod, ListedPods, Measurement, MemorySample, SkippedMethod};
use self::process::{ChildProcess, MemorySampler};
use self::report::{format_count, format_size};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match *args {
        // The child process that lists the Pods.
        ["client", way, address, pods] => client::run(way, address, pods),
        _ => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", without_os_numbers(format_args!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> anyhow::Result<()> {
    let (mut pods, mut svg) = (50_000, PathBuf::from("listwatch-demo.svg"));
    for option in args.chunks(2) {
        match *option {
            ["--pods", number] => pods = number.parse().context("--pods")?,
            ["--svg", file] => svg = file.into(),
            _ => bail!("usage: listwatch-demo [--pods N] [--svg FILE]"),
        }
    }
    check_writable(&svg)?;
    let list = ListedPods::new(pods)?;
    let ways = ListMethod::IN_TURN.len();
    eprintln!("Listing {} Pods ({}) in {ways} ways.", format_count(pods), format_size(list.bytes));
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let synthesized = Synthesizer::new(&recorded_pods(), pods)?;
    let server = runtime.block_on(Server::start(Answer::ok(Body::synthesize(synthesized)).always()))?;
    let address = server.addr().to_string();
    thread::spawn(move || runtime.block_on(pending::<()>()));

    let (mut runs, mut skipped) = (Vec::new(), Vec::new());
    for (number, method) in (1..).zip(ListMethod::IN_TURN) {
        let (needed, available) = (method.memory_needed(&list), machine::available_memory());
        if needed > available {
            skipped.push(SkippedMethod { method, needed, available });
            continue;
        }
        eprintln!("{number}/{ways} {}", method.name());
        runs.push(measure(method, &address, pods).with_context(|| method.name())?);
    }
    runs.sort_by_key(|run| run.method);
    skipped.sort_by_key(|skipped: &SkippedMethod| skipped.method);
    plot::write(&svg, &list, &runs).with_context(|| format!("cannot write {}", svg.display()))?;
    report::print_report(&list, &runs, &skipped, &svg)?;
    Ok(())
}

fn measure(method: ListMethod, address: &str, pods: u32) -> anyhow::Result<Measurement> {
    let mut client = ChildProcess::start(&["client", method.name(), address, &pods.to_string()])?;
    client.message(Duration::MAX)?;
    let mut sampler = MemorySampler::new(client.id());
    let before = sampler.sample()?;
    let cpu_before = machine::cpu_times(client.id());
    let mut memory = vec![MemorySample { at: Duration::ZERO, resident: before }];
    client.send_go()?;
    let start = Instant::now();
    let times = loop {
        if let Some(times) = client.message(SAMPLE_INTERVAL)? {
            break times;
        }
        // Fails if the client has exited: then the next message is its failure.
        if let Ok(resident) = sampler.sample() {
            memory.push(MemorySample { at: start.elapsed(), resident });
        }
    };
    // The client waits with the items that it keeps.
    let after = sampler.sample()?;
    let cpu = cpu_before.zip(machine::cpu_times(client.id()));
    let cpu = cpu.map(|(before, after)| [0, 1].map(|kind| after[kind].saturating_sub(before[kind])));
    let (wall, first_item) = client::parse_times(&times)?;
    memory.push(MemorySample { at: wall, resident: after });
    let sampled_peak = memory.iter().map(|sample| sample.resident).max().unwrap_or(0);
    let peak = machine::peak_memory(client.id()).unwrap_or(sampled_peak);
    // Its memory is free before the next method starts.
    client.end()?;
    Ok(Measurement { method, wall, first_item, cpu, peak, growth: after.saturating_sub(before), memory })
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
