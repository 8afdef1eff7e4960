//! Exec plugins: when they run, what they get, and how they fail.
#![cfg(unix)]

use std::fs;
use std::path::Path;

use listwatch::client::{Client, Config, HttpTransport, Kubeconfig, Resource, Retry, Transport};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server};
use serde_json::{Value, json};

/// A transport by a kubeconfig for this server and this user.
fn transport_of(server: &Server, folder: &Path, user: &Value) -> Result<HttpTransport, String> {
    fs::write(folder.join("ca"), server.ca_pem().unwrap()).unwrap();
    let kubeconfig = json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url(), "certificate-authority": "ca"}}],
        "users": [{"name": "a", "user": user}],
    });
    let file = folder.join("config");
    fs::write(&file, kubeconfig.to_string()).unwrap();
    let config = Kubeconfig { file: Some(file), ..Kubeconfig::default() }.load();
    config.and_then(Config::build).map_err(|error| error.to_string())
}

/// A plugin that appends a line to `runs`, and runs a script with the number of the run in `$N`.
fn transport(server: &Server, folder: &Path, script: &str, more: &Value) -> Result<HttpTransport, String> {
    let prelude = r#"echo "$KUBERNETES_EXEC_INFO" >> "$RUNS"; N=$(wc -l < "$RUNS" | tr -d ' ')
        issue() { printf '%s\n' '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {'"$1"'}}'; }
        "#;
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", format!("{prelude}{script}")],
        "env": [{"name": "RUNS", "value": folder.join("runs")}],
    });
    exec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    transport_of(server, folder, &json!({ "exec": exec }))
}

/// The information that each run got.
fn runs(folder: &Path) -> Vec<Value> {
    let runs = fs::read_to_string(folder.join("runs")).unwrap_or_default();
    runs.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn forbidding() -> Server {
    Server::start_tls(|_: &RecordedRequest, _| Answer::ok(Body::replay("no")).status(403)).await.unwrap()
}

fn sent(server: &Server) -> Vec<String> {
    let requests = server.requests();
    requests.iter().map(|request| request.headers["authorization"].to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn runs_once_for_a_client_and_its_other_connections() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let transport = transport(&server, folder.path(), r#"issue '"token": "t'$N'"'"#, &json!({})).unwrap();
    assert!(runs(folder.path()).is_empty(), "no run before it is needed");
    let other = transport.with_own_connections().unwrap().on_caller_runtime();
    assert!(transport.renews_credentials());
    transport.authenticate().await.unwrap();
    for client in [Client::new(transport), Client::new(other)] {
        let pods = Resource::PODS;
        let get = || client.get::<[u8]>(&pods, Some("web"), "a");
        let (one, two) = tokio::join!(get(), get());
        one.unwrap_err();
        two.unwrap_err();
    }
    assert_eq!(runs(folder.path()).len(), 1);
    assert!(sent(&server).iter().all(|sent| sent == "Bearer t1"));
    // stdin of tests is no terminal.
    let expected = json!({
        "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": {"interactive": false},
    });
    assert_eq!(runs(folder.path())[0], expected);
}

#[tokio::test]
async fn runs_again_when_credentials_have_expired_or_are_refused() {
    let server = Server::start_tls(|request: &RecordedRequest, _| match request.headers["authorization"].to_str() {
        Ok("Bearer t2") => Answer::ok(Body::replay("")).status(401),
        _ => Answer::ok(Body::replay("no")).status(400),
    });
    let (server, folder) = (server.await.unwrap(), tempfile::tempdir().unwrap());
    let script = r#"[ $N -gt 1 ] && at=2999-01-01T00:00:00Z || at=2020-01-01T00:00:00Z
        issue '"token": "t'$N'", "expirationTimestamp": "'$at'"'"#;
    let client = Client::new(transport(&server, folder.path(), script, &json!({})).unwrap());
    for _ in 0..3 {
        client.get::<[u8]>(&Resource::PODS, Some("web"), "a").await.unwrap_err();
    }
    let sent = sent(&server);
    let first = ["Bearer t1", "Bearer t2", "Bearer t3"].map(str::to_owned);
    let mut distinct = sent.clone();
    distinct.dedup();
    assert_eq!(distinct, first, "{sent:?}");
    assert_eq!(runs(folder.path()).len(), 3);
}

#[tokio::test]
async fn names_the_command_and_how_it_failed() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let hint = json!({"command": "no-such-plugin", "installHint": "brew install \u{1b}[1mno-such-plugin\n"});
    let cluster = json!({"provideClusterInfo": false, "interactiveMode": "Always"});
    for (script, more, expected) in [
        ("exit 3", json!({}), "exec plugin sh: failed with exit status 3"),
        ("kill -9 $$", json!({}), "exec plugin sh: failed: signal: 9 (SIGKILL)"),
        ("", hint, "exec plugin no-such-plugin: not found: brew install \\u{1b}[1mno-such-plugin"),
        (
            "",
            json!({"command": "/no-such"}),
            "exec plugin /no-such: not found: install it, or set its path in the kubeconfig",
        ),
        ("", cluster, "exec plugin sh: it is interactive, and stdin is not a terminal"),
        ("echo s3cret", json!({}), "exec plugin sh: its output is not an ExecCredential in JSON or YAML"),
        (
            "echo 'kind: ExecCredential\napiVersion: client.authentication.k8s.io/v1beta1\nstatus: {token: s3cret}'",
            json!({}),
            "exec plugin sh: it returned \"ExecCredential\" of \"client.authentication.k8s.io/v1beta1\" instead of an ExecCredential of \
             \"client.authentication.k8s.io/v1\"",
        ),
        ("issue ''", json!({}), "exec plugin sh: it returned neither a token nor a certificate"),
        (
            r#"issue '"clientKeyData": "s3cret"'"#,
            json!({}),
            "exec plugin sh: it returned only one of certificate and key",
        ),
        (
            r#"issue '"token": "s3cret", "expirationTimestamp": "soon"'"#,
            json!({}),
            "exec plugin sh: its expirationTimestamp is not a time",
        ),
        (r#"issue '"token": "s3\ncret"'"#, json!({}), "the token has a character that no header can carry"),
    ] {
        let transport = transport(&server, folder.path(), script, &more).unwrap();
        let error = transport.authenticate().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{script}: {error}");
        assert!(!error.contains("s3cret") && !error.contains("KUBERNETES_EXEC_INFO"), "{script}: {error}");
        // A plugin that fails is not a connection that breaks: no retry.
        let ran = runs(folder.path()).len();
        Client::new(transport)
            .retry(Retry::default())
            .get::<[u8]>(&Resource::PODS, Some("web"), "a")
            .await
            .unwrap_err();
        assert!(runs(folder.path()).len() <= ran + 1, "{script}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn refuses_removed_versions() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let version = json!({"apiVersion": "client.authentication.k8s.io/v1alpha1"});
    let error = transport(&server, folder.path(), "", &version).unwrap_err();
    let expected = "exec plugin sh: apiVersion \"client.authentication.k8s.io/v1alpha1\" is not supported, only \
                    client.authentication.k8s.io/v1 and v1beta1";
    assert!(error.ends_with(expected), "{error}");
}

/// As in client-go, other credentials of the user come first.
#[tokio::test]
async fn does_not_run_beside_other_credentials() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [folder.path().join("ran")]});
    let transport = transport_of(&server, folder.path(), &json!({"exec": exec, "token": "t"})).unwrap();
    Client::new(transport).get::<[u8]>(&Resource::PODS, Some("web"), "a").await.unwrap_err();
    assert!(!folder.path().join("ran").exists());
    assert!(sent(&server).iter().all(|sent| sent == "Bearer t"));
}

/// The plugin ends with the request that waits for it, and the next request runs it again.
#[tokio::test]
async fn a_plugin_that_hangs_ends_with_its_request() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The shell becomes `cat`, which waits for a writer.
    let script = format!("[ $N = 1 ] && exec cat '{}'; issue '\"token\": \"t'$N'\"'", fifo.display());
    let transport = transport(&server, folder.path(), &script, &json!({})).unwrap();
    {
        let hanging = transport.authenticate();
        tokio::pin!(hanging);
        let started = async {
            // Completes once `cat` has opened the pipe.
            tokio::fs::OpenOptions::new().write(true).open(&fifo).await.unwrap()
        };
        tokio::select! {
            _ = &mut hanging => panic!("the plugin hangs"),
            pipe = started => std::mem::forget(pipe),
        }
    }
    transport.authenticate().await.unwrap();
    assert_eq!(runs(folder.path()).len(), 2);
}

#[tokio::test]
async fn sends_a_certificate_of_the_plugin() {
    let server = Server::start_mtls(|_: &RecordedRequest, _| Answer::ok(Body::replay("no")).status(400)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = server.client_identity().unwrap();
    let status = json!({"clientCertificateData": certificate, "clientKeyData": key}).to_string();
    fs::write(folder.path().join("status"), status.trim_matches(['{', '}'])).unwrap();
    let script = format!("issue \"$(cat '{}')\"", folder.path().join("status").display());
    let transport = transport(&server, folder.path(), &script, &json!({})).unwrap();
    let client = Client::new(transport).retry(Retry::never());
    let error = client.get::<[u8]>(&Resource::PODS, Some("web"), "a").await.unwrap_err().to_string();
    assert!(error.contains("400"), "{error}");
}

/// The plugin's first token is stale. The server echoes the second token.
#[tokio::test]
async fn runs_again_after_401_and_redacts_its_token() {
    let server = Server::start_tls(|request: &RecordedRequest, _| match request.headers["authorization"].to_str() {
        Ok("Bearer fresh-t0ken") => Answer::ok(Body::replay("not with fresh-t0ken")).status(400),
        _ => Answer::ok(Body::replay("")).status(401),
    });
    let (server, folder) = (server.await.unwrap(), tempfile::tempdir().unwrap());
    let script = r#"[ $N = 1 ] && t=stale-t0ken || t=fresh-t0ken; issue '"token": "'$t'"'"#;
    let client = Client::new(transport(&server, folder.path(), script, &json!({})).unwrap());
    let error = client.resolve("widgets.example.com").await.unwrap_err();
    assert_eq!((error.to_string().as_str(), server.requests().len()), ("API error: 400: not with [redacted]", 2));
}

/// The plugin gets what it asks for: `provideClusterInfo`, and its arguments and environment.
#[tokio::test]
async fn passes_the_cluster_to_a_plugin_that_asks_for_it() {
    let (server, folder) = (forbidding().await, tempfile::tempdir().unwrap());
    let more = json!({"provideClusterInfo": true, "interactiveMode": "Never"});
    let transport = transport(&server, folder.path(), r#"issue '"token": "t"'"#, &more).unwrap();
    transport.authenticate().await.unwrap();
    let spec = &runs(folder.path())[0]["spec"];
    assert_eq!((&spec["interactive"], &spec["cluster"]["server"]), (&json!(false), &json!(server.url())));
    assert!(spec["cluster"]["certificate-authority-data"].is_string());
}
