//! [`HttpTransport`], which sends requests with their credentials, and renews these.

use std::env;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode, Uri};
use http_body_util::Full;
use secrecy::{ExposeSecret, SecretString};
use tokio::task::spawn_blocking;

use super::config::{Config, Login};
use super::connect::{ConnectionSettings, HttpClient, proxy_password, setup};
use super::exec::{ExecPlugin, IssuedCredentials};
use super::identity::Identity;
use super::issuer::{Issuer, Source};
use super::oidc::OidcProvider;
use crate::client::api_client::{Client, Compression};
use crate::client::credentials::Credentials;
use crate::client::io_thread::IoThread;
use crate::client::proxy::environment_proxy;
use crate::client::redact::redact_secret;
use crate::client::transport::{
    Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind, chain, is_loopback,
};
use crate::sync::{Mutex, lock};

const USER_AGENT_OF_THIS: &str = concat!("listwatch/", env!("CARGO_PKG_VERSION"));

/// A [`Transport`] over hyper and rustls, which [`Config::build`] returns.
///
/// It speaks HTTP/1.1, with a connection for each open list and watch. Lists over HTTP/2 are slower because its frames
/// and windows cost time: on two cores, a real API server wrote 60–107 MB/s over HTTP/1.1 and 45–65 MB/s over HTTP/2. A
/// hundred watches with 500 changes a second take the same CPU over both, and 5,000 take 15 % less over HTTP/2. But an
/// HTTP/2 client opens one connection on which the server limits the streams, so further requests would wait.
///
/// With a certificate authority, as clusters have one, the transport trusts only that authority and accepts a server as
/// Go's crypto/x509, and so kubectl, does. This includes a server whose own certificate is trusted, byte for byte, and
/// a server whose certificate is a CA. The name, the dates and the signature of the handshake are always verified, and
/// RSA keys need 2,048 bits. Without a certificate authority, the transport trusts what the platform's verifier trusts,
/// like other programs on the host; the first TLS handshake loads it.
///
/// Connections are read on a thread that the transports of the process share, with at most one thread for each core:
/// see [`IoThread`]. The thread passes bodies to the consumer in pieces of up to 256 KiB, so that a runtime's threads
/// need not wake each other for each chunk of a few kilobytes. On a runtime of several threads, lists then take about
/// 15 % less CPU. Two kinds of programs are faster [without the thread](Config::on_caller_runtime): one that mostly
/// watches small objects takes 6 to 20 % less CPU for each change, and one that reads many bodies at once over one
/// transport does not have to share a core for their TLS.
///
/// TCP keepalive detects a dead connection within 45 s. The transport follows up to ten redirects of a GET within the
/// origin of its URL, and no others.
///
/// # Credentials
///
/// A token is sent with every request, in a header that is marked sensitive, and no error, log or `Debug` output shows
/// it. For an `http` URL the token is sent in clear text, with a warning unless the server is on loopback. Credentials
/// are renewed while the transport runs:
///
/// | credentials | renewed |
/// |---|---|
/// | token file | read for each request |
/// | file of certificate authorities | read for each TLS handshake |
/// | files of a client certificate | read after a request that failed or returned 401 |
/// | exec plugin | run before the first request, when its credentials have expired, and after a 401 |
/// | auth provider `oidc` | refreshed when the ID token has expired, and after a 401; the kubeconfig is not written |
pub struct HttpTransport {
    sender: Arc<Sender>,
    /// `None` on the caller's runtime.
    io: Option<IoThread>,
}

struct Sender {
    account: Arc<Account>,
    client: Mutex<BuiltClient>,
    /// True if a request has failed since the files of the client certificate were read.
    is_stale: AtomicBool,
}

#[derive(Clone)]
struct BuiltClient {
    client: HttpClient,
    identity: Option<SecretString>,
}

impl BuiltClient {
    fn sends(&self, identity: Option<&SecretString>) -> bool {
        self.identity.as_ref().map(SecretString::expose_secret) == identity.map(SecretString::expose_secret)
    }
}

/// The server and the credentials, which transports share.
struct Account {
    /// The URL of the server, without a slash at its end.
    base: Uri,
    headers: HeaderMap,
    connection: ConnectionSettings,
    identity: Option<Identity>,
    credentials: Credentials,
    issuer: Option<Issuer>,
    proxy_password: Option<SecretString>,
    is_near: bool,
}

impl Config {
    /// Builds the transport without opening a connection.
    ///
    /// An exec plugin runs later, for the first request or in [`HttpTransport::authenticate`].
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when the URL is not `http` or `https` or contains credentials or a query; when a
    /// file cannot be read; when a certificate, a key or a proxy is malformed; or when a header is malformed or is
    /// `Authorization`. [`TransportErrorKind::Credentials`] when a token cannot be sent as a header.
    ///
    /// [`TransportErrorKind::Credentials`]: crate::client::TransportErrorKind::Credentials
    /// [`TransportErrorKind::Setup`]: crate::client::TransportErrorKind::Setup
    pub fn build(self) -> Result<HttpTransport, TransportError> {
        let on_caller_runtime = self.on_caller_runtime;
        let sender = Sender::new(Arc::new(Account::new(self)?))?;
        Ok(HttpTransport { sender: Arc::new(sender), io: (!on_caller_runtime).then(IoThread::default) })
    }
}

impl TryFrom<Config> for Client {
    type Error = TransportError;

    /// Creates a client over the [`HttpTransport`] that [`Config::build`] returns. It requests no compression if the
    /// kubeconfig disables that.
    fn try_from(config: Config) -> Result<Self, TransportError> {
        let disables_compression = config.disables_compression();
        let client = Self::new(config.build()?);
        Ok(if disables_compression { client.compression(Compression::Identity) } else { client })
    }
}

impl Account {
    fn new(config: Config) -> Result<Self, TransportError> {
        let base = parse_base_url(&config.url)?;
        let host = base.host().unwrap_or_default();
        if base.scheme_str() == Some("http") && !is_loopback(host) && config.has_login() {
            let server = base.authority().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(name: "listwatch.plain_http", %server, "the credentials are sent in clear text over http");
        }
        let is_near = config.is_own_cluster || is_near(host);
        let headers = request_headers(&config)?;
        let mut connection = config.connection;
        connection.proxy = connection.proxy.or_else(|| environment_proxy(&base).map(SecretString::from));
        let expose = |secret: &SecretString| secret.expose_secret().to_owned();
        let mut issuer = None;
        let credentials = match config.login {
            Login::None => Credentials::default(),
            Login::Token(token) => Credentials::bearer(token.expose_secret()),
            Login::TokenFile { path, initial } => {
                Credentials::token_file(path, initial.as_ref().map(expose).as_deref())
            }
            Login::Password(user, password) => Credentials::basic(&user, password.expose_secret()),
            Login::Exec(config) => {
                issuer = Some(Issuer::new(Source::Exec(ExecPlugin::new(config)?)));
                Credentials::default()
            }
            Login::Provider(config) => {
                issuer = Some(Issuer::new(Source::Oidc(Box::new(OidcProvider::new(&config)?))));
                Credentials::default()
            }
        };
        credentials.check()?;
        let proxy_password = connection.proxy.as_ref().and_then(proxy_password);
        let identity = config.identity;
        Ok(Self { base, headers, connection, identity, credentials, issuer, proxy_password, is_near })
    }

    fn url(&self, path_and_query: &str) -> Result<Uri, TransportError> {
        let url = format!("{}{path_and_query}", self.base.to_string().trim_end_matches('/'));
        url.parse().map_err(|error| setup(format!("the request's path: {error}")))
    }

    fn has_certificate_files(&self) -> bool {
        self.identity.as_ref().is_some_and(Identity::has_files)
    }

    fn build_client(&self, identity: Option<SecretString>) -> Result<BuiltClient, TransportError> {
        Ok(BuiltClient { client: HttpClient::new(&self.connection, identity.as_ref())?, identity })
    }
}

impl Sender {
    fn new(account: Arc<Account>) -> Result<Self, TransportError> {
        let identity = account.identity.as_ref().map(Identity::read).transpose()?;
        let client = Mutex::new(account.build_client(identity)?);
        Ok(Self { account, client, is_stale: AtomicBool::new(false) })
    }

    /// Returns the client, with the certificate that a plugin issued, or after a failed request the one in the files
    /// now.
    async fn current_client(&self, issued: Option<&Arc<IssuedCredentials>>) -> Result<HttpClient, TransportError> {
        let built = lock(&self.client).clone();
        let of_plugin = issued.and_then(|issued| issued.identity.clone());
        let is_current = match &of_plugin {
            Some(identity) => built.sends(Some(identity)),
            None => !self.is_stale.swap(false, Ordering::Relaxed),
        };
        if is_current {
            return Ok(built.client);
        }
        let (account, is_of_plugin) = (Arc::clone(&self.account), of_plugin.is_some());
        let renewing = spawn_blocking(move || {
            let identity = match of_plugin {
                Some(identity) => Some(identity),
                None => account.identity.as_ref().map(Identity::read).transpose()?,
            };
            if built.sends(identity.as_ref()) { Ok(built) } else { account.build_client(identity) }
        });
        let renewed: Result<BuiltClient, TransportError> =
            renewing.await.unwrap_or_else(|error| Err(setup(error.to_string())));
        match renewed {
            Ok(renewed) => {
                *lock(&self.client) = renewed.clone();
                Ok(renewed.client)
            }
            Err(error) if is_of_plugin => Err(TransportError::new(TransportErrorKind::Credentials, error.to_string())),
            // Files are replaced one after the other, so the old client stays until all of them fit together.
            Err(error) => {
                self.is_stale.store(true, Ordering::Relaxed);
                tracing::warn!(name: "listwatch.credentials", error = %chain(&error), "cannot reload the certificates");
                Ok(lock(&self.client).client.clone())
            }
        }
    }

    /// Sends a request. After a failure, the next request renews the credentials.
    async fn send(&self, method: Method, request: Request, body: Bytes) -> Result<Response, TransportError> {
        let account = &*self.account;
        let mut sending = http::Request::new(Full::from(body));
        *sending.method_mut() = method;
        *sending.uri_mut() = account.url(&request.path_and_query)?;
        let issued = match &account.issuer {
            Some(issuer) => Some(issuer.credentials().await?),
            None => None,
        };
        let credentials = issued.as_ref().map_or(&account.credentials, |issued| &issued.credentials);
        let mut headers = account.headers.clone();
        headers.extend(request.headers);
        if let Some(value) = credentials.header().await? {
            headers.insert(AUTHORIZATION, value);
        }
        *sending.headers_mut() = headers;
        let response = self.current_client(issued.as_ref()).await?.send(sending).await;

        let is_refused = response.as_ref().is_ok_and(|response| response.status == StatusCode::UNAUTHORIZED);
        if is_refused {
            credentials.refuse();
        }
        if account.has_certificate_files() && (is_refused || response.is_err()) {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        if let (Some(issuer), Some(issued)) = (&account.issuer, &issued) {
            let is_tls_error = response.as_ref().is_err_and(|error| error.kind() == TransportErrorKind::Tls);
            if is_refused || is_tls_error && issued.identity.is_some() {
                issuer.discard(issued).await;
            }
        }
        response
    }
}

impl HttpTransport {
    /// Returns a transport with the same credentials and its own connections, on a thread of the library.
    ///
    /// An exec plugin runs once for both.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when a file cannot be read.
    pub fn with_own_connections(&self) -> Result<Self, TransportError> {
        let sender = Arc::new(Sender::new(Arc::clone(&self.sender.account))?);
        Ok(Self { sender, io: Some(IoThread::default()) })
    }

    /// Reads connections, which may outlive the transport, on the caller's runtime instead of a thread of the library.
    #[must_use]
    pub fn on_caller_runtime(self) -> Self {
        Self { io: None, ..self }
    }

    /// Runs the exec plugin, or refreshes the auth provider's token, unless valid credentials are known.
    ///
    /// Requests do the same, but within their timeouts, while a plugin that asks the user to log in may need more time.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`] when the plugin fails, with the command and the reason. If the command is
    /// missing, the error shows the `installHint`.
    pub async fn authenticate(&self) -> Result<(), TransportError> {
        match &self.sender.account.issuer {
            Some(issuer) => issuer.credentials().await.map(drop),
            None => Ok(()),
        }
    }

    async fn send(&self, method: Method, request: Request, body: Bytes) -> Result<Response, TransportError> {
        let sender = Arc::clone(&self.sender);
        let sending = async move { sender.send(method, request, body).await };
        match &self.io {
            Some(thread) => thread.get(sending).await,
            None => sending.await,
        }
    }
}

impl Transport for HttpTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(Method::GET, request, Bytes::new()))
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        Box::pin(self.send(Method::POST, request, body))
    }

    fn is_near(&self) -> bool {
        self.sender.account.is_near
    }

    fn renews_credentials(&self) -> bool {
        let account = &self.sender.account;
        account.has_certificate_files() || account.issuer.is_some() || account.credentials.can_change()
    }

    fn redact(&self, text: String) -> String {
        let account = &self.sender.account;
        let text = account.credentials.redact(text);
        let text = account.issuer.iter().fold(text, |text, issuer| issuer.redact(text));
        account.proxy_password.iter().fold(text, |text, password| redact_secret(text, password.expose_secret()))
    }

    fn server(&self) -> Option<String> {
        let base = &self.sender.account.base;
        let port = base.port_u16().unwrap_or(if base.scheme_str() == Some("http") { 80 } else { 443 });
        Some(format!("{}:{port}", base.host()?))
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("base", &self.sender.account.base).finish_non_exhaustive()
    }
}

/// Parses the URL of the server. Errors do not quote it, because it may contain a password.
fn parse_base_url(base_url: &str) -> Result<Uri, TransportError> {
    let base: Uri = base_url.parse().map_err(|error| setup(format!("the base URL: {error}")))?;
    if !matches!(base.scheme_str(), Some("http" | "https")) {
        return Err(setup("the base URL is neither http nor https"));
    }
    if base.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(setup("the base URL contains credentials, which logs would show: set a token or a certificate"));
    }
    if base_url.contains(['?', '#']) {
        return Err(setup("the base URL has a query or a fragment"));
    }
    Ok(base)
}

fn request_headers(config: &Config) -> Result<HeaderMap, TransportError> {
    let mut headers = config.headers.clone();
    if headers.contains_key(AUTHORIZATION) {
        return Err(setup("a header contains credentials, which logs would show: set a token"));
    }
    let user_agent = config.user_agent.as_deref().unwrap_or(USER_AGENT_OF_THIS);
    headers
        .insert(USER_AGENT, HeaderValue::try_from(user_agent).map_err(|_| setup("the user agent cannot be a header"))?);
    if let Some(impersonation) = &config.impersonation {
        impersonation.add_headers(&mut headers)?;
    }
    Ok(headers)
}

/// Returns true for a server on this host, and for this process's cluster by any of its names.
fn is_near(host: &str) -> bool {
    is_loopback(host)
        || host == "kubernetes.default.svc"
        || host.starts_with("kubernetes.default.svc.")
        || env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|of_cluster| of_cluster == host.trim_matches(['[', ']']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_invalid_settings() {
        for (builder, expected) in [
            (Config::new("nonsense"), "the base URL is neither http nor https"),
            (Config::new("https://ho st"), "the base URL: invalid uri character"),
            (Config::new("ftp://host"), "the base URL is neither http nor https"),
            (
                Config::new("https://user:s3cret@host"),
                "the base URL contains credentials, which logs would show: set a token or a certificate",
            ),
            (Config::new("https://host/?token=s3cret"), "the base URL has a query or a fragment"),
            (Config::new("https://host").ca_pem("s3cret"), "the CA: no certificate in the PEM"),
            (
                Config::new("https://host").client_certificate("none", "s3cret"),
                "the client certificate and key: not one of each as PEM",
            ),
            (Config::new("https://host").ca_file("/none"), "/none: no such file or directory"),
            (Config::new("https://host").user_agent("a\nb"), "the user agent cannot be a header"),
            (
                Config::new("https://host")
                    .headers(HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"))])),
                "a header contains credentials, which logs would show: set a token",
            ),
            (
                Config::new("https://host").proxy("s3cret s3cret"),
                "the proxy is not the URL of an http, https or socks5 proxy",
            ),
            (
                Config::new("https://host").proxy("ftp://s3cret"),
                "the proxy is not the URL of an http, https or socks5 proxy",
            ),
            (
                Config::new("https://host").tls_server_name("no name"),
                "the TLS server name is neither a host name nor an address",
            ),
        ] {
            assert!(!format!("{builder:?}").contains("s3cret"));
            let error = builder.build().expect_err(expected);
            let text = error.to_string();
            assert_eq!((error.kind(), &*text), (TransportErrorKind::Setup, expected));
        }
    }

    #[tokio::test]
    async fn posts_reviews_with_credentials() {
        use listwatch_testserver::{Answer, Body, Server};

        let server = Server::start(Answer::ok(Body::replay("{}")).status(201).always()).await.unwrap();
        let transport = Config::new(server.url()).bearer_token("s3cret").build().unwrap();
        let response = transport.post(Request::new("/apis/a".to_owned(), HeaderMap::new()), Bytes::from_static(b"{}"));
        assert_eq!(response.await.unwrap().status, StatusCode::CREATED);
        let request = &server.requests()[0];
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/apis/a"));
        assert_eq!(
            (&request.headers["authorization"], &request.headers["content-length"]),
            (&HeaderValue::from_static("Bearer s3cret"), &HeaderValue::from_static("2"))
        );
    }

    #[test]
    fn is_near_to_loopback_and_its_own_cluster() {
        for (url, expected) in [
            ("https://[::1]:6443", true),
            ("https://10.0.0.1", false),
            ("https://kubernetes.default.svc/", true),
            ("https://kubernetes.default.svc.cluster.local", true),
            ("https://kubernetes.example.com", false),
        ] {
            assert_eq!(Config::new(url).build().unwrap().is_near(), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn redacts_the_token() {
        let transport = Config::new("https://host").bearer_token("s3cret").build().unwrap();
        assert!(!format!("{transport:?}").contains("s3cret"));
        assert!(!format!("{:?}", transport.sender.account.credentials.header().await).contains("s3cret"));
        assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
    }
}
