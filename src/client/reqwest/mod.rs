//! The transport over reqwest.
//!
//! | module | holds |
//! |---|---|
//! | `errors` | reqwest's errors as [`TransportError`](super::TransportError) |
//! | `settings` | the settings of a `reqwest::Client`: TLS and proxy |
//! | `transport` | [`HttpTransport`]: it sends requests, and rebuilds its client when a certificate was replaced |
//! | `builder` | [`HttpTransportBuilder`] |

mod builder;
mod errors;
mod settings;
mod transport;

pub use self::builder::HttpTransportBuilder;
pub use self::transport::HttpTransport;
