//! The frame of a delta, whose beginning is not stored.

use std::iter::once;

use smallvec::SmallVec;

/// The beginning of each frame of zstd.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest object that zstd compresses as one block.
const BLOCK: u32 = 128 << 10;

/// Returns the beginning of the frame of a delta, which follows from two lengths: the header of the frame and of its
/// only block. If the object is longer than a block, the beginning is the magic number.
///
/// Sources: RFC 8878, sections 3.1.1.1 (the header of a frame: one segment, with its length) and 3.1.1.2 (the header of
/// a block: the last one, compressed).
pub(super) fn frame_start(wire_len: u32, delta_len: usize) -> SmallVec<[u8; 12]> {
    let mut start = SmallVec::from_slice(&MAGIC);
    if wire_len > BLOCK {
        return start;
    }
    let [short, middle, ..] = wire_len.wrapping_sub(256).to_le_bytes();
    match wire_len {
        ..256 => start.extend([0x20, wire_len.to_le_bytes()[0]]),
        256..65_792 => start.extend([0x60, short, middle]),
        _ => start.extend(once(0xa0).chain(wire_len.to_le_bytes())),
    }
    let block = delta_len << 3 | 0b101;
    start.extend(block.to_le_bytes().into_iter().take(3));
    start
}

/// Appends name, uid and resource version of an object to the bytes of a reference. Together they are the dictionary of
/// the delta.
pub(super) fn append_suffix(dictionary: &mut Vec<u8>, suffix: [&[u8]; 3]) {
    for text in suffix {
        dictionary.extend_from_slice(text);
    }
}
