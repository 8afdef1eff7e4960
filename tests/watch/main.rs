//! Watches of the client: single connections, and those that resume.

mod connections;
mod model;
#[path = "../support/mod.rs"]
mod support;
