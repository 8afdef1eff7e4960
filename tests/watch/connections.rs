//! One connection: the events it delivers, and how it ends.

use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use listwatch::Limits;
use listwatch::Shard;
use listwatch::client::Selection;
use tokio::time::Instant;

use crate::support::config_maps::{self, added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, event_frame, fixture, status};
use crate::{SECOND, exact, list, watch, written};

#[tokio::test(start_paused = true)]
async fn delivers_events_until_the_connection_ends() {
    for (answer, expected) in [
        (
            Answer::pieces([added("a", 8), event("MODIFIED", "a", 9), event("DELETED", "a", 9), bookmark(12)]),
            "+a ~a -a bookmark 12",
        ),
        (Answer::pieces([added("a", 8), initial_end(9)]), "+a synced 9"),
        (Answer::pieces([added("a", 8), error(410)]), "+a API error: 410, 1 item delivered"),
        (Answer::pieces([added("a", 8)]).then_reset(), "+a the connection was interrupted: reset, 1 item delivered"),
        (Answer::pieces([added("a", 8)[..20].to_vec()]), "the body ended inside a frame"),
        (Answer::status(403), "API error: 403"),
        // A proxy's page, and other bodies that are not this watch.
        (Answer::pieces([b"<html>hello".to_vec()]), "the body looks like HTML, not like an API server's: <html>hello"),
        (Answer::pieces(["\r\n", "<html>hello"]), "the body looks like HTML, not like an API server's: <html>hello"),
        (Answer::pieces([body_of("v1", "Status", &status(500))]), "API error: 500"),
        (list(&["a"], "7"), "unexpected encoding: the body looks like a list or an object"),
        (
            Answer::pieces([event_frame("ADDED", &body_of("v1", "Pod", &config_maps::config_map("a", "8")))]),
            "the server sent Pod of \"v1\" instead of ConfigMap of \"v1\"",
        ),
        (
            Answer::pieces([event_frame("ADDED", &body_of("v1", "ConfigMap", b"\x0a\x02\x32\x00"))]),
            "metadata.resourceVersion",
        ),
        (
            Answer::pieces([added("a", 8)]).header("content-encoding", "br"),
            "the content coding is br, not gzip or identity",
        ),
        (
            Answer::default().code(302).header("location", "https://other.example/x"),
            "the server redirects to https://other.example (302 ",
        ),
    ] {
        let server = Scripted::in_turn([answer]);
        let mut events = Vec::new();
        match watch(&server.client(), &exact(7)).open().await {
            Ok(mut watch) => {
                while let Some(event) = watch.next().await {
                    events.push(event.map_or_else(|error| error.to_string(), written));
                }
                assert!(watch.next().await.is_none());
            }
            Err(error) => events.push(error.to_string()),
        }
        assert!(events.join(" ").contains(expected), "{events:?}, expected {expected}");
        assert_eq!(server.paths().len(), 1, "the request is not retried");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_both_encodings_gzip_members_and_shards() {
    // Recorded watches, in both encodings.
    for (body, expected) in [("watch-configmaps.pb", 1), ("watch-configmaps.json", 1)] {
        let server = Scripted::in_turn([Answer::pieces([fixture(body)])]);
        let events: Vec<_> = watch(&server.client(), &exact(7)).open().await.unwrap().collect().await;
        assert!(events.len() > expected && events.iter().all(Result::is_ok), "{body}: {events:?}");
    }
    // A gzip member for each flush, as servers from 1.37 send: an event is delivered as soon as its member arrives.
    let member = |frame: Vec<u8>| {
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut member, &frame).unwrap();
        member.finish().unwrap()
    };
    let answer = Answer::pieces([member(added("a", 8))]).then(SECOND, member(added("b", 9))).then_stalls();
    let server = Scripted::in_turn([answer.header("content-encoding", "gzip")]);
    let mut events = watch(&server.client(), &exact(7)).open().await.unwrap();
    let started = Instant::now();
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+a");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+b");
    assert_eq!(started.elapsed().as_secs(), 1);

    // The client selects the shard, whatever the server sends; the uid is the name.
    let shard = Shard::new(0, 2).unwrap();
    let names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];
    for (kind, sign) in [("ADDED", "+"), ("DELETED", "-")] {
        let server = Scripted::in_turn([Answer::pieces(names.map(|name| event(kind, name, 8)))]);
        let events: Vec<_> = watch(&server.client(), &exact(7).selection(Selection::all().shard(shard)))
            .open()
            .await
            .unwrap()
            .collect()
            .await;
        let events: Vec<_> = events.into_iter().map(|event| written(event.unwrap())).collect();
        let mine = names.iter().filter(|name| shard.contains(name));
        assert!(!events.is_empty() && events.len() < 6);
        assert_eq!(events, mine.map(|name| format!("{sign}{name}")).collect::<Vec<_>>());
        assert!(server.paths()[0].contains("shardSelector="));
    }

    // A frame over the limit.
    let big = event_frame("ADDED", &body_of("v1", "ConfigMap", &config_maps::config_map(&"x".repeat(2000), "8")));
    let server = Scripted::in_turn([Answer::pieces([added("a", 8), big])]);
    let limits = Limits::default().item_size(1000);
    let events: Vec<_> = watch(&server.client(), &exact(7)).limits(limits).open().await.unwrap().collect().await;
    let error = events[1].as_ref().unwrap_err().to_string();
    assert!(error.starts_with("event 1 is ") && error.contains("over the limit of 1000 bytes"), "{error}");
}
