//! The transport over reqwest.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{env, fs};

use bytes::Bytes;
use futures_core::Stream;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use percent_encoding::percent_decode_str;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Identity, Proxy, Url};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};

use super::authorities::Authorities;
use super::credentials::Credentials;
use super::io_thread::IoThread;
use super::proxy::environment_proxy;
use super::time::LONGEST;
use super::transport::{
    self, Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind, is_loopback,
};
use crate::sync::{Mutex, lock};

const USER_AGENT_OF_THIS: &str = concat!("listwatch/", env!("CARGO_PKG_VERSION"));

/// The most bytes of one HTTP/2 stream that wait for a slow consumer.
const STREAM_WINDOW: u32 = 1 << 20;

/// h2 treats many small DATA frames as an attack: it allows the waiting frames to cost half of this window, at up to a kilobyte
/// each. With this size a stream's window may be full of frames of 16 bytes.
const CONNECTION_WINDOW: u32 = 128 << 20;

/// A HTTP/2 connection is pinged when no byte has arrived for this time while a request waits, and closed when the server does
/// not respond. Otherwise all later requests would use a dead connection. client-go uses the same two times.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A [`Transport`] over reqwest and rustls.
///
/// It uses HTTP/1.1 unless [set](HttpTransportBuilder::http2). A list is one stream, so HTTP/2 has nothing to interleave, and its
/// frames and windows cost time: a real API server wrote 60–107 MB/s over HTTP/1.1 and 45–65 MB/s over HTTP/2, on two cores.
/// HTTP/2 pays if one process has many requests open at once.
///
/// Without a certificate authority it trusts the platform's roots, through the platform's verifier, like other programs on the
/// host. With a certificate authority, as clusters have, it trusts only that authority.
///
/// It reads connections on its own thread, which the first request starts and which ends with the transport and its last
/// response. The thread passes bodies to the consumer in pieces of about 256 KiB, so that a runtime's threads need not wake each
/// other for each chunk of a few kilobytes. The price is that all TLS of the transport runs on one core. A process that reads many
/// bodies at once over one transport, or has a current-thread runtime, is faster
/// [without the thread](HttpTransportBuilder::on_caller_runtime).
///
/// It follows no redirects. It sends a token with every request, in a header that is marked sensitive; no error, log or
/// `Debug` output shows the token. A token for an `http` URL is sent in clear text, with a warning unless the server is
/// on loopback. It uses the [proxy of the environment](environment_proxy) unless set.
///
/// Files may be replaced while it runs: it reads a token file for each request, a file of certificate authorities for
/// each TLS handshake, and a client certificate after a request that failed or returned 401.
pub struct HttpTransport {
    client: Mutex<reqwest::Client>,
    /// The files of the client certificate from which the client is rebuilt, if there are any.
    files: Option<Box<Files>>,
    /// `None` on the caller's runtime.
    io: Option<IoThread>,
    base: Url,
    headers: HeaderMap,
    credentials: Credentials,
    proxy_password: Option<SecretString>,
    near: bool,
}

/// A client certificate in files.
struct Files {
    settings: Settings,
    /// The certificate and the key with which the client was built.
    read: Mutex<Option<SecretString>>,
    /// True if a request has failed since the files were read.
    is_stale: AtomicBool,
}

impl Files {
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
    /// Creates a builder for the server at this URL: `https://host:port`, followed by a path if a proxy serves the API under it.
    pub fn builder(base_url: impl Into<String>) -> HttpTransportBuilder {
        HttpTransportBuilder {
            base_url: base_url.into(),
            credentials: Credentials::default(),
            settings: Settings::default(),
            user_agent: None,
            headers: HeaderMap::new(),
            client: None,
            on_caller_runtime: false,
            in_cluster: false,
            server_name: None,
            proxy: None,
        }
    }

    /// Creates a builder for the server of the cluster that this process runs in, with its service account.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when the environment has no `KUBERNETES_SERVICE_HOST` or `_PORT`.
    /// [`build`](HttpTransportBuilder::build) reads the certificate authority.
    pub fn in_cluster() -> Result<HttpTransportBuilder, TransportError> {
        let variable = |name: &str| env::var(name).map_err(|_| setup(format!("not in a cluster: {name} is not set")));
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        Ok(in_cluster(&host, &port, Path::new("/var/run/secrets/kubernetes.io/serviceaccount")))
    }

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
                    tracing::warn!(name: "listwatch.credentials", error = %transport::chain(&error), "cannot reload the certificates");
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
        if let Some(value) = self.credentials.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        let sending = match body {
            None => self.client().get(url),
            Some(body) => self.client().post(url).body(body),
        };
        let (sending, origin) = (sending.headers(headers), self.base.origin());
        let send = async move {
            let response = sending.send().await.map_err(classify)?;
            if response.url().origin() != origin {
                let to = response.url().origin().ascii_serialization();
                return Err(TransportError::new(TransportErrorKind::Redirect, format!("to another origin, {to}")));
            }
            let (status, headers) = (response.status(), response.headers().clone());
            Ok(Response { status, headers, body: Box::pin(Body(Box::pin(response.bytes_stream()))) })
        };
        let response = match &self.io {
            Some(thread) => thread.get(send).await,
            None => send.await,
        };
        if let Some(files) = &self.files
            && response.as_ref().map_or(true, |response| response.status == StatusCode::UNAUTHORIZED)
        {
            files.is_stale.store(true, Ordering::Relaxed);
        }
        response
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
            Some(password) => transport::redact_secret(text, password.expose_secret()),
            None => text,
        }
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// The settings of a [`HttpTransport`]: see [`HttpTransport::builder`].
#[must_use]
pub struct HttpTransportBuilder {
    base_url: String,
    credentials: Credentials,
    settings: Settings,
    user_agent: Option<String>,
    headers: HeaderMap,
    client: Option<reqwest::Client>,
    on_caller_runtime: bool,
    in_cluster: bool,
    server_name: Option<String>,
    /// Secret, because the URL may contain a password.
    proxy: Option<SecretString>,
}

/// The settings of a client, without the contents of files.
#[derive(Default)]
struct Settings {
    authority: Option<Authority>,
    identity: Option<ClientIdentity>,
    http2: bool,
    /// True if the URL is `http`, where HTTP/2 needs prior knowledge.
    is_plain: bool,
    connect_timeout: Option<Duration>,
    proxy: Option<Proxy>,
    resolver: Option<Arc<OneHost>>,
}

enum Authority {
    Pem(Vec<u8>),
    File(PathBuf),
}

enum ClientIdentity {
    /// The certificate, followed by the key.
    Pem(SecretString),
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// The parser's error is not quoted: it might contain a part of the key.
const NO_IDENTITY: &str = "the client certificate and key: not one of each as PEM";

fn identity(certificate_pem: &str, key_pem: &SecretString) -> SecretString {
    format!("{certificate_pem}\n{}", key_pem.expose_secret()).into()
}

/// Resolves every name to the addresses of one host, because the URL contains the name in the certificate instead of the host.
struct OneHost(String);

impl Resolve for OneHost {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl Settings {
    /// Returns the client's certificate and key. Reads them if they are in files.
    fn identity_pem(&self) -> Result<Option<SecretString>, TransportError> {
        let read =
            |path: &Path| fs::read_to_string(path).map_err(|error| setup(format!("{}: {error}", path.display())));
        match &self.identity {
            None => Ok(None),
            Some(ClientIdentity::Pem(pem)) => Ok(Some(pem.clone())),
            Some(ClientIdentity::Files { certificate, key }) => {
                let key = SecretString::from(read(key)?);
                Ok(Some(identity(&read(certificate)?, &key)))
            }
        }
    }

    /// Returns the TLS settings with the authorities of the caller; `None` for those of the platform.
    fn tls(&self, identity: Option<&SecretString>) -> Result<Option<ClientConfig>, TransportError> {
        let default = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let provider = CryptoProvider::get_default().map_or_else(default, Arc::clone);
        let authorities = match &self.authority {
            None => return Ok(None),
            Some(Authority::Pem(pem)) => Authorities::from_pem(pem, Arc::clone(&provider))?,
            Some(Authority::File(path)) => Authorities::from_file(path, Arc::clone(&provider))?,
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(format!("TLS: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(authorities));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let pem = pem.expose_secret().as_bytes();
                let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default();
                let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| setup(NO_IDENTITY))?;
                if chain.is_empty() {
                    return Err(setup(NO_IDENTITY));
                }
                builder.with_client_auth_cert(chain, key).map_err(|error| setup(format!("{NO_IDENTITY}: {error}")))?
            }
        };
        let protocols: &[&[u8]] = if self.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Some(config))
    }

    fn client(&self, identity: Option<&SecretString>) -> Result<reqwest::Client, TransportError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect_timeout.unwrap_or(HttpTransportBuilder::DEFAULT_CONNECT_TIMEOUT));
        builder = match &self.proxy {
            Some(proxy) => builder.proxy(proxy.clone()),
            // reqwest has other rules for the proxies of the environment.
            None => builder.no_proxy(),
        };
        if let Some(resolver) = &self.resolver {
            builder = builder.dns_resolver(Arc::clone(resolver));
        }
        if self.http2 {
            builder = builder
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .http2_keep_alive_interval(PING_AFTER)
                .http2_keep_alive_timeout(PING_TIMEOUT);
            if self.is_plain {
                builder = builder.http2_prior_knowledge();
            }
        } else {
            builder = builder.http1_only();
        }
        if let Some(tls) = self.tls(identity)? {
            builder = builder.tls_backend_preconfigured(tls);
        } else if let Some(pem) = identity {
            let identity = Identity::from_pem(pem.expose_secret().as_bytes()).map_err(|_| setup(NO_IDENTITY))?;
            builder = builder.identity(identity);
        }
        builder.build().map_err(|error| tls_setup("the HTTP client", error))
    }
}

impl HttpTransportBuilder {
    /// The default of [`connect_timeout`](Self::connect_timeout): 10 s.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends this bearer token.
    pub fn bearer_token(mut self, token: impl Into<SecretString>) -> Self {
        self.credentials = Credentials::bearer(&token.into());
        self
    }

    /// Sends the bearer token in this file, which is read for each request. If it cannot be read later, the previous
    /// token is sent. It replaces [`bearer_token`](Self::bearer_token).
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials = Credentials::token_file(path, None);
        self
    }

    /// Trusts these certificate authorities (PEM, one or more) and no others: see [`Authorities`].
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.authority = Some(Authority::Pem(pem.into()));
        self
    }

    /// Trusts the certificate authorities in this file, which is read for each TLS handshake: see
    /// [`Authorities::from_file`]. It replaces [`ca_pem`](Self::ca_pem).
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.authority = Some(Authority::File(path.into()));
        self
    }

    /// Authenticates with this certificate (PEM, followed by its intermediates) and its key (PEM).
    pub fn client_certificate(mut self, certificate_pem: &str, key_pem: &SecretString) -> Self {
        self.settings.identity = Some(ClientIdentity::Pem(identity(certificate_pem, key_pem)));
        self
    }

    /// Authenticates with the certificate and the key in these files, which are reloaded after a request that failed or returned
    /// 401. It replaces [`client_certificate`](Self::client_certificate).
    pub fn client_certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        self.settings.identity = Some(ClientIdentity::Files { certificate, key });
        self
    }

    /// Expects this name in the server's certificate instead of the host of the URL, and sends it as SNI and `Host`. Proxies of
    /// the environment are then ignored, and a proxy in the builder is an error.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sends requests through this proxy (an `http`, `https` or `socks5` URL) instead of the proxies of the
    /// environment.
    pub fn proxy(mut self, url: impl Into<SecretString>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Sets the `User-Agent` header: unless set, `listwatch/` and its version, or the header of a client that the caller supplied.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Adds these headers to each request, such as `Impersonate-User`. They must not contain credentials, which would not be
    /// redacted: `Authorization` is refused.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Reads connections on the caller's runtime instead of a thread of the transport: see [`HttpTransport`].
    pub fn on_caller_runtime(mut self) -> Self {
        self.on_caller_runtime = true;
        self
    }

    /// Uses HTTP/2: with prior knowledge for a `http` URL, else if the server supports it. See [`HttpTransport`] for its cost.
    pub fn http2(mut self) -> Self {
        self.settings.http2 = true;
        self
    }

    /// Sets the timeout for connecting: [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT) unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Uses this client, on the caller's runtime. Its connections may be shared, and outlive the transport. The client decides TLS,
    /// proxy, HTTP version and connect timeout; setting them here too is an error of [`build`](Self::build).
    ///
    /// Build it with `redirect(Policy::none())`: the transport detects a redirect to another origin only after the client has
    /// followed it. A total timeout (`timeout`) or a `read_timeout` of the client would end lists whose consumer is slow.
    pub fn reqwest_client(mut self, client: reqwest::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Builds the transport, without a connection.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when the URL is not `http` or `https`, or has credentials or a query; when a file cannot be
    /// read; when a certificate or key is not PEM; when a header is malformed or is `Authorization`; or when settings conflict with
    /// a client that the caller supplied.
    pub fn build(self) -> Result<HttpTransport, TransportError> {
        // The URL is not quoted: it may contain a password.
        let mut base = Url::parse(&self.base_url).map_err(|error| setup(format!("the base URL: {error}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(setup("the base URL is neither http nor https"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(setup(
                "the base URL contains credentials, which logs would show: set a token or a certificate",
            ));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(setup("the base URL has a query or a fragment"));
        }
        let loopback = is_loopback(base.host_str().unwrap_or_default());
        let mut headers = self.headers;
        if headers.contains_key(AUTHORIZATION) {
            return Err(setup("a header contains credentials, which logs would show: set a token"));
        }
        let user_agent = self.user_agent.or_else(|| self.client.is_none().then(|| USER_AGENT_OF_THIS.to_owned()));
        if let Some(user_agent) = user_agent {
            let user_agent =
                HeaderValue::try_from(user_agent).map_err(|_| setup("the user agent cannot be a header"))?;
            headers.insert(USER_AGENT, user_agent);
        }
        let mut settings = self.settings;
        settings.is_plain = base.scheme() == "http";
        if settings.is_plain && !loopback && self.credentials.is_some() {
            let server = base.host_str().unwrap_or_default();
            tracing::warn!(name: "listwatch.plain_http", %server, "the credentials are sent in clear text over http");
        }
        let has_proxy = self.proxy.is_some();
        let of_environment = || match (&self.client, &self.server_name) {
            (None, None) => base.as_str().parse().ok().and_then(|server| environment_proxy(&server)),
            _ => None,
        };
        let mut proxy_password = None;
        if let Some(proxy) = self.proxy.or_else(of_environment) {
            let what = if has_proxy { "the proxy" } else { "the proxy of the environment" };
            let not_a_proxy = || setup(format!("{what}: not a proxy URL"));
            // The proxy resolves names, as with Go.
            let proxy = proxy.expose_secret().replacen("socks5://", "socks5h://", 1);
            settings.proxy = Some(Proxy::all(&proxy).map_err(|_| not_a_proxy())?);
            proxy_password = password_of(&proxy);
        }
        if let Some(name) = self.server_name {
            if settings.proxy.is_some() {
                return Err(setup("a TLS server name in addition to a proxy"));
            }
            let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            if name.parse::<IpAddr>().is_ok() || base.set_host(Some(&name)).is_err() {
                return Err(setup("the TLS server name: not a host name"));
            }
            settings.resolver = Some(Arc::new(OneHost(host)));
        }
        let has_settings = settings.authority.is_some()
            || settings.identity.is_some()
            || has_proxy
            || settings.resolver.is_some()
            || settings.http2
            || settings.connect_timeout.is_some();
        let io = (self.client.is_none() && !self.on_caller_runtime).then(IoThread::default);
        let (client, files) = match self.client {
            Some(_) if has_settings => {
                return Err(setup(
                    "a client in addition to certificates, HTTP/2, a proxy or a connect timeout: set them on the client",
                ));
            }
            Some(client) => (client, None),
            None => {
                let identity = settings.identity_pem()?;
                let client = settings.client(identity.as_ref())?;
                let has_files = matches!(settings.identity, Some(ClientIdentity::Files { .. }));
                let files = || Files { settings, read: Mutex::new(identity), is_stale: AtomicBool::new(false) };
                (client, has_files.then(|| Box::new(files())))
            }
        };
        Ok(HttpTransport {
            client: Mutex::new(client),
            files,
            io,
            near: self.in_cluster || loopback,
            base,
            headers,
            credentials: self.credentials,
            proxy_password,
        })
    }
}

impl fmt::Debug for HttpTransportBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransportBuilder").field("http2", &self.settings.http2).finish_non_exhaustive()
    }
}

fn in_cluster(host: &str, port: &str, account: &Path) -> HttpTransportBuilder {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut builder = HttpTransport::builder(format!("https://{host}:{port}"));
    builder.in_cluster = true;
    builder.ca_file(account.join("ca.crt")).token_file(account.join("token"))
}

/// Returns the password in the URL of a proxy.
fn password_of(proxy: &str) -> Option<SecretString> {
    let url = Url::parse(proxy).ok()?;
    Some((&*percent_decode_str(url.password()?).decode_utf8_lossy()).into())
}

fn setup(message: impl AsRef<str>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}

fn tls_setup(what: &str, error: reqwest::Error) -> TransportError {
    // Without the URL, which may hold a password.
    setup(format!("{what}: {}", transport::chain(&error.without_url())))
}

fn classify(error: reqwest::Error) -> TransportError {
    let kind = match &error {
        error if error.is_connect() => TransportErrorKind::Connect,
        error if error.is_request() || error.is_body() || error.is_decode() => TransportErrorKind::Broken,
        _ => TransportErrorKind::Other,
    };
    let server = error.url().filter(|_| error.is_connect()).map(|url| url.origin().ascii_serialization());
    TransportError::from_error(kind, &error.without_url()).at(server.as_deref())
}

/// The body of a response, with reqwest's errors converted.
struct Body<S>(Pin<Box<S>>);

impl<S: Stream<Item = reqwest::Result<Bytes>>> Stream for Body<S> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx).map_err(classify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_invalid_settings() {
        let client = || reqwest::Client::new();
        for (builder, expected) in [
            (HttpTransport::builder("nonsense"), "setup: the base URL: relative URL without a base"),
            (HttpTransport::builder("ftp://host"), "setup: the base URL is neither http nor https"),
            (
                HttpTransport::builder("https://user:s3cret@host"),
                "setup: the base URL contains credentials, which logs would show: set a token or a certificate",
            ),
            (HttpTransport::builder("https://host/?token=s3cret"), "setup: the base URL has a query or a fragment"),
            (HttpTransport::builder("https://host").ca_pem("s3cret"), "setup: the CA: no certificate in the PEM"),
            (
                HttpTransport::builder("https://host").client_certificate("none", &"s3cret".into()),
                "setup: the client certificate and key: not one of each as PEM",
            ),
            (
                HttpTransport::builder("https://host").http2().reqwest_client(client()),
                "setup: a client in addition to certificates, HTTP/2, a proxy or a connect timeout: set them on the client",
            ),
            (
                HttpTransport::builder("https://host").ca_file("/none"),
                "setup: /none: No such file or directory (os error 2)",
            ),
            (HttpTransport::builder("https://host").user_agent("a\nb"), "setup: the user agent cannot be a header"),
            (
                HttpTransport::builder("https://host")
                    .headers(HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"))])),
                "setup: a header contains credentials, which logs would show: set a token",
            ),
            (HttpTransport::builder("https://host").proxy("s3cret s3cret"), "setup: the proxy: not a proxy URL"),
            (
                HttpTransport::builder("https://host").tls_server_name("10.0.0.1"),
                "setup: the TLS server name: not a host name",
            ),
            (
                HttpTransport::builder("https://host").tls_server_name("other").proxy("http://proxy"),
                "setup: a TLS server name in addition to a proxy",
            ),
        ] {
            assert!(!format!("{builder:?}").contains("s3cret"));
            let error = builder.build().expect_err(expected);
            assert_eq!((error.kind(), &*error.to_string()), (TransportErrorKind::Setup, expected));
        }
    }

    #[tokio::test]
    async fn posts_reviews_with_credentials() {
        use listwatch_testserver::{Answer, Body, Server};

        let server = Server::start(Answer::ok(Body::replay("{}")).status(201).always()).await.unwrap();
        let transport = HttpTransport::builder(server.url()).bearer_token("s3cret").build().unwrap();
        let response = transport.post(Request::new("/apis/a".to_owned(), HeaderMap::new()), Bytes::from_static(b"{}"));
        assert_eq!(response.await.unwrap().status, StatusCode::CREATED);
        let request = &server.requests()[0];
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/apis/a"));
        assert_eq!(
            (&request.headers["authorization"], &request.headers["content-length"]),
            (&HeaderValue::from_static("Bearer s3cret"), &HeaderValue::from_static("2"))
        );
    }

    #[tokio::test]
    async fn reads_the_service_account_of_a_pod() {
        use crate::client::{Client, ListParams, Resource};
        use listwatch_testserver::{Answer, Body, Server, recorded_pods};

        let missing = in_cluster("10.0.0.1", "443", Path::new("/nowhere")).build().unwrap_err().to_string();
        assert!(missing.starts_with("setup: /nowhere/ca.crt: "), "{missing}");

        let server = Server::start_tls(Answer::ok(Body::replay(recorded_pods())).always()).await.unwrap();
        let account = std::env::temp_dir().join(format!("listwatch-account-{}", std::process::id()));
        fs::create_dir_all(&account).unwrap();
        fs::write(account.join("ca.crt"), server.ca_pem().unwrap()).unwrap();
        fs::write(account.join("token"), "t0ken\n").unwrap();
        let builder = in_cluster("fd00::1", "443", &account);
        assert_eq!(builder.base_url, "https://[fd00::1]:443");
        assert!(builder.build().unwrap().is_near());

        let port = server.addr().port().to_string();
        let client = Client::new(in_cluster("127.0.0.1", &port, &account).build().unwrap());
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap().0.len(), 120);
        assert_eq!(server.requests()[0].headers["authorization"], "Bearer t0ken");
        fs::remove_dir_all(&account).unwrap();
    }

    /// As with a firewall that forgot a connection: it notifies neither side.
    #[tokio::test]
    async fn replaces_a_silent_http2_connection() {
        use std::sync::Arc;

        use listwatch_testserver::{Answer, Body, Server, recorded_pods};
        use tokio::io::copy_bidirectional;
        use tokio::net::TcpStream;
        use tokio::sync::Notify;

        use crate::client::{Client, ErrorKind, ListParams, Resource, Retry};

        let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silence = Arc::new(Notify::new());
        let (upstream, falls_silent) = (server.addr(), Arc::clone(&silence));
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut to = TcpStream::connect(upstream).await.unwrap();
                let falls_silent = Arc::clone(&falls_silent);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        () = falls_silent.notified() => std::future::pending().await,
                    }
                });
            }
        });
        // On the caller's runtime, where time can be paused.
        let transport = HttpTransport::builder(&url).http2().on_caller_runtime().build().unwrap();
        let client = Client::new(transport).retry(Retry::default().delay(Duration::from_nanos(1)));
        let pods = |client: &Client| client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        silence.notify_waiters();
        tokio::time::pause();
        let error = pods(&client.clone().retry(Retry::never())).into_vec().await.unwrap_err();
        let ErrorKind::Transport(broken) = error.kind() else { panic!("{error}") };
        assert_eq!(broken.kind(), TransportErrorKind::Broken, "{error}");
        assert!(error.is_retryable());
        tokio::time::resume();
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        assert_eq!(server.accepted(), 2);
    }

    #[test]
    fn redacts_the_token() {
        let transport = HttpTransport::builder("https://host").bearer_token("s3cret").build().unwrap();
        assert!(!format!("{transport:?}").contains("s3cret"));
        assert!(!format!("{:?}", transport.credentials.header()).contains("s3cret"));
        assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
    }
}
