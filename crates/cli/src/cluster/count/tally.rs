//! The groups of `count`, while objects pass.

use std::collections::HashMap;
use std::mem;

use bytesize::ByteSize;
use listwatch::{ItemError, ItemRef, TypeMeta};
use listwatch_tables::json_path::{JsonPath, ObjectReader, print};
use serde_json::Value;

use super::path::CountPath;
use crate::quantity::Quantity;

/// Counts and sums objects in groups. It keeps no object: memory grows with the groups only, up to a limit.
pub struct Tally {
    by: Vec<CountPath>,
    sums: Vec<CountPath>,
    /// Of what the paths find.
    reader: ObjectReader,
    /// By the encoded values of an object.
    groups: HashMap<Box<[u8]>, Group>,
    /// The values of the current object.
    key: Vec<u8>,
    /// The bytes that the groups take, and the most that they may take.
    memory: usize,
    max_memory: ByteSize,
    unknown_fields: u64,
    /// Why the count has ended early.
    fault: Option<String>,
}

/// The objects with the same values.
pub struct Group {
    pub count: u64,
    pub sums: Box<[Sum]>,
}

/// The sum of a path's values.
#[derive(Clone, Copy)]
pub struct Sum {
    pub quantity: Quantity,
    /// True if all values were numbers, and none a quantity in a text.
    pub is_number: bool,
}

/// A group with its values; `None` stands for a missing one.
pub struct CountedGroup {
    pub values: Vec<Option<String>>,
    pub count: u64,
    pub sums: Box<[Sum]>,
}

/// What a group takes beside its values and sums: its place in the map, which may be half empty, and two allocations.
const GROUP: usize = 2 * (size_of::<Box<[u8]>>() + size_of::<Group>() + 1) + 32;

impl Tally {
    pub fn new(by: Vec<CountPath>, sums: Vec<CountPath>, max_memory: ByteSize) -> Self {
        let reader = ObjectReader::of_paths(by.iter().chain(&sums).map(|path| &path.path));
        let (groups, key) = (HashMap::new(), Vec::new());
        let mut tally = Self { by, sums, reader, groups, key, memory: 0, max_memory, unknown_fields: 0, fault: None };
        if tally.by.is_empty() {
            // The sums of no objects are a row, too.
            let sums = tally.zeros();
            tally.groups.insert(Box::default(), Group { count: 0, sums });
        }
        tally
    }

    /// Returns true if the paths read only metadata.
    pub fn reads_only_metadata(&self) -> bool {
        self.reader.reads_only_metadata()
    }

    /// Returns true if the table of fields has all fields that the paths name.
    pub fn reads_only_known_fields(&self, of: &TypeMeta) -> bool {
        self.reader.reads_only_known_fields(of)
    }

    /// Counts an object. After an error, [`fault`](Self::fault) may have a better text.
    pub fn add(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        let (object, unknown_fields) = self.reader.read(item)?;
        self.unknown_fields += unknown_fields;
        let added = self.add_value(&object, item);
        added.map_err(|fault| {
            self.fault = Some(fault.clone());
            ItemError::other(fault)
        })
    }

    fn add_value(&mut self, object: &Value, item: &ItemRef<'_>) -> Result<(), String> {
        let mut key = mem::take(&mut self.key);
        key.clear();
        for CountPath { path, text } in &self.by {
            add_to_key(path, object, &mut key)
                .map_err(|error| format!("--by {text}: {error}, in {}", name_of(item)))?;
        }
        if !self.groups.contains_key(&*key) {
            self.add_group(&key)?;
        }
        if let Some(group) = self.groups.get_mut(&*key) {
            group.count += 1;
            for (CountPath { path, text }, sum) in self.sums.iter().zip(&mut group.sums) {
                let added = path.find(object).map_err(|error| error.to_string()).and_then(|found| sum.add_all(&found));
                added.map_err(|error| format!("--sum {text}: {error}, in {}", name_of(item)))?;
            }
        }
        self.key = key;
        Ok(())
    }

    fn add_group(&mut self, key: &[u8]) -> Result<(), String> {
        self.memory += GROUP + key.len() + self.sums.len() * size_of::<Sum>();
        if self.memory as u64 > self.max_memory.as_u64() {
            let (groups, limit) = (self.groups.len(), self.max_memory);
            let advice = "group by paths with fewer values, or raise --max-memory";
            return Err(format!("more than {groups} groups take more than {limit} of memory: {advice}"));
        }
        let sums = self.zeros();
        self.groups.insert(key.into(), Group { count: 0, sums });
        Ok(())
    }

    fn zeros(&self) -> Box<[Sum]> {
        self.sums.iter().map(|_| Sum { quantity: Quantity::ZERO, is_number: true }).collect()
    }

    /// Returns why the count has ended early.
    pub fn fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    /// Returns the number of fields that the values which were read lack.
    pub fn unknown_fields(&self) -> u64 {
        self.unknown_fields
    }

    /// Returns the paths of the groups and of the sums, and the groups: first those with the largest first sum, or with
    /// the most objects.
    pub fn into_groups(self) -> (Vec<CountPath>, Vec<CountPath>, Vec<CountedGroup>) {
        let Self { by, sums, groups, .. } = self;
        let mut groups: Vec<_> = groups
            .into_iter()
            .map(|(key, Group { count, sums })| CountedGroup { values: values_of_key(&key), count, sums })
            .collect();
        groups.sort_by(|a, b| {
            let sum = |group: &CountedGroup| group.sums.first().map(|sum| sum.quantity);
            let order = sum(b).partial_cmp(&sum(a)).unwrap_or(std::cmp::Ordering::Equal);
            order.then(b.count.cmp(&a.count)).then_with(|| a.values.cmp(&b.values))
        });
        (by, sums, groups)
    }
}

impl Sum {
    fn add_all(&mut self, values: &[&Value]) -> Result<(), String> {
        for value in values {
            let (term, is_number) = match value {
                Value::Null => continue,
                Value::Number(number) => (Quantity::parse(&number.to_string()), true),
                Value::String(text) => (Quantity::parse(text), false),
                Value::Array(_) => return Err("a list cannot be summed: add [*] for its elements".to_owned()),
                Value::Object(_) => return Err("an object cannot be summed".to_owned()),
                Value::Bool(_) => return Err("a boolean cannot be summed: to count, use --by".to_owned()),
            };
            let term =
                term.ok_or_else(|| format!("{value} is not a number or a quantity that can be summed exactly"))?;
            let sum = self.quantity.checked_add(term);
            self.quantity = sum.ok_or("the sum is too large to be exact")?;
            self.is_number &= is_number;
        }
        Ok(())
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_number { f.write_str(&self.quantity.to_number()) } else { self.quantity.fmt(f) }
    }
}

/// The length of a missing value in a key: no text is as long.
const MISSING: u32 = u32::MAX;

/// Appends the values that a path finds, as a cell of custom columns, after the length of their text.
fn add_to_key(path: &JsonPath, object: &Value, key: &mut Vec<u8>) -> Result<(), String> {
    let found = path.find(object).map_err(|error| error.to_string())?;
    if found.iter().all(|value| value.is_null()) {
        key.extend_from_slice(&MISSING.to_le_bytes());
        return Ok(());
    }
    let mut text = Vec::new();
    for (at, value) in found.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        print(value, &mut text);
    }
    let len = u32::try_from(text.len()).ok().filter(|len| *len != MISSING).ok_or("the value is too long")?;
    key.extend_from_slice(&len.to_le_bytes());
    key.append(&mut text);
    Ok(())
}

/// Returns the values in a key.
fn values_of_key(mut key: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    while let Some((len, rest)) = key.split_first_chunk() {
        let len = Some(u32::from_le_bytes(*len)).filter(|len| *len != MISSING);
        let text = len.and_then(|len| rest.split_at_checked(usize::try_from(len).ok()?));
        values.push(text.map(|(text, _)| String::from_utf8_lossy(text).into_owned()));
        key = text.map_or(rest, |(_, rest)| rest);
    }
    values
}

/// Returns the name of an object, with its namespace.
fn name_of(item: &ItemRef<'_>) -> String {
    let Ok(meta) = item.meta() else { return "an object without metadata".to_owned() };
    match meta.namespace() {
        namespace if namespace.is_empty() => meta.name().into_owned(),
        namespace => format!("{namespace}/{}", meta.name()),
    }
}

#[cfg(test)]
mod tests {
    use listwatch::Encoding;
    use serde_json::json;

    use super::*;

    fn tally(by: &[&str], sums: &[&str], max_memory: u64) -> Tally {
        let parse = |paths: &[&str]| paths.iter().map(|path| CountPath::parse(path).unwrap()).collect();
        Tally::new(parse(by), parse(sums), ByteSize(max_memory))
    }

    fn add(tally: &mut Tally, spec: &Value) -> Result<(), String> {
        let object =
            json!({"kind": "A", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "web"}, "spec": spec});
        let added = tally.add(&ItemRef::new(Encoding::Json, object.to_string().as_bytes()));
        added.map_err(|error| tally.fault().unwrap_or_else(|| error.to_string()))
    }

    /// Returns the groups as text: `values: count sums`.
    fn groups(tally: Tally) -> Vec<String> {
        let (.., groups) = tally.into_groups();
        let text = |group: &CountedGroup| {
            let values: Vec<_> = group.values.iter().map(|value| value.as_deref().unwrap_or("<none>")).collect();
            let numbers: Vec<_> =
                [group.count.to_string()].into_iter().chain(group.sums.iter().map(Sum::to_string)).collect();
            format!("{}: {}", values.join("|"), numbers.join(" "))
        };
        groups.iter().map(text).collect()
    }

    #[test]
    fn counts_and_sums_in_groups() {
        let specs = [
            json!({"node": "a", "memory": "1Gi", "parts": [{"cpu": "500m"}, {"cpu": 1}, {}]}),
            json!({"node": "b", "memory": "512Mi", "replicas": 2000}),
            json!({"node": "a", "memory": "1536Mi", "parts": [{"cpu": "250m"}, {"cpu": null}]}),
            json!({"node": null, "replicas": 0.5, "tier": "a,b"}),
            json!({"node": "", "tier": true, "replicas": -1}),
        ];
        for (by, sums, expected) in [
            (&[".spec.node"][..], &[][..], &["a: 2", "<none>: 1", ": 1", "b: 1"][..]),
            (&[".spec.node"], &[".spec.memory"], &["a: 2 2560Mi", "b: 1 512Mi", "<none>: 1 0", ": 1 0"]),
            (&[".spec.node"], &[".spec.parts[*].cpu"], &["a: 2 1750m", "<none>: 1 0", ": 1 0", "b: 1 0"]),
            (&[], &[".spec.replicas", ".spec.memory"], &[": 5 1999.5 3Gi"]),
            (&[".spec.tier", ".kind"], &[], &["<none>|A: 3", "a,b|A: 1", "true|A: 1"]),
            (&[".spec.parts[*].cpu"], &[], &["<none>: 3", "250m,<nil>: 1", "500m,1: 1"]),
            (
                &[".spec.parts"],
                &[],
                &["<none>: 3", "[map[cpu:250m] map[cpu:<nil>]]: 1", "[map[cpu:500m] map[cpu:1] map[]]: 1"],
            ),
        ] {
            let mut tally = tally(by, sums, 1 << 20);
            for spec in &specs {
                add(&mut tally, spec).unwrap();
            }
            assert_eq!(groups(tally), expected, "{by:?} {sums:?}");
        }
        assert_eq!(groups(tally(&[], &[".spec.replicas"], 0)), [": 0 0"]);
        assert!(groups(tally(&[".spec.replicas"], &[], 0)).is_empty());
    }

    #[test]
    fn refuses_what_it_cannot_sum() {
        for (value, expected) in [
            (json!("shop-1"), "\"shop-1\" is not a number or a quantity that can be summed exactly"),
            (json!(1e300), "1e+300 is not a number or a quantity that can be summed exactly"),
            (json!("5e28"), ""),
            (json!("1e29"), "the sum is too large to be exact"),
            (json!(["1"]), "a list cannot be summed: add [*] for its elements"),
            (json!({"a": 1}), "an object cannot be summed"),
            (json!(true), "a boolean cannot be summed: to count, use --by"),
        ] {
            let mut tally = tally(&[], &[".spec.v"], 1 << 20);
            add(&mut tally, &json!({"v": "1e29"})).unwrap();
            let added = add(&mut tally, &json!({"v": value})).err().unwrap_or_default();
            let expected =
                if expected.is_empty() { String::new() } else { format!("--sum .spec.v: {expected}, in web/x") };
            assert_eq!(added, expected);
        }
    }

    #[test]
    fn ends_at_the_limit_of_memory() {
        let mut tally = tally(&[".spec.v"], &[".spec.n"], 100_000);
        let error =
            (0..10_000).find_map(|value| add(&mut tally, &json!({"v": format!("value-{value}"), "n": 1})).err());
        assert!(tally.memory > 100_000 && tally.groups.len() > 400);
        let expected = format!(
            "more than {} groups take more than 97.7 KiB of memory: group by paths with fewer values, or raise --max-memory",
            tally.groups.len()
        );
        assert_eq!(error.as_deref(), Some(&*expected));
    }
}
