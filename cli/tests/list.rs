//! `listwatch list` and `listwatch record` against a server: what they send and print, how they end.

mod support;

use std::io::Read;
use std::process::Command;

use k8s_pb::api::core::v1::PodList;
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use listwatch_testserver::{Amplifier, Answer, Body, TOKEN, recorded_pods};
use prost::Message;
use support::api::{Api, listwatch, status};
use support::{FIXTURES, fixture, stderr, stdout};

fn ok(fixture_name: &str) -> Answer {
    Answer::ok(Body::replay(fixture(fixture_name)))
}

/// What `-o name` prints of a body, decoded by other means.
fn names(body: &[u8]) -> String {
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").unwrap()).unwrap();
    let pods = PodList::decode(envelope.raw.unwrap().as_slice()).unwrap().items;
    let metas = pods.into_iter().map(|pod| pod.metadata.unwrap());
    metas.map(|meta| format!("{}/{}\n", meta.namespace.unwrap(), meta.name.unwrap())).collect::<Vec<_>>().concat()
}

#[test]
fn names_come_whole_and_in_pages() {
    let pages = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"];
    let all: String = pages.iter().map(|page| names(&fixture(page))).collect();
    for (args, answers, expected) in [
        (vec!["list", "pods", "-A"], vec![ok("pods.pb")], names(&fixture("pods.pb"))),
        (vec!["list", "pods", "-A", "--limit", "50"], pages.map(ok).to_vec(), all),
    ] {
        let api = Api::new(answers);
        let output = api.run(&args);
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)), "{args:?}");
    }
}

#[test]
fn what_is_sent() {
    for (args, expected) in [
        ("pods", "/api/v1/namespaces/default/pods"),
        ("po -n web", "/api/v1/namespaces/web/pods"),
        ("Pod -A", "/api/v1/pods"),
        ("nodes", "/api/v1/nodes"),
        ("no -A", "/api/v1/nodes"),
        ("nodes -n web", "/api/v1/nodes"),
        ("deploy -A", "/apis/apps/v1/deployments"),
        ("deployments.apps -A", "/apis/apps/v1/deployments"),
        ("deployments.v1.apps -A", "/apis/apps/v1/deployments"),
        ("hpa -A", "/apis/autoscaling/v2/horizontalpodautoscalers"),
        // Discovery begins so.
        ("hpa.v1.autoscaling -A", "/api"),
        ("deployments.ap -A", "/api"),
        ("widgets.v1.example.com", "/api"),
        ("ev -A", "/api/v1/events"),
        ("events.events.k8s.io -A", "/apis/events.k8s.io/v1/events"),
        ("pods -A -l app=web,tier!=db", "/api/v1/pods?labelSelector=app%3Dweb%2Ctier%21%3Ddb"),
        ("pods -A --field-selector spec.nodeName=a", "/api/v1/pods?fieldSelector=spec.nodeName%3Da"),
        ("pods -A --resource-version 0", "/api/v1/pods?resourceVersion=0"),
        ("pods -A --resource-version 7", "/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan"),
        (
            "pods -A --resource-version 7 --resource-version-match Exact",
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
        ),
        (
            "pods -A --shard 0/2",
            "/api/v1/pods?shardSelector=shardRange%28object.metadata.uid%2C%20%270x0000000000000000%27%2C%20\
             %270x8000000000000000%27%29",
        ),
        ("pods -A --limit 5", "/api/v1/pods?limit=5"),
    ] {
        let api = Api::new([status(403, "Forbidden", "no")]);
        let output = api.run(&["list"].into_iter().chain(args.split(' ')).collect::<Vec<_>>());
        assert_eq!(stderr(&output), "error: API error: 403 Forbidden: no\n", "{args}");
        assert_eq!((api.paths(), output.status.code()), (vec![expected.to_owned()], Some(1)), "{args}");
    }
}

#[test]
fn json_is_asked_for() {
    let api = Api::new([ok("pods.json")]);
    let output = api.run(&["list", "pods", "-A", "-o", "json"]);
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
    let decoded = listwatch(&["decode", "-o", "json", &format!("{FIXTURES}pods.json")]).output().unwrap();
    assert_eq!((stdout(&output), stdout(&output).lines().count()), (stdout(&decoded), 30));
    assert_eq!(api.server.requests()[0].headers["accept"], "application/json");

    let api = Api::new([ok("pods.json")]);
    let output = api.run(&["list", "pods", "-A", "-o", "json", "--drop", "metadata.managedFields"]);
    assert!(stdout(&output).contains("\"metadata\"") && !stdout(&output).contains("managedFields"));
    assert_eq!(api.server.requests()[0].headers["accept"], "application/json;drop=metadata.managedFields");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn shards_that_the_server_ignores() {
    let api = Api::new([ok("pods.pb")]);
    let output = api.run(&["list", "pods", "-A", "--shard", "0/2"]);
    let left_out = 120 - stdout(&output).lines().count();
    let expected = format!(
        "warning: the server does not know shards: {left_out} items of others came too and were left out here\n"
    );
    assert_eq!((stderr(&output), output.status.code()), (&*expected, Some(0)));
    assert!((1..120).contains(&left_out));
}

#[test]
fn metadata_only_is_asked_for() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    api.run(&["list", "pods", "--metadata-only"]);
    let accept = api.server.requests()[0].headers["accept"].to_str().unwrap().to_owned();
    assert!(accept.contains("as=PartialObjectMetadataList"), "{accept}");
}

#[test]
fn summary() {
    let api = Api::new(["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"].map(ok));
    let output = api.run(&["list", "pods", "-A", "--limit", "50", "-o", "summary"]);
    let summary: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&summary["kind"], &summary["continue"]), (&"PodList".into(), &serde_json::Value::Null));
    let bytes: usize = [1, 2, 3].map(|page| fixture(&format!("pods-page-{page}.pb")).len()).iter().sum();
    assert_eq!(summary["bytes"], bytes);
}

/// An error is one line, the last one; retries and warnings come before it.
#[test]
fn errors() {
    let pods = || Body::replay(fixture("pods.pb"));
    for (answers, expected) in [
        (vec![status(401, "Unauthorized", "Unauthorized")], "error: API error: 401 Unauthorized: Unauthorized\n"),
        (vec![ok("clusterroles.pb")], "error: another kind: asked for "),
        (vec![Answer::ok(Body::replay("<html>no</html>"))], "error: unexpected encoding: the body looks like "),
        (vec![Answer::ok(pods().cut_at(100_000))], "error: incomplete: the body ended before the list did"),
        (vec![Answer::ok(Body::replay(r#"{"kind":"PodList"}"#))], "error: malformed: no value in "),
    ] {
        let api = Api::new(answers);
        let output = api.run(&["list", "pods", "-A"]);
        assert!(stderr(&output).starts_with(expected), "{expected} {}", stderr(&output));
        assert_eq!((stderr(&output).lines().count(), output.status.code()), (1, Some(1)), "{expected}");
    }
}

#[test]
fn retries_and_warnings_are_told() {
    let busy = status(429, "TooManyRequests", "busy");
    let warned = ok("pods.pb").header("warning", r#"299 - "pods are deprecated""#);
    let api = Api::new([busy, warned]);
    let output = api.run(&["list", "pods", "-A", "--resource-version", "0", "--limit", "10"]);
    let lines: Vec<_> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, [beginning, part]) in lines.iter().zip([
        ["warning: ", "limit 10 is ignored with resource version 0"],
        ["retry: API error: 429 TooManyRequests: busy", ", again in "],
        ["warning: ", "pods are deprecated"],
    ]) {
        assert!(line.starts_with(beginning) && line.contains(part), "{line}");
    }
    assert_eq!((stdout(&output), output.status.code()), (&*names(&fixture("pods.pb")), Some(0)));
}

/// Nothing is sent.
#[test]
fn wrong_usage() {
    let api = Api::new([ok("pods.pb")]);
    for (args, expected) in [
        ("list", "<RESOURCE>"),
        ("list pods -n a -A", "cannot be used with"),
        ("list pods -l a=b=c", "invalid selector"),
        ("list pods --limit 0", "0 is not in 1.."),
        ("list pods --shard 2/2", "is no shard"),
        ("list pods --resource-version-match Exact", "--resource-version"),
        ("list pods --resource-version x", "error: invalid resource version \"x\": it must be digits"),
        ("list pods --resource-version 0 --resource-version-match Exact", "error: exact version 0: "),
        ("list pods --kubeconfig a", "cannot be used with"),
        ("record pods", "<FILE>"),
    ] {
        let output = api.run(&args.split(' ').collect::<Vec<_>>());
        assert!(stderr(&output).contains(expected), "{args}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args}");
    }
    assert_eq!(api.paths(), [""; 0]);
}

/// By discovery, in its older form: a custom resource, and names that stand for nothing. One group does not answer.
#[test]
fn names_that_the_server_knows() {
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
                "singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list"],"shortNames":["wd"]}]}"#
            }
            "/apis/metrics.k8s.io/v1" => return status(500, "InternalError", "down"),
            _ => return status(403, "Forbidden", "found"),
        };
        Answer::ok(Body::replay(document)).content_type("application/json")
    });
    for (args, expected) in [
        ("widgets", "error: API error: 403 Forbidden: found\n"),
        ("wd -n web", "error: API error: 403 Forbidden: found\n"),
        ("widgets.v1.example.com -A", "error: API error: 403 Forbidden: found\n"),
        ("widgest", "error: no resource \"widgest\" on this server; did you mean widgets.example.com?\n"),
    ] {
        let output = api.run(&["list"].into_iter().chain(args.split(' ')).collect::<Vec<_>>());
        let warning = "warning: metrics.k8s.io: what this group has is not known: API error: 500 InternalError: down\n";
        let expected = format!("{warning}{expected}");
        assert_eq!((stderr(&output), output.status.code()), (&*expected, Some(1)), "{args}");
    }
    let lists: Vec<_> = api.paths().into_iter().filter(|path| path.ends_with("widgets")).collect();
    let paths = ["namespaces/default/widgets", "namespaces/web/widgets", "widgets"];
    assert_eq!(lists, paths.map(|path| format!("/apis/example.com/v1/{path}")));
}

#[test]
fn without_a_server() {
    let output = listwatch(&["list", "pods"]).output().unwrap();
    let expected = "error: no kubeconfig, and not in a cluster: name one with --kubeconfig, or a --server\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(1)));
    let output =
        listwatch(&["list", "pods", "--server", "http://127.0.0.1:1", "--token-file", "/no"]).output().unwrap();
    assert!(stderr(&output).starts_with("error: transport: credentials: /no: "), "{}", stderr(&output));
}

#[test]
fn a_token_is_sent_and_never_shown() {
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
         namespace: web}}}}], clusters: [{{name: a, cluster: {{server: '{}'}}}}], users: [{{name: a, user: {{token: \
         {TOKEN}}}}}]}}",
        api.server.url()
    );
    std::fs::write(&through_kube, config).unwrap();
    for mut command in [
        {
            let mut command = api.command(&["list", "pods", "-n", "web"]);
            command.arg("--token-file").arg(&token);
            command
        },
        {
            let mut command = listwatch(&["list", "pods"]);
            command.arg("--kubeconfig").arg(&through_kube);
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
fn a_reader_that_closes_ends_it_quietly() {
    let pods = Amplifier::new(&recorded_pods(), 50_000).unwrap();
    let api = Api::new([Answer::ok(Body::amplify(pods))]);
    let mut child = api.command(&["list", "pods", "-A"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
#[cfg(unix)]
fn interrupted() {
    let api = Api::new([Answer::ok(Body::replay(fixture("pods.pb")).stall_at(100_000))]);
    let mut child = api.command(&["list", "pods", "-A"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 20]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(stderr(&output).starts_with("interrupted: at byte "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn recorded_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.pb");
    let path = file.to_str().unwrap();
    let body = fixture("pods.pb");

    let cut = Answer::ok(Body::replay(body.clone()).cut_at(100_000));
    let output = Api::new([cut]).run(&["record", "pods", "-A", path]);
    assert!(stderr(&output).starts_with("error: incomplete: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing is left");

    // What a failed try sent is not in it.
    let api = Api::new([status(503, "ServiceUnavailable", "soon"), ok("pods.pb")]);
    let output = api.run(&["record", "pods", "-A", path]);
    let last = stderr(&output).lines().last().unwrap();
    assert!(last.starts_with("recorded: "), "{}", stderr(&output));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(0)));
    assert!(std::fs::read(&file).unwrap() == body);
    assert_eq!(api.server.requests()[1].headers["accept-encoding"], "identity");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1, "nothing else is left");

    let output = Api::new([ok("pods.pb")]).run(&["record", "pods", "/no/directory/pods.pb"]);
    assert!(stderr(&output).starts_with("error: cannot write /no/directory/pods.pb: "), "{}", stderr(&output));
}

#[test]
#[cfg(unix)]
fn as_a_plugin_of_kubectl() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-listwatch");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_listwatch"), &plugin).unwrap();
    let output = Command::new(&plugin).args(["list", "--help"]).output().unwrap();
    assert!(stdout(&output).contains("Usage: kubectl listwatch list [OPTIONS] <RESOURCE>"), "{}", stdout(&output));
    assert!(stdout(&output).contains("  kubectl listwatch list pods -A  "), "{}", stdout(&output));
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = listwatch(&["completions", shell]).output().unwrap();
        assert!(stdout(&output).contains("field-selector"), "{shell}");
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{shell}");
    }
}
