//! `--sort-by`: keeps the rows of a list, and sorts them.

use std::cmp::Ordering;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::json_path::{JsonPath, ObjectReader, print};
use serde_json::Value;

use super::format::Row;
use crate::failure::Failure;

/// The rows of a list with the values that they are sorted by. It keeps no objects.
pub struct RowSorter {
    path: JsonPath,
    reader: ObjectReader,
    rows: Vec<(SortKey, Option<Row>)>,
    /// True if an object had a value, or null.
    is_found: bool,
}

/// A value of the path, in the order of the variants.
///
/// kubectl compares two texts as quantities if both are some. That is no order: `3 < 2Gi` as quantities, and
/// `2Gi < 2x < 3` as texts. So all quantities are before all other texts.
enum SortKey {
    Missing,
    Number(f64),
    Text(String),
}

impl RowSorter {
    pub fn new(path: JsonPath) -> Self {
        Self { reader: ObjectReader::of_paths([&path]), path, rows: Vec::new(), is_found: false }
    }

    /// Keeps the row of an item.
    pub fn add(&mut self, item: &ItemRef<'_>, row: Option<Row>) -> Result<(), ItemError> {
        let (object, _) = self.reader.read(item)?;
        let found = self.path.find(&object).map_err(ItemError::other)?;
        self.is_found |= !found.is_empty();
        self.rows.push((found.first().map_or(SortKey::Missing, |value| SortKey::of(value)), row));
        Ok(())
    }

    /// Returns the rows, those without a value first. Rows with equal values keep their order.
    ///
    /// # Errors
    ///
    /// As in kubectl, no object has the field.
    pub fn into_rows(mut self) -> Result<impl Iterator<Item = Option<Row>>, Failure> {
        if !self.rows.is_empty() && !self.is_found {
            return Err(Failure::Error("no object in the list has the field of --sort-by".to_owned()));
        }
        self.rows.sort_by(|(a, _), (b, _)| a.compare(b));
        Ok(self.rows.into_iter().map(|(_, row)| row))
    }
}

impl SortKey {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Missing,
            Value::Number(number) => number.as_f64().map_or(Self::Missing, Self::Number),
            Value::String(text) => quantity(text).map_or_else(|| Self::Text(text.clone()), Self::Number),
            other => {
                let mut text = Vec::new();
                print(other, &mut text);
                Self::Text(String::from_utf8_lossy(&text).into_owned())
            }
        }
    }

    /// Compares by size, or byte by byte as kubectl 1.37.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Missing, Self::Missing) => Ordering::Equal,
            (Self::Missing, _) | (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (_, Self::Missing) | (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
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

#[cfg(test)]
mod tests {
    use listwatch::Encoding;
    use serde_json::json;

    use super::*;

    #[test]
    fn sorts_as_kubectl() {
        for (values, expected) in [
            (json!(["web-10", "web-2", "web-1"]), vec!["web-1", "web-10", "web-2"]),
            (json!(["a1b2", "a01b1", "a1", "b"]), vec!["a01b1", "a1", "a1b2", "b"]),
            (json!(["none", "10", "9"]), vec!["9", "10", "none"]),
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
                sorter.add(&ItemRef::new(Encoding::Json, object.as_bytes()), Some(Row::Text(text.into()))).unwrap();
            }
            let rows = sorter.into_rows().map_err(|_| "no field").unwrap().map(|row| match row {
                Some(Row::Text(line)) => String::from_utf8(line).unwrap(),
                _ => unreachable!(),
            });
            assert_eq!(rows.collect::<Vec<_>>(), expected);
        }
    }

    /// `3 < 2Gi` as quantities, `2Gi < 2x < 3` as texts.
    #[test]
    fn any_texts_have_an_order() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut sorter = RowSorter::new(JsonPath::parse(".v").unwrap());
        for _ in 0..10_000 {
            let text: String =
                (0..random.usize(0..4)).map(|_| *random.choice(b"123kGix-. ").unwrap() as char).collect();
            let object = json!({"kind": "A", "apiVersion": "v1", "v": text}).to_string();
            sorter.add(&ItemRef::new(Encoding::Json, object.as_bytes()), None).unwrap();
        }
        assert!(sorter.into_rows().is_ok_and(|rows| rows.count() == 10_000));
    }
}
