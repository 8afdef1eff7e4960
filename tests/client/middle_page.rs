//! A page in the middle that is refused at first: the list goes on with no item twice and none missing, or ends with the count
//! of items that it delivered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use listwatch::Limits;
use listwatch::client::{Error, List, Retry};
use listwatch_testserver::{Answer as ServerAnswer, Body, RecordedRequest};

use crate::support::server::{anonymous, client_of, pods, recorded, serve_by};
use crate::support::transport::{Answer, Scripted};
use crate::support::{decode, fixture};

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
async fn delivers(list: List<[u8]>, pages: usize) -> Option<Error> {
    let (mut items, expected) = (list.stream(), items_of(pages));
    let (mut delivered, mut error) = (Vec::new(), None);
    while let Some(item) = items.next().await {
        assert!(error.is_none(), "an item after {error:?}");
        match item {
            Ok(item) => delivered.push(item.into_vec()),
            Err(end) => error = Some(end),
        }
    }
    assert!(delivered == expected, "{} items, and not {}", delivered.len(), expected.len());
    match &error {
        Some(error) => assert_eq!(error.items(), delivered.len() as u64, "{error}"),
        None => assert_eq!(items.summary().unwrap().items, delivered.len() as u64),
    }
    error
}

fn busy(retry_after: Option<&str>) -> Answer {
    let busy = Answer::status(429);
    retry_after.into_iter().fold(busy, |busy, seconds| busy.header("retry-after", seconds))
}

#[tokio::test(start_paused = true)]
async fn a_busy_page_is_retried_after_the_time_that_the_server_asks_for() {
    for (retry_after, seconds) in [(None, 0.2..0.41), (Some("0"), 0.2..0.41), (Some("7"), 7.0..7.01)] {
        let server = Scripted::in_turn([page(0), busy(retry_after), page(1), page(2)]);
        assert!(delivers(pods(&server.client()).pages(50), 3).await.is_none());
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
        let error = delivers(pods(&server.client()).pages(50), 1).await.unwrap();
        assert_eq!((error.code(), server.requests()), (429, requests), "{retry_after:?}: {error}");
        assert_eq!(error.retry_after().map(|time| time.as_secs()), retry_after.map(|text| text.parse().unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unauthorized_page_is_retried_once_with_credentials_that_are_read_again() {
    let unauthorized = || Answer::status(401);
    for (case, renews, answers, pages, requests) in [
        ("once", true, vec![page(0), unauthorized(), page(1), page(2)], 3, 4),
        // Each page may read them again.
        ("two pages", true, vec![page(0), unauthorized(), page(1), unauthorized(), page(2)], 3, 5),
        ("twice", true, vec![page(0), unauthorized(), unauthorized(), page(1), page(2)], 1, 3),
        ("a fixed token", false, vec![page(0), unauthorized(), page(1), page(2)], 1, 2),
    ] {
        let server = Scripted::in_turn(answers);
        let server = if renews { server.renewing_credentials() } else { server };
        let error = delivers(pods(&server.client()).pages(50), pages).await;
        assert_eq!(error.is_some_and(|error| error.is_unauthorized()), pages < 3, "{case}");
        assert_eq!(server.requests(), requests, "{case}");
        // Not after a time.
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
            let error = delivers(pods(&client).pages(50), if changes { 3 } else { 1 }).await;
            assert_eq!(error.is_some_and(|error| error.is_unauthorized()), !changes);
            let tokens: Vec<_> =
                server.requests().iter().map(|request| request.headers["authorization"].clone()).collect();
            let (old, new) = ("Bearer old", "Bearer new");
            assert_eq!(tokens, if changes { vec![old, old, new, new] } else { vec![old; 3] });
        }
    }
}
