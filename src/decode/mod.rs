//! A list is decoded while it arrives: bytes in, items out. No IO, no async, no memory beyond one split item.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod decoder;
#[cfg(feature = "json")]
mod json;
mod protobuf;
#[cfg(feature = "json")]
mod scan;
mod schema;
mod sniff;
pub(crate) mod wire;

pub use decoder::{Encoding, Event, ItemRef, ListDecoder, ListEnd};
pub use sniff::Sniffed;
