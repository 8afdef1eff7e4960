//! The credentials in the `Authorization` header.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

use super::transport::{TransportError, TransportErrorKind, redact_secret};
use crate::sync::{Mutex, lock};

/// The credentials that a transport sends in the `Authorization` header, for implementations of
/// [`Transport`](super::Transport).
///
/// Neither errors nor `Debug` output show them. Header values are marked as sensitive.
#[derive(Default)]
pub struct Credentials {
    source: Source,
    /// The secret of the last header, which is redacted.
    last: Mutex<Option<SecretString>>,
}

#[derive(Default)]
enum Source {
    #[default]
    None,
    Bearer(SecretString),
    /// The base64 form of the user's name and password.
    Basic(SecretString),
    TokenFile(PathBuf),
}

impl Credentials {
    /// Creates credentials of this bearer token. White space around it is ignored. An empty token is no credentials.
    #[must_use]
    pub fn bearer(token: &SecretString) -> Self {
        let token = SecretString::from(token.expose_secret().trim());
        let is_empty = token.expose_secret().is_empty();
        let source = if is_empty { Source::None } else { Source::Bearer(token.clone()) };
        Self { source, last: Mutex::new(Some(token)) }
    }

    /// Creates credentials of a user's name and password.
    #[must_use]
    pub fn basic(user: &str, password: &SecretString) -> Self {
        let encoded = BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()));
        Self { source: Source::Basic(encoded.into()), last: Mutex::new(Some(password.clone())) }
    }

    /// Creates credentials of the bearer token in this file, which is read for each request.
    ///
    /// If the file cannot be read or is empty, the previous token is used, as in client-go
    /// (`transport/token_source.go`). Before the first token, it is `initial`.
    #[must_use]
    pub fn token_file(path: impl Into<PathBuf>, initial: Option<SecretString>) -> Self {
        Self { source: Source::TokenFile(path.into()), last: Mutex::new(initial) }
    }

    /// Returns true unless there are no credentials.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !matches!(self.source, Source::None)
    }

    /// Returns true if a later header may differ, because a file is read.
    #[must_use]
    pub fn can_change(&self) -> bool {
        matches!(self.source, Source::TokenFile(_))
    }

    /// Returns the value of the `Authorization` header; `None` without credentials.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`] if the file has no token and there is no previous one, or if the token
    /// contains a character that no header can carry. The error names the source, and does not show the token.
    pub fn header(&self) -> Result<Option<HeaderValue>, TransportError> {
        match &self.source {
            Source::None => Ok(None),
            Source::Bearer(token) => header("Bearer", token, "the token").map(Some),
            Source::Basic(encoded) => header("Basic", encoded, "the password").map(Some),
            Source::TokenFile(path) => {
                let mut last = lock(&self.last);
                let token = match fs::read_to_string(path) {
                    Ok(text) if text.trim().is_empty() => Err(format!("{}: the file is empty", path.display())),
                    Ok(text) => Ok(SecretString::from(text.trim())),
                    Err(error) => Err(format!("{}: {error}", path.display())),
                };
                let token = match (token, &*last) {
                    (Ok(token), _) => token,
                    (Err(error), Some(previous)) => {
                        tracing::warn!(name: "listwatch.credentials", %error, "cannot read the token: sending the previous one");
                        previous.clone()
                    }
                    (Err(error), None) => return Err(TransportError::new(TransportErrorKind::Credentials, error)),
                };
                let value = header("Bearer", &token, &format!("{}: the token", path.display()))?;
                *last = Some(token);
                Ok(Some(value))
            }
        }
    }

    /// Removes the secrets of the last header from a text: see [`redact_secret`].
    #[must_use]
    pub fn redact(&self, mut text: String) -> String {
        if let Source::Basic(encoded) = &self.source {
            text = redact_secret(text, encoded.expose_secret());
        }
        match &*lock(&self.last) {
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
    use super::*;

    fn sent(credentials: &Credentials) -> Result<Option<String>, String> {
        let header = credentials.header().map_err(|error| error.to_string())?;
        assert!(header.iter().all(HeaderValue::is_sensitive));
        Ok(header.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()))
    }

    #[test]
    fn trims_tokens_and_names_the_source_of_an_invalid_token() {
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
            let of_file = sent(&Credentials::token_file(&path, None));
            let what = if expected == Err(invalid) { "the token " } else { "" };
            let expected_of_file = expected.map(|header| Some(header.to_owned()));
            assert_eq!(
                of_file,
                expected_of_file.map_err(|error| format!("credentials: {at}: {what}{error}")),
                "{text:?}"
            );
            let of_token = match expected {
                Err(error) if error == invalid => Err(format!("credentials: the token {invalid}")),
                expected => Ok(expected.ok().map(str::to_owned)),
            };
            assert_eq!(sent(&Credentials::bearer(&text.into())), of_token, "{text:?}");
        }
    }

    #[test]
    fn keeps_the_last_token_of_a_file_that_becomes_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = Credentials::token_file(&path, None);
        let missing = sent(&credentials).unwrap_err();
        assert!(missing.starts_with(&format!("credentials: {}: ", path.display())), "{missing}");
        for (text, expected) in [("one", "Bearer one"), ("two\n", "Bearer two"), ("", "Bearer two")] {
            fs::write(&path, text).unwrap();
            assert_eq!(sent(&credentials).unwrap().as_deref(), Some(expected));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(sent(&credentials).unwrap().as_deref(), Some("Bearer two"));
        assert_eq!(credentials.redact("not two".to_owned()), "not [redacted]");
        let credentials = Credentials::token_file(&path, Some("initial".into()));
        assert_eq!(sent(&credentials).unwrap().as_deref(), Some("Bearer initial"));
    }

    #[test]
    fn encodes_and_redacts_a_password() {
        let credentials = Credentials::basic("me", &"s3cret-pässword".into());
        assert_eq!(sent(&credentials).unwrap().as_deref(), Some("Basic bWU6czNjcmV0LXDDpHNzd29yZA=="));
        let text = "s3cret-pässword, bWU6czNjcmV0LXDDpHNzd29yZA==".to_owned();
        assert_eq!(credentials.redact(text), "[redacted], [redacted]");
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
