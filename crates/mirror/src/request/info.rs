//! What a request asks for, read from its method, path and query as the API server reads them.
//!
//! # Before you change this file
//!
//! - The attributes of a review, the read from the cache and the forwarded request come from the same decoded parts. If
//!   two of them could differ, a reader could get what was not reviewed.
//! - The forwarded path and query are built again from the decoded parts. The API server never parses the reader's
//!   bytes.
//! - What the API server and the mirror might read in different ways is refused with 400: escaped slashes, `..`,
//!   semicolons, broken escapes.
//! - What is not named here is forwarded or refused. A new parameter of the API server is forwarded:
//!   [`ListOptions::parse`] returns `None` for it.
//! - A GET of a subresource may have effects (`exec`, `proxy`), so only known ones pass (`path.rs`).
//! - The tables of the tests come from `requestinfo_test.go` of apiserver.

use http::{Method, StatusCode};

use super::attributes::{Attributes, ReadVerb, ResourceAttributes};
use super::list_options::{ListOptions, selected_name};
use super::path::{ResourcePath, decode_segments, encode_path_and_query, join_segments};
use super::query::QueryPairs;
use crate::response::{Refusal, status};

/// Where `kubectl auth can-i` sends its question.
const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The longest accepted path and query, in bytes. The API server limits only all headers together, to 1 MiB.
const MAX_URI_BYTES: usize = 64 << 10;

/// What a request asks for: it may be answered once the reader is authorized for `attributes`. The name is apiserver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub(crate) route: RequestRoute,
    pub(crate) attributes: Attributes,
    /// Path and query, rebuilt from their decoded parts: the API server reads in them what the mirror authorized.
    pub(crate) path_and_query: String,
}

/// Which part of the mirror answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestRoute {
    /// The cache of the resource, if it is mirrored; else the API server.
    Read(Box<ReadRequest>),
    /// The API server.
    Forward,
    /// The mirror, about itself.
    Own(OwnPage),
    /// The mirror, by a review of the reader that sends a `SelfSubjectAccessReview`.
    SelfReview,
}

/// A page about the mirror itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnPage {
    /// `/healthz` and `/livez`: the process answers.
    Live,
    /// `/readyz`, or `/readyz/RESOURCE` for one resource.
    Ready { resource: Option<String>, verbose: bool },
    /// `/metrics`.
    Metrics,
}

/// A GET of one object, a list or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    /// `""` for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// `None` for all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: Option<String>,
    /// The name of the object; set exactly for [`ReadVerb::Get`].
    pub(crate) name: Option<String>,
    pub(crate) verb: ReadVerb,
    pub(crate) options: ListOptions,
}

impl RequestInfo {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// [`Refusal::Status`] for a request that the mirror answers with an error, whoever sends it.
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, Refusal> {
        if *method == Method::POST && path == SELF_REVIEWS {
            let attributes = Attributes::Path { verb: "post", path: path.to_owned() };
            return Ok(Self { route: RequestRoute::SelfReview, attributes, path_and_query: path.to_owned() });
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(status::method_not_allowed().into());
        }
        if path.len() + query.map_or(0, str::len) > MAX_URI_BYTES {
            let message = format!("the request URI is over the limit of {MAX_URI_BYTES} bytes");
            return Err(status::failure(StatusCode::URI_TOO_LONG, "RequestURITooLong", message).into());
        }
        let segments = decode_segments(path)?;
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        let query = QueryPairs::parse(query.unwrap_or_default())?;
        let is_of_resource = matches!(segments[..], ["api", _, _, ..] | ["apis", _, _, _, ..]);
        // Slashes after a resource mean nothing, but a review of any other path has them: `/openapi/v2/` is not
        // `/openapi/v2`.
        let end = if path.ends_with('/') && !is_of_resource { "/" } else { "" };
        let of_path = |path| Attributes::Path { verb: if *method == Method::HEAD { "head" } else { "get" }, path };
        // The API server has no HEAD of these.
        let has_head = !matches!(segments[..], ["api" | "version" | ".well-known", ..] | ["apis", _, _, ..]);
        if *method == Method::HEAD && !has_head {
            return Err(status::method_not_allowed().into());
        }
        let (route, attributes) = match segments[..] {
            ["healthz" | "livez"] => (RequestRoute::Own(OwnPage::Live), of_path(join_segments(&segments))),
            ["readyz", ref resource @ ..] if resource.len() < 2 => {
                let verbose = query.names().any(|name| name == "verbose");
                let resource = resource.first().map(ToString::to_string);
                (RequestRoute::Own(OwnPage::Ready { resource, verbose }), of_path(join_segments(&segments)))
            }
            ["metrics"] => (RequestRoute::Own(OwnPage::Metrics), of_path("/metrics".to_owned())),
            ["api", version, ref rest @ ..] if is_of_resource => route_resource("", version, rest, &query)?,
            ["apis", group, version, ref rest @ ..] if is_of_resource => route_resource(group, version, rest, &query)?,
            ["api" | "apis" | "openapi" | "version" | ".well-known", ..] => {
                (RequestRoute::Forward, of_path(join_segments(&segments) + end))
            }
            // The API server has more: /logs, /debug, /swagger. No reader of a mirror needs them.
            _ => return Err(status::no_such_path().into()),
        };
        Ok(Self { route, attributes, path_and_query: encode_path_and_query(&segments, end, &query) })
    }
}

/// Returns which part of the mirror answers a read of a resource, and its attributes.
fn route_resource(
    group: &str,
    version: &str,
    segments: &[&str],
    query: &QueryPairs,
) -> Result<(RequestRoute, Attributes), Refusal> {
    let path = ResourcePath::parse(segments)?;
    let verb = match path.name {
        Some(_) => ReadVerb::Get,
        None if query.parse_flag("watch").unwrap_or_default() => ReadVerb::Watch,
        None => ReadVerb::List,
    };
    let attributes = Attributes::Resource(resource_attributes(group, version, &path, verb, query));
    if path.is_old_watch || !path.subresource.is_empty() {
        return Ok((RequestRoute::Forward, attributes));
    }
    let Some(options) = ListOptions::parse(verb, query)? else { return Ok((RequestRoute::Forward, attributes)) };
    let read = ReadRequest {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: path.resource.to_owned(),
        namespace: path.namespace_of_objects().map(str::to_owned),
        name: path.name.map(str::to_owned),
        verb,
        options,
    };
    Ok((RequestRoute::Read(Box::new(read)), attributes))
}

/// Derives the attributes of a review, as the API server derives them from the same request.
fn resource_attributes(
    group: &str,
    version: &str,
    path: &ResourcePath<'_>,
    verb: ReadVerb,
    query: &QueryPairs,
) -> ResourceAttributes {
    // The API server authorizes an old watch without its selectors, because not each of these paths has them.
    let has_selectors = verb != ReadVerb::Get && !path.is_old_watch;
    let selector = |name| query.first_value(name).filter(|_| has_selectors).unwrap_or_default().to_owned();
    let field_selector = selector("fieldSelector");
    ResourceAttributes {
        verb: if path.is_old_watch { "watch" } else { verb.as_str() },
        group: group.to_owned(),
        version: version.to_owned(),
        resource: path.resource.to_owned(),
        subresource: path.subresource.to_owned(),
        namespace: path.namespace.unwrap_or_default().to_owned(),
        name: path.name.map(str::to_owned).or_else(|| selected_name(&field_selector)).unwrap_or_default(),
        label_selector: selector("labelSelector"),
        field_selector,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(uri: &str) -> Result<RequestInfo, Refusal> {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        RequestInfo::parse(&Method::GET, path, query)
    }

    /// Returns who answers and for which attributes, as text.
    fn shown(uri: &str) -> String {
        match get(uri) {
            Err(Refusal::Status(status)) => status.code.to_string(),
            Err(Refusal::Forward(reason)) => reason.as_str().to_owned(),
            Ok(RequestInfo { route, attributes, .. }) => {
                let what = match route {
                    RequestRoute::Read(read) => {
                        let ReadRequest { group, version, plural, namespace, name, verb, .. } = *read;
                        format!("{verb:?} {group}/{version}/{plural} {namespace:?} {name:?}")
                    }
                    RequestRoute::Forward => "Forward".to_owned(),
                    RequestRoute::Own(own) => format!("{own:?}"),
                    RequestRoute::SelfReview => "SelfReview".to_owned(),
                };
                match attributes {
                    Attributes::Path { verb: "get", path } => format!("{what}: {path}"),
                    Attributes::Path { verb, path } => format!("{what}: {verb} {path}"),
                    Attributes::Resource(of) => format!(
                        "{what}: {} {}/{} {} {:?} {:?}",
                        of.verb, of.group, of.resource, of.subresource, of.namespace, of.name
                    ),
                }
            }
        }
    }

    #[test]
    fn reads_paths_as_the_api_server() {
        for (uri, expected) in [
            ("/api/v1/pods", r#"List /v1/pods None None: list /pods  "" """#),
            ("/api/v1/namespaces/a/pods", r#"List /v1/pods Some("a") None: list /pods  "a" """#),
            ("/api/v1/namespaces/a/pods/b", r#"Get /v1/pods Some("a") Some("b"): get /pods  "a" "b""#),
            ("/api/v1/nodes/n", r#"Get /v1/nodes None Some("n"): get /nodes  "" "n""#),
            ("/api/v1/namespaces", r#"List /v1/namespaces None None: list /namespaces  "" """#),
            ("/api/v1/namespaces/a", r#"Get /v1/namespaces None Some("a"): get /namespaces  "a" "a""#),
            ("/api/v1/namespaces/a/status", r#"Forward: get /namespaces status "a" "a""#),
            (
                "/apis/apps/v1/namespaces/a/deployments",
                r#"List apps/v1/deployments Some("a") None: list apps/deployments  "a" """#,
            ),
            (
                "/apis/apps/v1/deployments?watch=1",
                r#"Watch apps/v1/deployments None None: watch apps/deployments  "" """#,
            ),
            ("/api/v1/pods?watch=", r#"Watch /v1/pods None None: watch /pods  "" """#),
            ("/api/v1/pods?watch=no", r#"Watch /v1/pods None None: watch /pods  "" """#),
            ("/api/v1/pods?watch=False", r#"List /v1/pods None None: list /pods  "" """#),
            ("/api/v1/pods?watch=0&watch=1", r#"List /v1/pods None None: list /pods  "" """#),
            // `watch` is not an option of a GET.
            ("/api/v1/nodes/n?watch=1", r#"Forward: get /nodes  "" "n""#),
            ("/api/v1/pods?unknown=1", r#"Forward: list /pods  "" """#),
            ("/api/v1/pods?fieldSelector=metadata.name%3Db", r#"List /v1/pods None None: list /pods  "" "b""#),
            ("/api/v1/pods?fieldSelector=metadata.name!%3Db", r#"List /v1/pods None None: list /pods  "" """#),
            ("/api/v1/pods?fieldSelector=a%5C,metadata.name%3Db", r#"List /v1/pods None None: list /pods  "" """#),
            ("/api/v1/namespaces/a/pods/b/log?follow=true", r#"Forward: get /pods log "a" "b""#),
            ("/api/v1/watch/pods", r#"Forward: watch /pods  "" """#),
            ("/api/v1/watch/namespaces/a/secrets", r#"Forward: watch /secrets  "a" """#),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                r#"Get rbac.authorization.k8s.io/v1/clusterroles None Some("system:node"): get rbac.authorization.k8s.io/clusterroles  "" "system:node""#,
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3anode",
                r#"Get rbac.authorization.k8s.io/v1/clusterroles None Some("system:node"): get rbac.authorization.k8s.io/clusterroles  "" "system:node""#,
            ),
            ("/api/v1/pods/", r#"List /v1/pods None None: list /pods  "" """#),
            ("/api/v1/pods//?watch=1", r#"Watch /v1/pods None None: watch /pods  "" """#),
            ("/api/v1/namespaces/", r#"List /v1/namespaces None None: list /namespaces  "" """#),
            ("/api/v1/namespaces/a/", r#"Get /v1/namespaces None Some("a"): get /namespaces  "a" "a""#),
            ("/api/v1/namespaces/a/pods/b/", r#"Get /v1/pods Some("a") Some("b"): get /pods  "a" "b""#),
            ("/api/v1/namespaces/a/pods/b/log/", r#"Forward: get /pods log "a" "b""#),
            ("/api/v1/n%6fdes/", r#"List /v1/nodes None None: list /nodes  "" """#),
            ("/api", "Forward: /api"),
            ("/api/v1/", "Forward: /api/v1/"),
            ("/openapi/v2/", "Forward: /openapi/v2/"),
            ("/apis/apps", "Forward: /apis/apps"),
            ("/apis/apps/v1", "Forward: /apis/apps/v1"),
            ("/openapi/v3/apis/apps/v1?hash=x", "Forward: /openapi/v3/apis/apps/v1"),
            ("/version", "Forward: /version"),
            ("/healthz", "Live: /healthz"),
            ("/readyz/pods?verbose", r#"Ready { resource: Some("pods"), verbose: true }: /readyz/pods"#),
            ("/metrics", "Metrics: /metrics"),
        ] {
            assert_eq!(shown(uri), expected, "{uri}");
        }
    }

    /// The facts of apiserver `endpoints/request/requestinfo_test.go` (`TestGetAPIRequestInfo`,
    /// `TestGetNonAPIRequestInfo`, `TestSelectorParsing`), and of its code where it has no test.
    #[test]
    fn derives_the_attributes_of_a_review_as_the_api_server() {
        // Verb, group, version, namespace, resource, subresource, name, field selector and label selector.
        let attributes = |method: &Method, uri: &str| {
            let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
            match RequestInfo::parse(method, path, query) {
                Ok(RequestInfo { attributes: Attributes::Resource(of), .. }) => {
                    let selectors = [&*of.field_selector, &*of.label_selector];
                    let of = [of.verb, &of.group, &of.version, &of.namespace, &of.resource, &of.subresource, &of.name]
                        .map(|part| if part.is_empty() { "-" } else { part })
                        .join(" ");
                    selectors.into_iter().filter(|text| !text.is_empty()).fold(of, |of, text| of + " " + text)
                }
                Ok(RequestInfo { attributes: Attributes::Path { verb, path }, .. }) => format!("{verb} {path}"),
                Err(Refusal::Status(status)) => status.code.to_string(),
                Err(Refusal::Forward(reason)) => reason.as_str().to_owned(),
            }
        };
        for (uri, expected) in [
            ("/api/v1/namespaces", "list - v1 - namespaces - -"),
            ("/api/v1/namespaces/other", "get - v1 other namespaces - other"),
            ("/api/v1/namespaces/other/pods", "list - v1 other pods - -"),
            ("/api/v1/namespaces/other/pods/foo", "get - v1 other pods - foo"),
            ("/api/v1/pods", "list - v1 - pods - -"),
            ("/api/v1/watch/pods", "watch - v1 - pods - -"),
            ("/api/v1/pods?watch=true", "watch - v1 - pods - -"),
            ("/api/v1/pods?watch=false", "list - v1 - pods - -"),
            ("/api/v1/watch/namespaces/other/pods", "watch - v1 other pods - -"),
            ("/api/v1/namespaces/other/pods?watch=1", "watch - v1 other pods - -"),
            ("/api/v1/namespaces/other/pods?watch=0", "list - v1 other pods - -"),
            ("/api/v1/namespaces/other/pods/foo/status", "get - v1 other pods status foo"),
            ("/api/v1/namespaces/other/status", "get - v1 other namespaces status other"),
            ("/apis/batch/v1/job", "list batch v1 - job - -"),
            ("/apis/batch/v1/job/foo", "get batch v1 - job - foo"),
            ("/apis/batch/v1/job/foo/scale", "get batch v1 - job scale foo"),
            ("/apis/extensions/v1beta1", "get /apis/extensions/v1beta1"),
            ("/apis/extensions/v1beta1/", "get /apis/extensions/v1beta1/"),
            ("/api/version", "get /api/version"),
            ("/api/version/", "get /api/version/"),
            ("/api", "get /api"),
            ("/apis/version/resource", "get /apis/version/resource"),
            // Old watches of one object, and of Namespaces.
            ("/apis/g/v/watch/resource/name", "watch g v - resource - name"),
            ("/api/v1/watch/namespaces", "watch - v1 - namespaces - -"),
            ("/api/v1/watch/namespaces/other", "watch - v1 other namespaces - other"),
            ("/api/v1/watch/namespaces/other/pods/foo", "watch - v1 other pods - foo"),
            // Resources whose names are verbs elsewhere.
            ("/api/v1/namespaces/other/watch/pods", "get - v1 other watch - pods"),
            ("/api/v1/pods/watch", "get - v1 - pods - watch"),
            // The mirror does not have these paths.
            ("/api/v1/watch", "404"),
            ("/api/v1/proxy/namespaces/other/pods/foo", "403"),
            ("/api/v1/namespaces/other/finalize", "403"),
            ("/api/v1/namespaces/other/status/more", "404"),
            ("/api/v1/namespaces/other/pods/foo/proxy/subpath", "403"),
        ] {
            assert_eq!(attributes(&Method::GET, uri), expected, "{uri}");
            let of_head = if uri == "/openapi/v2" { "head /openapi/v2" } else { "405" };
            assert_eq!(attributes(&Method::HEAD, uri), of_head, "HEAD {uri}");
        }
        for (path_and_query, expected) in [
            ("resource?fieldSelector=metadata.name=name1", "list name1 metadata.name=name1"),
            ("resource?watch=true&fieldSelector=metadata.name=name1", "watch name1 metadata.name=name1"),
            ("resource?fieldSelector=foo=bar&labelSelector=baz=qux", "list - foo=bar baz=qux"),
            ("resource?fieldSelector=metadata.name=name1,foo", "400"),
            ("resource?fieldSelector=metadata.name=name1,foo&watch=true", "400"),
            (
                "resource?fieldSelector=metadata.name=foo&fieldSelector=metadata.name=bar&labelSelector=foo=bar&labelSelector=foo=baz",
                "list foo metadata.name=foo foo=bar",
            ),
            ("resource/name?fieldSelector=foo=bar&labelSelector=foo=bar", "get name"),
            ("watch/resource?fieldSelector=metadata.name=foo&labelSelector=foo=bar", "watch -"),
            ("watch/resource/name?fieldSelector=metadata.name=foo&labelSelector=foo=bar", "watch name"),
            // The API server sorts the terms.
            ("resource?fieldSelector=metadata.name=b,metadata.name=a", "list a metadata.name=b,metadata.name=a"),
            ("resource?fieldSelector=metadata.name==b", "list b metadata.name==b"),
            ("resource?fieldSelector=metadata.name=a/b", "list - metadata.name=a/b"),
            ("resource?fieldSelector=metadata.name=a=b", "400"),
            ("resource?fieldSelector=&labelSelector=", "list -"),
        ] {
            let found = attributes(&Method::GET, &format!("/apis/g/v/{path_and_query}"));
            assert_eq!(found.replace(" g v - resource -", ""), expected, "{path_and_query}");
        }
    }

    #[test]
    fn refuses_tricks_in_paths() {
        for (uri, code) in [
            ("//api/v1/pods", 400),
            ("/api//v1/pods", 400),
            ("/api/v1/pods/../secrets", 400),
            ("/api/v1/pods/%2e%2e/secrets", 400),
            ("/api/v1/./secrets", 400),
            ("/api/v1/namespaces/a%2fsecrets", 400),
            ("/api/v1/namespaces/a%2Fsecrets/x", 400),
            ("/api/v1/namespaces/a%252fsecrets", 400),
            ("/api/v1/secrets%00", 400),
            ("/api/v1/secrets%20", 400),
            ("/api/v1/secrets;x", 400),
            ("/api/v1/pods\\..\\secrets", 400),
            ("/api/v1/%zz", 400),
            ("/api/v1/%c0%af", 400),
            ("/api/v1/secr\u{e9}ts", 400),
            ("/api/v1/secrets%", 400),
            ("/api/v1/namespaces//secrets/", 400),
            ("/api/v1/namespaces/a/secrets/%2f", 400),
            ("//", 404),
            ("", 400),
            ("*", 400),
            ("/", 404),
            ("/logs/kube-apiserver.log", 404),
            ("/debug/pprof/heap", 404),
            ("/readyz/a/b", 404),
            ("/api/v1/namespaces/a/pods/b/log/c", 404),
            ("/api/v1/pods?watch=1;limit=1", 400),
            ("/api/v1/pods?limit=%", 400),
            ("/api/v1/pods?labelSelector=%ff", 400),
            ("/api/v1/pods?labelSelector=%00", 400),
        ] {
            assert_eq!(shown(uri), code.to_string(), "{uri}");
        }
        assert_eq!(shown(&format!("/api/v1/pods?labelSelector={}", "a".repeat(MAX_URI_BYTES))), "414");
    }

    #[test]
    fn refuses_subresources_with_effects() {
        for uri in [
            "/api/v1/namespaces/a/pods/b/exec?command=sh",
            "/api/v1/namespaces/a/pods/b/attach",
            "/api/v1/namespaces/a/pods/b/portforward",
            "/api/v1/namespaces/a/pods/b/proxy",
            "/api/v1/namespaces/a/pods/b/proxy/metrics",
            "/api/v1/namespaces/a/services/http:b:80/proxy/x/y",
            "/api/v1/nodes/n/proxy/run/a/b/c",
            "/api/v1/proxy/nodes/n",
            "/api/v1/watch/nodes/n/proxy",
            "/api/v1/namespaces/a/serviceaccounts/b/token",
            "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/vnc",
        ] {
            assert_eq!(shown(uri), "403", "{uri}");
        }
    }

    #[test]
    fn refuses_methods_that_write() {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "GETS"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let Err(Refusal::Status(status)) = RequestInfo::parse(&method, "/api/v1/pods", None) else {
                panic!("{method}")
            };
            assert_eq!(status.code, 405);
        }
    }

    /// Measured against kube-apiserver 1.37.
    #[test]
    fn resources_have_no_head() {
        for (path, is_known) in [
            ("/api/v1/pods", false),
            ("/api/v1/namespaces/a/pods/b", false),
            ("/api/v1", false),
            ("/api", false),
            ("/apis/apps/v1/deployments", false),
            ("/apis/apps/v1", false),
            ("/version", false),
            ("/apis/apps", true),
            ("/apis", true),
            ("/openapi/v2", true),
            ("/livez", true),
            ("/metrics", true),
        ] {
            match RequestInfo::parse(&Method::HEAD, path, None) {
                Err(Refusal::Status(status)) => assert_eq!((status.code, is_known), (405, false), "{path}"),
                parsed => assert!(parsed.is_ok() && is_known, "{path}"),
            }
        }
    }

    /// The API server must read what the mirror authorized.
    #[test]
    fn rebuilds_the_path_and_the_query() {
        for (uri, expected) in [
            (
                "/api/v1/pods?labelSelector=a%20in%20(b,c)&limit=5",
                "/api/v1/pods?labelSelector=a+in+%28b%2Cc%29&limit=5",
            ),
            ("/api/v1/nodes/%6e", "/api/v1/nodes/n"),
            ("/openapi/v2", "/openapi/v2"),
            ("/apis/", "/apis/"),
            ("/apis/apps/v1//", "/apis/apps/v1/"),
            ("/api/v1/nodes/?limit=5", "/api/v1/nodes?limit=5"),
            ("/api/v1/namespaces/a/pods/b/log/", "/api/v1/namespaces/a/pods/b/log"),
            ("/api/v1/pods?", "/api/v1/pods"),
            ("/api/v1/pods?watch", "/api/v1/pods?watch="),
        ] {
            assert_eq!(get(uri).unwrap().path_and_query, expected, "{uri}");
        }
    }
}
