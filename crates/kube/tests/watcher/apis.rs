//! Other types and scopes, differences from kube, errors of requests, and kube's stores.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::watcher as theirs;
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, Resource, ResourceExt as _};
use listwatch_kube::runtime::watcher as ours;
use listwatch_kube::runtime::watcher::Config;
use listwatch_testserver::{Answer, Body, Server, TOKEN};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::support::*;

/// Checks that both watchers handle this type and these paths alike.
async fn alike<K>(api: impl Fn(Client) -> Api<K>, answers: &[Answer], paths: &[&str])
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let of_kube = seen(answers, |client| theirs(api(client), Config::default())).await;
    let of_this = seen(answers, |client| ours(api(client), Config::default())).await;
    assert_eq!(of_this, of_kube);
    assert_eq!(of_this.0.join(" "), "Init InitApply(a) InitDone Apply(last)");
    assert_eq!(of_this.1.iter().map(|path| path.split('?').next().unwrap()).collect::<Vec<_>>(), paths);
}

#[tokio::test]
async fn watches_other_types_and_one_namespace_like_kube() {
    alike(
        |client| Api::<ConfigMap>::namespaced(client, "team-1"),
        &[list("2", "", &[config_map("a", 1)]), last()],
        &["/api/v1/namespaces/team-1/configmaps"; 2],
    )
    .await;
    let of = |api_version: &str, kind: &str, list_kind: &str| {
        let (mut a, mut last) = (config_map("a", 1), config_map(LAST, 2));
        for object in [&mut a, &mut last] {
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
        }
        let metadata = json!({"resourceVersion": "2"});
        let of_a = json!({"apiVersion": api_version, "kind": list_kind, "metadata": metadata, "items": [a]});
        let mut line = json!({"type": "ADDED", "object": last}).to_string() + "\n";
        let length = line.len() as u64;
        line.push(' ');
        [document(&of_a), Answer::ok(Body::replay(line).stall_at(length)).content_type("application/json")]
    };
    // A custom list kind, which only the resource's definition contains.
    let widgets = || ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    alike(
        |client| Api::<DynamicObject>::all_with(client, &widgets()),
        &of("example.com/v1", "Widget", "WidgetCollectionList"),
        &["/apis/example.com/v1/widgets"; 2],
    )
    .await;
    alike(
        |client| Api::<DynamicObject>::namespaced_with(client, "a", &widgets()),
        &of("example.com/v1", "Widget", "WidgetList"),
        &["/apis/example.com/v1/namespaces/a/widgets"; 2],
    )
    .await;
    alike(
        Api::<PartialObjectMeta<ConfigMap>>::all,
        &of("meta.k8s.io/v1", "PartialObjectMetadata", "PartialObjectMetadataList"),
        &["/api/v1/configmaps"; 2],
    )
    .await;
}

#[tokio::test]
async fn requests_metadata_only_with_the_credentials_of_the_client() {
    let server = Server::start(Answer::in_turn([list("2", "", &[]), last()])).await.unwrap();
    let api = Api::<PartialObjectMeta<ConfigMap>>::all(client(&server));
    let events = ours(api, Config::default()).take(3);
    let _: Vec<_> = events.collect().await;
    let headers: Vec<_> = server.requests().into_iter().map(|request| request.headers).collect();
    let form = ";g=meta.k8s.io;v=v1";
    assert_eq!(headers[0]["accept"], format!("application/json;as=PartialObjectMetadataList{form}"));
    assert_eq!(headers[0]["authorization"], format!("Bearer {TOKEN}"));
}

/// The intended differences.
#[tokio::test]
async fn differs_from_kubes_watcher() {
    let (a, b) = (|| config_map("a", 1), || config_map("b", 2));
    let a_and_b = list("2", "", &[a(), b()]);
    for (name, config, answers, expected) in [
        (
            "objects before an object that cannot be decoded are delivered",
            Config::default(),
            vec![list("2", "", &[a(), undecodable("b", 2)]), a_and_b.clone(), last()],
            "Init InitApply(a) InitialListFailed Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        (
            "a watch that is refused because its version has expired",
            Config::default(),
            vec![list("2", "", &[a()]), refused(410, "Expired"), list("9", "", &[]), last()],
            "Init InitApply(a) InitDone WatchStartFailed Init InitDone Apply(last)",
        ),
        (
            "a deletion among the initial events",
            Config::default().streaming_lists(),
            vec![watch(&[added("a", 1), event("DELETED", a()), initial_end(2)]), watch(&[initial_end(3)]), last()],
            "Init InitApply(a) Init InitDone Apply(last)",
        ),
        (
            "a deletion with an older version does not move the version back",
            Config::default(),
            vec![list("2", "", &[a()]), watch(&[added("b", 5), event("DELETED", a())]), last()],
            "Init InitApply(a) InitDone Apply(b) Delete(a) Apply(last)",
        ),
    ] {
        let (events, requests) = seen(&answers, |client| ours(everywhere(client), config.clone())).await;
        let short: Vec<_> = events.iter().map(|event| event.split(':').next().unwrap()).collect();
        assert_eq!(short.join(" "), expected, "{name}");
        if name.contains("older") {
            assert!(requests[2].contains("resourceVersion=5"), "{requests:?}");
        }
    }
}

#[tokio::test]
async fn reports_invalid_requests_without_sending_them() {
    let streams_without_bookmarks = Config::default().streaming_lists().disable_bookmarks();
    for (config, expected) in [
        (Config::default().labels("a=b=c"), "InitialListFailed: not sent"),
        (Config::default().fields("a"), "InitialListFailed: not sent"),
        (Config::default().streaming_lists().labels("a=b=c"), "WatchStartFailed: not sent"),
        (streams_without_bookmarks, "WatchStartFailed: not sent"),
    ] {
        let server = Server::start(Answer::always(last())).await.unwrap();
        let events = ours(everywhere(client(&server)), config).filter_map(async |event| event.err());
        let errors: Vec<_> = events.take(2).collect().await;
        assert_eq!(errors.iter().map(written).collect::<Vec<_>>(), [expected, expected]);
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn connections_of_a_shared_client_outlive_the_watcher() {
    let server = Server::start(Answer::always(list("2", "", &[config_map("a", 1)]))).await.unwrap();
    let client = client(&server);
    let events: Vec<_> = ours(everywhere(client.clone()), Config::default()).take(3).collect().await;
    assert!(events.iter().all(Result::is_ok));
    let body = Api::<ConfigMap>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!((body.items.len(), server.accepted()), (1, 1));
}

/// Returns the events up to the last object, each with whether its object was decoded.
async fn guarded<S>(answers: &[Answer], watcher: impl FnOnce(Client) -> S) -> Vec<String>
where
    S: Stream<Item = theirs::Result<theirs::Event<DeserializeGuard<ConfigMap>>>>,
{
    let server = Server::start(Answer::in_turn(answers.iter().cloned())).await.unwrap();
    let short = |object: DeserializeGuard<ConfigMap>| format!("{} {}", object.name_any(), object.0.is_ok());
    let events = watcher(client(&server)).take(7).map(|event| match event.unwrap() {
        theirs::Event::InitApply(object) => format!("initial {}", short(object)),
        theirs::Event::Apply(object) => format!("applied {}", short(object)),
        theirs::Event::Delete(object) => format!("deleted {}", short(object)),
        theirs::Event::Init => "init".to_owned(),
        theirs::Event::InitDone => "done".to_owned(),
    });
    events.collect().await
}

#[tokio::test]
async fn kubes_guard_keeps_objects_that_cannot_be_decoded() {
    let answers = [
        list("2", "", &[config_map("a", 1), undecodable("b", 2)]),
        watch(&[event("MODIFIED", undecodable("c", 3)), event("DELETED", undecodable("b", 4))]),
        last(),
    ];
    let of_this = guarded(&answers, |client| ours(Api::all(client), Config::default())).await;
    let expected = "init, initial a true, initial b false, done, applied c false, deleted b false, applied last true";
    assert_eq!(of_this.join(", "), expected);
    assert_eq!(guarded(&answers, |client| theirs(Api::all(client), Config::default())).await, of_this);
}

#[tokio::test]
async fn fills_kubes_store_with_kubes_backoff() {
    let server = Server::start(Answer::in_turn([
        refused(429, "TooManyRequests"),
        list("2", "", &[config_map("a", 1), config_map("b", 2)]),
        watch(&[event("DELETED", config_map("b", 3)), added("c", 4), event("ERROR", status(410, "Expired"))]),
        list("9", "", &[config_map("c", 4), config_map("d", 8)]),
        last(),
    ]))
    .await
    .unwrap();
    let (store, writer) = reflector::store();
    let events = ours(everywhere(client(&server)), Config::default()).default_backoff();
    let mut applied = pin!(reflector(writer, events).applied_objects());
    while applied.next().await.is_some_and(|applied| applied.is_err() || applied.unwrap().name_any() != LAST) {}
    let names: BTreeSet<_> = store.state().iter().map(|object| object.name_any()).collect();
    assert_eq!(names, BTreeSet::from(["c", "d", LAST].map(str::to_owned)));
}
