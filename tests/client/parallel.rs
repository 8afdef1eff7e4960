//! Several threads decode a list: no item is lost or repeated, errors keep their place, memory is bounded.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvError, channel};
use std::sync::{Arc, Mutex};

use crate::support::fixture;
use crate::support::server::{Pods, anonymous, client_of, pods_with, recorded, serve, serve_in_turn};
use futures::{FutureExt, StreamExt, TryStreamExt};
use listwatch::client::{Client, Error, ErrorKind, List, ListParams, ParallelItems, Resource, Retry};
use listwatch::{DecodeErrorKind, ItemError, ItemRef};
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};

const PODS: u32 = 500;
const ORDERS: [Order; 2] = [Order::Listed, Order::Unordered];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Listed,
    Unordered,
}

fn parallel<F, O, E>(list: List<F>, order: Order, threads: usize) -> ParallelItems<O>
where
    F: Fn(ItemRef<'_>) -> Result<O, E> + Send + Sync + 'static,
    O: Send + 'static,
    E: Into<ItemError> + 'static,
{
    let threads = NonZeroUsize::new(threads).unwrap();
    match order {
        Order::Listed => list.parallel(threads),
        Order::Unordered => list.parallel_unordered(threads),
    }
}

fn body() -> Synthesizer {
    Synthesizer::new(&recorded_pods(), PODS).unwrap()
}

fn once(server: &Server) -> Client {
    client_of(anonymous(&server.url(), false)).retry(Retry::never())
}

#[expect(clippy::unnecessary_wraps, reason = "`list_with` requires a Result")]
fn place(item: ItemRef<'_>) -> Result<(u64, u64, Box<[u8]>), ItemError> {
    Ok((item.index(), item.offset(), item.to_box()))
}

/// Returns a closure that fails on these items.
fn but<const N: usize>(bad: [u64; N]) -> impl Fn(ItemRef<'_>) -> Result<u64, ItemError> {
    move |item| if bad.contains(&item.index()) { Err(ItemError::WrapperType("bad")) } else { Ok(item.index()) }
}

#[tokio::test]
async fn several_threads_return_the_items_of_one_thread() {
    for body in [Body::synthesize(body()), Body::synthesize(body()).chunk_size(1 << 20), Body::replay(recorded_pods())]
    {
        let server = serve(Answer::ok(body)).await;
        let (expected, summary) = pods_with(&once(&server), place).into_vec().await.unwrap();
        for (order, count) in [(Order::Listed, 1), (Order::Listed, 3), (Order::Unordered, 1), (Order::Unordered, 3)] {
            let mut items = parallel(pods_with(&once(&server), place), order, count);
            let mut found: Vec<_> = items.by_ref().try_collect().await.unwrap();
            if order == Order::Unordered {
                found.sort();
            }
            assert!(found == expected, "{order:?}, {count} threads");
            let ended = items.summary().unwrap();
            assert_eq!((ended.items, ended.skipped, ended.bytes), (summary.items, 0, summary.bytes));
            assert_eq!(ended.list_meta, summary.list_meta);
            assert!(items.next().await.is_none());
        }
    }
}

#[tokio::test]
async fn items_are_in_list_order_unless_unordered() {
    // With small chunks the first batch has a single item, because the threads are idle until then.
    for (order, chunk) in
        [(Order::Listed, 4 << 10), (Order::Listed, 1 << 20), (Order::Unordered, 4 << 10), (Order::Unordered, 1 << 20)]
    {
        let server = serve(Answer::ok(Body::synthesize(body()).chunk_size(chunk))).await;
        // Item 0 waits until item 60, in one of the next three batches, is decoded, or until another item is delivered.
        let (release, released) = channel();
        let (decoded, released) = (release.clone(), Mutex::new(released));
        let own = move |item: ItemRef<'_>| {
            match (item.index(), order) {
                (0, _) => released.lock().unwrap().recv().unwrap(),
                (60, Order::Listed) => decoded.send(()).unwrap(),
                _ => {}
            }
            Ok::<_, ItemError>(item.index())
        };
        let mut items = parallel(pods_with(&once(&server), own), order, 2);
        let first = items.try_next().await.unwrap().unwrap();
        match order {
            Order::Listed => assert_eq!(first, 0),
            Order::Unordered => assert_ne!(first, 0),
        }
        release.send(()).unwrap();
        let rest: Vec<_> = items.try_collect().await.unwrap();
        assert_eq!((rest.len() + 1, rest.is_sorted()), (PODS as usize, order == Order::Listed));
    }
}

#[tokio::test]
async fn an_item_that_fails_keeps_its_place() {
    let server = serve(Answer::ok(Body::synthesize(body()))).await;
    let expected = pods_with(&once(&server), but([321])).into_vec().await.unwrap_err();
    for order in ORDERS {
        let mut items = parallel(pods_with(&once(&server), but([321, 322, 499])), order, 2);
        let (mut found, mut error) = (Vec::new(), None);
        while let Some(item) = items.next().await {
            assert!(error.is_none(), "{item:?} after {error:?}");
            match item {
                Ok(index) => found.push(index),
                Err(failed) => error = Some(failed),
            }
        }
        let error = error.unwrap();
        assert_eq!(error.items(), found.len() as u64);
        assert!(items.summary().is_none());
        match order {
            Order::Listed => {
                assert_eq!(found, (0..321).collect::<Vec<_>>());
                assert_eq!(error.to_string(), expected.to_string());
            }
            Order::Unordered => {
                let ErrorKind::Decode(error) = error.kind() else { panic!("{error}") };
                assert!([321, 499].contains(&error.index().unwrap()), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn items_that_fail_can_be_skipped() {
    let server = serve(Answer::ok(Body::synthesize(body()))).await;
    for order in ORDERS {
        let list = pods_with(&once(&server), but([0, 77, 499])).skip_item_errors(true);
        let (report, reported) = mpsc::channel();
        let list = list.on_skip(move |error| report.send(error.index().unwrap()).unwrap());
        let mut items = parallel(list, order, 2);
        let mut found: Vec<_> = items.by_ref().try_collect().await.unwrap();
        found.sort_unstable();
        let mut reported: Vec<_> = reported.try_iter().collect();
        reported.sort_unstable();
        assert_eq!(reported, [0, 77, 499]);
        assert_eq!(found, (1..77).chain(78..499).collect::<Vec<_>>());
        let summary = items.summary().unwrap();
        assert_eq!((summary.items, summary.skipped), (497, 3));
    }
}

/// Returns all items, and the error after them.
async fn until_error(items: impl futures::Stream<Item = Result<u64, Error>>) -> (Vec<u64>, Error) {
    let all: Vec<_> = items.collect().await;
    let (error, items) = all.split_last().unwrap();
    (items.iter().map(|item| *item.as_ref().unwrap()).collect(), error.as_ref().unwrap_err().clone())
}

#[tokio::test]
async fn an_error_follows_the_items_before_it() {
    let (body, length) = (body(), body().len());
    for (name, body) in [
        ("cut", Body::synthesize(body.clone()).cut_at(length - 10_000)),
        ("reset", Body::synthesize(body.clone()).reset_at(length / 2)),
        ("malformed", Body::synthesize(body.clone()).append(vec![0xff; 30])),
        ("another kind", Body::replay(fixture("nodes.pb"))),
    ] {
        let server = serve(Answer::ok(body)).await;
        let (expected, expected_error) = until_error(pods_with(&once(&server), but([]))).await;
        for order in ORDERS {
            let items = parallel(pods_with(&once(&server), but([])), order, 2);
            let (mut found, error) = until_error(items).await;
            found.sort_unstable();
            assert_eq!(found, expected, "{name}");
            // The text differs, because it has the elapsed time.
            assert_eq!(
                (error.items(), error.is_incomplete()),
                (expected_error.items(), expected_error.is_incomplete())
            );
        }
        // The error counts the delivered items.
        let skipping = pods_with(&once(&server), but([1])).skip_item_errors(true);
        let (found, error) = until_error(parallel(skipping, Order::Listed, 2)).await;
        assert_eq!(error.items(), found.len() as u64, "{name}");
        if let ErrorKind::Decode(error) = error.kind() {
            assert_eq!(error.items(), found.len() as u64, "{name}");
        }
    }
}

#[tokio::test]
async fn errors_name_the_request() {
    for (answer, code) in
        [(recorded("error-403.pb").status(403), Some(403)), (Answer::ok(Body::synthesize(body())), None)]
    {
        let server = serve(answer.header("audit-id", "a1")).await;
        let (_, error) = until_error(parallel(pods_with(&once(&server), but([7])), Order::Listed, 2)).await;
        assert_eq!((error.code(), error.audit_id()), (code, Some("a1")));
    }
}

#[tokio::test]
async fn decodes_pages_of_several_namespaces() {
    let server = serve(recorded("pods-page-3.pb")).await;
    let params = ListParams::default().page_size(50);
    let list = || -> Pods { once(&server).list::<[u8]>(&Resource::PODS, &params).namespaces(["a", "b", "c"]) };
    let (expected, summary) = list().into_vec().await.unwrap();
    let mut items = parallel(list(), Order::Listed, 2);
    assert!(items.by_ref().try_collect::<Vec<_>>().await.unwrap() == expected);
    assert_eq!(items.summary().unwrap().namespaces, summary.namespaces);
}

#[tokio::test]
async fn an_expired_page_ends_the_list() {
    for order in ORDERS {
        let expired = recorded("error-410-continue.pb").status(410);
        let server = serve_in_turn([recorded("pods-page-1.pb"), expired]).await;
        let list: Pods = once(&server).list::<[u8]>(&Resource::PODS, &ListParams::default().page_size(50));
        let items: Vec<_> = parallel(list, order, 2).collect().await;
        let (error, items) = items.split_last().unwrap();
        assert!(items.len() == 50 && items.iter().all(Result::is_ok));
        let error = error.as_ref().unwrap_err();
        assert!(error.is_expired() && error.items() == 50, "{error}");
    }
}

#[tokio::test]
async fn decodes_received_items_while_the_body_stalls() {
    let server = serve(Answer::ok(Body::synthesize(body()).stall_at(20_000))).await;
    let mut items = parallel(pods_with(&once(&server), but([])), Order::Listed, 2);
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn decodes_only_a_window_ahead_of_the_consumer() {
    let server = serve(Answer::ok(Body::synthesize(body()))).await;
    let decoded = Arc::new(AtomicU64::new(0));
    let largest = recorded_pods().len() as u64 / 120 / 2;
    for order in ORDERS {
        decoded.store(0, Ordering::Relaxed);
        let counter = Arc::clone(&decoded);
        let count = move |_: ItemRef<'_>| Ok::<_, ItemError>(counter.fetch_add(1, Ordering::Relaxed));
        let mut items = parallel(pods_with(&once(&server), count), order, 2);
        let (mut delivered, mut ahead) = (0, 0);
        while items.try_next().await.unwrap().is_some() {
            delivered += 1;
            ahead = ahead.max(decoded.load(Ordering::Relaxed) - delivered);
        }
        // Four batches, and the batch that is being delivered.
        assert!((1..5 * (256 << 10) / largest).contains(&ahead), "{ahead} items were decoded ahead");
        assert_eq!(delivered, u64::from(PODS));
    }
}

#[tokio::test]
async fn dropping_ends_the_threads_and_the_connection() {
    let server = serve(Answer::ok(Body::synthesize(body()).stall_at(2_000_000))).await;
    let (held, gone) = channel::<()>();
    let own = move |_: ItemRef<'_>| {
        let _held = &held;
        Ok::<_, ItemError>(())
    };
    let mut items = parallel(pods_with(&once(&server), own), Order::Listed, 2);
    items.try_next().await.unwrap().unwrap();
    drop(items);
    // The threads hold the closure until they end.
    assert_eq!(gone.recv(), Err(RecvError));
    while server.connections() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_panic_resumes_in_the_consumer() {
    let server = serve(Answer::ok(Body::synthesize(body()))).await;
    for order in ORDERS {
        let own = |item: ItemRef<'_>| {
            assert_ne!(item.index(), 100, "on purpose");
            Ok::<_, ItemError>(())
        };
        let mut items = parallel(pods_with(&once(&server), own), order, 2);
        let mut delivered = 0;
        let panic = loop {
            match AssertUnwindSafe(items.next()).catch_unwind().await {
                Ok(item) => {
                    item.unwrap().unwrap();
                    delivered += 1;
                }
                Err(panic) => break panic,
            }
        };
        assert!(panic.downcast_ref::<String>().unwrap().contains("on purpose"));
        let error = items.next().await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Decode(error) if matches!(error.kind(), DecodeErrorKind::Poisoned)));
        assert_eq!(error.items(), delivered);
        assert!(items.next().await.is_none() && items.summary().is_none());
    }
}
