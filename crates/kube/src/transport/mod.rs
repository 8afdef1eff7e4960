//! The transport over `kube::Client`.
//!
//! The order of the files, lowest first: `error`, `exec` (credential plugins), `credentials`, `identity` (client
//! certificates), `unverified`, `connect` (TCP, proxies, TLS), `sender` (a request with its credentials), this file.

mod connect;
mod credentials;
mod error;
mod exec;
mod identity;
mod sender;
#[cfg(test)]
mod tests;
mod unverified;

use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use listwatch::client::{Request, ResponseFuture, ServiceTransport, Transport, TransportError, is_loopback};
use secrecy::{ExposeSecret, SecretString};

use self::credentials::take_credentials;
use self::sender::Sender;

/// The timeout of a connection attempt, TLS included. It replaces kube's default of 30 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A [`Transport`] over a `kube::Client`, with kubeconfig, exec plugins and impersonation.
///
/// [`from_config`](Self::from_config) builds the client as lists need it. The client speaks HTTP/1.1, and follows
/// redirects of a GET within the origin, ten at most. The transport reads the client's connections on a thread that it
/// shares with other transports, as listwatch's `HttpTransport` does. It closes them when it is dropped. TCP keepalive
/// detects a dead connection within 45 s.
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
/// With certificate authorities in the configuration, the transport accepts a server as Go's crypto/x509 does, so as
/// kubectl does: also a server whose own certificate is among them, byte for byte, and a server whose certificate is a
/// CA.
///
/// OIDC and OAuth need cargo features of `kube`: enable them in your own dependency on kube. `k8s-openapi`, which kube
/// needs, requires a feature of its own that chooses a version of Kubernetes.
pub struct KubeTransport {
    service: ServiceTransport,
    sender: Arc<Sender>,
    is_near: bool,
    secrets: Vec<SecretString>,
    /// Host and port of the server, if they are known.
    address: Option<String>,
}

impl KubeTransport {
    /// Creates a transport over this client, on the caller's runtime. It is a [`ServiceTransport`], with the kinds of
    /// kube's errors, and requests no compression either unless told.
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
        let sender = Arc::new(Sender::of_caller(client));
        Self { service: service_over(&sender, &[]), sender, is_near: true, secrets: Vec::new(), address: None }
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
    /// [`TransportErrorKind::Credentials`]: listwatch::client::TransportErrorKind::Credentials
    /// [`TransportErrorKind::Setup`]: listwatch::client::TransportErrorKind::Setup
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
        let address = address(url);
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
        let sender = Sender::new(config, Arc::new(credentials), plugin, renews_by_rebuilding, server)?;
        Ok(Self::from_parts(sender, is_near, secrets, address))
    }

    /// Creates a transport that reads its connections on a thread of the library.
    fn from_parts(sender: Sender, is_near: bool, secrets: Vec<SecretString>, address: Option<String>) -> Self {
        let sender = Arc::new(sender);
        Self { service: service_over(&sender, &secrets).on_own_thread(), sender, is_near, secrets, address }
    }

    /// Returns a transport with the same credentials, and with connections of its own, read on a thread of the library.
    ///
    /// An exec plugin runs once for both. With a client of the caller, both share its connections.
    ///
    /// # Errors
    ///
    /// Those of [`from_config`](Self::from_config).
    pub fn with_own_connections(&self) -> Result<Self, TransportError> {
        Ok(match self.sender.with_own_connections()? {
            Some(sender) => Self::from_parts(sender, self.is_near, self.secrets.clone(), self.address.clone()),
            None => Self::new(self.sender.built_client()),
        })
    }

    /// Reads connections on the caller's runtime instead of a thread of the library.
    ///
    /// Connections may then outlive the transport: see `HttpTransport` of listwatch.
    #[must_use]
    pub fn on_caller_runtime(mut self) -> Self {
        self.service = service_over(&self.sender, &self.secrets);
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
    ///
    /// [`TransportErrorKind::Credentials`]: listwatch::client::TransportErrorKind::Credentials
    pub async fn authenticate(&self) -> Result<(), TransportError> {
        match self.sender.plugin() {
            Some(plugin) => plugin.current_credentials().await.map(drop),
            None => Ok(()),
        }
    }
}

fn service_over(sender: &Arc<Sender>, secrets: &[SecretString]) -> ServiceTransport {
    let sender = Arc::clone(sender);
    let service = ServiceTransport::new(move |request| {
        let sender = Arc::clone(&sender);
        async move { sender.send(request).await }
    });
    secrets.iter().fold(service, |service, secret| service.secret(secret.expose_secret()))
}

impl Transport for KubeTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.service.get(request)
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.service.post(request, body)
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn renews_credentials(&self) -> bool {
        self.sender.renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        self.sender.redact(self.service.redact(text))
    }

    fn server(&self) -> Option<String> {
        self.address.clone()
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").field("near", &self.is_near).finish_non_exhaustive()
    }
}

/// Returns host and port, without credentials.
fn address(url: &Uri) -> Option<String> {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    Some(format!("{}:{port}", url.host()?))
}

/// Returns true for a server on this host, and for the API server of this process's cluster, by any of its names.
fn is_near(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    is_loopback(host)
        || host == "kubernetes.default.svc"
        || host.starts_with("kubernetes.default.svc.")
        || env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|of_cluster| of_cluster == host.trim_matches(['[', ']']))
}
