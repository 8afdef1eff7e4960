//! The change log: the changes of a collection in order, for readers that resume.

pub(crate) mod change_log;
pub(crate) mod frames;
