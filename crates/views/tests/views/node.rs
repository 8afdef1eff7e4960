//! A tree of the values that a view has, and its comparison with JSON and with the values that prost decodes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use listwatch_views::{Element, IntOrString, List, Map, Quantity, RawJson, Time};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Fields by their names in JSON. A name is empty for the message that JSON inlines; its fields are here, too.
    Message(Vec<(&'static str, Node)>),
    /// JSON has the second field, or the first if the second is absent.
    Or(Vec<(&'static str, Node)>),
    Absent,
    Present(Box<Node>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    Text(String),
    Bytes(Vec<u8>),
    Bool(bool),
    Int(i64),
    Double(f64),
    Time(Time),
    Duration(SignedDuration),
    Quantity(String),
    IntOrString(i32, String, bool),
    Json(Vec<u8>),
}

/// Reads through all accessors.
pub trait Walk {
    fn walk(self) -> Node;
}

pub fn message<const N: usize>(fields: [(&'static str, Node); N]) -> Node {
    Node::Message(fields.into())
}

pub fn or<const N: usize>(fields: [(&'static str, Node); N]) -> Node {
    Node::Or(fields.into())
}

impl<T: Walk> Walk for Option<T> {
    fn walk(self) -> Node {
        self.map_or(Node::Absent, |value| Node::Present(Box::new(value.walk())))
    }
}

impl Walk for &str {
    fn walk(self) -> Node {
        Node::Text(self.into())
    }
}

impl Walk for &[u8] {
    fn walk(self) -> Node {
        Node::Bytes(self.into())
    }
}

impl Walk for bool {
    fn walk(self) -> Node {
        Node::Bool(self)
    }
}

impl Walk for i32 {
    fn walk(self) -> Node {
        Node::Int(self.into())
    }
}

impl Walk for i64 {
    fn walk(self) -> Node {
        Node::Int(self)
    }
}

impl Walk for f64 {
    fn walk(self) -> Node {
        Node::Double(self)
    }
}

impl Walk for Time {
    fn walk(self) -> Node {
        Node::Time(self)
    }
}

impl Walk for SignedDuration {
    fn walk(self) -> Node {
        Node::Duration(self)
    }
}

impl Walk for Quantity<'_> {
    fn walk(self) -> Node {
        Node::Quantity(self.as_str().into())
    }
}

impl Walk for IntOrString<'_> {
    fn walk(self) -> Node {
        let text = self.text().unwrap_or_default();
        Node::IntOrString(self.int().unwrap_or_default(), text.into(), self.text().is_some())
    }
}

impl Walk for RawJson<'_> {
    fn walk(self) -> Node {
        Node::Json(self.bytes().into())
    }
}

impl<'a, T: Walk + Element<'a>> Walk for List<'a, T> {
    fn walk(self) -> Node {
        let nodes: Vec<Node> = self.iter().map(Walk::walk).collect();
        assert_eq!((self.len(), self.is_empty()), (nodes.len(), nodes.is_empty()));
        assert_eq!(self.first().map(Walk::walk).as_ref(), nodes.first());
        assert_eq!(self.get(nodes.len().saturating_sub(1)).map(Walk::walk).as_ref(), nodes.last());
        assert!(self.get(nodes.len()).is_none());
        Node::List(nodes)
    }
}

impl<'a, T: Walk + Element<'a>> Walk for Map<'a, T> {
    fn walk(self) -> Node {
        let nodes: Vec<(String, Node)> = self.iter().map(|(key, value)| (key.into(), value.walk())).collect();
        assert_eq!((self.len(), self.is_empty()), (nodes.len(), nodes.is_empty()));
        assert!(self.keys().eq(nodes.iter().map(|(key, _)| key)));
        for (key, node) in &nodes {
            assert_eq!(self.get(key).map(Walk::walk).as_ref(), Some(node));
        }
        assert!(self.get("no key of the tests").is_none() && !self.contains_key("\u{10ffff}"));
        Node::Map(nodes)
    }
}

impl Node {
    /// Returns true for the value of an absent field that is always present in Go.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Message(fields) | Self::Or(fields) => fields.iter().all(|(_, node)| node.is_empty()),
            Self::Absent => true,
            Self::Present(_) => false,
            Self::List(nodes) => nodes.is_empty(),
            Self::Map(nodes) => nodes.is_empty(),
            Self::Text(text) => text.is_empty(),
            Self::Bytes(bytes) | Self::Json(bytes) => bytes.is_empty(),
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::Time(time) => time.is_zero(),
            Self::Duration(duration) => duration.is_zero(),
            Self::Quantity(text) => text == "0",
            Self::IntOrString(int, text, is_text) => *int == 0 && text.is_empty() && !is_text,
        }
    }

    /// Compares it with the JSON that Go prints. Where JSON omits a field, the value must be absent or empty.
    pub fn compare(&self, json: &Value, path: &str) {
        match self {
            Self::Message(fields) => {
                let object = json.as_object().unwrap_or_else(|| panic!("{path}: {json}"));
                for (name, node) in fields {
                    match object.get(*name) {
                        _ if name.is_empty() => node.compare_inlined(fields, path),
                        Some(json) => node.compare(json, &format!("{path}.{name}")),
                        None => assert!(node.is_empty(), "{path}.{name}: {node:?} is not in {json}"),
                    }
                }
                for name in object.keys() {
                    let is_known = fields.iter().any(|(known, _)| known == name);
                    assert!(is_known || ["kind", "apiVersion"].contains(&&**name), "{path}.{name} has no accessor");
                }
            }
            Self::Or(fields) => {
                let [(_, first), (_, second)] = &fields[..] else { panic!("{path}: {fields:?}") };
                (if second.is_empty() { first } else { second }).compare(json, path);
            }
            Self::Absent => assert!(json.is_null(), "{path}: {json}"),
            Self::Present(node) => node.compare(json, path),
            Self::List(nodes) if json.is_null() => assert!(nodes.is_empty(), "{path}: {nodes:?}"),
            Self::List(nodes) => {
                let array = json.as_array().unwrap_or_else(|| panic!("{path}: {json}"));
                assert_eq!(nodes.len(), array.len(), "{path}");
                for (place, (node, json)) in nodes.iter().zip(array).enumerate() {
                    node.compare(json, &format!("{path}[{place}]"));
                }
            }
            Self::Map(nodes) if json.is_null() => assert!(nodes.is_empty(), "{path}: {nodes:?}"),
            Self::Map(nodes) => {
                let object = json.as_object().unwrap_or_else(|| panic!("{path}: {json}"));
                assert_eq!(nodes.len(), object.len(), "{path}");
                for (key, node) in nodes {
                    node.compare(&object[key], &format!("{path}[{key}]"));
                }
            }
            Self::Text(text) | Self::Quantity(text) | Self::IntOrString(_, text, true) => {
                assert_eq!(Some(&**text), json.as_str(), "{path}");
            }
            Self::Bytes(bytes) => {
                let found = json.as_str().map(|text| STANDARD.decode(text).unwrap()).unwrap_or_default();
                assert_eq!(*bytes, found, "{path}");
            }
            Self::Bool(value) => assert_eq!(Some(*value), json.as_bool(), "{path}"),
            Self::Int(value) => assert_eq!(Some(*value), json.as_i64(), "{path}"),
            Self::Double(value) => {
                // serde_json may read the last digit of a number differently.
                let found = json.as_f64().unwrap();
                assert!((value - found).abs() <= value.abs() * 1e-15, "{path}: {value} {found}");
            }
            Self::Time(time) => {
                let found = json.as_str().map(|text| text.parse::<Timestamp>().unwrap());
                // Go ignores the part of a second of a Time, and prints microseconds of a MicroTime.
                let parts = |time: Timestamp, unit| (time.as_second(), time.subsec_nanosecond() / unit);
                let unit = if json.as_str().is_some_and(|text| text.contains('.')) { 1000 } else { 1_000_000_000 };
                let [time, found] = [time.timestamp(), found].map(|time| time.map(|time| parts(time, unit)));
                assert_eq!(time, found, "{path}");
            }
            Self::Duration(duration) => {
                assert_eq!(duration.as_nanos(), nanos_of(json.as_str().unwrap()), "{path}");
            }
            Self::IntOrString(int, ..) => assert_eq!(Some(i64::from(*int)), json.as_i64(), "{path}"),
            Self::Json(text) => {
                let value = if text.is_empty() { Value::Null } else { parse(text) };
                assert_eq!(value, *json, "{path}");
            }
        }
    }

    /// Compares an inlined message with the fields of its parent.
    fn compare_inlined(&self, parent: &[(&'static str, Self)], path: &str) {
        let Self::Message(fields) = self else { panic!("{path}: {self:?}") };
        for (name, node) in fields {
            match parent.iter().find(|(known, _)| known == name) {
                _ if name.is_empty() => node.compare_inlined(parent, path),
                found => assert_eq!(found.map(|(_, node)| node), Some(node), "{path}.{name}"),
            }
        }
    }
}

/// Parses JSON. Some objects have half a surrogate pair, which `serde_json` refuses, in embedded JSON.
pub fn parse(json: &[u8]) -> Value {
    let json = str::from_utf8(json).unwrap().replace("\\ud83d\"", "\\ufffd\"");
    serde_json::from_str(&json).unwrap()
}

/// Parses a duration as Go prints it.
fn nanos_of(text: &str) -> i128 {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut nanos = 0;
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let (number, after) = rest.split_at(end);
        let units = [("ns", 0), ("µs", 3), ("ms", 6), ("h", 9), ("m", 9), ("s", 9)];
        let (unit, digits) = units.into_iter().find(|(unit, _)| after.starts_with(unit)).unwrap();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let value: i128 = format!("{whole}{fraction:0<digits$}").parse().unwrap();
        nanos += value
            * match unit {
                "h" => 3600,
                "m" => 60,
                _ => 1,
            };
        rest = &after[unit.len()..];
    }
    sign * nanos
}
