//! Watches: [`Watch`] resumes where a connection ended, and [`WatchEvents`] are the events of one connection.
//!
//! | module | holds |
//! |---|---|
//! | `event` | what a watch delivers |
//! | `delivered` | the version from which a watch resumes, and the events that it has delivered since |
//! | `idle` | when a silent connection counts as dead |
//! | `plan` | the settings of a watch |
//! | `connection` | one connection: its request, its bytes, and the checks of each event |
//! | `events` | [`WatchEvents`], the stream over one connection |
//! | `phase` | which part of the collection is requested next |
//! | `resume` | what follows the end of a connection |
//! | `connections` | the connections, one after the other; independent of the objects' type |
//! | `merge` | the connections of several namespaces |
//! | `stream` | [`Watch`], the stream over all connections |
//!
//! A module imports only modules above it.

mod connection;
mod connections;
mod delivered;
mod event;
mod events;
mod idle;
mod merge;
mod phase;
mod plan;
mod resume;
mod stream;

pub use self::connections::Connections;
pub use self::event::WatchEvent;
pub use self::events::WatchEvents;
pub use self::resume::{Disconnect, PAGE};
pub use self::stream::Watch;
