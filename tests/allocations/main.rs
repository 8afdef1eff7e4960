//! Memory, counted allocation by allocation. A program of its own, for the counter is of the process.

mod decode;
mod store;
#[path = "../support/mod.rs"]
mod support;
