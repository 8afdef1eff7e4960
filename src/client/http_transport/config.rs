//! [`Config`]: the server, the credentials and the connections of a client.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use secrecy::SecretString;

use super::connect::{Authority, ConnectionSettings, DEFAULT_CONNECT_TIMEOUT};
use super::exec::ExecConfig;
use super::identity::{Identity, Pem};
use super::impersonation::Impersonation;
use super::oidc::ProviderConfig;
use crate::client::runtime::LONGEST;

/// The server, the credentials and the connections of a client.
///
/// [`Kubeconfig::load`](crate::client::Kubeconfig::load) returns what kubectl would use, and [`new`](Self::new) starts
/// from a URL. A program may then change what it wants.
///
/// ```no_run
/// use listwatch::client::{Client, Config, Kubeconfig};
///
/// # fn run() -> Result<(), listwatch::client::TransportError> {
/// let config = Kubeconfig { context: Some("staging".to_owned()), ..Kubeconfig::default() }.load()?;
/// let client = Client::try_from(config.user_agent("auditor/1.0"))?;
///
/// // While `kubectl proxy` runs.
/// let client = Client::try_from(Config::new("http://127.0.0.1:8001"))?;
/// # Ok(())
/// # }
/// ```
///
/// Neither its `Debug` output nor an error shows a token, a password or a key, and their memory is overwritten when
/// they are dropped.
#[derive(Clone)]
#[must_use]
pub struct Config {
    pub(in crate::client) url: String,
    pub(in crate::client) namespace: Option<String>,
    pub(in crate::client) connection: ConnectionSettings,
    pub(in crate::client) login: Login,
    pub(in crate::client) identity: Option<Identity>,
    pub(in crate::client) impersonation: Option<Impersonation>,
    pub(in crate::client) disables_compression: bool,
    /// True if the server belongs to the cluster in which this process runs.
    pub(in crate::client) is_own_cluster: bool,
    pub(super) user_agent: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) on_caller_runtime: bool,
}

#[derive(Clone, Default)]
pub(in crate::client) enum Login {
    #[default]
    None,
    Token(SecretString),
    TokenFile {
        path: PathBuf,
        /// Sent until the file can be read.
        initial: Option<SecretString>,
    },
    Password(String, SecretString),
    Exec(ExecConfig),
    Provider(ProviderConfig),
}

impl Config {
    /// The default of [`connect_timeout`](Self::connect_timeout): 10 s.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = DEFAULT_CONNECT_TIMEOUT;

    /// Creates a configuration for the server at this URL.
    ///
    /// The URL is `https://host:port`, followed by a path if a proxy serves the API under one. [`build`](Self::build)
    /// checks it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            namespace: None,
            connection: ConnectionSettings::default(),
            login: Login::None,
            identity: None,
            impersonation: None,
            disables_compression: false,
            is_own_cluster: false,
            user_agent: None,
            headers: HeaderMap::new(),
            on_caller_runtime: false,
        }
    }

    /// Sends this bearer token, which replaces other tokens, passwords and plugins.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Token(token.into().into());
        self
    }

    /// Sends the bearer token in this file, which replaces other tokens, passwords and plugins.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.login = Login::TokenFile { path: path.into(), initial: None };
        self
    }

    /// Authenticates with this certificate, followed by its intermediates, and its key, all in PEM.
    ///
    /// The certificate may be of X.509 version 1, as in `MicroK8s`.
    pub fn client_certificate(mut self, certificate_pem: impl Into<String>, key_pem: impl Into<String>) -> Self {
        let (certificate, key) = (Pem::Text(certificate_pem.into().into()), Pem::Text(key_pem.into().into()));
        self.identity = Some(Identity { certificate, key });
        self
    }

    /// Authenticates with the certificate and the key in these files (PEM).
    ///
    /// The transport reads the files again after a request that failed or returned 401, so that it uses a rotated
    /// certificate at once.
    pub fn client_certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (Pem::File(certificate.into()), Pem::File(key.into()));
        self.identity = Some(Identity { certificate, key });
        self
    }

    /// Removes tokens, passwords, plugins and the client certificate, but not the impersonation.
    pub fn without_credentials(mut self) -> Self {
        (self.login, self.identity) = (Login::None, None);
        self
    }

    pub(in crate::client) fn has_login(&self) -> bool {
        !matches!(self.login, Login::None)
    }

    /// Impersonates this user with these groups, instead of any other.
    ///
    /// The server then decides by the rights of the user, provided that the credentials may impersonate the user.
    pub fn impersonate<G: Into<String>>(
        mut self,
        user: impl Into<String>,
        uid: Option<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        let groups = groups.into_iter().map(Into::into).collect();
        self.impersonation = Some(Impersonation { user: user.into(), uid, groups, extra: Vec::new() });
        self
    }

    /// Trusts only these certificate authorities, one or more in PEM: see [`HttpTransport`](super::HttpTransport).
    ///
    /// Other sections of the text, and malformed certificates, are ignored.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connection.authority = Authority::Pem(pem.into());
        self
    }

    /// Trusts only the certificate authorities in this PEM file.
    ///
    /// Each TLS handshake reads the file again, so a rotated authority is trusted at once. While the file cannot be
    /// read, the previous certificates are trusted.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.connection.authority = Authority::File(path.into());
        self
    }

    /// Accepts any certificate of the server, so that whoever can intercept the connection gets the credentials.
    pub fn insecure_skip_tls_verify(mut self) -> Self {
        self.connection.authority = Authority::Unverified;
        self
    }

    /// Expects this name or address in the server's certificate, instead of the host of the URL, and sends it as SNI.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.connection.server_name = Some(name.into());
        self
    }

    /// Sends requests through this proxy, given as an `http`, `https` or `socks5` URL.
    ///
    /// The default is the [proxy of the environment](crate::client::environment_proxy).
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.connection.proxy = Some(url.into().into());
        self
    }

    /// Sets the `User-Agent` header. The default is `listwatch/` and its version.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Adds these headers to each request.
    ///
    /// They must not contain credentials, which would not be redacted, and `Authorization` is refused.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Reads connections on the caller's runtime instead of a thread of the library.
    ///
    /// [`HttpTransport`](super::HttpTransport) says what each of them costs.
    pub fn on_caller_runtime(mut self) -> Self {
        self.on_caller_runtime = true;
        self
    }

    /// Sets the timeout for connecting, including TLS. The default is
    /// [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connection.connect_timeout = timeout.min(LONGEST);
        self
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.url
    }

    /// Returns the namespace of the kubeconfig's context or of this Pod, or `default` if neither names one.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Returns true if the kubeconfig disables compression.
    ///
    /// [`Client::try_from`](crate::client::Client) then disables it.
    #[must_use]
    pub fn disables_compression(&self) -> bool {
        self.disables_compression
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}
