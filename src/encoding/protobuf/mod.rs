//! Protobuf.

pub(crate) mod canonical;
pub(crate) mod estimate;
pub(crate) mod list;
pub(crate) mod list_fields;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod projection;
pub(crate) mod to_json;
pub(crate) mod unknown;
pub(crate) mod wire;
pub(crate) mod write;
pub(crate) mod zero;
