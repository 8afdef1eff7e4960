//! The tables, in Markdown.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::process::Run;
use crate::ways::{GROUPS, Group, Variant};
use crate::{Point, Results};

const BEGIN: &str = "<!-- results: written by --publish -->";
const END: &str = "<!-- end of results -->";

/// A column: its title, what is in it, and how that is shown.
type Column = (&'static str, fn(&Run) -> f64, fn(f64) -> String);

const COLUMNS: [Column; 6] = [
    ("wall time", |run| run.wall, seconds),
    ("user time", |run| run.user, seconds),
    ("system time", |run| run.system, seconds),
    ("first item", |run| run.first_item, seconds),
    ("peak memory", |run| float(run.peak), bytes),
    ("held memory", |run| float(run.held), bytes),
];

/// All tables of the results.
pub fn tables(results: &Results) -> String {
    let Results { pods, cores, versions, points, skipped } = results;
    let runs = points.iter().filter(|point| point.pods == *pods).map(|point| point.runs.len()).max().unwrap_or(0);
    let mut out = format!(
        "{} Pods, medians of {runs} runs on {cores} cores. In brackets: times the first row. Bold: the best of its \
         column.\n\n{versions}.\n",
        count(*pods),
    );
    for group in GROUPS {
        table(group, results, &mut out);
    }
    if !skipped.is_empty() {
        out += "\nSkipped for want of memory:\n\n";
        for skipped in skipped {
            out += &format!("- {skipped}\n");
        }
    }
    out
}

/// Puts the tables between the markers of a file.
pub fn publish(tables: &str, readme: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(readme)?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no {END}"))?;
    Ok(fs::write(readme, format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))?)
}

fn table(group: &Group, results: &Results, out: &mut String) {
    let rows: Vec<(Variant, &Point)> = Variant::all(true)
        .filter(|variant| group.ways.contains(&variant.way.id))
        .filter_map(|variant| {
            let is_it = |point: &&Point| point.pods == results.pods && point.way == variant.id();
            Some((variant, results.points.iter().find(is_it)?))
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let values: Vec<[f64; COLUMNS.len()]> =
        rows.iter().map(|(_, point)| COLUMNS.map(|(_, of, _)| median(&point.runs, of))).collect();

    let titles = COLUMNS.map(|(title, ..)| title);
    *out += &format!("\n### {}\n\n| | {} |\n|---|{}\n", group.title, titles.join(" | "), "---|".repeat(COLUMNS.len()));
    let best: [f64; COLUMNS.len()] =
        std::array::from_fn(|column| values.iter().map(|row| row[column]).fold(f64::INFINITY, f64::min));
    let reference = rows.iter().position(|(variant, _)| variant.way.id == group.ways[0]);
    for (row, (variant, _)) in values.iter().zip(&rows) {
        *out += &format!("| {} |", variant.name());
        for (column, (_, _, show)) in COLUMNS.iter().enumerate() {
            let shown = show(row[column]);
            let shown = if shown == show(best[column]) { format!("**{shown}**") } else { shown };
            let to = reference.map_or(0.0, |reference| values[reference][column]);
            let ratio = if to > 0.0 { format!(" ({})", three_digits(row[column] / to)) } else { String::new() };
            *out += &format!(" {shown}{ratio} |");
        }
        *out += "\n";
    }
    let wins: Vec<_> = COLUMNS
        .iter()
        .enumerate()
        .filter_map(|(column, (title, ..))| {
            let ours = |(variant, row): (&Variant, &[f64; COLUMNS.len()])| variant.is_ours().then_some(row[column]);
            let ours =
                rows.iter().map(|(variant, _)| variant).zip(&values).filter_map(ours).fold(f64::INFINITY, f64::min);
            let (winner, _) = rows.iter().zip(&values).find(|(_, row)| row[column] == best[column])?.0;
            (ours.is_finite() && best[column] < ours).then(|| format!("{title} ({})", winner.name()))
        })
        .collect();
    *out += "\n";
    if !group.remark.is_empty() {
        *out += &format!("{} ", group.remark);
    }
    *out += &if wins.is_empty() {
        "listwatch is the best in every column.\n".to_owned()
    } else {
        format!("Others are better in: {}.\n", wins.join(", "))
    };
}

/// Of an even number of runs, the mean of the two in the middle.
pub fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<_> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 0 { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

pub fn size(number: u64) -> String {
    bytes(float(number))
}

pub fn bytes(number: f64) -> String {
    let (unit, scale) =
        [("GB", 1e9), ("MB", 1e6)].into_iter().find(|(_, scale)| number >= *scale).unwrap_or(("kB", 1e3));
    format!("{} {unit}", three_digits(number / scale))
}

pub fn seconds(time: f64) -> String {
    if time < 1.0 { format!("{} ms", three_digits(time * 1e3)) } else { format!("{} s", three_digits(time)) }
}

/// With commas.
pub fn count(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
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
pub fn float(number: u64) -> f64 {
    number as f64
}
