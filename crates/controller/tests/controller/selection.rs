//! Which changes a controller selects, requests for all objects, and caches that controllers share.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures::channel::mpsc;
use futures::{StreamExt as _, stream};
use listwatch_cache::{CacheWriter, ObjectKey, Predicate, Written};
use listwatch_controller::{Action, Controller, Source};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::*;

/// An object with these fields in its metadata.
fn with(name: &str, version: u64, metadata: &Value, owners: &[Owner<'_>]) -> Value {
    let mut object = owned(name, version, owners);
    for (field, value) in metadata.as_object().unwrap() {
        object["metadata"][field] = value.clone();
    }
    object
}

#[tokio::test(start_paused = true)]
async fn a_predicate_selects_the_changes_that_request_reconciles() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    let predicate = Predicate::generation().or(Predicate::finalizers());
    let controller = Controller::new(Source::new(main.cache.clone()).predicate_filter(predicate));
    let task = run(controller, &log, 0.0, await_change);
    let put = |version: u64, metadata: Value| {
        main.events.send::<Main>("MODIFIED", with("a", version, &metadata, &[]));
    };
    for (metadata, expected) in [
        // The first reconcile does not depend on the predicate.
        (None, "0 a@1, 0 done a"),
        (Some(json!({"generation": 1})), "1 a@2, 1 done a"),
        (Some(json!({"generation": 1, "labels": {"a": "b"}})), ""),
        (Some(json!({"generation": 1, "finalizers": ["f"]})), "3 a@4, 3 done a"),
        // The request to delete, as the API server writes it.
        (
            Some(json!({"generation": 2, "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z"})),
            "4 a@5, 4 done a",
        ),
        (Some(json!({"generation": 2, "finalizers": ["f"], "annotations": {"a": "b"}})), ""),
        // Another object of the same name.
        (Some(json!({"generation": 2, "finalizers": ["f"], "uid": "another"})), "6 a@7, 6 done a"),
    ] {
        if let Some(metadata) = metadata {
            let version = main.cache.resource_version().parse::<u64>().unwrap() + 1;
            put(version, metadata);
        }
        sleep(seconds(1.0)).await;
        assert_eq!(log.take(), expected);
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn predicates_select_changes_of_owned_and_watched_objects() {
    for is_owned in [true, false] {
        let (main, pods) = (Collection::<Main>::of(["a", "b"]), Collection::<Pods>::of([]));
        let log = Log::new();
        let controller = Controller::new(main.cache.clone());
        let controller = if is_owned {
            controller.owns(Source::new(pods.cache.clone()).predicate_filter(Predicate::labels()))
        } else {
            let labelled = Source::new(pods.cache.clone()).predicate_filter(Predicate::labels());
            controller.watches(labelled, |pod| {
                pod.meta().unwrap().owner_references().unwrap().map(|owner| key(&owner.name)).collect::<Vec<_>>()
            })
        };
        let task = run(controller, &log, 0.0, await_change);
        sleep(seconds(0.5)).await;
        assert_eq!(log.take(), "0 a@1, 0 b@1, 0 done a, 0 done b");
        let (a, b) = ([("v1", "ConfigMap", "a")], [("v1", "ConfigMap", "b")]);
        for (event, labels, owners, expected) in [
            ("ADDED", json!({}), &a, "a@1"),
            ("MODIFIED", json!({}), &a, ""),
            ("MODIFIED", json!({"x": "y"}), &a, "a@1"),
            // The new owner alone changes no label.
            ("MODIFIED", json!({"x": "y"}), &b, ""),
            ("MODIFIED", json!({}), &a, "a@1 b@1"),
            ("DELETED", json!({}), &a, "a@1"),
        ] {
            let version = pods.cache.resource_version().parse::<u64>().unwrap() + 1;
            pods.events.send::<Pods>(event, with("pod", version, &json!({ "labels": labels }), owners));
            sleep(seconds(1.0)).await;
            let lines = log.take();
            let starts = lines.split(", ").filter_map(|line| line.split_once(' ')).map(|(_, text)| text);
            let starts: Vec<_> = starts.filter(|text| !text.starts_with("done")).collect();
            assert_eq!(starts.join(" "), expected, "{event} {labels} {owners:?}");
        }
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_trigger_requests_all_objects() {
    let names: Vec<_> = (0..2000).map(|n| format!("o-{n}")).collect();
    let main = Collection::<Main>::of(names.iter().map(String::as_str));
    let log = Log::new();
    let (trigger, triggers) = mpsc::unbounded();
    // A trigger that ends does not end the controller.
    let controller =
        Controller::new(main.cache.clone()).reconcile_all_on(stream::iter([()])).reconcile_all_on(triggers);
    let task = run(controller, &log, 0.1, await_change);
    let starts = || {
        let lines = log.take();
        let lines = lines.split(", ").filter_map(|line| line.split_once(' '));
        let mut starts: Vec<_> = lines.map(|(_, text)| text).filter(|text| text.contains('@')).collect();
        let all = starts.len();
        starts.sort_unstable();
        starts.dedup();
        (starts.len(), all)
    };
    sleep(seconds(60.0)).await;
    let (objects, all) = starts();
    assert!(objects == 2000 && all <= 4000, "{all}");
    for burst in [1, 1, 500] {
        (0..burst).for_each(|_| trigger.unbounded_send(()).unwrap());
        sleep(seconds(60.0)).await;
        assert_eq!(starts(), (2000, 2000), "{burst}");
    }
    // While a round runs: one more round. Deleted objects are skipped, and new ones are reconciled.
    trigger.unbounded_send(()).unwrap();
    sleep(seconds(0.5)).await;
    (0..500).for_each(|_| trigger.unbounded_send(()).unwrap());
    main.delete("o-1", 2, &[]);
    main.put("p", 3);
    sleep(seconds(60.0)).await;
    let (objects, all) = starts();
    assert!((2000..=2001).contains(&objects) && all <= 4002, "{objects} {all}");
    drop(trigger);
    main.put("p", 4);
    sleep(seconds(1.0)).await;
    assert_eq!(starts(), (1, 1));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn controllers_share_caches_and_their_watches() {
    let (main, pods) = (Collection::<Main>::of(["a"]), Collection::<Pods>::of([]));
    let [first, second, third] = [(); 3].map(|()| Log::new());
    let controller = || Controller::new(main.cache.clone()).owns(pods.cache.clone());
    let ended = run(controller().graceful_shutdown_on(sleep(seconds(5.0))), &first, 0.0, await_change);
    let watches = controller().watches(main.cache.clone(), |object| [object.key()]);
    let dropped = run(watches, &second, 0.0, await_change);
    sleep(seconds(1.0)).await;
    main.put("a", 2);
    sleep(seconds(1.0)).await;
    pods.put_owned("pod", 2, &[("v1", "ConfigMap", "a")]);
    sleep(seconds(1.0)).await;
    for log in [&first, &second] {
        assert_eq!(log.take(), "0 a@1, 0 done a, 1 a@2, 1 done a, 2 a@2, 2 done a");
    }
    // One shuts down, and the other continues.
    ended.await.unwrap();
    assert_eq!(first.take(), "5 end");
    main.put("a", 3);
    sleep(seconds(1.0)).await;
    assert_eq!(second.take(), "5 a@3, 5 done a");
    // One is dropped, and one starts later.
    dropped.abort();
    let task = run(controller(), &third, 0.0, await_change);
    sleep(seconds(1.0)).await;
    pods.delete("pod", 3, &[("v1", "ConfigMap", "a")]);
    sleep(seconds(1.0)).await;
    assert_eq!(third.take(), "6 a@3, 6 done a, 7 a@3, 7 done a");
    for events in [&main.events, &pods.events] {
        assert_eq!((events.watches.load(SeqCst), events.requests.load(SeqCst)), (1, 1));
    }
    // The end of a reflector ends each controller of its cache.
    pods.reflector.abort();
    task.await.unwrap();
    assert!(third.take().ends_with("its task was aborted, or its runtime has shut down, 8 end"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_on_written_caches() {
    let (main, pods) = (CacheWriter::<Main>::of(), CacheWriter::<Pods>::of());
    let log = Log::new();
    let controller = Controller::new(main.cache()).owns(pods.cache());
    let task = run(controller, &log, 0.0, |_| Ok(Action::requeue(Duration::from_secs(100))));
    let decoded = |object: Value| serde_json::from_value(object).unwrap();
    sleep(seconds(1.0)).await;
    main.apply_decoded(&decoded(object("a", 5))).unwrap();
    sleep(seconds(1.0)).await;
    let pod = serde_json::from_value(owned("pod", 2, &[("v1", "ConfigMap", "a")])).unwrap();
    pods.apply_decoded(&pod).unwrap();
    sleep(seconds(1.0)).await;
    pods.delete(("ns", "pod")).unwrap();
    sleep(seconds(1.0)).await;
    main.delete(&key("a")).unwrap();
    sleep(seconds(200.0)).await;
    assert_eq!(log.take(), "1 a@5, 1 done a, 2 a@5, 2 done a, 3 a@5, 3 done a");
    assert!(!task.is_finished());
    task.abort();
}

/// An object of a namespace, with a label `app`.
fn placed(namespace: &str, name: &str, app: &str, version: u64) -> Value {
    let mut object = object(name, version);
    object["metadata"]["namespace"] = namespace.into();
    object["metadata"]["labels"] = json!({ "app": app });
    object
}

#[tokio::test(start_paused = true)]
async fn a_controller_reconciles_only_the_objects_that_its_source_selects() {
    let writer = CacheWriter::<Main>::of();
    let put = |object: &Value| writer.apply(listwatch::Encoding::Json, object.to_string().as_bytes()).unwrap();
    for object in [placed("ns", "a", "web", 1), placed("ns", "b", "db", 2), placed("other", "c", "web", 3)] {
        put(&object);
    }
    let labels = || Source::new(writer.cache()).labels("app=web".parse().unwrap());
    let sources = [
        Source::new(writer.cache()),
        Source::new(writer.cache()).namespace("ns"),
        labels(),
        labels().namespace("ns"),
        labels().filter(|object| object.name() != "a"),
    ];
    let other_c = || ObjectKey { namespace: "other".into(), name: "c".into() };
    let (mut logs, mut tasks) = (Vec::new(), Vec::new());
    for source in sources {
        let log = Log::new();
        // All objects are requested once more, selected or not.
        let later =
            |keys: Vec<ObjectKey>| stream::once(sleep(seconds(5.0))).flat_map(move |()| stream::iter(keys.clone()));
        let controller = Controller::new(source).reconcile_on(later(vec![key("a"), key("b"), other_c()]));
        tasks.push(run(controller, &log, 0.0, await_change));
        logs.push(log);
    }
    let starts = || {
        let lines = logs.iter().map(|log| {
            let lines = log.take();
            let starts = lines.split(", ").filter_map(|line| line.split_once(' ')).map(|(_, text)| text);
            starts.filter(|text| text.contains('@')).collect::<Vec<_>>().join(" ")
        });
        lines.collect::<Vec<_>>()
    };
    sleep(seconds(1.0)).await;
    assert_eq!(starts(), ["a@1 b@2 c@3", "a@1 b@2", "a@1 c@3", "a@1", "c@3"], "first objects");
    sleep(seconds(5.0)).await;
    assert_eq!(starts(), ["a@1 b@2 c@3", "a@1 b@2", "a@1 c@3", "a@1", "c@3"], "requested objects");
    // b is selected from now on, and c no more.
    for object in [placed("ns", "b", "web", 4), placed("other", "c", "db", 5)] {
        put(&object);
        sleep(seconds(1.0)).await;
    }
    assert_eq!(starts(), ["b@4 c@5", "b@4", "b@4", "b@4", "b@4"], "changed objects");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn additions_modifications_and_deletions_are_selected_by_a_function_and_the_part() {
    type Select = fn(&Written<'_, Pods>) -> bool;
    for (name, select, expected) in [
        ("additions", (|written| matches!(written, Written::Added(_))) as Select, "2 a@1, 6 b@1"),
        ("modifications", |written| matches!(written, Written::Modified { .. }), "3 a@1, 4 a@1, 4 b@1, 5 b@1"),
        ("deletions", |written| matches!(written, Written::Deleted { .. }), "7 b@1"),
        ("of a version", |written| written.states().any(|pod| pod.resource_version() == "3"), "3 a@1, 4 a@1, 4 b@1"),
    ] {
        let (main, pods) = (Collection::<Main>::of(["a", "b"]), Collection::<Pods>::of([]));
        let log = Log::new();
        let source = Source::new(pods.cache.clone()).write_filter(select).filter(|pod| pod.name() != "ignored");
        let task = run(Controller::new(main.cache.clone()).owns(source), &log, 0.0, await_change);
        sleep(seconds(1.0)).await;
        log.take();
        let (a, b) = ([("v1", "ConfigMap", "a")], [("v1", "ConfigMap", "b")]);
        for (event, pod, version, owners) in [
            ("ADDED", "pod", 2, &a),
            ("MODIFIED", "pod", 3, &a),
            ("MODIFIED", "pod", 4, &b),
            ("MODIFIED", "pod", 5, &b),
            ("ADDED", "late", 6, &b),
            ("DELETED", "pod", 7, &b),
            ("ADDED", "ignored", 8, &a),
            ("DELETED", "ignored", 9, &a),
        ] {
            sleep(seconds(1.0)).await;
            pods.events.send::<Pods>(event, owned(pod, version, owners));
        }
        sleep(seconds(1.0)).await;
        let lines = log.take();
        let starts: Vec<_> = lines.split(", ").filter(|line| line.contains('@')).collect();
        assert_eq!(starts.join(", "), expected, "{name}");
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_selects_own_additions_and_modifications() {
    let main = Collection::<Main>::of(["a"]);
    let log = Log::new();
    let source = Source::new(main.cache.clone()).write_filter(|written| !matches!(written, Written::Added(_)));
    let task = run(Controller::new(source), &log, 0.0, await_change);
    sleep(seconds(1.0)).await;
    main.put("b", 2);
    sleep(seconds(1.0)).await;
    main.put("b", 3);
    sleep(seconds(1.0)).await;
    // The first reconcile of `a` does not depend on the function.
    assert_eq!(log.take(), "0 a@1, 0 done a, 2 b@3, 2 done b");
    task.abort();
}
