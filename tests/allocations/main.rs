//! The memory that decoders and stores allocate, counted. It is a separate program: the counter replaces the allocator.

mod decode;
mod store;
#[path = "../support/mod.rs"]
mod support;
