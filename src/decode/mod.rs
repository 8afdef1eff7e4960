//! The sans-IO decoders of lists and watches: bytes in, items or events out. No IO, no async, no memory beyond one
//! split item.

mod event;
mod list;
mod watch;

pub use event::{Event, ListEnd, WatchEventRef};
pub use list::ListDecoder;
pub use watch::WatchDecoder;
