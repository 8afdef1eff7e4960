//! Protobuf lists: the decoder returns what prost reads from the full body, for every chunking.

mod faults;
mod properties;
mod recorded;
mod splits;

use std::ops::Range;

use crate::support::reference;

/// Returns the positions of the items in a body: prost decodes their bytes, which occur in the body in the same order.
fn places(body: &[u8]) -> Vec<Range<usize>> {
    let mut from = 0;
    let items = reference(body).unwrap().items;
    let place = |item: Vec<u8>| {
        let start = from + body[from..].windows(item.len()).position(|window| window == item).unwrap();
        from = start + item.len();
        start..from
    };
    items.into_iter().map(place).collect()
}
