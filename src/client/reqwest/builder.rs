//! [`HttpTransportBuilder`]: the settings of a transport, and their checks.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{env, fmt, mem};

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use percent_encoding::percent_decode_str;
use reqwest::{Proxy, Url};
use secrecy::{ExposeSecret, SecretString};

use super::errors::setup;
use super::settings::{Authority, ClientIdentity, ClientSettings, DEFAULT_CONNECT_TIMEOUT, OneHost, identity};
use super::transport::{CertificateFiles, HttpTransport};
use crate::client::credentials::Credentials;
use crate::client::io_thread::IoThread;
use crate::client::proxy::environment_proxy;
use crate::client::runtime::LONGEST;
use crate::client::transport::{TransportError, is_loopback};
use crate::sync::Mutex;

const USER_AGENT_OF_THIS: &str = concat!("listwatch/", env!("CARGO_PKG_VERSION"));

/// The settings of a [`HttpTransport`]: see [`HttpTransport::builder`].
#[must_use]
pub struct HttpTransportBuilder {
    base_url: String,
    credentials: Credentials,
    settings: ClientSettings,
    user_agent: Option<String>,
    headers: HeaderMap,
    client: Option<reqwest::Client>,
    on_caller_runtime: bool,
    in_cluster: bool,
    server_name: Option<String>,
    /// Secret, because the URL may contain a password.
    proxy: Option<SecretString>,
}

impl HttpTransport {
    /// Creates a builder for the server at this URL: `https://host:port`, followed by a path if a proxy serves the API
    /// under it.
    pub fn builder(base_url: impl Into<String>) -> HttpTransportBuilder {
        HttpTransportBuilder {
            base_url: base_url.into(),
            credentials: Credentials::default(),
            settings: ClientSettings::default(),
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
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup) when the environment has no
    /// `KUBERNETES_SERVICE_HOST` or `_PORT`. [`build`](HttpTransportBuilder::build) reads the certificate authority.
    pub fn in_cluster() -> Result<HttpTransportBuilder, TransportError> {
        let variable = |name: &str| env::var(name).map_err(|_| setup(format!("not in a cluster: {name} is not set")));
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        Ok(in_cluster(&host, &port, Path::new("/var/run/secrets/kubernetes.io/serviceaccount")))
    }
}

impl HttpTransportBuilder {
    /// The default of [`connect_timeout`](Self::connect_timeout): 10 s.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = DEFAULT_CONNECT_TIMEOUT;

    /// Sends this bearer token. Its memory is overwritten when the transport is dropped.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Credentials::bearer(SecretString::from(token.into()).expose_secret());
        self
    }

    /// Sends the bearer token in this file, which is read for each request. If it cannot be read later, the previous
    /// token is sent. It replaces [`bearer_token`](Self::bearer_token).
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials = Credentials::token_file(path, None);
        self
    }

    /// Trusts these certificate authorities (PEM, one or more) and no others: see [`HttpTransport`]. Other sections of
    /// the text and malformed certificates are ignored.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.authority = Some(Authority::Pem(pem.into()));
        self
    }

    /// Trusts the certificate authorities in this file (PEM) and no others. Each TLS handshake reads it again, so a
    /// rotated authority is trusted at once. While it cannot be read, the previous certificates are trusted. It
    /// replaces [`ca_pem`](Self::ca_pem).
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.authority = Some(Authority::File(path.into()));
        self
    }

    /// Authenticates with this certificate (PEM, followed by its intermediates) and its key (PEM). The certificate may
    /// be of X.509 version 1, as those of `MicroK8s`.
    pub fn client_certificate(mut self, certificate_pem: &str, key_pem: &str) -> Self {
        self.settings.identity = Some(ClientIdentity::Pem(identity(certificate_pem, key_pem)));
        self
    }

    /// Authenticates with the certificate and the key in these files, which are reloaded after a request that failed or
    /// returned 401. It replaces [`client_certificate`](Self::client_certificate).
    pub fn client_certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        self.settings.identity = Some(ClientIdentity::Files { certificate, key });
        self
    }

    /// Expects this name in the server's certificate instead of the host of the URL, and sends it as SNI and `Host`.
    /// Proxies of the environment are then ignored, and a proxy in the builder is an error.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sends requests through this proxy (an `http`, `https` or `socks5` URL) instead of the proxies of the
    /// environment.
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = Some(url.into().into());
        self
    }

    /// Sets the `User-Agent` header: unless set, `listwatch/` and its version, or the header of a client that the
    /// caller supplied.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Adds these headers to each request, such as `Impersonate-User`. They must not contain credentials, which would
    /// not be redacted: `Authorization` is refused.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Reads connections on the caller's runtime instead of a thread of the library: see [`HttpTransport`].
    pub fn on_caller_runtime(mut self) -> Self {
        self.on_caller_runtime = true;
        self
    }

    /// Sets the timeout for connecting: [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT) unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Uses this client, of the version of reqwest that this crate depends on, on the caller's runtime. Its connections
    /// may be shared, and outlive the transport. The client decides TLS, proxy, HTTP version and connect timeout;
    /// setting them here too is an error of [`build`](Self::build).
    ///
    /// Prefer a client that speaks only HTTP/1.1 (`http1_only`). A client with reqwest's feature `http2` opens one
    /// connection to a server, and servers limit its streams: kube-apiserver allows 100. Further requests wait until
    /// others end, and a watch lasts for minutes. They then fail with a read-idle error, and a warning names them.
    ///
    /// Build it with `redirect(Policy::none())`: the transport detects a redirect to another origin only after the
    /// client has followed it. A total timeout (`timeout`) or a `read_timeout` of the client would end lists whose
    /// consumer is slow.
    pub fn reqwest_client(mut self, client: reqwest::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Builds the transport, without a connection.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup) when the URL is not `http` or `https`,
    /// or has credentials or a query; when a file cannot be read; when a certificate or key is not PEM; when a header
    /// is malformed or is `Authorization`; or when settings conflict with a client that the caller supplied.
    pub fn build(mut self) -> Result<HttpTransport, TransportError> {
        let mut base = parse_base_url(&self.base_url)?;
        let loopback = is_loopback(base.host_str().unwrap_or_default());
        let headers = self.request_headers()?;
        if base.scheme() == "http" && !loopback && self.credentials.is_some() {
            let server = base.host_str().unwrap_or_default();
            tracing::warn!(name: "listwatch.plain_http", %server, "the credentials are sent in clear text over http");
        }
        let proxy_password = self.set_proxy(&base)?;
        self.set_server_name(&mut base)?;
        let has_client_settings = self.has_client_settings();
        let io = (self.client.is_none() && !self.on_caller_runtime).then(IoThread::default);
        let settings = self.settings;
        let (client, files) = match self.client {
            Some(_) if has_client_settings => {
                return Err(setup(
                    "a client in addition to certificates, a proxy or a connect timeout: set them on the client",
                ));
            }
            Some(client) => (client, None),
            None => {
                let identity = settings.identity_pem()?;
                let client = settings.client(identity.as_ref())?;
                let has_files = matches!(settings.identity, Some(ClientIdentity::Files { .. }));
                let files =
                    || CertificateFiles { settings, read: Mutex::new(identity), is_stale: AtomicBool::new(false) };
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

    /// Returns the headers of each request, without credentials.
    fn request_headers(&mut self) -> Result<HeaderMap, TransportError> {
        let mut headers = mem::take(&mut self.headers);
        if headers.contains_key(AUTHORIZATION) {
            return Err(setup("a header contains credentials, which logs would show: set a token"));
        }
        let of_this = || self.client.is_none().then(|| USER_AGENT_OF_THIS.to_owned());
        if let Some(user_agent) = self.user_agent.take().or_else(of_this) {
            let user_agent =
                HeaderValue::try_from(user_agent).map_err(|_| setup("the user agent cannot be a header"))?;
            headers.insert(USER_AGENT, user_agent);
        }
        Ok(headers)
    }

    /// Sets the proxy of the caller or of the environment. Returns its password.
    fn set_proxy(&mut self, base: &Url) -> Result<Option<SecretString>, TransportError> {
        let of_environment = || match (&self.client, &self.server_name) {
            (None, None) => base.as_str().parse().ok().and_then(|server| environment_proxy(&server)).map(Into::into),
            _ => None,
        };
        let what = if self.proxy.is_some() { "the proxy" } else { "the proxy of the environment" };
        let Some(proxy) = self.proxy.clone().or_else(of_environment) else { return Ok(None) };
        let not_a_proxy = || setup(format!("{what}: not a proxy URL"));
        // The proxy resolves names, as with Go.
        let proxy = proxy.expose_secret().replacen("socks5://", "socks5h://", 1);
        self.settings.proxy = Some(Proxy::all(&proxy).map_err(|_| not_a_proxy())?);
        Ok(password_of(&proxy))
    }

    /// Puts the name in the server's certificate into the URL, and resolves it to the host of the URL.
    fn set_server_name(&mut self, base: &mut Url) -> Result<(), TransportError> {
        let Some(name) = self.server_name.take() else { return Ok(()) };
        if self.settings.proxy.is_some() {
            return Err(setup("a TLS server name in addition to a proxy"));
        }
        let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if name.parse::<IpAddr>().is_ok() || base.set_host(Some(&name)).is_err() {
            return Err(setup("the TLS server name: not a host name"));
        }
        self.settings.resolver = Some(Arc::new(OneHost(host)));
        Ok(())
    }

    /// Returns true if a setting is of the HTTP client, which the caller then must not supply.
    fn has_client_settings(&self) -> bool {
        let ClientSettings { authority, identity, connect_timeout, resolver, .. } = &self.settings;
        let has_any = authority.is_some() || identity.is_some() || resolver.is_some() || connect_timeout.is_some();
        has_any || self.proxy.is_some()
    }
}

/// Parses the URL of the server, which is not quoted in errors: it may contain a password.
fn parse_base_url(base_url: &str) -> Result<Url, TransportError> {
    let base = Url::parse(base_url).map_err(|error| setup(format!("the base URL: {error}")))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(setup("the base URL is neither http nor https"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err(setup("the base URL contains credentials, which logs would show: set a token or a certificate"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(setup("the base URL has a query or a fragment"));
    }
    Ok(base)
}

impl fmt::Debug for HttpTransportBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransportBuilder").finish_non_exhaustive()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::client::transport::{Request, Transport, TransportErrorKind};

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
                HttpTransport::builder("https://host").client_certificate("none", "s3cret"),
                "setup: the client certificate and key: not one of each as PEM",
            ),
            (
                HttpTransport::builder("https://host")
                    .connect_timeout(DEFAULT_CONNECT_TIMEOUT)
                    .reqwest_client(client()),
                "setup: a client in addition to certificates, a proxy or a connect timeout: set them on the client",
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
        use listwatch_testserver::{Answer, Body, Server, recorded_pods};

        use crate::client::{Client, ListParams, Resource};

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

    #[tokio::test]
    async fn redacts_the_token() {
        let transport = HttpTransport::builder("https://host").bearer_token("s3cret").build().unwrap();
        assert!(!format!("{transport:?}").contains("s3cret"));
        assert!(!format!("{:?}", transport.credentials.header().await).contains("s3cret"));
        assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
    }
}
