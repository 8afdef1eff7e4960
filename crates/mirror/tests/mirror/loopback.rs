//! Readers on the same host, without credentials.

use std::io::ErrorKind;
use std::net::TcpListener;

use listwatch::client::Resource;
use listwatch_mirror::Access;

use crate::support::{Running, Upstream, code, mirror, mirrored, synced};

#[tokio::test]
async fn listens_elsewhere_only_with_reviews_and_tls() {
    let listen = || TcpListener::bind("0.0.0.0:0").unwrap();
    let upstream = Upstream::new();
    let never = std::future::pending::<()>;
    let error = mirror(&upstream).serve(listen(), never()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().ends_with("is not a loopback address: readers must be reviewed"), "{error}");
    let error = mirror(&upstream).access(Access::Reviewed).serve(listen(), never()).await.unwrap_err();
    assert_eq!(error.to_string(), "readers are reviewed only over TLS");
    let files = tempfile::tempdir().unwrap();
    let [certificate, key] = [("tls.crt", "x"), ("tls.key", "s3cret")].map(|(name, text)| {
        std::fs::write(files.path().join(name), text).unwrap();
        files.path().join(name)
    });
    let error = mirror(&upstream).tls(certificate, key).serve(listen(), never()).await.unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test]
async fn answers_only_to_its_own_name() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    for (headers, expected) in [
        ("Host: localhost:PORT\r\n", "200"),
        ("Host: 127.0.0.1:PORT\r\n", "200"),
        ("Host: [::1]:PORT\r\n", "200"),
        ("Host: localhost\r\n", "403"),
        ("Host: localhost:1\r\n", "403"),
        ("Host: evil.example:PORT\r\n", "403"),
        ("Host: localhost.evil.example:PORT\r\n", "403"),
        ("Host: localhost:PORT@evil.example\r\n", "403"),
        ("Host: user@localhost:PORT\r\n", "403"),
        ("Host: \r\n", "403"),
        ("", "403"),
        ("Host: localhost:PORT\r\nHost: evil.example\r\n", "403"),
        ("Host: evil.example\r\nHost: localhost:PORT\r\n", "403"),
        ("Host: localhost:PORT\r\nOrigin: http://localhost:PORT\r\n", "403"),
        ("Host: localhost:PORT\r\nOrigin: null\r\n", "403"),
        ("Host: localhost:PORT\r\nSec-Fetch-Site: cross-site\r\n", "403"),
        ("Host: localhost:PORT\r\nSec-Fetch-Site: none\r\n", "200"),
        ("Host: localhost:PORT\r\nImpersonate-User: admin\r\n", "403"),
        ("Host: localhost:PORT\r\nimpersonate-extra-x: admin\r\n", "403"),
    ] {
        for path in ["/version", "/healthz"] {
            let response = mirror.raw(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")).await;
            assert_eq!(code(&response), expected, "{headers}");
        }
    }
    for uri in ["http://evil.example/version", "http://evil.example:PORT/version", "http://localhost:1/version"] {
        let request = format!("GET {uri} HTTP/1.1\r\nConnection: close\r\nHost: localhost:PORT\r\n\r\n");
        assert_eq!(code(&mirror.raw(&request).await), "403", "{uri}");
    }
}

#[tokio::test]
async fn forwards_secrets_only_if_they_are_mirrored() {
    const PATHS: [&str; 6] = [
        "/api/v1/secrets",
        "/api/v1/namespaces/a/secrets?watch=1&timeoutSeconds=1&new=1",
        "/api/v1/namespaces/a/secrets/b",
        "/api/v1/watch/secrets",
        "/api/v1/namespaces/a/%73ecrets",
        "/api/v1/namespaces/a/secrets/b/status",
    ];
    const YAML: &str = "Accept: application/yaml\r\n";

    let upstream = Upstream::new();
    let without = Running::start(mirror(&upstream).resource(mirrored(&upstream, &Resource::PODS)));
    for path in PATHS {
        for accept in ["", YAML] {
            let response = without.get(path, accept).await;
            assert_eq!(code(&response), "403", "{path}");
        }
    }
    assert!(upstream.paths().is_empty());
    let with = Running::start(mirror(&upstream).resource(mirrored(&upstream, &Resource::SECRETS)));
    assert_eq!(code(&with.get("/api/v1/namespaces/a/secrets/b", YAML).await), "200");
    assert!(!upstream.paths().is_empty());
    // Its cache is not synced, so it answers nothing itself.
    assert_eq!(code(&with.get("/api/v1/namespaces/a/secrets/b", "").await), "503");
}

#[tokio::test]
async fn refuses_methods_that_write_and_upgrades() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
        let head = format!("{method} /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: localhost:PORT\r\n");
        let response = mirror.raw(&format!("{head}Content-Length: 2\r\n\r\n{{}}")).await;
        assert_eq!(code(&response), "405", "{method}");
        assert!(response.contains("allow: GET, HEAD\r\n") && response.contains(r#""reason":"MethodNotAllowed""#));
    }
    for headers in ["Upgrade: websocket\r\n", "Upgrade: h2c\r\nUpgrade: SPDY/3.1\r\n"] {
        let response = mirror.get("/api/v1/namespaces/a/pods/b/log", headers).await;
        assert_eq!(code(&response), "400", "{headers}");
    }
    assert_eq!(code(&mirror.get("/api/v1/namespaces/a/pods/b/exec?command=sh", "").await), "403");
    assert!(upstream.paths().is_empty());
}

/// No bytes of a body may be read as a request.
#[tokio::test]
async fn refuses_smuggled_requests() {
    const HEAD: &str = "GET /version HTTP/1.1\r\nHost: localhost:PORT\r\n";
    const SECOND: &str = "GET /openapi/smuggled HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n";
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    let length = SECOND.replace("PORT", &mirror.address.port().to_string()).len();
    for headers in [
        format!("Content-Length: {length}\r\n\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n\r\n"),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n\r\n"),
        format!("Content-Length: 0, {length}\r\n\r\n"),
        format!("Content-Length: +{length}\r\n\r\n"),
        format!("Content-Length : {length}\r\n\r\n"),
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n"),
        "Transfer-Encoding: identity\r\n\r\n".to_owned(),
        "Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
        "X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "X\0: a\r\n\r\n".to_owned(),
    ] {
        let response = mirror.raw(&format!("{HEAD}{headers}{SECOND}")).await;
        assert_eq!(code(&response), "400", "{headers:?}: {response}");
        assert_eq!(response.matches("HTTP/1.").count(), 1, "{headers:?}: {response}");
    }
    assert!(upstream.paths().is_empty());
}

#[tokio::test]
async fn tells_health_and_metrics() {
    const NOT_READY: &str = "[-]pods not ready: never synced, upstream connecting\n[-]resources: none is ready\n\
        readyz check failed\n";

    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).resource(mirrored(&upstream, &Resource::PODS)));
    assert!(mirror.get("/livez", "").await.ends_with("\r\n\r\nok"));
    let response = mirror.get("/readyz", "").await;
    assert_eq!(code(&response), "503");
    assert!(response.ends_with(NOT_READY), "{response}");
    assert_eq!(code(&mirror.get("/readyz/pods", "").await), "503");
    assert_eq!(code(&mirror.get("/readyz/nodes", "").await), "404");
    mirror.get("/version", "").await;
    mirror.get("/api/v1/secrets", "").await;
    let metrics = mirror.get("/metrics", "").await;
    for line in [
        r#"listwatch_mirror_requests_total{kind="own",code="503"} 2"#,
        r#"listwatch_mirror_denied_total{reason="secrets"} 1"#,
        "listwatch_mirror_forwarded_total{reason=\"other\"} 1",
        r#"listwatch_mirror_ready{resource="pods"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn compresses_nothing_and_counts_the_bytes_of_each_resource() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream).resource(synced(&upstream, 4, 100_000).await));
    let response = mirror.get("/api/v1/configmaps?resourceVersion=0", "Accept-Encoding: gzip\r\n").await;
    assert_eq!(code(&response), "200");
    assert!(!response.contains("content-encoding") && response.len() > 400_000);
    let metrics = mirror.get("/metrics", "").await;
    let sent = metrics.split("listwatch_mirror_sent_bytes_total{resource=\"configmaps\"} ").nth(1).unwrap();
    assert!(sent.lines().next().unwrap().parse::<usize>().unwrap() > 400_000);
}

#[tokio::test]
async fn answers_head_without_a_body() {
    let upstream = Upstream::new();
    let mirror = Running::start(mirror(&upstream));
    for path in ["/healthz", "/apis", "/version", "/api/v1/secrets", "/api/v1/pods?watch=1"] {
        let response =
            mirror.raw(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: close\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 ") && response.ends_with("\r\n\r\n"), "{response}");
    }
    upstream.wait_for_open(0).await;
}
