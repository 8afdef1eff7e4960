//! A watch against a model: whatever happens to connections, the consumer sees what the server saw, each change once and in
//! order; in paused time. `SEED=N cargo test --features zstd --test watch model` runs the schedule of a failure alone.

use std::time::Duration;

use crate::support::cases;
use crate::support::world::{Change, Kind, Objects, World, each_schedule};
use futures::StreamExt;
use listwatch::ItemRef;
use listwatch::client::{Client, OwnedEvent, Resource, WatchParams};
use tokio::time::{sleep, timeout};

/// The sums of what happened in the schedules.
#[derive(Debug, Default)]
struct Met {
    changes: u64,
    restarted: u64,
    expired: u64,
    disconnects: u64,
    lists: u64,
}

#[test]
fn a_view_converges_with_nothing_lost_twice_or_out_of_order() {
    let schedules = cases(500, 2000);
    let mut met = Met::default();
    let are_all = each_schedule(schedules, async |seed| run(seed, &mut met).await);
    println!("{met:?}");
    // Or the schedules would be no test of it.
    let Met { changes, restarted, expired, disconnects, lists } = met;
    let least = [changes, restarted, expired, disconnects, lists].into_iter().min().unwrap();
    assert!(least >= schedules / 100 || !are_all, "{least}");
}

async fn run(seed: u64, met: &mut Met) {
    let world = World::new(seed);
    let client = Client::new(world.clone());
    let mut rng = fastrand::Rng::with_seed(seed);
    // Of the library's own waits.
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
    // There is time for everything.
    assert!(timeout(Duration::from_secs(1_000_000), whole_run).await.is_ok(), "it does not converge");
    assert!(world.requests() < 3000, "{} requests", world.requests());
}

/// Whether the consumer saw all there was to see; else the version had expired.
async fn converge(world: &World, client: &Client, rng: &mut fastrand::Rng, met: &mut Met) -> bool {
    let (disconnects, mut disconnected) = tokio::sync::mpsc::unbounded_channel();
    let watch = client.watch_with(&Resource::CONFIG_MAPS, &WatchParams::with_initial_state(), see);
    let starts_over = rng.bool();
    let watch = if starts_over { watch.resume().start_over() } else { watch.resume() };
    let mut watch = watch.on_disconnect(move |disconnect| {
        let _ = disconnects.send(disconnect.lists);
    });
    let mut view = Objects::new();
    // What is to come next, once the collection is there.
    let mut version = None;
    loop {
        // Nothing happens for an hour once all is quiet.
        let is_calm = world.is_calm();
        let Ok(next) = timeout(Duration::from_secs(3600), watch.next()).await else {
            if !is_calm {
                continue;
            }
            assert_eq!(view, world.objects_at(&world.version()));
            assert!(version.is_some(), "never synced");
            if world.sends_bookmarks() {
                assert_eq!(watch.resource_version(), Some(&*world.version()), "bookmarks move the version");
            }
            while let Ok(lists) = disconnected.try_recv() {
                met.disconnects += 1;
                met.lists += u64::from(lists);
            }
            return true;
        };
        let event = match next.expect("it ends in an error only") {
            Ok(event) => event,
            Err(error) => {
                assert!(error.is_expired() && version.is_some() && !starts_over, "{error}");
                return false;
            }
        };
        let seen = match event {
            OwnedEvent::Added(object) => change(Kind::Added, object),
            OwnedEvent::Modified(object) => change(Kind::Modified, object),
            OwnedEvent::Deleted(object) => change(Kind::Deleted, object),
            OwnedEvent::Synced { resource_version } => {
                assert_eq!(version, None, "synced twice");
                assert_eq!(view, world.objects_at(&resource_version), "at version {resource_version}");
                version = Some(resource_version);
                continue;
            }
            OwnedEvent::Reset => {
                assert!(version.is_none() || starts_over, "restarted when it was synced");
                version = None;
                view.clear();
                met.restarted += 1;
                continue;
            }
            other => panic!("{other:?}"),
        };
        if let Some(version) = &mut version {
            met.changes += 1;
            let next = world.history_behind(version).pop_front().expect("what did not happen came");
            assert!(seen.is(&next), "{seen:?} came, and not {next:?}");
            *version = next.happened_at(world);
        }
        seen.apply(&mut view);
        // A consumer has other things to do.
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
