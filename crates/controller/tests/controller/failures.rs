//! Panics of reconciles, and caches that are not synced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use listwatch::client::{Client, Request, Response, ResponseFuture, Transport};
use listwatch_cache::{Object, Reflector};
use listwatch_controller::{Action, Controller};
use tokio::time::sleep;

use crate::support::*;
use crate::trace;

/// Where a reconciler panics.
#[derive(Clone, Copy, Debug)]
enum Panics {
    InTheFuture,
    BeforeTheFuture,
    InTheErrorPolicy,
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_and_the_object_is_retried_with_backoff() {
    for panics in [Panics::InTheFuture, Panics::BeforeTheFuture, Panics::InTheErrorPolicy] {
        let (logged, _guard) = trace::subscribe();
        let main = Collection::<Main>::of(["bad", "good"]);
        let (log, calls) = (Log::new(), Arc::new(AtomicU32::new(0)));
        let reconcile = {
            let (log, calls) = (log.clone(), Arc::clone(&calls));
            move |object: Object<Main>, _| {
                log.add(written(&object));
                let is_bad = object.name() == "bad" && calls.fetch_add(1, SeqCst) < 3;
                assert!(!(is_bad && matches!(panics, Panics::BeforeTheFuture)), "no {}", object.name());
                async move {
                    match panics {
                        Panics::InTheFuture if is_bad => panic!("no {}", object.name()),
                        Panics::InTheErrorPolicy if is_bad => Err(io::Error::other("no such luck")),
                        _ => await_change(&object),
                    }
                }
            }
        };
        let policy = |object: Object<Main>, _: &io::Error, _| -> Action { panic!("no {}", object.name()) };
        let items = Controller::new(main.cache.clone()).run(reconcile, policy, Arc::new(()));
        let task = tokio::spawn(crate::support::logged(items, log.clone()));
        sleep(seconds(100.0)).await;
        let (lines, name) = (log.take(), format!("{panics:?}"));
        assert_eq!(lines.matches("good@1").count(), 1, "{name}: {lines}");
        let error = match panics {
            Panics::InTheErrorPolicy => "error the reconciler failed for ns/bad: no such luck",
            _ => "error the reconciler panicked for ns/bad: no bad",
        };
        assert_eq!(lines.matches(error).count(), 3, "{name}: {lines}");
        assert!(lines.ends_with(" done bad"), "{name}: {lines}");
        let starts = lines.split(", ").filter(|line| line.contains(" bad@"));
        let starts: Vec<f64> = starts.map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
        for (pair, delay) in starts.windows(2).zip([0.1, 0.2, 0.4]) {
            assert!((delay - 0.02..delay * 1.5 + 0.02).contains(&(pair[1] - pair[0])), "{name}: {lines}");
        }
        // A later change is reconciled as ever.
        main.put("bad", 2);
        sleep(seconds(1.0)).await;
        assert!(log.take().ends_with("100 bad@2, 100 done bad"), "{name}");
        let text = logged.take();
        let errors: Vec<_> = text.lines().filter(|line| line.contains("panicked") && line.contains("ERROR")).collect();
        // The same panic of the same object, once a minute.
        let [line] = &errors[..] else { panic!("{name}: {text}") };
        assert!(line.contains("resource=configmaps object=ns/bad panic=\"no bad\""), "{name}: {line}");
        task.abort();
    }
}

/// A server that allows nothing.
struct Forbidding;

impl Transport for Forbidding {
    fn get(&self, _: Request) -> ResponseFuture<'_> {
        let body = stream::iter([Ok("no list of pods for you".into())]).boxed();
        async { Ok(Response::new(StatusCode::FORBIDDEN, HeaderMap::new(), body)) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_not_synced_in_time_ends_the_controller_with_its_name() {
    let (synced, own, related) =
        (Collection::<Main>::of(["a"]), Collection::<Main>::unsynced(), Collection::<Pods>::unsynced());
    let forbidden = Reflector::<Pods>::of(&Client::new(Forbidding)).spawn();
    for (controller, is_forbidden, expected) in [
        (
            Controller::new(synced.cache.clone()).owns(related.cache.clone()),
            false,
            // The list that the server of this test sends is of another kind, or has no version.
            "120 error the controller has ended: the cache of pods was not synced within 120s: ",
        ),
        (
            Controller::new(own.cache.clone()).owns(related.cache.clone()).cache_sync_timeout(seconds(10.0)),
            false,
            "10 error the controller has ended: the cache of configmaps was not synced within 10s: ",
        ),
        (
            Controller::new(synced.cache.clone()).owns(forbidden).cache_sync_timeout(seconds(10.0)),
            true,
            "10 error the controller has ended: the cache of pods was not synced within 10s: ",
        ),
    ] {
        let log = Log::new();
        run(controller, &log, 0.0, await_change).await.unwrap();
        let lines = log.take();
        assert!(lines.starts_with(expected) && lines.ends_with(" end"), "{lines}");
        assert_eq!(lines.contains("no list of pods for you"), is_forbidden, "{lines}");
    }
    // Without a limit it waits.
    let log = Log::new();
    let controller = Controller::new(own.cache.clone()).cache_sync_timeout(Duration::MAX);
    let task = run(controller, &log, 0.0, await_change);
    sleep(seconds(1000.0)).await;
    own.events.send::<Main>("ADDED", object("a", 1));
    own.sync();
    // The reflector retries within a minute.
    sleep(seconds(100.0)).await;
    let lines = log.take();
    assert!(lines.contains(" a@1, ") && lines.ends_with(" done a") && !lines.contains("error"), "{lines}");
    task.abort();
}
