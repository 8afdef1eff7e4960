//! The memory that decoders and stores allocate, counted. It is a separate program: the counter replaces the allocator.

mod decode;
mod decoded_size;
mod store;
#[path = "../support/mod.rs"]
mod support;
