//! A loopback server that replays, synthesizes and breaks the bodies of Kubernetes API servers.
//!
//! - [`Server`] speaks HTTP/1.1 and HTTP/2, answers each request with an [`Answer`], records what clients send, and
//!   sends GOAWAY on demand.
//! - [`Body`] replays recorded bytes or makes a list of any length while it is sent, and adds faults on demand.
//! - [`Synthesizer`] makes a list of N items from a short recorded one; it also works without a server.
//! - [`RawServer`] sends what no HTTP library would: wrong lengths, half a chunk, a TLS stream without its end.
//! - [`TOKEN`] is a token for tests, and [`leak`] finds it in text that must not contain it.
//!
//! ```
//! use listwatch_testserver::{Synthesizer, Answer, Body, Server, recorded_pods};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pods = Synthesizer::new(&recorded_pods(), 50_000)?;
//! // The first request gets half the list and a reset connection, later requests get the whole list.
//! let broken = Answer::ok(Body::synthesize(pods.clone()).reset_at(pods.len() / 2));
//! let whole = Answer::ok(Body::synthesize(pods));
//! let server = Server::start(Answer::in_turn([broken, whole])).await?;
//! println!("list pods from {}/api/v1/pods", server.url());
//! # Ok(())
//! # }
//! ```

mod answer;
mod body;
mod lossless;
mod raw;
mod request;
mod secrets;
mod server;
mod synthesize;
mod tasks;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::io::Read;

pub use answer::Answer;
pub use body::Body;
pub use raw::{RawAnswer, RawEnd, RawServer};
pub use request::RecordedRequest;
#[cfg(feature = "trace")]
pub use secrets::watch_logs;
pub use secrets::{TOKEN, leak};
pub use server::Server;
pub use synthesize::{SynthesizeError, Synthesizer, SynthesizerReader};

/// The protobuf body of a list of 120 Pods, recorded from kube-apiserver 1.36.
///
/// # Panics
/// Never: the recording is part of this crate.
#[must_use]
pub fn recorded_pods() -> Vec<u8> {
    let mut body = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&include_bytes!("../pods.pb.gz")[..]);
    decoder.read_to_end(&mut body).expect("the embedded recording is complete");
    body
}
