//! `listwatch list` against a server: what it sends and prints, and how it ends.

use std::io::Read;

use listwatch_testserver::{Answer, Body, Synthesizer, TOKEN, recorded_pods};

use crate::support::api::{Api, ok, status};
use crate::support::{FIXTURES, fixture, listwatch, pods, stderr, stdout};

/// Returns the output of `-o name` for a body.
fn names(body: &[u8]) -> String {
    crate::support::names(&pods(body))
}

#[test]
fn prints_names_of_a_whole_list_and_of_pages() {
    let pages = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"];
    let all: String = pages.iter().map(|page| names(&fixture(page))).collect();
    for (args, answers, expected) in [
        (vec!["list", "pods", "-A"], vec![ok("pods.pb")], names(&fixture("pods.pb"))),
        (vec!["list", "pods", "-A", "--chunk-size", "50"], pages.map(ok).to_vec(), all),
    ] {
        let api = Api::new(answers);
        let output = api.run(&args);
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*expected, "", Some(0)), "{args:?}");
    }
}

#[test]
fn requests_the_path_and_query_of_each_option() {
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
        // The first request of discovery.
        ("hpa.v1.autoscaling -A", "/apis"),
        ("deployments.ap -A", "/apis"),
        ("widgets.v1.example.com", "/apis"),
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
        ("pods -A --chunk-size 5", "/api/v1/pods?limit=5"),
        ("pods -A --limit 7", "/api/v1/pods?limit=7"),
        ("pods -A --limit 7 --chunk-size 5", "/api/v1/pods?limit=5"),
        ("pods -A --limit 5 --chunk-size 7", "/api/v1/pods?limit=5"),
        ("pods -A --limit 7 --resource-version 0", "/api/v1/pods?resourceVersion=0"),
        ("pods web-1", "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dweb-1"),
        ("pod/web-1 -A", "/api/v1/pods?fieldSelector=metadata.name%3Dweb-1"),
    ] {
        let api = Api::new([status(403, "Forbidden", "no")]);
        let output = api.run(&["list"].into_iter().chain(args.split(' ')).collect::<Vec<_>>());
        let typed = args.split(' ').next().unwrap();
        let action =
            if expected == "/apis" { format!("cannot look up {typed:?} on this server: ") } else { String::new() };
        assert_eq!(stderr(&output), format!("error: {action}API error: 403 Forbidden: no\n"), "{args}");
        assert_eq!((api.paths(), output.status.code()), (vec![expected.to_owned()], Some(1)), "{args}");
    }
}

#[test]
fn requests_json_for_json_output() {
    let api = Api::new([ok("pods.json")]);
    let output = api.run(&["list", "pods", "-A", "-o", "json", "--limit", "30"]);
    assert_eq!((stderr(&output), output.status.code()), ("30 of 120 shown\n", Some(0)));
    let decoded = listwatch(&["decode", "-o", "json", &format!("{FIXTURES}pods.json")]).output().unwrap();
    assert_eq!((stdout(&output), stdout(&output).lines().count()), (stdout(&decoded), 30));
    assert_eq!(api.server.requests()[0].headers["accept"], "application/json");
    assert!(stdout(&output).contains("\"metadata\"") && !stdout(&output).contains("managedFields"));

    let api = Api::new([ok("pods.json")]);
    let output = api.run(&["list", "pods", "-A", "-o", "json", "--limit", "30", "--show-managed-fields"]);
    assert!(stdout(&output).contains("managedFields"));
    assert_eq!(stderr(&output), "30 of 120 shown\n");
}

#[test]
fn filters_a_shard_that_the_server_ignores() {
    let api = Api::new([ok("pods.pb")]);
    let output = api.run(&["list", "pods", "-A", "--shard", "0/2"]);
    let left_out = 120 - stdout(&output).lines().count();
    let expected = format!(
        "warning: the server does not support shards: {left_out} items of other shards were filtered out here\n"
    );
    assert_eq!((stderr(&output), output.status.code()), (&*expected, Some(0)));
    assert!((1..120).contains(&left_out));
}

#[test]
fn requests_metadata_only() {
    let api = Api::new([status(403, "Forbidden", "no")]);
    api.run(&["list", "pods", "--metadata-only"]);
    let accept = api.server.requests()[0].headers["accept"].to_str().unwrap().to_owned();
    assert!(accept.contains("as=PartialObjectMetadataList"), "{accept}");
}

#[test]
fn prints_one_summary_of_all_pages() {
    let api = Api::new(["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"].map(ok));
    let output = api.run(&["list", "pods", "-A", "--chunk-size", "50", "-o", "summary"]);
    let summary: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&summary["kind"], &summary["continue"]), (&"PodList".into(), &serde_json::Value::Null));
    let bytes: usize = [1, 2, 3].map(|page| fixture(&format!("pods-page-{page}.pb")).len()).iter().sum();
    assert_eq!(summary["bytes"], bytes);
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
        let output = api.run(&["list", "pods", "-A"]);
        assert!(stderr(&output).starts_with(expected), "{expected} {}", stderr(&output));
        assert_eq!((stderr(&output).lines().count(), output.status.code()), (1, Some(1)), "{expected}");
    }
}

#[test]
fn reports_retries_and_warnings() {
    let busy = status(429, "TooManyRequests", "busy");
    let warned = ok("pods.pb").header("warning", r#"299 - "pods are deprecated""#);
    let api = Api::new([busy, warned]);
    let args = ["list", "pods", "-A", "--resource-version", "0", "--chunk-size", "10", "--limit", "200"];
    let output = api.run(&args);
    let lines: Vec<_> = stderr(&output).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, [beginning, part]) in lines.iter().zip([
        ["warning: ", "--chunk-size 10 is ignored with resource version 0"],
        ["retrying in 0.", " s: API error: 429 TooManyRequests: busy"],
        ["warning: ", "pods are deprecated"],
    ]) {
        assert!(line.starts_with(beginning) && line.contains(part), "{line}");
    }
    assert_eq!((stdout(&output), output.status.code()), (&*names(&fixture("pods.pb")), Some(0)));
}

#[test]
fn rejects_wrong_usage_before_any_request() {
    let api = Api::new([ok("pods.pb")]);
    for (args, expected) in [
        ("list", "<RESOURCE>"),
        ("list pods -n a -A", "cannot be used with"),
        ("list pods -l a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("list pods --limit 0", "it must be at least 1\n"),
        ("list pods -w --limit 1", "cannot be used with"),
        ("list pods -w --watch-only", "cannot be used with"),
        ("list pods a b -w", "a watch takes one name, or none for all objects"),
        ("list pods -o summary --watch-only", "-o summary is about a list: no --watch or --watch-only"),
        ("list pods --chunk-size 0", "it must be at least 1\n"),
        ("list pods --limit 5 -o summary", "-o summary is about one whole list"),
        ("list pods a b -o summary", "-o summary is about one whole list"),
        ("list pods a -l app=web", "names cannot be used with a selector"),
        ("list pods/a/b", "a name is empty or contains a slash"),
        ("list pods/", "a name is empty or contains a slash"),
        ("list pods --as-group admins", "--as <USER>"),
        ("list pods --client-key key.pem", "--client-certificate <FILE>"),
        ("list pods --token a --token-file b", "cannot be used with"),
        ("list pods --insecure-skip-tls-verify --certificate-authority ca.pem", "cannot be used with"),
        ("list pods --shard 2/2", "invalid shard"),
        ("list pods --resource-version-match Exact", "--resource-version"),
        ("list pods -n Web", "error: namespace \"Web\" must be 1 to 63 of a-z"),
        ("record pods -A -", "`record` does not write to stdout"),
        ("list pods --resource-version=", "error: invalid resource version \"\": it must not be empty"),
        ("list pods --resource-version 0 --resource-version-match Exact", "error: exact version 0: "),
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
        (
            "all",
            warning,
            "error: \"all\" is a category of resources: name one of widgets.example.com; could not read \
             /apis/metrics.k8s.io/v1\n",
        ),
        (
            "pods.metrics.k8s.io",
            "",
            "error: cannot look up \"pods.metrics.k8s.io\" on this server: API error: 500 InternalError: down\n",
        ),
    ] {
        let output = api.run(&["list"].into_iter().chain(args.split(' ')).collect::<Vec<_>>());
        assert_eq!((stderr(&output), output.status.code()), (&*format!("{warning}{expected}"), Some(1)), "{args}");
    }
    let lists: Vec<_> = api.paths().into_iter().filter(|path| path.ends_with("widgets")).collect();
    let paths = ["namespaces/default/widgets", "namespaces/web/widgets", "widgets"];
    assert_eq!(lists, paths.map(|path| format!("/apis/example.com/v1/{path}")));
}

#[test]
fn explains_a_missing_server() {
    let output = listwatch(&["list", "pods"]).output().unwrap();
    let expected = "error: kubeconfig: none names a server, and this process does not run in a cluster: ";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    let output =
        listwatch(&["list", "pods", "--server", "http://127.0.0.1:1", "--token-file", "/no"]).output().unwrap();
    assert!(stderr(&output).starts_with("error: no valid credentials: /no: "), "{}", stderr(&output));
}

#[test]
fn explains_the_scheme_of_the_server() {
    let output = listwatch(&["list", "pods", "--server", "127.0.0.1:8011"]).output().unwrap();
    let expected = "invalid value '127.0.0.1:8011' for '--server <URL>': the URL must begin with http:// or https://\n";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));

    let api = Api::new([ok("pods.pb")]);
    let url = api.server.url().replace("http://", "https://");
    for args in [&[][..], &["--insecure-skip-tls-verify"]] {
        let output = listwatch(&["list", "pods", "--server", &url]).args(args).output().unwrap();
        let hint = " over TLS: the server may not use TLS: try http://\n";
        assert!(stderr(&output).ends_with(hint), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// The columns of a custom resource are in its definition, which only a table needs.
#[test]
fn prints_the_columns_of_a_custom_resource() {
    const DEFINITION: &str = r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":
        {"name":"widgets.example.com"},"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[
        {"name":"Size","type":"integer","jsonPath":".spec.size"},
        {"name":"Colour","type":"string","jsonPath":".spec.colour","priority":1}]}]}}"#;
    let definition = |answer: fn() -> Answer| {
        Api::by(move |request, _| match &*request.path {
            "/apis/example.com/v1" => Answer::ok(Body::replay(
                r#"{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"widgets",
                "singularName":"widget","namespaced":true,"kind":"Widget","verbs":["list","watch"]}]}"#,
            ))
            .content_type("application/json"),
            "/apis" => Answer::ok(Body::replay(
                r#"{"kind":"APIGroupList","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1",
                "version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}"#,
            ))
            .content_type("application/json"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com" => answer(),
            "/apis/example.com/v1/widgets" => {
                let accept = request.headers["accept"].to_str().unwrap();
                let is_partial = accept.contains("PartialObjectMetadata");
                let partial = ("meta.k8s.io/v1", "PartialObjectMetadata");
                let (api_version, kind) = if is_partial { partial } else { ("example.com/v1", "Widget") };
                Answer::ok(Body::replay(format!(
                    r#"{{"apiVersion":"{api_version}","items":[{{"apiVersion":"{api_version}","kind":"{kind}",
                    "metadata":{{"name":"a","namespace":"web"}},"spec":{{"size":3,"colour":"red"}}}}],
                    "kind":"{kind}List","metadata":{{"resourceVersion":"7"}}}}"#
                )))
                .content_type("application/json")
            }
            path => panic!("{path}"),
        })
    };
    let found: fn() -> Answer = || Answer::ok(Body::replay(DEFINITION)).content_type("application/json");
    let missing: fn() -> Answer = || status(404, "NotFound", "none");
    let forbidden: fn() -> Answer = || status(403, "Forbidden", "no");
    let warning = "warning: cannot read the columns of widgets.example.com: API error: 403 Forbidden: no\n";
    let plain = "NAMESPACE NAME AGE BYTES web a <unknown>";
    for (answer, args, expected, warning, definitions) in [
        (found, "-o table", "NAMESPACE NAME SIZE AGE BYTES web a 3 <unknown>", "", 1),
        (found, "-o wide --no-headers", "web a 3 red <unknown>", "", 1),
        (missing, "-o table", plain, "", 1),
        (forbidden, "-o table", plain, warning, 1),
        (found, "-o table --metadata-only", plain, "", 0),
        (found, "-o name", "web/a", "", 0),
    ] {
        let api = definition(answer);
        let args: Vec<_> = ["list", "widgets.example.com", "-A"].into_iter().chain(args.split(' ')).collect();
        let output = api.run(&args);
        let printed = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(printed.starts_with(expected), "{args:?}: {printed}");
        assert_eq!((stderr(&output), output.status.code()), (warning, Some(0)), "{args:?}");
        let requested = api.paths().iter().filter(|path| path.contains("customresourcedefinitions")).count();
        assert_eq!(requested, definitions, "{args:?}");
    }
}

#[test]
fn reports_an_empty_list() {
    for (args, expected) in [
        (&[][..], "No items found.\n"),
        (&["-o", "table"], "No items found.\n"),
        (&["-o", "json"], ""),
        (&["-o", "yaml"], ""),
        (&["-o", "summary"], ""),
    ] {
        let output = Api::new([ok("pods-empty.pb")]).run(&[&["list", "pods", "-A"], args].concat());
        assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)), "{args:?}");
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
            let mut command = api.command(&["list", "pods", "-n", "web"]);
            command.arg("--token-file").arg(&token);
            command
        },
        {
            let mut command = listwatch(&["list", "pods"]);
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
    let mut child = api.command(&["list", "pods", "-A"]).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
#[cfg(unix)]
fn exits_with_130_on_an_interrupt() {
    for signal in ["-INT", "-TERM"] {
        let api = Api::new([Answer::ok(Body::replay(fixture("pods.pb")).stall_at(100_000))]);
        let mut child = api.command(&["list", "pods", "-A"]).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 20]).unwrap();
        crate::support::signal(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert!(stderr(&output).starts_with("interrupted: at byte "), "{signal}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(130), "{signal}");
    }
}

/// The command requests no more pages than it prints, says what it left out, and exits with 0. The pages have 50 items,
/// however many were requested, and 20 in the last.
#[test]
fn stops_at_the_limit() {
    let all = [1, 2, 3].map(|page| names(&fixture(&format!("pods-page-{page}.pb")))).concat();
    for (args, limit, requests, expected) in [
        ("--limit 7", 7, 1, "7 shown, and there are more\n"),
        ("--limit 50", 50, 1, "50 of 120 shown\n"),
        ("--limit 60 --chunk-size 50", 60, 2, "60 shown, and there are more\n"),
        ("--limit 100 --chunk-size 50", 100, 2, "100 of 120 shown\n"),
        ("--limit 50 -l a=b", 50, 1, "50 shown, and there may be more\n"),
        ("--limit 7 -l a=b", 7, 1, "7 shown, and there are more\n"),
        ("--limit 7 --resource-version 0", 7, 1, "7 shown, and there are more\n"),
        ("--limit 120 --chunk-size 50", 120, 3, ""),
        ("--limit 200 --chunk-size 50", 120, 3, ""),
    ] {
        let api = Api::new(["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"].map(ok));
        let output = api.run(&[&["list", "pods", "-A"], &*args.split(' ').collect::<Vec<_>>()].concat());
        let rows: String = all.split_inclusive('\n').take(limit).collect();
        assert_eq!((stdout(&output), stderr(&output), output.status.code()), (&*rows, expected, Some(0)), "{args}");
        assert_eq!(api.paths().len(), requests, "{args}");
    }
}

/// The objects of the other names were not requested.
#[test]
fn a_limit_of_named_objects_does_not_claim_the_others() {
    for (names, requests, expected) in [(&["a", "b"][..], 1, "{} shown, and there may be more\n"), (&["a"], 1, "")] {
        let count = pods(&fixture("pods-selected.pb")).len();
        let api = Api::new([ok("pods-selected.pb")]);
        let limit = count.to_string();
        let output = api.run(&[&["list", "pods", "--limit", &*limit], names].concat());
        assert_eq!((stderr(&output), output.status.code()), (&*expected.replace("{}", &limit), Some(0)));
        assert_eq!(api.paths().len(), requests);
    }
}

/// The command sends one list per name, with a field selector. Missing objects are an error after the output.
#[test]
fn lists_objects_by_name() {
    let answers = || [ok("pods-selected.pb"), ok("pods-empty.pb"), ok("pods-selected.pb")];
    let api = Api::new(answers());
    let output = api.run(&["list", "pod/a", "b", "c", "-n", "web"]);
    let expected = names(&fixture("pods-selected.pb")).repeat(2);
    assert!(!expected.is_empty());
    assert_eq!((stdout(&output), stderr(&output)), (&*expected, "error: pods \"b\" not found\n"));
    assert_eq!(output.status.code(), Some(1));
    let path = |name| format!("/api/v1/namespaces/web/pods?fieldSelector=metadata.name%3D{name}");
    assert_eq!(api.paths(), ["a", "b", "c"].map(path));

    let api = Api::new(answers());
    let output = api.run(&["list", "pod", "a", "b", "c", "-o", "table"]);
    let headers = stdout(&output).lines().filter(|line| line.starts_with("NAMESPACE")).count();
    assert_eq!((headers, stdout(&output).lines().count()), (1, 1 + expected.lines().count()));
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
        let output = listwatch(&["list", "pods"]).args(&args).env("KUBECONFIG", config).output().unwrap();
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
        let output = listwatch(&["list", "pods", option, "c"]).env("KUBECONFIG", config).output().unwrap();
        assert!(stderr(&output).starts_with("error: kubeconfig: "), "{option}: {}", stderr(&output));
    }
}

/// Debug logs go to stderr, and contain no token.
#[test]
fn logs_requests_with_verbose() {
    let api = Api::new([ok("pods.pb"), ok("pods.pb")]);
    for (args, is_logged) in
        [(&["list", "pods", "-A"][..], false), (&["-v", "list", "pods", "-A", "--token", TOKEN], true)]
    {
        let output = api.run(args);
        assert_eq!(stdout(&output), names(&fixture("pods.pb")), "{args:?}");
        assert_eq!(stderr(&output).contains("/api/v1/pods"), is_logged, "{}", stderr(&output));
        assert!(!stderr(&output).contains(TOKEN), "{}", stderr(&output));
    }
}

#[test]
fn warns_of_insecure_connections() {
    let api = Api::new([ok("pods.pb")]);
    let output = api.run(&["list", "pods", "-A", "--insecure-skip-tls-verify"]);
    let expected = "warning: --insecure-skip-tls-verify: the server's certificate is not verified\n";
    assert_eq!((stderr(&output), output.status.code()), (expected, Some(0)));
}

#[test]
fn sorts_the_rows_of_a_list() {
    let items = ["web-10", "web-9", "api-1"].map(|name| crate::support::api::config_map(name, 1, ""));
    let list = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
        items.join(",")
    );
    let list = || Answer::ok(Body::replay(list.clone())).content_type("application/json");
    for (format, expected) in [
        ("name", "web/api-1\nweb/web-10\nweb/web-9\n"),
        ("jsonpath={.items[*].metadata.name}", "api-1 web-10 web-9"),
        ("custom-columns=N:.metadata.name", "N\napi-1\nweb-10\nweb-9\n"),
    ] {
        let output = Api::new([list()]).run(&["list", "cm", "-n", "web", "--sort-by", ".metadata.name", "-o", format]);
        assert_eq!((stdout(&output), output.status.code()), (expected, Some(0)), "{format}: {}", stderr(&output));
    }
    let output = Api::new([list()]).run(&["list", "cm", "-n", "web", "--sort-by", ".metadata.nam"]);
    assert_eq!(stderr(&output).lines().last(), Some("error: no object in the list has the field of --sort-by"));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(1)));
    for (args, expected) in [
        (["--sort-by", "{.a", "-o", "name"], "--sort-by"),
        (["--sort-by", ".a", "--limit", "3"], "cannot be used with"),
        (["--sort-by", ".a", "-o", "summary"], "-o summary prints no items: no --sort-by"),
    ] {
        let output = Api::new([list()]).run(&[&["list", "cm"][..], &args].concat());
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
