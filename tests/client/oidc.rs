//! The auth provider `oidc` of kubeconfigs: when it refreshes tokens, and how it fails.

use std::fs;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use listwatch::client::{Client, HttpTransport, Kubeconfig, Resource, Transport as _};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server};
use serde_json::{Value, json};

/// An ID token that expires in this year.
fn id_token(name: &str, year: i64) -> String {
    let claims = json!({"sub": name, "exp": (year - 1970) * 31_557_600});
    format!("e30.{}.{name}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A transport by a kubeconfig with these settings of the provider.
fn transport(server: &Server, folder: &Path, name: &str, settings: &Value) -> Result<HttpTransport, String> {
    let ca = BASE64_STANDARD.encode(server.ca_pem().unwrap());
    let kubeconfig = json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url(), "certificate-authority-data": ca}}],
        "users": [{"name": "a", "user": {"auth-provider": {"name": name, "config": settings}}}],
    });
    let file = folder.join("config");
    fs::write(&file, kubeconfig.to_string()).unwrap();
    let config = Kubeconfig { file: Some(file), ..Kubeconfig::default() }.load().unwrap();
    config.build().map_err(|error| error.to_string())
}

/// An API server that accepts only this token.
async fn accepting(token: &str) -> Server {
    let expected = format!("Bearer {token}");
    Server::start_tls(move |request: &RecordedRequest, _| {
        let is_accepted = request.headers["authorization"] == expected;
        Answer::ok(Body::replay("no")).status(if is_accepted { 404 } else { 401 })
    })
    .await
    .unwrap()
}

/// An issuer that answers requests for tokens in turn, with a status and a document.
async fn issuer(answers: Vec<(u16, Value)>) -> Server {
    let requests = std::sync::atomic::AtomicUsize::new(0);
    Server::start(move |request: &RecordedRequest, _| {
        if request.path == "/realm/.well-known/openid-configuration" {
            let endpoint = format!("http://{}/token", request.headers["host"].to_str().unwrap());
            return Answer::ok(Body::replay(json!({ "token_endpoint": endpoint }).to_string()));
        }
        let (status, answer) = &answers[requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed)];
        Answer::ok(Body::replay(answer.to_string())).status(*status)
    })
    .await
    .unwrap()
}

fn settings(issuer: &Server, more: &Value) -> Value {
    let mut settings = json!({"idp-issuer-url": format!("{}/realm/", issuer.url()), "client-id": "kube"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

async fn get(client: &Client) -> String {
    client.get::<[u8]>(&Resource::PODS, Some("web"), "a").await.unwrap_err().to_string()
}

#[tokio::test]
async fn sends_an_id_token_that_is_valid_without_a_request_to_the_issuer() {
    let token = id_token("valid", 2999);
    let (server, folder) = (accepting(&token).await, tempfile::tempdir().unwrap());
    let issuer = issuer(Vec::new()).await;
    let transport = transport(&server, folder.path(), "oidc", &settings(&issuer, &json!({"id-token": token}))).unwrap();
    assert!(transport.renews_credentials());
    assert!(get(&Client::new(transport)).await.contains("404"));
    assert!(issuer.requests().is_empty());
}

#[tokio::test]
async fn refreshes_a_token_that_has_expired_or_is_refused() {
    let fresh = id_token("fresh", 2999);
    for id_token in [id_token("expired", 2020), id_token("refused", 2999), String::new()] {
        let (server, folder) = (accepting(&fresh).await, tempfile::tempdir().unwrap());
        let answer = json!({"id_token": fresh, "refresh_token": "second", "access_token": "a", "token_type": "bearer"});
        let issuer = issuer(vec![(200, answer)]).await;
        let secrets = json!({"id-token": id_token, "refresh-token": "fir/st", "client-secret": "s3cret"});
        let transport = transport(&server, folder.path(), "oidc", &settings(&issuer, &secrets)).unwrap();
        let client = Client::new(transport);
        for _ in 0..2 {
            let error = get(&client).await;
            assert!(error.contains("404"), "{error}");
        }
        let requests = issuer.requests();
        assert_eq!(requests.len(), 2, "{requests:?}");
        assert_eq!((requests[1].method.as_str(), &*requests[1].path), ("POST", "/token"));
        let basic = format!("Basic {}", BASE64_STANDARD.encode("kube:s3cret"));
        assert_eq!(requests[1].headers["authorization"], basic);
        assert_eq!(requests[1].headers["content-type"], "application/x-www-form-urlencoded");
    }
}

/// As in Go, an issuer that wants the client's secret in the body gets it there.
#[tokio::test]
async fn authenticates_in_the_body_if_the_header_is_refused() {
    let fresh = id_token("fresh", 2999);
    let (server, folder) = (accepting(&fresh).await, tempfile::tempdir().unwrap());
    let issuer = issuer(vec![(401, json!({})), (200, json!({ "id_token": fresh }))]).await;
    let secrets = json!({"refresh-token": "first", "client-secret": "s3cret"});
    let transport = transport(&server, folder.path(), "oidc", &settings(&issuer, &secrets)).unwrap();
    transport.authenticate().await.unwrap();
    let requests = issuer.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[1].headers.contains_key("authorization") && !requests[2].headers.contains_key("authorization"));
}

#[tokio::test]
async fn says_why_there_is_no_token_and_shows_none() {
    let (server, folder) = (accepting("none").await, tempfile::tempdir().unwrap());
    let expired = id_token("s3cret", 2020);
    for (answers, more, expected) in [
        (vec![], json!({"id-token": expired}), "the ID token has expired, and there is no refresh token: log in again"),
        (vec![], json!({"id-token": "s3cret"}), "the ID token is not a JSON web token"),
        (vec![], json!({"id-token": "e30.s3cret.s3cret"}), "the claims of the ID token are malformed"),
        (
            vec![(400, json!({"error": "s3cret"})), (400, json!({"error": "s3cret"}))],
            json!({"refresh-token": "s3cret"}),
            "the issuer returned 400 Bad Request and no new token: log in again",
        ),
        (
            vec![(200, json!({"access_token": "s3cret"}))],
            json!({"refresh-token": "s3cret"}),
            "the issuer returned no id_token",
        ),
    ] {
        let issuer = issuer(answers).await;
        let transport = transport(&server, folder.path(), "oidc", &settings(&issuer, &more)).unwrap();
        let error = transport.authenticate().await.unwrap_err().to_string();
        assert!(error.contains(&format!("auth provider \"oidc\": {expected}")), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    let issuer = "https://idp.example.com";
    for (name, settings, expected) in [
        ("oidc", json!({}), "idp-issuer-url is missing"),
        ("oidc", json!({"idp-issuer-url": issuer}), "client-id is missing"),
        ("oidc", json!({"idp-issuer-url": "s3cret", "client-id": "a"}), "idp-issuer-url is not an http or https URL"),
        (
            "oidc",
            json!({"idp-issuer-url": issuer, "client-id": "a", "idp-certificate-authority-data": "s3cret!"}),
            "idp-certificate-authority-data is not base64",
        ),
        (
            "gcp",
            json!({"access-token": "s3cret"}),
            "Kubernetes has removed it: use the exec plugin gke-gcloud-auth-plugin",
        ),
        ("azure", json!({}), "Kubernetes has removed it: use the exec plugin kubelogin"),
        ("other", json!({}), "it does not exist: only oidc does"),
    ] {
        let error = transport(&server, folder.path(), name, &settings).unwrap_err();
        assert!(error.ends_with(&format!("auth provider {name:?}: {expected}")), "{error}");
    }
}
