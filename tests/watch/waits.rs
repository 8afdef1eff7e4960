//! The time between the connections of a watch that resumes.

use std::time::Duration;

use listwatch::client::ListOptions;

use crate::support::config_maps::bookmark;
use crate::support::transport::{Answer, Scripted};
use crate::{exact, list, resumed, watch};

#[tokio::test(start_paused = true)]
async fn waits_grow_until_a_good_connection() {
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
