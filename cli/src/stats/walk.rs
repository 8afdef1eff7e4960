//! The sizes of the fields of each object, added up over a collection.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use listwatch::schema::Message;
use listwatch::{Encoding, ItemError, ItemRef};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::value::RawValue;

/// The most paths that are told apart, and the longest name of each in bytes: what keeps the memory constant.
pub const MAX_NAMES: usize = 10_000;
const MAX_NAME: usize = 512;

/// The sizes of all fields, down to a depth.
///
/// In protobuf a field takes its tag, its length and its value, in JSON its name, the colon, its value and a comma.
pub struct Fields {
    root: Node,
    depth: usize,
    room: usize,
}

#[derive(Default)]
pub struct Node {
    pub bytes: u64,
    /// In the order of the numbers.
    pub numbers: Vec<(u32, Node)>,
    /// Members of JSON, and keys of maps.
    pub names: HashMap<Box<str>, Node>,
    /// Of fields and keys that there was no room for.
    pub others: u64,
}

impl Fields {
    /// Keys of annotations count as one level less than they are deep.
    pub fn new(depth: usize) -> Self {
        Self { root: Node::default(), depth, room: MAX_NAMES }
    }

    pub fn add(&mut self, item: &ItemRef<'_>, kind: Option<&'static Message>) -> Result<(), ItemError> {
        let Self { root, depth, room } = self;
        match item.encoding() {
            Encoding::Protobuf => add_message(root, item.bytes(), kind, *depth, room)?,
            Encoding::Json => {
                let object = str::from_utf8(item.bytes()).map_err(ItemError::other)?;
                add_object(root, object, "", *depth, room).map_err(ItemError::other)?;
            }
            found => return Err(ItemError::WrongEncoding { found, expected: Encoding::Protobuf }),
        }
        Ok(())
    }

    pub fn root(&self) -> &Node {
        &self.root
    }
}

impl Node {
    fn number(&mut self, number: u32, bytes: usize, room: &mut usize) -> Option<&mut Self> {
        let at = self.numbers.partition_point(|(known, _)| *known < number);
        if self.numbers.get(at).is_none_or(|(known, _)| *known != number) {
            if *room == 0 {
                self.others += bytes as u64;
                return None;
            }
            *room -= 1;
            self.numbers.insert(at, (number, Self::default()));
        }
        let child = &mut self.numbers[at].1;
        child.bytes += bytes as u64;
        Some(child)
    }

    fn name(&mut self, name: &str, bytes: usize, room: &mut usize) -> Option<&mut Self> {
        let name = short(name);
        if !self.names.contains_key(&*name) {
            if *room == 0 {
                self.others += bytes as u64;
                return None;
            }
            *room -= 1;
            self.names.insert(name.as_ref().into(), Self::default());
        }
        let child = self.names.get_mut(&*name)?;
        child.bytes += bytes as u64;
        Some(child)
    }
}

/// A name, cut where it is longer than any that Kubernetes allows.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return name.into();
    }
    let end = (0..=MAX_NAME).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &name[..end]).into()
}

/// It recurs no deeper than `depth`, but for messages that JSON has the fields of among those of their parent.
fn add_message(
    node: &mut Node,
    mut bytes: &[u8],
    message: Option<&'static Message>,
    depth: usize,
    room: &mut usize,
) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let Field { number, value, size } = Field::take(&mut bytes)?;
        let Some(child) = node.number(number, size, room) else { continue };
        let (Some(value), Some(message)) = (value, message) else { continue };
        let Some(field) = message.field(number) else { continue };
        if field.is_map() {
            if depth > 1 || (message.name() == "ObjectMeta" && field.name() == "annotations") {
                child.name(&key_of(value)?, size, room);
            }
        } else if let Some(inner) = field.message().filter(|message| message.is_object()) {
            match depth {
                _ if field.name().is_empty() => add_message(child, value, Some(inner), depth, room)?,
                0 | 1 => {}
                _ => add_message(child, value, Some(inner), depth - 1, room)?,
            }
        }
    }
    Ok(())
}

/// A field of protobuf.
struct Field<'a> {
    number: u32,
    /// What it holds, if that has a length.
    value: Option<&'a [u8]>,
    size: usize,
}

impl<'a> Field<'a> {
    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let before = bytes.len();
        let (number, wire_type) = decode_key(bytes)?;
        let mut value = *bytes;
        skip_field(wire_type, number, bytes, DecodeContext::default())?;
        value = &value[..value.len() - bytes.len()];
        let has_length = wire_type == WireType::LengthDelimited;
        if has_length {
            decode_varint(&mut value)?;
        }
        Ok(Self { number, value: has_length.then_some(value), size: before - bytes.len() })
    }
}

/// The key of an entry of a map.
fn key_of(mut entry: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let mut key = &[][..];
    while !entry.is_empty() {
        if let Field { number: 1, value: Some(value), .. } = Field::take(&mut entry)? {
            key = value;
        }
    }
    Ok(String::from_utf8_lossy(key))
}

/// `name` is that of the object itself.
fn add_object(
    node: &mut Node,
    object: &str,
    name: &str,
    depth: usize,
    room: &mut usize,
) -> Result<(), serde_json::Error> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object)?;
    for (member, value) in members {
        let value = value.get();
        // With two quotes, a colon and a comma.
        let Some(child) = node.name(&member, member.len() + value.len() + 4, room) else { continue };
        if depth <= 1 && !(name == "metadata" && member == "annotations") {
            continue;
        }
        let depth = depth.saturating_sub(1);
        if value.starts_with('{') {
            add_object(child, value, &member, depth, room)?;
        } else if value.starts_with('[') {
            let elements: Vec<&RawValue> = serde_json::from_str(value)?;
            for element in elements.iter().filter(|element| element.get().starts_with('{')) {
                add_object(child, element.get(), &member, depth, room)?;
            }
        }
    }
    Ok(())
}
