//! The JSON form of protobuf objects: byte for byte the same as Go's.
//!
//! An object is first read into a tree, because protobuf allows any order, pieces and repetition, and then written
//! in the order of Go's structs. Sources: the types of `k8s.io/apimachinery` that implement `MarshalJSON`, and Go's
//! `encoding/json`.

use std::collections::BTreeMap;
use std::mem;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;

use super::decode::estimate;
use super::wire::MAX_DEPTH;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::json::text::{write, write_raw, write_str, write_text};
use crate::encoding::meta_parts::JSON_SECONDS;
use crate::encoding::protobuf::wire::{Fields, Value, Varint};
use crate::error::{Fault, ItemError};
use crate::schema::{Field, Form, Message, Omit, Shape, Type};

/// Appends the JSON form of an object in protobuf, on one line, to `out`: see
/// [`ItemRef::to_json`](crate::ItemRef::to_json).
pub(crate) fn to_json(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
    write_object(item, out, |out| {
        out.extend_from_slice(b"\"kind\":");
        write_str(item.type_meta.item_kind(), out);
        out.extend_from_slice(b",\"apiVersion\":");
        write_str(&item.type_meta.api_version, out);
    })
}

/// Like [`to_json`], without `kind` and `apiVersion`, as in Go's typed lists.
pub(crate) fn to_list_item(item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, ItemError> {
    write_object(item, out, |_| ())
}

/// Appends an object, whose first members `write_first` writes, unless it may take too much memory.
fn write_object(
    item: &ItemRef<'_>,
    out: &mut Vec<u8>,
    write_first: impl FnOnce(&mut Vec<u8>),
) -> Result<u64, ItemError> {
    let (api_version, kind) = (item.type_meta.api_version.as_str(), item.type_meta.item_kind());
    let message = Message::of_item(api_version, kind)?;
    item.check_decoded_size(estimate)?;
    let start = out.len();
    let mut slots = Vec::new();
    let mut reader = Messages { unknown_fields: 0 };
    let result = reader.message(message, item.bytes, &mut slots, 0).and_then(|()| {
        out.push(b'{');
        write_first(out);
        write_fields(message, &slots, out)?;
        out.push(b'}');
        Ok(reader.unknown_fields)
    });
    result.map_err(|error| {
        out.truncate(start);
        error.in_kind(kind)
    })
}

#[derive(Default)]
enum Slot<'a> {
    #[default]
    Empty,
    /// An integer or a boolean.
    Int(i64),
    Double(f64),
    /// Text that may not be UTF-8.
    Str(&'a [u8]),
    Bytes(&'a [u8]),
    /// One slot for each field of the message, or none if the message is empty.
    Message(Vec<Slot<'a>>),
    /// Never empty, except for the items of an empty list in a map.
    List(Vec<Slot<'a>>),
    /// Never empty.
    Map(BTreeMap<&'a [u8], Slot<'a>>),
}

impl<'a> Slot<'a> {
    fn int(&self) -> i64 {
        if let Self::Int(value) = *self { value } else { 0 }
    }

    fn text(&self) -> &'a [u8] {
        if let Self::Str(value) = *self { value } else { &[] }
    }

    fn slots(&self) -> &[Self] {
        if let Self::Message(slots) = self { slots } else { &[] }
    }
}

/// A fault, and the names of the enclosing fields, the innermost first.
struct FieldError {
    fault: Fault,
    path: Vec<&'static str>,
}

impl From<Fault> for FieldError {
    fn from(fault: Fault) -> Self {
        Self { fault, path: Vec::new() }
    }
}

impl FieldError {
    fn in_field(mut self, field: &Field) -> Self {
        if !field.name().is_empty() {
            self.path.push(field.name());
        }
        self
    }

    fn in_kind(self, kind: &str) -> ItemError {
        let mut path = kind.to_owned();
        for name in self.path.iter().rev() {
            path = path + "." + name;
        }
        ItemError::Field { path: path.into(), fault: self.fault }
    }
}

/// Reads messages into slots, and counts the fields that the table does not have.
struct Messages {
    unknown_fields: u64,
}

impl Messages {
    fn message<'a>(
        &mut self,
        message: &Message,
        bytes: &'a [u8],
        slots: &mut Vec<Slot<'a>>,
        depth: usize,
    ) -> Result<(), FieldError> {
        if depth == MAX_DEPTH {
            return Err(Fault::Depth.into());
        }
        for read in Fields::new(bytes) {
            let (number, value) = read.map(|read| (read.number, read.value))?;
            let found = message.fields().iter().enumerate().find(|(_, field)| field.number() == number);
            if slots.is_empty() {
                slots.resize_with(message.fields().len(), Slot::default);
            }
            let Some((field, slot)) = found.and_then(|(place, field)| Some((field, slots.get_mut(place)?))) else {
                self.unknown_fields += 1;
                continue;
            };
            self.field(field, value, slot, depth).map_err(|error| error.in_field(field))?;
        }
        Ok(())
    }

    fn field<'a>(
        &mut self,
        field: &Field,
        value: Value<'a>,
        slot: &mut Slot<'a>,
        depth: usize,
    ) -> Result<(), FieldError> {
        match field.shape {
            Shape::Single | Shape::Optional => self.value(field.of, value, slot, depth),
            Shape::Repeated => {
                let mut list = if let Slot::List(list) = mem::take(slot) { list } else { Vec::new() };
                if let (Type::Bool | Type::Int32 | Type::Int64, Value::Len(packed)) = (field.of, value) {
                    read_packed(field.of, packed, &mut list)?;
                } else {
                    let mut element = Slot::Empty;
                    self.value(field.of, value, &mut element, depth)?;
                    list.push(element);
                }
                if !list.is_empty() {
                    *slot = Slot::List(list);
                }
                Ok(())
            }
            Shape::Map => {
                let mut map = if let Slot::Map(map) = mem::take(slot) { map } else { BTreeMap::new() };
                let (key, value) = self.entry(field.of, value.bytes()?, depth)?;
                map.insert(key, value);
                *slot = Slot::Map(map);
                Ok(())
            }
        }
    }

    fn value<'a>(&mut self, of: Type, value: Value<'a>, slot: &mut Slot<'a>, depth: usize) -> Result<(), FieldError> {
        *slot = match (of, value) {
            (Type::String, value) => Slot::Str(value.bytes()?),
            (Type::Bytes, value) => Slot::Bytes(value.bytes()?),
            (Type::Bool | Type::Int32 | Type::Int64, Value::Varint(value)) => integer(of, value),
            (Type::Double, Value::Fixed64(bits)) => Slot::Double(f64::from_bits(bits)),
            (Type::Message(_), value) => {
                let mut slots = if let Slot::Message(slots) = mem::take(slot) { slots } else { Vec::new() };
                if let Some(message) = of.message() {
                    self.message(message, value.bytes()?, &mut slots, depth + 1)?;
                }
                Slot::Message(slots)
            }
            _ => return Err(Fault::WireType.into()),
        };
        Ok(())
    }

    fn entry<'a>(&mut self, of: Type, entry: &'a [u8], depth: usize) -> Result<(&'a [u8], Slot<'a>), FieldError> {
        let mut key = &[][..];
        // As in Go, these default values are empty, not nil.
        let mut slot = match of.message().map(|message| message.form) {
            Some(Form::Items) => Slot::Message(vec![Slot::List(Vec::new())]),
            _ if of == Type::Bytes => Slot::Bytes(&[]),
            _ => Slot::Empty,
        };
        for field in Fields::new(entry) {
            let field = field?;
            match field.number {
                1 => key = field.value.bytes()?,
                2 => self.value(of, field.value, &mut slot, depth)?,
                _ => self.unknown_fields += 1,
            }
        }
        Ok((key, slot))
    }
}

/// Reads packed numbers, as proto3 writes repeated numbers.
fn read_packed(of: Type, packed: &[u8], list: &mut Vec<Slot<'_>>) -> Result<(), Fault> {
    let mut varint = Varint::default();
    for &byte in packed {
        if let Some(value) = varint.push(byte)? {
            list.push(integer(of, value));
            varint = Varint::default();
        }
    }
    if varint.is_empty() { Ok(()) } else { Err(Fault::PastParent) }
}

fn integer<'a>(of: Type, value: u64) -> Slot<'a> {
    #[expect(clippy::cast_possible_truncation, reason = "protobuf takes the low bits")]
    Slot::Int(if of == Type::Int32 { i64::from((value as u32).cast_signed()) } else { value.cast_signed() })
}

/// Writes the fields of a message, with a comma before each field that does not follow a brace.
fn write_fields(message: &Message, slots: &[Slot<'_>], out: &mut Vec<u8>) -> Result<(), FieldError> {
    for (place, field) in message.fields().iter().enumerate() {
        let slot = slots.get(place).unwrap_or(&Slot::Empty);
        let result = if let ("", Some(inlined)) = (field.name(), field.message()) {
            write_fields(inlined, slot.slots(), out)
        } else if is_omitted(field, slot) {
            Ok(())
        } else {
            if out.last() != Some(&b'{') {
                out.push(b',');
            }
            write_str(field.name(), out);
            out.push(b':');
            write_field(field, slot, out)
        };
        result.map_err(|error| error.in_field(field))?;
    }
    Ok(())
}

fn is_omitted(field: &Field, slot: &Slot<'_>) -> bool {
    match field.omit {
        Omit::Never => false,
        Omit::Absent => matches!(slot, Slot::Empty),
        Omit::Zero => is_zero_time(field.message(), slot.slots()),
        Omit::Empty => match slot {
            Slot::Empty => field.shape != Shape::Single || field.message().is_none(),
            _ if field.shape == Shape::Optional => false,
            Slot::Int(value) => *value == 0,
            Slot::Double(value) => *value == 0.0,
            Slot::Str(value) | Slot::Bytes(value) => value.is_empty(),
            Slot::Message(_) | Slot::List(_) | Slot::Map(_) => false,
        },
    }
}

fn write_field(field: &Field, slot: &Slot<'_>, out: &mut Vec<u8>) -> Result<(), FieldError> {
    match slot {
        Slot::Empty if field.shape != Shape::Single => out.extend_from_slice(b"null"),
        Slot::List(list) => {
            out.push(b'[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(field.of, element, out)?;
            }
            out.push(b']');
        }
        Slot::Map(map) => {
            out.push(b'{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(key, out);
                out.push(b':');
                write_value(field.of, value, out)?;
            }
            out.push(b'}');
        }
        slot => write_value(field.of, slot, out)?,
    }
    Ok(())
}

fn write_value(of: Type, slot: &Slot<'_>, out: &mut Vec<u8>) -> Result<(), FieldError> {
    match (of, slot) {
        (Type::String, slot) => write_text(slot.text(), out),
        (Type::Bytes, Slot::Bytes(bytes)) => write_base64(bytes, out),
        (Type::Bytes, _) => out.extend_from_slice(b"null"),
        (Type::Bool, slot) => out.extend_from_slice(if slot.int() == 0 { b"false" } else { b"true" }),
        (Type::Int32 | Type::Int64, slot) => write_int(slot.int(), out),
        (Type::Double, Slot::Double(value)) => write_double(*value, out)?,
        (Type::Double, _) => out.push(b'0'),
        (Type::Message(_), slot) => {
            if let Some(message) = of.message() {
                write_message(message, slot.slots(), out)?;
            }
        }
    }
    Ok(())
}

fn write_message(message: &Message, slots: &[Slot<'_>], out: &mut Vec<u8>) -> Result<(), FieldError> {
    let slot = |place| slots.get(place).unwrap_or(&Slot::Empty);
    let write_slot =
        |place, out| message.fields().get(place).map_or(Ok(()), |field| write_field(field, slot(place), out));
    match message.form {
        Form::Object => {
            out.push(b'{');
            write_fields(message, slots, out)?;
            out.push(b'}');
        }
        Form::Items => write_slot(0, out)?,
        Form::Or if matches!(slot(1), Slot::Empty) => write_slot(0, out)?,
        Form::Or => write_slot(1, out)?,
        Form::Raw => match *slot(0) {
            Slot::Bytes(raw @ [_, ..]) => write_raw(raw, out)?,
            _ => out.extend_from_slice(b"null"),
        },
        Form::Time | Form::MicroTime if is_zero_time(Some(message), slots) => out.extend_from_slice(b"null"),
        Form::Time => write_time(slot(0).int(), None, out)?,
        Form::MicroTime => write_time(slot(0).int(), Some(slot(1).int()), out)?,
        Form::Duration => write_duration(slot(0).int(), out),
        // Go never writes an empty quantity.
        Form::Quantity => match slot(0) {
            Slot::Str([]) => return Err(Fault::Value.into()),
            Slot::Str(quantity) => write_text(quantity, out),
            _ => out.extend_from_slice(b"\"0\""),
        },
        Form::IntOrString => match slot(0).int() {
            0 => write_int(slot(1).int(), out),
            1 => write_text(slot(2).text(), out),
            _ => return Err(Fault::Value.into()),
        },
    }
    Ok(())
}

fn write_int(value: i64, out: &mut Vec<u8>) {
    write(out, format_args!("{value}"));
}

/// Writes a small or large number with an exponent, as Go and JavaScript do.
fn write_double(value: f64, out: &mut Vec<u8>) -> Result<(), Fault> {
    if !value.is_finite() {
        return Err(Fault::Value);
    }
    if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        write(out, format_args!("{value}"));
    } else if value.abs() < 1.0 {
        write(out, format_args!("{value:e}"));
    } else {
        out.extend_from_slice(format!("{value:e}").replace('e', "e+").as_bytes());
    }
    Ok(())
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    write(out, format_args!("\"{}\"", Base64Display::new(bytes, &STANDARD)));
}

/// Returns true for Go's zero time, which is the beginning of the year 1, or a message without fields.
///
/// Go ignores the nanoseconds of a `Time`, and the part of a `MicroTime` below a microsecond.
fn is_zero_time(of: Option<&Message>, slots: &[Slot<'_>]) -> bool {
    match slots {
        [] => true,
        [Slot::Int(seconds), nanos] => {
            let is_micro_time = of.is_some_and(|message| message.form == Form::MicroTime);
            is_zero_seconds(*seconds, is_micro_time.then(|| nanos.int()))
        }
        _ => false,
    }
}

/// As [`is_zero_time`], for the fields of a message that has any. Only a `MicroTime` has `nanos`.
pub(super) fn is_zero_seconds(seconds: i64, nanos: Option<i64>) -> bool {
    seconds == -62_135_596_800 && nanos.is_none_or(|nanos| nanos / 1000 == 0)
}

/// Writes RFC 3339 in UTC, with six digits of the fraction if there are `nanos`.
pub(super) fn write_time(seconds: i64, nanos: Option<i64>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let fraction = nanos.unwrap_or(0);
    if !JSON_SECONDS.contains(&seconds) || !(0..1_000_000_000).contains(&fraction) {
        return Err(Fault::Value);
    }
    let since_epoch = SignedDuration::from_secs(seconds) + SignedDuration::from_nanos(fraction);
    // A `jiff::Timestamp` ends 26 hours before the year 9999 does.
    let time = DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(since_epoch).map_err(|_| Fault::Value)?;
    out.push(b'"');
    write_digits::<4>(time.year().into(), out);
    for (before, digits) in
        [(b'-', time.month()), (b'-', time.day()), (b'T', time.hour()), (b':', time.minute()), (b':', time.second())]
    {
        out.push(before);
        write_digits::<2>(digits.into(), out);
    }
    if nanos.is_some() {
        out.push(b'.');
        write_digits::<6>(time.subsec_nanosecond() / 1000, out);
    }
    out.extend_from_slice(b"Z\"");
    Ok(())
}

/// Writes the last `N` digits of a number that is not negative. `strftime` takes ten times as long for a time.
fn write_digits<const N: usize>(number: i32, out: &mut Vec<u8>) {
    let mut digits = [b'0'; N];
    let mut rest = number.unsigned_abs();
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10).to_le_bytes()[0];
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

/// Writes a duration like Go's `time.Duration`: `1h30m0s`, `1.5s`, `2ms`.
pub(super) fn write_duration(nanos: i64, out: &mut Vec<u8>) {
    out.push(b'"');
    if nanos < 0 {
        out.push(b'-');
    }
    let nanos = nanos.unsigned_abs();
    let (unit, name) = match nanos {
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let mut whole = nanos / unit;
    if nanos >= 3_600_000_000_000 {
        write(out, format_args!("{}h", whole / 3600));
    }
    if nanos >= 60_000_000_000 {
        write(out, format_args!("{}m", whole / 60 % 60));
        whole %= 60;
    }
    write(out, format_args!("{whole}"));
    if !nanos.is_multiple_of(unit) {
        // Adding the unit keeps the leading zeros of the fraction; the first digit is dropped.
        let fraction = (unit + nanos % unit).to_string();
        write(out, format_args!(".{}", fraction.get(1..).unwrap_or_default().trim_end_matches('0')));
    }
    write(out, format_args!("{name}\""));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::TypeMeta;
    use crate::wire::Encoding;

    /// A Lease with `acquireTime` (a `MicroTime`), and with `creationTimestamp` (a `Time`) in its metadata.
    fn lease(seconds: i64, nanos: i64) -> Vec<u8> {
        let varint = |field: u8, value: i64| {
            let mut bytes = vec![field << 3];
            prost::encoding::encode_varint(value.cast_unsigned(), &mut bytes);
            bytes
        };
        let message = |field: u8, bytes: &[u8]| [&[field << 3 | 2, bytes.len().try_into().unwrap()], bytes].concat();
        let time = [varint(1, seconds), varint(2, nanos)].concat();
        [message(1, &message(8, &time)), message(2, &message(3, &time))].concat()
    }

    /// The texts of Go's `time.Duration` for these numbers of nanoseconds.
    #[test]
    fn writes_durations_as_go_does() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (-999, "-999ns"),
            (1_000, "1µs"),
            (999_999, "999.999µs"),
            (1_000_000, "1ms"),
            (1_050_000, "1.05ms"),
            (999_999_999, "999.999999ms"),
            (1_000_000_000, "1s"),
            (-1_500_000_000, "-1.5s"),
            (59_999_999_999, "59.999999999s"),
            (60_000_000_000, "1m0s"),
            (3_599_000_000_000, "59m59s"),
            (3_600_000_000_000, "1h0m0s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            let mut out = Vec::new();
            write_duration(nanos, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("\"{expected}\""), "{nanos}");
        }
    }

    /// Sources: `MarshalJSON` and `Unmarshal` of `Time` and `MicroTime` in `k8s.io/apimachinery/pkg/apis/meta/v1`.
    #[test]
    fn writes_times_as_go_does() {
        let type_meta = TypeMeta::new("coordination.k8s.io/v1", "Lease");
        let json = |seconds, nanos| {
            let mut out = Vec::new();
            to_json(&ItemRef::new(Encoding::Protobuf, &lease(seconds, nanos)).with_type_meta(&type_meta), &mut out)
                .map(|_| String::from_utf8(out).unwrap())
        };
        for (seconds, nanos, time, micro_time) in [
            (0, 0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
            (-1, 1000, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000001Z"),
            // Both are cut, not rounded. Go ignores the nanoseconds of a `Time`.
            (951_782_400, 999_999_999, "2000-02-29T00:00:00Z", "2000-02-29T00:00:00.999999Z"),
            (253_402_207_200, 0, "9999-12-30T22:00:00Z", "9999-12-30T22:00:00.000000Z"),
            (253_402_300_799, 999_999_999, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"),
            (-62_135_596_799, 0, "0001-01-01T00:00:01Z", "0001-01-01T00:00:01.000000Z"),
            (-62_167_219_200, 0, "0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z"),
            // The zero time. Some releases omit it.
            (-62_135_596_800, 0, "null", "null"),
            (-62_135_596_800, 999, "null", "null"),
            (-62_135_596_800, 1000, "null", "0001-01-01T00:00:00.000001Z"),
        ] {
            let json = json(seconds, nanos).unwrap();
            for (name, expected) in [("creationTimestamp", time), ("acquireTime", micro_time)] {
                let written = match expected {
                    "null" => !json.contains(&format!("\"{name}\":\"")),
                    time => json.contains(&format!("\"{name}\":\"{time}\"")),
                };
                assert!(written, "{seconds} {nanos}: {name} is not {expected} in {json}");
            }
        }
        for (seconds, nanos) in
            [(253_402_300_800, 0), (-62_167_219_201, 0), (i64::MAX, 0), (i64::MIN, 0), (0, 1_000_000_000), (0, -1)]
        {
            assert!(json(seconds, nanos).is_err(), "{seconds} {nanos}");
        }
    }
}
