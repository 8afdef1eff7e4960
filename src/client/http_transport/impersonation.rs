//! The headers that impersonate a user (`impersonatingRoundTripper` in `transport/round_trippers.go` of client-go).

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::connect::setup;
use crate::client::transport::TransportError;

/// The user whose rights count, instead of the rights of the credentials.
#[derive(Clone, Debug)]
pub(in crate::client) struct Impersonation {
    pub(in crate::client) user: String,
    pub(in crate::client) uid: Option<String>,
    pub(in crate::client) groups: Vec<String>,
    pub(in crate::client) extra: Vec<(String, Vec<String>)>,
}

impl Impersonation {
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) -> Result<(), TransportError> {
        let mut add = |name: &str, value: &str| match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => {
                headers.append(name, value);
                Ok(())
            }
            _ => Err(setup(format!("the user to impersonate: {name} has a character that no header can carry"))),
        };
        add("impersonate-user", &self.user)?;
        if let Some(uid) = &self.uid {
            add("impersonate-uid", uid)?;
        }
        for group in &self.groups {
            add("impersonate-group", group)?;
        }
        for (key, values) in &self.extra {
            for value in values {
                add(&format!("impersonate-extra-{}", escaped(key)), value)?;
            }
        }
        Ok(())
    }
}

/// Escapes a key as client-go does: what no name of a header can contain, and `%`.
fn escaped(key: &str) -> String {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if is_legal(byte) {
            text.push(char::from(byte));
        } else {
            _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_the_headers_of_client_go() {
        let extra = vec![
            ("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("x/y %é".to_owned(), vec![String::new()]),
        ];
        let groups = vec!["dev".to_owned(), "ops".to_owned()];
        let jane = Impersonation { user: "jané".to_owned(), uid: Some("7".to_owned()), groups, extra };
        let mut headers = HeaderMap::new();
        jane.add_headers(&mut headers).unwrap();
        let sent: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), str::from_utf8(value.as_bytes()).unwrap())).collect();
        for expected in [
            ("impersonate-user", "jané"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-extra-scopes", "a"),
            ("impersonate-extra-scopes", "b"),
            ("impersonate-extra-x%2fy%20%25%c3%a9", ""),
        ] {
            assert!(sent.contains(&expected), "{expected:?} in {sent:?}");
        }
        let broken = Impersonation { user: "a\nb".to_owned(), ..jane };
        let error = broken.add_headers(&mut HeaderMap::new()).unwrap_err();
        let expected = "the user to impersonate: impersonate-user has a character that no header can carry";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}
