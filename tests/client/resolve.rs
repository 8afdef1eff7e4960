//! Resolving names when documents of discovery are odd, late or missing, as client-go and kubectl do where they
//! succeed.

use std::time::Duration;

use listwatch::client::{ErrorKind, Resource, TransportErrorKind, WatchParams};
use tokio::time::Instant;

use crate::support::log::subscribe;
use crate::support::transport::{Answer, Asked, Scripted};

/// A cluster by the older documents: the core group, `example.com` with widgets, and between them one more group.
struct Cluster {
    core: Answer,
    groups: Option<Answer>,
    between: Answer,
}

impl Cluster {
    fn new() -> Self {
        let core = Answer::ok(
            r#"{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}"#,
        );
        Self { core, groups: None, between: Answer::ok(r#"{"kind":"APIResourceList","resources":[]}"#) }
    }

    fn serve(self) -> Scripted {
        Scripted::by(move |asked, _| self.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Answer {
        match asked.path() {
            "/api" => Answer::ok(r#"{"kind":"APIVersions","versions":["v1"]}"#),
            "/api/v1" => self.core.clone(),
            "/apis" => self.groups.clone().unwrap_or_else(|| {
                Answer::ok(
                    r#"{"kind":"APIGroupList","groups":[
                {"name":"down.example","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}},
                {"name":"example.com","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}"#,
                )
            }),
            "/apis/down.example/v1" => self.between.clone(),
            "/apis/example.com/v1" => Answer::ok(
                r#"{"kind":"APIResourceList","resources":[{"name":"widgets","singularName":"widget","kind":"Widget",
                "namespaced":true,"verbs":["list","watch"],"shortNames":["wd"]}]}"#,
            ),
            _ => Answer::status(404),
        }
    }
}

fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget")
}

/// Answers in place of a document.
fn odd_answers() -> Vec<(&'static str, Answer)> {
    let html = || Answer::ok("<html>sign in</html>");
    vec![
        ("401", Answer::status(401)),
        ("403", Answer::status(403)),
        ("404", Answer::status(404)),
        ("503", Answer::ok("service unavailable\n").code(503)),
        ("429", Answer::status(429).header("retry-after", "1")),
        ("a redirect", Answer::status(302).header("location", "https://login.example/")),
        ("HTML", html()),
        ("HTML with an error status", html().code(502)),
        ("nothing", Answer::ok("")),
        ("a truncated body", Answer::ok(r#"{"kind":"APIResourceList","resources":[{"#)),
        ("a reset", Answer::ok(r#"{"kind":"#).then_reset()),
        ("no connection", Answer::fails(TransportErrorKind::Connect, "refused")),
        ("no response", Answer::never()),
        ("a body that stalls", Answer::ok(r#"{"kind":"#).then_stalls()),
        ("one byte in each second", Answer::ok("{").then_each(|_| Some((Duration::from_secs(1), " ".into())))),
        ("a body without an end", Answer::ok("{").then_each(|_| Some((Duration::ZERO, vec![b' '; 1 << 20].into())))),
        ("another kind", Answer::ok(r#"{"kind":"PodList","items":[]}"#)),
        ("an empty object", Answer::ok("{}")),
        ("null", Answer::ok("null")),
        ("another type", Answer::ok(r#"{"kind":"APIResourceList","resources":[{"name":"widgets","verbs":"list"}]}"#)),
        ("a Status", Answer::ok(r#"{"kind":"Status","code":500,"message":"down"}"#)),
    ]
}

#[tokio::test(start_paused = true)]
async fn one_odd_document_hides_no_other_group() {
    let (log, _guard) = subscribe();
    for (name, answer) in odd_answers() {
        _ = log.take();
        let server = Cluster { between: answer, ..Cluster::new() }.serve();
        let client = server.client();
        for typed in ["widgets", "wd", "Widget"] {
            let asked_at = Instant::now();
            assert_eq!(client.resolve(typed).await.unwrap(), widgets(), "{name}");
            assert!(asked_at.elapsed() <= Duration::from_secs(10), "{name}: {:?}", asked_at.elapsed());
            let log = log.take();
            let warning = "the resources of this group are unknown path=\"/apis/down.example/v1\" error=";
            assert_eq!(log.matches(warning).count(), 1, "{name}: {log}");
        }
        // The other groups are not asked.
        server.forget();
        assert_eq!(client.resolve("widgets.example.com").await.unwrap(), widgets(), "{name}");
        assert_eq!(server.paths(), ["/apis", "/apis/example.com/v1"], "{name}");
        assert!(!log.take().contains("the resources of this group"));

        let error = client.resolve("gadgets").await.unwrap_err().to_string();
        assert_eq!(
            error,
            "no resource \"gadgets\" on this server; did you mean widgets.example.com?; could not read /apis/down.example/v1",
            "{name}"
        );
        // The error of the group that was typed, not `no resource`.
        for typed in ["widgets.down.example", "widgets.v1.down.example", "widgets.down"] {
            let error = client.resolve(typed).await.unwrap_err();
            assert!(!matches!(error.kind(), ErrorKind::Unresolved(_)), "{name}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_a_manifest_needs_the_documents_of_its_version() {
    let pods = || Resource::new("", "v1", "pods", "Pod");
    for (typed, expected, paths) in [
        ("example.com/v1/Widget", widgets(), vec!["/apis", "/apis/example.com/v1"]),
        ("v1/Pod", pods(), vec!["/api", "/api/v1", "/apis"]),
    ] {
        let server = Cluster::new().serve();
        assert_eq!(server.client().resolve(typed).await.unwrap(), expected, "{typed}");
        let mut asked = server.paths();
        asked.sort();
        assert_eq!(asked, paths, "{typed}");
    }
    for (name, answer) in odd_answers() {
        // The error of the group, not `no resource`.
        let server = Cluster { between: answer, ..Cluster::new() }.serve();
        let error = server.client().resolve("down.example/v1/Widget").await.unwrap_err();
        assert!(!matches!(error.kind(), ErrorKind::Unresolved(_)), "{name}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_core_group_may_be_missing_or_unreadable() {
    for (name, answer) in odd_answers() {
        let core = Cluster { core: answer.clone(), ..Cluster::new() }.serve();
        assert_eq!(core.client().resolve("widgets").await.unwrap(), widgets(), "{name}");

        let (cluster, root) = (Cluster::new(), answer.clone());
        let root =
            Scripted::by(move |asked, _| if asked.path() == "/api" { root.clone() } else { cluster.answer(asked) });
        assert_eq!(root.client().resolve("widgets").await.unwrap(), widgets(), "{name}");
        let error = root.client().resolve("pods").await.unwrap_err().to_string();
        // A server without a core group has nothing that could not be read.
        let unread = if name == "404" { "" } else { "; could not read /api" };
        assert_eq!(error, format!("no resource \"pods\" on this server{unread}"), "{name}");

        // Another group may have a resource of the same name, as `metrics.k8s.io` has `pods`.
        let core = Cluster { core: answer.clone(), between: Cluster::new().core, ..Cluster::new() }.serve();
        let found = core.client().resolve("pods").await;
        assert!(found.is_err(), "{name}: {found:?}");
        let (cluster, root) = (Cluster { between: Cluster::new().core, ..Cluster::new() }, answer.clone());
        let root =
            Scripted::by(move |asked, _| if asked.path() == "/api" { root.clone() } else { cluster.answer(asked) });
        let found = root.client().resolve("pods").await;
        assert_eq!(found.is_ok(), name == "404", "{name}: {found:?}");

        let groups = Cluster { groups: Some(answer), ..Cluster::new() }.serve();
        assert_eq!(groups.client().resolve("pods").await.unwrap(), Resource::PODS, "{name}");
        let error = groups.client().resolve("widgets").await.unwrap_err().to_string();
        assert_eq!(error, "no resource \"widgets\" on this server; could not read /apis", "{name}");
        let error = groups.client().resolve("widgets.example.com").await.unwrap_err();
        assert!(!matches!(error.kind(), ErrorKind::Unresolved(_)), "{name}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_a_group_only_if_the_server_asks_for_it_or_the_connection_broke() {
    for (name, answer, requests) in [
        ("503", Answer::status(503), 1),
        ("500", Answer::status(500), 1),
        ("503 with a delay", Answer::status(503).header("retry-after", "1"), 2),
        ("429 with a delay", Answer::status(429).header("retry-after", "1"), 2),
        ("a reset", Answer::ok("{").then_reset(), 2),
        ("no connection", Answer::fails(TransportErrorKind::Connect, "refused"), 2),
    ] {
        let (cluster, mut failed) = (Cluster::new(), false);
        let server = Scripted::by(move |asked, _| match asked.path() {
            "/apis/example.com/v1" if !std::mem::replace(&mut failed, true) => answer.clone(),
            _ => cluster.answer(asked),
        });
        let found = server.client().resolve("widgets.example.com").await;
        assert_eq!(found.is_ok(), requests == 2, "{name}");
        assert_eq!(server.requests(), 1 + requests, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_the_time_and_the_number_of_requests() {
    let groups = |n: usize| {
        let groups: Vec<_> =
            (0..n).map(|i| format!(r#"{{"name":"g{i}.example","versions":[{{"version":"v1"}}]}}"#)).collect();
        Answer::ok(format!(r#"{{"kind":"APIGroupList","groups":[{}]}}"#, groups.join(",")))
    };
    // All groups hang: the time of each, then the time of all.
    for (n, seconds, requests) in [(16, 10, 16), (17, 20, 17), (100, 30, 48)] {
        let groups = groups(n);
        let server = Scripted::by(move |asked, _| match asked.path() {
            "/api" => Answer::status(404),
            "/apis" => groups.clone(),
            _ => Answer::never(),
        });
        let asked_at = Instant::now();
        let error = server.client().resolve("widgets").await.unwrap_err();
        assert_eq!(
            (error.kind().to_string(), asked_at.elapsed().as_secs()),
            ("the server has not sent /apis/g0.example/v1 in time".to_owned(), seconds),
            "{n}"
        );
        assert_eq!(server.requests(), 2 + requests, "{n}");
    }
    // A root that hangs does not shorten the time of the groups below the other root.
    let cluster = Cluster::new();
    let server =
        Scripted::by(move |asked, _| if asked.path() == "/api" { Answer::never() } else { cluster.answer(asked) });
    let asked_at = Instant::now();
    assert_eq!(server.client().resolve("widgets").await.unwrap(), widgets());
    assert_eq!(asked_at.elapsed().as_secs(), 30);
}

/// Go writes an empty list as null unless the type omits it.
#[tokio::test(start_paused = true)]
async fn reads_null_as_a_missing_field() {
    let null = [
        r#"{"kind":"APIResourceList","resources":null}"#,
        r#"{"kind":"APIResourceList"}"#,
        r#"{"resources":[null]}"#,
        r#"{"kind":"APIResourceList","resources":[{"name":null,"singularName":null,"namespaced":null,"kind":null,"verbs":null,"shortNames":null,"categories":null}]}"#,
        r#"{"kind":"APIResourceList","resources":[{"name":"*/queue_length","singularName":"","namespaced":true,"kind":"MetricValueList","verbs":null}]}"#,
        r#"  {"kind":"APIResourceList","groupVersion":null,"resources":[{"name":"widgets","kind":"Widget","verbs":["get",null],"shortNames":[null]}]}"#,
    ];
    for document in null {
        let server = Cluster { between: Answer::ok(document), ..Cluster::new() }.serve();
        let (log, _guard) = subscribe();
        assert_eq!(server.client().resolve("widgets").await.unwrap(), widgets(), "{document}");
        assert!(!log.take().contains("the resources of this group"), "{document}");
    }
    let example = r#"{"name":"example.com","versions":[{"version":"v1"},{"version":null},null]}"#;
    for groups in [
        example.to_owned(),
        format!(
            r#"null,{{"name":null,"versions":[{{"version":"v1"}}]}},{{"name":"a.example","versions":null,"preferredVersion":null}},{example}"#
        ),
        format!(r#"{{"name":"b.example"}},{example}"#),
        // Names that cannot be in a path.
        format!(r#"{{"name":"..","versions":[{{"version":"a/b"}},{{"version":"."}}]}},{example}"#),
    ] {
        let groups = Answer::ok(format!(r#"{{"kind":"APIGroupList","groups":[{groups}]}}"#));
        let server = Cluster { groups: Some(groups), ..Cluster::new() }.serve();
        assert_eq!(server.client().resolve("widgets.example.com").await.unwrap(), widgets());
    }
    let nulls = r#""versions":[{"version":"v1","freshness":null,"resources":null},null,{"version":"v2","resources":[null,
        {"resource":null},{"resource":"a","responseKind":null,"scope":null,"singularResource":null,"verbs":null,"shortNames":null,"categories":null,"subresources":null},
        {"resource":"*","responseKind":null,"subresources":[{"subresource":"x","responseKind":null,"verbs":null}]}]}]"#;
    for core in [
        r#"{"kind":"APIGroupDiscoveryList","items":null}"#,
        r#"{"kind":"APIVersions","versions":null}"#,
        r#"{"kind":"APIVersions"}"#,
    ] {
        let groups = format!(
            r#"{{"kind":"APIGroupDiscoveryList","metadata":null,"items":[null,{{"metadata":null,{nulls}}},{{"metadata":{{"name":"a.example"}},{nulls}}},
            {{"metadata":{{"name":"c.example"}},"versions":null}},{{"metadata":{{"name":"example.com"}},"versions":[{{"version":"v1",
            "resources":[{{"resource":"widgets","responseKind":{{"kind":"Widget"}},"scope":"Namespaced","verbs":["list","watch"]}}]}}]}}]}}"#
        );
        let server = Scripted::by(move |asked, _| match asked.path() {
            "/api" => Answer::ok(core),
            "/apis" => Answer::ok(groups.clone()),
            _ => Answer::status(500),
        });
        let (log, _guard) = subscribe();
        assert_eq!(server.client().resolve("widget").await.unwrap(), widgets());
        assert!(!log.take().contains("the resources of this group"));
        assert_eq!(server.requests(), 2);
    }
}

/// With `Stale` kube-aggregator marks a group whose server it could not ask. It has no resources then.
#[tokio::test(start_paused = true)]
async fn asks_a_stale_group_itself() {
    let groups = |resources: &str| {
        format!(
            r#"{{"kind":"APIGroupDiscoveryList","items":[{{"metadata":{{"name":"example.com"}},"versions":[
            {{"version":"v2","freshness":"Stale","resources":{resources}}},
            {{"version":"v1","freshness":"Current","resources":[{{"resource":"gadgets","responseKind":{{"kind":"Gadget"}},"scope":"Namespaced","verbs":["list","watch"]}}]}}]}}]}}"#
        )
    };
    let stale = r#"[{"resource":"widgets","responseKind":{"kind":"Widget"},"scope":"Namespaced","verbs":["list","watch"]},
        {"resource":"gadgets","responseKind":{"kind":"Gadget"},"scope":"Namespaced","verbs":["list","watch"]}]"#;
    let fresh = Answer::ok(
        r#"{"kind":"APIResourceList","resources":[{"name":"widgets","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}"#,
    );
    let down = Answer::ok("service unavailable\n").code(503);
    let resource = |version: &'static str, plural: &'static str, kind: &'static str| {
        Ok(Resource::new("example.com", version, plural, kind))
    };
    let unavailable = || Err("API error: 503: service unavailable");
    for (resources, own, typed, expected, requests, warning) in [
        (
            "null",
            &down,
            "gadgets",
            resource("v1", "gadgets", "Gadget"),
            3,
            "are unknown path=\"/apis/example.com/v2\" error=",
        ),
        ("null", &down, "widgets.example.com", unavailable(), 2, ""),
        ("null", &down, "widgets.v2.example.com", unavailable(), 2, ""),
        (
            "null",
            &down,
            "widgets",
            Err(
                "no resource \"widgets\" on this server; did you mean gadgets.example.com?; could not read /apis/example.com/v2",
            ),
            3,
            "are unknown",
        ),
        ("null", &fresh, "widgets", resource("v2", "widgets", "Widget"), 3, ""),
        // A version that is not stale precedes.
        (stale, &down, "gadgets", resource("v1", "gadgets", "Gadget"), 2, "may be outdated"),
        (stale, &down, "gadgets.v2.example.com", resource("v2", "gadgets", "Gadget"), 1, "may be outdated"),
        (stale, &down, "widgets.example.com", resource("v2", "widgets", "Widget"), 1, "may be outdated"),
    ] {
        let (groups, own) = (groups(resources), own.clone());
        let server = Scripted::by(move |asked, _| match asked.path() {
            "/api" => Answer::status(404),
            "/apis" => Answer::ok(groups.clone()),
            "/apis/example.com/v2" => own.clone(),
            _ => Answer::status(500),
        });
        let (log, _guard) = subscribe();
        let found = server.client().resolve(typed).await.map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{typed} {resources}");
        assert_eq!(server.requests(), requests, "{typed} {resources}");
        let log = log.take();
        assert_eq!(log.contains("the resources of this group"), !warning.is_empty(), "{typed} {resources}: {log}");
        assert!(log.contains(warning), "{typed} {resources}: {log}");
    }
}

/// The order of groups is the server's; in each group the preferred version precedes, also in older documents. A
/// resource that only another version has is found there.
#[tokio::test(start_paused = true)]
async fn prefers_groups_and_versions_as_the_server_does() {
    let server = Scripted::by(|asked, _| {
        let list = |names: &[&str]| {
            let resource = |name| {
                format!(
                    r#"{{"name":"{name}","kind":"K","namespaced":true,"verbs":["list","watch"],"shortNames":["s"]}}"#
                )
            };
            let resources: Vec<_> = names.iter().map(resource).collect();
            Answer::ok(format!(r#"{{"kind":"APIResourceList","resources":[{}]}}"#, resources.join(",")))
        };
        match asked.path() {
            "/api" => Answer::status(404),
            "/apis" => Answer::ok(
                r#"{"kind":"APIGroupList","groups":[
                {"name":"b.example","versions":[{"version":"v2beta1"},{"version":"v1"}],"preferredVersion":{"version":"v1"}},
                {"name":"a.example","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}"#,
            ),
            // The answers arrive in another order.
            "/apis/b.example/v1" => list(&["both", "all"]).after(Duration::from_secs(2)),
            "/apis/b.example/v2beta1" => list(&["both", "all", "beta"]).after(Duration::from_secs(1)),
            "/apis/a.example/v1" => list(&["all", "beta", "other"]),
            _ => Answer::status(500),
        }
    });
    for (typed, expected) in [
        ("all", "b.example/v1 all"),
        ("both", "b.example/v1 both"),
        ("beta", "b.example/v2beta1 beta"),
        ("other", "a.example/v1 other"),
        ("s", "b.example/v1 both"),
        ("beta.a.example", "a.example/v1 beta"),
        ("all.v2beta1.b.example", "b.example/v2beta1 all"),
    ] {
        let found = server.client().resolve(typed).await.unwrap();
        assert_eq!(format!("{} {}", found.api_version(), found.plural()), expected, "{typed}");
    }
}

/// Servers that do not know the media type, or whose aggregated document cannot be read.
#[tokio::test(start_paused = true)]
async fn falls_back_to_the_older_documents() {
    for refusal in [
        Answer::status(406),
        Answer::ok(r#"{"kind":"Status","code":406,"reason":"NotAcceptable"}"#),
        Answer::ok(r#"{"kind":"APIGroupDiscoveryList","items":"none"}"#),
        Answer::ok(r#"{"kind":"List","items":[]}"#),
    ] {
        let cluster = Cluster::new();
        let server = Scripted::by(move |asked, _| {
            if asked.headers["accept"].to_str().unwrap().contains("as=APIGroupDiscoveryList") {
                return refusal.clone();
            }
            cluster.answer(asked)
        });
        assert_eq!(server.client().resolve("widgets").await.unwrap(), widgets());
        assert_eq!(server.client().resolve("pod").await.unwrap(), Resource::PODS);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_listed_is_not_resolved_and_what_cannot_be_watched_is_not_watched() {
    let metrics = Answer::ok(
        r#"{"kind":"APIResourceList","resources":[{"name":"pods","singularName":"","kind":"PodMetrics","namespaced":true,
        "verbs":["get","list"]},{"name":"reviews","singularName":"review","kind":"Review","verbs":["create"],"categories":["all"]},
        {"name":"nodes","kind":"NodeMetrics","verbs":["get","list"],"categories":["all"]}]}"#,
    );
    let server = Cluster { between: metrics, ..Cluster::new() }.serve();
    let client = server.client();
    for (typed, expected) in [
        ("reviews", "\"reviews\" is reviews.down.example, which the server does not list"),
        ("all", "\"all\" is a category of resources: name one of nodes.down.example"),
    ] {
        assert_eq!(client.resolve(typed).await.unwrap_err().to_string(), expected);
    }
    let pods = client.resolve("pods.down.example").await.unwrap();
    assert!(!pods.is_watchable() && client.resolve("pods").await.unwrap().is_watchable());
    server.forget();
    let expected = "pods.down.example cannot be watched: the server only lists it";
    for params in [WatchParams::from_now(), WatchParams::from_version("1"), WatchParams::with_initial_state()] {
        let watch = || client.watch::<[u8]>(&pods, &params);
        let errors = [watch().next().await.unwrap().unwrap_err(), watch().open().await.unwrap_err()];
        for error in errors {
            assert_eq!(error.to_string(), expected);
        }
    }
    assert_eq!(server.paths(), [""; 0]);
}
