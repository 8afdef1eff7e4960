//! Concurrency, and the ends of a controller.

use std::error::Error as StdError;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use listwatch::Encoding;
use listwatch_cache::{CacheWriter, EndReason, Object, SyncError};
use listwatch_controller::{Action, CacheError, Controller, Error};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::support::*;
use crate::trace;

#[tokio::test(start_paused = true)]
async fn runs_as_many_reconciles_at_once_as_allowed() {
    let names: Vec<_> = (0..2000).map(|n| format!("o-{n}")).collect();
    let all = names.len();
    for (limit, expected) in [(None, 64), (Some(1), 1), (Some(3), 3), (Some(0), all), (Some(1000), 1000)] {
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let mut controller = Controller::new(main.cache.clone());
        if let Some(limit) = limit {
            controller = controller.concurrency(limit);
        }
        let [running, most, ended] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let reconcile = {
            let [running, most, ended] = [&running, &most, &ended].map(Arc::clone);
            move |_, _| {
                let [running, most, ended] = [&running, &most, &ended].map(Arc::clone);
                async move {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    sleep(seconds(10.0)).await;
                    running.fetch_sub(1, SeqCst);
                    ended.fetch_add(1, SeqCst);
                    Ok::<_, io::Error>(Action::await_change())
                }
            }
        };
        let items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(()));
        let task = tokio::spawn(items.for_each(async |_| {}));
        sleep(seconds(5.0)).await;
        assert_eq!(running.load(SeqCst), expected, "{limit:?}");
        sleep(Duration::from_secs((10 * all / expected + 20) as u64)).await;
        assert_eq!((most.load(SeqCst), ended.load(SeqCst)), (expected, all), "{limit:?}");
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_waits_for_running_reconciles_only() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let log = Log::new();
    let controller = Controller::new(main.cache.clone()).concurrency(2).graceful_shutdown_on(sleep(seconds(15.0)));
    // After 10 s, c runs, and a and b are requeued.
    let done = run(controller, &log, 10.0, |_| Ok(Action::requeue(seconds(6.0))));
    sleep(seconds(12.0)).await;
    main.put("c", 2);
    done.await.unwrap();
    assert_eq!(log.take(), "0 a@1, 0 b@1, 10 c@1, 10 done a, 10 done b, 20 done c, 20 end");
    // Objects that wait do not keep the task busy while the running reconciles end.
    for ends_cache in [false, true] {
        let names: Vec<_> = (0..2000).map(|n| format!("o-{n}")).collect();
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let pods = Collection::<Pods>::of([]);
        let mut controller = Controller::new(main.cache.clone()).owns(pods.cache.clone()).concurrency(4);
        if !ends_cache {
            controller = controller.graceful_shutdown_on(sleep(seconds(5.0)));
        }
        let reconcile = async |_, _| {
            sleep(seconds(10.0)).await;
            Ok::<_, io::Error>(Action::await_change())
        };
        let mut items = Box::pin(controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(())));
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let items = stream::poll_fn(move |cx| {
            counted.fetch_add(1, SeqCst);
            items.poll_next_unpin(cx)
        });
        let done = tokio::spawn(items.count());
        sleep(seconds(4.0)).await;
        if ends_cache {
            pods.reflector.abort();
        }
        sleep(seconds(2.0)).await;
        polls.store(0, SeqCst);
        let items = done.await.unwrap();
        assert_eq!(items, 4 + usize::from(ends_cache));
        assert!(polls.load(SeqCst) <= 10, "{polls:?}");
    }
    // Before the caches are synced.
    let unsynced = Collection::<Main>::unsynced();
    let log = Log::new();
    let controller = Controller::new(unsynced.cache.clone()).graceful_shutdown_on(sleep(seconds(1.0)));
    run(controller, &log, 0.0, await_change).await.unwrap();
    assert_eq!(log.take(), "1 end");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_aborts_running_reconciles() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    let task = run(Controller::new(main.cache.clone()), &log, 10.0, await_change);
    sleep(seconds(1.0)).await;
    let is_running = Arc::downgrade(&log.lines);
    assert_eq!(log.take(), "0 a@1");
    task.abort();
    drop(log);
    sleep(seconds(1.0)).await;
    assert!(is_running.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cache_ends_the_controller() {
    for ends_main in [true, false] {
        let (main, pods) = (Collection::<Main>::of(["a", "b"]), Collection::<Pods>::of([]));
        let log = Log::new();
        let controller = Controller::new(main.cache.clone()).owns(pods.cache.clone()).concurrency(1);
        let done = run(controller, &log, 10.0, await_change);
        sleep(seconds(5.0)).await;
        if ends_main {
            main.reflector.abort();
        } else {
            pods.reflector.abort();
        }
        done.await.unwrap();
        let resource = if ends_main { "configmaps" } else { "pods" };
        let error = format!("5 error the controller has ended: the cache of {resource}: the reflector was dropped");
        let reason = "its task was aborted, or its runtime has shut down";
        assert_eq!(log.take(), format!("0 a@1, {error}: {reason}, 10 done a, 10 end"), "{ends_main}");
    }
    // With an error, before it is synced.
    let refused = Collection::<Main>::over(Events { refuses: true, ..Events::default() });
    let mut items = std::pin::pin!(Controller::new(refused.cache.clone()).run(
        async |_, _| Ok::<_, io::Error>(Action::await_change()),
        |_, _, _| Action::backoff(),
        Arc::new(())
    ));
    let Some(Err(Error::Cache(error))) = items.next().await else { panic!() };
    let CacheError::Ended { error, .. } = *error else { panic!("{error}") };
    let SyncError::Ended(EndReason::Failed(cause)) = error else { panic!("{error}") };
    assert!(format!("{cause:?}").contains("no such luck"), "{cause:?}");
    assert!(items.next().await.is_none());
    // The stream stays at its end.
    assert!(items.next().await.is_none());
}

/// The first runtime reconciles `b`, which is due again after a minute, and `a`, whose reconcile does not end there.
#[test]
fn another_runtime_continues_after_the_first() {
    for first_ends in [true, false] {
        let (logged, _guard) = trace::subscribe();
        let writer = CacheWriter::<Main>::of();
        for name in ["a", "b"] {
            writer.apply(Encoding::Json, object(name, 1).to_string().as_bytes()).unwrap();
        }
        let mut is_first = true;
        let reconcile = move |object: Object<Main>, _: Arc<()>| {
            let is_endless = object.name() == "a" && std::mem::take(&mut is_first);
            async move {
                if is_endless {
                    pending::<()>().await;
                }
                Ok::<_, io::Error>(if object.name() == "b" {
                    Action::requeue(seconds(60.0))
                } else {
                    await_change(&object)?
                })
            }
        };
        let controller = Controller::new(writer.cache()).shutdown_on_signal();
        let mut items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(())).boxed();
        let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let mut names = |runtime: &Runtime| {
            let next = || runtime.block_on(async { timeout(seconds(200.0), items.next()).await.ok() });
            let names = std::iter::repeat_with(next).take(2).map(|item| item.map(|item| item.unwrap().unwrap().0.name));
            names.flatten().collect::<Vec<_>>().join(" ")
        };
        let first = runtime();
        assert_eq!(names(&first), "b b", "{first_ends}");
        let first = (!first_ends).then_some(first);
        assert_eq!(names(&runtime()), if first_ends { "a b" } else { "b b" }, "{first_ends}");
        for _ in 0..2 {
            assert!(items.poll_next_unpin(&mut Context::from_waker(Waker::noop())).is_pending(), "{first_ends}");
        }
        let logged = logged.take();
        assert_eq!(logged.matches("polled outside of a tokio runtime").count(), 1, "{first_ends}: {logged}");
        drop(first);
    }
}

/// The stream of the controller is read by code that ignores its items.
#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_is_logged_with_its_object_and_causes_once_a_minute() {
    let (logged, _guard) = trace::subscribe();
    let main = Collection::<Main>::of(["a"]);
    let boxed =
        async |_: Object<Main>, _| Err(Box::<dyn StdError + Send + Sync>::from(SyncError::Ended(EndReason::Stopped)));
    let typed = async |_: Object<Main>, _| Err(SyncError::Ended(EndReason::Stopped));
    let requeue = Action::requeue(seconds(1.0));
    for is_boxed in [false, true] {
        let controller = Controller::new(main.cache.clone()).graceful_shutdown_on(sleep(seconds(50.0)));
        if is_boxed {
            controller.run(boxed, move |_, _, _| requeue, Arc::new(())).for_each(async |_| {}).await;
        } else {
            controller.run(typed, move |_, _, _| requeue, Arc::new(())).for_each(async |_| {}).await;
        }
        let logged = logged.take();
        let lines: Vec<_> = logged.lines().filter(|line| line.contains("a reconcile failed")).collect();
        let [line] = &lines[..] else { panic!("{logged}") };
        assert!(line.contains("WARN") && line.contains("resource=configmaps object=ns/a "), "{line}");
        assert!(line.contains("the reflector was stopped"), "{line}");
    }
}
