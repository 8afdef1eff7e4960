//! The decoders, the adapters and what reads single items: sans-IO, and without a feature but for JSON.

mod adapters;
mod faults;
mod fixtures;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod json_form;
mod look;
mod properties;
#[path = "../support/mod.rs"]
mod support;
mod watch;
