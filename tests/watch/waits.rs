//! The time between the connections of a watch that resumes.

use std::time::Duration;

use listwatch::client::WatchParams;

use crate::support::config_maps::{added, bookmark};
use crate::support::transport::{Answer, Scripted};
use crate::{exact, list, resumed, watch};

#[tokio::test(start_paused = true)]
async fn waits_grow_until_a_connection_lives_for_10_s() {
    let waits = |options: WatchParams, answers: Vec<Answer>| async move {
        let server = Scripted::in_turn(answers);
        let _ = resumed(watch(&server.client(), &options)).await;
        server.waits()
    };
    let again = |answer: Answer, times: usize| waits(exact(7), vec![answer; times]);
    let seconds = |range: std::ops::Range<f64>, wait: &Duration| range.contains(&wait.as_secs_f64());
    // A wait grows to 30 s, at most doubled by jitter.
    let busy = Answer::status(503);
    let found = again(busy.clone(), 12).await;
    assert!(seconds(0.2..0.41, &found[0]) && seconds(0.8..1.61, &found[2]), "{found:?}");
    assert!(found[9..].iter().all(|wait| seconds(30.0..60.1, wait)), "{found:?}");
    // It also grows if each connection delivers something before it ends.
    for brief in [Answer::pieces([bookmark(8)]), Answer::pieces([added("a", 8)])] {
        let found = again(brief, 12).await;
        assert!(found[9..].iter().all(|wait| seconds(30.0..60.1, wait)), "{found:?}");
    }
    // And if the requests are lists.
    let mut answers = vec![busy.clone(); 8];
    (answers[0], answers[6]) = (Answer::status(422), list(&["a"], "8"));
    let found = waits(WatchParams::with_initial_state(), answers).await;
    assert!(seconds(3.2..6.41, &found[5]) && seconds(6.4..12.9, &found[7]), "{found:?}");
    // A connection that lived for 10 s resets it.
    for (lived, expected) in [(10.0, 0.2..0.41), (9.9, 0.8..1.61)] {
        let found = again(Answer::default().then(Duration::from_secs_f64(lived), Vec::new()), 3).await;
        assert!(seconds(lived + expected.start..lived + expected.end, &found[2]), "{found:?}");
    }
    // The server's `Retry-After` counts if it is longer.
    let found = again(Answer::status(429).header("retry-after", "100"), 3).await;
    assert!(found.iter().all(|wait| seconds(100.0..100.1, wait)), "{found:?}");
    let found = again(Answer::status(429).header("retry-after", "31536000"), 3).await;
    assert!(found.iter().all(|wait| seconds(300.0..300.1, wait)), "{found:?}");
    let found = again(Answer::status(429).header("retry-after", "1"), 12).await;
    assert!(seconds(1.0..1.1, &found[0]) && seconds(30.0..60.1, &found[11]), "{found:?}");
}
