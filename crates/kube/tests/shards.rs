//! The example `shards` assigns each shard to one replica, moves no more shards than necessary, and then changes
//! nothing.

#[path = "../examples/shards/assignment.rs"]
mod assignment;

use std::collections::{BTreeMap, BTreeSet};

use assignment::assign;

#[test]
fn balances_shards_and_moves_as_few_as_possible() {
    for (replicas, holders, expected) in [
        ("", "- - -", ""),
        ("a", "- - -", "a:012"),
        ("a b c", "- - -", "a:0 b:1 c:2"),
        // A replica joins.
        ("a b", "a a a", "a:01 b:2"),
        ("a b c", "a a b", "a:0 b:2 c:1"),
        ("a b c", "b a b", "a:1 b:0 c:2"),
        // A replica has ended; its shard is still held, or free.
        ("a c", "a b c", "a:01 c:2"),
        ("a c", "a - c", "a:01 c:2"),
        ("b c", "- b c", "b:01 c:2"),
        // More replicas than shards.
        ("a b c d", "d - a", "a:2 b:1 c: d:0"),
        ("a b", "a a b b a", "a:014 b:23"),
        ("a b c", "a a b b", "a:01 b:2 c:3"),
    ] {
        let holders: Vec<_> = holders.split(' ').map(|holder| Some(holder).filter(|holder| *holder != "-")).collect();
        let replicas: BTreeSet<_> = replicas.split_whitespace().collect();
        let written = |assigned: BTreeMap<&str, BTreeSet<u32>>| {
            let each = assigned.into_iter().map(|(replica, shards)| {
                format!("{replica}:{}", shards.iter().map(u32::to_string).collect::<String>())
            });
            each.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(written(assign(&replicas, &holders)), expected, "{replicas:?} of {holders:?}");
    }
}

/// Once each replica holds its assigned shards, the assignment is the same again.
#[test]
fn an_assignment_is_stable() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let replicas: BTreeSet<_> = names.into_iter().filter(|_| random.bool()).collect();
        let holders: Vec<_> = (0..random.usize(..20)).map(|_| random.choice(names).filter(|_| random.bool())).collect();
        let assigned = assign(&replicas, &holders);
        let owner = |shard| assigned.iter().find(|(_, shards)| shards.contains(&shard)).map(|(replica, _)| *replica);
        let owners: Vec<_> = (0..).zip(&holders).map(|(shard, _)| owner(shard)).collect();
        let counts = assigned.values().map(BTreeSet::len);
        assert_eq!(counts.clone().sum::<usize>(), if replicas.is_empty() { 0 } else { holders.len() });
        assert!(counts.clone().max() <= counts.min().map(|fewest| fewest + 1), "{assigned:?}");
        assert_eq!(assign(&replicas, &owners), assigned);
    }
}
