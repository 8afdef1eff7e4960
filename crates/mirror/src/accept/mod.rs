//! Accepts connections: the listener, TLS, HTTP, and the limits on readers.

mod connections;
mod heads;
mod http;
mod listener;
mod open_responses;
mod reader;
mod stall;
mod streams;
mod tls;

pub(crate) use self::connections::Connections;
pub(crate) use self::http::{HttpServer, RequestHandler};
pub(crate) use self::listener::serve_listener;
pub(crate) use self::reader::Reader;
pub(crate) use self::tls::{CertificateFiles, ServingCertificate};
