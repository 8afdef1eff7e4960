//! Sends a request, and judges the head of the response.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION, WARNING};
use tokio::time::{Instant, timeout, timeout_at};

use super::api_client::{Client, Compression};
use super::body;
use super::error::{Error, ErrorKind};
use super::metrics::WaitingRequest;
use super::progress::Counters;
use super::redact::redact;
use super::transport::{Chunks, Request, TransportError, TransportErrorKind, chain};
use super::warning::warning_texts;
use crate::wire::{Beginning, BodyFormat};

/// After how long a request without a response is reported.
const FIRST_REPORT: Duration = Duration::from_secs(10);

/// The time between two reports of the same request.
const BETWEEN_REPORTS: Duration = Duration::from_secs(60);

pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    /// The first bytes of the body, which are empty only if the body is.
    pub(super) first: Bytes,
    pub(super) chunks: Chunks,
    pub(super) audit_id: Option<String>,
    pub(super) warnings: Vec<String>,
    /// When the request was sent.
    pub(super) started: Instant,
}

impl Client {
    /// Sends a request once, and waits for the first bytes of its body. A response other than 2xx is an error.
    pub(super) async fn send(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let idle = Some(self.read_idle_timeout);
        let mut answer = self.head(path_and_query, accept, idle, deadline, counters).await?;
        answer.first = body::next_chunk(&mut answer.chunks).await?.unwrap_or_default();
        Ok(answer)
    }

    /// Sends a request once, and waits for the head of the response. Each wait for bytes of the body is limited to
    /// `body_idle`. After a 401, it retries once if the transport renews credentials.
    pub(super) async fn head(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        body_idle: Option<Duration>,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let answer = self.head_once(path_and_query.clone(), accept.clone(), body_idle, deadline, counters).await;
        match answer {
            Err(error) if error.code() == Some(401) && self.transport.renews_credentials() => {
                let error = error.redacted(&*self.transport);
                self.totals.retry();
                if let Some(left_out) = self.warnings.admit(("listwatch.credentials", error.kind().to_string())) {
                    tracing::warn!(name: "listwatch.credentials", error = %chain(&error), left_out, "retrying with reloaded credentials");
                }
                self.head_once(path_and_query, accept, body_idle, deadline, counters).await
            }
            answer => answer,
        }
    }

    async fn head_once(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        body_idle: Option<Duration>,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let gzip = match self.compression {
            Compression::Auto => !self.transport.is_near(),
            Compression::Identity => false,
            Compression::Gzip => true,
        };
        let encoding = HeaderValue::from_static(if gzip { "gzip" } else { "identity" });
        let headers = HeaderMap::from_iter([(ACCEPT, accept), (ACCEPT_ENCODING, encoding)]);
        counters.request();
        let started = Instant::now();
        let idle = self.read_idle_timeout;
        let name = format!("GET {path_and_query}");
        let sent = self.transport.get(Request::new(path_and_query, headers));
        let response = warn_while_waiting(sent, || redact(&*self.transport, name.clone()));
        let response = within(deadline, async {
            timeout(idle, response).await.map_err(|_| no_response(idle)).and_then(|response| response)
        });
        let waiting = WaitingRequest::begin(&self.totals);
        let response = response.await.map_err(|error| error.at(self.transport.server()))?;
        drop(waiting);
        self.was_reached.store(true, Ordering::Relaxed);
        let (status, headers) = (response.status, response.headers);
        let audit_id = text(&headers, &HeaderName::from_static("audit-id"));
        let audit_id = audit_id.map(|id| redact(&*self.transport, id));
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).and_then(origin);
            return Err(Error::new(ErrorKind::Redirect { status, to }).with_audit_id(audit_id));
        }
        let counters = Arc::clone(counters);
        if !status.is_success() {
            let body = match body::body(response.body, &headers, Some(idle), deadline, counters) {
                Ok(mut chunks) => body::beginning(Bytes::new(), &mut chunks).await,
                Err(_) => Vec::new(),
            };
            let error = body::api_error(status.as_u16(), &headers, &body, &*self.transport);
            return Err(Error::new(error).with_audit_id(audit_id));
        }
        let chunks = body::body(response.body, &headers, body_idle, deadline, counters)?;
        let warnings = headers.get_all(WARNING).iter().flat_map(|header| warning_texts(header.as_bytes()));
        let warnings = warnings.map(|text| redact(&*self.transport, text)).collect();
        Ok(Answer { headers, first: Bytes::new(), chunks, audit_id, warnings, started })
    }

    /// Returns the error for a body that is neither protobuf nor JSON of the API.
    pub(super) fn unexpected(&self, beginning: &[u8], headers: &HeaderMap) -> ErrorKind {
        if let Some(found) = body::status(beginning) {
            return body::of_status(found, 500, headers);
        }
        ErrorKind::UnexpectedBody {
            format: match Beginning::find(beginning) {
                Some((Beginning::Other(format), _)) => format,
                Some((Beginning::Encoded(_), [first, ..])) => BodyFormat::by_first_byte(*first),
                Some((Beginning::Space, _)) => BodyFormat::Text,
                Some((Beginning::Encoded(_), [])) | None => BodyFormat::Binary,
            },
            content_type: body::content_type(headers),
            snippet: body::snippet(beginning, &*self.transport),
        }
    }
}

/// Waits for the response to a request, and logs a warning while there is none. `name` returns the request without
/// credentials.
///
/// A slow server is one reason. Another is a transport that queues a request indefinitely: HTTP clients let a stream of
/// HTTP/2 wait until the server allows one more, and tell nobody.
async fn warn_while_waiting<T, E>(
    request: impl Future<Output = Result<T, E>>,
    name: impl Fn() -> String,
) -> Result<T, E> {
    let mut request = pin!(request);
    let started = Instant::now();
    let mut next = started + FIRST_REPORT;
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
        next += BETWEEN_REPORTS;
    }
}

fn no_response(waited: Duration) -> TransportError {
    let message = format!("the server has not responded for {} s", waited.as_secs_f32());
    TransportError::new(TransportErrorKind::ReadIdle, message)
}

pub(super) async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    match deadline {
        None => future.await,
        Some(deadline) => timeout_at(deadline, future).await.unwrap_or_else(|_| {
            Err(TransportError::new(TransportErrorKind::Deadline, "the deadline passed before the response"))
        }),
    }
}

pub(super) fn accept_header(accept: String) -> Result<HeaderValue, TransportError> {
    HeaderValue::try_from(accept).map_err(|error| {
        TransportError::new(TransportErrorKind::Setup, format!("the Accept header is invalid: {error}"))
    })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.escape_debug().to_string())
}

fn origin(location: &str) -> Option<String> {
    let uri = Uri::try_from(location).ok()?;
    let authority = uri.authority()?.as_str();
    // The part before the @ may be a password.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(format!("{}://{host}", uri.scheme_str()?))
}
