//! A watch of a model server: whatever happens to connections, the consumer gets each change once and in order, in
//! paused time. `SEED=N cargo test --test watch model` runs only the schedule of a failure.

use std::time::Duration;

use listwatch::ItemRef;
use listwatch::client::{Client, Resource, WatchEvent, WatchParams};
use tokio::time::{sleep, timeout};

use crate::support::cases;
use crate::support::world::{Change, Kind, Objects, World, each_schedule};

/// The number of times that each thing happened, in all schedules.
#[derive(Debug, Default)]
struct Met {
    changes: u64,
    resets: u64,
    expired: u64,
    disconnects: u64,
    lists: u64,
}

#[test]
fn delivers_each_change_once_and_in_order() {
    let schedules = cases(500, 10_000);
    let mut met = Met::default();
    let are_all = each_schedule(schedules, async |seed| run(seed, &mut met).await);
    println!("{met:?}");
    // Otherwise the schedules do not test it.
    let Met { changes, resets, expired, disconnects, lists } = met;
    let least = [changes, resets, expired, disconnects, lists].into_iter().min().unwrap();
    assert!(least >= schedules / 100 || !are_all, "{least}");
}

async fn run(seed: u64, met: &mut Met) {
    let world = if seed.is_multiple_of(2) { World::new(seed) } else { World::that_shares_versions(seed) };
    let client = Client::new(world.clone());
    let mut rng = fastrand::Rng::with_seed(seed);
    // The library's own waits are random, too.
    fastrand::seed(seed);
    tokio::spawn(world.clone().live());
    let whole_run = async {
        loop {
            if converge(&world, &client, &mut rng, met).await {
                return;
            }
            met.expired += 1;
        }
    };
    // No schedule takes this long.
    assert!(timeout(Duration::from_secs(1_000_000), whole_run).await.is_ok(), "the watch does not converge");
    assert!(world.requests() < 3000, "{} requests", world.requests());
}

/// Returns true once the consumer has the final state, and false if the version expired.
async fn converge(world: &World, client: &Client, rng: &mut fastrand::Rng, met: &mut Met) -> bool {
    let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
    let watch = client.watch_with(&Resource::CONFIG_MAPS, &WatchParams::with_initial_state(), see);
    let starts_over = rng.bool();
    let watch = if starts_over { watch.start_over() } else { watch };
    let mut watch = watch.on_disconnect(move |disconnect| {
        let _ = disconnects.send(disconnect.lists);
    });
    let mut view = Objects::new();
    // The number of changes so far, once the collection is complete.
    let mut so_far: Option<usize> = None;
    loop {
        // Once the server is calm, an hour without events is the end.
        let is_calm = world.is_calm();
        let Ok(next) = timeout(Duration::from_secs(3600), watch.next()).await else {
            if !is_calm {
                continue;
            }
            assert_eq!(view, world.objects_at(&world.version()));
            assert!(so_far.is_some(), "never synced");
            if world.sends_bookmarks() {
                assert_eq!(watch.resource_version(), Some(&*world.version()), "bookmarks advance the version");
            }
            while let Ok(lists) = disconnected.try_recv() {
                met.disconnects += 1;
                met.lists += u64::from(lists);
            }
            return true;
        };
        let event = match next.expect("the watch ends only in an error") {
            Ok(event) => event,
            Err(error) => {
                assert!(error.is_expired() && so_far.is_some() && !starts_over, "{error}");
                return false;
            }
        };
        let seen = match event {
            WatchEvent::Added(object) => change(Kind::Added, object),
            WatchEvent::Modified(object) => change(Kind::Modified, object),
            WatchEvent::Deleted(object) => change(Kind::Deleted, object),
            WatchEvent::Synced { resource_version } => {
                assert_eq!(so_far, None, "synced twice");
                assert_eq!(view, world.objects_at(&resource_version), "at version {resource_version}");
                so_far = Some(world.changes_until(&resource_version));
                continue;
            }
            WatchEvent::Reset => {
                assert!(so_far.is_none() || starts_over, "reset after it was synced");
                so_far = None;
                view.clear();
                met.resets += 1;
                continue;
            }
            other => panic!("{other:?}"),
        };
        if let Some(so_far) = &mut so_far {
            met.changes += 1;
            let next = world.change_after(*so_far).expect("the change did not happen");
            assert!(seen.is(&next), "{seen:?}, expected {next:?}");
            *so_far += 1;
        }
        seen.apply(&mut view);
        // A consumer may be slow.
        if rng.u8(..20) == 0 {
            sleep(Duration::from_secs(rng.u64(..300))).await;
        }
    }
}

type Seen = (String, u64, String);

fn see(item: ItemRef<'_>) -> Result<Seen, listwatch::ItemError> {
    let meta = item.meta()?;
    Ok((meta.name().into_owned(), meta.uid().parse().unwrap(), meta.resource_version().into_owned()))
}

fn change(kind: Kind, (name, uid, version): Seen) -> Change {
    Change::seen(kind, name, uid, version)
}
