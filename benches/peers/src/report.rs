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

/// A way in a table.
struct Row {
    variant: Variant,
    /// In the order of the columns.
    medians: Vec<f64>,
}

fn table(group: &Group, results: &Results, out: &mut String) {
    // What is held where nothing is kept says nothing.
    let columns = if group.keeps { &COLUMNS[..] } else { &COLUMNS[..COLUMNS.len() - 1] };
    let rows: Vec<_> = Variant::all(true)
        .filter(|variant| group.ways.contains(&variant.way.id))
        .filter_map(|variant| {
            let is_it = |point: &&Point| point.pods == results.pods && point.way == variant.id();
            let runs = &results.points.iter().find(is_it)?.runs;
            Some(Row { variant, medians: columns.iter().map(|(_, of, _)| median(runs, of)).collect() })
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let titles: Vec<_> = columns.iter().map(|(title, ..)| *title).collect();
    *out += &format!("\n### {}\n\n| | {} |\n|---|{}\n", group.title, titles.join(" | "), "---:|".repeat(columns.len()));
    let best = |column: usize| rows.iter().min_by(|a, b| a.medians[column].total_cmp(&b.medians[column]));
    for (index, row) in rows.iter().enumerate() {
        *out += &format!("| {} |", row.variant.name());
        for (column, (_, _, show)) in columns.iter().enumerate() {
            let [value, first] = [row, &rows[0]].map(|row| row.medians[column]);
            let shown = show(value);
            let is_best = best(column).is_some_and(|best| show(best.medians[column]) == shown);
            *out += &if is_best { format!(" **{shown}**") } else { format!(" {shown}") };
            if index > 0 && first > 0.0 {
                *out += &format!(" ({})", three_digits(value / first));
            }
            *out += " |";
        }
        *out += "\n";
    }
    let peers: Vec<_> = columns
        .iter()
        .enumerate()
        .filter_map(|(column, (title, ..))| Some((title, best(column)?.variant)))
        .filter(|(_, best)| !best.is_ours())
        .map(|(title, best)| format!("{title} ({})", best.name()))
        .collect();
    let best = if peers.is_empty() { String::new() } else { format!("A peer is best in: {}.", peers.join("; ")) };
    let remarks = format!("{} {best}", group.remark);
    if !remarks.trim().is_empty() {
        *out += &format!("\n{}\n", remarks.trim());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wall: f64, peak: u64) -> Run {
        Run { wall, user: wall, system: 0.01, first_item: wall, peak, held: peak, memory: Vec::new() }
    }

    fn results() -> Results {
        let point = |way: &str, runs| Point { way: way.into(), pods: 7, runs };
        let ours = vec![run(9.0, 2_000_000), run(1.0, 1_000_000), run(2.0, 4_000_000)];
        let theirs = vec![run(4.0, 1_000_000), run(6.0, 1_000_000)];
        Results {
            pods: 7,
            cores: 2,
            versions: "kube 5".into(),
            points: vec![point("box", ours), point("prost", theirs)],
            skipped: vec!["kube: too much".into()],
        }
    }

    #[test]
    fn a_table_has_medians_ratios_and_the_best() {
        let tables = tables(&results());
        for line in [
            "| listwatch, `Box<Pod>` | **2.00 s** | **2.00 s** | **10.0 ms** | **2.00 s** | 2.00 MB | 2.00 MB |",
            "| reqwest and prost, full buffer | 5.00 s (2.50) | 5.00 s (2.50) | **10.0 ms** (1.00) | 5.00 s (2.50) \
             | **1.00 MB** (0.50) | **1.00 MB** (0.50) |",
            "- kube: too much",
        ] {
            assert!(tables.lines().any(|of| of == line), "{line}\n{tables}");
        }
        let best = "A peer is best in: peak memory (reqwest and prost, full buffer); held memory";
        assert!(tables.contains(best), "{tables}");
        assert!(!tables.contains("Decode every Pod"), "{tables}");
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, shown) in [(0.0, "0.00"), (1.006, "1.01"), (9.996, "10.0"), (99.96, "100"), (1234.0, "1234")] {
            assert_eq!(three_digits(number), shown);
        }
        assert_eq!((seconds(0.0123), seconds(12.0)), ("12.3 ms".into(), "12.0 s".into()));
        assert_eq!((bytes(900.0), bytes(2.5e9)), ("0.90 kB".into(), "2.50 GB".into()));
        assert_eq!([7, 1000, 1_234_567].map(count), ["7", "1,000", "1,234,567"]);
    }
}
