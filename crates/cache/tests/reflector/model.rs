//! Reflectors against a model of a server: after any faults of connections, lists and versions, the store and each
//! subscriber converge to the server's objects; also across saves and restarts.
//!
//! Each schedule runs in paused time. `SEED=N cargo test --test reflector model` runs only the schedule of a failure.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use listwatch::client::{Client, Resource};
use listwatch::{Encoding, EventType};
use listwatch_cache::{ApplyOutcome, Cache, PreparedReflector, Reflector, Strategy};
use listwatch_cache::{Change, ChangeLogLimits, FileError, Object, StorageFormat, Store, Subscriber};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::support::cases;
use crate::support::world::{Kind, Objects, World, each_schedule};

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
    own_writes: u64,
    /// Changes that readers of change logs got, and the readers that had to begin again.
    logged: u64,
    resumed: u64,
    expired: u64,
    caught_up: u64,
    /// The readers that resumed from the log of a restarted cache, and those that it made begin again.
    resumed_after_restart: u64,
    expired_after_restart: u64,
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
    let schedules = cases(100, 2000);
    let are_all = each_schedule(schedules, async |seed| run(seed, strategy, &met, None).await);
    let met = met.lock().unwrap();
    let Met { syncs, errors, changes, deletions, unknown_final_states, resyncs, restored, own_writes, .. } = *met;
    let log = [met.logged, met.resumed, met.expired, met.caught_up];
    let least = [syncs, errors, changes, deletions, unknown_final_states, resyncs, restored, own_writes]
        .into_iter()
        .chain(log)
        .min();
    // With fewer, the schedules would not cover these events.
    assert!(least >= Some((schedules / 4).min(100)) || !are_all, "{met:?}");
}

#[test]
fn converges_across_saves_and_restarts() {
    let (met, mut restarts) = (Arc::<Mutex<Met>>::default(), Restarts::default());
    let schedules = cases(120, 2000);
    let are_all = each_schedule(schedules, async |seed| {
        let strategies = [None, Some(Strategy::WatchList), Some(Strategy::ListThenWatch), Some(Strategy::WatchFirst)];
        let strategy = strategies[Rng::with_seed(seed).usize(..4)];
        run(seed, strategy, &met, Some(&mut restarts)).await;
    });
    let Restarts { saved, not_saved, loaded, not_loaded, warm } = restarts;
    let Met { resumed_after_restart, expired_after_restart, .. } = *met.lock().unwrap();
    let readers = [resumed_after_restart, expired_after_restart];
    let least = [saved, not_saved, loaded, not_loaded, warm].into_iter().chain(readers).min();
    assert!(least >= Some((schedules / 5).min(100)) || !are_all, "{restarts:?}, {readers:?}");
}

async fn run(seed: u64, strategy: Option<Strategy>, met: &Arc<Mutex<Met>>, restarts: Option<&mut Restarts>) {
    let world = if seed.is_multiple_of(4) { World::that_goes_back(seed) } else { World::new(seed) };
    let mut rng = Rng::with_seed(seed);
    // The seed of the library's random waits.
    fastrand::seed(seed);
    let client = Client::new(world.clone());
    tokio::spawn(world.clone().live());
    let written = Arc::new(Mutex::new(None));
    if seed % 4 > 1 {
        write_own_changes(&world, &written, rng.fork(), met);
    }
    let mut reflector = new_reflector(&client, strategy, &mut rng, &written);
    let (current, readers) = watch::channel(Some(reflector.cache()));
    let mut followers = Vec::new();
    for _ in 0..rng.u8(1..4) {
        let view = Arc::new(Mutex::new(Objects::new()));
        tokio::spawn(follow(world.clone(), readers.clone(), Arc::clone(&view), rng.fork(), Arc::clone(met)));
        followers.push(view);
    }
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
                Err(FileError::Incomplete) => restarts.not_saved += 1,
                Err(error) => panic!("{error}"),
            }
            // The file does not have the changes from here on.
            sleep(Duration::from_millis(rng.u64(..200_000))).await;
            // Readers lose their connections.
            current.send_replace(None);
            run.abort();
            reflector = new_reflector(&client, strategy, &mut rng, &written);
            lists = reflector.load(&path).await.ok().map(|()| (world.lists(), &mut restarts.warm));
            *if lists.is_some() { &mut restarts.loaded } else { &mut restarts.not_loaded } += 1;
            current.send_replace(Some(reflector.cache()));
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
        // The log is closed if versions have no order, or if the last change had no version of its own and nothing
        // followed.
        let has_log = cache.change_log().start.is_some();
        // A reader cannot know that its version is of the history before a restore, if the server has passed the
        // version.
        for view in followers.iter().filter(|_| has_log && world.restored() == 0) {
            assert_eq!(*view.lock().unwrap(), server, "the view of a reader of the log");
        }
        let status = cache.status();
        if world.sends_bookmarks() {
            assert_eq!(status.resource_version.as_deref(), Some(&*world.version()), "bookmarks advance the version");
        }
        if let Some((before, warm)) = lists {
            *warm += u64::from(world.lists() == before);
        }
        let mut met = met.lock().unwrap();
        met.caught_up += u64::from(has_log);
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

/// The cache and the store of the reflector that runs.
type Written = Arc<Mutex<Option<(Cache<[u8]>, Store<[u8]>)>>>;

/// Lets a controller make some changes: it writes the answers to its writes and deletions to the cache. A server that
/// goes back makes all its changes itself: the cache would keep an answer of the lost history until the watch passes
/// it.
fn write_own_changes(world: &World, written: &Written, rng: Rng, met: &Arc<Mutex<Met>>) {
    let (written, rng, met) = (Arc::clone(written), Mutex::new(rng), Arc::clone(met));
    world.written_by(move |change| {
        let written = written.lock().unwrap();
        let is_own = change.has_own_version() && rng.lock().unwrap().bool();
        let Some((cache, store)) = written.as_ref().filter(|_| is_own) else { return };
        let has_changed = if change.kind == Kind::Deleted {
            // A change log takes no notice of the deletion of an object that the store does not have yet.
            let known = store.get(("default", &*change.name));
            known.is_some_and(|known| known.uid() == change.uid.to_string())
                && store.delete(Encoding::Protobuf, &change.object()).unwrap().is_some()
        } else {
            let written = cache.apply(Encoding::Protobuf, &change.object()).unwrap();
            matches!(written, Some(ApplyOutcome::Added(_) | ApplyOutcome::Modified { .. }))
        };
        met.lock().unwrap().own_writes += u64::from(has_changed);
    });
}

fn new_reflector(
    client: &Client,
    strategy: Option<Strategy>,
    rng: &mut Rng,
    written: &Written,
) -> PreparedReflector<[u8]> {
    let format = if rng.bool() { StorageFormat::Encoded } else { StorageFormat::Compressed };
    let mut limits = ChangeLogLimits::default();
    if rng.bool() {
        limits.bytes = rng.usize(..20_000);
        limits.age = Duration::from_secs(rng.u64(..3_000));
    }
    let store = Store::new(format);
    let reflector = Reflector::new(client, &Resource::CONFIG_MAPS).store(store.clone()).change_log(limits);
    let reflector = match strategy {
        Some(strategy) => reflector.strategy(strategy).prepare(),
        None => reflector.prepare(),
    };
    *written.lock().unwrap() = Some((reflector.cache(), store));
    reflector
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
                Change::Applied { old: known, new, .. } => {
                    let (name, new) = see(&new);
                    let old = view.insert(name.clone(), new.clone());
                    assert_eq!(known.map(|known| see(&known).1), old, "{name}");
                    if let Some(old) = old {
                        let is_newer = at(&new.1) > at(&old.1) || world.restored() > 0;
                        assert!(is_newer, "{name}: {new:?} after {old:?}");
                    }
                    met.changes += 1;
                }
                Change::Deleted { old, last, final_state_unknown, .. } => {
                    let (name, (uid, _)) = see(&last);
                    let exists = world.objects_at(&world.version()).get(&name).is_some_and(|now| now.0 == uid);
                    assert!(!exists || !final_state_unknown || world.restored() > 0, "{name} still exists");
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

/// Reads a change log, as readers of a mirror do: the objects of one version, then the changes, and again after an
/// expired version. After a restart it resumes from the log of the new cache. After each change the view must equal the
/// server's objects at that version.
async fn follow(
    world: World,
    mut current: watch::Receiver<Option<Cache<[u8]>>>,
    view: Arc<Mutex<Objects>>,
    mut rng: Rng,
    met: Arc<Mutex<Met>>,
) {
    // A server that was restored has two states of one version. Deletions without a version of their own follow it.
    let check = |view: &Objects, version: &str| {
        if world.restored() == 0 {
            let states = world.states_at(version);
            assert!(states.contains(view), "{view:?} at version {version}, not one of {states:?}");
        }
    };
    loop {
        let Some(snapshot) = running(&mut current).await.exact_snapshot() else {
            sleep(Duration::from_secs(rng.u64(..100))).await;
            continue;
        };
        let mut version = snapshot.resource_version().to_owned();
        // The newest version of the view. A reader that gets changes again is at an older version for a while.
        let mut known = version.clone();
        *view.lock().unwrap() = snapshot.iter().map(|object| see(&object)).collect();
        check(&view.lock().unwrap(), &version);
        drop(snapshot);
        let mut has_restarted = false;
        loop {
            let has_begun_again = mem::take(&mut has_restarted);
            let resumed = running(&mut current).await.changes_after(&version);
            if has_begun_again {
                let mut met = met.lock().unwrap();
                *if resumed.is_ok() { &mut met.resumed_after_restart } else { &mut met.expired_after_restart } += 1;
            }
            let Ok(mut changes) = resumed else { break };
            let mut left = rng.u32(..50);
            loop {
                let change = tokio::select! {
                    biased;
                    _ = current.changed() => {
                        has_restarted = true;
                        break;
                    }
                    change = changes.next() => change,
                };
                let Some(Ok(change)) = change else { break };
                let mut view = view.lock().unwrap();
                let (name, object) = see(&change.object());
                let old = match change.kind() {
                    EventType::Deleted => view.remove(&name),
                    _ => view.insert(name, object),
                };
                change.resource_version().clone_into(&mut version);
                // Changes without a version of their own may be repeated, and those after them.
                if at(&version) > at(&known) {
                    assert_eq!(change.old().map(|old| see(&old).1), old, "{change:?}");
                    assert_eq!(change.kind() == EventType::Added, old.is_none(), "{change:?}");
                }
                if at(&version) >= at(&known) {
                    version.clone_into(&mut known);
                    check(&view, &version);
                }
                met.lock().unwrap().logged += 1;
                left = left.saturating_sub(1);
                if left == 0 {
                    break;
                }
            }
            let caught_up = changes.resource_version().to_owned();
            assert!(at(&caught_up) >= at(&version));
            if left > 0 && !has_restarted {
                break;
            }
            version = caught_up;
            if at(&version) >= at(&known) {
                version.clone_into(&mut known);
                check(&view.lock().unwrap(), &version);
            }
            drop(changes);
            sleep(Duration::from_secs(rng.u64(..200))).await;
            met.lock().unwrap().resumed += 1;
        }
        met.lock().unwrap().expired += 1;
    }
}

/// Waits until there is a cache.
async fn running(current: &mut watch::Receiver<Option<Cache<[u8]>>>) -> Cache<[u8]> {
    current.wait_for(Option::is_some).await.unwrap().clone().unwrap()
}

fn see(object: &Object<[u8]>) -> (String, (u64, String)) {
    (object.name().to_owned(), (object.uid().parse().unwrap(), object.resource_version().to_owned()))
}

fn at(version: &str) -> u64 {
    version.trim_start_matches('v').parse().unwrap()
}
