//! Reflectors of ConfigMaps over a scripted transport: short forms for answers, requests and what a store holds.
//!
//! `a@5` is the object `a` at version 5, in answers and in stores. The requests `list 0` and `watch 10` are from that
//! version; `list` requests the latest version; `pages` is a list in pages; `watch list` requests the initial events;
//! `list one` requests the current version; `get a 10` requests one object.

use std::time::Duration;

use listwatch::client::{Client, Resource, Retry, Transport};
use listwatch_cache::{Cache, Reflector, Strategy};
use tokio::time::sleep;

use crate::support::transport::{Answer, Asked, Scripted};
use crate::support::{body_of, config_maps};

pub const LIST: Option<Strategy> = Some(Strategy::ListThenWatch);
pub const FIRST: Option<Strategy> = Some(Strategy::WatchFirst);

/// A list at a version, of objects such as `a@1 b@5`.
pub fn list(version: &str, objects: &str) -> Answer {
    Answer::ok(config_maps::list(version, objects.split_whitespace().map(name_and_version)))
}

/// One object, such as `a@1`.
pub fn one(object: &str) -> Answer {
    let (name, version) = name_and_version(object);
    Answer::ok(body_of("v1", "ConfigMap", &config_maps::config_map(name, version)))
}

fn name_and_version(object: &str) -> (&str, &str) {
    object.split_once('@').expect("name@version")
}

/// A watch that sends these events and ends.
pub fn watch(events: impl IntoIterator<Item = Vec<u8>>) -> Answer {
    Answer::pieces(events)
}

/// A watch that sends nothing and stays open.
pub fn idle_watch() -> Answer {
    watch([]).then_stalls()
}

pub fn added(object: &str) -> Vec<u8> {
    event("ADDED", object)
}

pub fn modified(object: &str) -> Vec<u8> {
    event("MODIFIED", object)
}

pub fn deleted(object: &str) -> Vec<u8> {
    event("DELETED", object)
}

fn event(event: &str, object: &str) -> Vec<u8> {
    let (name, version) = name_and_version(object);
    config_maps::event(event, name, version)
}

/// The declared length of a frame that is over each limit.
pub fn oversized_frame() -> Vec<u8> {
    u32::MAX.to_be_bytes().to_vec()
}

/// 504: the watch cache of the server does not have the version yet.
pub fn too_large() -> Answer {
    let cause = r#"{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#;
    let body = format!(r#"{{"kind":"Status","apiVersion":"v1","code":504,"details":{cause}}}"#);
    Answer::ok(body).code(504)
}

/// Sends each piece of the body after almost a minute, which is as long as the server lets a list take.
pub fn late(answer: Answer) -> Answer {
    answer.paced(Duration::from_secs(59))
}

/// Returns a transport that sends these answers in turn. Requests after the last answer get no answer.
pub fn scripted(answers: impl IntoIterator<Item = Answer>) -> Scripted {
    Scripted::in_turn(answers).afterwards(Answer::never())
}

/// Returns the requests, separated by commas.
pub fn requests(transport: &Scripted) -> String {
    let short = |asked: &Asked| {
        let version = asked.parameter("resourceVersion").unwrap_or("");
        let short = match (asked.parameter("watch"), asked.parameter("sendInitialEvents")) {
            (Some(_), Some(_)) => "watch list".to_owned(),
            (Some(_), None) => format!("watch {version}"),
            _ => match (asked.path().split_once("/configmaps/"), asked.parameter("limit")) {
                (Some((_, name)), _) => format!("get {name} {version}"),
                (None, Some("1")) => "list one".to_owned(),
                (None, Some(_)) => format!("pages {version}"),
                (None, None) => format!("list {version}"),
            },
        };
        short.trim_end().to_owned()
    };
    transport.asked().iter().map(short).collect::<Vec<_>>().join(", ")
}

/// Returns a reflector whose requests are not retried by its client.
pub fn reflector(transport: impl Transport, strategy: Option<Strategy>) -> Reflector<[u8]> {
    let client = Client::new(transport).retry(Retry::never());
    let reflector = Reflector::new(&client, &Resource::CONFIG_MAPS);
    match strategy {
        Some(strategy) => reflector.strategy(strategy),
        None => reflector,
    }
}

/// Returns the objects in the cache, in order, as `a@1 b@5`.
pub fn objects(cache: &Cache<[u8]>) -> String {
    let name = |object: &listwatch_cache::Object<[u8]>| format!("{}@{}", object.name(), object.resource_version());
    let mut names: Vec<_> = cache.snapshot().iter().map(|object| name(&object)).collect();
    names.sort();
    names.join(" ")
}

/// The answers of a server, and after the last answer the requests of the reflector, its objects and its version.
pub struct Scenario {
    pub name: &'static str,
    pub strategy: Option<Strategy>,
    pub answers: Vec<Answer>,
    pub requests: &'static str,
    pub objects: &'static str,
    pub version: &'static str,
}

/// Runs scenarios in turn, in paused time.
pub async fn check(scenarios: impl IntoIterator<Item = Scenario>) {
    for Scenario { name, strategy, answers, requests, objects, version } in scenarios {
        let script = scripted(answers);
        let reflector = reflector(script.clone(), strategy).prepare();
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        for _ in 0..600 {
            if script.left() == 0 {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        // Longer than any backoff, so that a further request would be recorded. Shorter than the rest of a silent
        // watch, which ends at random 330 s to 630 s after its start, after the reflector has probed it at 120 s and
        // 240 s.
        sleep(Duration::from_secs(80)).await;
        assert!(!run.is_finished(), "{name}: {:?}", run.await);
        assert_eq!(self::requests(&script), requests, "{name}");
        assert_eq!(self::objects(&cache), objects, "{name}");
        assert_eq!(cache.status().resource_version.as_deref(), Some(version), "{name}: the status");
        assert_eq!(cache.resource_version(), version, "{name}: the store");
        run.abort();
    }
}
