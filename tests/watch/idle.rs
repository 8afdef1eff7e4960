//! A connection on which nothing arrives is closed, sooner if it has had regular bookmarks.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use listwatch::client::WatchParams;
use tokio::time::{Instant, timeout};

use crate::support::config_maps::{added, bookmark, error, event, initial_end};
use crate::support::transport::{Answer, Scripted};
use crate::{SECOND, exact, kinds, list, resumed, watch, written};

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    let minute = SECOND * 60;
    let bookmarks = |gap: Duration| {
        let answer = Answer::pieces([bookmark(8)]).then(gap, bookmark(9)).then(gap / 2, bookmark(10));
        answer.then_stalls()
    };
    for (answer, timeout_seconds, idle, expected) in [
        // The server's own timeout plus half a minute.
        (Answer::default().then_stalls(), 400, None, 400 + 30),
        (Answer::pieces([bookmark(8)]).then_stalls(), 400, None, 400 + 30),
        (Answer::default().then(SECOND * 420, added("a", 8)).then_stalls(), 400, None, 420 + 30),
        // 2.5 times the longest gap between bookmarks, at least 90 s, and at most the time without bookmarks.
        (bookmarks(minute), 3000, None, 90 + 150),
        (bookmarks(SECOND * 10), 3000, None, 15 + 90),
        (
            Answer::pieces([bookmark(8)]).then(SECOND * 40, bookmark(9)).then(SECOND * 80, bookmark(10)).then_stalls(),
            3000,
            None,
            120 + 200,
        ),
        (bookmarks(minute * 4), 400, None, 400 + 30),
        // The caller's `idle_timeout`.
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
                let _ = resumed(watch.on_disconnect(move |at| drop(disconnects.send(at.clone())))).await;
                let disconnect = disconnected.recv().await.unwrap();
                assert!(disconnect.error.unwrap().to_string().contains("the server has sent no byte for "));
                let lived = started.elapsed().saturating_sub(disconnect.wait);
                assert_eq!(lived.as_secs(), expected);
            } else {
                let events: Vec<_> = watch.open().await.unwrap().collect().await;
                let error = events.last().unwrap().as_ref().unwrap_err();
                let silence = format!("the server has sent no byte for {}", expected - answer.body_time().as_secs());
                assert!(error.to_string().contains(&silence), "{error}");
                assert_eq!(started.elapsed().as_secs(), expected);
            }
        }
    }
    // The gap of a connection counts for the next one, until a connection stalls.
    let server = Scripted::in_turn([
        Answer::pieces([bookmark(8)]).then(minute, bookmark(9)),
        Answer::default().then_stalls(),
        Answer::default().then_stalls(),
    ]);
    let _ = resumed(watch(&server.client(), &exact(7).timeout(SECOND * 3000))).await;
    let waits: Vec<_> = server.waits().iter().map(Duration::as_secs).collect();
    assert_eq!(waits, [60, 150, 3030]);
    // The same applies after the initial events.
    let late_end = Answer::pieces([added("a", 5)]).then(SECOND * 20, initial_end(8));
    let gap = || Answer::pieces([bookmark(8)]).then(SECOND * 20, bookmark(9));
    for (answers, timeout_seconds, expected) in [
        (vec![late_end.clone().then_stalls()], 400, vec![430]),
        (vec![gap(), late_end.then_stalls()], 3000, vec![20, 110]),
    ] {
        let server = Scripted::in_turn(answers);
        let options = WatchParams::with_initial_state().timeout(SECOND * timeout_seconds);
        let _ = resumed(watch(&server.client(), &options)).await;
        let waits: Vec<_> = server.waits().iter().map(Duration::as_secs).collect();
        assert_eq!(waits, expected);
    }
    // The consumer's own time does not count.
    let server = Scripted::in_turn([bookmarks(minute)]);
    let mut events = watch(&server.client(), &exact(7).timeout(SECOND * 3000)).open().await.unwrap();
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
        tokio::time::sleep(minute * 10).await;
    }
    assert!(timeout(SECOND * 20, events.next()).await.is_err());
}

/// A server sends a frame at once, so a frame that drips keeps no dead watch open.
#[tokio::test(start_paused = true)]
async fn a_frame_that_drips_ends_in_time() {
    let (error, large) = (error(410), added(&"x".repeat(200 << 10), 8));
    let drip = |frame: &[u8], length: usize, pause: Duration| Answer::ok(frame.to_vec()).pieces_of(length).paced(pause);
    let complete = format!("the server has sent no byte for {} s", 3030 - 80 * large.len().div_ceil(64 << 10));
    for (answer, expected) in [
        // A byte each 20 s: after the first of them, 90 s in which four more arrive.
        (drip(&error, 1, SECOND * 20).then_stalls(), "the server has not sent a whole frame: 5 bytes in 90 s"),
        (drip(&large, 1, SECOND * 20).then_stalls(), "the server has not sent a whole frame: 5 bytes in 90 s"),
        // The frames before do not count.
        (
            error
                .chunks(1)
                .fold(Answer::pieces([large.clone()]), |answer, byte| answer.then(SECOND * 20, byte.to_vec())),
            "the server has not sent a whole frame: 5 bytes in 90 s",
        ),
        // The silence before a frame does not count.
        (
            Answer::default()
                .then(SECOND * 300, error[..7].to_vec())
                .then(SECOND * 60, error[7..9].to_vec())
                .then_stalls(),
            "the server has not sent a whole frame: 9 bytes in 90 s",
        ),
        (Answer::ok(error[..7].to_vec()).then_stalls(), "the server has sent no byte for 90 s"),
        // 90 s for each 64 KiB.
        (
            drip(&large, 30 << 10, SECOND * 80).then_stalls(),
            "the server has not sent a whole frame: 61440 bytes in 90 s",
        ),
        (drip(&large, 64 << 10, SECOND * 80).then_stalls(), complete.as_str()),
    ] {
        let server = Scripted::in_turn([answer]);
        let events = watch(&server.client(), &exact(7).timeout(SECOND * 3000)).open().await.unwrap();
        let events: Vec<_> = events.collect().await;
        let error = events.last().unwrap().as_ref().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_retryable());
    }
    // The caller's `idle_timeout` does not give a frame more time.
    let server = Scripted::in_turn([drip(&error, 1, SECOND * 20).then_stalls()]);
    let params = exact(7).timeout(SECOND * 3000);
    let events = watch(&server.client(), &params).idle_timeout(SECOND * 1000).open().await.unwrap();
    let events: Vec<_> = events.collect().await;
    let ended = events.last().unwrap().as_ref().unwrap_err().to_string();
    assert!(ended.contains("the server has not sent a whole frame: 5 bytes in 90 s"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn initial_events_have_a_deadline_that_progress_extends() {
    // Initial objects are progress, for 30 s for each MiB; bookmarks and changes are not.
    let every_20_s = |name: &str, objects: u64| {
        (0..objects).fold(Answer::default(), |answer, at| answer.then(SECOND * 20, added(name, 5 + at)))
    };
    let big = "x".repeat(1 << 20);
    let slow = || every_20_s(&big, 5);
    let busy = || (0..9).fold(Answer::default(), |answer, at| answer.then(SECOND * 20, event("MODIFIED", "a", 9 + at)));
    for (answer, timeout, idle, synced, seconds) in [
        (slow().then(SECOND * 20, initial_end(20)).then_stalls(), None, None, true, 120),
        (slow().then_stalls(), None, None, false, 100 + 30),
        (busy().then_stalls(), None, None, false, 30),
        // Single objects do not defer it for ever.
        (every_20_s("a", 40).then(SECOND * 20, initial_end(50)).then_stalls(), None, None, false, 30),
        (
            (0..9).fold(Answer::default(), |answer, at| answer.then(SECOND, added("a", 5 + at))).then_stalls(),
            None,
            None,
            false,
            30,
        ),
        // After a change, objects are new.
        (
            every_20_s(&big, 1)
                .then(SECOND, event("MODIFIED", "a", 9))
                .then(SECOND * 20, added(&big, 10))
                .then_stalls(),
            None,
            None,
            false,
            20 + 30,
        ),
        (
            Answer::default().then(SECOND * 20, bookmark(9)).then(SECOND * 20, bookmark(10)).then_stalls(),
            None,
            None,
            false,
            30,
        ),
        (slow().then_stalls(), Some(SECOND * 10), None, false, 10),
        // `idle_timeout` applies only after the initial events.
        (slow().then_stalls(), None, Some(SECOND * 10), false, 100 + 30),
        (slow().then_stalls(), None, Some(SECOND * 70), false, 100 + 30),
    ] {
        let server = Scripted::in_turn([answer, list(&["b"], "9")]);
        let started = Instant::now();
        let watch = watch(&server.client(), &WatchParams::with_initial_state());
        let mut watch = if let Some(idle) = idle { watch.idle_timeout(idle) } else { watch };
        if let Some(timeout) = timeout {
            watch = watch.initial_events_timeout(timeout);
        }
        while !written(watch.next().await.unwrap().unwrap()).starts_with("synced") {}
        assert_eq!(started.elapsed().as_secs(), seconds);
        assert_eq!(kinds(&server).contains("list"), !synced);
    }
}

/// The reader polls long after bytes have arrived, and takes its time over them. The server is not silent meanwhile.
#[tokio::test(start_paused = true)]
async fn a_pause_of_the_reader_is_no_silence() {
    let pause = SECOND * 25;
    // Initial events that trickle in: each object is awaited for 2 s, of 30 s for all of them.
    let objects = (0..8).fold(Answer::default(), |answer, at| answer.then(SECOND * 2, added("a", 5 + at)));
    let server = Scripted::in_turn([objects.then(SECOND * 2, initial_end(20)).then_stalls()]);
    let mut events = watch(&server.client(), &WatchParams::with_initial_state());
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event| event != "synced 20") {
        match timeout(SECOND, events.next()).await {
            Ok(event) => seen.push(written(event.unwrap().unwrap())),
            Err(_) => tokio::time::sleep(pause).await,
        }
    }
    assert_eq!((seen.len(), server.requests()), (9, 1), "{seen:?}");

    // The first part of an object arrives while the reader pauses, and the second never.
    let half = Answer::default().then(SECOND * 10, added("a", 5)[..20].to_vec()).then_stalls();
    let server = Scripted::in_turn([half, list(&["b"], "9")]);
    let started = Instant::now();
    let mut events = watch(&server.client(), &WatchParams::with_initial_state());
    assert!(timeout(SECOND * 5, events.next()).await.is_err());
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+b");
    assert_eq!(started.elapsed().as_secs(), 30 + 15);

    // Nothing arrives until the limit, at which the reader pauses.
    let server = Scripted::in_turn([Answer::pieces([added("a", 8)]).then_stalls()]);
    let mut events = watch(&server.client(), &exact(7).timeout(SECOND * 400)).open().await.unwrap();
    assert_eq!(written(events.next().await.unwrap().unwrap()), "+a");
    assert!(timeout(SECOND, events.next()).await.is_err());
    tokio::time::sleep(SECOND * 1000).await;
    let started = Instant::now();
    assert!(events.next().await.unwrap().unwrap_err().to_string().contains("the server has sent no byte"));
    assert_eq!(started.elapsed(), Duration::ZERO);

    // A frame that drips has 90 s for its parts, which are awaited for 2 s each.
    let frame = added("a", 8);
    let parts = Answer::ok(frame.clone()).pieces_of(frame.len() / 10).paced(SECOND * 2).then_stalls();
    let mut events =
        watch(&Scripted::in_turn([parts]).client(), &exact(7).timeout(SECOND * 3000)).open().await.unwrap();
    let event = loop {
        match timeout(SECOND, events.next()).await {
            Ok(event) => break event,
            Err(_) => tokio::time::sleep(pause).await,
        }
    };
    assert_eq!(written(event.unwrap().unwrap()), "+a");

    // The reader sees a bookmark late, so it came a minute after the one before.
    let minute = SECOND * 60;
    let bookmarks = Answer::default().then(minute, bookmark(8)).then(minute, bookmark(9)).then_stalls();
    let server = Scripted::in_turn([bookmarks]);
    let mut events = watch(&server.client(), &exact(7).timeout(SECOND * 30_000)).open().await.unwrap();
    assert_eq!(written(events.next().await.unwrap().unwrap()), "bookmark 8");
    assert!(timeout(SECOND, events.next()).await.is_err());
    tokio::time::sleep(minute * 3).await;
    assert_eq!(written(events.next().await.unwrap().unwrap()), "bookmark 9");
    let started = Instant::now();
    let error = events.next().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the server has sent no byte for 150 s");
    assert_eq!(started.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_the_task_that_polled_last() {
    let server = Scripted::in_turn([Answer::default().then(SECOND, added("a", 8)).then_stalls()]);
    let mut events = watch(&server.client(), &exact(7)).open().await.unwrap();
    assert!(events.next().now_or_never().is_none());
    let started = Instant::now();
    assert_eq!(written(timeout(SECOND * 10, events.next()).await.unwrap().unwrap().unwrap()), "+a");
    assert_eq!(started.elapsed().as_secs(), 1);
}
