//! Timeouts, deadlines and waits, over a transport without sockets, in paused time.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use listwatch::ItemError;
use listwatch::client::{ErrorKind, ListParams, Resource, Retry, TransportErrorKind, WatchParams};
use listwatch_testserver::recorded_pods;
use tokio::time::{Instant, sleep};

use crate::support::log::subscribe;
use crate::support::server::Pods;
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, config_maps};

const SECOND: Duration = Duration::from_secs(1);

/// The recorded pods, in pieces of 100,000 bytes with a time before each.
fn recorded(pause: Duration) -> Answer {
    Answer::ok(recorded_pods()).pieces_of(100_000).paced(pause).then_ends(pause)
}

/// The first piece of the recorded pods; the body then ends after the same time again.
fn truncated(pause: Duration) -> Answer {
    let mut body = recorded_pods();
    body.truncate(100_000);
    Answer::default().then(pause, body).then_ends(pause)
}

fn pods(transport: &Scripted) -> Pods {
    let client = transport.client().retry(Retry::never());
    client.list::<[u8]>(&Resource::PODS, &ListParams::default())
}

#[tokio::test(start_paused = true)]
async fn stalls_end_in_the_read_idle_timeout() {
    // Before the head, and before the first byte.
    for answer in [recorded(Duration::ZERO).after(SECOND * 91), recorded(SECOND * 91)] {
        let transport = Scripted::always(answer);
        let started = Instant::now();
        let error = pods(&transport).into_vec().await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), 90);
        let ErrorKind::Transport(transport) = error.kind() else { panic!("{error}") };
        assert_eq!(transport.kind(), TransportErrorKind::ReadIdle);
        assert!(error.is_retryable());
    }
    let error = pods(&Scripted::always(Answer::never())).into_vec().await.unwrap_err();
    assert_eq!(error.to_string(), "the server has not responded for 90 s");
    let client = Scripted::always(recorded(SECOND * 20)).client().read_idle_timeout(SECOND * 21);
    client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap();

    // In mid-list.
    let mut body = recorded_pods();
    body.truncate(150_000);
    let answer = Answer::ok(body).pieces_of(100_000).paced(SECOND * 5).then_stalls();
    let client = Scripted::always(answer).client().read_idle_timeout(SECOND * 30);
    let error = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
    assert!(error.is_incomplete() && error.is_retryable() && error.items() > 0, "{error}");
    assert!(error.to_string().contains("(the server has sent no byte for 30 s)"), "{error}");
}

/// A transport that queues requests, as HTTP clients do with streams of HTTP/2, is not silent.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_response_is_named() {
    let waits = |seconds: u64| (" WARN listwatch.list{", format!("listwatch: no response for {seconds} s "));
    let answered = |seconds: u64| (" INFO listwatch.list{", format!("listwatch: answered after {seconds} s "));
    for (answer, expected) in [
        (recorded(Duration::ZERO).after(SECOND * 9), vec![]),
        (recorded(SECOND * 20).after(SECOND * 11), vec![waits(10), answered(11)]),
        (recorded(Duration::ZERO).after(SECOND * 80), vec![waits(10), waits(70), answered(80)]),
        (Answer::never(), vec![waits(10), waits(70)]),
    ] {
        let (log, _guard) = subscribe();
        let client = Scripted::always(answer).client().retry(Retry::never());
        let mut items = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert!(items.next().now_or_never().is_none());
        assert_eq!(client.metrics().waiting_requests, 1);
        while let Some(Ok(_)) = items.next().await {}
        assert_eq!(client.metrics().waiting_requests, 0);
        let found = log.take();
        let found: Vec<_> = found.lines().filter(|line| line.ends_with(" request=\"GET /api/v1/pods\"")).collect();
        let is_expected = |(line, (level, text)): (&&str, &(&str, String))| line.contains(level) && line.contains(text);
        assert!(found.len() == expected.len() && found.iter().zip(&expected).all(is_expected), "{found:?}");
    }
}

/// A list may take as long as it needs, but not if it drips. The time of its reader does not count.
#[tokio::test(start_paused = true)]
async fn a_list_that_drips_ends_as_stalled() {
    let list = config_maps::list("10", (0..10_000).map(|n| (format!("cm-{n}"), 5)));
    let paced = |bytes: usize, pause: Duration| Answer::ok(list.clone()).pieces_of(bytes).paced(pause);
    let pieces = u32::try_from(list.len().div_ceil(64 << 10)).unwrap();
    for (case, answer, idle, slow, expected) in [
        ("a byte a minute", paced(1, SECOND * 60), 90, false, Err((150, "only 1 bytes in 90 s"))),
        ("almost 64 KiB", paced(32 << 10, SECOND * 46), 90, false, Err((136, "only 32768 bytes in 90 s"))),
        ("64 KiB", paced(64 << 10, SECOND * 80), 90, false, Ok(80 * pieces)),
        ("a longer idle timeout", paced(1, SECOND * 60), 150, false, Err((210, "only 2 bytes in 150 s"))),
        ("a shorter idle timeout", paced(1, SECOND * 8), 10, false, Err((98, "only 11 bytes in 90 s"))),
        ("a slow reader", Answer::ok(list.clone()).pieces_of(16 << 10), 90, true, Ok(10_000)),
    ] {
        let client = Scripted::always(answer).client().retry(Retry::never()).read_idle_timeout(SECOND * idle);
        let mut items = client.list_with(&Resource::CONFIG_MAPS, &ListParams::default(), |_| Ok::<_, ItemError>(()));
        let started = Instant::now();
        let ended = loop {
            match items.next().await {
                Some(Ok(())) if slow => sleep(SECOND).await,
                Some(Ok(())) => {}
                Some(Err(error)) => break Err(error.to_string()),
                None => break Ok(()),
            }
        };
        let seconds = started.elapsed().as_secs();
        match (ended, expected) {
            (Ok(()), Ok(expected)) => assert_eq!(seconds, u64::from(expected), "{case}"),
            (Err(error), Err((expected, text))) => {
                assert!(error.contains(text), "{case}: {error}");
                assert_eq!(seconds, expected, "{case}");
            }
            (ended, _) => panic!("{case}: {ended:?} after {seconds} s"),
        }
    }
}

/// However slowly its bytes arrive, a body that is read whole ends in time.
#[tokio::test(start_paused = true)]
async fn bodies_that_drip_end_in_time() {
    let drip_of = |bytes| Answer::default().then_each(move |_| Some((SECOND * 3, "<".repeat(bytes).into())));
    let drip = || drip_of(1);
    let client = Scripted::always(drip().code(503)).client().retry(Retry::never());
    let started = Instant::now();
    let error = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
    assert_eq!((error.to_string().as_str(), started.elapsed().as_secs()), ("API error: 503: <<<", 10));

    let client = Scripted::always(drip()).client().retry(Retry::never());
    let started = Instant::now();
    let error = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedBody { .. }), "{error}");
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());

    // A body has 90 s of waiting for each 64 KiB after its first byte, and a document has 300 s.
    for (bytes, text, seconds) in [
        (1, "the server has sent only 30 bytes in 90 s", 93),
        (3 << 10, "the server has not sent the whole body: 310272 bytes in 300 s", 303),
    ] {
        let client = Scripted::always(drip_of(bytes)).client().retry(Retry::never());
        let started = Instant::now();
        let error = client.get::<[u8]>(&Resource::PODS, Some("a"), "b").await.unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(started.elapsed().as_secs(), seconds);
        assert!(error.is_retryable());
    }
    let started = Instant::now();
    client.resolve("pods").await.unwrap_err();
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_list() {
    for (answer, items) in [(recorded(Duration::ZERO).after(SECOND * 50), false), (recorded(SECOND * 4), true)] {
        let transport = Scripted::always(answer);
        let started = Instant::now();
        let error = pods(&transport).deadline(SECOND * 10).into_vec().await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), 10);
        assert_eq!(error.items() > 0, items, "{error}");
        assert!(error.to_string().contains("deadline"), "{error}");
        assert!(!error.is_retryable());
    }
}

/// A consumer may take any time: the client's timeouts count only the server's time, and the client reads less than a
/// piece ahead.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_is_not_disconnected() {
    const PIECE: usize = 5000;
    let transport = Scripted::always(Answer::ok(recorded_pods()).pieces_of(PIECE).paced(SECOND).then_ends(SECOND));
    let mut items = pods(&transport);
    let progress = items.progress();
    let mut seen = 0;
    while let Some(item) = items.next().await {
        item.unwrap();
        seen += 1;
        let ahead = transport.bytes_sent() - progress.bytes();
        assert!(ahead < PIECE as u64, "{ahead} bytes were read ahead");
        // Longer than the read-idle timeout, with a poll that found nothing just before.
        if let Some(item) = items.next().now_or_never() {
            item.unwrap().unwrap();
            seen += 1;
        }
        sleep(SECOND * 100).await;
    }
    assert_eq!((seen, items.summary().unwrap().items), (120, 120));
}

/// The error of a list that the server interrupts after its request timeout names that timeout.
#[tokio::test(start_paused = true)]
async fn the_servers_request_timeout_is_named() {
    for (pause, is_named) in [(10, false), (26, false), (28, true), (80, true)] {
        let error = pods(&Scripted::always(truncated(SECOND * pause))).into_vec().await.unwrap_err();
        assert!(error.is_incomplete(), "{error}");
        let text = error.to_string();
        assert_eq!(text.contains("about or past the server's request timeout of 60 s"), is_named, "{text}");
        let ErrorKind::Incomplete { request_timeout, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*request_timeout, is_named.then_some(SECOND * 60), "{text}");
        assert_eq!(error.is_retryable(), !is_named);
    }
    // The timeout that the client requested.
    let client = Scripted::always(truncated(SECOND * 5)).client();
    let options = ListParams::default().timeout(SECOND * 10);
    let error = client.list::<[u8]>(&Resource::PODS, &options).into_vec().await.unwrap_err();
    assert!(error.to_string().contains("about or past the server's request timeout of 10 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn retries_back_off_or_wait_for_retry_after() {
    let busy = |after: Option<&str>| {
        let answer = Answer::default().code(429);
        Scripted::always(after.into_iter().fold(answer, |answer, after| answer.header("retry-after", after)))
    };
    let default = Retry::default();
    for (after, retry, requests, seconds) in [
        // With jitter, 0.2 + 0.4 + 0.8 + 1.6 s become up to twice as much.
        (None, default, 5, 3..7),
        (Some("5"), default, 5, 20..21),
        // Three waits of 9 s; a fourth would exceed the total of 30 s.
        (Some("9"), default, 4, 27..28),
        // Two waits of 15 s are the total.
        (Some("15"), default, 3, 30..31),
        (Some("31"), default, 1, 0..1),
        (Some("31"), default.total(SECOND * 200), 5, 124..125),
        (None, Retry::never(), 1, 0..1),
        (None, default.tries(3).delay(SECOND), 3, 3..6),
    ] {
        let transport = busy(after);
        let started = Instant::now();
        let client = transport.client().retry(retry);
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap_err().code(), Some(429));
        assert_eq!(transport.requests(), requests, "{after:?} {retry:?}");
        assert!(seconds.contains(&started.elapsed().as_secs()), "{after:?} {retry:?}: {:?}", started.elapsed());
    }
    // A deadline ends a wait too.
    let client = busy(Some("20")).client();
    let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).deadline(SECOND * 7);
    let started = Instant::now();
    assert!(list.into_vec().await.unwrap_err().to_string().contains("deadline"));
    assert_eq!(started.elapsed().as_secs(), 7);
}

/// The total limits only the waits: an attempt may take any time.
#[tokio::test(start_paused = true)]
async fn a_slow_failure_is_retried() {
    for (case, slow) in [
        ("a connect timeout", Answer::fails(TransportErrorKind::Connect, "").after(SECOND * 30)),
        ("the server's request timeout", Answer::status(504).after(SECOND * 60)),
        ("no head", Answer::never()),
        ("a head and no body", Answer::default().then_stalls()),
    ] {
        let transport = Scripted::in_turn([slow.clone(), slow.clone(), Answer::ok(recorded_pods())]);
        let list = transport.client().list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.expect(case).1.attempts, 3, "{case}");
        // The number of tries is limited.
        let transport = Scripted::always(slow);
        let list = transport.client().list::<[u8]>(&Resource::PODS, &ListParams::default());
        list.into_vec().await.expect_err(case);
        assert_eq!(transport.requests(), 5, "{case}");
    }
}

/// After a good connection the certificates may have been rotated; before it, they are wrong.
#[tokio::test(start_paused = true)]
async fn a_tls_failure_is_retried_after_a_good_connection_only() {
    let refused = || Answer::fails(TransportErrorKind::Tls, "");
    let pods = || Answer::ok(recorded_pods());
    let transport = Scripted::in_turn([refused(), pods(), refused(), pods()]);
    let client = transport.client();
    let list = || client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec();
    assert!(!list().await.unwrap_err().is_retryable());
    assert_eq!(transport.requests(), 1);
    assert_eq!(list().await.unwrap().1.attempts, 1);
    assert_eq!(list().await.unwrap().1.attempts, 2);
}

/// A single object is retried like a list, even if the response looks complete.
#[tokio::test(start_paused = true)]
async fn a_get_is_retried_like_a_list() {
    let pod = || Answer::ok(body_of("v1", "Pod", &config_maps::config_map("a", "5")));
    for (case, answer, again) in [
        ("408", Answer::status(408), true),
        ("502", Answer::default().code(502), true),
        ("an empty body", Answer::default(), true),
        ("a Status of 503", Answer::status(503).code(200), true),
        ("404", Answer::status(404), false),
        ("another kind", Answer::ok(body_of("v1", "Node", &config_maps::config_map("a", "5"))), false),
    ] {
        let transport = Scripted::in_turn([answer, pod()]);
        let got = transport.client().get::<[u8]>(&Resource::PODS, Some("default"), "a").await;
        assert_eq!((got.is_ok(), transport.requests()), (again, 1 + usize::from(again)), "{case}: {got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_have_jitter() {
    let mut waits = BTreeSet::new();
    for _ in 0..10 {
        let transport = Scripted::always(Answer::default().code(503));
        let started = Instant::now();
        let client = transport.client().retry(Retry::default().tries(2).delay(SECOND));
        client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
        waits.insert(started.elapsed());
    }
    assert!(waits.len() > 1, "no jitter");
}

/// A time that no clock can hold means no limit.
#[tokio::test(start_paused = true)]
async fn the_longest_time_is_no_limit() {
    let longest = Duration::MAX;
    let answer = recorded(SECOND * 80);
    let retry = Retry::default().total(longest);
    for (case, retry) in [("total", retry), ("delay", Retry::default().delay(longest)), ("both", retry.delay(longest))]
    {
        let client = Scripted::always(answer.clone()).client().retry(retry).read_idle_timeout(longest);
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).deadline(longest);
        assert_eq!(list.into_vec().await.unwrap().0.len(), 120, "{case}");
    }
    // No wait is as long as the deadline.
    for retry in [retry.delay(longest), Retry::default().delay(longest)] {
        let client = Scripted::always(Answer::status(503)).client().retry(retry);
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).deadline(SECOND * 5);
        list.into_vec().await.unwrap_err();
    }
    let events = Answer::pieces([config_maps::added("a", 5), config_maps::initial_end(6)]).then_stalls();
    let client = Scripted::always(events).client();
    let watch = client.watch::<[u8]>(&Resource::CONFIG_MAPS, &WatchParams::with_initial_state());
    let mut watch = watch.idle_timeout(longest).initial_events_timeout(longest);
    assert!(watch.next().await.unwrap().is_ok() && watch.next().await.unwrap().is_ok());
    assert!(tokio::time::timeout(SECOND * 10_000, watch.next()).await.is_err());
}

/// client-go reads only numbers. A time over 5 minutes is not obeyed.
#[tokio::test(start_paused = true)]
async fn the_servers_retry_after_is_obeyed_up_to_a_limit() {
    for (header, waits, requests) in [
        ("0", 0.2..3.3, 3),
        ("7", 14.0..14.1, 3),
        (" 7 ", 14.0..14.1, 3),
        ("300", 600.0..600.1, 3),
        ("301", 0.0..0.1, 1),
        ("31536000", 0.0..0.1, 1),
        ("18446744073709551615", 0.0..0.1, 1),
        ("99999999999999999999999999", 0.0..0.1, 1),
        ("-1", 0.2..3.3, 3),
        ("1.5", 0.2..3.3, 3),
        ("", 0.2..3.3, 3),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 0.2..3.3, 3),
    ] {
        let server = Scripted::always(Answer::status(429).header("retry-after", header));
        let client = server.client().retry(Retry::default().tries(3).total(Duration::MAX));
        let started = Instant::now();
        let error = client.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap_err();
        assert!(waits.contains(&started.elapsed().as_secs_f64()), "{header}: {:?}", started.elapsed());
        assert_eq!((error.code(), server.requests()), (Some(429), requests), "{header}: {error}");
        let started = Instant::now();
        client.get::<[u8]>(&Resource::PODS, Some("a"), "b").await.unwrap_err();
        assert!(waits.contains(&started.elapsed().as_secs_f64()), "{header}: {:?}", started.elapsed());
    }
}
