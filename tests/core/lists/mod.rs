//! Protobuf lists: the decoder returns what prost reads from the full body, for every chunking.

mod faults;
mod properties;
mod recorded;
mod splits;

use std::ops::Range;

use crate::support::reference;

/// Where the items of a body are: prost decodes their bytes, which follow one another in the body.
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
