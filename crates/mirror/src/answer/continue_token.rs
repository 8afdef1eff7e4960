//! Continue tokens, in the format of the API server, which continues the list if the mirror no longer has its version
//! (apiserver `pkg/storage/continue.go`).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use listwatch_cache::ObjectKey;
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";

/// A place in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    pub(super) resource_version: String,
    /// The last key of the pages before.
    pub(super) after: ObjectKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenJson<'a> {
    v: &'a str,
    rv: i64,
    start: std::borrow::Cow<'a, str>,
}

impl ContinueToken {
    /// Returns the text of a token; `None` if the version is not a number of the API server.
    pub(super) fn encode(resource_version: &str, namespace: Option<&str>, key: (&str, &str)) -> Option<String> {
        let key = match (namespace, key) {
            (None, (namespace, name)) if !namespace.is_empty() => format!("/{namespace}/{name}\0"),
            (_, (_, name)) => format!("/{name}\0"),
        };
        let json = TokenJson { v: VERSION, rv: resource_version.parse().ok()?, start: key.into() };
        Some(BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&json).ok()?))
    }

    /// Reads a token of a list of this namespace. `None` for any text that this mirror did not write.
    pub(super) fn decode(text: &str, namespace: Option<&str>, is_namespaced: bool) -> Option<Self> {
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let TokenJson { v, rv, start } = serde_json::from_slice(&json).ok()?;
        let key = start.strip_prefix('/').unwrap_or(&start).strip_suffix('\0')?;
        let (namespace, name) = match namespace {
            None if is_namespaced => key.split_once('/')?,
            namespace => (namespace.unwrap_or_default(), key),
        };
        let is_valid = v == VERSION && rv > 0 && !name.is_empty() && !name.contains(['/', '\0']);
        let after = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        is_valid.then(|| Self { resource_version: rv.to_string(), after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token of `pods-page-1.pb`, which kube-apiserver 1.36 wrote.
    const RECORDED: &str =
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NTI1LCJzdGFydCI6Ii90ZWFtLTA4L2NoZWNrb3V0LTU3M2M2M2ZjLTAwMDA4XHUwMDAwIn0";

    #[test]
    fn writes_and_reads_tokens_of_the_api_server() {
        let key = ("team-08", "checkout-573c63fc-00008");
        assert_eq!(ContinueToken::encode("525", None, key).as_deref(), Some(RECORDED));
        let token = ContinueToken::decode(RECORDED, None, true).unwrap();
        assert_eq!((token.resource_version.as_str(), (&token.after).into()), ("525", key));
        let of_namespace = ContinueToken::encode("7", Some("a"), ("a", "b")).unwrap();
        let token = ContinueToken::decode(&of_namespace, Some("a"), true).unwrap();
        assert_eq!(<(&str, &str)>::from(&token.after), ("a", "b"));
        let of_cluster = ContinueToken::encode("7", None, ("", "node")).unwrap();
        assert_eq!(ContinueToken::decode(&of_cluster, None, false).unwrap().after.name, "node");
    }

    #[test]
    fn refuses_foreign_tokens() {
        let encode = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
        for text in [
            String::new(),
            "x".to_owned(),
            encode(r#"{"v":"meta.k8s.io/v2","rv":5,"start":"/a/b\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"/a/b\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/a/b"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/a/../b\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/a\u0000"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"/a/b\u0000","x":1}"#),
        ] {
            assert_eq!(ContinueToken::decode(&text, None, true), None, "{text}");
        }
    }
}
