#![doc = include_str!("../README.md")]

mod accept;
mod answer;
mod auth;
mod body;
mod forward;
mod gzip;
mod health;
mod metrics;
mod mirror;
mod mirrored;
mod params;
mod queue;
mod reads;
mod request;
mod review;
mod server;
mod shared;
mod stall;
mod status;
#[cfg(test)]
mod testing;
mod tls;
mod ttl;

pub use self::mirror::{Access, Limits, Mirror};
pub use self::mirrored::Mirrored;
