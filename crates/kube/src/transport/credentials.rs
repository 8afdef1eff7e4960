//! The credentials that a transport sends itself, and the last ones that were sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{AUTHORIZATION, HeaderMap};
use listwatch::client::{Credentials, TransportError, redact_secret};
use secrecy::{ExposeSecret, SecretString};

use super::exec::ExecPlugin;

/// The credentials of the last request, which are redacted: kube's auth providers do not show theirs.
#[derive(Default)]
pub(super) struct SentCredentials(Mutex<SecretString>);

impl SentCredentials {
    /// Keeps the credentials in these headers.
    pub(super) fn remember(&self, headers: &HeaderMap) {
        let header = headers.get(AUTHORIZATION).and_then(|value| str::from_utf8(value.as_bytes()).ok());
        if let Some((_, credentials)) = header.and_then(|header| header.split_once(' ')) {
            let mut sent = self.lock();
            if sent.expose_secret() != credentials {
                *sent = credentials.into();
            }
        }
    }

    /// Replaces the credentials in a text.
    pub(super) fn redact(&self, text: String) -> String {
        redact_secret(text, self.lock().expose_secret())
    }

    fn lock(&self) -> MutexGuard<'_, SecretString> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the credentials that the transport sends itself from a configuration, and returns them.
///
/// Kube keeps auth providers, impersonation and client certificates. The order is client-go's: `HTTPWrappersForConfig`,
/// then exec's `UpdateTransportConfig`.
pub(super) fn take_credentials(
    user: &mut kube::config::AuthInfo,
) -> Result<(Credentials, Option<Arc<ExecPlugin>>), TransportError> {
    let (token, token_file, exec) = (user.token.take(), user.token_file.take(), user.exec.take());
    let basic = user.username.take().zip(user.password.take());
    let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let credentials = match (basic, token_file, token) {
        _ if user.auth_provider.is_some() => Credentials::default(),
        (Some((name, password)), ..) => Credentials::basic(&name, password.expose_secret()),
        (None, Some(file), token) => Credentials::token_file(file, token.as_ref().map(SecretString::expose_secret)),
        (None, None, Some(token)) => Credentials::bearer(token.expose_secret()),
        (None, None, None) => Credentials::default(),
    };
    credentials.check()?;
    let needs_plugin = user.auth_provider.is_none() && !credentials.is_some() && !has_certificate;
    let plugin = exec.filter(|_| needs_plugin).map(ExecPlugin::new).transpose()?;
    Ok((credentials, plugin.map(Arc::new)))
}
