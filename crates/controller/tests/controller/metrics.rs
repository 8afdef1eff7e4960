//! The figures of a controller.

use std::sync::Arc;

use futures::StreamExt as _;
use listwatch_cache::Object;
use listwatch_controller::{Action, Controller, Durations, Metrics};
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn metrics_count_the_queue_and_the_reconciles_by_result() {
    let main = Collection::<Main>::of(["a", "b", "fails", "panics", "requeues"]);
    let controller = Controller::new(main.cache.clone()).concurrency(2).graceful_shutdown_on(sleep(seconds(50.0)));
    let metrics = controller.metrics();
    assert_eq!(metrics.read(), Metrics::default());
    let reconcile = async |object: Object<Main>, _: Arc<()>| {
        sleep(seconds(2.0)).await;
        match object.name() {
            "fails" => Err(std::io::Error::other("no such luck")),
            "panics" => panic!("scheduled by the test"),
            "requeues" => Ok(Action::requeue(seconds(1000.0))),
            _ => Ok(Action::await_change()),
        }
    };
    let policy = |_: Object<Main>, _: &_, _| Action::requeue(seconds(1000.0));
    let task = tokio::spawn(controller.run(reconcile, policy, Arc::new(())).count());
    sleep(seconds(1.0)).await;
    let Metrics { due, delayed, running, succeeded, .. } = metrics.read();
    assert_eq!((due, delayed, running, succeeded), (3, 0, 2, 0));
    sleep(seconds(2.0)).await;
    let Metrics { due, running, succeeded, durations, .. } = metrics.read();
    assert_eq!((due, running, succeeded, durations.count()), (1, 2, 2, 2));
    // The last first reconcile ends at 6 s, and that of the panic is retried at about 4.1 s for the first time.
    sleep(seconds(3.05)).await;
    let now = metrics.read();
    assert_eq!((now.due, now.delayed, now.running), (0, 2, 1), "{now:?}");
    assert_eq!((now.succeeded, now.requeued, now.failed, now.panicked, now.retries), (2, 1, 1, 1, 2), "{now:?}");
    let buckets: Vec<_> = now.durations.buckets().filter(|(_, count)| *count > 0).collect();
    assert_eq!((buckets, now.durations.sum()), (vec![(2.5, 5)], seconds(10.0)));
    assert_eq!(now.durations.buckets().count(), Durations::BOUNDS.len());
    task.await.unwrap();
    let ended = metrics.read();
    assert_eq!((ended.due, ended.delayed, ended.running), (0, 0, 0));
    assert_eq!(ended.retries, ended.failed + ended.panicked);
    assert_eq!(ended.durations.count(), ended.succeeded + ended.requeued + ended.failed + ended.panicked);
}
