//! JSON.

pub(crate) mod line;
pub(crate) mod list;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod projection;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod text;
pub(crate) mod write;
