//! A watch reports in the log that its requests fail, and that they succeed again.

use std::time::Duration;

use listwatch::client::{TransportErrorKind, WatchParams};
use tokio::time::timeout;

use crate::support::config_maps::{added, bookmark, error, initial_end};
use crate::support::log::subscribe;
use crate::support::transport::{Answer, Scripted};
use crate::{SECOND, exact, list, resumed, watch};

/// Runs a watch for this time, and returns the lines about outages.
async fn reported(params: &WatchParams, server: Scripted, time: Duration) -> Vec<String> {
    let (log, _guard) = subscribe();
    let _ = timeout(time, resumed(watch(&server.client(), params))).await;
    let log = log.take();
    let lines = log.lines().filter(|line| line.contains(" WARN ") && line.contains(" listwatch: "));
    lines
        .map(|line| line.split_once(" listwatch: ").unwrap().1.to_owned())
        .filter(|line| line.starts_with("requests"))
        .collect()
}

fn refused() -> Answer {
    Answer::fails(TransportErrorKind::Connect, "connection refused")
}

#[tokio::test(start_paused = true)]
async fn each_failure_before_the_first_success_is_a_warning() {
    for params in [exact(7), WatchParams::from_now(), WatchParams::with_initial_state()] {
        let server = Scripted::always(refused());
        let lines = reported(&params, server.clone(), SECOND * 75).await;
        assert!((8..12).contains(&lines.len()), "{lines:#?}");
        assert_eq!(lines.len(), server.requests());
        for line in &lines {
            let is_first = line.starts_with("requests to scripted:6443 fail: retrying in ");
            assert!(is_first || line.starts_with("requests to scripted:6443 have failed for "), "{line}");
            assert!(
                line.contains(
                    "resource=\"configmaps\" server=\"scripted:6443\" error=\"cannot connect to scripted:6443: connection refused\""
                ),
                "{line}"
            );
        }
        assert!(lines[0].contains(" fail: retrying in 0.") && lines[0].contains("failures=1 "), "{}", lines[0]);
        assert!(!lines.iter().any(|line| line.contains(" 0 s")), "{lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_outage_is_a_warning_each_minute_and_one_at_its_end() {
    for (case, failure) in [
        ("a server that went away", refused()),
        ("503", Answer::status(503)),
        ("a proxy's 504", Answer::ok("<html>").code(504)),
    ] {
        let start = tokio::time::Instant::now();
        let server = Scripted::by(move |_, n| match start.elapsed().as_secs() {
            0 => Answer::pieces([added("a", 8)]).then_ends(SECOND * 5),
            5..600 => failure.clone(),
            _ => Answer::pieces([added("b", 10 + n as u64)]).then_stalls(),
        });
        let lines = reported(&exact(7), server, SECOND * 700).await;
        let (end, failing) = lines.split_last().unwrap();
        assert!((8..=16).contains(&failing.len()), "{case}: {lines:#?}");
        assert!(failing[0].contains(" failed for 1 s") || failing[0].contains(" fail: "), "{case}: {lines:#?}");
        assert!(failing[0].contains("failures=3 "), "{case}: {lines:#?}");
        assert!(end.starts_with("requests to scripted:6443 succeed again after "), "{case}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn brief_failures_are_silent_unless_someone_must_repair_them() {
    let steady = || Answer::pieces([added("a", 8)]).then_ends(SECOND * 20);
    let run = async |failures: Vec<Answer>| {
        let answers = [vec![steady()], failures, vec![Answer::default().then_stalls()]].concat();
        reported(&exact(7), Scripted::in_turn(answers), SECOND * 60).await
    };
    assert_eq!(run(vec![]).await, [""; 0]);
    assert_eq!(run(vec![refused(), Answer::status(503)]).await, [""; 0]);
    assert_eq!(run(vec![steady().then_reset(), steady(), refused()]).await, [""; 0]);
    // A connection that breaks within a frame is followed at once, as one that breaks between two frames.
    let truncated = Answer::pieces([added("a", 8)]).then(SECOND * 20, added("b", 9)[..20].to_vec());
    let reset = Answer::pieces([added("a", 8)]).then(SECOND * 20, bookmark(9)).then_reset();
    for broken in [reset, truncated] {
        let server = Scripted::in_turn(vec![broken; 4]).afterwards(Answer::default().then_stalls());
        assert_eq!(reported(&exact(7), server.clone(), SECOND * 120).await, [""; 0]);
        let waits: Vec<_> = server.waits().into_iter().take(4).collect();
        assert!(waits.len() == 4 && waits.iter().all(|wait| wait.as_secs_f32() < 20.5), "{waits:?}");
    }
    assert_eq!(run(vec![refused(); 3]).await.len(), 2);
    for code in [401, 403, 404] {
        let lines = run(vec![Answer::status(code), Answer::status(code)]).await;
        assert_eq!(lines.len(), 2, "{code}: {lines:#?}");
        assert!(lines[0].contains(&format!("API error: {code}")) && lines[1].contains("succeed again"), "{lines:#?}");
    }
}

/// A server may accept each watch and then fail it. That ends no outage, and fills no log.
#[tokio::test(start_paused = true)]
async fn a_server_that_fails_after_each_head_is_reported_once_a_minute() {
    for failing in [Answer::pieces([error(500)]), Answer::pieces([bookmark(8)]).then_reset()] {
        let answers = vec![Answer::pieces([added("a", 8)]).then_ends(SECOND * 20)];
        let server = Scripted::in_turn(answers).afterwards(failing);
        let lines = reported(&exact(7), server, SECOND * 600).await;
        // A failure and its end each minute, or somewhat more often because of the jitter.
        assert!((2..=30).contains(&lines.len()), "{lines:#?}");
        assert!(lines[0].contains("failures=3 "), "{lines:#?}");
        // Each pair counts from its own beginning, so together they are no longer than the test.
        let ends = lines.iter().filter(|line| line.contains(" succeed again"));
        let seconds = ends.map(|line| line.split_once(" seconds=").unwrap().1.parse::<f64>().unwrap());
        assert!(seconds.sum::<f64>() <= 600.0, "{lines:#?}");
    }
}

/// The head of a response is not yet the collection.
#[tokio::test(start_paused = true)]
async fn an_interrupted_initial_state_is_no_success() {
    let interrupted = || Answer::pieces([added("a", 5)]).then_reset();
    let server = Scripted::in_turn([interrupted(), interrupted(), list(&["a"], "8").cut(3), list(&["a"], "8")])
        .afterwards(Answer::default().then_stalls());
    let lines = reported(&WatchParams::with_initial_state(), server, SECOND * 60).await;
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[3].contains("succeed again") && lines[..3].iter().all(|line| line.contains(" fail")));
    let whole = Answer::pieces([added("a", 5), initial_end(8)]).then_stalls();
    assert_eq!(reported(&WatchParams::with_initial_state(), Scripted::always(whole), SECOND * 60).await, [""; 0]);
}

/// A server without initial events, or one that has only JSON, has not failed.
#[tokio::test(start_paused = true)]
async fn an_answer_that_changes_the_request_is_no_failure() {
    let refused =
        Scripted::in_turn([Answer::status(422), list(&["a"], "8")]).afterwards(Answer::default().then_stalls());
    let only_json = Scripted::by(|asked, _| match asked.headers["accept"].to_str() {
        Ok("application/json") => Answer::default().then_stalls(),
        _ => Answer::pieces([error(406)]),
    });
    for (case, server) in [("initial events", refused), ("only JSON", only_json)] {
        let params = WatchParams::with_initial_state();
        assert_eq!(reported(&params, server.clone(), SECOND * 20).await, [""; 0], "{case}");
        assert!(server.requests() >= 2, "{case}");
    }
}

/// Warnings of a server that sends them with each response.
#[tokio::test(start_paused = true)]
async fn identical_warnings_of_a_server_are_logged_once_a_minute() {
    let (log, _guard) = subscribe();
    let server = Scripted::by(|_, n| {
        Answer::pieces([added("a", 8 + n as u64)]).header("warning", "299 - \"v1 is old\"").then_ends(SECOND * 2)
    });
    let _ = timeout(SECOND * 110, resumed(watch(&server.client(), &exact(7)))).await;
    let log = log.take();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("the server warns")).collect();
    assert!(server.requests() > 40 && lines.len() == 2, "{} requests: {lines:#?}", server.requests());
    assert!(lines[1].contains("left_out=2"), "{}", lines[1]);
}
