//! The transport over `kube::Client`.
//!
//! The order of the files, lowest first: `error`, `exec` (credential plugins), `credentials`, `connect` (TCP, proxies,
//! TLS), this file.

mod connect;
mod credentials;
mod error;
mod exec;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::header::AUTHORIZATION;
use http::{Method, StatusCode, Uri};
use http_body_util::BodyDataStream;
use kube::client::Body;
use listwatch::client::{
    Credentials, IoThread, Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind,
    is_loopback, redact_secret,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::task::{JoinError, spawn_blocking};

use self::credentials::{SentCredentials, take_credentials};
use self::error::{setup_error, transport_error};
use self::exec::{ExecPlugin, IssuedCredentials};

/// The timeout of a connection attempt, TLS included. It replaces kube's default of 30 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A [`Transport`] over a `kube::Client`, with kubeconfig, exec plugins and impersonation.
///
/// [`from_config`](Self::from_config) builds the client as lists need it. The client speaks HTTP/1.1, and follows no
/// redirects. The transport reads the client's connections on its own thread, as listwatch's `HttpTransport` does.
/// It closes them when it is dropped. TCP keepalive detects a dead connection within 45 s.
///
/// # Credentials
///
/// The transport renews credentials while it runs:
///
/// | credentials | renewed |
/// |---|---|
/// | token file | read for each request |
/// | certificate authorities (`root_cert_file`) | read for each TLS handshake |
/// | files of a client certificate | reloaded after a TLS error or a 401 |
/// | exec plugin | run before the first request, when its credentials have expired, and after a 401 |
///
/// With certificate authorities in the configuration, the transport accepts a server whose own certificate is among
/// them: see [`Authorities`](listwatch::client::Authorities).
///
/// OIDC and OAuth need cargo features of `kube`: enable them in your own dependency on kube. `k8s-openapi`, which kube
/// needs, requires a feature of its own that chooses a version of Kubernetes.
pub struct KubeTransport {
    client: Mutex<BuiltClient>,
    /// `None` on the caller's runtime, where connections may outlive the transport.
    io_thread: Option<IoThread>,
    /// The configuration to build clients from, without the credentials of the two fields below. `None` for a client of
    /// the caller.
    config: Option<kube::Config>,
    credentials: Arc<Credentials>,
    plugin: Option<Arc<ExecPlugin>>,
    /// True if a new client has renewed credentials: for files of client certificates, and for kube's auth providers.
    renews_by_rebuilding: bool,
    /// True if the server has refused the credentials of `client`.
    is_refused: AtomicBool,
    /// The URL of the server, for errors; unknown for a client of the caller.
    server: Option<Arc<str>>,
    is_near: bool,
    secrets: Vec<SecretString>,
    sent: Arc<SentCredentials>,
}

struct BuiltClient {
    client: kube::Client,
    /// The plugin's credentials whose certificate the client has.
    identity_of: Option<Arc<IssuedCredentials>>,
}

impl KubeTransport {
    /// Creates a transport over this client, on the caller's runtime.
    ///
    /// The client's connections may be shared, and outlive the transport. Build the client with `default_retry` off and
    /// without a `read_timeout`: otherwise kube retries in addition to [`Retry`], and interrupts lists. kube enables no
    /// keepalive, so only the [idle timeout] of a watch or of a list detects a dead connection.
    ///
    /// The transport does not know the client's credentials, so it cannot renew them. If a server or a proxy echoes a
    /// token that does not look like a token, the transport cannot redact it.
    ///
    /// [idle timeout]: listwatch::client::Watch::idle_timeout
    /// [`Retry`]: listwatch::client::Retry
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self {
            client: Mutex::new(BuiltClient { client, identity_of: None }),
            io_thread: None,
            config: None,
            credentials: Arc::default(),
            plugin: None,
            renews_by_rebuilding: false,
            is_refused: AtomicBool::new(false),
            server: None,
            is_near: false,
            secrets: Vec::new(),
            sent: Arc::default(),
        }
    }

    /// Creates a transport over its own client.
    ///
    /// The client has no retries and no read timeout of kube: [`Retry`] and [`read_idle_timeout`] replace them. The
    /// timeout to connect is 10 s in place of kube's default of 30 s.
    ///
    /// [`Kubeconfig`](crate::Kubeconfig) reads kubeconfigs as kubectl does, and returns no credentials for an `http`
    /// server. The transport sends the credentials of another configuration in clear text, with a warning unless the
    /// server is on loopback.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] or [`TransportErrorKind::Credentials`] when the configuration cannot be used.
    /// An exec plugin runs later: [`authenticate`](Self::authenticate) and requests return its errors.
    ///
    /// [`Retry`]: listwatch::client::Retry
    /// [`read_idle_timeout`]: listwatch::client::Client::read_idle_timeout
    pub fn from_config(mut config: kube::Config) -> Result<Self, TransportError> {
        config.default_retry = false;
        config.read_timeout = None;
        if config.connect_timeout == Some(Duration::from_secs(30)) {
            config.connect_timeout = Some(CONNECT_TIMEOUT);
        }
        let url = &config.cluster_url;
        let (is_near, is_plain) = (is_near(url), url.scheme_str() == Some("http"));
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let server = url.host().map(|host| format!("{}://{host}{port}", url.scheme_str().unwrap_or("https")).into());
        let user = &mut config.auth_info;
        let mut secrets: Vec<_> = [&user.token, &user.password].into_iter().flatten().cloned().collect();
        secrets.extend(connect::proxy_password(config.proxy_url.as_ref()));
        let renews_by_rebuilding = user.auth_provider.is_some() || user.client_certificate.is_some();
        let (credentials, plugin) = take_credentials(user)?;
        if is_plain
            && !is_loopback(config.cluster_url.host().unwrap_or_default())
            && (credentials.is_some() || plugin.is_some())
        {
            let server = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(name: "listwatch.plain_http", %server, "the credentials are sent in clear text over http");
        }
        let credentials = Arc::new(credentials);
        Ok(Self { renews_by_rebuilding, server, is_near, secrets, ..Self::from_parts(config, credentials, plugin)? })
    }

    fn from_parts(
        config: kube::Config,
        credentials: Arc<Credentials>,
        plugin: Option<Arc<ExecPlugin>>,
    ) -> Result<Self, TransportError> {
        let sent = Arc::<SentCredentials>::default();
        let client = build_client(&config, None, &sent)?;
        Ok(Self {
            io_thread: Some(IoThread::default()),
            config: Some(config),
            credentials,
            plugin,
            sent,
            ..Self::new(client)
        })
    }

    /// Returns a transport with the same credentials, and with connections of its own, read on its own thread.
    ///
    /// An exec plugin runs once for both. With a client of the caller, both share its connections.
    ///
    /// # Errors
    ///
    /// Those of [`from_config`](Self::from_config).
    pub fn with_own_connections(&self) -> Result<Self, TransportError> {
        let (credentials, plugin) = (Arc::clone(&self.credentials), self.plugin.clone());
        let transport = match &self.config {
            Some(config) => Self::from_parts(config.clone(), credentials, plugin)?,
            None => Self::new(lock(&self.client).client.clone()),
        };
        let (server, secrets) = (self.server.clone(), self.secrets.clone());
        Ok(Self {
            renews_by_rebuilding: self.renews_by_rebuilding,
            server,
            is_near: self.is_near,
            secrets,
            ..transport
        })
    }

    /// Reads connections on the caller's runtime instead of a thread of the transport.
    ///
    /// Connections may then outlive the transport: see [`HttpTransport`](listwatch::client::HttpTransport).
    #[must_use]
    pub fn on_caller_runtime(mut self) -> Self {
        self.io_thread = None;
        self
    }

    /// Runs the exec plugin, if the configuration has one and its credentials are not known yet.
    ///
    /// Requests run the plugin too, within their timeouts. A plugin that asks the user to log in may need more time.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`] if the plugin fails: the error names the command and how it failed. A
    /// missing command is reported with the `installHint`.
    pub async fn authenticate(&self) -> Result<(), TransportError> {
        match &self.plugin {
            Some(plugin) => plugin.current_credentials().await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the client, with fresh credentials if the server has refused the previous ones.
    async fn current_client(&self, issued: Option<&Arc<IssuedCredentials>>) -> Result<kube::Client, TransportError> {
        let identity_of = issued.filter(|issued| issued.identity.is_some());
        let is_other = {
            let built = lock(&self.client);
            identity_of.is_some_and(|issued| built.identity_of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, issued)))
        };
        let fresh = match &self.config {
            Some(config) if is_other || self.renews_by_rebuilding && self.is_refused.swap(false, Ordering::Relaxed) => {
                let (config, sent, identity_of) = (config.clone(), Arc::clone(&self.sent), identity_of.cloned());
                // Reads files, and runs the command of a provider.
                let built = spawn_blocking(move || build_client(&config, identity_of.as_deref(), &sent)).await;
                let built = built.map_err(|error: JoinError| error.to_string());
                let built = built.and_then(|built| built.map_err(|error| error.to_string()));
                // The next request tries again: a command may succeed, or a file may be complete.
                Some(built.map_err(|error| {
                    self.is_refused.store(true, Ordering::Relaxed);
                    TransportError::new(TransportErrorKind::Credentials, error)
                })?)
            }
            _ => None,
        };
        let mut built = lock(&self.client);
        if let Some(client) = fresh {
            *built = BuiltClient { client, identity_of: identity_of.cloned() };
        }
        Ok(built.client.clone())
    }

    /// Sends a request: a POST if it has a body. After a 401 or a TLS error, the next request renews the credentials.
    async fn send(&self, request: Request, body: Option<Bytes>) -> Result<Response, TransportError> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut sending = http::Request::new(body.map_or_else(Body::empty, Body::from));
        *sending.method_mut() = method;
        *sending.uri_mut() = Uri::try_from(request.path_and_query)
            .map_err(|error| setup_error(format!("the request's path: {error}")))?;
        *sending.headers_mut() = request.headers;
        let issued = match &self.plugin {
            Some(plugin) => Some(plugin.current_credentials().await?),
            None => None,
        };
        let credentials = issued.as_ref().map_or(&*self.credentials, |issued| &issued.credentials);
        if let Some(value) = credentials.header()? {
            sending.headers_mut().insert(AUTHORIZATION, value);
        }
        let client = self.current_client(issued.as_ref()).await?;
        let server = self.server.clone();
        let send = async move {
            let response = client.send(sending).await.map_err(|error| match transport_error(&error) {
                error if error.kind() == TransportErrorKind::Connect => error.at(server.as_deref()),
                error => error,
            })?;
            let (head, body) = response.into_parts();
            Ok(Response::new(head.status, head.headers, Box::pin(ResponseBody(BodyDataStream::new(body)))))
        };
        let response = match &self.io_thread {
            Some(thread) => thread.get(send).await,
            None => send.await,
        };
        let (is_refused, is_tls_error) = match &response {
            Ok(response) => (response.status == StatusCode::UNAUTHORIZED, false),
            Err(error) => (error.kind() == TransportErrorKind::Tls, true),
        };
        if is_refused {
            self.is_refused.store(true, Ordering::Relaxed);
            if let (Some(plugin), Some(issued)) = (&self.plugin, &issued)
                && (!is_tls_error || issued.identity.is_some())
            {
                plugin.discard_credentials(issued).await;
            }
        }
        response
    }
}

impl Transport for KubeTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(request, None))
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        Box::pin(self.send(request, Some(body)))
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn renews_credentials(&self) -> bool {
        self.renews_by_rebuilding || self.plugin.is_some() || self.credentials.can_change()
    }

    fn redact(&self, mut text: String) -> String {
        for secret in &self.secrets {
            text = redact_secret(text, secret.expose_secret());
        }
        self.sent.redact(self.credentials.redact(text))
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").field("near", &self.is_near).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn build_client(
    config: &kube::Config,
    issued: Option<&IssuedCredentials>,
    sent: &Arc<SentCredentials>,
) -> Result<kube::Client, TransportError> {
    let mut config = config.clone();
    if let Some((certificate, key)) = issued.and_then(IssuedCredentials::identity_data) {
        config.auth_info.client_certificate_data = Some(certificate);
        config.auth_info.client_key_data = Some(key);
    }
    connect::build_client(&config, sent)
}

/// Returns true for a server on this host, and for the API server of this process's cluster, by any of its names.
fn is_near(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    is_loopback(host)
        || host == "kubernetes.default.svc"
        || host.starts_with("kubernetes.default.svc.")
        || env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|of_cluster| of_cluster == host.trim_matches(['[', ']']))
}

/// The body of a response, with kube's errors converted.
struct ResponseBody(BodyDataStream<Body>);

impl Stream for ResponseBody {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_err(|error| transport_error(&error))
    }
}
