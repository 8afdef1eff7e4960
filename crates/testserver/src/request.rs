//! The requests that handlers get.

use hyper::{HeaderMap, Method, Version};

/// A request, as it arrived. The server does not read its body.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// `GET` for lists and watches.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// All headers; the names are in lower case.
    pub headers: HeaderMap,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
}
