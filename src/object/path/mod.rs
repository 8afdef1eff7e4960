//! Paths to single fields of an object, by names or numbers.
//!
//! | file | holds |
//! |---|---|
//! | `walk` | the walk to all values at the end of a path, in either encoding |
//! | `field_path` | [`FieldPath`]: how it is built and parsed, and reads by it |
//! | `known` | paths of common fields |
//!
//! Read this before a change.
//!
//! - A read returns what decoding returns: the last of several values counts, and messages in pieces are merged.
//!   `tests/core/inspect.rs` compares both.
//! - So `str` walks to the last value and does not stop at the first. Malformed bytes after it are errors too.
//! - Only the messages on the path are walked. Bytes elsewhere are skipped by their lengths and not checked.
//! - The numbers of a path bound the stack of messages in protobuf. The names of a path bound the recursion in JSON.
//! - In JSON all values are found before the first is returned. A fault after them is returned last.
//! - A path without numbers leads nowhere in protobuf, and is refused only if it has names. Never return "absent"
//!   instead.
//! - JSON inlines some messages into their parents. So a path may have more numbers than names, and `parse` checks that
//!   names and numbers lead to the same field.

mod field_path;
mod known;
mod walk;

pub use self::field_path::FieldPath;
pub use self::known::{meta, pod};
pub(super) use self::walk::key_of;
