//! Authorizes requests: the API server reviews the token and the rights of each reader.

mod authorizer;
mod error;
mod review_cache;
mod review_client;
mod reviewer;

pub(crate) use self::authorizer::{Authorizer, Grant};
