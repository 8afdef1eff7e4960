//! The metadata of an object in protobuf.
//!
//! The numbers of the fields are from `ObjectMeta`, `OwnerReference`, `ManagedFieldsEntry` and `Time` in
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::wire::{Fields, Value, WireField, entry};
use crate::encoding::codec;
use crate::encoding::meta_parts::{ManagedFieldsEntry, OwnerReference, SingleFields, Time};
use crate::encoding::utf8::replaced;
use crate::error::{Fault, ItemError};

/// The times of the metadata, and the object from which maps and lists are read. The fields of its metadata are
/// checked, but not the contents of maps and lists.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProtobufMetadata<'a> {
    object: &'a [u8],
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

/// Reads the single fields of the metadata into `single`, and checks the other fields.
pub(crate) fn read<'a>(object: &'a [u8], single: &mut SingleFields<'a>) -> Result<ProtobufMetadata<'a>, ItemError> {
    let mut rest = ProtobufMetadata { object, ..ProtobufMetadata::default() };
    for field in Fields::new(object) {
        let field = field.map_err(at("the object"))?;
        if field.number == METADATA {
            merge(single, &mut rest, field.value.bytes().map_err(at("metadata"))?)?;
        }
    }
    Ok(rest)
}

fn merge<'a>(
    single: &mut SingleFields<'a>,
    rest: &mut ProtobufMetadata<'a>,
    metadata: &'a [u8],
) -> Result<(), ItemError> {
    for field in Fields::new(metadata) {
        let field = field.map_err(at("metadata"))?;
        let value = field.value;
        match field.number {
            1 => single.name = value.text().map_err(at("metadata.name"))?,
            2 => single.generate_name = value.text().map_err(at("metadata.generateName"))?,
            3 => single.namespace = value.text().map_err(at("metadata.namespace"))?,
            5 => single.uid = value.text().map_err(at("metadata.uid"))?,
            6 => single.resource_version = value.text().map_err(at("metadata.resourceVersion"))?,
            7 => single.generation = value.int().map_err(at("metadata.generation"))?,
            8 => merge_time(&mut rest.creation_timestamp, value).map_err(at("metadata.creationTimestamp"))?,
            9 => merge_time(&mut rest.deletion_timestamp, value).map_err(at("metadata.deletionTimestamp"))?,
            10 => {
                let seconds = value.int().map_err(at("metadata.deletionGracePeriodSeconds"))?;
                single.deletion_grace_period_seconds = Some(seconds);
            }
            _ => {}
        }
    }
    Ok(())
}

impl<'a> codec::Metadata<'a> for ProtobufMetadata<'a> {
    fn creation_timestamp(self) -> Result<Option<Time>, Fault> {
        Ok(self.creation_timestamp)
    }

    fn deletion_timestamp(self) -> Result<Option<Time>, Fault> {
        Ok(self.deletion_timestamp)
    }

    fn labels(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        map(self.object, LABELS)
    }

    fn label(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        value_of(self.object, LABELS, key)
    }

    fn annotations(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        map(self.object, ANNOTATIONS)
    }

    fn annotation(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        value_of(self.object, ANNOTATIONS, key)
    }

    fn owner_references(self) -> Result<impl Iterator<Item = OwnerReference<'a>>, Fault> {
        each(self.object, OWNER_REFERENCES, owner)
    }

    fn finalizers(self) -> Result<impl Iterator<Item = Cow<'a, str>>, Fault> {
        each(self.object, FINALIZERS, Value::text)
    }

    fn managed_fields(self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>>, Fault> {
        each(self.object, MANAGED_FIELDS, manager)
    }
}

const METADATA: u32 = 1;
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
const OWNER_REFERENCES: u32 = 13;
const FINALIZERS: u32 = 14;
const MANAGED_FIELDS: u32 = 17;

/// Returns the values of a field of the metadata, in the order of the object. An error is the last value.
fn values(object: &[u8], number: u32) -> impl Iterator<Item = Result<Value<'_>, Fault>> {
    let pieces = Fields::new(object).filter(|piece| !matches!(piece, Ok(piece) if piece.number != METADATA));
    pieces.flat_map(move |piece| {
        let (fields, fault) = match piece.and_then(|piece| piece.value.bytes()) {
            Ok(piece) => (Fields::new(piece), None),
            Err(fault) => (Fields::new(&[]), Some(Err(fault))),
        };
        let found = fields.filter(move |field| !matches!(field, Ok(field) if field.number != number));
        found.map(|field| field.map(|field| field.value)).chain(fault)
    })
}

/// Checks all values of a field of the metadata, and then reads them one at a time.
///
/// An element of two bytes may become 200 bytes, so they are not all kept.
fn each<'a, T>(
    object: &'a [u8],
    number: u32,
    read: impl Fn(Value<'a>) -> Result<T, Fault>,
) -> Result<impl Iterator<Item = T>, Fault> {
    values(object, number).try_for_each(|value| read(value?).map(drop))?;
    Ok(values(object, number).filter_map(move |value| read(value.ok()?).ok()))
}

/// Reads a map, and returns its entries in the order of their keys. A map of bytes is cheaper to build than a map of
/// `Cow`.
fn map(object: &[u8], number: u32) -> Result<impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)>, Fault> {
    let mut map = BTreeMap::new();
    for value in values(object, number) {
        let (key, value) = entry(value?)?;
        map.insert(key, value);
    }
    Ok(map.into_iter().map(|(key, value)| (replaced(key), replaced(value))))
}

/// Returns the value of a key in a map of the metadata.
fn value_of<'a>(object: &'a [u8], number: u32, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
    let found = values(object, number).try_fold(None, |found, value| {
        let (known, value) = entry(value?)?;
        Ok(if known == key.as_bytes() { Some(value) } else { found })
    })?;
    Ok(found.map(replaced))
}

fn merge_time(time: &mut Option<Time>, value: Value<'_>) -> Result<(), Fault> {
    for field in Fields::new(value.bytes()?) {
        let field = field?;
        match field.number {
            1 => time.get_or_insert_default().seconds = field.value.int()?,
            2 => time.get_or_insert_default().nanos = int32(field.value)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns an int32, which is encoded as an int64 and read from its lower half.
#[expect(clippy::cast_possible_truncation)]
fn int32(value: Value<'_>) -> Result<i32, Fault> {
    Ok(value.int()? as i32)
}

fn owner(value: Value<'_>) -> Result<OwnerReference<'_>, Fault> {
    let mut owner = OwnerReference::default();
    for field in Fields::new(value.bytes()?) {
        let WireField { number, value, .. } = field?;
        match number {
            1 => owner.kind = value.text()?,
            3 => owner.name = value.text()?,
            4 => owner.uid = value.text()?,
            5 => owner.api_version = value.text()?,
            6 => owner.controller = value.int()? != 0,
            7 => owner.block_owner_deletion = value.int()? != 0,
            _ => {}
        }
    }
    Ok(owner)
}

fn manager(value: Value<'_>) -> Result<ManagedFieldsEntry<'_>, Fault> {
    let mut entry = ManagedFieldsEntry::default();
    for field in Fields::new(value.bytes()?) {
        let WireField { number, value, .. } = field?;
        match number {
            1 => entry.manager = value.text()?,
            2 => entry.operation = value.text()?,
            3 => entry.api_version = value.text()?,
            4 => merge_time(&mut entry.time, value)?,
            6 => entry.fields_type = value.text()?,
            7 => {
                for field in Fields::new(value.bytes()?) {
                    let field = field?;
                    if field.number == 1 {
                        entry.fields_v1 = field.value.bytes()?;
                    }
                }
            }
            8 => entry.subresource = value.text()?,
            _ => {}
        }
    }
    Ok(entry)
}

fn at(field: &'static str) -> impl Fn(Fault) -> ItemError {
    move |fault| ItemError::Metadata { field, fault }
}
