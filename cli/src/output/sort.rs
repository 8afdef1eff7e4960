//! `--sort-by`: keeps the rows of a list, and sorts them.

use std::cmp::Ordering;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::json_path::{JsonPath, print};
use serde_json::Value;

use super::row::Row;

/// The rows of a list with the values that they are sorted by. It keeps no objects.
pub struct RowSorter {
    path: JsonPath,
    rows: Vec<(Option<SortKey>, Row)>,
}

/// A value of the path.
#[derive(PartialEq)]
enum SortKey {
    Number(f64),
    Text(String),
}

impl RowSorter {
    pub fn new(path: JsonPath) -> Self {
        Self { path, rows: Vec::new() }
    }

    /// Keeps the row of an item.
    pub fn add(&mut self, item: &ItemRef<'_>, row: Row) -> Result<(), ItemError> {
        let mut json = Vec::new();
        item.to_json(&mut json)?;
        let object: Value = serde_json::from_slice(&json).map_err(ItemError::other)?;
        let found = self.path.find(&object).map_err(ItemError::other)?;
        self.rows.push((found.first().and_then(|value| SortKey::of(value)), row));
        Ok(())
    }

    /// Returns the rows, those without a value first. Rows with equal values keep their order.
    pub fn into_rows(mut self) -> impl Iterator<Item = Row> {
        self.rows.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) => a.compare(b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        self.rows.into_iter().map(|(_, row)| row)
    }
}

impl SortKey {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Number(number) => number.as_f64().map(Self::Number),
            Value::String(text) => Some(Self::Text(text.clone())),
            other => {
                let mut text = Vec::new();
                print(other, &mut text);
                Some(Self::Text(String::from_utf8_lossy(&text).into_owned()))
            }
        }
    }

    /// Compares as kubectl: texts that both are quantities by their size, others in natural order.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Text(a), Self::Text(b)) => match (quantity(a), quantity(b)) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => natural(a, b),
            },
        }
    }
}

/// Returns the size of a quantity of Kubernetes, such as `1500m` or `2Gi`.
fn quantity(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(digits)?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Pi" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Ei" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// Compares texts in which runs of digits count as numbers: `web-2` before `web-10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let ordering = match (a.chars().next(), b.chars().next()) {
            (None, None) => return Ordering::Equal,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (x, y) = (take_number(&mut a), take_number(&mut b));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            (x, y) => {
                a = x.and_then(|x| a.get(x.len_utf8()..)).unwrap_or_default();
                b = y.and_then(|y| b.get(y.len_utf8()..)).unwrap_or_default();
                x.cmp(&y)
            }
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
}

/// Splits the digits at the beginning off, and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    *text = rest;
    number.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use listwatch::Encoding;
    use serde_json::json;

    use super::*;

    #[test]
    fn sorts_as_kubectl() {
        for (values, expected) in [
            (json!(["web-10", "web-2", "web-1"]), vec!["web-1", "web-2", "web-10"]),
            (json!(["a1b2", "a01b1", "a1", "b"]), vec!["a1", "a01b1", "a1b2", "b"]),
            (json!([10, 9, 2.5, -1]), vec!["-1", "2.5", "9", "10"]),
            (json!(["2Gi", "1500m", "1Gi", "3"]), vec!["1500m", "3", "1Gi", "2Gi"]),
            (json!([true, null, "x", false]), vec!["null", "false", "true", "x"]),
            (
                json!(["2026-01-02T00:00:00Z", "2025-12-31T00:00:00Z"]),
                vec!["2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z"],
            ),
            (json!(["é", "z", ""]), vec!["", "z", "é"]),
        ] {
            let mut sorter = RowSorter::new(JsonPath::parse(".v").unwrap());
            for value in values.as_array().unwrap() {
                let object = json!({"kind": "A", "apiVersion": "v1", "v": value}).to_string();
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                sorter.add(&ItemRef::new(Encoding::Json, object.as_bytes()), Row::Line(text.into())).unwrap();
            }
            let rows = sorter.into_rows().map(|row| match row {
                Row::Line(line) => String::from_utf8(line).unwrap(),
                _ => unreachable!(),
            });
            assert_eq!(rows.collect::<Vec<_>>(), expected);
        }
    }
}
