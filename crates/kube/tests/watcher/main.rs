//! This crate's watcher and kube's report the same events and errors, and send the same requests, for the same
//! responses.

mod apis;
mod projections;
mod situations;
mod support;
