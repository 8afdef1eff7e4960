//! The sans-IO decoders of lists and watches: bytes in, items or events out. No IO, no async, no memory beyond one
//! split item.
//!
//! The order of imports: `event`, `body_state` and `list_fields`, then `list_protobuf` and `list_json`, then `list`,
//! then `watch_frame`, `watch_json` and `watch`.

mod body_state;
mod event;
mod list;
mod list_fields;
mod list_json;
mod list_protobuf;
mod watch;
mod watch_frame;
mod watch_json;

pub use event::{Event, ListEnd, WatchEventRef};
pub use list::ListDecoder;
pub use watch::WatchDecoder;
