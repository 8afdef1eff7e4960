//! A list or a watch is decoded while it arrives: bytes in, items or events out. No IO, no async, no memory beyond one
//! split item.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod list;
mod list_fields;
#[cfg(feature = "json")]
mod list_json;
mod list_protobuf;
mod watch;
#[cfg(feature = "json")]
mod watch_json;

pub use list::{Event, ListDecoder, ListEnd};
pub use watch::{WatchDecoder, WatchEvent};
