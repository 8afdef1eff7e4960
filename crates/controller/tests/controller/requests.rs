//! Which changes request which reconciles, and when.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use listwatch_cache::Object;
use listwatch_controller::{Action, Controller};
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn reconciles_all_objects_once_all_caches_are_synced() {
    let main = Collection::<Main>::of(["a", "b"]);
    let (owned, mapped) = (Collection::<Pods>::unsynced(), Collection::<Pods>::unsynced());
    let log = Log::new();
    let controller = Controller::new(main.cache.clone()).owns(owned.cache.clone());
    run(controller.watches(mapped.cache.clone(), |_| [key("a")]), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    owned.events.send::<Pods>("ADDED", self::owned("pod", 1, &[("v1", "ConfigMap", "a")]));
    owned.sync();
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "");
    mapped.events.send::<Pods>("ADDED", object("pod", 1));
    mapped.sync();
    sleep(seconds(1.0)).await;
    // The initial state of the other caches requests no more reconciles.
    assert_eq!(log.take(), "2 a@1, 2 b@1, 2 done a, 2 done b");
}

#[tokio::test(start_paused = true)]
async fn requests_of_an_object_are_deduplicated_and_none_is_lost() {
    let main = Collection::<Main>::of(["a", "b"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).concurrency(1), &log, 10.0, await_change);
    sleep(seconds(1.0)).await;
    // b waits while a runs.
    for version in 2..=4 {
        main.put("b", version);
        sleep(seconds(1.0)).await;
    }
    // a changes while it runs, so it is reconciled again; not twice at once, as `run` asserts.
    main.put("a", 5);
    sleep(seconds(1.0)).await;
    main.put("a", 6);
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "0 a@1, 10 b@4, 10 done a, 20 a@6, 20 done b, 30 done a");
}

#[tokio::test(start_paused = true)]
async fn debounce_waits_after_the_first_change() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).debounce(seconds(5.0)), &log, 0.0, await_change);
    sleep(seconds(9.0)).await;
    for version in 10..=20 {
        sleep(seconds(1.0)).await;
        main.put("a", version);
    }
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "5 a@1, 5 done a, 15 a@14, 15 done a, 20 a@19, 20 done a, 25 a@20, 25 done a");
}

#[tokio::test(start_paused = true)]
async fn an_action_requeues_unless_a_change_comes_first() {
    for (action, expected) in [
        (Action::await_change(), "0 a@1, 25 a@2"),
        (Action::requeue(seconds(10.0)), "0 a@1, 10 a@1, 20 a@1, 25 a@2, 35 a@2"),
        (Action::requeue(Duration::MAX), "0 a@1, 25 a@2"),
    ] {
        let main = Collection::<Main>::of(["a"]);
        let log = Log::new();
        let controller = run(Controller::new(main.cache.clone()), &log, 0.0, move |_| Ok(action));
        sleep(seconds(25.0)).await;
        main.put("a", 2);
        sleep(seconds(11.0)).await;
        controller.abort();
        let starts: Vec<_> = log.take().split(", ").filter(|line| !line.contains("done")).map(String::from).collect();
        assert_eq!(starts.join(", "), expected, "{action:?}");
    }
}

/// Errors back off per object: the delays double up to 5 minutes, plus jitter of up to a half, and a success resets
/// them.
#[tokio::test(start_paused = true)]
async fn errors_back_off_per_object() {
    let main = Collection::<Main>::of(["fails", "works"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()), &log, 0.0, |object| match (object.name(), object.resource_version()) {
        ("fails", "1") => Err(io::Error::other("no such luck")),
        // The result of a reconciler counts too.
        ("fails", "3") => Ok(Action::backoff()),
        _ => Ok(Action::await_change()),
    });
    let delays = |expected: Vec<f64>| {
        let lines = log.take();
        let starts: Vec<f64> = lines
            .split(", ")
            .filter(|line| line.contains(" fails@"))
            .map(|line| line.split_once(' ').unwrap().0.parse().unwrap())
            .collect();
        let delays: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(delays.len(), expected.len(), "{delays:?}");
        for (delay, expected) in delays.iter().zip(expected) {
            assert!((expected - 0.02..expected * 1.5 + 0.02).contains(delay), "{delay} for {expected} of {delays:?}");
        }
        assert!(delays.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-3), "jitter: {delays:?}");
        assert!(lines.matches("works@").count() <= 1, "{lines}");
        lines
    };
    let all = || (0..15).map(|n| f64::from(1 << n) * 0.1).map(|delay: f64| delay.min(300.0)).collect::<Vec<_>>();
    sleep(seconds(0.1 * 1.25 + 1e-3)).await;
    while log.lines.lock().unwrap().iter().filter(|line| line.contains(" fails@")).count() < 16 {
        sleep(seconds(1.0)).await;
    }
    let lines = delays(all());
    let error = "error the reconciler failed for ns/fails: no such luck";
    assert_eq!(lines.matches(error).count(), 16, "{lines}");
    // A change is reconciled at once; its success resets the delay.
    main.put("fails", 2);
    sleep(seconds(400.0)).await;
    assert!(log.take().ends_with("done fails"));
    main.put("fails", 3);
    // Three delays take at most 1.05 s, four at least 1.5 s.
    sleep(seconds(1.4)).await;
    let lines = delays(vec![0.1, 0.2, 0.4].into_iter().take(3).collect());
    assert!(!lines.contains("error"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn reconciles_the_owners_of_changed_objects() {
    const MINE: &str = "ConfigMap";
    let main = Collection::<Main>::of(["a", "b"]);
    let pods = Collection::<Pods>::of(["p"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).owns(pods.cache.clone()), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "0 a@1, 0 b@1, 0 done a, 0 done b");
    let owners = [("v1", MINE, "a"), ("v1", MINE, "absent"), ("apps/v1", MINE, "b"), ("v1", "Secret", "b")];
    pods.put_owned("p", 2, &owners);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "1 a@1, 1 done a", "only owners of this kind and group that exist");
    pods.put_owned("p", 3, &[("v2", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "2 a@1, 2 b@1, 2 done a, 2 done b", "the old and the new owner, of any version");
    pods.delete("p", 4, &[("v2", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "3 b@1, 3 done b");
    pods.put_owned("p", 5, &[("v1", MINE, "b")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "4 b@1, 4 done b");
    pods.put_owned("p", 6, &[("v1", MINE, "a")]);
    pods.delete("p", 7, &[("v1", MINE, "a")]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "5 a@1, 5 b@1, 5 done a, 5 done b", "the former owner, too");
}

#[tokio::test(start_paused = true)]
async fn owners_in_states_that_were_coalesced_are_reconciled() {
    for (late, expected) in [
        // A Pod that exists only while the stream is not polled: b is reconciled between its creation and its deletion.
        ("DELETED", "10 b@1"),
        // The Pod belonged to b for a moment.
        ("MODIFIED", "10 b@1, 10 c@1"),
    ] {
        let main = Collection::<Main>::of(["a", "b", "c"]);
        let pods = Collection::<Pods>::of([]);
        let log = Log::new();
        let reconciled = log.clone();
        let items = Controller::new(main.cache.clone()).owns(pods.cache.clone()).run(
            move |object: Object<Main>, _| {
                reconciled.add(written(&object));
                async { Ok::<_, io::Error>(Action::await_change()) }
            },
            |_, _, _| Action::backoff(),
            Arc::new(()),
        );
        // The consumer of the stream sleeps after the first three items.
        tokio::spawn(async move {
            let mut items = std::pin::pin!(items);
            for _ in 0..3 {
                items.next().await;
            }
            sleep(seconds(10.0)).await;
            items.for_each(async |_| {}).await;
        });
        sleep(seconds(1.0)).await;
        assert_eq!(log.take(), "0 a@1, 0 b@1, 0 c@1");
        pods.put_owned("p", 2, &[("v1", "ConfigMap", "b")]);
        sleep(seconds(1.0)).await;
        assert!(pods.cache.get(&key("p")).is_some());
        let owners: &[Owner<'_>] =
            if late == "DELETED" { &[("v1", "ConfigMap", "b")] } else { &[("v1", "ConfigMap", "c")] };
        pods.events.send::<Pods>(late, owned("p", 3, owners));
        sleep(seconds(20.0)).await;
        assert_eq!(log.take(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_the_objects_that_a_mapper_or_a_stream_names() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let pods = Collection::<Pods>::of(["p"]);
    let log = Log::new();
    // A Pod named p is mapped to the object that its version names.
    let mapper = |pod: &Object<Pods>| match pod.resource_version() {
        "1" => vec![key("a")],
        _ => vec![key("b"), key("b")],
    };
    let requests = stream::iter(["c", "absent", "c"]).then(async |name| {
        sleep(seconds(5.0)).await;
        key(name)
    });
    let controller = Controller::new(main.cache.clone()).watches(pods.cache.clone(), mapper);
    run(controller.reconcile_on(requests), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    log.take();
    pods.put("p", 2);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "1 a@1, 1 b@1, 1 done a, 1 done b", "for the old and the new state");
    pods.delete("p", 3, &[]);
    sleep(seconds(1.0)).await;
    assert_eq!(log.take(), "2 b@1, 2 done b", "for the last state");
    sleep(seconds(100.0)).await;
    assert_eq!(log.take(), "5 c@1, 5 done c, 15 c@1, 15 done c");
}

/// After random changes of 20 objects and their owned objects, each object was reconciled after its last change.
#[tokio::test(start_paused = true)]
async fn no_change_is_lost() {
    let mut random = fastrand::Rng::with_seed(seed());
    for case in 0..50 {
        let names: Vec<_> = (0..20).map(|n| format!("o-{n}")).collect();
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let pods = Collection::<Pods>::of([]);
        let (debounce, limit, takes) = (random.f64() * random.f64() * 3.0, random.u16(..8), random.f64() * 3.0);
        let controller = Controller::new(main.cache.clone()).owns(pods.cache.clone());
        let log = Log::new();
        // The version of the latest Pod that the last reconcile of each object saw.
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let result = {
            let (seen, pods, results) = (Arc::clone(&seen), pods.cache.clone(), Mutex::new(random.fork()));
            move |object: &Object<Main>| {
                let pod = pods.get(("ns", object.name())).map(|pod| pod.resource_version().to_owned());
                seen.lock().unwrap().insert(object.name().to_owned(), (object.resource_version().to_owned(), pod));
                match results.lock().unwrap().u8(..6) {
                    0 => Err(io::Error::other("no such luck")),
                    1 => Ok(Action::requeue(seconds(2.0))),
                    2 => Ok(Action::requeue(seconds(1000.0))),
                    _ => Ok(Action::await_change()),
                }
            }
        };
        let task = run(controller.debounce(seconds(debounce)).concurrency(limit), &log, takes, result);
        for version in 2..200 {
            let name = random.choice(&names).unwrap();
            match random.u8(..5) {
                0 => main.delete(name, version, &[]),
                1 => pods.delete(name, version, &[("v1", "ConfigMap", name)]),
                2 | 3 => pods.put_owned(name, version, &[("v1", "ConfigMap", name)]),
                _ => main.put(name, version),
            }
            sleep(seconds(random.f64() * 0.5)).await;
        }
        sleep(seconds(300.0)).await;
        assert!(!task.is_finished());
        let seen = seen.lock().unwrap();
        for object in main.cache.snapshot().iter() {
            let pod = pods.cache.get((object.namespace(), object.name())).map(|pod| pod.resource_version().to_owned());
            let current = (object.resource_version().to_owned(), pod);
            assert_eq!(seen.get(object.name()), Some(&current), "{}, case {case}", object.name());
        }
        task.abort();
    }
}
