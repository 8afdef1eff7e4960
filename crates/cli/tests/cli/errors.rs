//! `listwatch get` as one of the commands that read from a server: how it finds resources and connects, its errors and
//! warnings, and how it ends.

use std::io::Read;

use listwatch_testserver::{Answer, Body, Synthesizer, TOKEN, recorded_pods};

use crate::support::api::{Api, ok, status};
use crate::support::{NAMES, fixture, listwatch, stderr, stdout};

/// Returns what [`NAMES`] prints of all Pods.
fn keys() -> String {
    crate::support::names(&crate::support::pods(&fixture("pods.pb")))
}

/// Retries and warnings are printed on lines before the error.
#[test]
fn reports_each_error_on_one_line() {
    let pods = || Body::replay(fixture("pods.pb"));
    for (answers, expected) in [
        (vec![status(401, "Unauthorized", "Unauthorized")], "error: API error: 401 Unauthorized: Unauthorized\n"),
        (vec![ok("clusterroles.pb")], "error: the server sent "),
        (vec![Answer::ok(Body::replay("<html>no</html>"))], "error: unexpected encoding: the body looks like "),
        (vec![Answer::ok(pods().cut_at(100_000))], "error: incomplete: the body ended before the list did"),
        (vec![Answer::ok(Body::replay(r#"{"kind":"PodList"}"#))], "error: malformed: no value in "),
    ] {
        let api = Api::new(answers);
        let output = api.run(&["get", "pods", "-A", "-o", "jsonl"]);
        assert!(stderr(&output).starts_with(expected), "{expected} {}", stderr(&output));
        assert_eq!((stderr(&output).lines().count(), output.status.code()), (1, Some(1)), "{expected}");
    }
}

#[test]
fn reports_retries_and_warnings() {
    let busy = status(429, "TooManyRequests", "busy");
    let warned = ok("pods.pb").header("warning", r#"299 - "pods are deprecated""#);
    let api = Api::new([busy, warned]);
    let args = ["get", "pods", "-A", "-o", NAMES, "--resource-version", "0"];
    let output = api.run(&args);
    let lines: Vec<_> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, [beginning, part]) in lines
        .iter()
        .zip([["retrying in 0.", " s: API error: 429 TooManyRequests: busy"], ["warning: ", "pods are deprecated"]])
    {
        assert!(line.starts_with(beginning) && line.contains(part), "{line}");
    }
    assert_eq!((stdout(&output), output.status.code()), (&*keys(), Some(0)));
}

#[test]
fn rejects_wrong_usage_before_any_request() {
    let api = Api::new([ok("pods.pb")]);
    for (args, expected) in [
        ("get", "<RESOURCE>"),
        ("get pods -l a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("get pods --limit 0", "it must be at least 1\n"),
        ("get pods -w --limit 1", "cannot be used with"),
        ("get pods a b -w", "a watch is of one resource, or of one object"),
        ("get pods,svc -w", "a watch is of one resource, or of one object"),
        ("get pods --output-watch-events", "--output-watch-events is for --watch and --watch-only"),
        ("get pods -o summary", "expected one of wide, name, json, "),
        ("get pods a -l app=web", "names cannot be used with a selector"),
        ("get pods/a/b", "TYPE/NAME has one slash"),
        ("get pods/", "TYPE/NAME has one type and one name"),
        ("get pods --as-group admins", "--as <USER>"),
        ("get pods --client-key key.pem", "--client-certificate <FILE>"),
        ("get pods --token a --token-file b", "cannot be used with"),
        ("get pods --insecure-skip-tls-verify --certificate-authority ca.pem", "cannot be used with"),
        ("watch pods --shard 2/2", "invalid shard"),
        ("get pods --resource-version-match Exact", "--resource-version"),
        ("get pods -n Web -o name", "error: namespace \"Web\" must be 1 to 63 of a-z"),
        ("record pods -A -", "`record` does not write to stdout"),
        ("get pods -o name --resource-version=", "error: invalid resource version \"\": it must not be empty"),
        ("get pods -o name --resource-version 0 --resource-version-match Exact", "error: exact version 0: "),
    ] {
        let output = api.run(&args.split(' ').collect::<Vec<_>>());
        assert!(stderr(&output).contains(expected), "{args}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args}");
    }
    assert_eq!(api.paths(), [""; 0]);
}

/// Finds a custom resource by the older form of discovery, in which one group fails, and rejects other names.
#[test]
fn discovers_resources_that_are_not_built_in() {
    let api = Api::by(|request, _| {
        let document = match &*request.path {
            "/api" => r#"{"kind":"APIVersions","versions":[]}"#,
            "/apis" => {
                r#"{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1",
                "version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}},
                {"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"}]}]}"#
            }
            "/apis/example.com/v1" => {
                r#"{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"widgets",
                "singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list"],"shortNames":["wd"],
                "categories":["all"]},{"name":"gadgets","kind":"Gadget","verbs":null}]}"#
            }
            "/apis/metrics.k8s.io/v1" => return status(500, "InternalError", "down"),
            _ => return status(403, "Forbidden", "found"),
        };
        Answer::ok(Body::replay(document)).content_type("application/json")
    });
    let warning = "warning: /apis/metrics.k8s.io/v1: the resources of this group are unknown: API error: 500 InternalError: down\n";
    for (args, warning, expected) in [
        ("widgets", warning, "error: API error: 403 Forbidden: found\n"),
        ("wd -n web", warning, "error: API error: 403 Forbidden: found\n"),
        // Only the named group is read.
        ("widgets.v1.example.com -A", "", "error: API error: 403 Forbidden: found\n"),
        (
            "widgest",
            warning,
            "error: no resource \"widgest\" on this server; did you mean widgets.example.com?; could not read \
             /apis/metrics.k8s.io/v1\n",
        ),
        ("all", warning, "error: API error: 403 Forbidden: found\n"),
        (
            "pods.metrics.k8s.io",
            "",
            "error: cannot look up \"pods.metrics.k8s.io\" on this server: API error: 500 InternalError: down\n",
        ),
    ] {
        let output = api.run(&["get", "-o", "jsonl"].into_iter().chain(args.split(' ')).collect::<Vec<_>>());
        assert_eq!((stderr(&output), output.status.code()), (&*format!("{warning}{expected}"), Some(1)), "{args}");
    }
    let lists: Vec<_> = api.paths().into_iter().filter(|path| path.ends_with("widgets")).collect();
    let paths = ["namespaces/default/widgets", "namespaces/web/widgets", "widgets", "namespaces/default/widgets"];
    assert_eq!(lists, paths.map(|path| format!("/apis/example.com/v1/{path}")));
}

#[test]
fn explains_a_missing_server() {
    let output = listwatch(&["get", "pods", "-o", NAMES]).output().unwrap();
    let expected = "error: kubeconfig: none names a server, and this process does not run in a cluster: ";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    let output = listwatch(&["get", "pods", "-o", NAMES, "--server", "http://127.0.0.1:1", "--token-file", "/no"])
        .output()
        .unwrap();
    assert!(stderr(&output).starts_with("error: no valid credentials: /no: "), "{}", stderr(&output));
}

#[test]
fn explains_the_scheme_of_the_server() {
    let output = listwatch(&["get", "pods", "-o", NAMES, "--server", "127.0.0.1:8011"]).output().unwrap();
    let expected = "invalid value '127.0.0.1:8011' for '--server <URL>': the URL must begin with http:// or https://\n";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));

    let api = Api::new([ok("pods.pb")]);
    let url = api.server.url().replace("http://", "https://");
    for args in [&[][..], &["--insecure-skip-tls-verify"]] {
        let output = listwatch(&["get", "pods", "-o", NAMES, "--server", &url]).args(args).output().unwrap();
        let hint = " over TLS: the server may not use TLS: try http://\n";
        assert!(stderr(&output).ends_with(hint), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn sends_the_token_and_never_prints_it() {
    let api = Api::by(|request, _| {
        let token = request.headers["authorization"].to_str().unwrap();
        Answer::ok(Body::replay(format!("<html>{token}, {TOKEN}</html>"))).status(407)
    });
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let through_kube = directory.path().join("config");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a, \
         namespace: web}}}}], clusters: [{{name: a, cluster: {{server: '{}'}}}}]}}",
        api.server.url()
    );
    std::fs::write(&through_kube, config).unwrap();
    for mut command in [
        {
            let mut command = api.command(&["get", "pods", "-n", "web", "-o", NAMES]);
            command.arg("--token-file").arg(&token);
            command
        },
        {
            let mut command = listwatch(&["get", "pods", "-o", NAMES]);
            command.arg("--kubeconfig").arg(&through_kube).arg("--token-file").arg(&token);
            command
        },
    ] {
        let output = command.env("RUST_LOG", "trace").output().unwrap();
        assert!(
            stderr(&output).starts_with("error: ") && stderr(&output).contains("[redacted]"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(api.paths(), ["/api/v1/namespaces/web/pods"; 2]);
    assert!(api.server.requests().iter().all(|request| request.headers["authorization"] == format!("Bearer {TOKEN}")));
}

#[test]
fn exits_quietly_on_a_closed_pipe() {
    let pods = Synthesizer::new(&recorded_pods(), 50_000).unwrap();
    let api = Api::new([Answer::ok(Body::synthesize(pods))]);
    let mut child = api.command(&["get", "pods", "-A", "-o", "jsonl"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
#[cfg(unix)]
fn exits_with_130_on_an_interrupt() {
    for signal in ["-INT", "-TERM"] {
        let api = Api::new([Answer::ok(Body::replay(fixture("pods.pb")).stall_at(100_000))]);
        let mut child = api.command(&["get", "pods", "-A", "-o", NAMES]).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 20]).unwrap();
        crate::support::signal(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert!(stderr(&output).starts_with("interrupted: at byte "), "{signal}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(130), "{signal}");
    }
}

/// As in kubectl, options override their part of a kubeconfig, whose credentials are used only over HTTPS.
#[test]
fn overrides_parts_of_a_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let other = Api::new([status(403, "Forbidden", "other")]);
    let api = Api::by(|request, _| {
        let header =
            |name: &str| request.headers.get(name).map_or("-".to_owned(), |value| value.to_str().unwrap().to_owned());
        let seen = ["authorization", "impersonate-user", "impersonate-group"].map(header).join(" ");
        status(403, "Forbidden", &seen.replace(TOKEN, "SECRET"))
    });
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}, \
         {{name: b, context: {{cluster: b, user: b}}}}], clusters: [{{name: a, cluster: {{server: '{}'}}}}, {{name: b, \
         cluster: {{server: '{}'}}}}], users: [{{name: a, user: {{token: {TOKEN}}}}}, {{name: b, user: {{token: of-b}}}}]}}",
        api.server.url(),
        other.server.url()
    );
    std::fs::write(&file, config).unwrap();
    let (config, url) = (file.to_str().unwrap(), api.server.url());
    for (args, expected) in [
        (vec!["--kubeconfig", config], "- - -"),
        (vec!["--kubeconfig", config, "--context", "b"], "other"),
        (vec!["--kubeconfig", config, "--cluster", "b"], "other"),
        (vec!["--kubeconfig", config, "--user", "b"], "- - -"),
        (vec!["--kubeconfig", config, "--context", "b", "--server", &url], "- - -"),
        (vec!["--kubeconfig", config, "--as", "jane", "--as-group", "dev"], "- jane dev"),
        (vec!["--kubeconfig", config, "--token", "mine"], "Bearer [redacted] - -"),
        (vec!["--server", &url, "--token", "mine"], "Bearer [redacted] - -"),
        (vec!["--server", &url], "- - -"),
        (vec!["--server", &url, "--as", "jane"], "- jane -"),
    ] {
        // KUBECONFIG is read if no option names a kubeconfig.
        let output = listwatch(&["get", "pods", "-o", NAMES]).args(&args).env("KUBECONFIG", config).output().unwrap();
        let text = stderr(&output);
        assert!(text.ends_with(&format!("403 Forbidden: {expected}\n")), "{args:?}: {text}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
    let tokens: Vec<_> =
        api.server.requests().iter().map(|request| request.headers.get("authorization").cloned()).collect();
    let bearer = |token: &str| Some(format!("Bearer {token}").parse().unwrap());
    let expected = [None, None, None, None, bearer("mine"), bearer("mine"), None, None];
    assert_eq!(tokens, expected);
    for option in ["--context", "--cluster", "--user"] {
        let output = listwatch(&["get", "pods", option, "c"]).env("KUBECONFIG", config).output().unwrap();
        assert!(stderr(&output).starts_with("error: kubeconfig: "), "{option}: {}", stderr(&output));
    }
}

/// Debug logs go to stderr, and contain no token.
#[test]
fn logs_requests_with_verbose() {
    let api = Api::new([ok("pods.pb"), ok("pods.pb")]);
    for (args, is_logged) in [
        (&["get", "pods", "-A", "-o", NAMES][..], false),
        (&["-v", "get", "pods", "-A", "-o", NAMES, "--token", TOKEN], true),
    ] {
        let output = api.run(args);
        assert_eq!(stdout(&output), keys(), "{args:?}");
        assert_eq!(stderr(&output).contains("/api/v1/pods"), is_logged, "{}", stderr(&output));
        assert!(!stderr(&output).contains(TOKEN), "{}", stderr(&output));
    }
}

#[test]
fn warns_of_insecure_connections() {
    let api = Api::new([ok("pods.pb")]);
    let output = api.run(&["get", "pods", "-A", "-o", NAMES, "--insecure-skip-tls-verify"]);
    let expected = "warning: --insecure-skip-tls-verify: the server's certificate is not verified\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)));
}
