//! Reflectors that divide a collection into shards, against a model of a server that supports or ignores shards: after
//! any faults, the caches are disjoint, and together they have the collection. The schedules are as in `model`.

use std::sync::Mutex;
use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Client, Resource, Selection};
use listwatch_cache::Object;
use listwatch_cache::{Cache, Reflector, Strategy};
use tokio::time::sleep;

use crate::support::cases;
use crate::support::world::{Objects, World, each_schedule, hash};

const SHARDS: u32 = 3;

#[test]
fn shards_add_up_to_the_collection_if_the_server_supports_them() {
    add_up(true);
}

#[test]
fn shards_add_up_to_the_collection_if_the_server_ignores_them() {
    add_up(false);
}

fn add_up(knows_shards: bool) {
    for strategy in [None, Some(Strategy::WatchList), Some(Strategy::ListThenWatch), Some(Strategy::WatchFirst)] {
        println!("{strategy:?}");
        let objects = Mutex::new([0; SHARDS as usize]);
        let schedules = cases(40, 2000);
        let are_all = each_schedule(schedules, async |seed| run(seed, strategy, knows_shards, &objects).await);
        let objects = objects.lock().unwrap();
        // With fewer, the schedules would not cover each shard.
        assert!(
            !are_all || objects.iter().all(|&objects| objects > usize::try_from(schedules / 3).unwrap().min(100)),
            "{objects:?}"
        );
    }
}

async fn run(seed: u64, strategy: Option<Strategy>, knows_shards: bool, met: &Mutex<[usize; SHARDS as usize]>) {
    let world = World::new(seed);
    world.knows_shards(knows_shards);
    // The seed of the library's random waits.
    fastrand::seed(seed);
    let shards = (0..SHARDS).map(|index| Shard::new(index, SHARDS).unwrap());
    let start = |shard: Shard| {
        let client = Client::new(world.clone());
        let options = Selection::all().shard(shard);
        let reflector = Reflector::<[u8]>::new(&client, &Resource::CONFIG_MAPS).selection(options);
        let reflector = match strategy {
            Some(strategy) => reflector.strategy(strategy),
            None => reflector,
        }
        .prepare();
        let cache = reflector.cache();
        tokio::spawn(reflector.run());
        (shard, cache)
    };
    let caches: Vec<(Shard, Cache<[u8]>)> = shards.map(start).collect();
    tokio::spawn(world.clone().live());

    for _ in 0..2000 {
        // Long enough for stalled requests to time out.
        sleep(Duration::from_secs(3600)).await;
        let server = world.objects_at(&world.version());
        let shards: Vec<Objects> = caches.iter().map(|(_, cache)| objects(cache)).collect();
        for ((shard, _), objects) in caches.iter().zip(&shards) {
            for (uid, _) in objects.values() {
                assert!(shard.hashes().contains(&hash(*uid)), "{uid} is not in shard {shard}");
            }
        }
        // Two shards may have objects of one name, with different uids, for a while.
        let together: Objects = shards.iter().flatten().map(|(name, object)| (name.clone(), object.clone())).collect();
        let are_disjoint = together.len() == shards.iter().map(Objects::len).sum::<usize>();
        if world.is_calm() && caches.iter().all(|(_, cache)| cache.is_synced()) && together == server && are_disjoint {
            met.lock().unwrap().iter_mut().zip(&shards).for_each(|(met, shard)| *met += shard.len());
            return;
        }
    }
    panic!("the caches do not converge: {caches:?}");
}

fn objects(cache: &Cache<[u8]>) -> Objects {
    let see = |object: Object<[u8]>| {
        (object.name().to_owned(), (object.uid().parse().unwrap(), object.resource_version().to_owned()))
    };
    cache.snapshot().iter().map(see).collect()
}
