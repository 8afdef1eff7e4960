//! Reflectors over a scripted transport, in paused time: what is asked after each kind of end, and what the store has then.
//! The scenarios are those of client-go's own tests (`tools/cache/reflector_test.go`).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{body_of, config_map, event_frame, len_field, status};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::cache::{Budget, Change, Residency, SaveError, Store};
use listwatch::client::transport::{Chunks, Request, Response, ResponseFuture};
use listwatch::client::{
    Client, ErrorKind, ListOptions, Resource, Retry, Shard, Transport, TransportError, TransportErrorKind,
};
use listwatch::reflector::{Cache, Reflector, Strategy};
use listwatch::{FieldPath, Projection};
use tokio::time::{Instant, sleep, timeout};

/// What a request meets.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// A list at a version: `name@version` each.
    List(&'static str, &'static str),
    /// The same, broken off before its last byte.
    CutList(&'static str, &'static str),
    /// The same, after a minute.
    LateCutList(&'static str, &'static str),
    /// Whole, after a minute.
    LateList(&'static str, &'static str),
    Status(u16),
    /// One object: `name@version`.
    One(&'static str),
    /// 429, to be asked again in 100 s.
    Busy,
    /// 504, since the watch cache does not have the version yet.
    TooLarge,
    /// `+name@version`, `-name@version`, `=version` for a bookmark, `!version` for that behind the initial events, `?` for
    /// the length of a frame that nobody takes, `410`; and then the end.
    Watch(&'static str),
    /// The same, and then nothing any more.
    OpenWatch(&'static str),
    /// The same, after a minute.
    LateWatch(&'static str),
}
use Answer::{Busy, CutList, LateCutList, LateList, LateWatch, List, One, OpenWatch, Status, TooLarge, Watch};

/// Answers in turn; behind the last one nobody answers.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// `list 10`, `pages 10` or `watch 10`, by version; `watch list`; `list one`; `get a 10`.
    asked: Arc<Mutex<Vec<String>>>,
    /// All of it.
    paths: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn new(answers: &[Answer]) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.iter().copied().collect())),
            asked: Arc::default(),
            paths: Arc::default(),
        }
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join(", ")
    }
}

fn parameter<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    path.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

impl Transport for Script {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let path = &request.path_and_query;
        let version = parameter(path, "resourceVersion").unwrap_or("");
        let what = match (parameter(path, "watch"), parameter(path, "sendInitialEvents")) {
            (Some(_), Some(_)) => "watch list".to_owned(),
            (Some(_), None) => format!("watch {version}"),
            _ if path.contains("/configmaps/") => {
                let (_, name) = path.split_once("/configmaps/").unwrap();
                format!("get {} {version}", name.split('?').next().unwrap())
            }
            _ if parameter(path, "limit") == Some("1") => "list one".to_owned(),
            _ if parameter(path, "limit").is_some() => format!("pages {version}").trim_end().to_owned(),
            _ => format!("list {version}").trim_end().to_owned(),
        };
        self.asked.lock().unwrap().push(what);
        self.paths.lock().unwrap().push(path.clone());
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => Ok(answer.response()),
                None => std::future::pending().await,
            }
        })
    }
}

impl Answer {
    fn response(self) -> Response {
        match self {
            List(version, objects) => response(200, list(version, objects)),
            CutList(version, objects) => {
                let mut body = list(version, objects);
                body.pop();
                response(200, body)
            }
            LateCutList(version, objects) => late(CutList(version, objects)),
            LateList(version, objects) => late(List(version, objects)),
            One(object) => response(200, body_of("v1", "ConfigMap", &object_of(object))),
            Status(code) => response(code, body_of("v1", "Status", &status(code))),
            Busy => {
                let mut busy = Status(429).response();
                busy.headers.insert("retry-after", "100".parse().unwrap());
                busy
            }
            TooLarge => {
                let cause = r#"{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#;
                let body = format!(r#"{{"kind":"Status","apiVersion":"v1","code":504,"details":{cause}}}"#);
                response(504, body.into_bytes())
            }
            Watch(events) => response(200, frames(events)),
            OpenWatch(events) => {
                let frames = stream::iter([Ok(Bytes::from(frames(events)))]);
                respond(200, Box::pin(frames.chain(stream::pending())))
            }
            LateWatch(events) => {
                let late = late(Watch(events)).body;
                respond(200, Box::pin(late.chain(stream::pending())))
            }
        }
    }
}

fn late(answer: Answer) -> Response {
    let pieces = answer.response().body.then(async |piece| {
        sleep(Duration::from_secs(59)).await;
        piece
    });
    respond(200, Box::pin(pieces))
}

fn list(version: &str, objects: &str) -> Vec<u8> {
    let mut raw = len_field(1, &len_field(2, version.as_bytes()));
    for object in objects.split_whitespace() {
        raw.extend(len_field(2, &object_of(object)));
    }
    body_of("v1", "ConfigMapList", &raw)
}

/// Of `name@version`, with the name as uid.
fn object_of(object: &str) -> Vec<u8> {
    let (name, version) = object.split_once('@').unwrap();
    config_map(name, name, version)
}

fn frames(events: &str) -> Vec<u8> {
    let frame = |event: &str| {
        let (kind, rest) = event.split_at(1);
        let object = |object| body_of("v1", "ConfigMap", &object_of(object));
        match kind {
            "+" => event_frame("ADDED", &object(rest)),
            "~" => event_frame("MODIFIED", &object(rest)),
            "-" => event_frame("DELETED", &object(rest)),
            "=" | "!" => {
                let entry = [len_field(1, b"k8s.io/initial-events-end"), len_field(2, b"true")].concat();
                let mut metadata = len_field(6, rest.as_bytes());
                if kind == "!" {
                    metadata.extend(len_field(12, &entry));
                }
                event_frame("BOOKMARK", &body_of("v1", "ConfigMap", &len_field(1, &metadata)))
            }
            "?" => u32::MAX.to_be_bytes().to_vec(),
            _ => event_frame("ERROR", &body_of("v1", "Status", &status(event.parse().unwrap()))),
        }
    };
    events.split_whitespace().flat_map(frame).collect()
}

fn response(code: u16, body: Vec<u8>) -> Response {
    respond(code, Box::pin(stream::iter([Ok(Bytes::from(body))])))
}

fn respond(code: u16, body: Chunks) -> Response {
    Response { status: StatusCode::from_u16(code).unwrap(), headers: HeaderMap::new(), body }
}

fn reflector(transport: impl Transport, strategy: Option<Strategy>) -> Reflector<[u8]> {
    let client = Client::new(transport).retry(Retry::never());
    let reflector = Reflector::new(&client, &Resource::CONFIG_MAPS);
    match strategy {
        Some(strategy) => reflector.strategy(strategy),
        None => reflector,
    }
}

fn objects(cache: &Cache<[u8]>) -> String {
    let name = |object: &listwatch::cache::Object<[u8]>| {
        let identity = object.identity();
        format!("{}@{}", identity.name, identity.resource_version)
    };
    let mut names: Vec<_> = cache.snapshot().iter().map(|object| name(&object)).collect();
    names.sort();
    names.join(" ")
}

const LIST: Option<Strategy> = Some(Strategy::ListThenWatch);
const FIRST: Option<Strategy> = Some(Strategy::WatchFirst);

/// What there is to answer; what is asked then, and what the store has, at which version.
type Scenario = (&'static str, Option<Strategy>, &'static [Answer], &'static str, &'static str, Option<&'static str>);

const SCENARIOS: &[Scenario] = &[
    (
        "TestReflectorWatchHandler",
        LIST,
        &[List("10", "a@1 b@2"), OpenWatch("+c@11 ~a@12 -b@13")],
        "list 0, watch 10",
        "a@12 c@11",
        Some("13"),
    ),
    (
        "TestReflectorFullListIfExpired",
        LIST,
        &[List("10", "a@1"), Watch("410"), Status(410), List("12", "a@1 b@12"), OpenWatch("")],
        "list 0, watch 10, list 10, list, watch 12",
        "a@1 b@12",
        Some("12"),
    ),
    (
        "TestReflectorFullListIfTooLarge",
        LIST,
        &[TooLarge, List("10", "a@1"), Status(410), TooLarge, List("12", "a@1"), OpenWatch("")],
        "list 0, list, watch 10, list 10, list, watch 12",
        "a@1",
        Some("12"),
    ),
    (
        "TestReflectorListAndWatchWithErrors",
        LIST,
        &[
            Status(500),
            List("10", "a@1 b@2"),
            Watch("410"),
            CutList("12", "c@11"),
            Status(403),
            List("13", "b@2 c@11"),
            OpenWatch(""),
        ],
        "list 0, list 0, watch 10, list 10, list 10, list 10, watch 13",
        "b@2 c@11",
        Some("13"),
    ),
    (
        "TestNoRelistOnTooManyRequests",
        LIST,
        &[List("10", ""), Status(429), Status(429), Status(429), Status(429), OpenWatch("+a@11")],
        "list 0, watch 10, watch 10, watch 10, watch 10, watch 10",
        "a@11",
        Some("11"),
    ),
    (
        "TestReflectorResourceVersionUpdate",
        LIST,
        &[List("10", "a@1"), Watch("~a@11 =20"), Watch("=30"), OpenWatch("")],
        "list 0, watch 10, watch 20, watch 30",
        "a@11",
        Some("30"),
    ),
    (
        "a list that takes longer than the server allows",
        LIST,
        &[LateCutList("9", "a@1"), List("10", "a@1"), Watch("~a@11 410"), List("12", "a@11"), OpenWatch("")],
        "list 0, pages, watch 10, pages 11, watch 12",
        "a@11",
        Some("12"),
    ),
    (
        "a frame over its limit",
        LIST,
        &[List("10", "a@1"), Watch("~a@11 ?"), List("12", "a@11 b@12"), OpenWatch("")],
        "list 0, watch 10, list 11, watch 12",
        "a@11 b@12",
        Some("12"),
    ),
    (
        "TestWatchList: a break before the bookmark",
        None,
        &[Watch("+a@1"), OpenWatch("+b@2 !10 +c@11")],
        "watch list, watch list",
        "b@2 c@11",
        Some("11"),
    ),
    (
        "TestWatchList: refused, and then expired as soon as it was listed",
        None,
        &[
            Status(422),
            List("10", "a@1 b@2"),
            Watch("410"),
            List("15", "a@1 b@2"),
            Watch("410"),
            List("20", "x@1"),
            OpenWatch("~a@21"),
            List("22", "a@15 c@22"),
        ],
        "watch list, list, watch 10, list 10, watch 15, list one, watch 20, list 20",
        "a@21 c@22",
        Some("21"),
    ),
    (
        "watch first: what was deleted beside the list stays so",
        FIRST,
        &[List("20", "x@1"), OpenWatch("-a@21 ~b@22 +c@30"), List("25", "a@1 b@2 d@24")],
        "list one, watch 20, list 20",
        "b@22 c@30 d@24",
        Some("30"),
    ),
    (
        "a server that was restored from a backup, and its watch is silent",
        LIST,
        &[List("10", "a@9 b@2"), OpenWatch(""), List("5", "x@1"), List("5", "a@4 b@2"), OpenWatch("+c@6")],
        "list 0, watch 10, list one, list, watch 5",
        "a@4 b@2 c@6",
        Some("6"),
    ),
    (
        "a server that is silent because nothing happens",
        LIST,
        &[List("10", "a@9"), OpenWatch(""), List("12", "x@1"), Status(500)],
        "list 0, watch 10, list one, list one",
        "a@9",
        Some("10"),
    ),
    (
        "a list of an older version is read once more, and nothing of it is known",
        LIST,
        &[List("10", "a@9"), Watch("410"), TooLarge, List("5", "a@4"), List("6", "a@4 b@6"), OpenWatch("")],
        "list 0, watch 10, list 10, list, list, watch 6",
        "a@4 b@6",
        Some("6"),
    ),
    (
        "initial events of an older version",
        None,
        &[OpenWatch("+a@9 !10 410"), OpenWatch("+a@4 !5"), List("5", "a@4"), OpenWatch("+b@6")],
        "watch list, watch list, list, watch 5",
        "a@4 b@6",
        Some("6"),
    ),
    (
        "watch first: a server that was restored",
        FIRST,
        &[List("10", "x@1"), OpenWatch("+b@12"), List("10", "a@9"), List("5", "x@1"), List("5", "a@4"), OpenWatch("")],
        "list one, watch 10, list 10, list one, list, watch 5",
        "a@4",
        Some("5"),
    ),
    (
        "watch first: versions that do not compare",
        FIRST,
        &[List("v20", "x@v1"), List("v21", "a@v1"), OpenWatch("~a@v22")],
        "list one, list, watch v21",
        "a@v22",
        Some("v22"),
    ),
];

#[tokio::test(start_paused = true)]
async fn what_is_asked_and_stored() {
    for (name, strategy, answers, asked, stored, version) in SCENARIOS {
        let script = Script::new(answers);
        let reflector = reflector(script.clone(), *strategy);
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        for _ in 0..600 {
            if script.answers.lock().unwrap().is_empty() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(100)).await;
        assert!(!run.is_finished(), "{name}: {:?}", run.await);
        assert_eq!(script.asked(), *asked, "{name}");
        assert_eq!(objects(&cache), *stored, "{name}");
        assert_eq!(cache.status().resource_version.as_deref(), *version, "{name}");
        assert_eq!(Some(&*cache.version()), *version, "{name}: the store is told");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_asking_again_does_not_help_ends_it_before_the_first_sync_only() {
    for code in [401, 403, 404] {
        let given_up = reflector(Script::new(&[Status(code); 4]), LIST);
        let cache = given_up.cache();
        assert_eq!(given_up.run().await.unwrap_err().code(), code);
        assert_eq!(cache.status().last_error.map(|error| error.code()), Some(code), "whoever has the cache is told");
        assert!(cache.synced().await.is_err());
        let script = Script::new(&[List("10", "a@1"), Watch("410"), Status(code), List("11", "a@1"), OpenWatch("")]);
        let reflector = reflector(script, LIST);
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_until("11").await.unwrap();
        assert_eq!(cache.status().last_error.map(|error| error.code()), Some(code));
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_stored_ends_it() {
    let reflector = reflector(Script::new(&[List("10", "a@1")]), LIST);
    let nameless = Projection::new().drop(&FieldPath::new(&[1, 1]));
    let error = timeout(Duration::from_secs(60), reflector.projection(nameless).run()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the object has no name"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_too_small() {
    let too_small = || {
        let store = Store::new(Residency::Encoded);
        store.set_budget(Budget::Refuse(200));
        store
    };
    let run = reflector(Script::new(&[List("10", "a@1 b@2 c@3 d@4")]), LIST).store(too_small()).run();
    let error = timeout(Duration::from_secs(60), run).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no room for the object in its 200 bytes"), "{error}");

    let script = Script::new(&[List("10", "a@1"), Watch("+b@11 +c@12 +d@13"), List("13", "a@1 b@11"), OpenWatch("")]);
    let reflector = reflector(script, LIST).store(too_small());
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    while cache.status().errors == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(cache.status().last_error.unwrap().to_string().contains("no room"), "a cache that was synced serves on");
    cache.wait_until("13").await.unwrap();
    assert_eq!(objects(&cache), "a@1 b@11");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn who_may_list_and_not_watch_does_not_list_without_end() {
    let answers = [List("10", "a@1"), Status(403)].repeat(1000);
    let script = Script::new(&answers);
    let run = tokio::spawn(reflector(script.clone(), LIST).run());
    sleep(Duration::from_secs(3600)).await;
    let lists = script.asked().matches("list").count();
    assert!((60..150).contains(&lists), "{lists} lists in an hour");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn another_replace_of_the_store_makes_it_list_again() {
    let reflector = reflector(Script::new(&[LateList("8", "b@2"), List("10", "a@1"), OpenWatch("")]), LIST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    sleep(Duration::from_secs(30)).await;
    drop(cache.begin_replace());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(objects(&cache), "a@1");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_collection_is_refused() {
    for strategy in [None, LIST, FIRST] {
        let script = Script::new(&[]);
        let reflector = reflector(script.clone(), strategy).options(ListOptions::default().limit(10));
        let error = reflector.run().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Options(_)), "{error}");
        assert_eq!(script.asked(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_tells_when_it_is_ready_and_when_it_never_will_be() {
    let reflector = reflector(Script::new(&[List("10", "a@1"), Watch(""), OpenWatch("+b@12")]), LIST);
    let cache = reflector.cache();
    assert!(timeout(Duration::from_secs(60), cache.synced()).await.is_err(), "nothing runs yet");
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    cache.wait_until("12").await.unwrap();
    assert_eq!(objects(&cache), "a@1 b@12");
    assert!(timeout(Duration::from_secs(60), cache.wait_until("13")).await.is_err());
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert!(cache.wait_until("13").await.is_err(), "it has ended");
    assert_eq!(objects(&cache), "a@1 b@12", "what it had is still there");

    // The list beside the watch does not come.
    let reflector = self::reflector(Script::new(&[List("20", "x@1"), OpenWatch("+c@30")]), FIRST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert!(timeout(Duration::from_secs(80), cache.synced()).await.is_err());
    assert_eq!(objects(&cache), "c@30", "it is live before it is complete");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn subscribers_hear_of_deletions_that_a_list_told() {
    let script = Script::new(&[List("10", "a@1 b@2"), Watch("-a@11 410"), List("12", "c@12"), OpenWatch("")]);
    let reflector = reflector(script, LIST);
    let (cache, mut subscriber) = (reflector.cache(), reflector.cache().subscribe().start());
    let run = tokio::spawn(reflector.run());
    let mut told = Vec::new();
    while told.iter().filter(|told| *told == "=").count() < 2 {
        told.push(match subscriber.next().await.unwrap() {
            Change::Applied(object) => format!("+{}", object.identity().name),
            Change::Deleted(tombstone) if tombstone.final_state_unknown => {
                format!("?{}", tombstone.object.identity().name)
            }
            Change::Deleted(tombstone) => format!("-{}", tombstone.object.identity().name),
            Change::Resynced => "=".to_owned(),
        });
    }
    // When it is polled for the first time, `a` has come and gone.
    assert_eq!(told.join(" "), "+b = +c ?b =");
    assert_eq!(cache.status().syncs, 2);
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn before_a_list_is_complete_a_cache_is_at_no_new_version() {
    let script = Script::new(&[
        List("10", "x@1"),
        Watch("~a@11"),
        List("10", "a@1"),
        Watch("410"),
        List("500", "x@1"),
        OpenWatch("+b@501"),
    ]);
    let reflector = reflector(script.clone(), FIRST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert!(timeout(Duration::from_secs(60), cache.wait_until("12")).await.is_err());
    assert_eq!(script.asked(), "list one, watch 10, list 10, watch 11, list one, watch 500, list 500");
    assert_eq!(objects(&cache), "a@11 b@501");
    assert_eq!((cache.status().resource_version.as_deref(), &*cache.version()), (Some("11"), "11"));
    run.abort();
}

/// By each event and bookmark, whatever their version, but not while the collection is asked for again.
#[tokio::test(start_paused = true)]
async fn a_cache_tells_when_it_was_in_step() {
    for (answers, expected) in [
        (&[List("10", ""), OpenWatch("")][..], 0),
        (&[LateList("10", ""), OpenWatch("")], 59),
        (&[List("10", ""), LateWatch("=10")], 59),
        (&[List("10", ""), LateWatch("+a@11")], 59),
        (&[List("10", ""), Watch("410"), LateCutList("10", "")], 0),
        (&[LateCutList("10", "")], -1),
        (&[LateWatch("+a@11")], -1),
    ] {
        let strategy = if matches!(answers[0], LateWatch(_)) { None } else { LIST };
        let reflector = reflector(Script::new(answers), strategy);
        let (cache, started) = (reflector.cache(), Instant::now());
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_secs(70)).await;
        let at = cache.status().in_step_at.map(|at| Instant::from_std(at) - started);
        assert_eq!(at.map_or(-1, |at| i64::try_from(at.as_secs()).unwrap()), expected, "{answers:?}");
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_gets_the_time_that_it_asks_for() {
    let started = Instant::now();
    let reflector = reflector(Script::new(&[Busy, List("10", ""), OpenWatch("")]), LIST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(100), "{:?}", started.elapsed());
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_of_what_was_asked_for() {
    for strategy in [Some(Strategy::WatchList), LIST, FIRST] {
        let answers: &[Answer] = match strategy {
            Some(Strategy::WatchList) => &[Watch("+a@1 !10 410"), Watch("+a@1 !12 +b@13")],
            LIST => &[List("10", "a@1"), Watch("410"), List("12", "a@1"), Watch("+b@13")],
            _ => &[List("9", ""), Watch("410"), List("10", ""), Watch("+b@13"), List("12", "a@1")],
        };
        let script = Script::new(answers);
        let options = ListOptions::default().labels("app=web".parse().unwrap());
        let uid = FieldPath::new(&[1, 5]);
        let reflector = reflector(script.clone(), strategy).namespace("default").options(options);
        let reflector = reflector.projection(Projection::new().drop(&uid));
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        cache.wait_until("13").await.unwrap();
        assert_eq!(objects(&cache), "a@1 b@13", "{strategy:?}");
        for object in cache.snapshot().iter() {
            assert_eq!(object.identity().uid, "", "{strategy:?}");
        }
        for path in script.paths.lock().unwrap().iter() {
            assert!(path.starts_with("/api/v1/namespaces/default/configmaps?"), "{path}");
            assert_eq!(parameter(path, "labelSelector"), Some("app%3Dweb"), "{path}");
        }
        run.abort();
    }
}

/// What there is to answer; what is asked then, what the store has, and how often the collection was sent.
type WarmScenario = (&'static str, Option<Strategy>, &'static [Answer], &'static str, &'static str, u64);

type Build = fn(Reflector<[u8]>) -> Reflector<[u8]>;

/// What a cold start has saved, of `a@1 b@5` at version 10.
async fn saved(path: &Path) {
    let reflector = reflector(Script::new(&[List("10", "a@1 b@5"), OpenWatch("")]), LIST);
    let cache = reflector.cache();
    assert!(matches!(cache.save(path), Err(SaveError::Incomplete)), "there is nothing yet");
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    cache.save(path).unwrap();
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_saved_is_watched_on_without_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let scenarios: &[WarmScenario] = &[
        ("nothing happened", None, &[One("b@5"), OpenWatch("")], "get b 10, watch 10", "a@1 b@5", 0),
        (
            "changed since",
            None,
            &[One("b@11"), One("a@1"), OpenWatch("~b@11 -a@12 +c@13")],
            "get b 10, get a 10, watch 10",
            "b@11 c@13",
            0,
        ),
        (
            "deleted since",
            FIRST,
            &[Status(404), One("a@12"), Watch("-b@11 ~a@12"), OpenWatch("")],
            "get b 10, get a 10, watch 10, watch 12",
            "a@12",
            0,
        ),
        (
            "expired: what answers",
            None,
            &[One("b@5"), Status(410), OpenWatch("+b@5 +c@20 !20")],
            "get b 10, watch 10, watch list",
            "b@5 c@20",
            1,
        ),
        (
            "expired: an event",
            LIST,
            &[One("b@5"), Watch("410"), List("20", "b@5 c@20"), OpenWatch("")],
            "get b 10, watch 10, list 10, watch 20",
            "b@5 c@20",
            1,
        ),
        (
            "expired later",
            FIRST,
            &[One("b@5"), Watch("=15"), Watch("410"), List("20", "x@1"), OpenWatch(""), List("20", "b@5 c@20")],
            "get b 10, watch 10, watch 15, list one, watch 20, list 20",
            "b@5 c@20",
            1,
        ),
        (
            "the server is away for a while",
            LIST,
            &[One("b@5"), Status(503), Status(500), OpenWatch("~b@11")],
            "get b 10, watch 10, watch 10, watch 10",
            "a@1 b@11",
            0,
        ),
        (
            "no history: a server that is behind after all",
            LIST,
            &[One("b@5"), Status(410), TooLarge, List("8", "a@1 b@4"), List("8", "a@1 b@4"), OpenWatch("")],
            "get b 10, watch 10, list 10, list, list, watch 8",
            "a@1 b@4",
            1,
        ),
    ];
    for (name, strategy, answers, asked, stored, syncs) in scenarios {
        let script = Script::new(answers);
        let mut reflector = reflector(script.clone(), *strategy);
        let cache = reflector.cache();
        reflector.load(&path).await.unwrap();
        assert_eq!((objects(&cache), cache.version()), ("a@1 b@5".to_owned(), "10".to_owned()), "{name}");
        assert!(!cache.is_synced(), "{name}: the server may not have the version any more");
        let before = cache.get("default", "b").unwrap().decode().unwrap();
        let run = tokio::spawn(reflector.run());
        cache.synced().await.unwrap();
        sleep(Duration::from_secs(100)).await;
        assert!(!run.is_finished(), "{name}: {:?}", run.await);
        assert_eq!((script.asked().as_str(), objects(&cache).as_str()), (*asked, *stored), "{name}");
        let status = cache.status();
        assert_eq!(status.syncs, *syncs, "{name}: how often the collection was sent");
        assert_eq!(status.strategy.is_some(), *syncs > 0, "{name}");
        if stored.contains("b@5") {
            // The weak reference would find no other entry: it is the one that was loaded.
            let after = cache.get("default", "b").unwrap().decode().unwrap();
            assert!(Arc::ptr_eq(&before, &after), "{name}: it is not stored again");
        }
        cache.save(&path).unwrap();
        run.abort();
        saved(&path).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_not_of_this_collection_is_an_error_and_a_cold_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let damaged = folder.path().join("damaged");
    let mut file = std::fs::read(&path).unwrap();
    file[40] ^= 1;
    std::fs::write(&damaged, file).unwrap();
    let as_it_is: Build = |reflector| reflector;
    let cases: &[(&Path, Build, &[Answer], &str, &str)] = &[
        (&folder.path().join("none"), as_it_is, &[], "", "cannot be read"),
        (&damaged, as_it_is, &[], "", "the file is damaged: another checksum"),
        (&path, |reflector| reflector.namespace("default"), &[], "", "/api/v1/configmaps? as "),
        (
            &path,
            |reflector| reflector.options(ListOptions::default().labels("app=web".parse().unwrap())),
            &[],
            "",
            "not /api/v1/configmaps?labelSelector=app%3Dweb as ",
        ),
        (
            &path,
            |reflector| reflector.options(ListOptions::default().metadata_only()),
            &[],
            "",
            "PartialObjectMetadata",
        ),
        (&path, |reflector| reflector.options(ListOptions::default().json()), &[], "", "as application/json"),
        (
            &path,
            |reflector| reflector.options(ListOptions::default().shard(Shard::new(0, 2).unwrap())),
            &[],
            "",
            "shardSelector",
        ),
        (
            &path,
            |reflector| {
                reflector.projection(Projection::new().drop(&FieldPath::new(&[2])).drop(&FieldPath::new(&[1, 17])))
            },
            &[],
            "",
            "without 1.17, 2",
        ),
        // Another cluster, that has other objects of these names, or none.
        (&path, as_it_is, &[One("b@6")], "get b 10", "default/b is at version 6 and in the file at 5"),
        (&path, as_it_is, &[Status(404), Status(404)], "get b 10, get a 10", "another cluster"),
        // From a backup.
        (&path, as_it_is, &[One("b@4")], "get b 10", "default/b is at version 4 and in the file at 5"),
        (&path, as_it_is, &[TooLarge], "get b 10", "504"),
        (&path, as_it_is, &[Status(403)], "get b 10", "403"),
    ];
    for (path, build, answers, asked, said) in cases {
        let answers = [answers, &[List("7", "c@7"), OpenWatch("")][..]].concat();
        let script = Script::new(&answers);
        let mut reflector = build(reflector(script.clone(), LIST));
        let error = reflector.load(path).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(script.asked(), *asked, "{error}");
        let cache = reflector.cache();
        assert!(cache.is_empty() && cache.version().is_empty(), "{error}");
        if error.contains("json") || error.contains("Partial") {
            continue;
        }
        let run = tokio::spawn(reflector.run());
        assert_eq!(cache.synced().await.unwrap(), "7", "{error}");
        assert_eq!(objects(&cache), if error.contains("shard") { objects(&cache) } else { "c@7".to_owned() });
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn options_that_are_set_behind_a_load_make_it_a_cold_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config-maps");
    saved(&path).await;
    let script = Script::new(&[One("b@5"), List("12", "c@7"), OpenWatch("")]);
    let mut reflector = reflector(script.clone(), LIST);
    reflector.load(&path).await.unwrap();
    let reflector = reflector.namespace("default");
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((script.asked().as_str(), objects(&cache).as_str()), ("get b 10, list 0, watch 12", "c@7"));
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn of_a_server_that_ignores_shards_each_cache_has_its_own_and_is_at_the_version_of_all() {
    let changes = "+gamma@11 ~beta@12 -alpha@13 ~iota@14 ~kappa@15 +zeta@16";
    let listed = List("10", "alpha@1 beta@2 iota@3 kappa@4");
    let initial = "+alpha@1 +beta@2 +iota@3 +kappa@4 !10 +gamma@11 ~beta@12 -alpha@13 ~iota@14 ~kappa@15 +zeta@16";
    let scenarios: [(Strategy, &[Answer], &str); 3] = [
        (Strategy::WatchList, &[Watch(initial), OpenWatch("")], "watch list, watch 16"),
        (Strategy::ListThenWatch, &[listed, Watch(changes), OpenWatch("")], "list 0, watch 10, watch 16"),
        (
            Strategy::WatchFirst,
            &[List("10", "alpha@1"), Watch(changes), listed, OpenWatch("")],
            "list one, watch 10, list 10, watch 16",
        ),
    ];
    for (strategy, answers, asked) in scenarios {
        let mut together = Vec::new();
        for index in 0..2 {
            let shard = Shard::new(index, 2).unwrap();
            let script = Script::new(answers);
            let options = ListOptions::default().shard(shard);
            let reflector = reflector(script.clone(), Some(strategy)).options(options);
            let cache = reflector.cache();
            let run = tokio::spawn(reflector.run());
            sleep(Duration::from_secs(100)).await;
            assert_eq!(script.asked(), asked, "{shard}: {strategy}");
            assert_eq!(cache.status().resource_version.as_deref(), Some("16"), "{shard}: {strategy}");
            let objects: Vec<_> = objects(&cache).split(' ').map(str::to_owned).collect();
            // The uid is the name.
            assert!(objects.iter().all(|object| shard.contains(object.split('@').next().unwrap())), "{objects:?}");
            assert!((1..5).contains(&objects.len()), "{objects:?}");
            together.extend(objects);
            for path in script.paths.lock().unwrap().iter() {
                assert!(path.contains("shardSelector="), "{path}");
            }
            run.abort();
        }
        together.sort();
        assert_eq!(together.join(" "), "beta@12 gamma@11 iota@14 kappa@15 zeta@16", "{strategy}");
    }
}

/// A server whose ten objects change in turn, one each second. A list takes a minute to arrive, and it knows half a
/// minute of history. The version is the second.
#[derive(Clone)]
struct Hasty {
    started: Instant,
    initial_events: bool,
}

const LIST_TAKES: u64 = 60;
const HISTORY: u64 = 30;

impl Hasty {
    fn now(&self) -> u64 {
        100 + self.started.elapsed().as_secs()
    }

    fn objects(&self) -> Vec<String> {
        let now = self.now();
        (now - 9..=now).map(|version| format!("o{}@{version}", version % 10)).collect()
    }
}

impl Transport for Hasty {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let path = request.path_and_query;
        Box::pin(async move {
            let limit = parameter(&path, "limit") == Some("1");
            if parameter(&path, "watch").is_some() {
                if parameter(&path, "sendInitialEvents").is_some() && !self.initial_events {
                    return Ok(Status(422).response());
                }
                let from: u64 = parameter(&path, "resourceVersion").unwrap_or_default().parse().unwrap();
                if from + HISTORY < self.now() {
                    return Ok(Status(410).response());
                }
                let this = self.clone();
                let events = stream::unfold(from + 1, move |version| {
                    let at = this.started + Duration::from_secs(version - 100);
                    async move {
                        tokio::time::sleep_until(at).await;
                        let frame = frames(&format!("~o{}@{version}", version % 10));
                        Some((Ok::<_, TransportError>(Bytes::from(frame)), version + 1))
                    }
                });
                return Ok(respond(200, Box::pin(events)));
            }
            let body = list(&self.now().to_string(), &self.objects().join(" "));
            let pause = if limit { 0 } else { LIST_TAKES };
            let (head, tail) = body.split_at(body.len() / 2);
            let pieces = [head, tail].map(|piece| Ok(Bytes::copy_from_slice(piece)));
            let slow = stream::iter(pieces).then(move |piece| async move {
                sleep(Duration::from_secs(pause / 2)).await;
                piece
            });
            Ok(respond(200, Box::pin(slow)))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_shorter_than_a_list() {
    for (strategy, converges) in [(LIST, false), (FIRST, true), (None, true)] {
        let server = Hasty { started: Instant::now(), initial_events: false };
        let reflector = reflector(server.clone(), strategy);
        let cache = reflector.cache();
        let run = tokio::spawn(reflector.run());
        sleep(Duration::from_millis(3_600_500)).await;
        let mut server = server.objects();
        server.sort();
        let status = cache.status();
        assert_eq!(objects(&cache) == server.join(" "), converges, "{strategy:?}");
        if converges {
            assert!(status.syncs <= 3, "{strategy:?}: {status:?}");
        } else {
            assert!(status.syncs > 20, "it lists without end: {status:?}");
        }
        run.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_and_passes() {
    struct Broken(Script);
    impl Transport for Broken {
        fn get(&self, request: Request) -> ResponseFuture<'_> {
            if self.0.asked.lock().unwrap().is_empty() {
                self.0.asked.lock().unwrap().push("nobody".to_owned());
                return Box::pin(async { Err(TransportError::new(TransportErrorKind::Connect, "refused")) });
            }
            self.0.get(request)
        }
    }
    let script = Script::new(&[List("10", "a@1"), OpenWatch("")]);
    let reflector = reflector(Broken(script.clone()), LIST);
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    assert_eq!(cache.synced().await.unwrap(), "10");
    assert_eq!(cache.status().last_error.unwrap().to_string(), "transport: connect: refused");
    assert_eq!(script.asked(), "nobody, list 0, watch 10");
    run.abort();
}
