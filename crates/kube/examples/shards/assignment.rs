//! Assigns shards to replicas. All replicas compute the same assignment; while they see different Leases, the Leases
//! prevent conflicts.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the shards of each replica, given the holder of each shard. A free shard goes to a replica with the fewest
/// shards. A replica keeps its shards, unless it has at least two more than another replica.
pub fn assign<'n>(replicas: &BTreeSet<&'n str>, holders: &[Option<&str>]) -> BTreeMap<&'n str, BTreeSet<u32>> {
    let mut assigned: BTreeMap<_, BTreeSet<_>> = replicas.iter().map(|&replica| (replica, BTreeSet::new())).collect();
    let mut free = Vec::new();
    for (shard, holder) in (0..).zip(holders) {
        match holder.and_then(|holder| assigned.get_mut(holder)) {
            Some(shards) => drop(shards.insert(shard)),
            None => free.push(shard),
        }
    }
    for shard in free {
        if let Some(fewest) = assigned.values_mut().min_by_key(|shards| shards.len()) {
            fewest.insert(shard);
        }
    }
    loop {
        let mut by_count: Vec<_> = assigned.values_mut().collect();
        by_count.sort_by_key(|shards| shards.len());
        match &mut by_count[..] {
            [fewest, .., most] if most.len() > fewest.len() + 1 => fewest.extend(most.pop_last()),
            _ => return assigned,
        }
    }
}
