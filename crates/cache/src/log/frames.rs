//! The encoded frames of a change log.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::sync::{Mutex, lock};

/// The encoded frames of a log, within a limit of their own.
///
/// A frame can be encoded again but a change cannot be recovered, so a full log drops frames and keeps its changes for
/// readers that resume. Frames are dropped in the order in which they were encoded, because readers that follow the
/// log, or catch up together, read a frame soon after it was encoded.
///
/// A change may be dropped under any other lock and then acquires this one, under which no other lock is acquired.
#[derive(Default)]
pub(crate) struct Frames(Mutex<KeptFrames>);

/// A frame: the number of its change, and its form.
type FramePlace = (u64, usize);

/// The bytes that a frame takes besides its own.
const OVERHEAD: usize = 2 * size_of::<FramePlace>() + size_of::<Bytes>();

#[derive(Default)]
struct KeptFrames {
    limit: usize,
    /// How many changes there were. Each gets the next number.
    changes: u64,
    bytes: usize,
    frames: HashMap<FramePlace, Bytes>,
    /// The frames in the order in which they were encoded, with some that are no longer kept.
    order: VecDeque<FramePlace>,
}

impl Frames {
    /// Returns how many bytes the frames of a log of this size may take.
    pub(crate) fn share(of_log: usize) -> usize {
        of_log / 4
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        lock(&self.0).limit = limit;
    }

    pub(crate) fn number(&self) -> u64 {
        let mut kept = lock(&self.0);
        kept.changes += 1;
        kept.changes
    }

    pub(crate) fn get(&self, change: u64, form: usize) -> Option<Bytes> {
        lock(&self.0).frames.get(&(change, form)).cloned()
    }

    /// Keeps a frame, and drops others over the limit. The newest stays, whatever its size. Returns the frame that
    /// another reader has kept in the meantime, if there is one.
    pub(crate) fn keep(&self, change: u64, form: usize, frame: Bytes) -> Bytes {
        let place = (change, form);
        let mut kept = lock(&self.0);
        if let Some(first) = kept.frames.get(&place) {
            return first.clone();
        }
        kept.bytes += OVERHEAD + frame.len();
        kept.frames.insert(place, frame.clone());
        kept.order.push_back(place);
        let mut dropped = Vec::new();
        while kept.bytes > kept.limit && kept.frames.len() > 1 {
            let Some(oldest) = kept.order.pop_front() else { break };
            dropped.extend(kept.remove(oldest));
        }
        kept.forget_places();
        drop(kept);
        drop(dropped);
        frame
    }

    /// Drops the frames of a change, each of a form below `forms`.
    pub(crate) fn drop_change(&self, change: u64, forms: usize) {
        let mut kept = lock(&self.0);
        let dropped: Vec<_> = (0..forms).filter_map(|form| kept.remove((change, form))).collect();
        kept.forget_places();
        drop(kept);
        drop(dropped);
    }

    pub(crate) fn bytes(&self) -> usize {
        let kept = lock(&self.0);
        debug_assert_eq!(
            kept.bytes,
            kept.frames.values().map(|frame| OVERHEAD + frame.len()).sum::<usize>(),
            "the frames"
        );
        kept.bytes
    }
}

impl KeptFrames {
    fn remove(&mut self, place: FramePlace) -> Option<Bytes> {
        let frame = self.frames.remove(&place)?;
        self.bytes -= OVERHEAD + frame.len();
        Some(frame)
    }

    /// Removes the places of dropped frames, once they are the majority.
    fn forget_places(&mut self) {
        let Self { frames, order, .. } = self;
        if order.len() > 2 * frames.len() + 64 {
            order.retain(|place| frames.contains_key(place));
            order.shrink_to_fit();
            frames.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_frames_that_were_encoded_first() {
        // A place in the map and in the queue, of 16 bytes each, and the 32 bytes of `Bytes`.
        assert_eq!(OVERHEAD, size_of::<[usize; 8]>());
        let (frames, frame) = (Frames::default(), || Bytes::from(vec![0; 1000]));
        frames.set_limit(3 * (1000 + OVERHEAD));
        // Not in the order of the changes: the second reader is behind the first.
        for (change, form) in [(7, 0), (7, 1), (1, 0), (8, 0)] {
            frames.keep(change, form, frame());
            assert!(frames.bytes() <= 3 * (1000 + OVERHEAD));
        }
        let has = |change, form| frames.get(change, form).is_some();
        assert_eq!([has(7, 0), has(7, 1), has(1, 0), has(8, 0)], [false, true, true, true]);
        frames.drop_change(7, 2);
        assert_eq!((has(7, 1), frames.bytes()), (false, 2 * (1000 + OVERHEAD)));
        // A frame that is larger than the limit is the only one.
        frames.keep(9, 0, Bytes::from(vec![0; 10_000]));
        assert_eq!([has(1, 0), has(8, 0), has(9, 0)], [false, false, true]);
    }

    #[test]
    fn keeps_no_places_of_dropped_changes() {
        let frames = Frames::default();
        frames.set_limit(usize::MAX);
        for change in 0..1000 {
            frames.keep(change, 0, Bytes::from_static(b"frame"));
            if change % 2 == 0 {
                frames.drop_change(change, 4);
            }
            if let Some(old) = change.checked_sub(9) {
                frames.drop_change(old, 4);
            }
        }
        assert!(lock(&frames.0).order.len() < 100 && frames.bytes() < 10 * (5 + OVERHEAD));
    }
}
