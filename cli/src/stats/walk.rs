//! Sums the sizes of each field over all objects of a collection.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use listwatch::schema::Message;
use listwatch::{Encoding, ItemError, ItemRef};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::value::RawValue;

/// The maximum number of distinct names, and of bytes in a name. Both keep memory constant.
pub const MAX_NAMES: usize = 10_000;
const MAX_NAME: usize = 512;

/// The sizes of all fields, down to a depth.
///
/// A field in protobuf is its tag, its length and its value; in JSON its quoted name, the colon, its value and a comma.
pub struct Fields {
    root: Node,
    depth: usize,
    room: usize,
}

#[derive(Default)]
pub struct Node {
    pub bytes: u64,
    /// Sorted by number.
    pub numbers: Vec<(u32, Node)>,
    /// Members of JSON, and keys of maps.
    pub names: HashMap<Box<str>, Node>,
    /// The size of the fields and keys over [`MAX_NAMES`].
    pub others: u64,
}

impl Fields {
    /// Keys of annotations count as if they were one level higher.
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

/// Truncates a name that is longer than Kubernetes allows.
pub fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return name.into();
    }
    let end = (0..=MAX_NAME).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &name[..end]).into()
}

/// Adds the fields of a message, recursively up to `depth`. A message that JSON inlines does not count as a level.
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

/// A protobuf field.
struct Field<'a> {
    number: u32,
    /// The value, if the field is length-delimited.
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

/// Returns the key of a map entry.
fn key_of(mut entry: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let mut key = &[][..];
    while !entry.is_empty() {
        if let Field { number: 1, value: Some(value), .. } = Field::take(&mut entry)? {
            key = value;
        }
    }
    Ok(String::from_utf8_lossy(key))
}

/// Adds the members of a JSON object, recursively up to `depth`. `name` is the object's own name in its parent.
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
        // The 4 bytes are two quotes, a colon and a comma.
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
