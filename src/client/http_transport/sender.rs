//! Sends a request through a `kube::Client`, with current credentials.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use http::header::AUTHORIZATION;
use kube::client::Body;
use listwatch::client::{Credentials, TransportError, TransportErrorKind};
use tokio::task::{JoinError, spawn_blocking};

use super::connect;
use super::credentials::SentCredentials;
use super::error::transport_error;
use super::exec::{ExecPlugin, IssuedCredentials};

/// A client, and the credentials that its requests get.
pub(super) struct Sender {
    client: Mutex<BuiltClient>,
    /// The configuration to build clients from, without the credentials of the two fields below. `None` for a client of
    /// the caller.
    config: Option<kube::Config>,
    credentials: Arc<Credentials>,
    plugin: Option<Arc<ExecPlugin>>,
    /// True if a new client has renewed credentials: for files of client certificates, and for kube's auth providers.
    renews_by_rebuilding: bool,
    /// True if the server has refused the credentials of `client`.
    is_refused: AtomicBool,
    sent: Arc<SentCredentials>,
}

struct BuiltClient {
    client: kube::Client,
    /// The plugin's credentials whose certificate the client has.
    identity_of: Option<Arc<IssuedCredentials>>,
}

impl Sender {
    /// Sends through a client of the caller, which has the credentials.
    pub(super) fn of_caller(client: kube::Client) -> Self {
        Self {
            client: Mutex::new(BuiltClient { client, identity_of: None }),
            config: None,
            credentials: Arc::default(),
            plugin: None,
            renews_by_rebuilding: false,
            is_refused: AtomicBool::new(false),
            sent: Arc::default(),
        }
    }

    /// Builds a client.
    pub(super) fn new(
        config: kube::Config,
        credentials: Arc<Credentials>,
        plugin: Option<Arc<ExecPlugin>>,
        renews_by_rebuilding: bool,
    ) -> Result<Self, TransportError> {
        let sent = Arc::<SentCredentials>::default();
        let client = build_client(&config, None, &sent)?;
        let config = Some(config);
        Ok(Self { config, credentials, plugin, renews_by_rebuilding, sent, ..Self::of_caller(client) })
    }

    /// Builds another client, for the same credentials; `None` for a client of the caller.
    pub(super) fn with_own_connections(&self) -> Result<Option<Self>, TransportError> {
        let Some(config) = &self.config else { return Ok(None) };
        let (credentials, plugin) = (Arc::clone(&self.credentials), self.plugin.clone());
        Self::new(config.clone(), credentials, plugin, self.renews_by_rebuilding).map(Some)
    }

    /// Returns the client that was built last.
    pub(super) fn built_client(&self) -> kube::Client {
        lock(&self.client).client.clone()
    }

    pub(super) fn plugin(&self) -> Option<&ExecPlugin> {
        self.plugin.as_deref()
    }

    pub(super) fn renews_credentials(&self) -> bool {
        self.renews_by_rebuilding || self.plugin.is_some() || self.credentials.can_change()
    }

    /// Removes the credentials of the last request from a text.
    pub(super) fn redact(&self, text: String) -> String {
        self.sent.redact(self.credentials.redact(text))
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

    /// Sends a request. After a 401 or a TLS error, the next request renews the credentials.
    pub(super) async fn send(&self, mut request: http::Request<Body>) -> Result<http::Response<Body>, TransportError> {
        let issued = match &self.plugin {
            Some(plugin) => Some(plugin.current_credentials().await?),
            None => None,
        };
        let credentials = issued.as_ref().map_or(&*self.credentials, |issued| &issued.credentials);
        if let Some(value) = credentials.header().await? {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let client = self.current_client(issued.as_ref()).await?;
        let response = client.send(request).await.map_err(|error| transport_error(&error));
        let (is_refused, is_tls_error) = match &response {
            Ok(response) => (response.status() == StatusCode::UNAUTHORIZED, false),
            Err(error) => (error.kind() == TransportErrorKind::Tls, true),
        };
        if is_refused {
            self.is_refused.store(true, Ordering::Relaxed);
            credentials.refuse();
            if let (Some(plugin), Some(issued)) = (&self.plugin, &issued)
                && (!is_tls_error || issued.identity.is_some())
            {
                plugin.discard_credentials(issued).await;
            }
        }
        response
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
