//! Answers of a server, and what a watcher reports and requests for them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::response::Status;
use kube::{Api, Client, Resource};
use listwatch::path::meta;
use listwatch::{FieldPath, Projection};
use listwatch_kube::runtime::watcher::{self, Error, Event};
use listwatch_testserver::{Answer, Body, Server, TOKEN, leak};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

/// The name of the last object: tests read nothing after it.
pub const LAST: &str = "last";

pub fn client(server: &Server) -> Client {
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    config.auth_info.token = Some(TOKEN.into());
    Client::try_from(config).unwrap()
}

thread_local! {
    /// The version and kind of the objects in responses. Each test has its own thread.
    pub static TYPE: Cell<(&'static str, &'static str)> = const { Cell::new(CONFIG_MAP) };
}

pub const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
pub const METADATA: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");
pub const WIDGET: (&str, &str) = ("example.com/v1", "Widget");

/// Returns a ConfigMap that has the fields that [`projections`] drop.
pub fn config_map(name: &str, version: u64) -> Value {
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
pub fn projections() -> Vec<(Projection, &'static [&'static [&'static str]])> {
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
pub fn remove(object: &mut Value, path: &[&str]) {
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

pub fn undecodable(name: &str, version: u64) -> Value {
    let mut object = config_map(name, version);
    object["data"] = json!(5);
    object
}

pub fn list(version: &str, token: &str, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": version, "continue": token});
    let (version, kind) = TYPE.get();
    document(&json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": metadata, "items": items}))
}

pub fn document(document: &Value) -> Answer {
    Answer::ok(Body::replay(document.to_string())).content_type("application/json")
}

pub fn event(event: &str, mut object: Value) -> String {
    if event != "ERROR" {
        let (version, kind) = TYPE.get();
        object["kind"] = kind.into();
        object["apiVersion"] = version.into();
    }
    json!({"type": event, "object": object}).to_string() + "\n"
}

pub fn added(name: &str, version: u64) -> String {
    event("ADDED", config_map(name, version))
}

pub fn bookmark(version: u64) -> String {
    event("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string()}}))
}

pub fn initial_end(version: u64) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    event("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}))
}

pub fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no such luck",
           "reason": reason, "code": code, "details": {"retryAfterSeconds": 1, "causes": [{"reason": "R", "message": "m"}]}})
}

pub fn refused(code: u16, reason: &str) -> Answer {
    document(&status(code, reason)).status(code)
}

pub fn watch(events: &[String]) -> Answer {
    Answer::ok(Body::replay(events.concat())).content_type("application/json")
}

/// A watch that sends the last object, and stays open.
pub fn last() -> Answer {
    let body = added(LAST, 1000);
    Answer::ok(Body::replay(body.clone() + " ").stall_at(body.len() as u64)).content_type("application/json")
}

/// Returns the events and errors of a watcher up to the last object, and its requests.
pub async fn seen<K, S>(answers: &[Answer], watcher: impl FnOnce(Client) -> S) -> (Vec<String>, Vec<String>)
where
    K: Resource + Serialize,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    let (events, _, requests) = seen_whole(answers, watcher).await;
    (events, requests)
}

/// As [`seen`], and the objects of the events.
pub async fn seen_whole<K, S>(
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
pub fn written(error: &Error) -> String {
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
pub fn normalized(path: &str) -> String {
    let url = reqwest::Url::parse(&format!("http://host{path}")).unwrap();
    let query: BTreeMap<_, _> = url.query_pairs().collect();
    let query =
        query.iter().map(|(key, value)| if key == "watch" { key.to_string() } else { format!("{key}={value}") });
    let query: Vec<_> = query.collect();
    format!("{}?{}", url.path(), query.join("&"))
}

pub fn everywhere(client: Client) -> Api<ConfigMap> {
    Api::all(client)
}
