//! The memory that decoders allocate, counted. It is a separate program: the counter replaces the allocator.

mod decode;
mod decoded_size;
mod selectors;
#[path = "../support/mod.rs"]
mod support;
