//! The sans-IO core: the decoders, their adapters, and functions that read single items. It also compiles without
//! features.

mod adapters;
mod encode;
mod encodings;
mod inspect;
mod items;
mod json_form;
mod json_lists;
mod lists;
#[path = "../support/random.rs"]
mod random;
mod selectors;
mod statuses;
#[path = "../support/mod.rs"]
mod support;
mod watch;
