//! A watch gives the same events for every chunking, and a prefix of it ends between two frames or in an error.

use listwatch::{DecodeErrorKind, Limits, WatchEventRef};

use super::{PROTOBUF, fixtures, frame_lengths};
use crate::random::splits;
use crate::support::watch::{reference, see, watch};
use crate::support::{cut, fixture};

#[test]
fn every_chunking_gives_the_same_events() {
    for (name, body) in fixtures() {
        let expected = reference(&body);
        assert!(!expected.0.is_empty() && expected.1, "{name}");
        for lengths in [&[body.len()][..], &[1], &[3], &[7], &[4096], &[64 << 10], &[1, 4, 300, 2, 9000]] {
            let (seen, end) = watch(Limits::default(), cut(&body, lengths));
            assert_eq!((seen, end.is_ok()), expected, "{name} in chunks of {lengths:?}");
        }
    }
}

/// Only the frame on the split is copied; other objects are borrowed from the body.
#[test]
fn every_split_into_two_gives_the_same_events() {
    for (name, body) in fixtures() {
        let lengths = frame_lengths(&body);
        // A long body is reduced to its last three frames.
        let last: usize = lengths.iter().rev().take(3).sum();
        let body = if body.len() > 8 << 10 { &body[body.len() - last..] } else { &body[..] };
        let (expected, _) = reference(body);
        let lengths = frame_lengths(body);
        for split in splits(body.len(), ends(&lengths)) {
            let mut decoder = crate::support::watch_decoder(Limits::default());
            let (mut events, mut start) = (0, 0);
            for mut chunk in [&body[..split], &body[split..]] {
                while let Some(event) = decoder.decode(&mut chunk).unwrap() {
                    assert!(see(event, events as u64) == expected[events], "{name} split at {split}, event {events}");
                    let end = start + lengths[events];
                    if let WatchEventRef::Added { object, .. } | WatchEventRef::Modified { object, .. } = event {
                        assert_eq!(object.offset(), start as u64, "{name} split at {split}");
                        let is_borrowed = body.as_ptr_range().contains(&object.bytes().as_ptr());
                        // A frame is whole if no split is in the bytes after its length, or before its line break.
                        let (from, to) = if PROTOBUF.contains(&name) { (start + 4, end) } else { (start, end - 1) };
                        assert_eq!(
                            is_borrowed,
                            split <= from || split >= to,
                            "{name} split at {split}, event {events}"
                        );
                    }
                    (events, start) = (events + 1, end);
                }
            }
            decoder.finish().unwrap();
            assert_eq!(events, expected.len(), "{name} split at {split}");
        }
    }
}

#[test]
fn a_prefix_ends_between_frames_or_in_an_error() {
    for (name, body) in fixtures() {
        let body = &body[..body.len().min(6 << 10)];
        let (expected, _) = reference(body);
        let ends = ends(&frame_lengths(&fixture(name)));
        for len in splits(body.len(), ends.iter().copied().filter(|end| *end <= body.len())) {
            for lengths in [&[len.max(1)][..], &[61]] {
                let (seen, end) = watch(Limits::default(), cut(&body[..len], lengths));
                // The line break is optional: the object before it is a whole frame.
                let line_break = usize::from(!PROTOBUF.contains(&name));
                let whole = ends.iter().filter(|end| **end <= len + line_break).count();
                assert_eq!(seen, expected[..whole], "{name} truncated at {len}");
                if len == 0 || ends.contains(&len) || ends.contains(&(len + line_break)) {
                    end.unwrap();
                    continue;
                }
                let error = end.unwrap_err();
                assert!(
                    matches!(error.kind(), DecodeErrorKind::TruncatedFrame) && error.is_incomplete(),
                    "{name}: {error}"
                );
                assert_eq!(
                    (error.offset(), error.items(), error.index()),
                    (len as u64, whole as u64, Some(whole as u64))
                );
            }
        }
    }
}

/// Returns the positions where frames of these lengths end.
fn ends(lengths: &[usize]) -> Vec<usize> {
    let end = |end: &mut usize, length: &usize| {
        *end += length;
        Some(*end)
    };
    lengths.iter().scan(0, end).collect()
}
