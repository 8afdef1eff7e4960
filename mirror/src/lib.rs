//! Serves caches of Kubernetes collections over the Kubernetes API.
//!
//! A [`Mirror`] is a read-only API server. It answers lists, watches and GETs of the resources that it holds from their caches,
//! and forwards discovery and the rest to the API server. It is not a gateway, not a write path and not a substitute for
//! authorization.

#![allow(dead_code, reason = "until the reads answer from the caches")]

mod accept;
mod answer;
mod auth;
mod body;
mod forward;
mod health;
mod metrics;
mod mirror;
mod mirrored;
mod params;
mod reads;
mod request;
mod review;
mod server;
mod shared;
mod stall;
mod status;
mod ttl;

pub use self::mirror::{Access, Limits, Mirror};
pub use self::mirrored::{Mirrored, ResourceStatus};
