//! The check of an object before typed reads, and its canonical form: the order in which Go writes it.
//!
//! An object is canonical if the numbers of its fields ascend, each single field occurs once, repeated numbers are not
//! packed, the keys of each map ascend, and all text is UTF-8. A reader of a canonical object can stop at the first
//! field with a higher number. prost and Go decode more: any order, messages in pieces, and repeated keys; and Go
//! decodes any bytes as text. [`rewrite`] makes such objects canonical.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::wire::MAX_DEPTH;
use crate::encoding::meta_parts::JSON_SECONDS;
use crate::encoding::protobuf::wire::{Fields, Value, Varint, WireField, write_len};
use crate::encoding::utf8::replaced;
use crate::meta::TypeMeta;
use crate::schema::{Field, Message, Shape, Type};
use crate::wire::Fault;

/// The fault of an object, with its place. It is boxed, because the check returns a result for each field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(Box<Place>);

#[derive(Debug, PartialEq, Eq)]
struct Place {
    fault: Fault,
    /// The address of the faulty field, or of the end of the message.
    at: usize,
    /// The names of the enclosing fields, the innermost first.
    path: Vec<&'static str>,
}

impl Malformed {
    #[cold]
    fn new(fault: Fault, at: &[u8]) -> Self {
        Self(Box::new(Place { fault, at: at.as_ptr().addr(), path: Vec::new() }))
    }

    #[cold]
    fn within(mut self, name: &'static str) -> Self {
        if !name.is_empty() {
            self.0.path.push(name);
        }
        self
    }

    pub(crate) fn fault(&self) -> Fault {
        self.0.fault
    }

    pub(crate) fn offset(&self, object: &[u8]) -> u64 {
        self.0.at.saturating_sub(object.as_ptr().addr()) as u64
    }

    /// Returns the names of the fields, from the object to the faulty message or field.
    pub(crate) fn path(&self, kind: &str) -> String {
        self.0.path.iter().rev().fold(kind.to_owned(), |path, name| path + "." + name)
    }
}

/// Checks an object of this kind: its wire format, the types of all fields in the table, the range of times, and the
/// depth. Returns true if the object is canonical. prost accepts every object that passes, unless its text is not
/// UTF-8.
///
/// The check allocates nothing.
pub(crate) fn check(kind: &Message, object: &[u8]) -> Result<bool, Malformed> {
    check_message(kind, object, 0)
}

fn check_message(message: &Message, bytes: &[u8], depth: usize) -> Result<bool, Malformed> {
    let mut known = message.fields().iter();
    let mut is_canonical = true;
    let mut last = 0;
    let mut last_key = &[][..];
    let mut fields = Fields::new(bytes);
    loop {
        let start = fields.rest;
        let Some(read) = fields.next() else { return Ok(is_canonical) };
        let WireField { number, value, bytes } = read.map_err(|fault| Malformed::new(fault, start))?;
        // Fields usually have the order of the table, so the next field is near.
        let field = match known.as_slice() {
            [same, ..] if same.number() == number => Some(same),
            [_, next, ..] if next.number() == number => {
                known.next();
                Some(next)
            }
            _ => find(message, &mut known, number),
        };
        is_canonical &= number >= last;
        let is_first = number != last;
        last = number;
        let Some(field) = field else {
            if is_group(value, bytes) {
                return Err(Malformed::new(Fault::WireType, start));
            }
            continue;
        };
        let result = match (field.shape, field.of, value) {
            (Shape::Map, of, _) => check_entry(of, value, start, depth).map(|(key, is_canonical)| {
                let is_canonical = is_canonical && (is_first || last_key < key);
                last_key = key;
                is_canonical
            }),
            (Shape::Repeated, Type::Bool | Type::Int32 | Type::Int64, Value::Len(packed)) => {
                unpack(packed, |_| ()).map(|()| false).map_err(|fault| Malformed::new(fault, start))
            }
            (shape, of, _) => check_value(of, value, start, depth)
                .map(|is_canonical| is_canonical && (is_first || shape == Shape::Repeated)),
        };
        is_canonical &= result.map_err(|malformed| malformed.within(field.name()))?;
    }
}

/// Inlining makes a check take a seventh less time.
#[inline(always)]
#[expect(clippy::inline_always, reason = "most values are strings, which take less time than a call")]
fn check_value(of: Type, value: Value<'_>, start: &[u8], depth: usize) -> Result<bool, Malformed> {
    match (of, value) {
        (Type::String, Value::Len(text)) => Ok(is_utf8(text)),
        (Type::Bytes, Value::Len(_))
        | (Type::Bool | Type::Int32 | Type::Int64, Value::Varint(_))
        | (Type::Double, Value::Fixed64(_)) => Ok(true),
        (Type::Message(_), Value::Len(bytes)) if depth < MAX_DEPTH => match of.message() {
            Some(message) if message.is_time() => check_time(message, bytes, start, depth + 1),
            Some(message) => check_message(message, bytes, depth + 1),
            None => Ok(true),
        },
        (Type::Message(_), Value::Len(_)) => Err(Malformed::new(Fault::Depth, start)),
        _ => Err(Malformed::new(Fault::WireType, start)),
    }
}

/// Checks an entry of a map. Returns its key, and true if the entry is canonical.
fn check_entry<'a>(of: Type, value: Value<'a>, start: &[u8], depth: usize) -> Result<(&'a [u8], bool), Malformed> {
    let entry = value.bytes().map_err(|fault| Malformed::new(fault, start))?;
    if depth == MAX_DEPTH {
        return Err(Malformed::new(Fault::Depth, start));
    }
    let mut key = &[][..];
    let mut is_canonical = true;
    let mut last = 0;
    let mut fields = Fields::new(entry);
    loop {
        let start = fields.rest;
        let Some(read) = fields.next() else { return Ok((key, is_canonical)) };
        let WireField { number, value, bytes } = read.map_err(|fault| Malformed::new(fault, start))?;
        is_canonical &= number > last || number == last && number > 2;
        last = number;
        match number {
            1 => {
                key = value.bytes().map_err(|fault| Malformed::new(fault, start))?;
                is_canonical &= is_utf8(key);
            }
            2 => is_canonical &= check_value(of, value, start, depth + 1)?,
            _ if is_group(value, bytes) => return Err(Malformed::new(Fault::WireType, start)),
            _ => {}
        }
    }
}

#[inline]
fn is_utf8(text: &[u8]) -> bool {
    is_ascii(text) || str::from_utf8(text).is_ok()
}

/// Checks a time, which must have a JSON form, as all times of an API server do.
#[inline]
fn check_time(message: &Message, bytes: &[u8], start: &[u8], depth: usize) -> Result<bool, Malformed> {
    // These are whole seconds before the year 3058, as Go writes them. A Pod contains about 20 times, and this shortcut
    // makes its check take an eighth less time.
    const HIGH: u8 = 0x80;
    if let [0x08, (HIGH..=0xff), (HIGH..=0xff), (HIGH..=0xff), (HIGH..=0xff), (..HIGH), 0x10, 0] = bytes {
        return Ok(true);
    }
    let is_canonical = check_message(message, bytes, depth)?;
    let has_json = Fields::new(bytes).flatten().all(|field| match (field.number, field.value) {
        (1, Value::Varint(seconds)) => JSON_SECONDS.contains(&seconds.cast_signed()),
        (2, Value::Varint(nanos)) => nanos < 1_000_000_000,
        _ => true,
    });
    if has_json { Ok(is_canonical) } else { Err(Malformed::new(Fault::Value, start)) }
}

/// Returns true if the text is ASCII, as most text is. Eight bytes are checked at a time, because most texts are short.
#[inline]
fn is_ascii(text: &[u8]) -> bool {
    let mut all = 0;
    for word in text.as_chunks().0 {
        all |= u64::from_le_bytes(*word);
    }
    match text.last_chunk() {
        Some(word) => all |= u64::from_le_bytes(*word),
        None => text.iter().for_each(|byte| all |= u64::from(*byte)),
    }
    all & 0x8080_8080_8080_8080 == 0
}

/// Finds a field that is not the next one. `known` then begins with this field, from which the next search continues.
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

/// Returns the canonical form of an object that [`check`] accepts. prost decodes the same value from both, except that
/// the canonical form has U+FFFD in place of each byte of text that is not UTF-8. Unknown fields stay, in their order,
/// at the place of their number.
///
/// This allocates a few words for each field.
pub(crate) fn rewrite(kind: &'static Message, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len());
    write(Layout::Message(kind), &[object], &mut out);
    out
}

/// Returns an object with U+FFFD in place of each byte of text that is not UTF-8. Returns `None` if prost refuses the
/// object for another reason, or if the table lacks its kind.
#[cold]
pub(crate) fn repaired(type_meta: &TypeMeta, object: &[u8]) -> Option<Vec<u8>> {
    let message = Message::of(&type_meta.api_version, type_meta.item_kind())?;
    let is_canonical = check(message, object).ok()?;
    (!is_canonical).then(|| rewrite(message, object))
}

/// The fields of a message, or of an entry in a map.
#[derive(Clone, Copy)]
enum Layout {
    Message(&'static Message),
    /// A key with the number 1, and a value of this type with the number 2.
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
                None => write_leaf(of, last, out),
            },
            Some((Shape::Map, of)) => {
                let entries: BTreeMap<Cow<'_, str>, &[u8]> = bytes().map(|entry| (key(entry), entry)).collect();
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
                        _ => write_leaf(of, field, out),
                    }
                }
            }
            None => same.iter().for_each(|field| out.extend_from_slice(field.bytes)),
        }
    }
}

fn write_leaf(of: Type, field: &WireField<'_>, out: &mut Vec<u8>) {
    match (of, field.value) {
        (Type::String, Value::Len(text)) if !is_utf8(text) => {
            write_len(field.number, replaced(text).as_bytes(), out);
        }
        _ => out.extend_from_slice(field.bytes),
    }
}

fn write_nested(number: u32, layout: Layout, pieces: &[&[u8]], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    write(layout, pieces, &mut message);
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(message.len() as u64, out);
    out.extend_from_slice(&message);
}

/// Returns the key of an entry, whose last value counts.
fn key(entry: &[u8]) -> Cow<'_, str> {
    let keys = Fields::new(entry).flatten().filter(|field| field.number == 1);
    keys.last().and_then(|field| field.value.text().ok()).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a field with a length.
    fn len(number: u32, parts: &[&[u8]]) -> Vec<u8> {
        let (mut field, value) = (Vec::new(), parts.concat());
        write_varint(u64::from(number) << 3 | 2, &mut field);
        write_varint(value.len() as u64, &mut field);
        [field, value].concat()
    }

    fn int(number: u32, value: u64) -> Vec<u8> {
        let mut field = Vec::new();
        write_varint(u64::from(number) << 3, &mut field);
        write_varint(value, &mut field);
        field
    }

    fn metadata(parts: &[&[u8]]) -> Vec<u8> {
        len(1, parts)
    }

    fn deletion(time: &[&[u8]]) -> Vec<u8> {
        metadata(&[&len(9, time)])
    }

    fn spec(parts: &[&[u8]]) -> Vec<u8> {
        len(2, parts)
    }

    fn label(parts: &[&[u8]]) -> Vec<u8> {
        len(11, parts)
    }

    fn groups(parts: &[&[u8]]) -> Vec<u8> {
        spec(&[&len(14, parts)])
    }

    fn pod() -> &'static Message {
        Message::of("v1", "Pod").unwrap()
    }

    #[test]
    fn objects_are_rewritten_unless_they_are_canonical() {
        let (name, node) = (len(1, &[b"web"]), len(10, &[b"node-1"]));
        let (a, b) = (label(&[&len(1, &[b"a"]), &len(2, &[b"1"])]), label(&[&len(1, &[b"b"]), &len(2, &[b"2"])]));
        let unknown = int(900, 7);
        let fixed32 = [&[0xbd, 0x3e][..], b"1234"].concat();
        for (what, object, expected) in [
            ("empty", vec![], None),
            ("ascending", [metadata(&[&name, &a, &b]), spec(&[&node])].concat(), None),
            ("an empty message and an absent key", [metadata(&[&label(&[])]), spec(&[])].concat(), None),
            ("the first time", deletion(&[&int(1, (-62_167_219_200_i64).cast_unsigned()), &int(2, 0)]), None),
            ("the last time", deletion(&[&int(1, 253_402_300_799), &int(2, 999_999_999)]), None),
            ("unknown fields", [metadata(&[&name, &unknown, &unknown]), unknown.clone(), fixed32].concat(), None),
            ("an overlong varint", b"\x0a\x82\x80\x00\x0a\x00".to_vec(), None),
            (
                "descending messages",
                [spec(&[&node]), metadata(&[&name])].concat(),
                Some([metadata(&[&name]), spec(&[&node])].concat()),
            ),
            ("descending fields", spec(&[&int(11, 1), &node]), Some(spec(&[&node, &int(11, 1)]))),
            (
                "a message in pieces",
                [metadata(&[&name]), metadata(&[&a]), metadata(&[&len(1, &[b"db"])])].concat(),
                Some(metadata(&[&len(1, &[b"db"]), &a])),
            ),
            ("the last value", spec(&[&int(11, 0), &int(11, 1)]), Some(spec(&[&int(11, 1)]))),
            ("keys", metadata(&[&b, &a]), Some(metadata(&[&a, &b]))),
            (
                "a key twice",
                metadata(&[&a, &label(&[&len(1, &[b"a"]), &len(2, &[b"3"])])]),
                Some(metadata(&[&label(&[&len(1, &[b"a"]), &len(2, &[b"3"])])])),
            ),
            (
                "an entry",
                metadata(&[&label(&[&unknown, &len(2, &[b"1"]), &len(1, &[b"x"]), &len(1, &[b"a"])])]),
                Some(metadata(&[&label(&[&len(1, &[b"a"]), &len(2, &[b"1"]), &unknown])])),
            ),
            (
                "an entry with two keys",
                metadata(&[&label(&[&len(1, &[b"x"]), &len(1, &[b"a"]), &len(2, &[b"1"])])]),
                Some(metadata(&[&a])),
            ),
            (
                "an entry with two values",
                metadata(&[&label(&[&len(1, &[b"a"]), &len(2, &[b"0"]), &len(2, &[b"1"])])]),
                Some(metadata(&[&a])),
            ),
            (
                "unknown fields of an entry",
                metadata(&[&label(&[&len(1, &[b"a"]), &unknown, &unknown, &int(901, 1)])]),
                None,
            ),
            (
                "descending unknown fields of an entry",
                metadata(&[&label(&[&len(1, &[b"a"]), &int(901, 1), &unknown])]),
                Some(metadata(&[&label(&[&len(1, &[b"a"]), &unknown, &int(901, 1)])])),
            ),
            // As the nanoseconds of a time it would be too large.
            ("a large number", spec(&[&len(2, &[&len(6, &[&int(2, 2_000_000_000)])])]), None),
            (
                "unknown fields at their place",
                [unknown.clone(), metadata(&[&unknown, &name]), int(900, 8)].concat(),
                Some([metadata(&[&name, &unknown]), unknown.clone(), int(900, 8)].concat()),
            ),
            (
                "text that is not UTF-8",
                metadata(&[&len(1, &[b"a\xf0\x9f"]), &len(14, &[b"\xff"])]),
                Some(metadata(&[&len(1, &["a\u{fffd}\u{fffd}".as_bytes()]), &len(14, &["\u{fffd}".as_bytes()])])),
            ),
            (
                "a key and a value that are not UTF-8",
                metadata(&[&label(&[&len(1, &[b"\xff"]), &len(2, &[b"\xfe"])])]),
                Some(metadata(&[&label(&[&len(1, &["\u{fffd}".as_bytes()]), &len(2, &["\u{fffd}".as_bytes()])])])),
            ),
            (
                "packed numbers",
                groups(&[&int(4, 1), &len(4, &[b"\x02\x80\x01"]), &len(4, &[])]),
                Some(groups(&[&int(4, 1), &int(4, 2), &int(4, 128)])),
            ),
        ] {
            assert_eq!(check(pod(), &object), Ok(expected.is_none()), "{what}");
            let canonical = expected.unwrap_or_else(|| object.clone());
            assert_eq!(check(pod(), &canonical), Ok(true), "{what}");
            if object != b"\x0a\x82\x80\x00\x0a\x00" {
                assert_eq!(rewrite(pod(), &object), canonical, "{what}");
            }
        }
    }

    #[test]
    fn finds_the_place_of_each_fault() {
        let name = len(1, &[b"web"]);
        for (object, fault, path, offset) in [
            (b"\x0a\x05\x0a".to_vec(), Fault::PastParent, "Pod", 0),
            (metadata(&[&name, b"\x0a\x05a"]), Fault::PastParent, "Pod.metadata", 7),
            (metadata(&[&name, b"\x00"]), Fault::Tag, "Pod.metadata", 7),
            (metadata(&[&int(11, 1)]), Fault::WireType, "Pod.metadata.labels", 2),
            // The time of the deletion as text, and a number in it as text.
            (metadata(&[&int(9, 1)]), Fault::WireType, "Pod.metadata.deletionTimestamp", 2),
            (metadata(&[&len(9, &[&len(1, &[])])]), Fault::WireType, "Pod.metadata.deletionTimestamp.seconds", 4),
            (deletion(&[&int(1, 253_402_300_800)]), Fault::Value, "Pod.metadata.deletionTimestamp", 2),
            (
                deletion(&[&int(1, (-62_167_219_201_i64).cast_unsigned())]),
                Fault::Value,
                "Pod.metadata.deletionTimestamp",
                2,
            ),
            (deletion(&[&int(1, 1), &int(2, 1_000_000_000)]), Fault::Value, "Pod.metadata.deletionTimestamp", 2),
            (deletion(&[&int(2, u64::MAX)]), Fault::Value, "Pod.metadata.deletionTimestamp", 2),
            (spec(&[&len(11, &[b"\x01"])]), Fault::WireType, "Pod.spec.hostNetwork", 2),
            (groups(&[&len(4, &[b"\x80"])]), Fault::PastParent, "Pod.spec.securityContext.supplementalGroups", 4),
            (groups(&[&len(4, &[&[0xff; 10]])]), Fault::Varint, "Pod.spec.securityContext.supplementalGroups", 4),
            // Groups, also unknown ones.
            (b"\xab\x01\xac\x01".to_vec(), Fault::WireType, "Pod", 0),
            (metadata(&[b"\x0b\x0c"]), Fault::WireType, "Pod.metadata.name", 2),
            (metadata(&[&label(&[b"\x1b\x1c"])]), Fault::WireType, "Pod.metadata.labels", 4),
            // An inlined message has no name in the path.
            (spec(&[&len(1, &[&len(2, &[b"\x08"])])]), Fault::PastParent, "Pod.spec.volumes", 6),
        ] {
            let malformed = check(pod(), &object).unwrap_err();
            let found = (malformed.fault(), malformed.path("Pod"), malformed.offset(&object));
            assert_eq!(found, (fault, path.to_owned(), offset), "{object:x?}");
        }
    }

    #[test]
    fn finds_every_byte_that_is_not_ascii() {
        for len in 0..40 {
            let mut text = vec![b'a'; len];
            assert!(is_ascii(&text));
            for at in 0..len {
                text[at] = 0xc3;
                assert!(!is_ascii(&text), "{at} of {len}");
                text[at] = 0x7f;
            }
        }
    }

    /// prost counts the entries of maps, too.
    /// An unknown field after them leaves them to the plain check.
    #[test]
    fn times_as_go_writes_them_are_checked_as_other_times() {
        let mut rng = fastrand::Rng::with_seed(1);
        let overlong = b"\x08\x80\x80\x80\x80\x00\x10\x00".to_vec();
        let random = |_| [int(1, rng.u64(..) >> rng.u32(..64)), int(2, rng.u64(..2) * 0x80)].concat();
        let mut accepted = 0;
        for time in [overlong].into_iter().chain((0..2000).map(random)) {
            let [fast, plain] = [&[][..], &int(3, 0)]
                .map(|more| check(pod(), &deletion(&[&time, more])).map_err(|malformed| malformed.fault()));
            assert_eq!(fast, plain, "{time:?}");
            accepted += u32::from(fast.is_ok());
        }
        assert!((100..1900).contains(&accepted), "{accepted}");
        assert_eq!(check(pod(), &deletion(&[&int(2, 0), &int(1, 1 << 34)])), Ok(false));
    }

    #[test]
    fn limits_the_depth_as_prost_does() {
        use k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
        use prost::Message as _;

        let crd = Message::of("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
        let nested = |depth: usize, is_map: bool| {
            // `not`, or `properties` with one entry.
            let inner = |schema: Vec<u8>| {
                if is_map { len(29, &[&len(2, &[&schema])]) } else { len(28, &[&schema]) }
            };
            let schema = (0..depth).fold(Vec::new(), |schema, _| inner(schema));
            // spec.versions.schema.openAPIV3Schema
            len(2, &[&len(7, &[&len(4, &[&len(1, &[&schema])])])])
        };
        for (depth, is_map, is_valid) in [(96, false, true), (97, false, false), (48, true, true), (49, true, false)] {
            let object = nested(depth, is_map);
            assert_eq!(
                check(crd, &object).map_err(|malformed| malformed.fault()),
                if is_valid { Ok(true) } else { Err(Fault::Depth) }
            );
            assert_eq!(CustomResourceDefinition::decode(&object[..]).is_ok(), is_valid, "{depth}");
        }
    }
}
