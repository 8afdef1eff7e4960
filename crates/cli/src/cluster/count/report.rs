//! What `count` prints: a table, CSV or JSON, of the same groups.

use std::io::{self, Write};

use serde_json::Value;

use super::path::{CountPath, headers};
use super::tally::CountedGroup;
use crate::escape::escape_controls;
use crate::output::{TableColumn, write_aligned};

/// What kubectl prints in place of an absent value.
const NONE: &str = "<none>";

/// The groups, in order, and what their columns are.
pub struct CountReport {
    pub by: Vec<CountPath>,
    pub sums: Vec<CountPath>,
    pub groups: Vec<CountedGroup>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum CountFormat {
    /// A table for people; without --by and --sum, only the number
    Table,
    /// Comma-separated values, with a line of headers
    Csv,
    /// A JSON array of one object for each group
    Json,
}

impl CountReport {
    pub fn print(&self, format: CountFormat, no_headers: bool, out: &mut impl Write) -> io::Result<()> {
        match format {
            CountFormat::Table => self.print_table(no_headers, out),
            CountFormat::Csv => self.print_csv(no_headers, out),
            CountFormat::Json => self.print_json(out),
        }
    }

    fn print_table(&self, no_headers: bool, out: &mut impl Write) -> io::Result<()> {
        if let ([], [], [group]) = (&*self.by, &*self.sums, &*self.groups) {
            return writeln!(out, "{}", group.count);
        }
        let mut names = headers(self.by.iter().chain(&self.sums));
        let sums = names.split_off(self.by.len());
        let column = |right| move |header: String| TableColumn { header, right };
        let by = names.into_iter().map(column(false));
        let columns: Vec<_> = by.chain(["COUNT".to_owned()].into_iter().chain(sums).map(column(true))).collect();
        let row = |group: &CountedGroup| cells(group).map(|cell| escape_controls(&cell).into_owned()).collect();
        let rows: Vec<Vec<_>> = self.groups.iter().map(row).collect();
        write_aligned(out, &columns, &rows, no_headers)
    }

    fn print_csv(&self, no_headers: bool, out: &mut impl Write) -> io::Result<()> {
        if !no_headers {
            write_csv_line(self.names(), out)?;
        }
        self.groups.iter().try_for_each(|group| write_csv_line(cells(group), out))
    }

    /// Prints a group a line, so that it can be read, too.
    fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<_> = self.names().map(|name| Value::from(name).to_string()).collect();
        let mut before = "[";
        for group in &self.groups {
            let text = |value: &Option<String>| Value::from(value.clone()).to_string();
            let sum = |sum: &super::tally::Sum| if sum.is_number { sum.to_string() } else { format!("\"{sum}\"") };
            let values =
                group.values.iter().map(text).chain([group.count.to_string()]).chain(group.sums.iter().map(sum));
            let members: Vec<_> = names.iter().zip(values).map(|(name, value)| format!("{name}:{value}")).collect();
            write!(out, "{before}\n{{{}}}", members.join(","))?;
            before = ",";
        }
        writeln!(out, "{}]", if before == "[" { "[" } else { "\n" })
    }

    /// Returns the names of the columns for programs.
    fn names(&self) -> impl Iterator<Item = String> {
        let by = self.by.iter().map(|path| path.text.clone());
        by.chain(["count".to_owned()]).chain(self.sums.iter().map(|path| format!("sum({})", path.text)))
    }
}

/// Returns the texts of a group.
fn cells(group: &CountedGroup) -> impl Iterator<Item = String> {
    let values = group.values.iter().map(|value| value.clone().unwrap_or_else(|| NONE.to_owned()));
    values.chain([group.count.to_string()]).chain(group.sums.iter().map(ToString::to_string))
}

/// Writes a line as RFC 4180 quotes it. Control characters are escaped, as in a table.
fn write_csv_line(cells: impl Iterator<Item = String>, out: &mut impl Write) -> io::Result<()> {
    let quoted = cells.map(|cell| {
        let cell = escape_controls(&cell);
        if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into_owned() }
    });
    writeln!(out, "{}", quoted.collect::<Vec<_>>().join(","))
}
