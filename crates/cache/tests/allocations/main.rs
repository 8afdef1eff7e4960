//! The memory that stores allocate, counted. It is a separate program: the counter replaces the allocator.

mod store;
#[path = "../../../../tests/support/mod.rs"]
mod support;
