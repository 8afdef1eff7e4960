//! What protobuf and JSON do differently, a folder for each.

pub(crate) mod body_state;
pub(crate) mod json;
pub(crate) mod layout;
pub(crate) mod meta_parts;
pub(crate) mod projection_rules;
pub(crate) mod protobuf;
pub(crate) mod utf8;
