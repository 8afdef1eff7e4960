//! The servers, over sockets: what they send, break, count and record, and how they end. One module per promise.

mod amplify;
mod answers;
mod client;
mod faults;
mod goaway;
mod raw;
#[cfg(feature = "tls")]
mod tls;
