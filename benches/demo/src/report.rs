//! The table of the measurements, and its explanation.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::method::{ListMethod, ListedPods, Measurement, SkippedMethod};

/// The columns after the name: narrow enough for 80 characters.
const COLUMNS: [[&str; 2]; 7] = [
    ["wall", "time"],
    ["user", "time"],
    ["system", "time"],
    ["first", "item"],
    ["peak", "memory"],
    ["held", "per item"],
    ["memory", "ratio"],
];

pub fn print_report(list: &ListedPods, runs: &[Measurement], skipped: &[SkippedMethod], svg: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", table(list, runs, skipped))?;
    for SkippedMethod { method, needed, available } in skipped {
        let (needed, available) = (format_size(*needed), format_size(*available));
        writeln!(out, "Skipped {}: it needs about {needed} of memory, and {available} is available.", method.name())?;
    }
    if !skipped.is_empty() {
        writeln!(out)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    writeln!(
        out,
        "\
{pods} Pods, {bytes} of protobuf: {recorded} recorded Pods, repeated with unique names,
uids and versions, over loopback HTTP in chunks of 4 KiB.

full buffer   hyper's body in one buffer, then prost with Unknown and PodList
              of k8s-pb
listwatch     each Pod of the stream: decoded and dropped, kept as a decoded
              Pod, or kept as its bytes
held          growth of resident memory per item, with the whole list kept
ratio         peak memory relative to the full buffer

Each way ran in a separate process, with the system's allocator. User time,
system time (in steps of 10 ms) and memory were measured for that process.
The server ran on the same {cores} cores.",
        pods = format_count(list.pods),
        bytes = format_size(list.bytes),
        recorded = list.recorded,
    )?;
    if runs.iter().any(|run| run.method == ListMethod::FullBuffer) {
        writeln!(out, "The full buffer ran last: memory that was in use before is faster to allocate.")?;
    }
    writeln!(out, "\nMemory over time: {}", svg.display())
}

fn table(list: &ListedPods, runs: &[Measurement], skipped: &[SkippedMethod]) -> String {
    let full = runs.iter().find(|run| run.method == ListMethod::FullBuffer);
    let mut text = String::new();
    for line in 0..2 {
        text += &row("", &COLUMNS.map(|header| header[line].to_owned()));
    }
    text.extend(["─".repeat(79), "\n".to_owned()]);
    for run in runs {
        let held = match run.method {
            ListMethod::Drop => "-".to_owned(),
            _ => format_size(run.growth / u64::from(list.pods)),
        };
        let cpu = |kind: usize| run.cpu.map_or("-".into(), |times| format_seconds(times[kind]));
        let ratio = full.map_or("-".into(), |full| format_ratio(float(run.peak) / float(full.peak)));
        let (wall, first_item) = (format_seconds(run.wall), format_seconds(run.first_item));
        text += &row(run.method.name(), &[wall, cpu(0), cpu(1), first_item, format_size(run.peak), held, ratio]);
    }
    for SkippedMethod { method, .. } in skipped {
        text += &row(method.name(), &["skipped", "", "", "", "", "", ""].map(String::from));
    }
    text
}

/// Returns a line of the table.
fn row(name: &str, cells: &[String; 7]) -> String {
    let [wall, user, system, first, peak, held, ratio] = cells;
    let line = format!("{name:20}  {wall:>7}  {user:>7}  {system:>7}  {first:>7}  {peak:>7}  {held:>8}  {ratio:>6}");
    format!("{}\n", line.trim_end())
}

/// Returns a number with commas: 50,000.
pub fn format_count(number: u32) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

pub fn format_size(bytes: u64) -> String {
    let (unit, scale) =
        [("GB", 1e9), ("MB", 1e6)].into_iter().find(|(_, scale)| float(bytes) >= *scale).unwrap_or(("kB", 1e3));
    format!("{} {unit}", three_digits(float(bytes) / scale))
}

pub fn format_seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{} ms", three_digits(seconds * 1e3)) } else { format!("{} s", three_digits(seconds)) }
}

fn format_ratio(ratio: f64) -> String {
    if ratio < 0.1 { format!("1/{:.0}", 1.0 / ratio) } else { format!("{ratio:.2}") }
}

fn three_digits(number: f64) -> String {
    let decimals = if number >= 99.95 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    format!("{number:.decimals$}")
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
fn float(number: u64) -> f64 {
    number as f64
}
