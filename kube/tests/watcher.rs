//! This crate's watcher and kube's report the same events and errors, and send the same requests, for the same
//! responses.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::fmt::Debug;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Object, PartialObjectMeta};
use kube::core::response::Status;
#[expect(deprecated, reason = "this crate's function replaces it")]
use kube::runtime::metadata_watcher as theirs_of_metadata;
use kube::runtime::watcher as theirs;
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, Resource, ResourceExt as _};
use listwatch::path::meta;
use listwatch::{FieldPath, Projection};
use listwatch_kube::runtime::watcher::{self, Config, Error, Event, InitialListStrategy};
use listwatch_kube::runtime::{Watcher, metadata_watcher as ours_of_metadata, watcher as ours};
use listwatch_testserver::{Answer, Body, Server, TOKEN, leak};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The name of the last object: tests read nothing after it.
const LAST: &str = "last";

fn client(server: &Server) -> Client {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    config.auth_info.token = Some(TOKEN.into());
    Client::try_from(config).unwrap()
}

thread_local! {
    /// The version and kind of the objects in responses. Each test has its own thread.
    static TYPE: Cell<(&'static str, &'static str)> = const { Cell::new(CONFIG_MAP) };
}

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");
const WIDGET: (&str, &str) = ("example.com/v1", "Widget");

/// Returns a ConfigMap that has the fields that [`projections`] drop.
fn config_map(name: &str, version: u64) -> Value {
    let fields = json!({"f:metadata": {"f:annotations": {".": {}, "f:note": {}}}});
    let managed = json!({"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields});
    json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string(),
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": name},
            "managedFields": [managed],
        },
        "data": {"kept": name, "dropped": "d"},
        "spec": {"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 2}], "replicas": 3},
    })
}

/// Returns projections, each with the fields that it drops of an object of [`config_map`].
fn projections() -> Vec<(Projection, &'static [&'static [&'static str]])> {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let (data, sizes) = (FieldPath::new("data", &[2]), FieldPath::new("spec.parts.size", &[]));
    let some = Projection::new().drop(&meta::LAST_APPLIED).drop(&data.clone().key("dropped")).drop(&sizes);
    let metadata = Projection::new().keep(&FieldPath::new("metadata", &[1])).keep(&data);
    let (parts, replicas) = (FieldPath::new("spec.parts", &[]), FieldPath::new("spec.replicas", &[]));
    vec![
        (Projection::new(), &[]),
        (Projection::new().drop(&meta::MANAGED_FIELDS), &[&["metadata", "managedFields"]]),
        (some, &[&["metadata", "annotations", LAST_APPLIED], &["data", "dropped"], &["spec", "parts", "size"]]),
        // The annotation of the end of the initial events is dropped too, but the watcher has seen it before.
        (
            metadata.keep(&parts).drop(&meta::MANAGED_FIELDS).drop(&meta::ANNOTATIONS),
            &[&["metadata", "managedFields"], &["metadata", "annotations"], &["spec", "replicas"]],
        ),
        (Projection::new().drop(&replicas), &[&["spec", "replicas"]]),
    ]
}

/// Removes a field, in each element of a list on its path.
fn remove(object: &mut Value, path: &[&str]) {
    match (object, path) {
        (Value::Array(elements), _) => elements.iter_mut().for_each(|element| remove(element, path)),
        (Value::Object(fields), [name]) => drop(fields.remove(*name)),
        (Value::Object(fields), [name, rest @ ..]) => {
            if let Some(field) = fields.get_mut(*name) {
                remove(field, rest);
            }
        }
        _ => {}
    }
}

fn undecodable(name: &str, version: u64) -> Value {
    let mut object = config_map(name, version);
    object["data"] = json!(5);
    object
}

fn list(version: &str, token: &str, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": version, "continue": token});
    let (version, kind) = TYPE.get();
    document(&json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata, "items": items}))
}

fn document(document: &Value) -> Answer {
    Answer::ok(Body::replay(document.to_string())).content_type("application/json")
}

fn event(event: &str, mut object: Value) -> String {
    if event != "ERROR" {
        let (version, kind) = TYPE.get();
        object["kind"] = kind.into();
        object["apiVersion"] = version.into();
    }
    json!({"type": event, "object": object}).to_string() + "\n"
}

fn added(name: &str, version: u64) -> String {
    event("ADDED", config_map(name, version))
}

fn bookmark(version: u64) -> String {
    event("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string()}}))
}

fn initial_end(version: u64) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    event("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}))
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no such luck",
           "reason": reason, "code": code, "details": {"retryAfterSeconds": 1, "causes": [{"reason": "R", "message": "m"}]}})
}

fn refused(code: u16, reason: &str) -> Answer {
    document(&status(code, reason)).status(code)
}

fn watch(events: &[String]) -> Answer {
    Answer::ok(Body::replay(events.concat())).content_type("application/json")
}

/// A watch that sends the last object, and stays open.
fn last() -> Answer {
    let body = added(LAST, 1000);
    Answer::ok(Body::replay(body.clone() + " ").stall_at(body.len() as u64)).content_type("application/json")
}

/// Returns the events and errors of a watcher up to the last object, and its requests.
async fn seen<K, S>(answers: &[Answer], watcher: impl FnOnce(Client) -> S) -> (Vec<String>, Vec<String>)
where
    K: Resource + Serialize,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let (events, _, requests) = seen_whole(answers, watcher).await;
    (events, requests)
}

/// As [`seen`], and the objects of the events.
async fn seen_whole<K, S>(
    answers: &[Answer],
    watcher: impl FnOnce(Client) -> S,
) -> (Vec<String>, Vec<Value>, Vec<String>)
where
    K: Resource + Serialize,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let server = Server::start(Answer::in_turn(answers.iter().cloned())).await.unwrap();
    let mut watcher = pin!(watcher(client(&server)));
    let (mut events, mut objects) = (Vec::new(), Vec::new());
    while events.last().is_none_or(|event: &String| !event.ends_with("pply(last)")) {
        assert!(events.len() < 100, "{events:?}");
        match timeout(Duration::from_secs(20), watcher.next()).await {
            Ok(Some(Ok(event))) => {
                events.push(event.to_string());
                if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) = event {
                    objects.push(serde_json::to_value(object).unwrap());
                }
            }
            Ok(Some(Err(error))) => {
                let chain = successors(Some(&error as &dyn StdError), |&error| error.source());
                for error in chain {
                    assert_eq!(leak(format!("{error}\n{error:?}").as_bytes()), None);
                }
                events.push(written(&error));
            }
            ended => panic!("{ended:?} after {events:?}", ended = ended.map(|_| "the end")),
        }
    }
    let requests = server.requests();
    // The server sends whole objects also for a projection, so that the requests are kube's.
    assert!(requests.iter().all(|request| !format!("{:?}", request.headers).contains("drop=")));
    (events, objects, requests.iter().map(|request| normalized(&request.path)).collect())
}

/// Returns the text of an error: for an API error the whole status, for others the class.
fn written(error: &Error) -> String {
    let of = |error: &kube::Error| match error {
        // kube reads an object of a watch that cannot be decoded as an empty status.
        kube::Error::Api(status) if **status == Status::default() => "undecodable".to_owned(),
        kube::Error::Api(status) => format!("{status:?}"),
        // A syntax error of the whole document, which kube parses at once and this crate splits first.
        kube::Error::SerdeError(error) if error.is_syntax() => "broken".to_owned(),
        kube::Error::SerdeError(_) => "undecodable".to_owned(),
        kube::Error::BuildRequest(_) => "not sent".to_owned(),
        _ => "broken".to_owned(),
    };
    match error {
        Error::InitialListFailed(error) => format!("InitialListFailed: {}", of(error)),
        Error::WatchStartFailed(error) => format!("WatchStartFailed: {}", of(error)),
        Error::WatchError(status) => format!("WatchError: {status:?}"),
        Error::WatchFailed(error) => format!("WatchFailed: {}", of(error)),
        Error::NoResourceVersion => "NoResourceVersion".to_owned(),
    }
}

/// Returns the path and the sorted parameters of a request.
fn normalized(path: &str) -> String {
    let url = reqwest::Url::parse(&format!("http://host{path}")).unwrap();
    let query: BTreeMap<_, _> = url.query_pairs().collect();
    let query =
        query.iter().map(|(key, value)| if key == "watch" { key.to_string() } else { format!("{key}={value}") });
    let query: Vec<_> = query.collect();
    format!("{}?{}", url.path(), query.join("&"))
}

fn everywhere(client: Client) -> Api<ConfigMap> {
    Api::all(client)
}

/// A configuration, the responses of the server, and the events and errors that both watchers report, without the text
/// of errors.
struct Situation {
    name: &'static str,
    config: Config,
    answers: Vec<Answer>,
    expected: &'static str,
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn situations() -> Vec<Situation> {
    let situation = |name, config: &Config, answers: Vec<Answer>, expected| Situation {
        name,
        config: config.clone(),
        answers,
        expected,
    };
    let lists = Config::default();
    let streams = Config::default().streaming_lists();
    let (a, b) = (|| config_map("a", 1), || config_map("b", 2));
    let of_a_and_b = || list("2", "", &[a(), b()]);
    let gone = || event("ERROR", status(410, "Expired"));
    let torn = |body: String| Answer::ok(Body::replay(body.clone() + " ").reset_at(body.len() as u64));
    let ended = |body: String| Answer::ok(Body::replay(body.clone() + " ").cut_at(body.len() as u64));
    vec![
        situation(
            "a list and a watch",
            &lists,
            vec![
                of_a_and_b(),
                watch(&[
                    event("MODIFIED", config_map("a", 3)),
                    event("DELETED", config_map("b", 4)),
                    added("c", 5),
                    bookmark(9),
                ]),
                watch(&[]),
                watch(&[added("d", 10)]),
                last(),
            ],
            "Init InitApply(a) InitApply(b) InitDone Apply(a) Delete(b) Apply(c) Apply(d) Apply(last)",
        ),
        situation("an empty list", &lists, vec![list("7", "", &[]), last()], "Init InitDone Apply(last)"),
        situation(
            "pages",
            &lists.clone().page_size(1),
            vec![list("2", "x y", &[a()]), list("2", "z", &[]), list("2", "", &[b()]), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "no page size",
            &Config { page_size: None, ..lists.clone() },
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "any version",
            &Config { page_size: None, ..lists.clone().any_semantic() },
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "selectors, a timeout and no bookmarks",
            &lists.clone().labels("app=web,tier in (a,b)").fields("metadata.name!=x").timeout(77).disable_bookmarks(),
            vec![of_a_and_b(), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a page that has expired",
            &lists.clone().page_size(1),
            vec![list("2", "x", &[a()]), refused(410, "Expired"), of_a_and_b(), last()],
            "Init InitApply(a) InitialListFailed Init InitApply(a) InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a list that is refused",
            &lists,
            vec![refused(403, "Forbidden"), refused(429, "TooManyRequests"), list("2", "", &[a()]), last()],
            "Init InitialListFailed Init InitialListFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "a response that is not a list",
            &lists,
            vec![Answer::ok(Body::replay("<html>")).content_type("text/html"), list("2", "", &[a()]), last()],
            "Init InitialListFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "an object of a list that cannot be decoded",
            &lists,
            vec![list("2", "", &[undecodable("a", 1), b()]), list("2", "", &[b()]), last()],
            "Init InitialListFailed Init InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "a list without a version",
            &lists,
            vec![list("", "", &[]), list("2", "", &[]), last()],
            "Init NoResourceVersion Init InitDone Apply(last)",
        ),
        situation(
            "a watch that is refused",
            &lists,
            vec![of_a_and_b(), refused(500, "InternalError"), refused(429, "TooManyRequests"), last()],
            "Init InitApply(a) InitApply(b) InitDone WatchStartFailed WatchStartFailed Apply(last)",
        ),
        situation(
            "a version that has expired",
            &lists,
            vec![of_a_and_b(), watch(&[added("c", 3), gone()]), list("9", "", &[b()]), last()],
            "Init InitApply(a) InitApply(b) InitDone Apply(c) WatchError Init InitApply(b) InitDone Apply(last)",
        ),
        situation(
            "another error of a watch",
            &lists,
            vec![list("2", "", &[]), watch(&[added("c", 3), event("ERROR", status(500, "InternalError"))]), last()],
            "Init InitDone Apply(c) WatchError Apply(last)",
        ),
        situation(
            "an object of a watch that cannot be decoded",
            &lists,
            vec![
                list("2", "", &[]),
                watch(&[event("MODIFIED", undecodable("c", 3)), added("d", 4)]),
                watch(&[event("DELETED", undecodable("d", 5))]),
                last(),
            ],
            "Init InitDone WatchFailed Apply(d) WatchFailed Apply(last)",
        ),
        situation(
            "an object without a version",
            &lists,
            vec![
                list("2", "", &[]),
                watch(&[added("c", 3), event("ADDED", json!({"metadata": {"name": "d"}, "spec": {"parts": []}}))]),
                list("4", "", &[a()]),
                last(),
            ],
            "Init InitDone Apply(c) NoResourceVersion Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "watches that are interrupted between frames and in a frame",
            &lists,
            vec![
                list("2", "", &[]),
                torn(added("c", 3)),
                ended(added("d", 4)),
                torn(added("e", 5) + "{\"type\":"),
                ended(added("f", 6) + "{\"type\":"),
                last(),
            ],
            "Init InitDone Apply(c) Apply(d) Apply(e) Apply(f) Apply(last)",
        ),
        situation(
            "a streamed list",
            &streams,
            vec![
                watch(&[added("a", 1), bookmark(1), added("b", 2), initial_end(2), added("c", 3)]),
                watch(&[event("DELETED", config_map("a", 4))]),
                last(),
            ],
            "Init InitApply(a) InitApply(b) InitDone Apply(c) Delete(a) Apply(last)",
        ),
        situation(
            "an empty streamed list",
            &streams,
            vec![watch(&[initial_end(2)]), last()],
            "Init InitDone Apply(last)",
        ),
        situation(
            "a streamed list that is refused",
            &streams,
            vec![refused(422, "Invalid"), watch(&[added("a", 1), initial_end(2)]), last()],
            "WatchStartFailed Init InitApply(a) InitDone Apply(last)",
        ),
        situation(
            "a streamed list that ends too early",
            &streams,
            vec![
                watch(&[added("a", 1)]),
                torn(added("a", 1)),
                watch(&[added("a", 1), gone()]),
                watch(&[added("a", 1), event("ERROR", status(500, "InternalError"))]),
                watch(&[added("a", 1), event("ADDED", undecodable("b", 2)), initial_end(2)]),
                last(),
            ],
            "Init InitApply(a) Init InitApply(a) Init InitApply(a) WatchError Init InitApply(a) WatchError \
             Init InitApply(a) WatchFailed InitDone Apply(last)",
        ),
        situation(
            "another streamed list after the version has expired",
            &streams,
            vec![watch(&[initial_end(2)]), watch(&[gone()]), watch(&[added("a", 1), initial_end(2)]), last()],
            "Init InitDone WatchError Init InitApply(a) InitDone Apply(last)",
        ),
    ]
}

#[tokio::test]
async fn sends_the_requests_and_reports_the_events_of_kubes_watcher() {
    for Situation { name, config, answers, expected } in situations() {
        let of_kube = seen(&answers, |client| theirs(everywhere(client), config.clone())).await;
        let of_this = seen(&answers, |client| ours(everywhere(client), config.clone())).await;
        let short: Vec<_> = of_kube.0.iter().map(|event| event.split(':').next().unwrap()).collect();
        assert_eq!(short.join(" "), expected, "kube, {name}");
        assert_eq!(of_this, of_kube, "{name}");
    }
}

/// Checks that the watchers send the same requests, and report the same events and errors, except for the fields that
/// each projection drops.
async fn alike_without_fields<K, S>(
    name: &str,
    projections: &[(Projection, &[&[&str]])],
    answers: &[Answer],
    theirs: impl FnOnce(Client) -> S,
    ours: impl Fn(Client) -> Watcher<K>,
) where
    K: Resource + DeserializeOwned + Serialize + Send + 'static,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let (events, objects, requests) = seen_whole(answers, theirs).await;
    for (projection, dropped) in projections {
        let mut expected = objects.clone();
        for object in &mut expected {
            for path in *dropped {
                remove(object, path);
            }
        }
        let description = format!("{name}, {projection}");
        let of_this = seen_whole(answers, |client| ours(client).projection(projection.clone())).await;
        assert_eq!(of_this, (events.clone(), expected, requests.clone()), "{description}");
    }
}

#[tokio::test]
async fn drops_fields_and_reports_the_same_events_in_every_situation() {
    for Situation { name, config, answers, .. } in situations() {
        alike_without_fields(
            name,
            &projections(),
            &answers,
            |client| theirs(everywhere(client), config.clone()),
            |client| ours(everywhere(client), config.clone()),
        )
        .await;
    }
}

#[tokio::test]
async fn drops_fields_of_metadata_dynamic_objects_and_custom_resources() {
    #[derive(Clone, Debug, Deserialize, Serialize)]
    struct Spec {
        parts: Vec<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        replicas: Option<u32>,
    }
    type Widget = Object<Spec, Value>;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let projections = &projections()[1..4];
    // An object of a list that cannot be decoded, which differs by type, is in the test of ConfigMaps.
    let situations_of = |objects| {
        TYPE.set(objects);
        situations().into_iter().filter(|situation| !situation.expected.contains("InitialListFailed Init InitApply(b)"))
    };
    for Situation { name, config, answers, .. } in situations_of(METADATA) {
        alike_without_fields(
            &format!("metadata, {name}"),
            projections,
            &answers,
            |client| {
                #[expect(deprecated, reason = "this crate's function replaces it")]
                theirs_of_metadata(everywhere(client), config.clone())
            },
            |client| ours_of_metadata(everywhere(client), config.clone()),
        )
        .await;
    }
    for Situation { name, config, answers, .. } in situations_of(WIDGET) {
        let api = |client| Api::<DynamicObject>::all_with(client, &resource);
        alike_without_fields(
            &format!("dynamic, {name}"),
            projections,
            &answers,
            |client| theirs(api(client), config.clone()),
            |client| ours(api(client), config.clone()),
        )
        .await;
        let api = |client| Api::<Widget>::all_with(client, &resource);
        alike_without_fields(
            &format!("custom, {name}"),
            projections,
            &answers,
            |client| theirs(api(client), config.clone()),
            |client| ours(api(client), config.clone()),
        )
        .await;
    }
}

/// Serde would refuse these managed fields.
#[tokio::test]
async fn dropped_fields_never_reach_serde() {
    async fn check<K>(answers: &[Answer], watcher: impl Fn(Client) -> Watcher<K>)
    where
        K: Resource + DeserializeOwned + Serialize + Send + 'static,
    {
        let drop = Projection::new().drop(&meta::MANAGED_FIELDS);
        let (events, _) = seen(answers, |client| watcher(client).projection(drop)).await;
        assert_eq!(events.join(" "), "Init InitApply(a) InitDone Apply(b) Delete(a) Apply(last)");
        let server = Server::start(Answer::in_turn(answers.iter().cloned())).await.unwrap();
        let errors = watcher(client(&server)).filter_map(async |event| event.err());
        let error = pin!(errors).next().await.unwrap();
        assert!(written(&error).ends_with("undecodable"), "{error:?}");
    }
    let object = |name, version| {
        let mut object = config_map(name, version);
        object["metadata"]["managedFields"] = json!({"time": [5], "fieldsV1": "no list"});
        object
    };
    let stalled = |body: String| {
        let length = body.len() as u64;
        Answer::ok(Body::replay(body + " ").stall_at(length)).content_type("application/json")
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    for strategy in [Config::default(), Config::default().streaming_lists()] {
        let config = || strategy.clone();
        let answers = |objects| {
            TYPE.set(objects);
            let changes = event("ADDED", object("b", 3)) + &event("DELETED", object("a", 4)) + &added(LAST, 1000);
            match strategy.initial_list_strategy {
                InitialListStrategy::ListWatch => vec![list("2", "", &[object("a", 1)]), stalled(changes)],
                InitialListStrategy::StreamingList => {
                    vec![stalled(event("ADDED", object("a", 1)) + &initial_end(2) + &changes)]
                }
            }
        };
        check(&answers(CONFIG_MAP), |client| ours(everywhere(client), config())).await;
        check(&answers(METADATA), |client| ours_of_metadata(everywhere(client), config())).await;
        check(&answers(WIDGET), |client| ours(Api::<DynamicObject>::all_with(client, &resource), config())).await;
    }
}

#[tokio::test]
async fn refuses_projections_that_drop_what_stores_need() {
    let path = |names| FieldPath::new(names, &[]);
    for (projection, reason) in [
        (Projection::new().drop(&path("metadata.name")), "drops metadata.name,"),
        (Projection::new().drop(&path("metadata.namespace")), "drops metadata.namespace,"),
        (Projection::new().drop(&path("metadata.uid")), "drops metadata.uid,"),
        (Projection::new().drop(&path("metadata.resourceVersion")), "drops metadata.resourceVersion,"),
        (Projection::new().drop(&path("metadata")), "drops metadata.name,"),
        (Projection::new().keep(&path("data")), "drops metadata.name,"),
        (Projection::new().drop(&FieldPath::new("", &[1, 17])), "JSON"),
    ] {
        for config in [Config::default(), Config::default().streaming_lists()] {
            let server = Server::start(Answer::always(last())).await.unwrap();
            let events = ours(everywhere(client(&server)), config).projection(projection.clone());
            let errors: Vec<_> = events.filter_map(async |event| event.err()).take(2).collect().await;
            for error in errors {
                assert!(written(&error).ends_with("not sent"), "{error:?}");
                let source = successors(Some(&error as &dyn StdError), |&error| error.source()).last().unwrap();
                assert!(source.to_string().contains(reason), "{source}, not {reason}");
            }
            assert!(server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn a_new_projection_starts_over() {
    let answers = [list("2", "", &[config_map("a", 1)]), list("2", "", &[config_map("a", 1)]), last()];
    let server = Server::start(Answer::in_turn(answers)).await.unwrap();
    let mut events = ours(everywhere(client(&server)), Config::default());
    for has_fields in [true, false] {
        assert!(matches!(events.next().await, Some(Ok(Event::Init))));
        let Some(Ok(Event::InitApply(object))) = events.next().await else { panic!("not an object") };
        assert_eq!(object.metadata.managed_fields.is_some(), has_fields);
        events = events.projection(Projection::new().drop(&meta::MANAGED_FIELDS));
    }
}

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
