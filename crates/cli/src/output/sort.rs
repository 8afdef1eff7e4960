//! `--sort-by`: the values that objects are sorted by, and their order.

use std::cmp::Ordering;

use listwatch::internal::chain;
use listwatch::{Encoding, ItemError, ItemRef};
use listwatch_tables::json_path::{JsonPath, ObjectReader, print};
use serde_json::Value;

use crate::failure::Failure;
use crate::sorter::{Key, Sorter};

/// A value of the path, in the order of the variants.
///
/// kubectl compares two texts as quantities if both are some. That is no order: `3 < 2Gi` as quantities, and
/// `2Gi < 2x < 3` as texts. So all quantities are before all other texts.
#[derive(Debug)]
enum SortKey {
    Missing,
    Number(f64),
    Text(String),
}

/// Sorts the objects of a list, which it keeps in JSON.
pub struct ObjectSorter(RecordSorter);

/// Sorts records, such as rows of a table, by a value of their objects.
pub struct RecordSorter {
    path: SortPath,
    records: Sorter<SortKey>,
}

/// The path of `--sort-by`, while it is applied to objects.
struct SortPath {
    path: JsonPath,
    reader: ObjectReader,
    objects: u64,
    /// True if an object had a value, or null.
    is_found: bool,
}

impl ObjectSorter {
    pub fn new(path: JsonPath) -> Self {
        Self(RecordSorter::new(path))
    }

    /// Keeps an object.
    pub fn add(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        let mut json = Vec::new();
        item.to_json(&mut json)?;
        self.0.add(item, &json)
    }

    /// Passes the objects in order, those without a value first. Objects with equal values keep their order.
    ///
    /// # Errors
    ///
    /// As in kubectl, no object has the field. Or a temporary file cannot be written.
    pub fn finish(self, mut visit: impl FnMut(&ItemRef<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        self.0.path.check(1)?;
        self.0.finish(|json| {
            let item = ItemRef::new(Encoding::Json, json);
            let own = item.own_type_meta().map_err(|error| Failure::Error(chain(&error)))?.unwrap_or_default();
            visit(&item.with_type_meta(&own))
        })
    }
}

impl RecordSorter {
    pub fn new(path: JsonPath) -> Self {
        Self { path: SortPath::new(path), records: Sorter::new() }
    }

    /// Keeps a record of an object.
    pub fn add(&mut self, item: &ItemRef<'_>, record: &[u8]) -> Result<(), ItemError> {
        let key = self.path.key(item)?;
        self.records.add(key, record).map_err(ItemError::other)
    }

    /// Fails if there are at least this many objects, and none has the field.
    pub fn check(&self, least: u64) -> Result<(), Failure> {
        self.path.check(least)
    }

    /// Passes the records in order, those without a value first. Records with equal values keep their order.
    pub fn finish(self, visit: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        self.records.finish(visit).map_err(|error| Failure::Error(error.to_string()))?
    }
}

impl SortPath {
    fn new(path: JsonPath) -> Self {
        Self { reader: ObjectReader::of_paths([&path]), path, objects: 0, is_found: false }
    }

    /// Returns the value that an object is sorted by.
    fn key(&mut self, item: &ItemRef<'_>) -> Result<SortKey, ItemError> {
        let (object, _) = self.reader.read(item)?;
        let found = self.path.find(&object).map_err(ItemError::other)?;
        self.objects += 1;
        self.is_found |= !found.is_empty();
        Ok(found.first().map_or(SortKey::Missing, |value| SortKey::of(value)))
    }

    /// Fails if there are at least this many objects, and none had the field.
    fn check(&self, least: u64) -> Result<(), Failure> {
        if self.objects >= least && !self.is_found {
            return Err(Failure::Error("no object in the list has the field of --sort-by".to_owned()));
        }
        Ok(())
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
}

/// By size, or byte by byte as kubectl 1.37.
impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Missing, Self::Missing) => Ordering::Equal,
            (Self::Missing, _) | (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (_, Self::Missing) | (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
        }
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SortKey {}

impl Key for SortKey {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Missing => out.push(0),
            Self::Number(number) => {
                out.push(1);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Text(text) => {
                out.push(2);
                out.extend_from_slice(&(text.len() as u64).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (key, rest) = match kind {
            0 => (Self::Missing, rest),
            1 => {
                let (number, rest) = rest.split_first_chunk()?;
                (Self::Number(f64::from_le_bytes(*number)), rest)
            }
            _ => {
                let (length, rest) = rest.split_first_chunk()?;
                let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
                (Self::Text(String::from_utf8_lossy(text).into_owned()), rest)
            }
        };
        *bytes = rest;
        Some(key)
    }
}

/// Returns the size of a quantity of Kubernetes, such as `1500m` or `2Gi`.
fn quantity(text: &str) -> Option<f64> {
    // A sign after an e is of the exponent.
    let digits = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(digits)?;
    let number = number.parse::<f64>().ok()?;
    // 1E is a quintillion, and 1E3 a thousand.
    if let Some(exponent) = suffix.strip_prefix(['e', 'E']).filter(|exponent| !exponent.is_empty()) {
        return exponent.parse::<i32>().ok().map(|exponent| number * 10_f64.powi(exponent));
    }
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
    Some(number * factor)
}

#[cfg(test)]
mod tests {
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
            (
                json!(["1e3", "999", "1E", "1E4", "1e-3", "2m", "1e+2"]),
                vec!["1e-3", "2m", "1e+2", "999", "1e3", "1E4", "1E"],
            ),
            (json!([true, null, "x", false]), vec!["null", "false", "true", "x"]),
            (
                json!(["2026-01-02T00:00:00Z", "2025-12-31T00:00:00Z"]),
                vec!["2025-12-31T00:00:00Z", "2026-01-02T00:00:00Z"],
            ),
            (json!(["é", "z", ""]), vec!["", "z", "é"]),
        ] {
            let mut sorter = ObjectSorter::new(JsonPath::parse(".v").unwrap());
            for value in values.as_array().unwrap() {
                let object = json!({"kind": "A", "apiVersion": "v1", "v": value}).to_string();
                sorter.add(&ItemRef::new(Encoding::Json, object.as_bytes())).unwrap();
            }
            let mut rows = Vec::new();
            let finished = sorter.finish(|item| {
                let object: Value = serde_json::from_slice(item.bytes()).unwrap();
                let value = &object["v"];
                rows.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                Ok(())
            });
            assert!(finished.is_ok());
            assert_eq!(rows, expected);
        }
    }

    /// `3 < 2Gi` as quantities, `2Gi < 2x < 3` as texts.
    #[test]
    fn any_texts_have_an_order() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut keys = Vec::new();
        for _ in 0..10_000 {
            let text: String =
                (0..random.usize(0..4)).map(|_| *random.choice(b"123kGix-. ").unwrap() as char).collect();
            keys.push(SortKey::of(&Value::String(text)));
        }
        keys.sort();
        assert!(keys.is_sorted());
    }
}
