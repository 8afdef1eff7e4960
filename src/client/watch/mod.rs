//! Watches: [`Watch`] resumes where a connection ended, and [`WatchEvents`] are the events of one connection.
//!
//! `resume` decides what follows the end of a connection, and is the file to read first. `delivered` knows the version
//! from which a watch resumes, `plan` what is requested next, and `idle` when a silent connection counts as dead.
//!
//! | module | holds |
//! |---|---|
//! | `delivered` | the version from which a watch resumes, and the events that it has delivered since |
//! | `idle` | when a silent connection counts as dead |
//! | `plan` | the settings of a watch, and which part of the collection is requested next |
//! | `connection` | one connection: its request, its bytes, and the checks of each event |
//! | `events` | [`WatchEvent`], which a watch delivers, and [`WatchEvents`], the stream over one connection |
//! | `resume` | what follows the end of a connection |
//! | `connections` | the connections, one after the other; independent of the objects' type |
//! | `merge` | the connections of several namespaces |
//! | `stream` | [`Watch`], the stream over all connections |
//!
//! A module imports only modules above it.

mod connection;
mod connections;
mod delivered;
mod events;
mod idle;
mod merge;
mod plan;
mod resume;
mod stream;

pub use self::connections::Connections;
pub use self::events::{WatchEvent, WatchEvents};
pub use self::resume::{Disconnect, PAGE};
pub use self::stream::Watch;
