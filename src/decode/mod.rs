//! The sans-IO decoders of lists and watches: bytes in, items or events out.
//!
//! They do no IO, need no async, and keep no more in memory than one item that is split over chunks.

mod event;
mod list;
mod watch;

pub use event::{Event, ListEnd, WatchEventRef};
pub use list::ListDecoder;
pub use watch::WatchDecoder;
