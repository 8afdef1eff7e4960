//! Reflectors against a model of a server: after any faults of connections, lists and versions, the store and each subscriber
//! converge to the server's objects; also across saves and restarts.
//!
//! Each schedule runs in paused time. `SEED=N cargo test --test reflector model` runs only the schedule of a failure.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::cases;
use crate::support::world::{Objects, World, each_schedule};
use fastrand::Rng;
use futures::StreamExt as _;
use listwatch::cache::{Change, Object, SaveError, StorageFormat, Store, Subscriber};
use listwatch::client::{Client, Resource};
use listwatch::reflector::{Reflector, Strategy};
use tokio::time::sleep;

/// How often each event occurred in the schedules.
#[derive(Debug, Default)]
struct Met {
    syncs: u64,
    errors: u64,
    changes: u64,
    deletions: u64,
    unknown_final_states: u64,
    resyncs: u64,
    restored: u64,
}

/// How the saves and loads of restarts ended.
#[derive(Debug, Default)]
struct Restarts {
    saved: u64,
    not_saved: u64,
    loaded: u64,
    not_loaded: u64,
    /// Loaded caches that never requested the collection.
    warm: u64,
}

#[test]
fn converges_with_a_strategy_by_default() {
    converges(None);
}

#[test]
fn converges_with_a_watch_list() {
    converges(Some(Strategy::WatchList));
}

#[test]
fn converges_with_a_list_before_the_watch() {
    converges(Some(Strategy::ListThenWatch));
}

#[test]
fn converges_with_a_watch_before_the_list() {
    converges(Some(Strategy::WatchFirst));
}

fn converges(strategy: Option<Strategy>) {
    let met = Arc::new(Mutex::new(Met::default()));
    let schedules = cases(150, 2000);
    let are_all = each_schedule(schedules, async |seed| run(seed, strategy, &met, None).await);
    let met = met.lock().unwrap();
    let Met { syncs, errors, changes, deletions, unknown_final_states, resyncs, restored } = *met;
    let least = [syncs, errors, changes, deletions, unknown_final_states, resyncs, restored].into_iter().min();
    // With fewer, the schedules would not cover these events.
    assert!(least >= Some((schedules / 4).min(100)) || !are_all, "{met:?}");
}

#[test]
fn converges_across_saves_and_restarts() {
    let (met, mut restarts) = (Arc::default(), Restarts::default());
    let schedules = cases(225, 2000);
    let are_all = each_schedule(schedules, async |seed| {
        let strategies = [None, Some(Strategy::WatchList), Some(Strategy::ListThenWatch), Some(Strategy::WatchFirst)];
        let strategy = strategies[Rng::with_seed(seed).usize(..4)];
        run(seed, strategy, &met, Some(&mut restarts)).await;
    });
    let Restarts { saved, not_saved, loaded, not_loaded, warm } = restarts;
    let least = [saved, not_saved, loaded, not_loaded, warm].into_iter().min();
    assert!(least >= Some((schedules / 5).min(100)) || !are_all, "{restarts:?}");
}

async fn run(seed: u64, strategy: Option<Strategy>, met: &Arc<Mutex<Met>>, restarts: Option<&mut Restarts>) {
    let world = if seed.is_multiple_of(4) { World::that_goes_back(seed) } else { World::new(seed) };
    let mut rng = Rng::with_seed(seed);
    // The seed of the library's random waits.
    fastrand::seed(seed);
    let client = Client::new(world.clone());
    tokio::spawn(world.clone().live());
    let mut reflector = new_reflector(&client, strategy, &mut rng);
    let mut lists = None;
    if let Some(restarts) = restarts {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config-maps");
        for _ in 0..rng.u8(1..4) {
            let cache = reflector.cache();
            let run = tokio::spawn(reflector.run());
            sleep(Duration::from_millis(rng.u64(..200_000))).await;
            match cache.save(&path) {
                Ok(()) => restarts.saved += 1,
                Err(SaveError::Incomplete) => restarts.not_saved += 1,
                Err(error) => panic!("{error}"),
            }
            // The file does not have the changes from here on.
            sleep(Duration::from_millis(rng.u64(..200_000))).await;
            run.abort();
            reflector = new_reflector(&client, strategy, &mut rng);
            lists = reflector.load(&path).await.ok().map(|()| (world.lists(), &mut restarts.warm));
            *if lists.is_some() { &mut restarts.loaded } else { &mut restarts.not_loaded } += 1;
        }
    }
    let cache = reflector.cache();
    let reflector = tokio::spawn(reflector.run());

    let mut views = Vec::new();
    for _ in 0..rng.u8(1..4) {
        let view = Arc::new(Mutex::new(Objects::new()));
        let wants: fn(&str) -> bool = if rng.bool() { |_| true } else { |version| !version.ends_with('7') };
        let subscribe = cache.subscribe().with_initial_state();
        let subscriber = subscribe.filter(move |object| wants(object.resource_version())).start();
        tokio::spawn(consume(world.clone(), subscriber, Arc::clone(&view), rng.fork(), Arc::clone(met)));
        views.push((view, wants));
    }

    for _ in 0..2000 {
        // Long enough for stalled requests to time out.
        sleep(Duration::from_secs(3600)).await;
        let server = world.objects_at(&world.version());
        let store: Objects = cache.snapshot().iter().map(|object| see(&object)).collect();
        if !world.is_calm() || !cache.is_synced() || store != server {
            assert!(!reflector.is_finished(), "the reflector ended: {:?}", reflector.await);
            continue;
        }
        // Long enough for the pauses of the subscribers to end.
        sleep(Duration::from_secs(3600)).await;
        for (view, wants) in &views {
            let wanted = server.clone().into_iter().filter(|(_, (_, version))| wants(version)).collect::<Objects>();
            assert_eq!(*view.lock().unwrap(), wanted, "the view of a subscriber");
        }
        let status = cache.status();
        if world.sends_bookmarks() {
            assert_eq!(status.resource_version.as_deref(), Some(&*world.version()), "bookmarks advance the version");
        }
        if let Some((before, warm)) = lists {
            *warm += u64::from(world.lists() == before);
        }
        let mut met = met.lock().unwrap();
        met.syncs += status.syncs;
        met.errors += status.errors;
        met.restored += u64::from(world.restored());
        reflector.abort();
        return;
    }
    let server = world.objects_at(&world.version());
    let store: Objects = cache.snapshot().iter().map(|object| see(&object)).collect();
    panic!("no convergence: {:?}, server {server:?} at {}, store {store:?}", cache.status(), world.version());
}

fn new_reflector(client: &Client, strategy: Option<Strategy>, rng: &mut Rng) -> Reflector<[u8]> {
    let format = if rng.bool() { StorageFormat::Encoded } else { StorageFormat::Decoded };
    let reflector = Reflector::<[u8]>::new(client, &Resource::CONFIG_MAPS).store(Store::new(format));
    match strategy {
        Some(strategy) => reflector.strategy(strategy),
        None => reflector,
    }
}

async fn consume(
    world: World,
    mut subscriber: Subscriber<[u8]>,
    view: Arc<Mutex<Objects>>,
    mut rng: Rng,
    met: Arc<Mutex<Met>>,
) {
    while let Some(change) = subscriber.next().await {
        {
            let (mut view, mut met) = (view.lock().unwrap(), met.lock().unwrap());
            match change {
                Change::Applied { old: known, new } => {
                    let (name, new) = see(&new);
                    let old = view.insert(name.clone(), new.clone());
                    assert_eq!(known.map(|known| see(&known).1), old, "{name}");
                    if let Some(old) = old {
                        let is_newer = at(&new.1) > at(&old.1) || world.restored() > 0;
                        assert!(is_newer, "{name}: {new:?} after {old:?}");
                    }
                    met.changes += 1;
                }
                Change::Deleted { old, last, final_state_unknown } => {
                    let (name, _) = see(&last);
                    assert_eq!(view.remove(&name), Some(see(&old).1), "{name} was in the view");
                    met.deletions += 1;
                    met.unknown_final_states += u64::from(final_state_unknown);
                }
                Change::Synced => met.resyncs += 1,
                change => panic!("{change:?}"),
            }
        }
        if rng.u8(..10) == 0 {
            sleep(Duration::from_secs(rng.u64(..300))).await;
        }
    }
}

fn see(object: &Object<[u8]>) -> (String, (u64, String)) {
    (object.name().to_owned(), (object.uid().parse().unwrap(), object.resource_version().to_owned()))
}

fn at(version: &str) -> u64 {
    version.trim_start_matches('v').parse().unwrap()
}
