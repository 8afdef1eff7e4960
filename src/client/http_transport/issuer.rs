//! A source of credentials that are valid for a time, and the last credentials that it issued.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Mutex;

use super::exec::{ExecPlugin, IssuedCredentials};
use super::oidc::OidcProvider;
use crate::client::transport::{TransportError, TransportErrorKind};
use crate::sync;

pub(super) struct Issuer {
    source: Source,
    /// Locked while the source issues credentials, so that concurrent requests use it only once, because it may be
    /// interactive.
    current: Mutex<Option<Arc<IssuedCredentials>>>,
    /// The last credentials, which are redacted even if the server has refused them.
    last: sync::Mutex<Option<Arc<IssuedCredentials>>>,
}

pub(super) enum Source {
    Exec(ExecPlugin),
    Oidc(Box<OidcProvider>),
}

impl Issuer {
    pub(super) fn new(source: Source) -> Self {
        Self { source, current: Mutex::default(), last: sync::Mutex::default() }
    }

    /// Returns the current credentials, from the source if there are none or they have expired.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`], with the reason why the source failed. The next call tries the source
    /// again.
    pub(super) async fn credentials(&self) -> Result<Arc<IssuedCredentials>, TransportError> {
        let mut current = self.current.lock().await;
        if let Some(issued) = &*current
            && issued.expires.is_none_or(|expires| Timestamp::now() < expires)
        {
            return Ok(Arc::clone(issued));
        }
        let issued = match &self.source {
            Source::Exec(plugin) => plugin.issue().await,
            Source::Oidc(provider) => provider.issue().await,
        };
        let issued = issued.map_err(|error| TransportError::new(TransportErrorKind::Credentials, error))?;
        let issued = Arc::clone(current.insert(Arc::new(issued)));
        *sync::lock(&self.last) = Some(Arc::clone(&issued));
        Ok(issued)
    }

    /// Discards credentials that the server has refused, unless newer ones were issued.
    pub(super) async fn discard(&self, refused: &Arc<IssuedCredentials>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, refused)) {
            *current = None;
        }
    }

    pub(super) fn redact(&self, text: String) -> String {
        match &*sync::lock(&self.last) {
            Some(issued) => issued.credentials.redact(text),
            None => text,
        }
    }
}
