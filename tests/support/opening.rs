//! The transports of the tests: the library's over HTTP/1.1, and one over a client of the caller that speaks HTTP/2.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{Response, StatusCode};
use listwatch::client::{
    Config, Credentials, Redirects, Request, ResponseFuture, ServiceTransport, Transport, TransportError,
    TransportErrorKind,
};

/// How a test connects.
#[allow(clippy::large_enum_variant, reason = "a test opens few")]
pub enum Opening {
    Library(Config),
    Caller(Http2),
}

/// What the requests over HTTP/2 need.
pub struct Http2 {
    pub url: String,
    pub headers: HeaderMap,
    pub credentials: Credentials,
}

impl From<Config> for Opening {
    fn from(config: Config) -> Self {
        Self::Library(config)
    }
}

impl Opening {
    pub fn bearer_token(self, token: &str) -> Self {
        match self {
            Self::Library(config) => Self::Library(config.bearer_token(token)),
            Self::Caller(caller) => Self::Caller(Http2 { credentials: Credentials::bearer(token), ..caller }),
        }
    }

    pub fn token_file(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match self {
            Self::Library(config) => Self::Library(config.token_file(path)),
            Self::Caller(caller) => Self::Caller(Http2 { credentials: Credentials::token_file(path, None), ..caller }),
        }
    }

    pub fn headers(self, headers: HeaderMap) -> Self {
        match self {
            Self::Library(config) => Self::Library(config.headers(headers)),
            Self::Caller(caller) => Self::Caller(Http2 { headers, ..caller }),
        }
    }

    /// Sets the timeout of the library. A client of the caller has its own.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        match self {
            Self::Library(config) => Self::Library(config.connect_timeout(timeout)),
            Self::Caller(caller) => Self::Caller(caller),
        }
    }

    pub fn open(self) -> Arc<dyn Transport> {
        match self {
            Self::Library(config) => Arc::new(config.build().unwrap()),
            Self::Caller(caller) => Arc::new(OverHttp2::new(caller)),
        }
    }
}

/// A transport of the caller, over reqwest.
struct OverHttp2 {
    service: ServiceTransport,
    address: Option<String>,
    credentials: Arc<Credentials>,
}

impl OverHttp2 {
    fn new(Http2 { url, headers, credentials }: Http2) -> Self {
        // h2 treats many small DATA frames as an attack: the waiting frames may cost half of the connection's window.
        let client = reqwest::Client::builder().http2_initial_connection_window_size(128 << 20);
        let client = client.http2_initial_stream_window_size(1 << 20).http2_prior_knowledge().no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let address = url.split_once("://").map(|(_, address)| address.to_owned());
        let credentials = Arc::new(credentials);
        let sent = Arc::clone(&credentials);
        let service = ServiceTransport::new(move |mut request: http::Request<reqwest::Body>| {
            let (base, headers) = (url.trim_end_matches('/').to_owned(), headers.clone());
            let (client, sent) = (client.clone(), Arc::clone(&sent));
            async move {
                *request.uri_mut() = format!("{base}{}", request.uri()).parse().unwrap();
                request.headers_mut().extend(headers);
                if let Some(value) = sent.header().await? {
                    request.headers_mut().insert(AUTHORIZATION, value);
                }
                let mut redirects = Redirects::new(request.method(), request.uri().clone());
                let (head, mut body) = request.into_parts();
                let mut url = head.uri.clone();
                let response = loop {
                    let mut sending = http::Request::from_parts(head.clone(), body);
                    *sending.uri_mut() = url;
                    let response = client.execute(sending.try_into().unwrap()).await;
                    let response = response.map_err(request_error)?;
                    match redirects.next_url(response.status(), response.headers())? {
                        Some(next) => (url, body) = (next, reqwest::Body::default()),
                        None => break response,
                    }
                };
                if response.status() == StatusCode::UNAUTHORIZED {
                    sent.refuse();
                }
                Ok::<_, TransportError>(Response::<reqwest::Body>::from(response))
            }
        });
        Self { service, address, credentials }
    }
}

fn request_error(error: reqwest::Error) -> TransportError {
    let is_connect = error.is_connect();
    let kind = if is_connect { TransportErrorKind::Connect } else { TransportErrorKind::Broken };
    TransportError::from_error(kind, &error.without_url())
}

impl Transport for OverHttp2 {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.service.get(request)
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.service.post(request, body)
    }

    fn is_near(&self) -> bool {
        true
    }

    fn renews_credentials(&self) -> bool {
        self.credentials.can_change()
    }

    fn server(&self) -> Option<String> {
        self.address.clone()
    }

    fn redact(&self, text: String) -> String {
        self.credentials.redact(self.service.redact(text))
    }
}
