//! The tables, in Markdown.

use std::iter;

use crate::process::Run;
use crate::ways::{GROUPS, Group, Variant, Work};
use crate::{Point, Results};

/// A column: its title, its value for a run with this many Pods, if any, and the format of its values.
type Column = (&'static str, fn(&Run, u32) -> Option<f64>, fn(f64) -> String);

/// The title of a column, and the format of its values.
pub type Title = (&'static str, fn(f64) -> String);

const COLUMNS: [Column; 6] = [
    ("wall time", |run, _| Some(run.wall), seconds),
    ("user time", |run, _| Some(run.user), seconds),
    ("system time", |run, _| Some(run.system), seconds),
    ("first item", |run, _| Some(run.first_item), seconds),
    ("peak memory", |run, _| Some(float(run.peak)), bytes),
    ("held memory", |run, _| Some(float(run.held)), bytes),
];

const STORE_COLUMNS: [Column; 9] = [
    ("fill", |run, _| Some(run.wall), seconds),
    ("peak memory", |run, _| Some(float(run.peak)), bytes),
    ("held per Pod", |run, pods| Some(float(run.held) / f64::from(pods)), bytes),
    ("look up a key", |run, _| Some(run.store.as_ref()?.look_up), seconds),
    ("look up and decode", |run, _| run.store.as_ref()?.look_up_decoded, seconds),
    ("look up and read six fields", |run, _| run.store.as_ref()?.look_up_six, seconds),
    ("iterate, per Pod", |run, _| Some(run.store.as_ref()?.iterate), seconds),
    ("add an index, per Pod", |run, _| run.store.as_ref()?.add_index, seconds),
    ("look up a node's Pods", |run, _| run.store.as_ref()?.look_up_node, seconds),
];

/// Returns all tables of the results.
pub fn tables(results: &Results) -> String {
    let Results { pods, stores, cores, versions, points, skipped } = results;
    let runs = points.iter().filter(|point| point.pods == *pods).map(|point| point.runs.len()).max().unwrap_or(0);
    let mut out = format!(
        "{} Pods, medians of {runs} runs on {cores} cores. In brackets: the ratio to the first row. Bold: the best \
         of the column.\n\n{versions}.\n",
        count(*pods),
    );
    for group in GROUPS {
        let others = stores.iter().filter(|_| group.work == Work::Store);
        for pods in iter::once(pods).chain(others) {
            table(group, results, *pods, &mut out);
        }
    }
    if !skipped.is_empty() {
        out += "\nNot run, because the memory needed, extrapolated from fewer Pods, exceeds the available memory:\n\n";
        for skipped in skipped {
            out += &format!("- {skipped}\n");
        }
    }
    out
}

/// The row of a way in a table.
pub struct Row {
    pub name: String,
    /// Whether the way counts as this crate's, and not as a peer's.
    pub is_ours: bool,
    /// In the order of the columns.
    pub values: Vec<Option<f64>>,
}

fn table(group: &Group, results: &Results, pods: u32, out: &mut String) {
    let columns = match group.work {
        // Without held memory, because nothing is kept.
        Work::Drop => &COLUMNS[..COLUMNS.len() - 1],
        Work::Keep => &COLUMNS[..],
        Work::Store => &STORE_COLUMNS[..],
    };
    let rows: Vec<_> = Variant::all(true)
        .filter(|variant| group.ways.contains(&variant.way.id))
        .filter_map(|variant| {
            let is_it = |point: &&Point| point.pods == pods && point.way == variant.id();
            let runs = &results.points.iter().find(is_it)?.runs;
            let median = |of: fn(&Run, u32) -> Option<f64>| {
                Some(median(runs.iter().map(|run| of(run, pods)).collect::<Option<_>>()?))
            };
            let values = columns.iter().map(|(_, of, _)| median(*of)).collect();
            Some(Row { name: variant.name(), is_ours: variant.is_ours(), values })
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let of_pods = if pods == results.pods { String::new() } else { format!(": {} Pods, one run", count(pods)) };
    *out += &format!("\n### {}{of_pods}\n\n", group.title);
    let columns: Vec<_> = columns.iter().map(|(title, _, show)| (*title, *show)).collect();
    let best = write_rows(&columns, &rows, out);
    let remarks = format!("{} {best}", group.remark);
    if !remarks.trim().is_empty() {
        *out += &format!("\n{}\n", remarks.trim());
    }
}

/// Writes the rows under their titles. Less is better in every column. Returns a sentence that names the columns in
/// which a peer is best, if there are any.
pub fn write_rows(columns: &[Title], rows: &[Row], out: &mut String) -> String {
    let titles: Vec<_> = columns.iter().map(|(title, _)| *title).collect();
    *out += &format!("| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(columns.len()));
    let best = |column: usize| {
        let values = rows.iter().filter_map(|row| Some((row, row.values[column]?)));
        values.min_by(|(_, a), (_, b)| a.total_cmp(b))
    };
    for (index, row) in rows.iter().enumerate() {
        *out += &format!("| {} |", row.name);
        for (column, (_, show)) in columns.iter().enumerate() {
            let Some(value) = row.values[column] else {
                *out += " — |";
                continue;
            };
            let shown = show(value);
            let is_best = best(column).is_some_and(|(_, best)| show(best) == shown);
            *out += &if is_best { format!(" **{shown}**") } else { format!(" {shown}") };
            if let Some(first) = rows[0].values[column].filter(|first| index > 0 && *first > 0.0) {
                *out += &format!(" ({})", three_digits(value / first));
            }
            *out += " |";
        }
        *out += "\n";
    }
    let peers: Vec<_> = columns
        .iter()
        .enumerate()
        .filter_map(|(column, (title, _))| Some((title, best(column)?.0)))
        .filter(|(_, best)| !best.is_ours)
        .map(|(title, best)| format!("{title} ({})", best.name))
        .collect();
    if peers.is_empty() { String::new() } else { format!("A peer is best in: {}.", peers.join("; ")) }
}

/// Returns the median; for an even number of values, the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
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
    let (unit, scale) = [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)]
        .into_iter()
        .find(|(_, scale)| time >= *scale)
        .unwrap_or(("ms", 1e-3));
    format!("{} {unit}", three_digits(time / scale))
}

/// Formats a number with commas between thousands.
pub fn count(number: u32) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

pub fn three_digits(number: f64) -> String {
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
    use listwatch_peers::StoreTimes;

    use super::*;

    fn run(wall: f64, peak: u64) -> Run {
        Run { wall, user: wall, system: 0.01, first_item: wall, peak, held: peak, memory: Vec::new(), store: None }
    }

    fn results() -> Results {
        let point = |way: &str, runs| Point { way: way.into(), pods: 7, runs };
        let ours = vec![run(9.0, 2_000_000), run(1.0, 1_000_000), run(2.0, 4_000_000)];
        let theirs = vec![run(4.0, 1_000_000), run(6.0, 1_000_000)];
        Results {
            pods: 7,
            stores: Vec::new(),
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
        assert!(!tables.contains("Keep the metadata"), "{tables}");
    }

    #[test]
    fn stores_have_a_table_for_each_number_of_pods() {
        let times = |add_index| StoreTimes {
            look_up: 1.5e-6,
            look_up_decoded: Some(6e-6),
            look_up_six: None,
            iterate: 2e-8,
            add_index,
            look_up_node: None,
        };
        let store = |wall, add_index| Run { store: Some(times(add_index)), ..run(wall, 7000) };
        let point = |way: &str, pods, run| Point { way: way.into(), pods, runs: vec![run] };
        let points = vec![
            point("kube-reflector", 7, store(2.0, None)),
            point("go-informer", 7, store(1.0, Some(3e-7))),
            point("go-informer", 700, store(9.0, Some(3e-7))),
        ];
        let tables = tables(&Results { stores: vec![700], points, ..results() });
        let (_, tables) = tables.split_once("### Keep every Pod in a store\n").unwrap();
        let (table, other) = tables.split_once("### Keep every Pod in a store: 700 Pods, one run\n").unwrap();
        for (table, line) in [
            (
                table,
                "| kube, reflector, JSON | 2.00 s | **7.00 kB** | **1.00 kB** | **1.50 µs** | **6.00 µs** | — | **20.0 ns** | — | — |",
            ),
            (
                table,
                "| client-go, informer | **1.00 s** (0.50) | **7.00 kB** (1.00) | **1.00 kB** (1.00) | **1.50 µs** (1.00) \
                 | **6.00 µs** (1.00) | **20.0 ns** (1.00) | **300 ns** | — |",
            ),
            (
                other,
                "| client-go, informer | **9.00 s** | **7.00 kB** | **0.01 kB** | **1.50 µs** | **6.00 µs** | **20.0 ns** | **300 ns** \
                 | — |",
            ),
        ] {
            assert!(table.lines().any(|of| of == line), "{line}\n{tables}");
        }
        assert!(!other.contains("kube, reflector"), "{other}");
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, shown) in [(0.0, "0.00"), (1.006, "1.01"), (9.996, "10.0"), (99.96, "100"), (1234.0, "1234")] {
            assert_eq!(three_digits(number), shown);
        }
        for (time, shown) in
            [(12.0, "12.0 s"), (0.0123, "12.3 ms"), (4.2e-6, "4.20 µs"), (99e-9, "99.0 ns"), (0.0, "0.00 ms")]
        {
            assert_eq!(seconds(time), shown);
        }
        assert_eq!((bytes(900.0), bytes(2.5e9)), ("0.90 kB".into(), "2.50 GB".into()));
        assert_eq!([7, 1000, 1_234_567].map(count), ["7", "1,000", "1,234,567"]);
    }
}
