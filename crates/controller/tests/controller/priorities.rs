//! Changes that overtake a pass over all objects.

use futures::channel::mpsc;
use listwatch_controller::{Action, Controller};
use tokio::time::sleep;

use crate::support::*;

/// Returns the texts of the reconciles that began.
fn starts(log: &Log) -> Vec<String> {
    let lines = log.take();
    let starts = lines.split(", ").filter(|line| line.contains('@'));
    starts.filter_map(|line| line.split_once(' ')).map(|(_, text)| text.to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_for_the_first_objects_of_a_start() {
    let names: Vec<_> = (1000..3000).map(|n| format!("o-{n}")).collect();
    let main = Collection::<Main>::of(names.iter().map(String::as_str));
    let pods = Collection::<Pods>::of([]);
    let log = Log::new();
    let (trigger, triggers) = mpsc::unbounded();
    let controller = Controller::new(main.cache.clone()).owns(pods.cache.clone()).reconcile_all_on(triggers);
    let task = run(controller.concurrency(1), &log, 1.0, await_change);
    for pass in 1..=2 {
        sleep(seconds(100.5)).await;
        assert_eq!(starts(&log).len(), 101, "pass {pass}");
        // One that was reconciled, one that waits in the queue, one that is far from it, and an owner.
        for (name, version) in [("o-1000", 2), ("o-1150", 3), ("o-2999", 4)] {
            main.put(name, version + 10 * pass);
        }
        pods.put_owned("pod", 5 + 10 * pass, &[("v1", "ConfigMap", "o-2998")]);
        sleep(seconds(5.0)).await;
        let starts_now = starts(&log);
        for name in ["o-1000@", "o-1150@", "o-2999@", "o-2998@"] {
            assert!(starts_now.iter().any(|start| start.starts_with(name)), "pass {pass}: {name} of {starts_now:?}");
        }
        // The rest follows, and each once, except those that had their turn before.
        sleep(seconds(3000.0)).await;
        let rest = starts(&log);
        assert!(rest.len() >= 1890 && rest.len() <= 1900, "pass {pass}: {}", rest.len());
        // The same for a pass that a trigger requests.
        trigger.unbounded_send(()).unwrap();
    }
    task.abort();
}

/// Two objects whose changes keep the only place busy, and one that is requeued all the time.
#[tokio::test(start_paused = true)]
async fn a_constant_stream_of_changes_or_requeues_delays_first_objects_but_does_not_starve_them() {
    let names: Vec<_> = (10..40).map(|n| format!("o-{n}")).collect();
    for requeues in [false, true] {
        let main = Collection::<Main>::of(names.iter().map(String::as_str));
        let log = Log::new();
        let result = move |_: &_| Ok(if requeues { Action::requeue(seconds(0.5)) } else { Action::await_change() });
        let task = run(Controller::new(main.cache.clone()).concurrency(1), &log, 1.0, result);
        for version in 2..600 {
            main.put(if version % 2 == 0 { "o-38" } else { "o-39" }, version);
            sleep(seconds(0.5)).await;
        }
        let seen = starts(&log);
        for name in &names {
            assert!(seen.iter().any(|start| start.starts_with(name.as_str())), "{name} of {seen:?}");
        }
        let changed = seen.iter().filter(|start| start.starts_with("o-38@") || start.starts_with("o-39@")).count();
        assert!(changed > seen.len() / 2, "{changed} of {}", seen.len());
        task.abort();
    }
}
