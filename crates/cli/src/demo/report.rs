//! The table of the measurements, and its explanation.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use indicatif::HumanCount;

use super::measurement::{ListMethod, ListedPods, Measurement, SkippedMethod};

const HEADER: [&str; 8] =
    ["", "wall\ntime", "user\ntime", "system\ntime", "first\nitem", "peak\nmemory", "held\nper item", "memory\nratio"];

pub fn print_report(list: &ListedPods, runs: &[Measurement], skipped: &[SkippedMethod], svg: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}\n", table(list, runs, skipped))?;
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

full buffer   reqwest's bytes(), then prost with Unknown and PodList of k8s-pb
listwatch     each Pod of the stream: decoded and dropped, kept as a decoded
              Pod, or kept as its bytes
held          growth of resident memory per item, with the whole list kept
ratio         peak memory relative to the full buffer

Each way ran in a separate process, with the system's allocator. User time,
system time (in steps of 10 ms) and memory were measured for that process.
The server ran on the same {cores} cores.",
        pods = HumanCount(list.pods.into()),
        bytes = format_size(list.bytes),
        recorded = list.recorded,
    )?;
    if runs.iter().any(|run| run.method == ListMethod::FullBuffer) {
        writeln!(out, "The full buffer ran last: memory that was in use before is faster to allocate.")?;
    }
    writeln!(out, "\nMemory over time: {}", svg.display())
}

fn table(list: &ListedPods, runs: &[Measurement], skipped: &[SkippedMethod]) -> Table {
    let full = runs.iter().find(|run| run.method == ListMethod::FullBuffer);
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─'))).set_header(HEADER);
    for run in runs {
        let held =
            if run.method == ListMethod::Drop { "-".into() } else { format_size(run.growth / u64::from(list.pods)) };
        let cpu = |kind: usize| run.cpu.map_or("-".into(), |times| format_seconds(times[kind]));
        let to_full = |of: fn(&Measurement) -> f64| full.map_or("-".into(), |full| format_ratio(of(run) / of(full)));
        table.add_row([
            run.method.name().to_owned(),
            format_seconds(run.done.wall),
            cpu(0),
            cpu(1),
            format_seconds(run.done.first_item),
            format_size(run.peak),
            held,
            to_full(|run| float(run.peak)),
        ]);
    }
    for SkippedMethod { method, .. } in skipped {
        table.add_row([method.name(), "skipped", "", "", "", "", "", ""]);
    }
    // Narrow enough for 80 columns.
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index + 1 < HEADER.len() { 2 } else { 0 }));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
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
