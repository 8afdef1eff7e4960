//! What the test programs with a client share, in addition to what all of them share.
#![allow(dead_code, missing_docs, reason = "each test program uses a part of it")]

#[path = "mod.rs"]
mod sans_io;

pub mod log;
pub mod opening;
pub mod server;
pub mod transport;
pub mod world;

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use self::sans_io::*;
