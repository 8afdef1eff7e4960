//! The path of a request: its segments, and what they name if it is of a resource.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::query::{QueryPairs, has_valid_escapes};
use crate::response::{Refusal, status};

/// The bytes of a segment that need no escape.
const UNESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@').remove(b'=');

/// The subresources whose GET only reads. Others act on a container or reach something that is not the API server, such
/// as `exec` and `proxy`, or are unknown here.
const READ_ONLY_SUBRESOURCES: [&str; 6] = ["approval", "ephemeralcontainers", "log", "resize", "scale", "status"];

/// Splits a path and decodes its segments. As the API server, it ignores slashes at the end (`splitPath` in apiserver
/// `pkg/endpoints/request/requestinfo.go`).
pub(super) fn decode_segments(path: &str) -> Result<Vec<Cow<'_, str>>, Refusal> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(status::bad_request("the path must start with /").into());
    };
    let rest = rest.trim_end_matches('/');
    if rest.is_empty() { Ok(Vec::new()) } else { rest.split('/').map(decode_segment).collect() }
}

fn decode_segment(raw: &str) -> Result<Cow<'_, str>, Refusal> {
    let refused = || Refusal::from(status::bad_request(format!("the path has an invalid segment: {raw:?}")));
    if !has_valid_escapes(raw) {
        return Err(refused());
    }
    let segment = percent_decode_str(raw).decode_utf8().map_err(|_| refused())?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'\\' | b'?' | b'#' | b';');
    if segment.is_empty() || segment == "." || segment == ".." || !segment.bytes().all(is_plain) {
        return Err(refused());
    }
    Ok(segment)
}

/// Returns the decoded path of these segments, for a review.
pub(super) fn join_segments(segments: &[&str]) -> String {
    segments.iter().fold(String::new(), |path, segment| path + "/" + segment)
}

/// Returns a path and a query with escapes, built from their decoded parts.
pub(super) fn encode_path_and_query(segments: &[&str], end: &str, query: &QueryPairs) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.extend(utf8_percent_encode(segment, UNESCAPED));
    }
    path.push_str(end);
    if let Some(query) = query.encode() {
        path.push('?');
        path.push_str(&query);
    }
    path
}

/// The part of a path after the version. Empty fields are absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResourcePath<'p> {
    /// True for the old form of a watch, whose first segment is the verb.
    pub(super) is_old_watch: bool,
    pub(super) namespace: Option<&'p str>,
    pub(super) resource: &'p str,
    pub(super) name: Option<&'p str>,
    pub(super) subresource: &'p str,
}

impl<'p> ResourcePath<'p> {
    /// Reads the segments after the version, as the API server does (apiserver `endpoints/request/requestinfo.go`).
    ///
    /// # Errors
    ///
    /// 403 for a subresource whose GET may have effects, 404 for a path of no resource.
    pub(super) fn parse(segments: &[&'p str]) -> Result<Self, Refusal> {
        // Old forms of paths: the verb is the first segment.
        let (is_old_watch, rest) = match *segments {
            ["watch"] => return Err(status::no_such_path().into()),
            ["watch", ref rest @ ..] => (true, rest),
            ["proxy" | "redirect", ..] => return Err(refuse_effects("proxy")),
            _ => (false, segments),
        };
        let (namespace, rest) = match *rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize", ..] => (Some(name), rest),
            ["namespaces", name, ref rest @ ..] => (Some(name), rest),
            ref rest => (None, rest),
        };
        let (resource, name, subresource) = match *rest {
            [resource] => (resource, None, ""),
            [resource, name] => (resource, Some(name), ""),
            [resource, name, subresource] => (resource, Some(name), subresource),
            _ if rest.contains(&"proxy") => return Err(refuse_effects("proxy")),
            _ => return Err(status::no_such_path().into()),
        };
        if !subresource.is_empty() && !READ_ONLY_SUBRESOURCES.contains(&subresource) {
            return Err(refuse_effects(subresource));
        }
        Ok(Self { is_old_watch, namespace, resource, name, subresource })
    }

    /// Returns the namespace of the objects. A review of a Namespace has its name as namespace, too, but a Namespace is
    /// in none.
    pub(super) fn namespace_of_objects(&self) -> Option<&'p str> {
        self.namespace.filter(|_| self.resource != "namespaces")
    }
}

fn refuse_effects(subresource: &str) -> Refusal {
    status::forbidden(format!("the mirror is read-only: a GET of {subresource:?} may have effects")).into()
}
