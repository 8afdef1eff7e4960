//! Reconciles of deleted and of written objects.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use listwatch_cache::{Cache, Object};
use listwatch_controller::{Action, Controller};
use tokio::time::sleep;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn deleted_objects_are_not_reconciled() {
    let main = Collection::<Main>::of(["a", "b", "c"]);
    let log = Log::new();
    run(Controller::new(main.cache.clone()).concurrency(1), &log, 10.0, |_| Ok(Action::requeue(seconds(100.0))));
    sleep(seconds(5.0)).await;
    // a runs, b and c wait; c is created again.
    ["a", "b", "c"].iter().zip(2..).for_each(|(name, version)| main.delete(name, version, &[]));
    sleep(seconds(1.0)).await;
    main.put("c", 5);
    sleep(seconds(300.0)).await;
    assert_eq!(log.take(), "0 a@1, 10 c@5, 10 done a, 20 done c, 120 c@5, 130 done c, 230 c@5, 240 done c");
    // c is requeued.
    main.delete("c", 6, &[]);
    sleep(seconds(300.0)).await;
    assert_eq!(log.take(), "");
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_never_sees_a_state_older_than_its_own_write() {
    #[derive(Clone, Copy, Debug)]
    enum Way {
        Apply,
        Wait,
    }
    struct Context {
        cache: Cache<Main>,
        events: Events,
        written: Mutex<BTreeMap<String, u64>>,
        way: Way,
    }
    /// Writes a new version, which the watch delivers 5 seconds later.
    async fn reconcile(object: Object<Main>, context: Arc<Context>) -> io::Result<Action> {
        let version = object.resource_version().parse::<u64>().unwrap();
        let last = *context.written.lock().unwrap().entry(object.name().into()).or_default();
        assert!(version >= last, "{} after {last} by {:?}", written(&object), context.way);
        if version >= 20 {
            return Ok(Action::await_change());
        }
        let version = version.max(last) + 2;
        context.written.lock().unwrap().insert(object.name().into(), version);
        let answer = self::object(object.name(), version);
        let events = context.events.clone();
        let event = answer.clone();
        tokio::spawn(async move {
            sleep(seconds(5.0)).await;
            events.send::<Main>("MODIFIED", event);
        });
        match context.way {
            Way::Apply => {
                let answer: ConfigMap = serde_json::from_value(answer).unwrap();
                assert!(context.cache.apply_decoded(&answer).unwrap().is_some());
            }
            Way::Wait => context.cache.wait_for_resource_version(&version.to_string()).await.unwrap(),
        }
        Ok(Action::requeue(seconds(1.0)))
    }
    for way in [Way::Apply, Way::Wait] {
        let main = Collection::<Main>::of(["a"]);
        let (cache, events) = (main.cache.clone(), main.events.clone());
        let context = Arc::new(Context { cache, events, written: Mutex::default(), way });
        let items = Controller::new(main.cache.clone()).run(reconcile, |_, _, _| Action::backoff(), context);
        let task = tokio::spawn(items.for_each(async |item| drop(item.unwrap())));
        sleep(seconds(100.0)).await;
        assert!(!task.is_finished(), "the controller has panicked");
        assert_eq!(main.cache.get(("ns", "a")).unwrap().resource_version(), "21", "{way:?}");
        task.abort();
    }
}
