//! Stores: objects, indexes, subscribers, files.

mod delta_groups;
mod model;
mod save;
mod predicates;
mod store;
mod subscribe;
#[path = "../../../tests/support/client.rs"]
mod support;
mod trained;
mod user_code;
mod volumes;
