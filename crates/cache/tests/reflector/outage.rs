//! A reflector reports in the log that its requests fail, and that they succeed again.

use std::time::Duration;

use listwatch::client::TransportErrorKind;
use listwatch_cache::Strategy;
use tokio::time::{Instant, sleep};

use crate::script::{FIRST, LIST, added, idle_watch, list, reflector, watch};
use crate::support::config_maps::{self, error, initial_end};
use crate::support::log::subscribe;
use crate::support::transport::{Answer, Asked, Scripted};

const SECOND: Duration = Duration::from_secs(1);

/// Runs a reflector for this time, and returns the lines about outages.
async fn reported(server: Scripted, strategy: Option<Strategy>, time: Duration) -> Vec<String> {
    let (log, _guard) = subscribe();
    let run = tokio::spawn(reflector(server, strategy).prepare().run());
    sleep(time).await;
    assert!(!run.is_finished());
    run.abort();
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

/// The answer of a server that works.
fn healthy(asked: &Asked) -> Answer {
    match (asked.parameter("watch"), asked.parameter("sendInitialEvents")) {
        (Some(_), Some(_)) => watch([added("a@5"), initial_end(10)]).then_stalls(),
        (Some(_), None) => idle_watch(),
        (None, _) => list("10", "a@5"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_before_the_first_sync_is_a_warning() {
    for strategy in [LIST, FIRST, None] {
        for failure in [refused(), Answer::status(503), Answer::status(403)] {
            let server = Scripted::always(failure);
            let lines = reported(server.clone(), strategy, SECOND * 75).await;
            assert!((8..12).contains(&lines.len()) && lines.len() == server.requests(), "{strategy:?}: {lines:#?}");
            assert!(lines.iter().all(|line| line.contains("requests to scripted:6443 fail: ") || line.contains(" have failed for ")), "{lines:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_after_the_first_sync_is_reported_until_it_ends() {
    for strategy in [LIST, FIRST, None] {
        for (case, failure) in [("no server", refused()), ("503", Answer::status(503))] {
            let start = Instant::now();
            let server = Scripted::by(move |asked, _| match start.elapsed().as_secs() {
                // Each watch breaks after a minute, and the version expires meanwhile.
                0..60 => match (asked.parameter("watch"), asked.parameter("sendInitialEvents")) {
                    (Some(_), Some(_)) => watch([added("a@5"), initial_end(10)]).then(SECOND * 60, error(410)),
                    (Some(_), None) => watch([]).then(SECOND * 60, error(410)),
                    (None, _) => list("10", "a@5"),
                },
                60..270 => failure.clone(),
                _ => healthy(asked),
            });
            let lines = reported(server, strategy, SECOND * 400).await;
            let (end, failing) = lines.split_last().unwrap();
            assert!((3..=7).contains(&failing.len()), "{strategy:?}, {case}: {lines:#?}");
            assert!(
                failing.iter().all(|line| line.contains(" fail: ") || line.contains(" have failed for ")),
                "{strategy:?}, {case}: {lines:#?}"
            );
            assert!(end.contains(" succeed again after "), "{strategy:?}, {case}: {lines:#?}");
        }
    }
}

/// The parallel watch of the strategy is accepted each time, but the list is not.
#[tokio::test(start_paused = true)]
async fn a_watch_alone_ends_no_outage_of_the_list() {
    let server = Scripted::by(|asked, _| match (asked.parameter("watch"), asked.parameter("limit")) {
        (Some(_), _) => idle_watch(),
        (None, Some("1")) => list("10", "a@5"),
        (None, _) => Answer::status(503).after(SECOND * 20),
    });
    let lines = reported(server, FIRST, SECOND * 300).await;
    assert!(
        lines.len() > 5 && lines.iter().all(|line| line.contains(" fail: ") || line.contains(" have failed for ")),
        "{lines:#?}"
    );
}

/// No request fails while a list arrives slowly, but steadily.
#[tokio::test(start_paused = true)]
async fn a_collection_that_is_not_complete_for_long_is_reported() {
    let body = config_maps::list("10", (0..4000).map(|n| (format!("a-{n}-{}", "x".repeat(200)), 5)));
    // More than 64 KiB in 90 s.
    let piece = body.len() / 1000;
    assert!(piece > 1000, "{piece}");
    let seconds = body.len().div_ceil(piece) as u64;
    let script = Scripted::by(move |asked, _| match asked.parameter("watch") {
        Some(_) => idle_watch(),
        None => Answer::ok(body.clone()).pieces_of(piece).paced(SECOND),
    });
    let (log, _guard) = subscribe();
    let reflector = reflector(script, LIST).prepare();
    let cache = reflector.cache();
    let run = tokio::spawn(reflector.run());
    let started = Instant::now();
    let mut lines = Vec::new();
    while started.elapsed() < SECOND * 1400 {
        sleep(SECOND).await;
        let log = log.take();
        let found = log.lines().filter_map(|line| line.split_once(" listwatch: the collection"));
        lines.extend(found.map(|(_, line)| (started.elapsed().as_secs(), line.to_owned())));
    }
    let times: Vec<_> = lines.iter().map(|(at, _)| *at).collect();
    assert!(cache.is_synced());
    assert!(matches!(times[..], [300..=301, 900..=901, end] if end.abs_diff(seconds) < 2), "{seconds}: {lines:#?}");
    for ((_, line), expected) in
        lines.iter().zip(["not complete after 300 s: ", "not complete after 900 s: ", "complete after 1"])
    {
        assert!(line.contains(expected) && line.starts_with(" from scripted:6443 is "), "{line}");
    }
    let has_arrived = |seconds| lines[0].1.contains(&format!("objects and {} bytes so far", seconds * piece));
    assert!((299..=300).any(has_arrived) && !lines[0].1.contains(": 0 objects"), "{lines:#?}");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_slow_collection_is_reported_with_its_bytes_whatever_brings_them() {
    let body = config_maps::list("10", (0..4000).map(|n| (format!("a-{n}-{}", "x".repeat(200)), 5)));
    let piece = body.len() / 1000;
    // Enough for the deadline of initial events.
    let frame = config_maps::added(&"x".repeat(40 << 10), 5);
    for (case, bytes, initial_events) in [
        ("a list in place of initial events", piece, Answer::status(422)),
        ("initial events", frame.len(), Answer::default().then_each(move |_| Some((SECOND, frame.clone().into())))),
    ] {
        let body = body.clone();
        let script = Scripted::by(move |asked, _| match asked.parameter("sendInitialEvents") {
            Some(_) => initial_events.clone(),
            None => Answer::ok(body.clone()).pieces_of(piece).paced(SECOND),
        });
        let (log, _guard) = subscribe();
        let run = tokio::spawn(reflector(script, Some(Strategy::WatchList)).prepare().run());
        sleep(SECOND * 310).await;
        run.abort();
        let log = log.take();
        let lines: Vec<_> = log.lines().filter(|line| line.contains("is not complete after 300 s: ")).collect();
        let has_arrived = |seconds| lines[0].contains(&format!("objects and {} bytes so far", seconds * bytes));
        assert!(lines.len() == 1 && (298..=300).any(has_arrived), "{case}: {bytes} bytes a second: {lines:#?}");
    }
}

/// A writer can change an object that does not fit as often as it likes.
#[tokio::test(start_paused = true)]
async fn warnings_that_a_writer_can_cause_are_limited() {
    let (log, _guard) = subscribe();
    let busy = watch([]).then_each(|n| Some((SECOND / 10, added(&format!("a@{}", 11 + n)).into())));
    let server = Scripted::by(move |asked, _| match asked.parameter("watch") {
        None => list("10", ""),
        Some(_) => busy.clone(),
    });
    let nameless = listwatch::Projection::new().drop(&listwatch::FieldPath::new("metadata.name", &[1, 1]));
    let run = tokio::spawn(reflector(server, LIST).projection(nameless).prepare().run());
    sleep(SECOND * 90).await;
    run.abort();
    let log = log.take();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("skipped an object")).collect();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(!lines[1].contains("left_out=0"), "{}", lines[1]);
}
