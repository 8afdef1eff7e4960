//! A recorded JSON list gives the same items for every chunking, and each prefix of it is incomplete.

use listwatch::{Event, Limits, ListDecoder};

use super::{LISTS, reference};
use crate::random::splits;
use crate::support::{cases, cut, decode, fixture};

#[test]
fn every_chunking_gives_the_same_items() {
    let random: Vec<usize> = (1..1000).map(|n| n * 7919 % 6007).collect();
    for (name, items) in LISTS.into_iter().zip([30, 20, 30]) {
        let body = fixture(name);
        let expected = reference(&body).unwrap();
        assert_eq!((expected.items.len(), expected.list_meta.resource_version.as_str()), (items, "525"), "{name}");
        for lengths in [&[body.len()][..], &[1], &[7], &[64], &[4096], &[64 << 10], &random] {
            let (list, _) = decode(Limits::default(), cut(&body, lengths)).unwrap();
            assert_eq!(list, expected, "{name} in chunks of {lengths:?}");
        }
    }
}

/// Splits the body also within an item, since strings and escapes change the decoder's state.
#[test]
fn every_split_into_two_gives_the_same_items() {
    let body = fixture("widgets-page-1.json");
    let expected = reference(&body).unwrap();
    for split in (0..=4000).chain(splits(body.len(), ends(&body))) {
        assert_eq!(
            decode(Limits::default(), [&body[..split], &body[split..]]).unwrap().0,
            expected,
            "split at {split}"
        );
    }
}

#[test]
fn an_item_whole_in_a_chunk_is_borrowed_from_it() {
    let body = fixture("pods.json");
    let mut decoder = ListDecoder::new().accept_json();
    let mut rest = &body[..];
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        if let Event::Item(item) = event {
            assert_eq!(item.bytes().as_ptr(), body[usize::try_from(item.offset()).unwrap()..].as_ptr());
        }
    }
    assert_eq!(decoder.finish().unwrap().items, 30);
}

#[test]
fn every_prefix_is_incomplete() {
    for name in LISTS {
        let body = fixture(name);
        let ends = ends(&body);
        // A line feed follows the last brace.
        assert_eq!(decode(Limits::default(), [&body[..body.len() - 1]]).unwrap().0, reference(&body).unwrap());
        // Each prefix is decoded from its start, so a quick run visits each fourth item only.
        let boundaries = ends.iter().copied().step_by(usize::try_from(cases(4, 1)).unwrap());
        for len in splits(body.len() - 2, boundaries) {
            let error = decode(Limits::default(), [&body[..len]]).unwrap_err();
            assert!(error.is_incomplete() && error.offset() == len as u64, "{name} truncated at {len}: {error}");
            let whole = ends.iter().filter(|end| **end <= len).count() as u64;
            assert_eq!(error.items(), whole, "{name} truncated at {len}");
            assert!(error.index().is_none_or(|index| index == whole), "{name} truncated at {len}: {error}");
        }
    }
}

/// Returns the positions where the items end.
fn ends(body: &[u8]) -> Vec<usize> {
    let (mut decoder, mut rest, mut ends) = (ListDecoder::new().accept_json(), body, Vec::new());
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        if let Event::Item(item) = event {
            ends.push(usize::try_from(item.offset()).unwrap() + item.bytes().len());
        }
    }
    ends
}
