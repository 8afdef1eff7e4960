//! Stores: objects, indexes, subscribers, files.

mod decode_errors;
mod delays;
mod delta_groups;
mod dictionaries;
mod model;
mod predicates;
mod save;
mod steps;
mod store;
mod subscribe;
#[path = "../../../../tests/support/client.rs"]
mod support;
mod trained;
mod user_code;
mod volumes;
