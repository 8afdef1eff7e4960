//! Watches over a scripted transport, in paused time: what is asked, what each kind of end leads to, and when.

use std::io::Read as _;
use std::time::Duration;

use crate::support::config_maps::{self, added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, event_frame, fixture, len_field, status};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use listwatch::client::{
    Client, Error, ErrorKind, HttpTransport, ListOptions, OwnedEvent, Resource, ResourceVersion, ResumedWatch, Shard,
    TransportErrorKind, Watch,
};
use listwatch::{ItemError, ItemRef, Limits};
use listwatch_testserver::{Answer as ServerAnswer, Body, Server, TOKEN};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Objects at version 5.
fn list(names: &[&str], version: &str) -> Answer {
    Answer::ok(config_maps::list(version, names.iter().map(|name| (name, 5))))
}

fn name(item: ItemRef<'_>) -> Result<String, ItemError> {
    Ok(item.meta()?.name().to_owned())
}

fn options(version: ResourceVersion) -> ListOptions {
    ListOptions::default().resource_version(version)
}

fn exact(version: u64) -> ListOptions {
    options(ResourceVersion::Exact(version.to_string()))
}

type Name = fn(ItemRef<'_>) -> Result<String, ItemError>;

fn watch(client: &Client, options: &ListOptions) -> Watch<[u8], Name> {
    client.watch::<[u8]>(&Resource::CONFIG_MAPS, options).map_item(name as Name)
}

/// Events as they are written below, up to the error that ends them.
async fn resumed(mut watch: ResumedWatch<[u8], Name>) -> (Vec<String>, Error, Option<String>) {
    let mut events = Vec::new();
    loop {
        match watch.next().await.expect("an error comes first") {
            Ok(event) => events.push(written(event)),
            Err(error) => {
                assert!(watch.next().await.is_none(), "an error ends it");
                return (events, error, watch.resource_version().map(str::to_owned));
            }
        }
    }
}

fn written(event: OwnedEvent<String>) -> String {
    match event {
        OwnedEvent::Added(name) => format!("+{name}"),
        OwnedEvent::Modified(name) => format!("~{name}"),
        OwnedEvent::Deleted(name) => format!("-{name}"),
        OwnedEvent::Synced { resource_version } => format!("synced {resource_version}"),
        OwnedEvent::Bookmark { resource_version } => format!("bookmark {resource_version}"),
        OwnedEvent::Restarted => "restarted".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked() {
    let every = "/api/v1/configmaps?";
    let seconds = ListOptions::default().timeout(SECOND * 40);
    for (options, initial, expected) in [
        (seconds.clone(), false, "watch=1&allowWatchBookmarks=true&resourceVersion=&timeoutSeconds=40"),
        (
            seconds.clone().resource_version(ResourceVersion::Any),
            false,
            "watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=40",
        ),
        (
            seconds.clone().resource_version(ResourceVersion::Exact("7".into())).labels("a=b".parse().unwrap()),
            false,
            "labelSelector=a%3Db&watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=40",
        ),
        (
            seconds.clone(),
            true,
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=\
             &timeoutSeconds=40",
        ),
        (
            seconds.clone().resource_version(ResourceVersion::AtLeast("7".into())),
            true,
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7\
             &timeoutSeconds=40",
        ),
    ] {
        let server = Scripted::in_turn([Answer::default()]);
        let watch = watch(&server.client(), &options);
        let watch = if initial { watch.initial_events() } else { watch };
        assert!(watch.stream().next().await.is_none());
        assert_eq!(server.paths(), [format!("{every}{expected}")]);
    }
    // Nothing is sent.
    let at_least = options(ResourceVersion::AtLeast("7".into()));
    for (options, initial) in
        [(ListOptions::default().limit(1), false), (at_least.clone(), false), (exact(7), true), (exact(0), false)]
    {
        let server = Scripted::in_turn([]);
        let watch = watch(&server.client(), &options);
        let watch = if initial { watch.initial_events() } else { watch };
        let error = watch.stream().next().await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Options(_)), "{error}");
        assert_eq!(server.paths(), [""; 0]);
    }
    // Of a watch that goes on, the first.
    for (options, expected) in [
        (at_least, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7&"),
        (options(ResourceVersion::Any), "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&"),
        (exact(7), "allowWatchBookmarks=true&resourceVersion=7&"),
        (ListOptions::default().limit(1), ""),
    ] {
        let server = Scripted::in_turn([]);
        let (_, error, _) = resumed(watch(&server.client(), &options).resume()).await;
        assert_eq!(matches!(error.kind(), ErrorKind::Options(_)), expected.is_empty(), "{error}");
        let asked = server.paths();
        assert!(asked.len() == usize::from(!expected.is_empty()) && asked.concat().contains(expected), "{asked:?}");
    }
    // 5 to 10 minutes, and not always the same.
    let mut timeouts = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let server = Scripted::in_turn([Answer::default()]);
        assert!(watch(&server.client(), &exact(7)).namespace("web").stream().next().await.is_none());
        let path = server.paths().remove(0);
        let (path, seconds) = path.rsplit_once('=').unwrap();
        assert_eq!(
            path,
            "/api/v1/namespaces/web/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds"
        );
        timeouts.insert(seconds.parse::<u64>().unwrap());
    }
    assert!(timeouts.len() > 1 && timeouts.iter().all(|seconds| (300..=600).contains(seconds)), "{timeouts:?}");
}

#[tokio::test(start_paused = true)]
async fn one_connection() {
    for (answer, expected) in [
        (
            Answer::pieces([added("a", 8), event("MODIFIED", "a", 9), event("DELETED", "a", 9), bookmark(12)]),
            "+a ~a -a bookmark 12",
        ),
        (Answer::pieces([added("a", 8), initial_end(9)]), "+a synced 9"),
        (Answer::pieces([added("a", 8), error(410)]), "+a API error: 410, 1 item delivered"),
        (Answer::pieces([added("a", 8)]).then_reset(), "+a transport: broken off: reset, 1 item delivered"),
        (Answer::pieces([added("a", 8)[..20].to_vec()]), "the body ended inside a frame"),
        (Answer::status(403), "API error: 403"),
        // What a proxy says instead.
        (Answer::pieces([b"<html>hello".to_vec()]), "unexpected encoding: the body looks like HTML"),
        (Answer::pieces([body_of("v1", "Status", &status(500))]), "API error: 500"),
        (list(&["a"], "7"), "ConfigMapList"),
        (
            Answer::pieces([event_frame("ADDED", &body_of("v1", "Pod", &config_maps::config_map("a", "8")))]),
            "another kind: asked for ConfigMap",
        ),
        (
            Answer::pieces([event_frame("ADDED", &body_of("v1", "ConfigMap", b"\x0a\x02\x32\x00"))]),
            "metadata.resourceVersion",
        ),
        (Answer::pieces([added("a", 8)]).header("content-encoding", "br"), "neither plain nor gzip"),
        (Answer::default().code(302).header("location", "https://other.example/x"), "redirect: 302"),
    ] {
        let server = Scripted::in_turn([answer]);
        let mut watch = watch(&server.client(), &exact(7)).stream();
        let mut events = Vec::new();
        while let Some(event) = watch.next().await {
            events.push(event.map_or_else(|error| error.to_string(), written));
        }
        assert!(watch.next().await.is_none());
        assert!(events.join(" ").contains(expected), "{events:?}, and not {expected}");
        assert_eq!(server.paths().len(), 1, "it is not asked for again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_watched() {
    // Recorded ones, in both encodings.
    for (body, expected) in [("watch-configmaps.pb", 1), ("watch-configmaps.json", 1)] {
        let server = Scripted::in_turn([Answer::pieces([fixture(body)])]);
        let events: Vec<_> = watch(&server.client(), &exact(7)).stream().collect().await;
        assert!(events.len() > expected && events.iter().all(Result::is_ok), "{body}: {events:?}");
    }
    // A gzip member for each flush, as servers from 1.37 send; an event is there when its member is.
    let member = |frame: Vec<u8>| {
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut member, &frame).unwrap();
        member.finish().unwrap()
    };
    let answer = Answer::pieces([member(added("a", 8))]).then(SECOND, member(added("b", 9))).then_stalls();
    let server = Scripted::in_turn([answer.header("content-encoding", "gzip")]);
    let mut events = watch(&server.client(), &exact(7)).stream();
    let started = Instant::now();
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+a");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+b");
    assert_eq!(started.elapsed().as_secs(), 1);

    // A shard, whatever the server sends: the uid is the name.
    let shard = Shard::new(0, 2).unwrap();
    let names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];
    let server = Scripted::in_turn([Answer::pieces(names.map(|name| added(name, 8)))]);
    let events: Vec<_> = watch(&server.client(), &exact(7).shard(shard)).stream().collect().await;
    let events: Vec<_> = events.into_iter().map(|event| written(event.unwrap())).collect();
    let expected: Vec<_> = names.iter().filter(|name| shard.contains(name)).map(|name| format!("+{name}")).collect();
    assert!(!events.is_empty() && events.len() < 6);
    assert_eq!(events, expected);
    assert!(server.paths()[0].contains("shardSelector="));

    // A frame over the limit.
    let big = event_frame("ADDED", &body_of("v1", "ConfigMap", &config_maps::config_map(&"x".repeat(2000), "8")));
    let server = Scripted::in_turn([Answer::pieces([added("a", 8), big])]);
    let limits = Limits::default().item_size(1000);
    let events: Vec<_> = watch(&server.client(), &exact(7)).limits(limits).stream().collect().await;
    let error = events[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("item_size"), "{error}");
}

/// The answers, what comes of all of them, which versions are asked for, and up to which all came. The script's end is fatal.
#[tokio::test(start_paused = true)]
async fn it_goes_on_where_it_was() {
    let end = "setup: the script has ended";
    let expired = "API error: 410";
    for (answers, expected, versions, ends) in [
        // However a connection ends.
        (vec![Answer::pieces([added("a", 8)]), Answer::pieces([added("b", 9)])], "+a +b", "7 8 9 to 9", end),
        (
            vec![Answer::pieces([added("a", 8)]).then_reset(), Answer::pieces([added("b", 9)])],
            "+a +b",
            "7 8 9 to 9",
            end,
        ),
        (vec![Answer::pieces([[added("a", 8), added("b", 9)[..30].to_vec()].concat()])], "+a", "7 8 to 8", end),
        (vec![Answer::pieces([added("a", 8), error(500)]), Answer::pieces([error(504)])], "+a", "7 8 8 to 8", end),
        (vec![Answer::status(429), Answer::status(503), Answer::pieces([added("a", 8)])], "+a", "7 7 7 8 to 8", end),
        // Bookmarks move the version, and only forwards.
        (
            vec![Answer::pieces([bookmark(20), bookmark(15)]), Answer::pieces([added("a", 21)])],
            "+a",
            "7 20 21 to 21",
            end,
        ),
        // Repeated and late events.
        (
            vec![Answer::pieces([added("a", 8), added("a", 8), event("MODIFIED", "a", 10), added("b", 9)])],
            "+a ~a",
            "7 10 to 10",
            end,
        ),
        // A deletion with an old version, which comes again as often as it is not behind us.
        (
            vec![
                Answer::pieces([added("a", 8), added("b", 9), event("DELETED", "a", 8)]),
                Answer::pieces([event("DELETED", "a", 8), added("a", 12), event("DELETED", "a", 12)]),
                Answer::pieces([event("DELETED", "a", 12), event("DELETED", "a", 8)]),
            ],
            "+a +b -a +a -a",
            "7 9 12 12 to 12",
            end,
        ),
        (
            vec![Answer::pieces([added("a", 8), event("DELETED", "a", 9)]), Answer::pieces([added("a", 10)])],
            "+a -a +a",
            "7 9 10 to 10",
            end,
        ),
        // What ends it.
        (vec![Answer::pieces([added("a", 8), error(410)])], "+a", "7 to 8", expired),
        (vec![Answer::pieces([added("a", 8)]), Answer::status(410)], "+a", "7 8 to 8", expired),
        (vec![Answer::status(403)], "", "7 to 7", "API error: 403"),
        (vec![Answer::status(404)], "", "7 to 7", "API error: 404"),
        (vec![Answer::status(400)], "", "7 to 7", "API error: 400"),
        (vec![Answer::status(422)], "", "7 to 7", "API error: 422"),
        (vec![Answer::status(401), Answer::status(401)], "", "7 7 to 7", "API error: 401"),
        (
            vec![
                Answer::status(401),
                Answer::pieces([added("a", 8)]),
                Answer::status(401),
                Answer::pieces([error(410)]),
            ],
            "+a",
            "7 7 8 8 to 8",
            expired,
        ),
        // Two 401 with no other answer between them.
        (
            vec![Answer::status(401), Answer::fails(TransportErrorKind::Connect, ""), Answer::status(401)],
            "",
            "7 7 7 to 7",
            "API error: 401",
        ),
        (
            vec![Answer::status(401), Answer::status(503), Answer::status(401), Answer::status(410)],
            "",
            "7 7 7 7 to 7",
            expired,
        ),
        (
            vec![Answer::status(401), Answer::default().then_reset(), Answer::status(401), Answer::status(410)],
            "",
            "7 7 7 7 to 7",
            expired,
        ),
        (vec![Answer::pieces([added("a", 8), b"\0\0\0\0".to_vec()])], "+a", "7 to 8", "frame"),
        (vec![Answer::pieces([b"<html>".to_vec()])], "", "7 to 7", "HTML"),
        // What did not become an item was not delivered.
        (
            vec![Answer::pieces([
                added("a", 8),
                event_frame("ADDED", &body_of("v1", "ConfigMap", b"\x0a\x08\x32\x0210\x0a\x02\xff\xff")),
            ])],
            "+a",
            "7 to 8",
            "UTF-8",
        ),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, version) = resumed(watch(&server.client(), &exact(7)).resume()).await;
        assert_eq!(events.join(" "), expected, "{error}");
        assert!(error.to_string().contains(ends), "{error}, and not {ends}");
        let paths = server.paths();
        let asked: Vec<_> = paths.iter().map(|path| between(path, "resourceVersion=", "&")).collect();
        assert_eq!(format!("{} to {}", asked.join(" "), version.unwrap()), versions, "{events:?}");
        assert!(paths.iter().all(|path| !path.contains("sendInitialEvents")));
    }
}

/// Nobody can tell which are repetitions.
#[tokio::test(start_paused = true)]
async fn versions_that_do_not_compare_are_all_delivered() {
    let events = [
        ("ADDED", "a", "x8"),
        ("ADDED", "b", "x9"),
        ("ADDED", "a", "x8"),
        ("DELETED", "a", "x10"),
        ("DELETED", "b", "x11"),
        ("DELETED", "a", "x10"),
    ];
    let frame = |(event, name, version)| {
        event_frame(event, &body_of("v1", "ConfigMap", &config_maps::config_map(name, version)))
    };
    let server = Scripted::in_turn([Answer::pieces(events.map(frame))]);
    let (events, _, version) = resumed(watch(&server.client(), &exact(7)).resume()).await;
    assert_eq!((&*events.join(" "), version.as_deref()), ("+a +b +a -a -b -a", Some("x10")));
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> &'a str {
    text.split_once(before).unwrap().1.split(behind).next().unwrap()
}

/// The first requests of each are for initial events or lists.
#[tokio::test(start_paused = true)]
async fn it_begins_with_the_collection() {
    let whole = || Answer::pieces([added("a", 5), added("b", 3), initial_end(8)]);
    let half = || Answer::pieces([added("a", 5)]);
    let fatal = "the script has ended";
    for (answers, expected, asked, ends) in [
        (vec![whole(), Answer::pieces([added("c", 9)])], "+a +b synced 8 +c", "initial 8 9", fatal),
        // What happens meanwhile: all that is new comes, and the bookmark is of a time before it.
        (
            vec![Answer::pieces([added("a", 5), event("MODIFIED", "a", 9), event("DELETED", "b", 10), initial_end(9)])],
            "+a ~a -b synced 9",
            "initial 9",
            fatal,
        ),
        // A repeated change, an initial event behind it, and a bookmark that is late.
        (
            vec![Answer::pieces([
                event("MODIFIED", "a", 9),
                event("MODIFIED", "a", 9),
                added("b", 5),
                initial_end(8),
                event("MODIFIED", "a", 9),
            ])],
            "~a +b synced 9",
            "initial 9",
            fatal,
        ),
        (
            vec![
                Answer::pieces([event("MODIFIED", "a", 9)]),
                Answer::pieces([event("MODIFIED", "a", 9), initial_end(9)]),
            ],
            "~a restarted ~a synced 9",
            "initial initial 9",
            fatal,
        ),
        // The versions of initial events are no version of the collection.
        (vec![half(), whole()], "+a restarted +a +b synced 8", "initial initial 8", fatal),
        (vec![Answer::default(), whole()], "+a +b synced 8", "initial initial 8", fatal),
        // Twice is once too often.
        (
            vec![half(), half(), list(&["a", "b"], "8")],
            "+a restarted +a restarted +a +b synced 8",
            "initial initial list 8",
            fatal,
        ),
        // What did not begin did not break off.
        (
            vec![Answer::status(500), Answer::fails(TransportErrorKind::ReadIdle, ""), whole()],
            "+a +b synced 8",
            "initial initial initial 8",
            fatal,
        ),
        // Old servers, and servers that never end them.
        (vec![Answer::status(422), list(&["a"], "8")], "+a synced 8", "initial list 8", fatal),
        (vec![Answer::status(400), list(&["a"], "8")], "+a synced 8", "initial list 8", fatal),
        (vec![half().then_stalls(), list(&["a"], "8")], "+a restarted +a synced 8", "initial list 8", fatal),
        // A list that breaks off begins again too.
        (
            vec![Answer::status(422), list(&["a", "b"], "8").cut(3), Answer::status(503), list(&["a"], "9")],
            "+a +b restarted +a synced 9",
            "initial list list list 9",
            fatal,
        ),
        (vec![Answer::status(422), list(&["a"], "")], "+a", "initial list", "metadata.resourceVersion"),
        // Each list tells of all that came.
        (
            vec![half(), half(), list(&["a", "b"], "8").cut(3), Answer::status(403)],
            "+a restarted +a restarted +a +b restarted",
            "initial initial list list",
            "API error: 403, 4 items delivered",
        ),
        (
            vec![
                Answer::status(422),
                Answer::status(401),
                list(&["a"], "8"),
                Answer::status(401),
                Answer::pieces([error(410)]),
            ],
            "+a synced 8",
            "initial list list 8 8",
            "API error: 410",
        ),
        (vec![Answer::status(422), Answer::status(403)], "", "initial list", "API error: 403"),
        (vec![Answer::status(422), Answer::status(422)], "", "initial list", "API error: 422"),
        (vec![Answer::status(500), Answer::status(403)], "", "initial initial", "API error: 403"),
        (vec![Answer::pieces([added("a", 5), error(410)])], "+a", "initial", "API error: 410"),
        (vec![Answer::pieces([added("a", 5), b"\0\0\0\0".to_vec()])], "+a", "initial", "frame"),
    ] {
        let server = Scripted::in_turn(answers);
        let (events, error, version) = resumed(watch(&server.client(), &ListOptions::default()).resume()).await;
        assert_eq!(events.join(" "), expected, "{error}");
        assert!(error.to_string().contains(ends), "{error}, and not {ends}");
        assert_eq!(kinds(&server), asked, "{events:?}");
        let is_synced = expected.contains("synced");
        assert_eq!(version.as_deref(), asked.rsplit(' ').next().filter(|_| is_synced), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_list_in_place_of_initial_events() {
    let big = "x".repeat(2000);
    let late = |list: Answer| list.paced(SECOND * 60);
    let half = || list(&["a"], "8").cut(3);
    let all = "/api/v1/namespaces/web/configmaps?labelSelector=a%3Db";
    let page = "/api/v1/namespaces/web/configmaps?labelSelector=a%3Db&limit=500";
    for (lists, asked, ends) in [
        (vec![list(&["a"], "8")], vec![all], "the script has ended"),
        (vec![list(&[&big], "8")], vec![all], "item_size"),
        // In pages once it broke off for the server's request timeout, which is 60 s.
        (vec![half(), half(), Answer::status(403)], vec![all, all, all], "API error: 403"),
        (vec![late(half()), half(), Answer::status(403)], vec![all, page, page], "API error: 403"),
    ] {
        let server = Scripted::in_turn(std::iter::once(Answer::status(422)).chain(lists));
        let options = ListOptions::default().labels("a=b".parse().unwrap()).timeout(SECOND * 40);
        let watch = watch(&server.client(), &options).namespace("web").limits(Limits::default().item_size(1000));
        let (_, error, _) = resumed(watch.resume()).await;
        assert!(error.to_string().contains(ends), "{error}, and not {ends}");
        let paths = server.paths();
        let lists: Vec<_> = paths.iter().filter(|path| !path.contains("watch=1")).collect();
        assert_eq!(lists, asked);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_disconnect_says() {
    let answers = [
        Answer::status(500),
        Answer::pieces([added("a", 5)]),
        Answer::status(422),
        list(&["a"], "8").cut(3),
        Answer::status(503),
        list(&["a"], "8"),
        Answer::pieces([added("b", 9)]),
        Answer::status(429),
    ];
    let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
    let watch = watch(&Scripted::in_turn(answers).client(), &ListOptions::default()).resume();
    let _ = resumed(watch.on_disconnect(move |at| drop(disconnects.send(at.clone())))).await;
    for (why, version, lists) in [
        ("API error: 500", None, false),
        ("ended", None, false),
        ("API error: 422", None, true),
        ("incomplete: ", None, true),
        ("API error: 503", None, true),
        ("ended", Some("9"), false),
        ("API error: 429", Some("9"), false),
    ] {
        let disconnect = disconnected.try_recv().unwrap();
        let error = disconnect.error.as_ref().map_or("ended".to_owned(), ToString::to_string);
        assert!(error.starts_with(why), "{error}, and not {why}");
        assert_eq!((disconnect.resource_version.as_deref(), disconnect.lists), (version, lists), "{why}");
        // What the server refuses is asked for otherwise at once.
        assert_eq!(disconnect.wait.is_zero(), why == "API error: 422", "{why}");
    }
    assert!(disconnected.try_recv().is_err());
}

/// All are behind the version that was reached. What comes again is not delivered as long as it is remembered.
#[tokio::test(start_paused = true)]
async fn deletions_are_remembered() {
    let deleted = |namespace: &str, name: &str, uid: &str, version: u64| {
        let fields = [(1, name), (3, namespace), (5, uid), (6, &*version.to_string())];
        let metadata = fields.map(|(number, text)| len_field(number, text.as_bytes())).concat();
        event_frame("DELETED", &body_of("v1", "ConfigMap", &len_field(1, &metadata)))
    };
    let numbered = |range: std::ops::RangeInclusive<u64>| range.map(|n| deleted("web", &format!("cm-{n}"), "", n));
    let reached = || std::iter::once(bookmark(5000));
    let twice = || std::iter::repeat_n(deleted("web", "first", "", 4000), 2);
    for (case, options, first, again, delivered) in [
        // As long as the version does not move on, all.
        ("a run", exact(7), reached().chain(numbered(1..=1500)).collect(), numbered(1..=1500).collect(), 0),
        // Then 1024, of which the oldest goes.
        (
            "many",
            exact(7),
            reached().chain(numbered(1..=1500)).chain([bookmark(5001)]).chain(numbered(1501..=1501)).collect(),
            numbered(478..=1501).chain(numbered(477..=477)).collect(),
            1,
        ),
        (
            "one that came twice before the version",
            ListOptions::default(),
            twice().chain([initial_end(5000)]).chain(numbered(1..=1023)).collect(),
            twice().collect(),
            0,
        ),
        (
            "others",
            exact(7),
            reached().chain([deleted("web", "a", "1", 8)]).collect::<Vec<_>>(),
            vec![
                deleted("web", "a", "1", 8),
                deleted("db", "a", "1", 8),
                deleted("web", "b", "1", 8),
                deleted("web", "a", "2", 8),
                deleted("web", "a", "1", 9),
            ],
            4,
        ),
    ] {
        let before = first.iter().filter(|frame| frame.windows(7).any(|bytes| bytes == b"DELETED")).count();
        let server = Scripted::in_turn([Answer::pieces(first), Answer::pieces(again)]);
        let (events, _, _) = resumed(watch(&server.client(), &options).resume()).await;
        let deletions = events.iter().filter(|event| event.starts_with('-')).count();
        assert_eq!(deletions - before, delivered, "{case}");
    }
}

fn kinds(server: &Scripted) -> String {
    let kind = |path: &String| match path {
        path if path.contains("sendInitialEvents") => "initial".to_owned(),
        path if path.contains("watch=1") => between(path, "resourceVersion=", "&").to_owned(),
        _ => "list".to_owned(),
    };
    server.paths().iter().map(kind).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_client_remembers_who_does_not_end_initial_events() {
    for (first, remembers) in [
        (Answer::status(422), true),
        (Answer::pieces([added("a", 5)]).then_stalls(), true),
        (Answer::status(500), false),
    ] {
        let server = Scripted::in_turn([first]);
        let client = server.client();
        let _ = resumed(watch(&client, &ListOptions::default()).resume()).await;
        server.forget();
        let _ = resumed(watch(&client.clone(), &ListOptions::default()).resume()).await;
        assert_eq!(kinds(&server), if remembers { "list" } else { "initial" });
        // Of other resources it knows nothing.
        server.forget();
        let secrets = client.watch::<[u8]>(&Resource::SECRETS, &ListOptions::default()).map_item(name as Name);
        let _ = resumed(secrets.resume()).await;
        assert_eq!(kinds(&server), "initial");
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_it_waits() {
    let waits = |options: ListOptions, answers: Vec<Answer>| async move {
        let server = Scripted::in_turn(answers);
        let _ = resumed(watch(&server.client(), &options).resume()).await;
        server.waits()
    };
    let again = |answer: Answer, times: usize| waits(exact(7), vec![answer; times]);
    let seconds = |range: std::ops::Range<f64>, wait: &Duration| range.contains(&wait.as_secs_f64());
    // It grows to 30 s, with up to as much again at random.
    let busy = Answer::status(503);
    let found = again(busy.clone(), 12).await;
    assert!(seconds(0.2..0.41, &found[0]) && seconds(0.8..1.61, &found[2]), "{found:?}");
    assert!(found[9..].iter().all(|wait| seconds(30.0..60.1, wait)), "{found:?}");
    // After a good connection it is short again, once.
    let good = Answer::pieces([bookmark(8)]);
    let found = again(good.clone(), 12).await;
    assert!(found.iter().all(|wait| seconds(0.2..0.41, wait)), "{found:?}");
    let found = waits(exact(7), vec![good, busy.clone(), busy.clone()]).await;
    assert!(seconds(0.2..0.41, &found[0]) && seconds(0.8..1.61, &found[2]), "{found:?}");
    // A whole list is as good, and so is a connection that lived for 10 s.
    let mut answers = vec![busy.clone(); 8];
    (answers[0], answers[6]) = (Answer::status(422), list(&["a"], "8"));
    let found = waits(ListOptions::default(), answers).await;
    assert!(seconds(3.2..6.41, &found[5]) && seconds(0.2..0.41, &found[7]), "{found:?}");
    for (lived, expected) in [(10.0, 0.2..0.41), (9.9, 0.8..1.61)] {
        let found = again(Answer::default().then(Duration::from_secs_f64(lived), Vec::new()), 3).await;
        assert!(seconds(lived + expected.start..lived + expected.end, &found[2]), "{found:?}");
    }
    // A server's word counts, where it is more.
    let found = again(Answer::status(429).header("retry-after", "100"), 3).await;
    assert!(found.iter().all(|wait| seconds(100.0..100.1, wait)), "{found:?}");
    let found = again(Answer::status(429).header("retry-after", "1"), 12).await;
    assert!(seconds(1.0..1.1, &found[0]) && seconds(30.0..60.1, &found[11]), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn quiet_connections_are_given_up() {
    let minute = SECOND * 60;
    let bookmarks = |gap: Duration| {
        let answer = Answer::pieces([bookmark(8)]).then(gap, bookmark(9)).then(gap / 2, bookmark(10));
        answer.then_stalls()
    };
    for (answer, timeout_seconds, idle, expected) in [
        // The server's own timeout, and half a minute.
        (Answer::default().then_stalls(), 400, None, 400 + 30),
        (Answer::pieces([bookmark(8)]).then_stalls(), 400, None, 400 + 30),
        (Answer::default().then(SECOND * 420, added("a", 8)).then_stalls(), 400, None, 420 + 30),
        // 2.5 times the longest gap, at least 90 s, and no longer than without bookmarks.
        (bookmarks(minute), 3000, None, 90 + 150),
        (bookmarks(SECOND * 10), 3000, None, 15 + 90),
        (
            Answer::pieces([bookmark(8)]).then(SECOND * 40, bookmark(9)).then(SECOND * 80, bookmark(10)).then_stalls(),
            3000,
            None,
            120 + 200,
        ),
        (bookmarks(minute * 4), 400, None, 400 + 30),
        // As the caller says.
        (bookmarks(minute), 3000, Some(SECOND * 70), 90 + 70),
    ] {
        for resumes in [false, true] {
            let server = Scripted::in_turn([answer.clone()]);
            let options = exact(7).timeout(SECOND * timeout_seconds);
            let mut watch = watch(&server.client(), &options);
            if let Some(idle) = idle {
                watch = watch.idle_timeout(idle);
            }
            let started = Instant::now();
            if resumes {
                let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
                let _ = resumed(watch.resume().on_disconnect(move |at| drop(disconnects.send(at.clone())))).await;
                let disconnect = disconnected.recv().await.unwrap();
                assert!(disconnect.error.unwrap().to_string().contains("stalled"));
                let lived = started.elapsed().saturating_sub(disconnect.wait);
                assert_eq!(lived.as_secs(), expected);
            } else {
                let events: Vec<_> = watch.stream().collect().await;
                let error = events.last().unwrap().as_ref().unwrap_err();
                let silence = format!("stalled: no byte for {}", expected - answer.body_time().as_secs());
                assert!(error.to_string().contains(&silence), "{error}");
                assert_eq!(started.elapsed().as_secs(), expected);
            }
        }
    }
    // What one connection taught counts for the next, unless bookmarks stopped.
    let server = Scripted::in_turn([
        Answer::pieces([bookmark(8)]).then(minute, bookmark(9)),
        Answer::default().then_stalls(),
        Answer::default().then_stalls(),
    ]);
    let _ = resumed(watch(&server.client(), &exact(7).timeout(SECOND * 3000)).resume()).await;
    let waits: Vec<_> = server.waits().iter().map(Duration::as_secs).collect();
    assert_eq!(waits, [60, 150, 3030]);
    // Behind the initial events it is the same.
    let late_end = Answer::pieces([added("a", 5)]).then(SECOND * 20, initial_end(8));
    let gap = || Answer::pieces([bookmark(8)]).then(SECOND * 20, bookmark(9));
    for (answers, timeout_seconds, expected) in [
        (vec![late_end.clone().then_stalls()], 400, vec![430]),
        (vec![gap(), late_end.then_stalls()], 3000, vec![20, 110]),
    ] {
        let server = Scripted::in_turn(answers);
        let options = ListOptions::default().timeout(SECOND * timeout_seconds);
        let _ = resumed(watch(&server.client(), &options).resume()).await;
        let waits: Vec<_> = server.waits().iter().map(Duration::as_secs).collect();
        assert_eq!(waits, expected);
    }
    // Time that the consumer takes is none that the server takes.
    let server = Scripted::in_turn([bookmarks(minute)]);
    let mut events = watch(&server.client(), &exact(7).timeout(SECOND * 3000)).stream();
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
        tokio::time::sleep(minute * 10).await;
    }
    assert!(timeout(SECOND * 20, events.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn initial_events_have_a_deadline_that_progress_resets() {
    // Objects every 20 s are progress; bookmarks and changes are none.
    let slow = || (0..5).fold(Answer::default(), |answer, at| answer.then(SECOND * 20, added("a", 5 + at)));
    let busy = || (0..9).fold(Answer::default(), |answer, at| answer.then(SECOND * 20, event("MODIFIED", "a", 9 + at)));
    for (answer, timeout, idle, synced, seconds) in [
        (slow().then(SECOND * 20, initial_end(20)).then_stalls(), None, None, true, 120),
        (slow().then_stalls(), None, None, false, 100 + 30),
        (busy().then_stalls(), None, None, false, 30),
        (
            Answer::default().then(SECOND * 20, bookmark(9)).then(SECOND * 20, bookmark(10)).then_stalls(),
            None,
            None,
            false,
            30,
        ),
        (slow().then_stalls(), Some(SECOND * 10), None, false, 10),
        // The other timeout begins behind them.
        (slow().then_stalls(), None, Some(SECOND * 10), false, 100 + 30),
        (slow().then_stalls(), None, Some(SECOND * 70), false, 100 + 30),
    ] {
        let server = Scripted::in_turn([answer, list(&["b"], "9")]);
        let started = Instant::now();
        let watch = watch(&server.client(), &ListOptions::default());
        let watch = if let Some(idle) = idle { watch.idle_timeout(idle) } else { watch };
        let mut watch = watch.resume();
        if let Some(timeout) = timeout {
            watch = watch.initial_events_timeout(timeout);
        }
        while !written(watch.next().await.unwrap().unwrap()).starts_with("synced") {}
        assert_eq!(started.elapsed().as_secs(), seconds);
        assert_eq!(kinds(&server).contains("list"), !synced);
    }
}

/// Over TCP: while the consumer takes nothing, the server can send no more than buffers hold. Then all comes, and the 410
/// that a server has for those who are too slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_stalls_makes_the_server_wait() {
    const BYTES: u64 = 40 << 20;
    /// What sockets and the transport hold.
    const AHEAD: u64 = 20 << 20;

    let frame = added(&"x".repeat(4000), 8);
    let frames = BYTES / frame.len() as u64;
    let repeated = frame.clone();
    let length = frames * frame.len() as u64;
    let open = move || RepeatFrame { frame: repeated.clone(), at: 0 }.take(length);
    let body = Body::read(length, open).chunk_size(64 << 10).append(error(410));
    let server = Server::start(ServerAnswer::ok(body).always()).await.unwrap();
    let client = Client::new(HttpTransport::builder(server.url()).bearer_token(TOKEN).build().unwrap());
    let before = crate::support::memory("VmRSS");
    let mut events = client.watch::<[u8]>(&Resource::CONFIG_MAPS, &ListOptions::default()).stream();
    events.next().await.unwrap().unwrap();
    let mut sent = 0;
    // Until nothing was sent for a while.
    while server.bytes_sent() > sent {
        sent = server.bytes_sent();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(sent < AHEAD, "{sent} bytes were sent to a consumer that took one event");
    let (mut seen, mut end) = (1, None);
    while let Some(event) = events.next().await {
        match event {
            Ok(_) => seen += 1,
            Err(error) => end = Some(error),
        }
    }
    assert_eq!(seen, frames);
    assert!(end.unwrap().is_expired());
    let held = crate::support::memory("VmHWM").saturating_sub(before);
    assert!(held < 2 * AHEAD, "{held} bytes");
}

/// A frame, over and over.
struct RepeatFrame {
    frame: Vec<u8>,
    at: usize,
}

impl std::io::Read for RepeatFrame {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = (&self.frame[self.at..]).read(buffer)?;
        self.at = (self.at + read) % self.frame.len();
        Ok(read)
    }
}
