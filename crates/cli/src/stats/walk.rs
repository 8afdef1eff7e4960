//! Sums the sizes of each field over all objects of a collection.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use listwatch::schema::Message;
use listwatch::{ItemError, ItemRef};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::value::RawValue;

/// The maximum number of distinct names, and of bytes in a name. Both keep memory constant.
pub const MAX_NAMES: usize = 10_000;
const MAX_NAME: usize = 512;

/// The sizes of all fields, down to a depth.
///
/// A field in protobuf is its tag, its length and its value. In JSON it is its quoted name, the colon, its value and a
/// comma.
pub struct FieldSizes {
    root: FieldNode,
    depth: usize,
    tally: FieldTally,
}

/// The number of the current item, from 1, and of the names that are left until [`MAX_NAMES`].
struct FieldTally {
    item: u64,
    room: usize,
}

#[derive(Default)]
pub struct FieldNode {
    pub bytes: u64,
    /// The number of items that have the field.
    pub items: u64,
    /// The last item that has the field, so that an item counts once.
    last_item: u64,
    /// Sorted by number.
    pub numbers: Vec<(u32, FieldNode)>,
    /// Members of JSON, and keys of maps.
    pub names: HashMap<Box<str>, FieldNode>,
    /// The size of the fields and keys over [`MAX_NAMES`].
    pub others: u64,
}

impl FieldSizes {
    /// Keys of annotations count as if they were one level higher.
    pub fn new(depth: usize) -> Self {
        Self { root: FieldNode::default(), depth, tally: FieldTally { item: 0, room: MAX_NAMES } }
    }

    pub fn add_item(&mut self, item: &ItemRef<'_>, kind: Option<&'static Message>) -> Result<(), ItemError> {
        let Self { root, depth, tally } = self;
        tally.item += 1;
        if let Some(message) = item.as_message() {
            add_message(root, message, kind, *depth, tally)?;
            return Ok(());
        }
        let mut line = Vec::new();
        let object = if let Some(json) = item.as_json() {
            json
        } else {
            item.to_json(&mut line)?;
            &line
        };
        let object = String::from_utf8_lossy(object);
        add_object(root, &object, "", *depth, tally).map_err(ItemError::other)
    }

    pub fn root(&self) -> &FieldNode {
        &self.root
    }
}

impl FieldNode {
    fn child_by_number(&mut self, number: u32, bytes: usize, tally: &mut FieldTally) -> Option<&mut Self> {
        let at = self.numbers.partition_point(|(known, _)| *known < number);
        if self.numbers.get(at).is_none_or(|(known, _)| *known != number) {
            if tally.room == 0 {
                self.others += bytes as u64;
                return None;
            }
            tally.room -= 1;
            self.numbers.insert(at, (number, Self::default()));
        }
        Some(self.numbers[at].1.count_bytes(bytes, tally))
    }

    fn child_by_name(&mut self, name: &str, bytes: usize, tally: &mut FieldTally) -> Option<&mut Self> {
        let name = truncate_name(name);
        if !self.names.contains_key(&*name) {
            if tally.room == 0 {
                self.others += bytes as u64;
                return None;
            }
            tally.room -= 1;
            self.names.insert(name.as_ref().into(), Self::default());
        }
        Some(self.names.get_mut(&*name)?.count_bytes(bytes, tally))
    }

    fn count_bytes(&mut self, bytes: usize, tally: &FieldTally) -> &mut Self {
        self.bytes += bytes as u64;
        self.items += u64::from(self.last_item != tally.item);
        self.last_item = tally.item;
        self
    }
}

/// Truncates a name that is longer than Kubernetes allows.
pub fn truncate_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return name.into();
    }
    let end = (0..=MAX_NAME).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &name[..end]).into()
}

/// Adds the fields of a message, recursively up to `depth`. A message that JSON inlines does not count as a level.
fn add_message(
    node: &mut FieldNode,
    mut bytes: &[u8],
    message: Option<&'static Message>,
    depth: usize,
    tally: &mut FieldTally,
) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let ProtobufField { number, value, size } = ProtobufField::take(&mut bytes)?;
        let Some(child) = node.child_by_number(number, size, tally) else { continue };
        let (Some(value), Some(message)) = (value, message) else { continue };
        let Some(field) = message.field(number) else { continue };
        if field.is_map() {
            if depth > 1 || (message.name() == "ObjectMeta" && field.name() == "annotations") {
                child.child_by_name(&entry_key(value)?, size, tally);
            }
        } else if let Some(inner) = field.message().filter(|message| message.is_object()) {
            match depth {
                _ if field.name().is_empty() => add_message(child, value, Some(inner), depth, tally)?,
                0 | 1 => {}
                _ => add_message(child, value, Some(inner), depth - 1, tally)?,
            }
        }
    }
    Ok(())
}

/// A protobuf field.
struct ProtobufField<'a> {
    number: u32,
    /// The value, if the field is length-delimited.
    value: Option<&'a [u8]>,
    size: usize,
}

impl<'a> ProtobufField<'a> {
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
fn entry_key(mut entry: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    let mut key = &[][..];
    while !entry.is_empty() {
        if let ProtobufField { number: 1, value: Some(value), .. } = ProtobufField::take(&mut entry)? {
            key = value;
        }
    }
    Ok(String::from_utf8_lossy(key))
}

/// Adds the members of a JSON object, recursively up to `depth`. `name` is the object's own name in its parent.
fn add_object(
    node: &mut FieldNode,
    object: &str,
    name: &str,
    depth: usize,
    tally: &mut FieldTally,
) -> Result<(), serde_json::Error> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object)?;
    for (member, value) in members {
        let value = value.get();
        // The 4 bytes are two quotes, a colon and a comma.
        let Some(child) = node.child_by_name(&member, member.len() + value.len() + 4, tally) else { continue };
        if depth <= 1 && !(name == "metadata" && member == "annotations") {
            continue;
        }
        let depth = depth.saturating_sub(1);
        if value.starts_with('{') {
            add_object(child, value, &member, depth, tally)?;
        } else if value.starts_with('[') {
            let elements: Vec<&RawValue> = serde_json::from_str(value)?;
            for element in elements.iter().filter(|element| element.get().starts_with('{')) {
                add_object(child, element.get(), &member, depth, tally)?;
            }
        }
    }
    Ok(())
}
