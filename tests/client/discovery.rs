//! Resolving names over HTTP, by aggregated and by older discovery; getting single objects.

use listwatch::client::{Client, Resource, Retry};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server};

use crate::support::fixture;
use crate::support::server::{anonymous, client_of, recorded, serve, serve_by};

fn client(server: &Server, http2: bool) -> Client {
    client_of(anonymous(&server.url(), http2)).retry(Retry::never())
}

fn json(text: &'static str) -> Answer {
    Answer::ok(Body::replay(text)).content_type("application/json")
}

fn not_found() -> Answer {
    Answer::ok(Body::replay("404 page not found")).status(404)
}

fn aggregated(request: &RecordedRequest, _: usize) -> Answer {
    match &*request.path {
        "/api" => json(
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
            {"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list","watch"],"shortNames":["po"],"subresources":[{"subresource":"log","responseKind":{"group":"","version":"","kind":"Pod"},"verbs":["get"]}]},
            {"resource":"nodes","responseKind":{"group":"","version":"","kind":"Node"},"scope":"Cluster","singularResource":"node","verbs":["list","watch"],"shortNames":["no"]}]}]}]}"#,
        ),
        "/apis" => json(
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[
            {"resource":"deployments","responseKind":{"kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["list","watch"],"shortNames":["deploy"]}]}]},
            {"metadata":{"name":"gone.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}]}"#,
        ),
        _ => not_found(),
    }
}

fn old(request: &RecordedRequest, _: usize) -> Answer {
    match &*request.path {
        "/api" => json(r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#),
        "/api/v1" => json(
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
            {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"]},
            {"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]},
            {"name":"nodes","singularName":"","namespaced":false,"kind":"Node","verbs":["list","watch"],"shortNames":["no"]}]}"#,
        ),
        "/apis" => json(
            r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1beta1","version":"v1beta1"},{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},
            {"name":"gone.example.com","versions":[{"groupVersion":"gone.example.com/v1","version":"v1"}]}]}"#,
        ),
        "/apis/apps/v1" | "/apis/apps/v1beta1" => json(
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
            {"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["list","watch"],"shortNames":["deploy"]}]}"#,
        ),
        // The server of this group is down.
        _ => Answer::ok(Body::replay("service unavailable")).status(503),
    }
}

#[tokio::test]
async fn resolves_names_as_typed() {
    for http2 in [false, true] {
        for (server, of_name, of_group) in [(serve_by(aggregated).await, 3, 1), (serve_by(old).await, 6, 3)] {
            let client = client(&server, http2);
            for (typed, requests, expected) in [
                ("po", of_name, Resource::PODS),
                ("pod", of_name, Resource::PODS),
                ("no", of_name, Resource::NODES),
                ("deploy", of_name, Resource::DEPLOYMENTS),
                ("deployments.apps", of_group, Resource::DEPLOYMENTS),
                ("deployments.ap", of_group, Resource::DEPLOYMENTS),
                ("deployments.v1.apps", of_group.min(2), Resource::DEPLOYMENTS),
            ] {
                let before = server.requests().len();
                assert_eq!(client.resolve(typed).await.unwrap(), expected, "{typed}");
                assert_eq!(server.requests().len() - before, requests, "{typed}");
            }
            assert!(client.resolve("log").await.is_err());
        }
    }
}

#[tokio::test]
async fn failed_discovery_is_an_error() {
    for (answer, expected) in [
        (json("{}"), "cannot read the discovery document /api: "),
        (json(r#"{"kind":"APIVersions","versions":["#), "cannot read the discovery document /api: "),
        (
            json(r#"{"kind":"PodList","items":[]}"#),
            "cannot read the discovery document /api: expected APIGroupDiscoveryList or APIVersions or ",
        ),
        (json(r#"{"kind":"Status","code":403,"reason":"Forbidden"}"#), "API error: 403 Forbidden"),
        (json("<html>"), "unexpected encoding: the body looks like HTML"),
        (json(""), "incomplete: "),
        (
            not_found(),
            "API error: 404: the server does not serve this path: the resource does not exist, or no longer exists",
        ),
        (not_found().status(401), "API error: 401: 404 page not found"),
    ] {
        let server = serve(answer).await;
        for http2 in [false, true] {
            for typed in ["widgets", "widgets.example.com"] {
                let error = client(&server, http2).resolve(typed).await.unwrap_err();
                let expected =
                    if typed == "widgets" { expected.to_owned() } else { expected.replace("/api:", "/apis:") };
                assert!(crate::support::chain(&error).starts_with(&expected), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn gets_one_object() {
    for http2 in [false, true] {
        for (answer, expected) in [
            (recorded("single-configmap.pb"), None),
            (recorded("error-404-no-such-object.pb").status(404), Some("API error: 404 NotFound: ")),
            (recorded("error-403.pb"), Some("API error: 403 Forbidden: ")),
            (recorded("pods.pb"), Some("the server sent PodList of \"v1\" instead of ConfigMap of \"v1\"")),
            (
                json(r#"{"kind":"Widget","apiVersion":"v1"}"#),
                Some("the server sent Widget of \"v1\" instead of ConfigMap of \"v1\""),
            ),
            (
                json(r#"{"kind":"ConfigMap","apiVersion":"v1"}"#),
                Some(
                    "cannot read the item, at byte 0, 0 items delivered: unexpected encoding: the item is in JSON, expected protobuf",
                ),
            ),
            (json(r#"{"kind":"Status","message":"no","code":403}"#), Some("API error: 403: no")),
            (json(r#"{"kind":"#), Some("cannot read the item, at byte 0, 0 items delivered: invalid JSON in kind")),
            (Answer::ok(Body::replay("<html>")), Some("unexpected encoding: ")),
            (Answer::ok(Body::replay("")), Some("incomplete: ")),
            (Answer::ok(Body::replay(fixture("single-configmap.pb")).cut_at(40)), Some("malformed: ")),
            (
                Answer::ok(Body::replay(fixture("single-configmap.pb")).reset_at(40)),
                Some("the connection was interrupted: "),
            ),
        ] {
            let server = serve(answer).await;
            let client = client(&server, http2);
            let maps = Resource::CONFIG_MAPS;
            let result = client.get::<k8s_pb::api::core::v1::ConfigMap>(&maps, Some("team-1"), "config-1").await;
            match (result, expected) {
                (Ok(object), None) => {
                    assert!(!object.metadata.unwrap().name.unwrap().is_empty());
                    assert_eq!(server.requests()[0].path, "/api/v1/namespaces/team-1/configmaps/config-1");
                }
                (Err(error), Some(expected)) => assert!(crate::support::chain(&error).starts_with(expected), "{error}"),
                (result, expected) => panic!("{result:?} for {expected:?}"),
            }
        }
    }
}
