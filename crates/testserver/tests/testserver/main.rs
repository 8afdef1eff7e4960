//! Tests of the servers over sockets: what they send, interrupt, count and record, and how they end. One module per
//! promise.

mod answers;
mod client;
mod faults;
mod goaway;
mod raw;
mod synthesize;
#[cfg(feature = "tls")]
mod tls;
