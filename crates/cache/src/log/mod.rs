//! The change log: the changes of a collection in order, for readers that resume.

pub(crate) mod change;
pub(crate) mod change_log;
pub(crate) mod contents;
pub(crate) mod frames;
pub(crate) mod open_log;
#[cfg(test)]
mod tests;
