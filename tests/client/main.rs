//! The client over HTTP: requests, pages, retries, limits and secrets.

#![allow(clippy::duplicate_mod, reason = "the fuzz targets have `tests/support` as a module of their own")]

mod discovery;
mod fuzz;
mod lists;
mod middle_page;
mod pages;
mod parallel;
mod resolve;
mod secrets;
mod selectors;
#[path = "../support/mod.rs"]
mod support;
mod time;
mod trace;
mod transport;
