//! Authorizes requests: the API server reviews the token and the rights of each reader.
//!
//! `authorizer.rs` decides, `reviewer.rs` writes reviews, `review_cache.rs` shares and keeps their results for seconds,
//! and `review_client.rs` sends them in fair queues.

mod authorizer;
mod error;
mod review_cache;
mod review_client;
mod reviewer;

pub(crate) use self::authorizer::{Authorizer, Grant};
