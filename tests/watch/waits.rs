//! The time between the connections of a watch that resumes.

use std::ops::Range;
use std::time::Duration;

use listwatch::client::{Retry, TransportErrorKind, WatchParams};

use crate::support::config_maps::{added, bookmark, error};
use crate::support::transport::{Answer, Scripted};
use crate::{SECOND, exact, list, resumed, watch};

async fn waits(params: WatchParams, answers: Vec<Answer>) -> Vec<Duration> {
    let server = Scripted::in_turn(answers);
    let _ = resumed(watch(&server.client(), &params)).await;
    server.waits()
}

fn is_in(seconds: Range<f64>, wait: &Duration) -> bool {
    seconds.contains(&wait.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn waits_after_failures_grow_until_a_connection_lives_for_10_s() {
    let again = |answer: Answer, times: usize| waits(exact(7), vec![answer; times]);
    // A wait grows to 30 s, at most doubled by jitter.
    let busy = Answer::status(503);
    let found = again(busy.clone(), 12).await;
    assert!(is_in(0.2..0.41, &found[0]) && is_in(0.8..1.61, &found[2]), "{found:?}");
    assert!(found[9..].iter().all(|wait| is_in(30.0..60.1, wait)), "{found:?}");
    // It also grows if each connection breaks at once after an event.
    let found = again(Answer::pieces([added("a", 8)]).then_reset(), 12).await;
    assert!(found[9..].iter().all(|wait| is_in(30.0..60.1, wait)), "{found:?}");
    // And if the requests are lists.
    let mut answers = vec![busy.clone(); 8];
    (answers[0], answers[6]) = (Answer::status(422), list(&["a"], "8"));
    let found = waits(WatchParams::with_initial_state(), answers).await;
    assert!(is_in(3.2..6.41, &found[5]) && is_in(6.4..12.9, &found[7]), "{found:?}");
    // A connection that lived for 10 s resets it.
    for (lived, expected) in [(10.0, 0.2..0.41), (9.9, 0.8..1.61)] {
        let broken = Answer::default().then(Duration::from_secs_f64(lived), Vec::new()).then_reset();
        let found = again(broken, 3).await;
        assert!(is_in(lived + expected.start..lived + expected.end, &found[2]), "{found:?}");
    }
    // The server's `Retry-After` counts if it is longer.
    for (seconds, expected) in [("100", 100.0..100.1), ("31536000", 300.0..300.1)] {
        let found = again(Answer::status(429).header("retry-after", seconds), 3).await;
        assert!(found.iter().all(|wait| is_in(expected.clone(), wait)), "{found:?}");
    }
    let found = again(Answer::status(429).header("retry-after", "1"), 12).await;
    assert!(is_in(1.0..1.1, &found[0]) && is_in(30.0..60.1, &found[11]), "{found:?}");
}

/// A server or a proxy may end watches early, and each wait delays the changes meanwhile.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_as_requested_or_delivered_is_followed_at_once() {
    const NEXT: Range<f64> = 0.0..0.21;
    const BRIEF: Range<f64> = 0.8..1.61;
    let lived = |seconds: f64| Answer::default().then_ends(Duration::from_secs_f64(seconds));
    let events =
        |n: u64, seconds: f64| Answer::pieces([added("a", 10 + n)]).then_ends(Duration::from_secs_f64(seconds));
    let each = |answer: &dyn Fn(u64) -> Answer| (0..10).map(answer).collect::<Vec<_>>();
    for (case, timeout, answers, life, expected) in [
        ("the requested timeout", 300, each(&|_| lived(300.0)), 300.0, NEXT),
        ("almost the requested timeout", 300, each(&|_| lived(271.0)), 271.0, NEXT),
        ("a timeout of a second", 1, each(&|_| lived(1.0)), 1.0, NEXT),
        ("an event, and 2 s", 300, each(&|n| events(n, 2.0)), 2.0, NEXT),
        (
            "an event, 5 s, and a break",
            300,
            each(&|n| Answer::pieces([added("a", 10 + n)]).then(SECOND * 5, "").then_reset()),
            5.0,
            NEXT,
        ),
        (
            "an event, 5 s, and a part of a frame",
            300,
            each(&|n| Answer::pieces([added("a", 10 + n)]).then(SECOND * 5, added("b", 50)[..20].to_vec())),
            5.0,
            NEXT,
        ),
        ("bookmarks, and 2 s", 300, each(&|n| Answer::pieces([bookmark(10 + n)]).then_ends(SECOND * 2)), 2.0, NEXT),
        ("an event, and an end at once", 300, each(&|n| events(n, 0.0)), 0.0, BRIEF),
        ("an event, and an end after a second", 300, each(&|n| events(n, 1.9)), 1.9, BRIEF),
    ] {
        let found = waits(exact(7).timeout(SECOND * timeout), answers).await;
        assert_eq!(found.len(), 10, "{case}");
        let expected = life + expected.start..life + expected.end;
        assert!(found.iter().all(|wait| is_in(expected.clone(), wait)), "{case}: {found:?}");
    }
    // Waits grow while nothing is delivered, by the server's bookmarks and repeated events too.
    for answer in [lived(1.5), Answer::pieces([bookmark(8)]), Answer::pieces([added("a", 8)])] {
        let found = waits(exact(7), vec![answer; 12]).await;
        assert!(found[8..].iter().all(|wait| is_in(30.0..62.0, wait)), "{found:?}");
    }
    // But not beyond the life of the watches, if that is at least 2 s.
    let found = waits(exact(7), vec![lived(5.0); 12]).await;
    assert!(is_in(5.8..6.61, &found[0]) && found[4..].iter().all(|wait| is_in(9.0..10.1, wait)), "{found:?}");
    // An error that the server sends is a failure.
    let found = waits(exact(7), each(&|n| Answer::pieces([added("a", 10 + n)]).then(SECOND * 3, error(500)))).await;
    assert!(is_in(16.0..64.0, &found[9]), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_grows_too() {
    let server = Scripted::always(Answer::fails(TransportErrorKind::Connect, "refused").header("retry-after", "0"));
    let client = server.client().retry(Retry::default().delay(Duration::ZERO).total(Duration::ZERO));
    let watch = resumed(watch(&client, &exact(7)));
    assert!(tokio::time::timeout(SECOND, watch).await.is_err());
    assert!((5..12).contains(&server.requests()), "{} requests in a second", server.requests());
    // A list within its attempts.
    let retry = Retry::default().delay(Duration::ZERO).tries(u32::MAX);
    for (retry, most) in [(retry.total(Duration::ZERO), 1), (retry.total(SECOND), 8)] {
        for answer in
            [Answer::fails(TransportErrorKind::Connect, "refused"), Answer::status(429).header("retry-after", "0")]
        {
            let server = Scripted::always(answer);
            list_all(&server.client().retry(retry)).await;
            assert!(server.requests() <= most, "{} requests", server.requests());
        }
    }
}

async fn list_all(client: &listwatch::client::Client) {
    let list =
        client.list::<[u8]>(&listwatch::client::Resource::CONFIG_MAPS, &listwatch::client::ListParams::default());
    list.into_vec().await.unwrap_err();
}
