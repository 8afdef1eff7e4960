//! The sans-IO core: the decoders, their adapters, and functions that read single items. It also compiles without features.

mod adapters;
#[cfg(feature = "json")]
mod encode;
mod encodings;
mod inspect;
#[cfg(feature = "json")]
mod json_form;
#[cfg(feature = "json")]
mod json_lists;
mod lists;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;
mod watch;
