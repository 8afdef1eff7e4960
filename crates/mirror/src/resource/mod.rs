//! The resources that a mirror answers from caches.

mod confirmations;
mod current_version;
mod mirrored;
mod paged_snapshots;
mod set;
mod table_printer;

pub use self::mirrored::Mirrored;
pub(crate) use self::mirrored::{IncompleteObjects, ReadSource, ResourceStatus};
pub use self::set::MirroredSet;
pub(crate) use self::table_printer::TablePrinter;
