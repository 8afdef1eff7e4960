//! Warns of requests that wait for their response.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// The time after which a request that has no response is reported.
const FIRST: Duration = Duration::from_secs(10);

/// The time between two reports of the same request.
const AGAIN: Duration = Duration::from_secs(60);

/// Waits for the response to a request, which `name` returns without credentials.
///
/// A server may be slow, and a transport may queue a request for ever: HTTP clients let a stream of HTTP/2 wait until
/// the server allows one more, and tell nobody.
pub(super) async fn warn_while_waiting<T, E>(
    request: impl Future<Output = Result<T, E>>,
    name: impl Fn() -> String,
) -> Result<T, E> {
    let mut request = pin!(request);
    let started = Instant::now();
    let mut next = started + FIRST;
    let mut has_warned = false;
    loop {
        if let Ok(answered) = timeout_at(next, request.as_mut()).await {
            if has_warned && answered.is_ok() {
                let waited = started.elapsed().as_secs();
                tracing::info!(name: "listwatch.waiting", target: "listwatch", request = name(), "answered after {waited} s");
            }
            return answered;
        }
        let waited = started.elapsed().as_secs();
        tracing::warn!(name: "listwatch.waiting", target: "listwatch", request = name(), "no response for {waited} s");
        has_warned = true;
        next += AGAIN;
    }
}
