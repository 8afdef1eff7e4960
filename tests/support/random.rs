//! Seeded randomness: where to split a body, and what the randomized tests have in common.
//!
//! A program includes this file in addition to `support`, because only tests depend on proptest.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

use crate::support::seeds::seed;
use crate::support::{cases, len_field, tag, varint};

/// The configuration of a randomized test: seeded, and without files of failures.
pub fn randomized(quick: u32, thorough: u32) -> ProptestConfig {
    ProptestConfig {
        cases: u32::try_from(cases(quick.into(), thorough.into())).unwrap(),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    }
}

/// A body up to this size is split at every position.
const SHORT: usize = 2 << 10;

/// The distance from a boundary up to which a longer body is split at every position.
///
/// It covers a whole header: a tag and a length have at most 15 bytes, the length of a frame 4, and the JSON between
/// two items is a comma. JSON is scanned in blocks of 16 bytes.
const NEAR: usize = 16;

/// The number of random positions at which a longer body is split in addition.
const SAMPLE: u64 = 200;

/// The positions at which to split a body with these boundaries between its items or frames.
///
/// A decoder changes its state at a boundary or in the header after it. Elsewhere it copies or scans the bytes of one
/// item, and every prefix that ends there is incomplete in the same way. So a longer body is split at every position
/// near a boundary and near its own start and end, and at a seeded sample of the others; with `LISTWATCH_THOROUGH` at
/// every position.
pub fn splits(len: usize, boundaries: impl IntoIterator<Item = usize>) -> impl Iterator<Item = usize> {
    let is_thorough = cases(0, 1) == 1;
    let mut splits = BTreeSet::new();
    if is_thorough || len <= SHORT {
        splits.extend(0..=len);
    } else {
        for boundary in boundaries.into_iter().chain([0, len]) {
            splits.extend(boundary.saturating_sub(NEAR)..=(boundary + NEAR).min(len));
        }
        let mut random = fastrand::Rng::with_seed(seed());
        splits.extend((0..SAMPLE).map(|_| random.usize(0..=len)));
    }
    splits.into_iter()
}

/// Lengths of chunks, to be used in turn.
pub fn chunk_lengths() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..10_usize, 1..2000_usize], 1..20)
}

/// A body with bytes inserted, removed or replaced; a quarter of the edits replace one of its `first` bytes.
pub fn edited(
    body: impl Strategy<Value = Vec<u8>>,
    byte: impl Strategy<Value = u8>,
    first: usize,
) -> impl Strategy<Value = Vec<u8>> {
    (body, vec((any::<Index>(), byte, 0..4_u8), 1..6)).prop_map(move |(mut body, edits)| {
        for (place, byte, edit) in edits {
            let place = place.index(if edit == 3 { body.len().min(first) } else { body.len() });
            match edit {
                0 => body.insert(place, byte),
                1 if body.len() > 1 => drop(body.remove(place)),
                _ => body[place] = byte,
            }
        }
        body
    })
}

/// A protobuf field with a number that no message has, of any wire type but a group.
pub fn unknown_leaf() -> impl Strategy<Value = Vec<u8>> {
    let number = 14..1000_u32;
    prop_oneof![
        (number.clone(), vec(any::<u8>(), 0..50)).prop_map(|(number, value)| len_field(number, &value)),
        (number.clone(), any::<u64>()).prop_map(|(number, value)| varint_field(number, value)),
        (number.clone(), any::<[u8; 4]>()).prop_map(|(number, value)| [&tag(number, 5)[..], &value].concat()),
        (number, any::<[u8; 8]>()).prop_map(|(number, value)| [&tag(number, 1)[..], &value].concat()),
    ]
}

/// A protobuf field with a number as its value.
pub fn varint_field(number: u32, value: u64) -> Vec<u8> {
    let mut field = tag(number, 0);
    varint(value, &mut field);
    field
}
