//! The parts of an object's metadata: times, owners and managers.

use std::borrow::Cow;

/// The times that have a JSON form in RFC 3339, in seconds since the Unix epoch: the years 0 to 9999. Go writes other
/// years with a sign or five digits, and cannot parse them.
pub(crate) const JSON_SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// A point in time, counted from the Unix epoch in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Additional nanoseconds. The API server itself reads and writes whole seconds.
    pub nanos: i32,
}

/// The metadata without its times, maps and lists. Absent fields are empty, 0 or `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SingleFields<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) generate_name: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
    pub(crate) generation: i64,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerReference<'a> {
    /// The group and version of the owner.
    pub api_version: Cow<'a, str>,
    /// The kind of the owner.
    pub kind: Cow<'a, str>,
    /// The name of the owner, which is in the same namespace or cluster-scoped.
    pub name: Cow<'a, str>,
    /// The uid of the owner.
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
    /// The format of the fields, which is `FieldsV1`.
    pub fields_type: Cow<'a, str>,
    /// The fields as JSON text.
    pub fields_v1: &'a [u8],
    /// The subresource that the manager wrote to; empty for the object itself.
    pub subresource: Cow<'a, str>,
}
