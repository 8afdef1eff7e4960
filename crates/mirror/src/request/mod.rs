//! Reads requests: filters them, and derives what they ask for by the rules of the API server.

mod attributes;
mod filter;
mod info;
mod list_options;
mod path;
mod query;

pub(crate) use self::attributes::{Attributes, ReadVerb, ResourceAttributes};
pub(crate) use self::filter::{ListenerPort, RequestFilter};
pub(crate) use self::info::{OwnPage, ReadRequest, RequestInfo, RequestRoute};
pub(crate) use self::list_options::{IncludeObject, ListOptions, ResourceVersionMatch};
pub(crate) use self::query::QueryPairs;
