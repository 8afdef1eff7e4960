//! The parts of an object's metadata: times, owners and managers.

use std::borrow::Cow;

use crate::error::Fault;
use crate::wire::protobuf::{Fields, Value, WireField};

/// A point in time: UTC, since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Additional nanoseconds. The API server itself reads and writes whole seconds.
    pub nanos: i32,
}

/// The metadata without its maps and lists. Absent fields are empty, 0 or `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct SingleFields<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) generate_name: Cow<'a, str>,
    pub(super) namespace: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) generation: i64,
    /// This time and the next are `None` for an object in JSON.
    pub(super) creation_timestamp: Option<Time>,
    pub(super) deletion_timestamp: Option<Time>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: Cow<'a, str>,
    /// Its kind.
    pub kind: Cow<'a, str>,
    /// Its name; the owner is in the same namespace, or cluster-scoped.
    pub name: Cow<'a, str>,
    /// Its uid.
    pub uid: Cow<'a, str>,
    /// True if the owner is the controller that manages the object.
    pub controller: bool,
    /// True if a foreground deletion of the owner waits until the object is deleted.
    pub block_owner_deletion: bool,
}

/// The fields of an object that one manager set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagedFieldsEntry<'a> {
    /// The name of the manager.
    pub manager: Cow<'a, str>,
    /// `Apply` or `Update`.
    pub operation: Cow<'a, str>,
    /// The API version that the fields belong to.
    pub api_version: Cow<'a, str>,
    /// The time at which the manager last set them.
    pub time: Option<Time>,
    /// The format of the fields: `FieldsV1`.
    pub fields_type: Cow<'a, str>,
    /// The fields, as JSON text.
    pub fields_v1: &'a [u8],
    /// The subresource that the manager wrote to; empty for the object itself.
    pub subresource: Cow<'a, str>,
}

impl Time {
    pub(super) fn merge(time: &mut Option<Self>, value: Value<'_>) -> Result<(), Fault> {
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
}

/// An int32 is written as an int64, and read by its lower half.
#[expect(clippy::cast_possible_truncation)]
fn int32(value: Value<'_>) -> Result<i32, Fault> {
    Ok(value.int()? as i32)
}

impl<'a> OwnerReference<'a> {
    pub(super) fn read(value: Value<'a>) -> Result<Self, Fault> {
        let mut owner = Self::default();
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
}

impl<'a> ManagedFieldsEntry<'a> {
    pub(super) fn read(value: Value<'a>) -> Result<Self, Fault> {
        let mut entry = Self::default();
        for field in Fields::new(value.bytes()?) {
            let WireField { number, value, .. } = field?;
            match number {
                1 => entry.manager = value.text()?,
                2 => entry.operation = value.text()?,
                3 => entry.api_version = value.text()?,
                4 => Time::merge(&mut entry.time, value)?,
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
}
