//! Requests, credentials and connections of the transport, with a server on loopback.

use std::fs;

use http::{HeaderMap, StatusCode};
use listwatch::client::{Client, ListParams, Resource, Retry, Selection, WatchParams};
use listwatch_testserver::{Answer, Body, RawAnswer, RawEnd, RawServer, RecordedRequest, Server, recorded_pods};

use super::*;

fn transport(url: &'static str) -> KubeTransport {
    let mut config = kube::Config::new(Uri::from_static(url));
    config.auth_info.token = Some("s3cret".into());
    KubeTransport::from_config(config).unwrap()
}

#[tokio::test]
async fn is_near_to_loopback_and_its_own_cluster() {
    assert!(transport("https://[::1]:6443").is_near());
    assert!(!transport("https://10.0.0.1").is_near());
    // As `Config::incluster` names it.
    assert!(transport("https://kubernetes.default.svc/").is_near());
    assert!(transport("https://kubernetes.default.svc.cluster.local").is_near());
    assert!(!transport("https://kubernetes.example.com").is_near());
}

#[tokio::test]
async fn posts_reviews_with_credentials() {
    let server = Server::start(|_: &RecordedRequest, _| Answer::ok(Body::replay("{}")).status(201)).await.unwrap();
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info.token = Some("s3cret".into());
    let transport = KubeTransport::from_config(config).unwrap();
    let response = transport.post(Request::new("/apis/a".to_owned(), HeaderMap::new()), Bytes::from_static(b"{}"));
    assert_eq!(response.await.unwrap().status, StatusCode::CREATED);
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/apis/a"));
    assert_eq!(request.headers["authorization"], "Bearer s3cret");
}

#[tokio::test]
async fn redirects_carry_no_impersonation_and_no_token() {
    let elsewhere = Server::start(|_: &RecordedRequest, _| Answer::ok(Body::replay(""))).await.unwrap();
    for code in [301, 302, 303, 307, 308] {
        let location = format!("{}/api/v1/pods", elsewhere.url());
        let answer = Answer::ok(Body::replay("")).status(code).header("location", &location);
        let server = Server::start(move |_: &RecordedRequest, _| answer.clone()).await.unwrap();
        let mut config = kube::Config::new(server.url().parse().unwrap());
        config.auth_info.token = Some("s3cret".into());
        config.auth_info.impersonate = Some("admin".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        let client = kube::Client::try_from(config.clone()).unwrap();
        for transport in [KubeTransport::from_config(config).unwrap(), KubeTransport::new(client)] {
            let list = Client::new(transport).list::<[u8]>(&Resource::PODS, &ListParams::new(Selection::all()));
            let error = list.into_vec().await.unwrap_err();
            assert!(error.to_string().contains("redirect"), "{error}");
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{code}");
        let sent = |request: &RecordedRequest, name, value| request.headers[name] == value;
        assert!(requests.iter().all(|request| sent(request, "impersonate-user", "admin")
            && sent(request, "impersonate-group", "system:masters")
            && sent(request, "authorization", "Bearer s3cret")));
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn follows_redirects_within_the_origin_with_the_credentials() {
    let server = Server::start(|request: &RecordedRequest, _| {
        if request.path.starts_with("/moved") {
            return Answer::ok(Body::replay(recorded_pods()));
        }
        Answer::ok(Body::replay("")).status(307).header("location", "/moved?limit=500")
    });
    let server = server.await.unwrap();
    let mut config = kube::Config::new(format!("{}/base", server.url()).parse().unwrap());
    config.auth_info.token = Some("s3cret".into());
    let client = Client::new(KubeTransport::from_config(config).unwrap());
    let (pods, _) = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap();
    assert_eq!(pods.len(), 120);
    let requests = server.requests();
    let paths: Vec<_> = requests.iter().map(|request| request.path.split('?').next().unwrap()).collect();
    assert_eq!(paths, ["/base/api/v1/pods", "/moved"]);
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer s3cret"));

    let server =
        Server::start(|_: &RecordedRequest, _| Answer::ok(Body::replay("")).status(302).header("location", "/loop"));
    let server = server.await.unwrap();
    let config = kube::Config::new(server.url().parse().unwrap());
    let client = Client::new(KubeTransport::from_config(config).unwrap());
    let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
    let error = list.into_vec().await.unwrap_err();
    assert_eq!(error.to_string(), "transport: redirect: stopped after 10 redirects");
    assert_eq!(server.requests().len(), 10);
}

/// As many as gateways send: Go limits only the bytes.
#[tokio::test]
async fn accepts_many_and_large_headers() {
    let body = recorded_pods();
    for (count, size) in [(1_000, 20), (100, 3_000)] {
        let cookie = format!("set-cookie: {}\r\n", "x".repeat(size));
        let head = format!("HTTP/1.1 200 OK\r\n{}content-length: {}\r\n\r\n", cookie.repeat(count), body.len());
        let answer = RawAnswer::new([head.as_bytes(), &body].concat(), RawEnd::Close);
        let server = RawServer::start([answer]).await.unwrap();
        let config = kube::Config::new(server.url().parse().unwrap());
        let client = Client::new(KubeTransport::from_config(config).unwrap()).retry(Retry::never());
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap().0.len(), 120, "{count} of {size}");
    }
}

/// `MicroK8s` issues certificates of X.509 version 1.
#[tokio::test]
async fn accepts_the_client_certificates_that_go_sends() {
    use base64::prelude::{BASE64_STANDARD, Engine};

    let pem = include_str!("../../../../tests/support/certificates/version-1.pem");
    let with = |certificate: &str, key: &str| {
        let mut config = kube::Config::new(Uri::from_static("https://127.0.0.1:1"));
        config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(key).into());
        KubeTransport::from_config(config).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(pem, pem), Ok(()));
    let missing = "setup: the client certificate and key: not one of each as PEM";
    assert_eq!(with("no PEM", "s3cret"), Err(missing.to_owned()));
    let rsa = include_str!("../../../../tests/support/certificates/rsa-1024.pem");
    let too_small = "setup: the client certificate has an RSA key of 1024 bits, and at least 2048 are required";
    assert_eq!(with(rsa, rsa), Err(too_small.to_owned()));
}

#[tokio::test]
async fn reads_rotated_client_certificates_again() {
    let start = || Server::start_mtls(|_: &RecordedRequest, _| Answer::ok(Body::replay(recorded_pods())));
    let (server, other) = (start().await.unwrap(), start().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let paths = ["ca", "certificate", "key"].map(|name| folder.path().join(name));
    let install = |identity: Option<(&str, &str)>| {
        let (certificate, key) = identity.unwrap();
        fs::write(&paths[1], certificate).unwrap();
        fs::write(&paths[2], key).unwrap();
    };
    fs::write(&paths[0], server.ca_pem().unwrap()).unwrap();
    install(other.client_identity());
    let mut config = kube::Config::new(server.url().parse().unwrap());
    let path = |at: usize| paths[at].to_str().unwrap().to_owned();
    config.root_cert_file = Some(paths[0].clone());
    config.auth_info.client_certificate = Some(path(1));
    config.auth_info.client_key = Some(path(2));
    let client = Client::new(KubeTransport::from_config(config).unwrap()).retry(Retry::never());
    let params = ListParams::new(Selection::all());
    client.list::<[u8]>(&Resource::PODS, &params).into_vec().await.unwrap_err();
    install(server.client_identity());
    let (pods, _) = client.list::<[u8]>(&Resource::PODS, &params).into_vec().await.unwrap();
    assert_eq!(pods.len(), 120);
}

/// The transport must remember the token: the file may have changed by the time of the response.
#[tokio::test]
async fn redacts_a_sent_token_after_its_file_is_removed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "t0ken-of-a-file").unwrap();
    let path = file.path().to_owned();
    let server = Server::start(move |_: &RecordedRequest, _| {
        drop(fs::remove_file(&path));
        Answer::ok(Body::replay("not with t0ken-of-a-file")).status(400)
    });
    let server = server.await.unwrap();
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info.token_file = Some(file.path().to_str().unwrap().to_owned());
    let client = Client::new(KubeTransport::from_config(config).unwrap());
    let pods = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
    let error = pods.into_vec().await.unwrap_err();
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer t0ken-of-a-file");
    assert_eq!(error.to_string(), "API error: 400: not with [redacted]");
}

/// The plugin's first token is stale. The server echoes the second token.
#[cfg(unix)]
#[tokio::test]
async fn runs_an_exec_plugin_again_after_401_and_redacts_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let script = r#"t=fresh-t0ken; [ -e "$RAN" ] || t=stale-t0ken; touch "$RAN"
        echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "'$t'"}}'"#;
    let server = Server::start(|request: &RecordedRequest, _| match request.headers["authorization"].to_str() {
        Ok("Bearer fresh-t0ken") => Answer::ok(Body::replay("not with fresh-t0ken")).status(400),
        _ => Answer::ok(Body::replay("")).status(401),
    });
    let server = server.await.unwrap();
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script],
        "env": [{"name": "RAN", "value": ran}],
    });
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
    let client = Client::new(KubeTransport::from_config(config).unwrap());
    let error = client.resolve("widgets.example.com").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), server.requests().len()), ("API error: 400: not with [redacted]", 2));
}

/// Without probes from the kernel, a connection that a firewall has dropped would look idle.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn enables_keepalive_on_connections() {
    let server = Server::start(Answer::ok(Body::replay("k8s").stall_at(1)).always()).await.unwrap();
    let config = kube::Config::new(server.url().parse().unwrap());
    let client = Client::new(KubeTransport::from_config(config).unwrap());
    let watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::from_version("1"));
    let _watch = watch.open().await.unwrap();
    // Fields: 1 local address, 2 peer address, 3 state (01 established), 5 `timer:when` (02 keepalive).
    let peer = format!("0100007F:{:04X}", server.addr().port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let socket = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = socket.into_iter().find(|fields| fields[2] == peer && fields[3] == "01").expect("the connection");
    assert!(socket[5].starts_with("02:"), "{socket:?}");
}

#[tokio::test]
async fn hides_secrets_from_debug_output_and_redacts_them() {
    let transport = transport("https://host");
    assert!(!format!("{transport:?}").contains("s3cret"));
    assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
}
