//! Requests that the API server answers.

use http::HeaderMap;

use crate::support::{Running, Upstream, code, mirror};

#[tokio::test]
async fn passes_only_harmless_headers() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    let headers = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\nAccept-Encoding: gzip\r\n\
        Authorization: Bearer t0ken\r\nCookie: a=b\r\nX-Remote-User: admin\r\nX-Forwarded-For: a\r\nTE: trailers\r\n\
        If-None-Match: \"e\"\r\nUser-Agent: x\r\n";
    let response = mirror.get("/api/v1/pods?limit=5", headers).await;
    assert!(response.ends_with("/api/v1/pods?limit=5\r\n0\r\n\r\n"), "{response}");
    for header in ["set-cookie", "keep-alive", "location", "x-other"] {
        assert!(!response.contains(header), "{header}: {response}");
    }
    assert!(response.contains("content-type: application/json\r\n"));
    let sent = upstream.requests.lock().unwrap().clone();
    let names = |headers: &HeaderMap| {
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&sent[0].1), ["accept", "accept-encoding", "if-none-match"]);
}

#[tokio::test]
async fn passes_errors_of_readers_and_hides_its_own() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    for (path, expected) in
        [("/openapi/missing", "404"), ("/openapi/unauthorized", "502"), ("/openapi/redirect", "502")]
    {
        assert_eq!(code(&mirror.get(path, "").await), expected, "{path}");
    }
    // The reader has the account of the mirror, of which the API server speaks.
    let response = mirror.get("/api/v1/denied-to-mirror", "").await;
    assert!(code(&response) == "403" && !response.contains("the mirror must ask"), "{response}");
}

#[tokio::test]
async fn forwards_the_path_that_it_has_read() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    for path in ["/api/v1/pods/../secrets", "/api/v1/pods/%2e%2e/secrets", "/api/v1//secrets", "/api/v1/secrets%00"] {
        assert_eq!(code(&mirror.get(path, "").await), "400", "{path}");
    }
    mirror.get("/api/v1/n%6fdes?limit=%35&limit=6", "").await;
    assert_eq!(upstream.paths(), ["/api/v1/nodes?limit=5&limit=6"]);
}
