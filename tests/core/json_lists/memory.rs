//! The memory that a decoder of JSON lists allocates, counted.

use allocation_counter::{AllocationInfo, measure};
use listwatch::{Event, Limits, ListDecoder};

use super::{LIST, items, reference};
use crate::support::fixture;

fn count(body: &[u8], chunk: usize, limits: Limits) -> (u64, AllocationInfo) {
    let mut items = 0;
    let counted = measure(|| {
        let mut decoder = ListDecoder::with_limits(limits).accept_json().skip_item_errors(true);
        for mut chunk in body.chunks(chunk) {
            while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                items += u64::from(matches!(event, Event::Item(_)));
            }
        }
        decoder.finish().unwrap();
    });
    (items, counted)
}

#[test]
fn allocations_do_not_grow_with_the_number_of_dropped_items() {
    let list = |times| items(&vec![r#"{"metadata":{"name":"a-\"name\""}}"#; times].join(", "));
    let (few, many) = (list(100), list(30_000));
    for (few_chunk, many_chunk) in [(7, 7), (few.len(), many.len())] {
        let (few_items, few) = count(few.as_bytes(), few_chunk, Limits::default());
        let (many_items, many) = count(many.as_bytes(), many_chunk, Limits::default());
        assert_eq!((few_items, many_items), (100, 30_000));
        assert_eq!((many.count_total, many.bytes_total), (few.count_total, few.bytes_total));
    }
}

/// JSON declares no lengths, so the buffer of an item doubles; at worst it does so for the last byte.
#[test]
fn a_split_item_takes_at_most_three_times_its_length() {
    let body = fixture("pods.json");
    let longest = reference(&body).unwrap().items.iter().map(Vec::len).max().unwrap() as u64;
    for chunk in [1, 7, 1000, 4096, 5000] {
        let (_, counted) = count(&body, chunk, Limits::default());
        assert!(counted.bytes_max <= 3 * longest + 1500, "{} for {longest}, in chunks of {chunk}", counted.bytes_max);
    }
    let (_, counted) = count(&body, body.len(), Limits::default());
    assert!(counted.bytes_max <= 1500, "{} bytes for a body in memory", counted.bytes_max);
}

#[test]
fn unknown_members_and_skipped_items_take_constant_memory() {
    let long = "x".repeat(10 << 20);
    let unknown = format!(r#","{long}":1,"s":"{long}","n":{},"o":{{"{long}":[1]}}"#, "1".repeat(1 << 20));
    let body = LIST.replace(",\"metadata\"", &format!("{unknown},\"metadata\""));
    let oversized = items(&format!(r#"{{"a":"{long}"}},{{}}"#));
    let limits = Limits::default().item_size(1000);
    for (body, expected) in [(body, 2), (oversized, 1)] {
        let (items, counted) = count(body.as_bytes(), 4096, limits);
        assert_eq!(items, expected);
        assert!(counted.bytes_max < 4000, "{} bytes", counted.bytes_max);
    }
}
