//! A page in the middle that is refused or interrupted at first: the list continues with no item repeated or missing,
//! or ends with the count of items that it delivered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Client, Error, ListParams, Resource, Retry, Selection};
use listwatch::{Encoding, ItemError, ItemRef, Limits};
use listwatch_testserver::{Answer as ServerAnswer, Body, RecordedRequest};

use crate::support::server::{Pods, anonymous, client_of, paged, pods, recorded, serve_by};
use crate::support::transport::{Answer, Scripted};
use crate::support::{body_of, decode, fixture, len_field};

const PAGES: [&str; 3] = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"];

fn page(number: usize) -> Answer {
    Answer::ok(fixture(PAGES[number]))
}

/// The items of the first pages, decoded independently of the client.
fn items_of(pages: usize) -> Vec<Vec<u8>> {
    let items = |name: &&str| decode(Limits::default(), [&fixture(name)[..]]).unwrap().0.items;
    PAGES[..pages].iter().flat_map(items).collect()
}

/// Checks that the list delivers exactly the items of the first pages and then ends in this error, or completes.
async fn delivers(list: Pods, pages: usize) -> Option<Error> {
    let (mut items, expected) = (list, items_of(pages));
    let (mut delivered, mut error) = (Vec::new(), None);
    while let Some(item) = items.next().await {
        assert!(error.is_none(), "an item after {error:?}");
        match item {
            Ok(item) => delivered.push(item.into_vec()),
            Err(end) => error = Some(end),
        }
    }
    assert!(delivered == expected, "{} items, expected {}", delivered.len(), expected.len());
    match &error {
        Some(error) => assert_eq!(error.items(), delivered.len() as u64, "{error}"),
        None => assert_eq!(items.summary().unwrap().items, delivered.len() as u64),
    }
    error
}

/// The first bytes of a page, and then a reset.
fn interrupted(number: usize, bytes: usize) -> Answer {
    Answer::ok(fixture(PAGES[number])[..bytes].to_vec()).then_reset()
}

/// A page with this change to its items.
fn changed(number: usize, change: fn(&mut Vec<Vec<u8>>)) -> Answer {
    let (mut list, _) = decode(Limits::default(), [&fixture(PAGES[number])[..]]).unwrap();
    change(&mut list.items);
    let items = list.items.iter().map(|item| len_field(2, item));
    let meta = len_field(2, b"525").into_iter().chain(len_field(3, b"token")).collect::<Vec<_>>();
    let raw = std::iter::once(len_field(1, &meta)).chain(items).collect::<Vec<_>>().concat();
    Answer::ok(body_of("v1", "PodList", &raw))
}

/// Another release of the server, perhaps behind a balancer, cannot read the token.
#[tokio::test(start_paused = true)]
async fn a_refused_token_ends_the_list_as_incomplete_or_starts_over() {
    let refused = || Answer::status(400);
    let server = Scripted::in_turn([page(0), page(1), refused()]).afterwards(Answer::never());
    let error = delivers(paged(&server.client()), 2).await.unwrap();
    assert!(error.is_expired() && error.code() == Some(400) && !error.is_retryable(), "{error}");
    assert!(error.to_string().ends_with(", the list is incomplete: 100 items delivered"), "{error}");
    assert_eq!(server.requests(), 3);
    // `into_vec` starts over.
    let server = Scripted::in_turn([page(0), page(1), refused(), page(0), page(1), page(2)]);
    let (items, summary) = paged(&server.client()).into_vec().await.unwrap();
    assert!(items.iter().map(|item| &**item).eq(items_of(3).iter().map(|item| &**item)));
    assert_eq!((summary.restarts, server.requests()), (1, 6));
    // It gives up after a few times.
    let server = Scripted::by(move |_, n| if n % 2 == 0 { page(0) } else { refused() });
    assert!(paged(&server.client()).into_vec().await.unwrap_err().is_expired());
    assert_eq!(server.requests(), 8);
    // Without a token, the request itself is wrong.
    let error = delivers(paged(&Scripted::always(refused()).client()), 0).await.unwrap();
    assert!(!error.is_expired(), "{error}");
}

/// The same token selects the same items: the list skips those that it has delivered.
#[tokio::test(start_paused = true)]
async fn an_interrupted_page_with_an_oversized_item_is_retried() {
    let oversized = || changed(1, |items| items[3].extend(len_field(99, &vec![b'x'; 100_000])));
    let limits = Limits::default().item_size(100_000);
    let interrupted = oversized().cut(50_000);
    let server = Scripted::in_turn([page(0), interrupted, oversized(), page(2)]).afterwards(Answer::never());
    let (items, summary) = paged(&server.client()).limits(limits).skip_item_errors(true).into_vec().await.unwrap();
    let mut expected = items_of(3);
    expected.remove(53);
    assert!(items.iter().map(|item| &**item).eq(expected.iter().map(|item| &**item)));
    assert_eq!((summary.items, summary.skipped, summary.pages, server.requests()), (119, 1, 3, 4));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_page_is_retried_and_delivers_the_rest() {
    for (case, answers, requests) in [
        ("once", vec![page(0), interrupted(1, 150_000), page(1), page(2)], 4),
        (
            "several times, and one byte short",
            vec![
                page(0),
                interrupted(1, 150_000),
                interrupted(1, 30_000),
                interrupted(1, 250_000),
                Answer::status(503),
                page(1).cut(1),
                page(1),
                page(2).pieces_of(1000),
            ],
            8,
        ),
        ("each page", vec![page(0), interrupted(1, 150_000), page(1), interrupted(2, 50_000), page(2)], 5),
        (
            "a stall",
            vec![page(0), Answer::ok(fixture(PAGES[1])[..150_000].to_vec()).then_stalls(), page(1), page(2)],
            4,
        ),
    ] {
        let server = Scripted::in_turn(answers.clone()).afterwards(Answer::never());
        let retry = Retry::default().tries(6);
        assert!(delivers(paged(&server.client().retry(retry)), 3).await.is_none(), "{case}");
        assert_eq!(server.requests(), requests, "{case}");
        // Skipped items and items of other shards are counted once.
        let server = Scripted::in_turn(answers.clone());
        let (mut seen, shard) = (0, Shard::new(0, 2).unwrap());
        let odd = server.client().retry(retry).list_with(
            &Resource::PODS,
            &ListParams::default().page_size(50),
            move |item| {
                seen += 1;
                if seen % 2 == 0 { Err(ItemError::other("even")) } else { Ok(item.to_box()) }
            },
        );
        let (items, summary) = odd.skip_item_errors(true).into_vec().await.unwrap();
        let expected: Vec<_> = items_of(3).into_iter().step_by(2).collect();
        assert!(items.iter().map(|item| &**item).eq(expected.iter().map(|item| &**item)), "{case}");
        assert_eq!((summary.items, summary.skipped, summary.pages), (60, 60, 3), "{case}");
        assert_eq!(summary.attempts, requests as u64, "{case}");
        let server = Scripted::in_turn(answers);
        let params = ListParams::new(Selection::all().shard(shard)).page_size(50);
        let list = server.client().retry(retry).list::<[u8]>(&Resource::PODS, &params);
        let (items, summary) = list.into_vec().await.unwrap();
        assert_eq!((items.len() as u64, summary.items + summary.other_shards), (summary.items, 120), "{case}");
        let uids = items.iter().map(|pod| ItemRef::new(Encoding::Protobuf, pod).meta().unwrap().uid().into_owned());
        assert_eq!(uids.collect::<BTreeSet<_>>().len(), items.len(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_page_ends_the_list_if_its_items_may_differ() {
    type Listed = fn(&Client) -> Pods;
    for (case, list, answers, requests, expected) in [
        ("one response", pods as Listed, vec![interrupted(0, 150_000)], 1, "incomplete: "),
        ("the first page", paged, vec![interrupted(0, 150_000)], 1, "incomplete: "),
        (
            "the page of an inconsistent token, with other items than before",
            |client| paged(client).allow_inconsistent(),
            vec![
                page(0),
                Answer::ok(fixture("error-410-continue.pb")).code(410),
                interrupted(1, 150_000),
                changed(1, |items| items.swap(1, 2)),
            ],
            4,
            "the retried page has other items than before",
        ),
        (
            "other items than before",
            paged,
            vec![page(0), interrupted(1, 150_000), changed(1, |items| items.swap(1, 2))],
            3,
            "the retried page has other items than before",
        ),
        (
            "fewer items than before",
            paged,
            vec![page(0), interrupted(1, 150_000), changed(1, |items| items.truncate(3))],
            3,
            "the retried page has other items than before",
        ),
        (
            "expired, and the offered token has other items",
            |client| paged(client).allow_inconsistent(),
            vec![page(0), interrupted(1, 150_000), Answer::ok(fixture("error-410-continue.pb")).code(410)],
            3,
            "API error: 410",
        ),
    ] {
        let server = Scripted::in_turn(answers).afterwards(Answer::never());
        let mut items = list(&server.client());
        let mut delivered = Vec::new();
        let error = loop {
            match items.next().await.expect("the list ends in an error") {
                Ok(item) => delivered.push(item.into_vec()),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().starts_with(expected), "{case}: {error}");
        assert_eq!((error.items(), server.requests()), (delivered.len() as u64, requests), "{case}");
        let all = items_of(3);
        assert!(!delivered.is_empty() && all.starts_with(&delivered), "{case}: {}", delivered.len());
    }
}

/// A restart discards the items of the interrupted page, too.
#[tokio::test(start_paused = true)]
async fn an_interrupted_page_that_expires_starts_over() {
    let expired = Answer::ok(fixture("error-410-continue.pb")).code(410);
    let server = Scripted::in_turn([page(0), interrupted(1, 150_000), expired, page(0), page(1), page(2)]);
    let (restarts, restarted) = std::sync::mpsc::channel();
    let list = paged(&server.client());
    let mut items = list.on_restart(move |restart| restarts.send(restart.items).unwrap());
    let mut all = Vec::new();
    while let Some(item) = items.next().await {
        all.push(item.unwrap().into_vec());
    }
    let abandoned = restarted.recv().unwrap();
    assert!((51..100).contains(&abandoned));
    assert!(all[usize::try_from(abandoned).unwrap()..] == items_of(3));
    let summary = items.summary().unwrap();
    assert_eq!((summary.items, summary.restarts, summary.pages), (120, 1, 3));
}

fn busy(retry_after: Option<&str>) -> Answer {
    let busy = Answer::status(429);
    retry_after.into_iter().fold(busy, |busy, seconds| busy.header("retry-after", seconds))
}

#[tokio::test(start_paused = true)]
async fn a_busy_page_is_retried_after_the_time_that_the_server_asks_for() {
    for (retry_after, seconds) in [(None, 0.2..0.41), (Some("0"), 0.2..0.41), (Some("7"), 7.0..7.01)] {
        let server = Scripted::in_turn([page(0), busy(retry_after), page(1), page(2)]);
        assert!(delivers(paged(&server.client()), 3).await.is_none());
        let (paths, waits) = (server.paths(), server.waits());
        assert_eq!(paths.len(), 4);
        assert!(paths[1].contains("continue=") && paths[1] == paths[2], "{paths:?}");
        assert!(seconds.contains(&waits[1].as_secs_f64()), "{retry_after:?}: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_stays_busy_ends_the_list() {
    for (retry_after, requests) in [(None, 1 + 5), (Some("7"), 1 + 5), (Some("31"), 1 + 1)] {
        let server = Scripted::in_turn([page(0)]).afterwards(busy(retry_after));
        let error = delivers(paged(&server.client()), 1).await.unwrap();
        assert_eq!((error.code(), server.requests()), (Some(429), requests), "{retry_after:?}: {error}");
        assert_eq!(error.retry_after().map(|time| time.as_secs()), retry_after.map(|text| text.parse().unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unauthorized_page_is_retried_once_with_credentials_that_are_read_again() {
    let unauthorized = || Answer::status(401);
    for (case, renews, answers, pages, requests) in [
        ("once", true, vec![page(0), unauthorized(), page(1), page(2)], 3, 4),
        // Each page may read the credentials again.
        ("two pages", true, vec![page(0), unauthorized(), page(1), unauthorized(), page(2)], 3, 5),
        ("twice", true, vec![page(0), unauthorized(), unauthorized(), page(1), page(2)], 1, 3),
        ("a fixed token", false, vec![page(0), unauthorized(), page(1), page(2)], 1, 2),
    ] {
        let server = Scripted::in_turn(answers);
        let server = if renews { server.renewing_credentials() } else { server };
        let error = delivers(paged(&server.client()), pages).await;
        assert_eq!(error.is_some_and(|error| error.code() == Some(401)), pages < 3, "{case}");
        assert_eq!(server.requests(), requests, "{case}");
        // The retry is immediate.
        assert!(server.waits().iter().all(Duration::is_zero), "{case}");
    }
}

#[tokio::test]
async fn a_token_file_that_changes_between_pages_is_read_again() {
    for http2 in [false, true] {
        for changes in [true, false] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "old").unwrap();
            let (path, pages_sent) = (file.path().to_owned(), AtomicUsize::new(0));
            let server = serve_by(move |request: &RecordedRequest, _| {
                let next = pages_sent.load(Ordering::Relaxed);
                if next > 0 && request.headers["authorization"] == "Bearer old" {
                    if changes {
                        std::fs::write(&path, "new").unwrap();
                    }
                    return ServerAnswer::ok(Body::replay(fixture("error-401.pb"))).status(401);
                }
                pages_sent.store(next + 1, Ordering::Relaxed);
                recorded(PAGES[next])
            })
            .await;
            let client = client_of(anonymous(&server.url(), http2).token_file(file.path())).retry(Retry::never());
            let error = delivers(paged(&client), if changes { 3 } else { 1 }).await;
            assert_eq!(error.is_some_and(|error| error.code() == Some(401)), !changes);
            let tokens: Vec<_> =
                server.requests().iter().map(|request| request.headers["authorization"].clone()).collect();
            let (old, new) = ("Bearer old", "Bearer new");
            assert_eq!(tokens, if changes { vec![old, old, new, new] } else { vec![old; 3] });
        }
    }
}
