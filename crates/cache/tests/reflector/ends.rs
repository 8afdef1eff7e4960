//! The end of a reflector: what brings it about, and what readers see.

use std::mem::replace;
use std::time::Duration;

use futures::StreamExt as _;
use listwatch::ItemError;
use listwatch::client::{Client, Request, Resource, ResponseFuture, Transport, TransportErrorKind};
use listwatch_cache::{
    Cache, Change, ChangeLogLimits, EndReason, Index, Reflector, StorageFormat, Store, StoreError, SyncError,
};
use tokio::runtime::{Builder, Handle};
use tokio::time::{sleep, timeout};

use crate::script::{LIST, added, idle_watch, list, modified, objects, reflector, requests, scripted, watch};
use crate::support::chain;
use crate::support::config_maps::error;
use crate::support::log::subscribe;
use crate::support::transport::{Answer, Scripted};

/// Answers two requests, and panics at the third.
struct Panics(Scripted);

impl Transport for Panics {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        assert!(self.0.requests() < 2, "no such luck");
        self.0.get(request)
    }
}

/// What the readers of a cache see at the end of its reflector.
async fn seen(cache: &Cache<[u8]>) -> String {
    assert!(!cache.is_running() && !cache.is_up_to_date());
    let reason = cache.status().ended_by.expect("a reason").to_string();
    for result in [cache.synced().await.map(drop), cache.wait_for_resource_version("20").await] {
        match result {
            Err(error @ SyncError::Ended(_)) => assert_eq!(error.to_string(), reason),
            result => panic!("{result:?}"),
        }
    }
    reason
}

/// Returns the changes until the end of the stream, such as `+a = !`.
async fn changes(subscriber: impl futures::Stream<Item = Change<[u8]>>) -> String {
    let shown = |change| match change {
        Change::Applied { new, .. } => format!("+{}", new.name()),
        Change::Deleted { last, .. } => format!("-{}", last.name()),
        Change::Synced => "=".to_owned(),
        Change::Ended(reason) => format!("! {reason}"),
        change => panic!("{change:?}"),
    };
    let changes = subscriber.map(shown).collect::<Vec<_>>();
    timeout(Duration::from_secs(60), changes).await.expect("an end").join(", ")
}

const DROPPED: &str = "the reflector was dropped: its task was aborted, or its runtime has shut down";

#[tokio::test(start_paused = true)]
async fn readers_and_the_log_get_the_reason_of_each_end() {
    for (how, expected, level) in [
        ("stopped", "the reflector was stopped", " INFO"),
        ("aborted", DROPPED, " INFO"),
        ("panicked", "the reflector panicked: no such luck", "ERROR"),
    ] {
        let (log, _guard) = subscribe();
        let script = scripted([list("10", "a@1"), watch([added("b@11")]), idle_watch()]);
        let prepared = match how {
            "panicked" => {
                let client = Client::new(Panics(script));
                let reflector = Reflector::<[u8]>::new(&client, &Resource::CONFIG_MAPS);
                reflector.strategy(listwatch_cache::Strategy::ListThenWatch)
            }
            _ => reflector(script, LIST),
        };
        let prepared = prepared.change_log(ChangeLogLimits::default()).prepare();
        let cache = prepared.cache();
        let before = cache.subscribe().start();
        let by_name = by_name(&cache);
        match how {
            "stopped" => {
                let run = tokio::spawn(prepared.run());
                cache.wait_for_resource_version("11").await.unwrap();
                cache.stop();
                run.await.unwrap().unwrap();
            }
            "aborted" => {
                let run = tokio::spawn(prepared.run());
                cache.wait_for_resource_version("11").await.unwrap();
                run.abort();
                assert!(run.await.unwrap_err().is_cancelled());
            }
            _ => {
                let error = tokio::spawn(prepared.run()).await.unwrap_err();
                assert!(error.is_panic());
            }
        }
        assert_eq!(seen(&cache).await, expected, "{how}");
        // The cache keeps what it has, and says that it was synced.
        assert!(cache.is_synced() && objects(&cache) == "a@1 b@11", "{how}");
        assert_eq!(by_name.count("b"), 1);
        assert!(matches!(cache.changes_after("11"), Err(StoreError::ChangesExpired)));
        // A subscriber that starts now gets the current objects.
        let after = cache.subscribe().with_initial_state().start();
        assert_eq!(changes(before).await, format!("+a, =, +b, ! {expected}"), "{how}");
        assert_eq!(changes(after).await, format!("+a, +b, =, ! {expected}"), "{how}");
        let log = log.take();
        let line = log.lines().find(|line| line.contains("the reflector ended")).unwrap_or_default();
        assert!(line.contains(expected) && line.contains("resource=configmaps"), "{how}: {log}");
        assert!(line.contains(level), "{how}: {line}");
    }
}

#[test]
fn the_end_of_its_runtime_is_the_reason_of_the_end() {
    let (log, _guard) = subscribe();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let cache = runtime.block_on(async {
        let cache = reflector(scripted([list("10", "a@1"), idle_watch()]), LIST).spawn();
        cache.synced().await.unwrap();
        cache
    });
    let before = cache.subscribe().start();
    assert!(cache.is_running());
    drop(runtime);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        assert_eq!(seen(&cache).await, DROPPED);
        assert_eq!(changes(before).await, format!("! {DROPPED}"));
    });
    assert!(log.take().contains(DROPPED));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_the_reason_of_the_end() {
    let (log, _guard) = subscribe();
    let cache = reflector(scripted([Answer::status(400)]), LIST).spawn();
    let before = cache.subscribe().start();
    let Err(SyncError::Ended(EndReason::Failed(error))) = cache.synced().await else { panic!() };
    assert_eq!(error.code(), Some(400));
    let reason = seen(&cache).await;
    assert!(reason.starts_with("the reflector has failed: "), "{reason}");
    assert_eq!(changes(before).await, format!("! {reason}"));
    let log = log.take();
    assert_eq!(log.matches("the reflector ended").count(), 1, "{log}");
    assert!(log.contains("resource=configmaps error="), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_reflector_that_never_ran_has_ended_when_it_is_dropped() {
    let prepared = reflector(scripted([]), LIST).prepare();
    let cache = prepared.cache();
    assert!(cache.is_running() && !cache.is_up_to_date());
    let before = cache.subscribe().start();
    drop(prepared);
    let reason = seen(&cache).await;
    assert_eq!(changes(before).await, format!("! {reason}"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_start_ends_the_reflector_at_its_start() {
    let script = scripted([]);
    let prepared = reflector(script.clone(), LIST).prepare();
    let cache = prepared.cache();
    cache.stop();
    assert!(cache.is_running());
    prepared.run().await.unwrap();
    assert!(!cache.is_running());
    assert_eq!(requests(&script), "");
}

/// Returns the number of tasks after those that are ready have run.
async fn tasks() -> usize {
    sleep(Duration::from_secs(1)).await;
    Handle::current().metrics().num_alive_tasks()
}

fn by_name(cache: &Cache<[u8]>) -> Index<[u8], String> {
    cache.index("name", |object| Ok::<_, ItemError>([object.name().to_owned()]))
}

/// Something that keeps a spawned reflector running.
type Kept = Box<dyn std::any::Any>;

#[tokio::test(start_paused = true)]
async fn a_spawned_reflector_runs_until_its_last_reader_is_dropped() {
    type Keep = fn(Cache<[u8]>) -> Kept;
    let readers: [(&str, Keep); 8] = [
        ("the cache", |cache| Box::new(cache)),
        ("a clone", |cache| Box::new(cache.clone())),
        ("a reader", |cache| Box::new((*cache).clone())),
        ("an index", |cache| Box::new(by_name(&cache))),
        ("a subscriber", |cache| Box::new(cache.subscribe().start())),
        ("a subscriber of an index", |cache| Box::new(by_name(&cache).subscribe("a".to_owned()).start())),
        ("a subscriber before its start", |cache| Box::new(cache.subscribe())),
        ("a cursor", |cache| Box::new(cache.changes_after("10").unwrap())),
    ];
    for (name, keep) in readers {
        let (log, _guard) = subscribe();
        let script = scripted([list("10", "a@1"), watch([]), idle_watch()]);
        let cache = reflector(script.clone(), LIST).change_log(ChangeLogLimits::default()).spawn();
        cache.synced().await.unwrap();
        let kept = keep(cache);
        // The watch ends, and the next one begins.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(requests(&script), "list 0, watch 10, watch 10", "{name}");
        assert_eq!(tasks().await, 1, "{name}");
        drop(kept);
        assert_eq!(tasks().await, 0, "{name}");
        assert!(log.take().contains("the reflector ended"), "{name}");
    }
    // The caller's own store counts, an object and a snapshot do not.
    let store = Store::new(StorageFormat::Encoded);
    let cache = reflector(scripted([list("10", "a@1"), idle_watch()]), LIST).store(store.clone()).spawn();
    cache.synced().await.unwrap();
    let (snapshot, object) = (cache.snapshot(), cache.get(("default", "a")));
    drop(cache);
    assert_eq!(tasks().await, 1);
    drop(store);
    assert_eq!(tasks().await, 0);
    assert_eq!((snapshot.len(), object.is_some()), (1, true));
}

/// The caller owns the future.
#[tokio::test(start_paused = true)]
async fn a_reflector_that_the_caller_runs_needs_no_reader() {
    let script = scripted([list("10", "a@1"), watch([added("b@11")]), idle_watch()]);
    let run = tokio::spawn(reflector(script.clone(), LIST).prepare().run());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(&script), "list 0, watch 10, watch 10");
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_alone_gets_all_changes() {
    let script = scripted([list("10", "a@1"), watch([added("b@11")]), watch([added("c@12")]).then_stalls()]);
    let mut changes = reflector(script, LIST).spawn().subscribe().start();
    for expected in ["a", "b", "c"] {
        loop {
            match changes.next().await {
                Some(Change::Applied { new, .. }) => break assert_eq!(new.name(), expected),
                Some(Change::Synced) => {}
                change => panic!("{change:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_index_function_is_an_error_of_the_object_and_the_cache_continues() {
    let (log, _guard) = subscribe();
    let script = scripted([list("10", "a@1 b@2"), watch([added("c@11"), modified("a@12")]).then_stalls()]);
    let prepared = reflector(script, LIST).prepare();
    let index = prepared.cache().index("name", |object| {
        assert!(!["b", "c"].contains(&object.name()), "no index for {}", object.name());
        Ok::<_, ItemError>([object.resource_version().to_owned()])
    });
    let before = prepared.cache().subscribe().start();
    let cache = prepared.spawn();
    cache.wait_for_resource_version("12").await.unwrap();
    assert!(cache.is_running() && cache.is_up_to_date());
    assert_eq!(objects(&cache), "a@12 b@2 c@11");
    assert_eq!(index.values(), ["12"]);
    let mut errors: Vec<_> = index.errors().iter().map(|error| chain(error)).collect();
    errors.sort();
    let text = |name: &str| format!("index name failed for default/{name}: panicked: no index for {name}");
    assert_eq!(errors, [text("b"), text("c")]);
    let status = cache.status();
    assert_eq!((status.index_errors, status.last_index_error.map(|error| chain(&error))), (2, Some(text("c"))));
    cache.stop();
    // The changes of one object are coalesced.
    assert_eq!(changes(before).await, "+a, +b, =, +c, ! the reflector was stopped");
    let log = log.take();
    for name in ["b", "c"] {
        let line = log.lines().find(|line| line.contains(&text(name))).unwrap_or_default();
        assert!(line.contains("ERROR") && line.contains("the index lacks an object"), "{log}");
    }
}

/// A watch that ends in the usual way makes no difference; an error, a relist and the end do.
#[tokio::test(start_paused = true)]
async fn a_cache_is_up_to_date_while_its_watch_is_open() {
    let seconds = Duration::from_secs;
    let mut watches = vec![
        watch([]).then_ends(seconds(50)),
        watch([added("b@11")]).then(seconds(50), added("c@12")).then_reset(),
        Answer::fails(TransportErrorKind::Connect, "no route"),
        idle_watch().after(seconds(5)).then(seconds(50), error(410)),
    ]
    .into_iter();
    let mut is_listed = false;
    let script = Scripted::by(move |asked, _| match (asked.parameter("watch"), asked.parameter("resourceVersion")) {
        (None, _) if !replace(&mut is_listed, true) => list("10", "a@1").after(seconds(5)),
        (None, _) => list("20", "a@1").after(seconds(5)),
        (Some(_), Some("20")) => idle_watch(),
        (Some(_), _) => watches.next().unwrap_or_else(|| watch([error(410)])),
    });
    let cache = reflector(script, LIST).spawn();
    let mut seen = vec![cache.is_up_to_date()];
    for _ in 0..40_000 {
        sleep(Duration::from_millis(10)).await;
        if seen.last() != Some(&cache.is_up_to_date()) {
            seen.push(cache.is_up_to_date());
        }
    }
    // Until the first sync; until a watch is open after the reset; until the relist.
    assert_eq!(seen, [false, true, false, true, false, true]);
    assert_eq!(cache.resource_version(), "20");
    cache.stop();
    sleep(seconds(1)).await;
    assert!(!cache.is_up_to_date() && cache.is_synced());
}
