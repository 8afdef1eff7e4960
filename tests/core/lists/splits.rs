//! A recorded list gives the same items for every chunking, and each prefix of it is incomplete.

use listwatch::{DecodeErrorKind, Event, Limits, ListDecoder};

use super::places;
use crate::random::splits;
use crate::support::seeds::seed;
use crate::support::{cut, decode, lists, reference};

#[test]
fn every_chunking_gives_the_same_items() {
    let mut random = fastrand::Rng::with_seed(seed());
    let random: Vec<usize> = (0..4096).map(|_| random.usize(..9000)).collect();
    for (name, body) in lists() {
        let expected = reference(&body).unwrap();
        let whole = [body.len()];
        for lengths in [&whole, &[1], &[7], &[4096], &[64 << 10], &random[..]] {
            let (list, end) = decode(Limits::default(), cut(&body, lengths)).unwrap();
            assert_eq!(list, expected, "{name} in chunks of {lengths:?}");
            assert_eq!(end.skipped, 0);
        }
    }
}

/// Only the item on the split is copied and compared; the others must be borrowed from the body itself.
#[test]
fn every_split_into_two_gives_the_same_items() {
    for (name, body) in lists() {
        let expected = reference(&body).unwrap();
        if name == "pods-rv0.pb" {
            continue; // byte for byte pods.pb
        }
        let places = places(&body);
        assert_eq!(places.len(), expected.items.len());
        for split in splits(body.len(), places.iter().flat_map(|place| [place.start, place.end])) {
            let mut decoder = ListDecoder::new();
            let mut items = 0;
            for mut chunk in [&body[..split], &body[split..]] {
                while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                    let Event::Item(item) = event else { continue };
                    let place = &body[places[items].clone()];
                    if places[items].contains(&split) && split != places[items].start {
                        assert!(item.bytes() == place, "{name} split at {split}, item {items}");
                    } else {
                        assert_eq!(
                            item.bytes().as_ptr_range(),
                            place.as_ptr_range(),
                            "{name} split at {split}: a copy"
                        );
                    }
                    items += 1;
                }
            }
            let end = decoder.finish().unwrap();
            assert_eq!((items, &end.list_meta), (expected.items.len(), &expected.list_meta), "{name} split at {split}");
        }
    }
}

#[test]
fn every_prefix_is_incomplete() {
    for (name, body) in lists() {
        if body.len() > 64 << 10 {
            continue;
        }
        let places = places(&body);
        // Two empty strings follow `raw`: a prefix that ends before either of them has all items.
        let complete = [body.len() - 4, body.len() - 2];
        for len in splits(body.len() - 1, places.iter().flat_map(|place| [place.start, place.end])) {
            let result = decode(Limits::default(), [&body[..len]]);
            if complete.contains(&len) {
                let (list, _) = result.unwrap();
                assert_eq!(list.items.len(), places.len(), "{name} truncated at {len}");
                continue;
            }
            let error = result.unwrap_err();
            assert!(matches!(error.kind(), DecodeErrorKind::Incomplete), "{name} truncated at {len}: {error}");
            assert_eq!(error.offset(), len as u64, "{name}");
            let whole = places.iter().filter(|place| place.end <= len).count();
            assert_eq!(error.items(), whole as u64, "{name} truncated at {len}");
        }
    }
}
