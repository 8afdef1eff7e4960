//! The check of an object before typed reads, and its canonical form: the order in which Go writes it.
//!
//! An object is canonical if the numbers of its fields ascend, each single field occurs once, repeated numbers are not packed, and
//! the keys of each map ascend. A reader of a canonical object can stop at the first field with a higher number. prost and Go
//! decode more: any order, messages in pieces, and repeated keys. [`rewrite`] makes such objects canonical.

use std::collections::BTreeMap;

use super::{Field, Message, Shape, Type};
use crate::wire::Fault;
use crate::wire::protobuf::{Fields, Value, Varint, WireField};

/// The deepest nesting of messages below the object, as in prost: an entry of a map counts as a message.
const MAX_DEPTH: usize = 100;

/// The fault of an object, with its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) fault: Fault,
    /// The address of the faulty field, or of the end of the message.
    at: usize,
    /// The names of the enclosing fields, the innermost first.
    path: Vec<&'static str>,
}

impl Malformed {
    fn new(fault: Fault, at: &[u8]) -> Self {
        Self { fault, at: at.as_ptr().addr(), path: Vec::new() }
    }

    #[cold]
    fn within(mut self, name: &'static str) -> Self {
        if !name.is_empty() {
            self.path.push(name);
        }
        self
    }

    /// Returns the offset of the faulty field in the object.
    pub(crate) fn offset(&self, object: &[u8]) -> u64 {
        self.at.saturating_sub(object.as_ptr().addr()) as u64
    }

    /// Returns the names of the fields, from the object to the faulty message or field.
    pub(crate) fn path(&self, kind: &str) -> String {
        self.path.iter().rev().fold(kind.to_owned(), |path, name| path + "." + name)
    }
}

/// Checks an object of this kind: its wire format, the types of all fields that the table has, UTF-8, and the depth. Returns true if
/// it is canonical. What it accepts, prost accepts.
///
/// It allocates nothing.
pub(crate) fn check(kind: &Message, object: &[u8]) -> Result<bool, Malformed> {
    let mut check = Check { is_canonical: true };
    check.message(kind, object, 0)?;
    Ok(check.is_canonical)
}

struct Check {
    is_canonical: bool,
}

impl Check {
    fn message(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Result<(), Malformed> {
        let mut known = message.fields().iter();
        let mut last = 0;
        let mut last_key = "";
        let mut fields = Fields::new(bytes);
        loop {
            let start = fields.rest;
            let Some(read) = fields.next() else { return Ok(()) };
            let WireField { number, value, bytes } = read.map_err(|fault| Malformed::new(fault, start))?;
            // Fields usually have the order of the table, so the next field is near.
            let field = match known.as_slice().first() {
                Some(next) if next.number() == number => Some(next),
                _ => find(message, &mut known, number),
            };
            self.is_canonical &= number >= last;
            let is_first = number != last;
            last = number;
            let Some(field) = field else {
                if is_group(value, bytes) {
                    return Err(Malformed::new(Fault::WireType, start));
                }
                continue;
            };
            let result = match field.shape {
                Shape::Single | Shape::Optional => {
                    self.is_canonical &= is_first;
                    self.value(field.of, value, start, depth)
                }
                Shape::Repeated => match (field.of, value) {
                    (Type::Bool | Type::Int32 | Type::Int64, Value::Len(packed)) => {
                        self.is_canonical = false;
                        unpack(packed, |_| ()).map_err(|fault| Malformed::new(fault, start))
                    }
                    _ => self.value(field.of, value, start, depth),
                },
                Shape::Map => self.entry(field.of, value, start, depth).map(|key| {
                    self.is_canonical &= is_first || last_key < key;
                    last_key = key;
                }),
            };
            result.map_err(|malformed| malformed.within(field.name()))?;
        }
    }

    #[inline]
    fn value(&mut self, of: Type, value: Value<'_>, start: &[u8], depth: usize) -> Result<(), Malformed> {
        match (of, value) {
            (Type::String, Value::Len(text)) if str::from_utf8(text).is_err() => {
                Err(Malformed::new(Fault::Utf8, start))
            }
            (Type::String | Type::Bytes, Value::Len(_))
            | (Type::Bool | Type::Int32 | Type::Int64, Value::Varint(_))
            | (Type::Double, Value::Fixed64(_)) => Ok(()),
            (Type::Message(_), Value::Len(bytes)) if depth < MAX_DEPTH => match of.message() {
                Some(message) => self.message(message, bytes, depth + 1),
                None => Ok(()),
            },
            (Type::Message(_), Value::Len(_)) => Err(Malformed::new(Fault::Depth, start)),
            _ => Err(Malformed::new(Fault::WireType, start)),
        }
    }

    /// Checks an entry of a map, and returns its key.
    fn entry<'a>(&mut self, of: Type, value: Value<'a>, start: &[u8], depth: usize) -> Result<&'a str, Malformed> {
        let entry = value.bytes().map_err(|fault| Malformed::new(fault, start))?;
        if depth == MAX_DEPTH {
            return Err(Malformed::new(Fault::Depth, start));
        }
        let mut key = "";
        let mut last = 0;
        let mut fields = Fields::new(entry);
        loop {
            let start = fields.rest;
            let Some(read) = fields.next() else { return Ok(key) };
            let WireField { number, value, bytes } = read.map_err(|fault| Malformed::new(fault, start))?;
            self.is_canonical &= number > last || number == last && number > 2;
            last = number;
            match number {
                1 => key = value.str().map_err(|fault| Malformed::new(fault, start))?,
                2 => self.value(of, value, start, depth + 1)?,
                _ if is_group(value, bytes) => return Err(Malformed::new(Fault::WireType, start)),
                _ => {}
            }
        }
    }
}

/// Finds a field that is not the next one, and continues after it the next time: `known` then begins with it.
fn find(message: &Message, known: &mut std::slice::Iter<'static, Field>, number: u32) -> Option<&'static Field> {
    let is_it = |field: &Field| field.number() == number;
    let (all, ahead) = (message.fields(), known.as_slice());
    let at = match ahead.iter().position(is_it) {
        Some(at) => all.len() - ahead.len() + at,
        None => all.iter().position(is_it)?,
    };
    let rest = all.get(at..)?;
    *known = rest.iter();
    rest.first()
}

/// Returns true for a group, which Kubernetes does not use.
fn is_group(value: Value<'_>, bytes: &[u8]) -> bool {
    value == Value::Other && bytes.first().is_some_and(|tag| tag & 7 == 3)
}

/// Calls `each` with packed numbers, as proto3 writes repeated numbers.
fn unpack(packed: &[u8], mut each: impl FnMut(u64)) -> Result<(), Fault> {
    let mut varint = Varint::default();
    for &byte in packed {
        if let Some(value) = varint.push(byte)? {
            each(value);
            varint = Varint::default();
        }
    }
    if varint.is_empty() { Ok(()) } else { Err(Fault::PastParent) }
}

/// Returns the canonical form of an object that [`check`] accepts. prost and Go decode the same value from both. Unknown fields are
/// kept, in their order, at the place of their number.
///
/// It allocates a few words for each field.
pub(crate) fn rewrite(kind: &'static Message, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len());
    write(Layout::Message(kind), &[object], &mut out);
    out
}

/// The fields of a message, or of an entry in a map.
#[derive(Clone, Copy)]
enum Layout {
    Message(&'static Message),
    /// A key, 1, and a value of this type, 2.
    Entry(Type),
}

impl Layout {
    fn field(self, number: u32) -> Option<(Shape, Type)> {
        match (self, number) {
            (Self::Message(message), number) => message.field(number).map(|field| (field.shape, field.of)),
            (Self::Entry(_), 1) => Some((Shape::Single, Type::String)),
            (Self::Entry(of), 2) => Some((Shape::Single, of)),
            (Self::Entry(_), _) => None,
        }
    }
}

/// Appends the message in these pieces.
fn write(layout: Layout, pieces: &[&[u8]], out: &mut Vec<u8>) {
    let mut fields: Vec<WireField<'_>> = pieces.iter().flat_map(|piece| Fields::new(piece)).flatten().collect();
    fields.sort_by_key(|field| field.number);
    for same in fields.chunk_by(|a, b| a.number == b.number) {
        let Some(last) = same.last() else { continue };
        let bytes = || same.iter().filter_map(|field| field.value.bytes().ok());
        let message = |of: Type| of.message().map(Layout::Message);
        match layout.field(last.number) {
            Some((Shape::Single | Shape::Optional, of)) => match message(of) {
                Some(inner) => write_nested(last.number, inner, &bytes().collect::<Vec<_>>(), out),
                None => out.extend_from_slice(last.bytes),
            },
            Some((Shape::Map, of)) => {
                let entries: BTreeMap<&str, &[u8]> = bytes().map(|entry| (key(entry), entry)).collect();
                for entry in entries.into_values() {
                    write_nested(last.number, Layout::Entry(of), &[entry], out);
                }
            }
            Some((Shape::Repeated, of)) => {
                for field in same {
                    match (message(of), of, field.value) {
                        (Some(inner), _, Value::Len(piece)) => write_nested(field.number, inner, &[piece], out),
                        (_, Type::Bool | Type::Int32 | Type::Int64, Value::Len(packed)) => {
                            // `check` has accepted the numbers.
                            _ = unpack(packed, |value| {
                                write_varint(u64::from(field.number) << 3, out);
                                write_varint(value, out);
                            });
                        }
                        _ => out.extend_from_slice(field.bytes),
                    }
                }
            }
            None => same.iter().for_each(|field| out.extend_from_slice(field.bytes)),
        }
    }
}

fn write_nested(number: u32, layout: Layout, pieces: &[&[u8]], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    write(layout, pieces, &mut message);
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(message.len() as u64, out);
    out.extend_from_slice(&message);
}

/// Returns the key of an entry: the last one counts.
fn key(entry: &[u8]) -> &str {
    let keys = Fields::new(entry).flatten().filter(|field| field.number == 1);
    keys.last().and_then(|field| field.value.str().ok()).unwrap_or_default()
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while let Some(rest @ 1..) = Some(value >> 7) {
        #[expect(clippy::cast_possible_truncation, reason = "protobuf takes the low bits")]
        out.push(value as u8 | 0x80);
        value = rest;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the value is below 0x80")]
    out.push(value as u8);
}
