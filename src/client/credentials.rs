//! The credentials in the `Authorization` header.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::redact::redact_secret;
use super::transport::{TransportError, TransportErrorKind};
use crate::error::without_os_numbers;
use crate::sync::{Mutex, lock};

/// How long a token may be sent by requests that do not wait until another request has read its file.
const FRESH: Duration = Duration::from_secs(10);

/// The credentials that a transport sends in the `Authorization` header.
///
/// They serve implementations of [`Transport`](super::Transport). Neither errors nor `Debug` output show them, header
/// values are marked as sensitive, and the memory of secrets is overwritten when they are dropped.
#[derive(Default)]
pub struct Credentials {
    source: Source,
    last: Arc<Mutex<LastSecret>>,
}

#[derive(Default)]
struct LastSecret {
    secret: Option<SecretString>,
    /// When it was read from a file; `None` after the server refused it.
    read: Option<Instant>,
}

#[derive(Default)]
enum Source {
    #[default]
    None,
    Bearer(SecretString),
    /// The base64 form of the user's name and password.
    Basic(SecretString),
    TokenFile {
        path: Arc<Path>,
        /// Held while the file is read.
        reading: Arc<tokio::sync::Mutex<()>>,
    },
}

impl Credentials {
    /// Creates credentials from a bearer token, around which white space is ignored. An empty token means no
    /// credentials.
    #[must_use]
    pub fn bearer(token: &str) -> Self {
        let token = SecretString::from(token.trim());
        let is_empty = token.expose_secret().is_empty();
        let source = if is_empty { Source::None } else { Source::Bearer(token.clone()) };
        Self { source, last: last_secret(Some(token)) }
    }

    /// Creates credentials from a user's name and password.
    #[must_use]
    pub fn basic(user: &str, password: &str) -> Self {
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        Self { source: Source::Basic(encoded.into()), last: last_secret(Some(password.into())) }
    }

    /// Creates credentials from the bearer token in this file, which is read for each request.
    ///
    /// One request at a time reads it, on a thread for blocking tasks. Meanwhile, other requests send the token of the
    /// last 10 s, or wait if there is none or the server has [refused](Self::refuse) it.
    ///
    /// If the file cannot be read or is empty, the previous token is used, as in client-go
    /// (`transport/token_source.go`). Until the first successful read, this is `initial`.
    #[must_use]
    pub fn token_file(path: impl Into<PathBuf>, initial: Option<&str>) -> Self {
        let (path, reading) = (path.into().into(), Arc::default());
        Self { source: Source::TokenFile { path, reading }, last: last_secret(initial.map(SecretString::from)) }
    }

    /// Returns true if there are credentials.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// Returns true if a later header may differ, because it comes from a file.
    #[must_use]
    pub fn can_change(&self) -> bool {
        matches!(self.source, Source::TokenFile { .. })
    }

    /// Notes that the server has refused the last credentials, so that each request waits until the file is read again.
    pub fn refuse(&self) {
        lock(&self.last).read = None;
    }

    /// Checks credentials that are not in a file, as [`header`](Self::header) would.
    ///
    /// # Errors
    ///
    /// The errors of [`header`](Self::header).
    pub fn check(&self) -> Result<(), TransportError> {
        self.known_header().map(drop)
    }

    /// Returns the value of the `Authorization` header; `None` without credentials.
    ///
    /// A token file is read on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`] when the file contains no token and there is no previous one, or when the
    /// token contains a character that no header can carry. The error names the source but does not show the token.
    pub async fn header(&self) -> Result<Option<HeaderValue>, TransportError> {
        let Source::TokenFile { path, reading } = &self.source else { return self.known_header() };
        let reader = match Arc::clone(reading).try_lock_owned() {
            Ok(reader) => reader,
            Err(_) => match self.fresh_token() {
                Some(token) => return bearer_of_file(&token, path).map(Some),
                None => Arc::clone(reading).lock_owned().await,
            },
        };
        let (file, last) = (Arc::clone(path), Arc::clone(&self.last));
        // The read continues even if the request is dropped, so that a file system that hangs has only one reader.
        let read = spawn_blocking(move || {
            let _reader = reader;
            read_token(&file, &last)
        });
        let failed = |error: &dyn fmt::Display| TransportError::new(TransportErrorKind::Credentials, error.to_string());
        read.await.map_err(|error| failed(&error))?.map(Some)
    }

    fn known_header(&self) -> Result<Option<HeaderValue>, TransportError> {
        match &self.source {
            Source::Bearer(token) => header("Bearer", token, "the token").map(Some),
            Source::Basic(encoded) => header("Basic", encoded, "the password").map(Some),
            Source::None | Source::TokenFile { .. } => Ok(None),
        }
    }

    /// Returns the token that was read last, unless it is old or refused.
    fn fresh_token(&self) -> Option<SecretString> {
        let last = lock(&self.last);
        last.secret.clone().filter(|_| last.read.is_some_and(|read| read.elapsed() < FRESH))
    }

    /// Removes the secrets of the last header from a text: see [`redact_secret`].
    #[must_use]
    pub fn redact(&self, mut text: String) -> String {
        if let Source::Basic(encoded) = &self.source {
            text = redact_secret(text, encoded.expose_secret());
        }
        match &lock(&self.last).secret {
            Some(last) => redact_secret(text, last.expose_secret()),
            None => text,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("can_change", &self.can_change()).finish_non_exhaustive()
    }
}

fn last_secret(secret: Option<SecretString>) -> Arc<Mutex<LastSecret>> {
    Arc::new(Mutex::new(LastSecret { secret, read: None }))
}

/// Reads the token or returns the last one, without holding the lock while it reads.
fn read_token(path: &Path, last: &Mutex<LastSecret>) -> Result<HeaderValue, TransportError> {
    let token = match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Err(format!("{}: the file is empty", path.display())),
        Ok(text) => Ok(SecretString::from(text.trim())),
        Err(error) => Err(without_os_numbers(format_args!("{}: {error}", path.display()))),
    };
    let token = match (token, lock(last).secret.clone()) {
        (Ok(token), _) => token,
        (Err(error), Some(previous)) => {
            tracing::warn!(name: "listwatch.credentials", %error, "cannot read the token: sending the previous one");
            return bearer_of_file(&previous, path);
        }
        (Err(error), None) => return Err(TransportError::new(TransportErrorKind::Credentials, error)),
    };
    let value = bearer_of_file(&token, path)?;
    *lock(last) = LastSecret { secret: Some(token), read: Some(Instant::now()) };
    Ok(value)
}

fn bearer_of_file(token: &SecretString, path: &Path) -> Result<HeaderValue, TransportError> {
    header("Bearer", token, &format!("{}: the token", path.display()))
}

fn header(scheme: &str, credentials: &SecretString, what: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::try_from(format!("{scheme} {}", credentials.expose_secret())).map_err(|_| {
        let error = format!("{what} has a character that no header can carry");
        TransportError::new(TransportErrorKind::Credentials, error)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    async fn sent(credentials: &Credentials) -> Result<Option<String>, String> {
        let header = credentials.header().await.map_err(|error| error.to_string())?;
        assert!(header.iter().all(HeaderValue::is_sensitive));
        Ok(header.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn trims_tokens_and_names_the_source_of_an_invalid_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let at = path.display().to_string();
        let invalid = "has a character that no header can carry";
        for (text, expected) in [
            ("abc", Ok("Bearer abc")),
            ("abc\n", Ok("Bearer abc")),
            ("abc\r\n", Ok("Bearer abc")),
            (" abc\t\n\n", Ok("Bearer abc")),
            ("", Err("the file is empty")),
            ("\r\n", Err("the file is empty")),
            ("s3c\nret", Err(invalid)),
            ("s3c\0ret", Err(invalid)),
        ] {
            fs::write(&path, text).unwrap();
            let of_file = sent(&Credentials::token_file(&path, None)).await;
            let what = if expected == Err(invalid) { "the token " } else { "" };
            let expected_of_file = expected.map(|header| Some(header.to_owned()));
            assert_eq!(
                of_file,
                expected_of_file.map_err(|error| format!("no valid credentials: {at}: {what}{error}")),
                "{text:?}"
            );
            let of_token = match expected {
                Err(error) if error == invalid => Err(format!("no valid credentials: the token {invalid}")),
                expected => Ok(expected.ok().map(str::to_owned)),
            };
            assert_eq!(sent(&Credentials::bearer(text)).await, of_token, "{text:?}");
        }
    }

    #[tokio::test]
    async fn keeps_the_last_token_of_a_file_that_becomes_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = Credentials::token_file(&path, None);
        let missing = format!("no valid credentials: {}: no such file or directory", path.display());
        assert_eq!(sent(&credentials).await, Err(missing));
        for (text, expected) in [("one", "Bearer one"), ("two\n", "Bearer two"), ("", "Bearer two")] {
            fs::write(&path, text).unwrap();
            assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some(expected));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Bearer two"));
        assert_eq!(credentials.redact("not two".to_owned()), "not [redacted]");
        let credentials = Credentials::token_file(&path, Some("initial"));
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Bearer initial"));
    }

    #[tokio::test]
    async fn one_request_reads_the_file_and_others_send_a_fresh_token_meanwhile() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "one").unwrap();
        let credentials = Credentials::token_file(file.path(), None);
        let Source::TokenFile { reading, .. } = &credentials.source else { panic!() };
        let is_pending = || sent(&credentials).now_or_never().is_none();
        let reader = reading.lock().await;
        assert!(is_pending(), "no token was read yet");
        drop(reader);
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Bearer one"));
        fs::write(file.path(), "two").unwrap();
        let reader = reading.lock().await;
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Bearer one"));
        credentials.refuse();
        assert!(is_pending(), "the token was refused");
        drop(reader);
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Bearer two"));
        tokio::time::pause();
        tokio::time::advance(FRESH).await;
        let _reader = reading.lock().await;
        assert!(is_pending(), "the token is old");
    }

    #[tokio::test]
    async fn encodes_and_redacts_a_password() {
        let credentials = Credentials::basic("me", "s3cret-pässword");
        assert_eq!(sent(&credentials).await.unwrap().as_deref(), Some("Basic bWU6czNjcmV0LXDDpHNzd29yZA=="));
        let text = "s3cret-pässword, bWU6czNjcmV0LXDDpHNzd29yZA==".to_owned();
        assert_eq!(credentials.redact(text), "[redacted], [redacted]");
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
