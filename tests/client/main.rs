//! The client over HTTP: requests, pages, retries, limits and secrets.

mod discovery;
mod fuzz;
mod lists;
mod pages;
mod parallel;
mod secrets;
mod selectors;
#[path = "../support/mod.rs"]
mod support;
mod time;
mod trace;
mod transport;
