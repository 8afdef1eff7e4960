//! The redirects that a transport follows: from a GET and within one origin, as in Go's `http.Client`.

use http::header::LOCATION;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::transport::{TransportError, TransportErrorKind};

/// The most requests for one response, as in Go's `http.Client`.
const MAX_REQUESTS: usize = 10;

/// Decides which redirects of a request are followed, for implementations of [`Transport`](super::Transport).
///
/// Only redirects of a GET to the same scheme, host and port are followed. A redirect to another origin would take the
/// credentials there, so [`Client`](super::Client) refuses such a response.
pub struct Redirects {
    from: Uri,
    is_get: bool,
    requests: usize,
}

impl Redirects {
    /// Begins with a request for this URL.
    #[must_use]
    pub fn new(method: &Method, url: Uri) -> Self {
        Self { from: url, is_get: method == Method::GET, requests: 1 }
    }

    /// Returns the URL to request instead, with the same headers; `None` if the response is final.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Redirect`] after ten requests.
    pub fn next_url(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<Option<Uri>, TransportError> {
        let Some(target) = self.target(status, headers) else { return Ok(None) };
        if self.requests == MAX_REQUESTS {
            // The target is left out, because it may quote credentials.
            let error = format!("again after {MAX_REQUESTS} requests");
            return Err(TransportError::new(TransportErrorKind::Redirect, error));
        }
        self.requests += 1;
        self.from = target.clone();
        Ok(Some(target))
    }

    fn target(&self, status: StatusCode, headers: &HeaderMap) -> Option<Uri> {
        if !self.is_get || !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = headers.get(LOCATION)?.to_str().ok()?.split('#').next()?;
        let target = resolve(&self.from, location)?;
        // The part before an @ would be other credentials.
        (origin(&target)? == origin(&self.from)? && !target.authority()?.as_str().contains('@')).then_some(target)
    }
}

/// Resolves a reference (RFC 3986, section 5.2).
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let scheme = base.scheme_str()?;
    if location.split(['/', '?']).next()?.contains(':') {
        return location.parse().ok();
    }
    if location.starts_with("//") {
        return format!("{scheme}:{location}").parse().ok();
    }
    let (path, query) = match location.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (location, base.query().filter(|_| location.is_empty())),
    };
    let path = match path {
        "" => base.path().to_owned(),
        absolute if absolute.starts_with('/') => without_dots(absolute),
        relative => without_dots(&format!("{}/{relative}", base.path().rsplit_once('/')?.0)),
    };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let path: PathAndQuery = format!("{path}{query}").parse().ok()?;
    Uri::builder().scheme(base.scheme()?.clone()).authority(base.authority()?.clone()).path_and_query(path).build().ok()
}

/// Removes the segments `.` and `..` of an absolute path.
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if matches!(path.rsplit('/').next(), Some("." | "..")) {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

fn origin(url: &Uri) -> Option<(Scheme, String, u16)> {
    let default_port = if *url.scheme()? == Scheme::HTTPS { 443 } else { 80 };
    let port = url.authority().and_then(Authority::port_u16).unwrap_or(default_port);
    Some((url.scheme()?.clone(), url.host()?.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn follow(method: &Method, from: &'static str, status: u16, location: &'static str) -> Option<String> {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
        let mut redirects = Redirects::new(method, Uri::from_static(from));
        redirects.next_url(StatusCode::from_u16(status).unwrap(), &headers).unwrap().map(|url| url.to_string())
    }

    #[test]
    fn follows_within_the_origin() {
        const FROM: &str = "https://host:6443/base/api/v1/pods?limit=5";
        for (location, expected) in [
            ("/moved?limit=5", Some("https://host:6443/moved?limit=5")),
            ("/moved#part", Some("https://host:6443/moved")),
            ("", Some(FROM)),
            ("?limit=6", Some("https://host:6443/base/api/v1/pods?limit=6")),
            ("nodes?a=b://c", Some("https://host:6443/base/api/v1/nodes?a=b://c")),
            ("../v2/./pods", Some("https://host:6443/base/api/v2/pods")),
            ("../../../../..", Some("https://host:6443/")),
            ("/a/../..//b", Some("https://host:6443//b")),
            ("https://HOST:6443/moved", Some("https://HOST:6443/moved")),
            ("//host:6443/moved", Some("https://host:6443/moved")),
            ("http://host:6443/moved", None),
            ("https://host/moved", None),
            ("https://host:6444/moved", None),
            ("https://other:6443/moved", None),
            ("https://host.other:6443/moved", None),
            ("//other:6443/moved", None),
            ("https://user@host:6443/moved", None),
            ("https://host:6443@other/moved", None),
            ("https:\\\\other\\moved", None),
            ("ftp://host:6443/moved", None),
            ("/with space", None),
        ] {
            assert_eq!(follow(&Method::GET, FROM, 307, location).as_deref(), expected, "{location}");
        }
        let default_port = follow(&Method::GET, "https://host/a", 301, "https://host:443/b");
        assert_eq!(default_port.as_deref(), Some("https://host:443/b"));
    }

    #[test]
    fn follows_only_gets_and_only_redirects() {
        for (method, status, expected) in [
            (Method::GET, 301, true),
            (Method::GET, 302, true),
            (Method::GET, 303, true),
            (Method::GET, 307, true),
            (Method::GET, 308, true),
            (Method::GET, 304, false),
            (Method::GET, 200, false),
            (Method::POST, 307, false),
        ] {
            assert_eq!(follow(&method, "http://host/a", status, "/b").is_some(), expected, "{method} {status}");
        }
    }

    #[test]
    fn ends_a_loop() {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/a?token=s3cret"))]);
        let mut redirects = Redirects::new(&Method::GET, Uri::from_static("http://host/a"));
        for _ in 1..10 {
            assert!(redirects.next_url(StatusCode::FOUND, &headers).unwrap().is_some());
        }
        let error = redirects.next_url(StatusCode::FOUND, &headers).unwrap_err();
        assert_eq!(error.to_string(), "the server redirects again after 10 requests");
    }
}
