#![doc = include_str!("../README.md")]

// A request passes through `accept`, `request`, `authorize`, `negotiate` and `answer` or `forward`; `pipeline.rs` tells
// all its steps. `.ci/imports --order` prints the modules, lowest first.

mod accept;
mod access_log;
mod answer;
mod authorize;
mod fairness;
mod forward;
mod metrics;
mod mirror;
mod negotiate;
mod own_pages;
mod pipeline;
mod request;
mod resource;
mod response;
mod settings;
mod shutdown;
#[cfg(test)]
mod testing;

pub use self::mirror::Mirror;
pub use self::resource::{Mirrored, MirroredSet};
pub use self::settings::{Access, Limits};
