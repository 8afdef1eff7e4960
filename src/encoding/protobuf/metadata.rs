//! The parts of an object's metadata in protobuf.
//!
//! The numbers of the fields are from `OwnerReference`, `ManagedFieldsEntry` and `Time` in
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`.

use crate::encoding::meta_parts::{ManagedFieldsEntry, OwnerReference, Time};
use crate::encoding::protobuf::wire::{Fields, Value, WireField};
use crate::error::Fault;

pub(crate) fn merge_time(time: &mut Option<Time>, value: Value<'_>) -> Result<(), Fault> {
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

/// An int32 is written as an int64, and read by its lower half.
#[expect(clippy::cast_possible_truncation)]
fn int32(value: Value<'_>) -> Result<i32, Fault> {
    Ok(value.int()? as i32)
}

pub(crate) fn owner(value: Value<'_>) -> Result<OwnerReference<'_>, Fault> {
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

pub(crate) fn manager(value: Value<'_>) -> Result<ManagedFieldsEntry<'_>, Fault> {
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
