//! Answers GETs, lists and watches from the caches.

mod cache_read;
mod continue_token;
mod freshness;
mod get;
mod handler;
mod list;
mod read_encoder;
mod read_pool;
mod select;
mod table_encoder;
mod watch;
mod watch_hub;
mod watch_routes;

#[cfg(test)]
pub(crate) use self::handler::LAG;
pub(crate) use self::handler::ReadHandler;
