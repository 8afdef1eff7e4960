//! The memory that a decoder of lists allocates, counted.

use allocation_counter::{AllocationInfo, measure};
use listwatch::{Event, ListDecoder};
use listwatch_testserver::Synthesizer;

use crate::support::{fixture, len_field, reference, tag, varint};

fn config_maps(items: u32) -> Vec<u8> {
    Synthesizer::new(&fixture("configmaps.pb"), items).unwrap().to_vec()
}

/// Decodes a body in chunks of one length with a callback for each item, and counts the allocations.
fn count(body: &[u8], chunk: usize, mut on_item: impl FnMut(listwatch::ItemRef<'_>)) -> AllocationInfo {
    measure(|| {
        let mut decoder = ListDecoder::new();
        for mut chunk in body.chunks(chunk) {
            while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                if let Event::Item(item) = event {
                    on_item(item);
                }
            }
        }
        decoder.finish().unwrap();
    })
}

#[test]
fn allocations_do_not_grow_with_the_number_of_dropped_items() {
    let (few, many) = (config_maps(100), config_maps(100_000));
    // In chunks of 7 the buffer of a split item grows in the same steps for every item; a whole body needs no buffer.
    for (few_chunk, many_chunk) in [(7, 7), (few.len(), many.len())] {
        let mut items = 0;
        let few = count(&few, few_chunk, |_| items += 1);
        let many = count(&many, many_chunk, |_| items += 1);
        assert_eq!(items, 100 + 100_000);
        assert!(few.count_total > 0);
        assert_eq!((many.count_total, many.bytes_total), (few.count_total, few.bytes_total));
    }
}

#[test]
fn a_split_item_takes_at_most_twice_its_length() {
    let body = fixture("pods.pb");
    let longest = reference(&body).unwrap().items.iter().map(Vec::len).max().unwrap() as u64;
    // The type meta, the list meta and the end.
    let rest = 1000;
    for chunk in [1, 7, 1000, 4096, 5000] {
        let peak = count(&body, chunk, |_| {}).bytes_max;
        assert!(peak > longest, "chunks of {chunk} split every Pod: {peak}");
        assert!(peak <= 2 * longest + rest, "{peak} bytes for items of {longest}, in chunks of {chunk}");
    }
    let peak = count(&body, body.len(), |_| {}).bytes_max;
    assert!(peak <= rest, "{peak} bytes for a body in memory");
}

#[test]
fn a_kept_item_is_one_allocation_of_exactly_its_size() {
    let body = config_maps(1000);
    let sizes = reference(&body).unwrap().items.iter().map(|item| item.len() as u64).sum::<u64>();
    for chunk in [7, 100, 4096, body.len()] {
        let dropped = count(&body, chunk, |_| {});
        let mut kept = Vec::with_capacity(1000);
        let counted = count(&body, chunk, |item| kept.push(item.to_box()));
        assert_eq!(kept.len(), 1000);
        assert_eq!(counted.count_total - dropped.count_total, 1000, "in chunks of {chunk}");
        assert_eq!(counted.bytes_total - dropped.bytes_total, sizes, "in chunks of {chunk}");
        assert_eq!(counted.bytes_current - dropped.bytes_current, sizes.cast_signed(), "in chunks of {chunk}");
    }
}

#[test]
fn a_declared_length_reserves_nothing() {
    // An item of 16 MiB with its first three bytes; a `raw` of 2^60 bytes with none.
    let mut item = [b"k8s\0", &len_field(1, b"\x12\x07PodList")[..], b"\x12\xff\xff\xff\xff\x0f\x12"].concat();
    varint(16 << 20, &mut item);
    item.extend_from_slice(b"abc");
    let mut raw = [b"k8s\0", &len_field(1, b"\x12\x07PodList")[..], b"\x12"].concat();
    varint(1 << 60, &mut raw);
    for body in [item, raw] {
        let counted = measure(|| {
            let mut decoder = ListDecoder::new();
            assert!(decoder.decode(&mut &body[..]).unwrap().is_some(), "the type meta");
            assert!(decoder.decode(&mut &body[body.len() - 3..]).is_ok());
            assert!(decoder.finish().unwrap_err().is_incomplete());
        });
        assert!(counted.bytes_max < 1000, "{} bytes", counted.bytes_max);
    }
}

#[test]
fn unknown_fields_are_skipped_in_constant_memory() {
    let mut long = tag(9, 2);
    varint(10 << 20, &mut long);
    long.resize(long.len() + (10 << 20), 0xff);
    let raw = [&long, &len_field(1, &[&long[..], b"\x12\x017"].concat())[..], &len_field(2, b"item")].concat();
    let body = crate::support::body_of("v1", "PodList", &raw);
    for chunk in [1000, 4096] {
        let mut items = 0;
        let counted = count(&body, chunk, |_| items += 1);
        assert_eq!(items, 1);
        assert!(counted.bytes_max < 1000, "{} bytes", counted.bytes_max);
    }
}
#[test]
fn kept_items_keep_no_chunk_alive() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::executor::block_on;
    use futures::{StreamExt as _, TryStreamExt as _, stream};
    use listwatch::ListStream;

    use crate::support::cut;

    struct Chunk(Vec<u8>, Arc<AtomicUsize>);
    impl AsRef<[u8]> for Chunk {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Chunk {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    let body = fixture("pods.pb");
    let alive = Arc::new(AtomicUsize::new(0));
    let most = AtomicUsize::new(0);
    let chunks = cut(&body, &[20_000]).map(|chunk| {
        most.fetch_max(alive.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Bytes::from_owner(Chunk(chunk.to_vec(), Arc::clone(&alive))))
    });
    let mut items = ListStream::new::<[u8]>(stream::iter(chunks));
    let kept: Vec<_> = block_on(items.by_ref().try_collect()).unwrap();
    assert_eq!((kept.len(), items.end().unwrap().items), (120, 120));
    assert_eq!(most.load(Ordering::Relaxed), 1, "the next chunk was polled while one was alive");
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert!(block_on(items.next()).is_none());
}
