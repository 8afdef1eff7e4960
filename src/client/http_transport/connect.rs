//! Connections over TCP, proxies and TLS, and the pool of connections to a server.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderValue, Uri};
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Take};
use tower_service::Service;

use super::authorities::Authorities;
use super::tls::tls_config;
use super::unverified::Unverified;
use crate::client::crypto::crypto_provider;
use crate::client::redirect::Redirects;
use crate::client::service::DataFrames;
use crate::client::transport::{MAX_HEADERS, Response, TransportError, TransportErrorKind};

/// The idle time before the first keepalive probe, and between probes. The kernel closes a connection if probes or sent
/// bytes are not acknowledged for `USER_TIMEOUT`, which takes 45 s at most.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 2;
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The default timeout for connecting, including TLS.
pub(super) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub(in crate::client) struct ConnectionSettings {
    pub(in crate::client) authority: Authority,
    /// The name in the server's certificate, unless it is the host of the URL.
    pub(in crate::client) server_name: Option<String>,
    /// Secret, because the URL may contain a password.
    pub(in crate::client) proxy: Option<SecretString>,
    pub(super) connect_timeout: Duration,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        let connect_timeout = DEFAULT_CONNECT_TIMEOUT;
        Self { authority: Authority::Platform, server_name: None, proxy: None, connect_timeout }
    }
}

#[derive(Clone)]
pub(in crate::client) enum Authority {
    Platform,
    Pem(Vec<u8>),
    File(PathBuf),
    /// Any certificate is accepted.
    Unverified,
}

/// A pool of connections. Clones share it.
#[derive(Clone)]
pub(super) struct HttpClient {
    pool: legacy::Client<Connector, Full<Bytes>>,
    /// The credentials for a proxy that receives requests for `http` servers itself.
    proxy_authorization: Option<HeaderValue>,
}

impl HttpClient {
    /// Creates a pool without connections. The identity is a client certificate and its key, in PEM.
    pub(super) fn new(settings: &ConnectionSettings, identity: Option<&SecretString>) -> Result<Self, TransportError> {
        let connector = Connector::new(settings, identity)?;
        let proxy = connector.proxy.as_ref().and_then(|proxy| proxy.basic_auth());
        let proxy_authorization = proxy.cloned().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Ok(Self { pool, proxy_authorization })
    }

    pub(super) async fn send(&self, mut request: http::Request<Full<Bytes>>) -> Result<Response, TransportError> {
        if let Some(value) = &self.proxy_authorization
            && request.uri().scheme_str() == Some("http")
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        let mut redirects = Redirects::new(request.method(), request.uri().clone());
        let (mut head, mut body) = request.into_parts();
        loop {
            let response = self.pool.request(http::Request::from_parts(head.clone(), body)).await;
            let response = response.map_err(|error| request_error(&error, &head.uri))?;
            let Some(next) = redirects.next_url(response.status(), response.headers())? else {
                let (head, body) = response.into_parts();
                return Ok(Response::new(head.status, head.headers, Box::pin(DataFrames(Box::pin(body)))));
            };
            // Only a GET is redirected, which has no body.
            (head.uri, body) = (next, Full::default());
        }
    }
}

/// Converts the error of a request, and adds the server if the connection failed.
fn request_error(error: &legacy::Error, url: &Uri) -> TransportError {
    TransportError::from_error(TransportErrorKind::Broken, error).at(url.authority().map(ToString::to_string))
}

/// Opens connections. Clones are cheap.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    tls: Arc<ClientConfig>,
    names: Arc<dyn ResolveServerName + Send + Sync>,
    proxy: Option<Arc<Intercept>>,
    timeout: Duration,
}

impl Connector {
    fn new(settings: &ConnectionSettings, identity: Option<&SecretString>) -> Result<Self, TransportError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // All addresses of a name share the timeout, so that one that does not answer leaves time for others.
        tcp.set_connect_timeout(Some(settings.connect_timeout));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
        let names: Arc<dyn ResolveServerName + Send + Sync> = match &settings.server_name {
            None => Arc::new(DefaultServerNameResolver::default()),
            Some(name) => {
                let name = ServerName::try_from(name.clone());
                let name = name.map_err(|_| setup("the TLS server name is neither a host name nor an address"))?;
                Arc::new(FixedServerNameResolver::new(name))
            }
        };
        let proxy = settings.proxy.as_ref().map(|proxy| parse_proxy(proxy.expose_secret())).transpose()?;
        let tls = Arc::new(build_tls_config(&settings.authority, identity)?);
        Ok(Self { tcp, tls, names, proxy: proxy.map(Arc::new), timeout: settings.connect_timeout })
    }

    /// Adds TLS to the connections of a connector, if the URL is `https`.
    fn with_tls<C>(&self, connector: C, names: &Arc<dyn ResolveServerName + Send + Sync>) -> HttpsConnector<C> {
        HttpsConnector::new(connector, Arc::clone(&self.tls), false, Arc::clone(names))
    }

    async fn connect(self, server: Uri) -> Result<ServerConnection, BoxError> {
        let Some(proxy) = self.proxy.clone() else {
            let connection = self.with_tls(self.tcp.clone(), &self.names).call(server).await?;
            return Ok(ServerConnection::new(connection, false));
        };
        if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) {
            // The proxy resolves names, as with Go.
            let mut socks = SocksV5::new(with_port(proxy.uri().clone(), 1080), self.tcp.clone());
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            let server = if server.scheme_str() == Some("http") { with_port(server, 80) } else { server };
            let connection = self.with_tls(socks, &self.names).call(server).await?;
            return Ok(ServerConnection::new(connection, false));
        }
        let own_name: Arc<dyn ResolveServerName + Send + Sync> = Arc::new(DefaultServerNameResolver::default());
        let mut to_proxy = self.with_tls(self.tcp.clone(), &own_name);
        if server.scheme_str() == Some("http") {
            return Ok(ServerConnection::new(to_proxy.call(proxy.uri().clone()).await?, true));
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let connection = self.with_tls(tunnel, &self.names).call(server).await?;
        Ok(ServerConnection::new(connection, false))
    }
}

impl Service<Uri> for Connector {
    type Response = ServerConnection;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ServerConnection, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting = self.clone().connect(server);
        Box::pin(async move {
            tokio::time::timeout(timeout, connecting).await.unwrap_or_else(|_| {
                let error = format!("no connection within {} s", timeout.as_secs_f32());
                Err(io::Error::new(io::ErrorKind::TimedOut, error).into())
            })
        })
    }
}

/// A connection to a server, or to a proxy that forwards single requests.
struct ServerConnection {
    io: TokioIo<Take<Pin<Box<dyn ReadWrite>>>>,
    is_proxied: bool,
}

/// The most bytes that one read returns. hyper enlarges its buffer, up to 400 kB, as long as reads fill it, and an idle
/// watch keeps a buffer of the last size: after bursts of 0.5 MB over TLS, a connection holds half of the memory that
/// it holds without this limit.
const MAX_READ: u64 = 16 * 1024;

trait ReadWrite: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ReadWrite for T {}

impl ServerConnection {
    fn new(io: impl Read + Write + Send + 'static, is_proxied: bool) -> Self {
        let io: Pin<Box<dyn ReadWrite>> = Box::pin(TokioIo::new(io));
        Self { io: TokioIo::new(io.take(MAX_READ)), is_proxied }
    }

    fn writer(&mut self) -> Pin<&mut dyn ReadWrite> {
        self.io.inner_mut().get_mut().as_mut()
    }
}

impl Connection for ServerConnection {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied)
    }
}

impl Read for ServerConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.io.inner_mut().set_limit(MAX_READ);
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for ServerConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.inner().get_ref().is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(cx, bytes)
    }
}

fn build_tls_config(authority: &Authority, identity: Option<&SecretString>) -> Result<ClientConfig, TransportError> {
    let provider = crypto_provider()?;
    let verifier: Arc<dyn ServerCertVerifier> = match authority {
        Authority::Platform => Arc::new(Authorities::of_platform(Arc::clone(&provider))),
        Authority::Pem(pem) => Arc::new(Authorities::from_pem(pem, Arc::clone(&provider))?),
        Authority::File(path) => Arc::new(Authorities::from_file(path, Arc::clone(&provider))?),
        Authority::Unverified => Arc::new(Unverified(Arc::clone(&provider))),
    };
    let mut config = tls_config(&provider, verifier, identity.map(SecretString::expose_secret))?;
    // Over HTTP/2, all requests that exceed the streams of its single connection would wait, and nobody would be told.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn parse_proxy(proxy: &str) -> Result<Intercept, TransportError> {
    let found = Matcher::builder().all(proxy).build().intercept(&Uri::from_static("https://server"));
    let is_known =
        |found: &Intercept| matches!(found.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    // The URL is left out, because it may contain a password.
    found.filter(is_known).ok_or_else(|| setup("the proxy is not the URL of an http, https or socks5 proxy"))
}

pub(super) fn proxy_password(proxy: &SecretString) -> Option<SecretString> {
    let proxy: Uri = proxy.expose_secret().parse().ok()?;
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some((&*percent_decode_str(password).decode_utf8_lossy()).into())
}

fn with_port(url: Uri, port: u16) -> Uri {
    let (Some(host), None) = (url.host().map(str::to_owned), url.port()) else { return url };
    let mut parts = url.clone().into_parts();
    parts.authority = format!("{host}:{port}").parse().ok();
    Uri::from_parts(parts).unwrap_or(url)
}

pub(super) fn setup(message: impl AsRef<str>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}
