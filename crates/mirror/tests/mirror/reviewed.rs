//! Readers with tokens, over TLS.

use std::sync::atomic::Ordering;

use crate::support::{Running, Upstream, code, mirror};

const TOKEN: &str = "Authorization: Bearer t0ken\r\n";

#[tokio::test]
async fn answers_only_readers_with_a_valid_token() {
    let upstream = Upstream::new();
    let mirror = Running::reviewed(mirror(&upstream));
    for (headers, expected) in [
        (TOKEN, "200"),
        ("authorization: bearer  t0ken\r\n", "200"),
        ("", "401"),
        ("Authorization: Bearer wr0ng\r\n", "401"),
        ("Authorization: Bearer\r\n", "401"),
        ("Authorization: Bearer t0ken x\r\n", "401"),
        ("Authorization: Basic dDBrZW4=\r\n", "401"),
        ("Authorization: t0ken\r\n", "401"),
        ("Authorization: Bearer t0ken\r\nAuthorization: Bearer wr0ng\r\n", "401"),
        ("X-Remote-User: jane\r\n", "401"),
        ("Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.dDBrZW4\r\n", "401"),
        ("Authorization: Bearer t0ken\r\nImpersonate-User: admin\r\n", "403"),
    ] {
        let response = mirror.get("/api/v1/pods", headers).await;
        assert_eq!(code(&response), expected, "{headers}: {response}");
    }
    assert_eq!(code(&mirror.get("/api/v1/pods?access_token=t0ken", "").await), "401");
    // What is no token is not reviewed.
    let reviews = upstream.reviews.lock().unwrap().clone();
    let tokens = reviews.iter().filter_map(|(_, review)| review["spec"]["token"].as_str());
    assert!(
        tokens.clone().count() >= 2 && tokens.clone().all(|token| ["t0ken", "wr0ng"].contains(&token)),
        "{reviews:?}"
    );
    let response = mirror.get("/api/v1/pods", "").await;
    assert!(response.contains(r#""message":"Unauthorized""#) && response.contains(r#""reason":"Unauthorized""#));
    let requests = upstream.requests.lock().unwrap();
    assert!(requests.iter().all(|(_, headers)| !headers.contains_key("authorization")) && requests.len() == 2);
}

#[tokio::test]
async fn refuses_readers_without_rights_as_the_api_server() {
    let upstream = Upstream::new();
    upstream.denied.lock().unwrap().extend(["\"secret-ns\"", "/metrics", "\"log\""]);
    let mirror = Running::reviewed(mirror(&upstream));
    for (path, message) in [
        (
            "/apis/apps/v1/namespaces/secret-ns/deployments/a",
            r#"deployments.apps \"a\" is forbidden: User \"jane\" cannot get resource \"deployments\" in API group \"apps\" in the namespace \"secret-ns\""#,
        ),
        (
            "/api/v1/namespaces/secret-ns/pods",
            r#"pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"secret-ns\""#,
        ),
        (
            "/api/v1/namespaces/a/pods/b/log",
            r#"pods \"b\" is forbidden: User \"jane\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"a\""#,
        ),
        ("/metrics", r#"forbidden: User \"jane\" cannot get path \"/metrics\""#),
    ] {
        let response = mirror.get(path, TOKEN).await;
        assert_eq!(code(&response), "403", "{path}");
        assert!(response.contains(message), "{path}: {response}");
    }
    assert!(upstream.paths().is_empty());
    let reviews = upstream.reviews.lock().unwrap();
    let (_, access) = &reviews[1];
    assert_eq!(
        access["spec"].to_string(),
        r#"{"extra":{},"groups":["g"],"resourceAttributes":{"group":"apps","name":"a","namespace":"secret-ns","resource":"deployments","verb":"get","version":"v1"},"uid":"","user":"jane"}"#
    );
}

/// An authorizer that decides by selectors must see those of the request, and no narrower ones.
#[tokio::test]
async fn reviews_the_selectors_of_the_request() {
    let upstream = Upstream::new();
    let mirror = Running::reviewed(mirror(&upstream));
    let selectors = "fieldSelector=spec.nodeName%3Dn,metadata.name%3Da&labelSelector=a+in+(b,c)&fieldSelector=x%3Dy";
    for path in ["/api/v1/pods", "/api/v1/watch/pods", "/api/v1/namespaces/a/pods/b"] {
        mirror.get(&format!("{path}?{selectors}&unknown=1"), TOKEN).await;
    }
    let reviews = upstream.reviews.lock().unwrap();
    let attributes: Vec<_> = reviews[1..].iter().map(|(_, review)| &review["spec"]["resourceAttributes"]).collect();
    assert_eq!(attributes[0]["fieldSelector"]["rawSelector"], "spec.nodeName=n,metadata.name=a");
    assert_eq!(attributes[0]["labelSelector"]["rawSelector"], "a in (b,c)");
    assert_eq!(attributes[0]["name"], "a");
    for other in &attributes[1..] {
        assert!(other.get("fieldSelector").or(other.get("labelSelector")).is_none(), "{other}");
    }
    assert_eq!((attributes.len(), attributes[1].get("name")), (3, None));
}

#[tokio::test]
async fn never_opens_when_reviews_fail() {
    let upstream = Upstream::new();
    upstream.fails.store(true, Ordering::Relaxed);
    let mirror = Running::reviewed(mirror(&upstream));
    let response = mirror.get("/api/v1/pods", TOKEN).await;
    assert_eq!(code(&response), "503", "{response}");
    assert!(response.contains("retry-after: 1\r\n") && !response.contains("t0ken"));
    assert!(upstream.paths().is_empty());
    // The failure is not kept.
    upstream.fails.store(false, Ordering::Relaxed);
    assert_eq!(code(&mirror.get("/api/v1/pods", TOKEN).await), "200");
}

#[tokio::test]
async fn repeats_no_review_within_seconds() {
    let upstream = Upstream::new();
    let mirror = Running::reviewed(mirror(&upstream));
    for _ in 0..3 {
        mirror.get("/api/v1/pods", TOKEN).await;
        mirror.get("/api/v1/pods", "Authorization: Bearer wr0ng\r\n").await;
    }
    assert_eq!(upstream.reviews.lock().unwrap().len(), 3);
    mirror.get("/api/v1/nodes", TOKEN).await;
    assert_eq!(upstream.reviews.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn answers_probes_without_a_token() {
    let upstream = Upstream::new();
    let mirror = Running::reviewed(mirror(&upstream));
    for (path, expected) in
        [("/healthz", "200"), ("/livez", "200"), ("/readyz", "200"), ("/metrics", "401"), ("/version", "401")]
    {
        assert_eq!(code(&mirror.get(path, "").await), expected, "{path}");
    }
    assert_eq!(code(&mirror.get("/metrics", "Authorization: Bearer wr0ng\r\n").await), "401");
    let metrics = mirror.get("/metrics", TOKEN).await;
    assert_eq!(code(&metrics), "200");
    for (review, count) in [("token", 2), ("access", 1)] {
        let count = format!("listwatch_mirror_review_duration_seconds_count{{review=\"{review}\"}} {count}\n");
        assert!(metrics.contains(&count), "{metrics}");
    }
    // The certificate of the test expires in 4096.
    assert!(metrics.contains("listwatch_mirror_certificate_expiry_timestamp_seconds 67090"), "{metrics}");
}

/// Sends a `SelfSubjectAccessReview`, as `kubectl auth can-i` does.
async fn can_i(mirror: &Running, headers: &str, spec: &str) -> String {
    let body = format!(r#"{{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{spec}}}"#);
    post_review(mirror, headers, &body).await
}

/// Returns a review in protobuf, as kubectl sends it.
fn protobuf_review(verb: &str, resource: &str) -> String {
    let field = |number: u8, text: &str| {
        let head = [number << 3 | 2, u8::try_from(text.len()).unwrap()].map(char::from);
        assert!(head.iter().all(char::is_ascii), "one byte each");
        head.into_iter().collect::<String>() + text
    };
    let attributes = field(2, verb) + &field(5, resource);
    let review = field(1, "") + &field(2, &field(1, &attributes));
    let type_meta = field(1, "authorization.k8s.io/v1") + &field(2, "SelfSubjectAccessReview");
    "k8s\0".to_owned() + &field(1, &type_meta) + &field(2, &review) + &field(3, "") + &field(4, "")
}

async fn post_review(mirror: &Running, headers: &str, body: &str) -> String {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: close\r\n{headers}");
    mirror.raw(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await
}

#[tokio::test]
async fn answers_what_a_reader_can_do() {
    const JSON: &str = "Content-Type: application/json\r\n";
    const PODS: &str = r#"{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"a"}}"#;
    const SECRETS: &str = r#"{"resourceAttributes":{"verb":"list","resource":"secrets"},"user":"admin"}"#;

    let upstream = Upstream::new();
    upstream.denied.lock().unwrap().push("secrets");
    let mirror = Running::reviewed(mirror(&upstream));
    let headers = format!("{TOKEN}{JSON}");
    for (headers, spec, expected, part) in [
        (&*headers, PODS, "201", r#""status":{"allowed":true}"#),
        (&headers, SECRETS, "201", r#""status":{"allowed":false}"#),
        (&headers, r#"{"nonResourceAttributes":{"verb":"get","path":"/x"}}"#, "201", r#""allowed":true"#),
        (&headers, "{}", "400", "resourceAttributes"),
        (&headers, "x", "400", "cannot be decoded"),
        (JSON, PODS, "401", "Unauthorized"),
        (TOKEN, PODS, "415", "UnsupportedMediaType"),
    ] {
        let response = can_i(&mirror, headers, spec).await;
        assert_eq!(code(&response), expected, "{spec}: {response}");
        assert!(response.contains(part), "{spec}: {response}");
    }
    let headers_of_protobuf = format!("{TOKEN}Content-Type: application/vnd.kubernetes.protobuf\r\n");
    for (verb, resource, is_allowed) in [("list", "pods", true), ("list", "secrets", false)] {
        let body = protobuf_review(verb, resource);
        let response = post_review(&mirror, &headers_of_protobuf, &body).await;
        assert_eq!(code(&response), "201", "{response}");
        assert!(response.contains(&format!(r#""status":{{"allowed":{is_allowed}}}"#)), "{response}");
    }
    for body in ["", "k8s\0", "k8s\0\n", "{}", r#"{"spec":{}}"#] {
        assert_eq!(code(&post_review(&mirror, &headers_of_protobuf, body).await), "400", "{body:?}");
    }
    let long = format!(r#"{{"resourceAttributes":{{"name":"{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(code(&can_i(&mirror, &headers, &long).await), "400");
    // The reader names itself by its token only.
    let reviews = upstream.reviews.lock().unwrap();
    assert!(reviews.iter().skip(1).all(|(_, review)| review["spec"]["user"] == "jane"), "{reviews:?}");
    assert!(upstream.paths().is_empty());
}

#[tokio::test]
async fn accepts_tokens_for_its_audiences_only() {
    let upstream = Upstream::new();
    for (audiences, expected) in [(&["mirror"][..], "200"), (&["other", "mirror"], "200"), (&["other"], "401")] {
        let mirror = Running::reviewed(mirror(&upstream).token_audiences(audiences.iter().copied()));
        assert_eq!(code(&mirror.get("/api/v1/pods", TOKEN).await), expected, "{audiences:?}");
        let sent = upstream.reviews.lock().unwrap().iter().rfind(|(path, _)| path.ends_with("tokenreviews")).cloned();
        assert_eq!(sent.unwrap().1["spec"]["audiences"], serde_json::json!(audiences));
    }
}

/// The API server's text names the account of the mirror as the user of the request.
#[tokio::test]
async fn tells_that_the_mirror_lacks_a_right_of_the_reader() {
    let upstream = Upstream::new();
    let mirror = Running::reviewed(mirror(&upstream));
    let response = mirror.get("/api/v1/denied-to-mirror", TOKEN).await;
    assert_eq!(code(&response), "403");
    let message = "you may list denied-to-mirror, but the mirror must ask the API server for it with its own account";
    assert!(response.contains(message) && response.contains(r#""kind":"denied-to-mirror""#), "{response}");
}

#[tokio::test]
async fn errors_have_the_encoding_that_the_reader_prefers() {
    let upstream = Upstream::new();
    upstream.denied.lock().unwrap().push("secret-ns");
    let mirror = Running::reviewed(mirror(&upstream));
    for (path, token) in
        [("/api/v1/namespaces/secret-ns/pods", TOKEN), ("/api/v1/pods", ""), ("/api/v1/pods?limit=x", TOKEN)]
    {
        let accept = "Accept: application/vnd.kubernetes.protobuf,application/json\r\n";
        let response = mirror.get(path, &format!("{token}{accept}")).await;
        assert!(response.contains("content-type: application/vnd.kubernetes.protobuf\r\n"), "{response}");
        assert!(response.contains("\r\n\r\nk8s\0"), "{response}");
        let response = mirror.get(path, token).await;
        assert!(response.contains("content-type: application/json\r\n"), "{response}");
    }
}
