//! What a request to a source asks for.

use http::HeaderMap;
use http::header::ACCEPT;
use listwatch::{FieldSelector, LabelSelector};
use percent_encoding::percent_decode_str;

/// What the path of a request names.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// `/api` or `/apis`.
    Discovery { is_core: bool },
    /// `/version`.
    Version,
    /// A collection, or an object of it.
    Resource(ResourcePath),
    /// Anything else.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

/// The parameters of a list or a watch.
#[derive(Default)]
pub struct ListQuery {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: Option<usize>,
    pub token: Option<String>,
    pub is_watch: bool,
    pub sends_initial_events: bool,
    pub has_bookmarks: bool,
    pub timeout_seconds: Option<u64>,
    pub include_object: String,
}

/// The form of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Objects,
    Metadata,
    Table,
}

impl Route {
    pub fn parse(path: &str) -> Self {
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let parts: Vec<_> = path.trim_matches('/').split('/').map(decode).collect();
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match &*parts {
            ["api"] => return Self::Discovery { is_core: true },
            ["apis"] => return Self::Discovery { is_core: false },
            ["version"] => return Self::Version,
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Other,
        };
        let (namespace, plural, name) = match rest {
            // `namespaces/web` is an object.
            ["namespaces", namespace, plural] => (Some(*namespace), *plural, None),
            ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name)),
            [plural] => (None, *plural, None),
            [plural, name] => (None, *plural, Some(*name)),
            _ => return Self::Other,
        };
        let own = |text: &str| text.to_owned();
        Self::Resource(ResourcePath {
            group: own(group),
            version: own(version),
            plural: own(plural),
            namespace: namespace.map(own),
            name: name.map(own),
        })
    }
}

impl ListQuery {
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned();
            let is_set = !matches!(&*value, "0" | "false");
            match name {
                "labelSelector" => parsed.labels = value.parse().map_err(|error| format!("{error}"))?,
                "fieldSelector" => parsed.fields = value.parse().map_err(|error| format!("{error}"))?,
                "limit" => parsed.limit = value.parse().ok().filter(|limit| *limit > 0),
                "continue" if !value.is_empty() => parsed.token = Some(value),
                "watch" => parsed.is_watch = is_set,
                "sendInitialEvents" => parsed.sends_initial_events = is_set,
                "allowWatchBookmarks" => parsed.has_bookmarks = is_set,
                "timeoutSeconds" => parsed.timeout_seconds = value.parse().ok(),
                "includeObject" => parsed.include_object = value,
                // Versions: a source has one.
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Returns the form that the reader prefers, and whether it accepts protobuf.
pub fn negotiate(headers: &HeaderMap) -> (Form, bool) {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    let form = if first.contains("as=Table") {
        Form::Table
    } else if first.contains("as=PartialObjectMetadata") {
        Form::Metadata
    } else {
        Form::Objects
    };
    (form, form != Form::Table && first.trim_start().starts_with("application/vnd.kubernetes.protobuf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths() {
        let path = |group: &str, plural: &str, namespace: Option<&str>, name: Option<&str>| {
            let own = |text: &str| text.to_owned();
            Route::Resource(ResourcePath {
                group: own(group),
                version: "v1".to_owned(),
                plural: own(plural),
                namespace: namespace.map(own),
                name: name.map(own),
            })
        };
        for (text, expected) in [
            ("/api", Route::Discovery { is_core: true }),
            ("/apis", Route::Discovery { is_core: false }),
            ("/version", Route::Version),
            ("/api/v1/pods", path("", "pods", None, None)),
            ("/api/v1/namespaces", path("", "namespaces", None, None)),
            ("/api/v1/namespaces/web", path("", "namespaces", None, Some("web"))),
            ("/api/v1/namespaces/web/pods", path("", "pods", Some("web"), None)),
            ("/api/v1/namespaces/web/pods/a", path("", "pods", Some("web"), Some("a"))),
            ("/apis/apps/v1/deployments", path("apps", "deployments", None, None)),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                path("rbac.authorization.k8s.io", "clusterroles", None, Some("system:node")),
            ),
            ("/api/v1/namespaces/web/pods/a/log", Route::Other),
            ("/openapi/v3", Route::Other),
        ] {
            assert_eq!(Route::parse(text), expected, "{text}");
        }
    }
}
