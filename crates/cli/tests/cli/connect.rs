//! How the command connects: kubeconfigs, credentials, plugins and proxies.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use listwatch_testserver::{Answer, RecordedRequest, Server, TOKEN};

use crate::support::api::{Api, ok};
use crate::support::{NAMES, fixture, listwatch, names, pods, stderr, stdout};

/// A kubeconfig with one context, with more fields in its cluster and user.
fn kubeconfig(server: &str, cluster: &str, user: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
         clusters: [{{name: a, cluster: {{server: '{server}'{cluster}}}}}], users: [{{name: a, user: {{{user}}}}}]}}"
    )
}

const CLEAR_TEXT: &str = "warning: the kubeconfig's credentials are not sent over http\n";

#[test]
fn merges_the_files_that_exist() {
    let api = Api::by(|_, _| ok("pods.pb"));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("no-context"), "{current-context: '', clusters: null, users: null}").unwrap();
    fs::write(at("config"), kubeconfig(&api.server.url(), "", "")).unwrap();
    let list = ["missing", "empty", "no-context", "config", "config"].map(&at).join(":");
    let output =
        listwatch(&["get", "pods", "-A", "-o", NAMES]).env("KUBECONFIG", format!(":{list}:")).output().unwrap();
    assert_eq!((stderr(&output), stdout(&output)), ("", &*names(&pods(&fixture("pods.pb")))));
    // A file that is named must exist.
    let output = listwatch(&["get", "pods", "-o", NAMES, "--kubeconfig", &at("missing")]).output().unwrap();
    let expected = format!("kubeconfig: cannot read {}: no such file", at("missing"));
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    // All are missing: as without a kubeconfig.
    let output = listwatch(&["get", "pods", "-o", NAMES]).env("KUBECONFIG", at("missing")).output().unwrap();
    let expected = "kubeconfig: none names a server, and this process does not run in a cluster: set KUBECONFIG";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn credentials_of_a_kubeconfig_are_not_sent_over_http() {
    let api = Api::by(|_, _| ok("pods.pb"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let url = api.server.url();
    let list = |server: &str, user: &str, more: &[&str]| {
        fs::write(&file, kubeconfig(server, "", user)).unwrap();
        let output =
            listwatch(&["get", "pods", "-A", "-o", NAMES, "--kubeconfig"]).arg(&file).args(more).output().unwrap();
        assert_eq!(stdout(&output).lines().count(), 120, "{}", stderr(&output));
        stderr(&output).to_owned()
    };
    for user in [
        &format!("token: {TOKEN}"),
        "tokenFile: /no",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: /no}",
    ] {
        assert_eq!(list(&url, user, &[]), CLEAR_TEXT, "{user}");
        assert_eq!(list("https://127.0.0.1:1", user, &["--server", &url]), CLEAR_TEXT, "{user}");
    }
    assert_eq!(list(&url, "as: jane", &[]), "");
    assert!(api.server.requests().iter().all(|request| !request.headers.contains_key("authorization")));
    // An option is a choice, and loopback is this machine.
    assert_eq!(list(&url, "", &["--token", "mine"]), "");
    let requests = api.server.requests();
    assert_eq!(requests.last().unwrap().headers["authorization"], "Bearer mine");
}

/// A server that speaks TLS, and its runtime.
fn secure(
    choose: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static,
) -> (Server, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(Server::start_tls(choose)).unwrap();
    (server, runtime)
}

#[test]
fn credentials_of_a_kubeconfig_are_sent_over_https() {
    let (server, _runtime) = secure(|_, _| ok("pods.pb"));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("ca.crt"), server.ca_pem().unwrap()).unwrap();
    fs::write(at("token"), "of-a-file\r\n").unwrap();
    let url = server.url();
    for (address, user, more, expected) in [
        (&*url, "token: of-a", &[][..], "Bearer of-a"),
        (&url, "tokenFile: token", &[], "Bearer of-a-file"),
        (&url, "username: me, password: pw", &[], "Basic bWU6cHc="),
        // `--server` replaces the TLS name too.
        ("https://127.0.0.1:1", "token: of-b", &["--server", &url], "Bearer of-b"),
        (&url, "token: of-a", &["--token", "mine"], "Bearer mine"),
    ] {
        let name = if more.contains(&"--server") { ", tls-server-name: other" } else { "" };
        fs::write(at("config"), kubeconfig(address, &format!(", certificate-authority: ca.crt{name}"), user)).unwrap();
        let output =
            listwatch(&["get", "pods", "-A", "-o", NAMES, "--kubeconfig", &at("config")]).args(more).output().unwrap();
        assert_eq!((stderr(&output), stdout(&output).lines().count()), ("", 120), "{user}");
        assert_eq!(server.requests().last().unwrap().headers["authorization"], expected, "{user}");
    }
}

#[test]
fn an_invalid_token_is_an_error_at_once() {
    let (server, _runtime) = secure(|_, _| ok("pods.pb"));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("ca.crt"), server.ca_pem().unwrap()).unwrap();
    let invalid = "the token has a character that no header can carry";
    for (token, expected) in [
        (format!("{TOKEN}\n{TOKEN}"), format!("no valid credentials: {}: {invalid}\n", at("token"))),
        ("\n".to_owned(), format!("no valid credentials: {}: the file is empty\n", at("token"))),
    ] {
        fs::write(at("token"), token).unwrap();
        fs::write(at("config"), kubeconfig(&server.url(), ", certificate-authority: ca.crt", "tokenFile: token"))
            .unwrap();
        let output = listwatch(&["get", "pods", "-o", NAMES, "--kubeconfig", &at("config")]).output().unwrap();
        assert!(stderr(&output).ends_with(&expected), "{}", stderr(&output));
        assert_eq!((stderr(&output).lines().count(), output.status.code()), (1, Some(1)), "{}", stderr(&output));
    }
    fs::write(
        at("config"),
        kubeconfig(&server.url(), ", certificate-authority: ca.crt", &format!("token: \"{TOKEN}\\n{TOKEN}\"")),
    )
    .unwrap();
    let output = listwatch(&["get", "pods", "-o", NAMES, "--kubeconfig", &at("config")]).output().unwrap();
    assert_eq!(stderr(&output), format!("error: no valid credentials: {invalid}\n"));
    assert!(server.requests().is_empty());
}

/// Stands for a proxy that refuses all requests. Returns its address and the heads of the requests.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            seen.lock().unwrap().push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            connection.write_all(b"HTTP/1.1 407 no\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    (address, heads)
}

/// No case needs a name server: the proxy resolves names.
#[test]
fn uses_the_proxies_of_the_environment_by_the_rules_of_go() {
    let (server, _runtime) = secure(|_, _| ok("pods.pb"));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("ca.crt"), server.ca_pem().unwrap()).unwrap();
    let config = |server: &str, more: &str| {
        fs::write(at("config"), kubeconfig(server, &format!(", certificate-authority: ca.crt{more}"), "")).unwrap();
    };
    let run = |environment: &[(&str, &str)]| {
        let mut command: Command = listwatch(&["get", "pods", "-A", "-o", NAMES, "--kubeconfig", &at("config")]);
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    };
    // Nothing listens at port 1.
    config(&server.url(), "");
    let output = run(&[("HTTPS_PROXY", "http://127.0.0.1:1")]);
    assert_eq!(stdout(&output).lines().count(), 120, "{}", stderr(&output));
    for (variable, no_proxy) in [("HTTPS_PROXY", "127.0.0.1,"), ("https_proxy", "10.0.0.0/8, .local,")] {
        let (address, seen) = proxy();
        config("https://api.invalid:6443", "");
        let output = run(&[(variable, &format!("me:s3cret@{address}")), ("NO_PROXY", no_proxy)]);
        assert!(stderr(&output).contains("proxy authorization required"), "{}", stderr(&output));
        assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
        let seen = seen.lock().unwrap();
        assert!(!seen.is_empty(), "{variable}");
        for head in &*seen {
            assert!(head.starts_with("connect api.invalid:6443 http/1.1\r\n"), "{head}");
            assert!(head.contains("proxy-authorization: basic bwu6cznjcmv0"), "{head}");
        }
    }
    // kubectl does not obey it.
    let (address, seen) = proxy();
    config(&server.url().replace("127.0.0.1", "127.0.0.1.invalid"), "");
    run(&[("ALL_PROXY", &*address), ("all_proxy", &address), ("HTTP_PROXY", &address)]);
    assert!(seen.lock().unwrap().is_empty());
    // The cluster's own proxy comes first, and NO_PROXY is not about it.
    let (address, seen) = proxy();
    config("https://api.invalid:6443", &format!(", proxy-url: 'http://{address}'"));
    let output = run(&[("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")]);
    assert!(!seen.lock().unwrap().is_empty(), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_plugin_reports_its_failure() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("bin")).unwrap();
    fs::write(at("bin/fail"), "#!/bin/sh\necho 'log in again' >&2\nexit 3\n").unwrap();
    fs::set_permissions(at("bin/fail"), fs::Permissions::from_mode(0o755)).unwrap();
    for (fields, expected) in [
        (
            "command: bin/fail",
            format!(
                "log in again\nerror: no valid credentials: exec plugin {}: failed with exit status 3\n",
                at("bin/fail")
            ),
        ),
        (
            "command: no-such, installHint: 'brew install it'",
            "error: no valid credentials: exec plugin no-such: not found: brew install it\n".to_owned(),
        ),
        (
            "command: bin/fail, interactiveMode: Always",
            format!(
                "error: no valid credentials: exec plugin {}: it is interactive, and stdin is not a terminal\n",
                at("bin/fail")
            ),
        ),
    ] {
        let user = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, {fields}}}");
        fs::write(at("config"), kubeconfig("https://127.0.0.1:1", "", &user)).unwrap();
        let output =
            listwatch(&["get", "pods", "-o", NAMES, "--kubeconfig", &at("config")]).current_dir("/").output().unwrap();
        assert_eq!((stderr(&output), output.status.code()), (&*expected, Some(1)));
    }
}
