//! Values of the JSON form of protobuf, off its bytes.
//!
//! The rules are those of `to_json.rs`, which reads a whole object into a tree; tests compare the two. Here a message
//! is scanned for its own fields only: nested messages are skipped by their lengths.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::to_json::{is_zero_seconds, write_duration, write_time};
use super::wire::{Fields, Value as WireValue, Varint, entry, key_of};
use crate::encoding::json;
use crate::encoding::utf8;
use crate::encoding::value::{Array, Key, Object, Pieces, Place, PlaceForm, Value};
use crate::error::Fault;
use crate::schema::{Field, Form, Message, Omit, Shape, Type};

/// A field that a message has: one occurrence of a single field, or neighbouring ones of a list or a map.
#[derive(Clone, Copy)]
struct Found<'a> {
    /// The place of the field in the table.
    place: usize,
    /// The last value.
    value: WireValue<'a>,
    /// The start and the end of the occurrences in the root, with their tags.
    start: usize,
    end: usize,
}

/// Calls `each` with every member of a message, in the order of JSON.
pub(crate) fn visit<'a, E: From<Fault>>(
    root: &'a [u8],
    message: &'static Message,
    pieces: &Pieces,
    each: &mut impl FnMut(Key<'a>, Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let found = find_fields(root, message, pieces)?;
    let mut rest = found.as_slice();
    for (place, field) in message.fields().iter().enumerate() {
        // Most fields of most messages are absent.
        if rest.first().is_none_or(|next| next.place != place) && is_omitted_if_absent(field) {
            continue;
        }
        let own = rest.iter().take_while(|found| found.place == place).count();
        let (own, later) = rest.split_at_checked(own).unwrap_or((rest, &[]));
        rest = later;
        if let Some(value) = plain_value(root, field, own)? {
            each(Key::Field(field.name()), value)?;
        } else if let Some(inlined) = inlined(field) {
            visit(root, inlined, &message_pieces(root, own)?, each)?;
        } else if let Some(value) = member_value(root, field, own)? {
            each(Key::Field(field.name()), value)?;
        }
    }
    Ok(())
}

/// Returns the member of a message; `None` if its JSON form omits the field or the kind does not have it.
pub(crate) fn member<'a>(
    root: &'a [u8],
    message: &'static Message,
    pieces: &Pieces,
    name: &str,
) -> Result<Option<Value<'a>>, Fault> {
    for field in message.fields() {
        if field.name() == name && !name.is_empty() {
            return member_value(root, field, &find_field(root, field, pieces)?);
        }
        if let Some(inlined) = inlined(field).filter(|inlined| has_field(inlined, name)) {
            let pieces = message_pieces(root, &find_field(root, field, pieces)?)?;
            return member(root, inlined, &pieces, name);
        }
    }
    Ok(None)
}

/// Returns the message that JSON inlines into its parent.
fn inlined(field: &Field) -> Option<&'static Message> {
    if field.name().is_empty() { field.message() } else { None }
}

fn has_field(message: &Message, name: &str) -> bool {
    message.fields().iter().any(|field| {
        if field.name().is_empty() {
            field.message().is_some_and(|inlined| has_field(inlined, name))
        } else {
            field.name() == name
        }
    })
}

/// Returns the fields of a message that the table has, in the order of the table.
fn find_fields<'a>(root: &'a [u8], message: &Message, pieces: &Pieces) -> Result<Vec<Found<'a>>, Fault> {
    let fields = message.fields();
    let mut found: Vec<Found<'a>> = Vec::with_capacity(fields.len().min(16));
    let mut is_sorted = true;
    let mut last = 0;
    for piece in pieces.slices(root) {
        for read in Fields::new(piece) {
            let read = read?;
            let is_field = |field: &Field| field.number() == read.number;
            // Servers write fields in the order of their numbers, which mostly is that of the table.
            let ahead = fields.get(last..).unwrap_or_default().iter().position(is_field).map(|ahead| last + ahead);
            let Some(place) = ahead.or_else(|| fields.iter().position(is_field)) else { continue };
            is_sorted &= place >= last;
            last = place;
            add(root, &mut found, place, fields.get(place), read.value, read.bytes);
        }
    }
    if !is_sorted {
        found.sort_by_key(|found| found.place);
    }
    Ok(found)
}

/// Returns the occurrences of a field.
fn find_field<'a>(root: &'a [u8], field: &Field, pieces: &Pieces) -> Result<Vec<Found<'a>>, Fault> {
    let mut found = Vec::new();
    for piece in pieces.slices(root) {
        for read in Fields::new(piece) {
            let read = read?;
            if read.number == field.number() {
                add(root, &mut found, 0, Some(field), read.value, read.bytes);
            }
        }
    }
    Ok(found)
}

fn add<'a>(
    root: &[u8],
    found: &mut Vec<Found<'a>>,
    place: usize,
    field: Option<&Field>,
    value: WireValue<'a>,
    bytes: &[u8],
) {
    let is_many = field.is_some_and(|field| matches!(field.shape, Shape::Repeated | Shape::Map));
    let range = Pieces::range_in(root, bytes);
    match found.last_mut().filter(|last| is_many && last.place == place && range.start >= last.end) {
        Some(last) => (last.value, last.end) = (value, range.end),
        None => found.push(Found { place, value, start: range.start, end: range.end }),
    }
}

/// Returns the pieces of the message that a single field is.
fn message_pieces(root: &[u8], own: &[Found<'_>]) -> Result<Pieces, Fault> {
    if let [only] = own {
        return Ok(Pieces::one(root, only.value.bytes()?));
    }
    let ranges = own.iter().map(|found| Ok(Pieces::range_in(root, found.value.bytes()?)));
    Ok(Pieces::from_ranges(ranges.collect::<Result<Vec<_>, Fault>>()?.into_iter()))
}

/// Returns the value of a member of the usual kinds, if it is there in one place: a text, a number, an object, or a
/// list or a map of them. `None` leaves the member to [`member_value`], with which tests compare every value.
///
/// It saves a sixth of the time of a conversion of a whole Pod to Python.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a value that is returned through memory costs as much as reading it")]
fn plain_value<'a>(root: &'a [u8], field: &'static Field, own: &[Found<'a>]) -> Result<Option<Value<'a>>, Fault> {
    let ([found], 1..) = (own, field.name.len) else { return Ok(None) };
    let pieces = || Pieces::One(found.start..found.end);
    Ok(match (field.shape, field.of, found.value) {
        (Shape::Map, ..) => {
            let place = Place { form: PlaceForm::Map(field), pieces: pieces() };
            Some(Value::Object(Object { root, place, type_meta: None }))
        }
        (Shape::Repeated, Type::String | Type::Message(_), _) => {
            Some(Value::Array(Array { root, place: Place { form: PlaceForm::Repeated(field), pieces: pieces() } }))
        }
        (Shape::Repeated, ..) => None,
        (_, Type::String, value @ WireValue::Len([_, ..])) => Some(Value::String(value.text()?)),
        (_, Type::Int32 | Type::Int64 | Type::Bool, WireValue::Varint(value @ 1..0x8000_0000)) => {
            Some(number(field.of, value))
        }
        (_, Type::Message(_), WireValue::Len(bytes)) => match field.of.message() {
            Some(message) if message.form == Form::Object => {
                let place = Place { form: PlaceForm::Message(message), pieces: Pieces::one(root, bytes) };
                Some(Value::Object(Object { root, place, type_meta: None }))
            }
            _ => None,
        },
        _ => None,
    })
}

/// Returns the value of a member with these occurrences, unless JSON omits it.
fn member_value<'a>(root: &'a [u8], field: &'static Field, own: &[Found<'a>]) -> Result<Option<Value<'a>>, Fault> {
    let value = written_value(root, field, own)?;
    let is_omitted = match field.omit {
        Omit::Never => false,
        Omit::Absent => is_absent(field, own),
        Omit::Zero => matches!(value, Value::Null),
        Omit::Empty if is_absent(field, own) => field.shape != Shape::Single || field.message().is_none(),
        Omit::Empty if field.shape == Shape::Optional || matches!(field.of, Type::Message(_)) => false,
        Omit::Empty => match &value {
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(value) => value.is_empty(),
            _ => false,
        },
    };
    Ok(Some(value).filter(|_| !is_omitted))
}

/// Returns true if JSON does not have the field when protobuf does not. An inlined message is never omitted.
fn is_omitted_if_absent(field: &Field) -> bool {
    match field.omit {
        Omit::Never => false,
        Omit::Absent | Omit::Zero => true,
        Omit::Empty => field.shape != Shape::Single || !matches!(field.of, Type::Message(_)),
    }
}

/// Returns true if the field is not there, or is a list of packed numbers without any.
fn is_absent(field: &Field, own: &[Found<'_>]) -> bool {
    match own {
        [] => true,
        [Found { value: WireValue::Len([]), .. }] => is_number(field.of) && field.shape == Shape::Repeated,
        _ => false,
    }
}

fn is_number(of: Type) -> bool {
    matches!(of, Type::Bool | Type::Int32 | Type::Int64)
}

/// Returns the value of a field with these occurrences, as JSON writes it.
fn written_value<'a>(root: &'a [u8], field: &'static Field, own: &[Found<'a>]) -> Result<Value<'a>, Fault> {
    if is_absent(field, own) && field.shape != Shape::Single {
        return Ok(Value::Null);
    }
    let pieces = || Pieces::from_ranges(own.iter().map(|found| found.start..found.end));
    Ok(match field.shape {
        Shape::Single | Shape::Optional => {
            if let Some(message) = field.of.message() {
                return message_value(root, message, message_pieces(root, own)?);
            }
            let mut value = zero(field.of);
            for found in own {
                value = scalar(field.of, found.value)?;
            }
            value
        }
        Shape::Repeated => {
            Value::Array(Array { root, place: Place { form: PlaceForm::Repeated(field), pieces: pieces() } })
        }
        Shape::Map => {
            let place = Place { form: PlaceForm::Map(field), pieces: pieces() };
            Value::Object(Object { root, place, type_meta: None })
        }
    })
}

/// Returns the value of an absent field that is no message.
fn zero<'a>(of: Type) -> Value<'a> {
    match of {
        Type::String => Value::String(Cow::Borrowed("")),
        Type::Bytes | Type::Message(_) => Value::Null,
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 => Value::Int(0),
        Type::Double => Value::Double(0.0),
    }
}

fn scalar(of: Type, value: WireValue<'_>) -> Result<Value<'_>, Fault> {
    Ok(match (of, value) {
        (Type::String, value) => Value::String(value.text()?),
        (Type::Bytes, value) => Value::String(BASE64_STANDARD.encode(value.bytes()?).into()),
        (Type::Bool | Type::Int32 | Type::Int64, WireValue::Varint(value)) => number(of, value),
        (Type::Double, WireValue::Fixed64(bits)) => {
            let value = f64::from_bits(bits);
            if !value.is_finite() {
                return Err(Fault::Value);
            }
            Value::Double(value)
        }
        _ => return Err(Fault::WireType),
    })
}

fn number<'a>(of: Type, value: u64) -> Value<'a> {
    #[expect(clippy::cast_possible_truncation, reason = "protobuf takes the low bits")]
    match of {
        Type::Bool => Value::Bool(value != 0),
        Type::Int32 => Value::Int(i64::from((value as u32).cast_signed())),
        _ => Value::Int(value.cast_signed()),
    }
}

/// Returns the JSON form of a message.
fn message_value<'a>(root: &'a [u8], message: &'static Message, pieces: Pieces) -> Result<Value<'a>, Fault> {
    Ok(match message.form {
        Form::Object => {
            Value::Object(Object { root, place: Place { form: PlaceForm::Message(message), pieces }, type_meta: None })
        }
        Form::Items => place_value(root, message, &pieces, 0)?,
        Form::Or => {
            let has_second = match message.fields().get(1) {
                Some(second) => !find_field(root, second, &pieces)?.is_empty(),
                None => false,
            };
            place_value(root, message, &pieces, usize::from(has_second))?
        }
        Form::Raw => match Single::read(root, message, &pieces)?.text {
            // Whoever reads an object or a list checks its syntax.
            Some(raw @ [b'{' | b'[', ..]) => json::value::value(root, raw)?,
            Some(raw @ [_, ..]) => json::value::whole(root, raw).map_err(|_| Fault::Value)?,
            _ => Value::Null,
        },
        Form::Time | Form::MicroTime => {
            let Single { numbers: [seconds, nanos, _], is_empty, .. } = Single::read(root, message, &pieces)?;
            let nanos = (message.form == Form::MicroTime).then_some(nanos);
            if is_empty || is_zero_seconds(seconds, nanos) {
                return Ok(Value::Null);
            }
            quoted(|out| write_time(seconds, nanos, out))?
        }
        Form::Duration => {
            let nanos = Single::read(root, message, &pieces)?.numbers[0];
            quoted(|out| {
                write_duration(nanos, out);
                Ok(())
            })?
        }
        Form::Quantity => match Single::read(root, message, &pieces)?.text {
            // Go never writes an empty quantity.
            Some([]) => return Err(Fault::Value),
            Some(quantity) => Value::String(utf8::replaced(quantity)),
            None => Value::String(Cow::Borrowed("0")),
        },
        Form::IntOrString => {
            let Single { numbers: [kind, int, _], text, .. } = Single::read(root, message, &pieces)?;
            match kind {
                0 => Value::Int(int),
                1 => Value::String(utf8::replaced(text.unwrap_or_default())),
                _ => return Err(Fault::Value),
            }
        }
    })
}

/// Returns the value of the field at this place of a message whose JSON form is one of its fields.
fn place_value<'a>(
    root: &'a [u8],
    message: &'static Message,
    pieces: &Pieces,
    place: usize,
) -> Result<Value<'a>, Fault> {
    match message.fields().get(place) {
        Some(field) => written_value(root, field, &find_field(root, field, pieces)?),
        None => Ok(Value::Null),
    }
}

/// Returns the contents of a string without escapes, which a writer of JSON writes with its quotes.
fn quoted<'a>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>) -> Result<Value<'a>, Fault> {
    let mut out = Vec::with_capacity(32);
    write(&mut out)?;
    out.pop();
    out.drain(..1.min(out.len()));
    let text = String::from_utf8(out).map_err(|_| Fault::Utf8)?;
    Ok(Value::String(text.into()))
}

/// The fields of a message whose JSON form is a single value.
#[derive(Default)]
struct Single<'a> {
    /// By the places of the fields.
    numbers: [i64; 3],
    text: Option<&'a [u8]>,
    is_empty: bool,
}

impl<'a> Single<'a> {
    fn read(root: &'a [u8], message: &Message, pieces: &Pieces) -> Result<Self, Fault> {
        let mut single = Self { is_empty: true, ..Self::default() };
        for piece in pieces.slices(root) {
            for read in Fields::new(piece) {
                let read = read?;
                single.is_empty = false;
                let place = message.fields().iter().position(|field| field.number() == read.number);
                let Some((place, field)) = place.and_then(|place| Some((place, message.fields().get(place)?))) else {
                    continue;
                };
                match (field.of, read.value) {
                    (Type::String | Type::Bytes, value) => single.text = Some(value.bytes()?),
                    (Type::Int32 | Type::Int64, WireValue::Varint(value)) => {
                        if let (Some(slot), Value::Int(int)) = (single.numbers.get_mut(place), number(field.of, value))
                        {
                            *slot = int;
                        }
                    }
                    _ => return Err(Fault::WireType),
                }
            }
        }
        Ok(single)
    }
}

/// Calls `each` with every element of a list.
pub(crate) fn elements<'a, E: From<Fault>>(
    root: &'a [u8],
    field: &'static Field,
    pieces: &Pieces,
    mut each: impl FnMut(Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for piece in pieces.slices(root) {
        for read in Fields::new(piece) {
            let read = read?;
            if read.number != field.number() {
                continue;
            }
            match (field.of.message(), read.value) {
                (Some(message), value) => each(message_value(root, message, Pieces::one(root, value.bytes()?))?)?,
                (None, WireValue::Len(packed)) if is_number(field.of) => {
                    let mut varint = Varint::default();
                    for &byte in packed {
                        if let Some(value) = varint.push(byte)? {
                            each(number(field.of, value))?;
                            varint = Varint::default();
                        }
                    }
                    if !varint.is_empty() {
                        return Err(Fault::PastParent.into());
                    }
                }
                (None, value) => each(scalar(field.of, value)?)?,
            }
        }
    }
    Ok(())
}

/// Calls `each` with every key of a map and its entry, in the order of the keys, each key once with its last entry.
pub(crate) fn entries<'a, E: From<Fault>>(
    root: &'a [u8],
    field: &Field,
    pieces: &Pieces,
    mut each: impl FnMut(Key<'a>, &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut entries: Vec<(&[u8], &[u8])> = Vec::new();
    let mut is_sorted = true;
    for piece in pieces.slices(root) {
        for read in Fields::new(piece) {
            let read = read?;
            if read.number == field.number() {
                let bytes = read.value.bytes()?;
                let key = key_of(bytes)?;
                is_sorted &= entries.last().is_none_or(|(last, _)| *last < key);
                entries.push((key, bytes));
            }
        }
    }
    if !is_sorted {
        entries.reverse();
        entries.sort_by_key(|(key, _)| *key);
        entries.dedup_by_key(|(key, _)| *key);
    }
    for (key, bytes) in entries {
        each(Key::Text(utf8::replaced(key)), bytes)?;
    }
    Ok(())
}

/// Returns the last entry of this key.
pub(crate) fn find_entry<'a>(
    root: &'a [u8],
    field: &Field,
    pieces: &Pieces,
    key: &str,
) -> Result<Option<&'a [u8]>, Fault> {
    let mut found = None;
    for piece in pieces.slices(root) {
        for read in Fields::new(piece) {
            let read = read?;
            if read.number == field.number() {
                let bytes = read.value.bytes()?;
                let own = entry(read.value)?.0;
                if own == key.as_bytes() || utf8::replaced(own) == key {
                    found = Some(bytes);
                }
            }
        }
    }
    Ok(found)
}

/// Returns the value of a map's entry. As in Go, an absent value is empty and not null.
pub(crate) fn entry_value<'a>(root: &'a [u8], field: &Field, bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
    let mut last = None;
    let mut pieces = Vec::new();
    for read in Fields::new(bytes) {
        let read = read?;
        if read.number == 2 {
            last = Some(read.value);
            if matches!(field.of, Type::Message(_)) {
                pieces.push(Pieces::range_in(root, read.value.bytes()?));
            }
        }
    }
    match (field.of.message(), last) {
        (Some(message), _) => {
            let pieces = Pieces::from_ranges(pieces.into_iter());
            match (message.form, message.fields().first()) {
                (Form::Items, Some(items)) => {
                    let place = Place { form: PlaceForm::Repeated(items), pieces };
                    Ok(Value::Array(Array { root, place }))
                }
                _ => message_value(root, message, pieces),
            }
        }
        (None, Some(value)) => scalar(field.of, value),
        (None, None) if field.of == Type::Bytes => Ok(Value::String(Cow::Borrowed(""))),
        (None, None) => Ok(zero(field.of)),
    }
}
