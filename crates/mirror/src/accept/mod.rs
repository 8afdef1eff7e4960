//! Accepts connections: the listener, TLS, HTTP, and the limits on readers.

mod http;
mod listener;
mod open_responses;
mod reader;
mod stall;
mod tls;

pub(crate) use self::http::{HttpServer, RequestHandler};
pub(crate) use self::listener::serve_listener;
pub(crate) use self::reader::{Peer, Reader};
pub(crate) use self::tls::{CertificateFiles, ServingCertificate};
