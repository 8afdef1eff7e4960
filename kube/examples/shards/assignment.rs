//! Who is to have which shard. All replicas come to the same, and while they do not, leases keep them apart.

use std::collections::{BTreeMap, BTreeSet};

/// The shards of each replica that is there, given who holds each: it keeps what it holds, a shard of nobody goes to one
/// with the fewest, and nobody has two more than another.
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
