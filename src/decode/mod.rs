//! A list or a watch is decoded while it arrives: bytes in, items or events out. No IO, no async, no memory beyond one
//! split item.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod decoder;
mod frame;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod line;
mod protobuf;
mod schema;
mod sniff;
pub(crate) mod wire;

pub use decoder::{Encoding, Event, ItemRef, ListDecoder, ListEnd};
pub use frame::{Changed, WatchDecoder, WatchEvent};
pub use sniff::Sniffed;
