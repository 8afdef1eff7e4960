//! [`HttpTransport`]: it sends requests, and rebuilds its client when a certificate was replaced.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use reqwest::{RequestBuilder, Url};
use secrecy::{ExposeSecret, SecretString};

use super::errors::{setup, transport_error};
use super::settings::ClientSettings;
use crate::client::credentials::Credentials;
use crate::client::io_thread::IoThread;
use crate::client::redirect::Redirects;
use crate::client::transport::{
    Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind, chain, redact_secret,
};
use crate::sync::{Mutex, lock};

/// A [`Transport`] over reqwest and rustls.
///
/// It speaks HTTP/1.1, with a connection for each open list and watch. Lists over HTTP/2 are slower, because its frames
/// and windows cost time: a real API server wrote 60–107 MB/s over HTTP/1.1 and 45–65 MB/s over HTTP/2, on two cores. A
/// hundred watches with 500 changes a second take the same CPU over both; with 5,000 they take 15 % less over HTTP/2.
/// But a client of HTTP/2 opens one connection, on which all requests wait that exceed the streams which the server
/// allows.
///
/// Without a certificate authority it trusts the platform's roots, through the platform's verifier, like other programs
/// on the host; the first TLS handshake loads them. With a certificate authority, as clusters have, it trusts only that
/// authority, and accepts a server as Go's crypto/x509 does, so as kubectl does: also a server whose own certificate is
/// trusted, byte for byte, and a server whose certificate is a CA. The name, the dates, and the signature of the
/// handshake are verified in all cases. RSA keys need 2,048 bits.
///
/// It reads connections on a thread that it shares with other transports of the process, at most one thread for each
/// core: see [`IoThread`]. The thread passes bodies to the consumer in pieces of up to 256 KiB, so that a runtime's
/// threads need not wake each other for each chunk of a few kilobytes. The price is that all TLS of the transport runs
/// on one core. A process that reads many bodies at once over one transport, or has a current-thread runtime, is faster
/// [without the thread](super::HttpTransportBuilder::on_caller_runtime).
///
/// It follows redirects of a GET within the origin of its URL, ten at most, and no others. It sends a token with every
/// request, in a header that is marked sensitive; no error, log or `Debug` output shows the token. A token for an
/// `http` URL is sent in clear text, with a warning unless the server is on loopback. It uses the [proxy of the
/// environment](crate::client::environment_proxy) unless set.
///
/// Files may be replaced while it runs: it reads a token file for each request, a file of certificate authorities for
/// each TLS handshake, and a client certificate after a request that failed or returned 401.
pub struct HttpTransport {
    pub(super) client: Mutex<reqwest::Client>,
    /// The files of the client certificate from which the client is rebuilt, if there are any.
    pub(super) files: Option<Box<CertificateFiles>>,
    /// `None` on the caller's runtime.
    pub(super) io: Option<IoThread>,
    pub(super) base: Url,
    pub(super) headers: HeaderMap,
    pub(super) credentials: Credentials,
    pub(super) proxy_password: Option<SecretString>,
    pub(super) near: bool,
}

/// A client certificate in files.
pub(super) struct CertificateFiles {
    pub(super) settings: ClientSettings,
    /// The certificate and the key with which the client was built.
    pub(super) read: Mutex<Option<SecretString>>,
    /// True if a request has failed since the files were read.
    pub(super) is_stale: AtomicBool,
}

impl CertificateFiles {
    /// Returns a client with the current contents of the files, or `None` if they have not changed.
    fn changed_client(&self) -> Result<Option<reqwest::Client>, TransportError> {
        let identity = self.settings.identity_pem()?;
        let expose = |pem: &Option<SecretString>| pem.as_ref().map(|pem| pem.expose_secret().to_owned());
        let mut read = lock(&self.read);
        if expose(&identity) == expose(&read) {
            return Ok(None);
        }
        let client = self.settings.client(identity.as_ref())?;
        *read = identity;
        Ok(Some(client))
    }
}

impl HttpTransport {
    /// Returns the client. Rebuilds it if a request has failed and a file has changed.
    fn client(&self) -> reqwest::Client {
        if let Some(files) = self.files.as_deref()
            && files.is_stale.swap(false, Ordering::Relaxed)
        {
            match files.changed_client() {
                Ok(None) => {}
                Ok(Some(client)) => *lock(&self.client) = client,
                // Files are replaced one after the other: the client stays until all of them fit together.
                Err(error) => {
                    files.is_stale.store(true, Ordering::Relaxed);
                    tracing::warn!(name: "listwatch.credentials", error = %chain(&error), "cannot reload the certificates");
                }
            }
        }
        lock(&self.client).clone()
    }

    async fn send(&self, request: Request, body: Option<Bytes>) -> Result<Response, TransportError> {
        let base = self.base.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}{}", request.path_and_query))
            .map_err(|error| setup(format!("the request's path: {error}")))?;
        let mut headers = self.headers.clone();
        headers.extend(request.headers);
        if let Some(value) = self.credentials.header().await? {
            headers.insert(AUTHORIZATION, value);
        }
        let sending = match body {
            None => self.client().get(url),
            Some(body) => self.client().post(url).body(body),
        };
        let send = send_within_origin(self.client(), sending.headers(headers));
        let response = match &self.io {
            Some(thread) => thread.get(send).await,
            None => send.await,
        };
        let is_refused = response.as_ref().is_ok_and(|response| response.status == StatusCode::UNAUTHORIZED);
        if is_refused {
            self.credentials.refuse();
        }
        if let Some(files) = &self.files
            && (is_refused || response.is_err())
        {
            files.is_stale.store(true, Ordering::Relaxed);
        }
        response
    }
}

/// Sends a request, and follows redirects within its origin.
async fn send_within_origin(client: reqwest::Client, request: RequestBuilder) -> Result<Response, TransportError> {
    let mut request = request.build().map_err(transport_error)?;
    let origin = request.url().origin();
    let url = request.url().as_str().parse().map_err(|error| setup(format!("the request's path: {error}")))?;
    let mut redirects = Redirects::new(request.method(), url);
    loop {
        // The body is of a POST, which is not redirected.
        let mut again = reqwest::Request::new(request.method().clone(), request.url().clone());
        again.headers_mut().clone_from(request.headers());
        let response = client.execute(request).await.map_err(transport_error)?;
        if response.url().origin() != origin {
            let to = response.url().origin().ascii_serialization();
            return Err(TransportError::new(TransportErrorKind::Redirect, format!("to another origin, {to}")));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let Some(next) = redirects.next_url(status, &headers)? else {
            return Ok(Response { status, headers, body: Box::pin(ReqwestBody(Box::pin(response.bytes_stream()))) });
        };
        // Two parsers must agree about the origin before the credentials are sent.
        let next = Url::parse(&next.to_string()).ok().filter(|next| next.origin() == origin);
        *again.url_mut() =
            next.ok_or_else(|| TransportError::new(TransportErrorKind::Redirect, "to a malformed location"))?;
        request = again;
    }
}

impl Transport for HttpTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(request, None))
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        Box::pin(self.send(request, Some(body)))
    }

    fn is_near(&self) -> bool {
        self.near
    }

    fn renews_credentials(&self) -> bool {
        self.files.is_some() || self.credentials.can_change()
    }

    fn redact(&self, text: String) -> String {
        let text = self.credentials.redact(text);
        match &self.proxy_password {
            Some(password) => redact_secret(text, password.expose_secret()),
            None => text,
        }
    }

    fn server(&self) -> Option<String> {
        let host = self.base.host_str()?;
        Some(format!("{host}:{}", self.base.port_or_known_default()?))
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// The body of a response, with reqwest's errors converted.
struct ReqwestBody<S>(Pin<Box<S>>);

impl<S: Stream<Item = reqwest::Result<Bytes>>> Stream for ReqwestBody<S> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx).map_err(transport_error)
    }
}
