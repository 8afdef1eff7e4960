//! The client over HTTP: requests, pages, retries, limits and secrets.

#![cfg(feature = "http")]
#![allow(clippy::duplicate_mod, reason = "the fuzz targets have `tests/support` as a module of their own")]

mod beginnings;
mod codings;
mod discovery;
mod exec;
mod fuzz;
mod gets;
mod lists;
mod middle_page;
mod not_acceptable;
mod oidc;
mod pages;
mod resolve;
mod runtimes;
mod secrets;
mod service;
#[path = "../support/client.rs"]
mod support;
mod time;
mod trace;
mod transport;
mod unrequested_pages;
