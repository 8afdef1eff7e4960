//! Compares a projected object with a walk over the original that decides about each value by its whole path.

use allocation_counter::measure;
use listwatch::{Encoding, FieldPath, ItemRef, Projection, TypeMeta};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::de::IgnoredAny;

/// Takes rules, a `|` and an object. Spaces separate the rules: `-1.17` drops a path, `+2.10` keeps one.
pub fn run(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == b'|') else { return };
    let (Ok(text), object) = (str::from_utf8(&data[..at]), &data[at + 1..]) else { return };
    let (mut keep, mut drop) = (Vec::new(), Vec::new());
    let mut projection = Projection::new();
    let pod = TypeMeta::new("v1", "Pod");
    for rule in text.split(' ').take(8) {
        let Some(path) = rule.get(1..).and_then(|path| FieldPath::parse(path, &pod).ok()) else { return };
        assert_eq!(FieldPath::parse(&path.to_string(), &pod).as_ref(), Ok(&path));
        let rule_path = Path::of(&path);
        match &rule[..1] {
            "+" => (projection, ()) = (projection.keep(&path), keep.push(rule_path)),
            "-" => (projection, ()) = (projection.drop(&path), drop.push(rule_path)),
            _ => return,
        }
    }
    // JSON begins with one of these bytes, and no message of Kubernetes does.
    if object.starts_with(b"{") || object.starts_with(b"n") {
        check_json(&projection, object);
    } else {
        check(&projection, &Rules { keep, drop }, object);
    }
}

/// Checks that projected JSON is JSON, and that projecting it again changes nothing.
fn check_json(projection: &Projection, object: &[u8]) {
    let project = |object: &[u8]| ItemRef::new(Encoding::Json, object).project(projection);
    let Ok(projected) = project(object) else { return };
    if serde_json::from_slice::<IgnoredAny>(object).is_ok() {
        assert!(serde_json::from_slice::<IgnoredAny>(&projected).is_ok(), "{}", String::from_utf8_lossy(&projected));
    }
    assert_eq!(project(&projected).ok(), Some(projected), "a second projection changes the object");
}

fn check(projection: &Projection, rules: &Rules, object: &[u8]) {
    let project = |object: &[u8]| ItemRef::new(Encoding::Protobuf, object).project(projection);
    let mut projected = None;
    let counted = measure(|| projected = Some(project(object)));
    let projected = projected.unwrap();
    let mut expected = Vec::new();
    match (projected, rules.walk(object, &mut Vec::new(), Some(Filter { all: rules.keep.is_empty() }), &mut expected)) {
        (Ok(projected), Some(())) => {
            let mut left = Vec::new();
            rules.walk(&projected, &mut Vec::new(), None, &mut left).expect("the projected object is well-formed");
            assert_eq!(left, expected);
            assert!(projected.len() <= object.len());
            // The copy is one allocation of exactly its size. Skipping groups allocates the rest.
            let others = counted.bytes_max - projected.len() as u64;
            assert!(others <= 1024, "{others} bytes allocated in addition to the copy");
            if !rules.take_keys() {
                assert_eq!(project(&projected).ok(), Some(projected), "a second projection changes the object");
            }
        }
        (Err(_), None) => {}
        // prost counts the fields in a group towards its limit of 100 levels.
        (Ok(_), None) => assert!(object.windows(90).any(|bytes| bytes.iter().all(|byte| byte & 7 == 3))),
        (Err(error), Some(())) => panic!("only the projection refuses: {error}"),
    }
}

struct Rules {
    keep: Vec<Path>,
    drop: Vec<Path>,
}

struct Path {
    numbers: Vec<u32>,
    key: Option<String>,
}

impl Path {
    fn of(path: &FieldPath) -> Self {
        let text = path.to_string();
        let key = text.split_once("[\"").map(|(_, key)| key.trim_end_matches("\"]").to_owned());
        Self { numbers: path.numbers().to_vec(), key }
    }

    fn leads_through(&self, place: &[u32]) -> bool {
        self.numbers.len() > place.len() && self.numbers.starts_with(place)
    }

    fn means_all_of(&self, place: &[u32]) -> bool {
        self.numbers == place && self.key.is_none()
    }

    fn means_entry(&self, place: &[u32], key: &[u8]) -> bool {
        self.numbers == place && self.key.as_ref().is_some_and(|known| known.as_bytes() == key)
    }
}

/// Keeps all of a message except for dropped paths, or only the kept paths in it.
#[derive(Clone, Copy)]
struct Filter {
    all: bool,
}

enum Fate {
    Dropped,
    Kept,
    Partly(Filter),
}

#[derive(Debug, PartialEq)]
enum Part<'a> {
    /// A message that a path leads through.
    Open(u32),
    Close,
    Value(u32, WireType, &'a [u8]),
}

impl Rules {
    /// Lists the parts of a message, or with a filter the parts that it keeps. Messages that a path leads through are
    /// split into their parts. Returns `None` if the message, or one that the filter must inspect, is malformed.
    fn walk<'a>(
        &self,
        mut message: &'a [u8],
        place: &mut Vec<u32>,
        filter: Option<Filter>,
        parts: &mut Vec<Part<'a>>,
    ) -> Option<()> {
        while !message.is_empty() {
            let (number, wire_type, value) = field(&mut message)?;
            place.push(number);
            let fate = match filter {
                Some(filter) => self.fate(place, filter, wire_type, value)?,
                None => Fate::Kept,
            };
            let inner_filter = if let Fate::Partly(filter) = fate { Some(filter) } else { None };
            let known = parts.len();
            let is_split = self.all().any(|path| path.leads_through(place)) && !matches!(fate, Fate::Dropped);
            let inner = inner(wire_type, value).filter(|_| is_split).and_then(|inner| {
                parts.push(Part::Open(number));
                self.walk(inner, place, inner_filter, parts)?;
                parts.push(Part::Close);
                Some(())
            });
            if inner.is_none() {
                parts.truncate(known);
                match fate {
                    Fate::Dropped => {}
                    Fate::Kept => parts.push(Part::Value(number, wire_type, value)),
                    Fate::Partly(_) => return None,
                }
            }
            place.truncate(place.len() - 1);
        }
        Some(())
    }

    fn fate(&self, place: &[u32], filter: Filter, wire_type: WireType, value: &[u8]) -> Option<Fate> {
        let leads = |paths: &[Path]| paths.iter().any(|path| path.leads_through(place));
        let means = |paths: &[Path]| paths.iter().any(|path| path.means_all_of(place));
        let has_keys = |paths: &[Path]| paths.iter().any(|path| path.numbers == place && path.key.is_some());
        let mut all = filter.all || means(&self.keep);
        let is_kept = all || leads(&self.keep) || has_keys(&self.keep);
        if !is_kept || means(&self.drop) {
            return Some(Fate::Dropped);
        }
        let keys_matter = has_keys(&self.drop) || !all && has_keys(&self.keep);
        if all && !leads(&self.drop) && !keys_matter {
            return Some(Fate::Kept);
        }
        let entry = inner(wire_type, value)?;
        if keys_matter {
            let key = key_of(entry)?;
            let names = |paths: &[Path]| paths.iter().any(|path| path.means_entry(place, key));
            all |= names(&self.keep);
            if names(&self.drop) || !all && !leads(&self.keep) {
                return Some(Fate::Dropped);
            }
            if all && !leads(&self.drop) {
                return Some(Fate::Kept);
            }
        }
        Some(Fate::Partly(Filter { all }))
    }

    /// Returns true if a path leads into entries that another path selects by key: a projection may drop their keys.
    fn take_keys(&self) -> bool {
        self.all().any(|path| path.key.is_some() && self.all().any(|other| other.leads_through(&path.numbers)))
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        self.keep.iter().chain(&self.drop)
    }
}

/// Splits the first field off a message: its number, type and value, which includes the length prefix. Returns `None`
/// if the field is malformed or missing.
pub(super) fn field<'a>(message: &mut &'a [u8]) -> Option<(u32, WireType, &'a [u8])> {
    let (number, wire_type) = decode_key(message).ok()?;
    let value = *message;
    skip_field(wire_type, number, message, DecodeContext::default()).ok()?;
    Some((number, wire_type, &value[..value.len() - message.len()]))
}

/// Returns the content of a length-delimited field, without its length prefix.
pub(super) fn inner(wire_type: WireType, mut value: &[u8]) -> Option<&[u8]> {
    if wire_type != WireType::LengthDelimited {
        return None;
    }
    decode_varint(&mut value).ok()?;
    Some(value)
}

fn key_of(mut entry: &[u8]) -> Option<&[u8]> {
    let mut key = &[][..];
    while !entry.is_empty() {
        let (number, wire_type, value) = field(&mut entry)?;
        if number == 1 {
            key = inner(wire_type, value)?;
        }
    }
    Some(key)
}
