//! The fuzz targets as plain functions: libFuzzer calls them with generated inputs, `tests/client/fuzz.rs` with saved
//! ones.

pub mod http_error;
pub mod json_list;
pub mod list_decode;
pub mod list_differential;
pub mod meta_view;
pub mod projection;
pub mod selectors;
pub mod watch_decode;

#[allow(clippy::duplicate_mod, reason = "tests/client includes this file in addition to its own `support`")]
#[path = "../../tests/support/mod.rs"]
mod support;
