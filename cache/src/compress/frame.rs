//! Frames of zstd, whose beginnings are not stored.

/// The beginning of each frame of zstd.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest object that zstd compresses as one block.
const BLOCK: u32 = 128 << 10;
/// The rest of the header: no checksum, no dictionary, no length, and a window of 128 KiB.
const HEADER: [u8; 2] = [0, 7 << 3];
/// The length of the header of a block.
const BLOCK_HEADER: usize = 3;

/// Returns the body of a frame: what is stored. The rest follows from the length of the body, if the frame has one
/// block. If the object is longer than a block, it is the magic number. Returns `None` if zstd did not compress the
/// only block.
///
/// Sources: RFC 8878, sections 3.1.1.1 (the header of a frame) and 3.1.1.2 (the header of a block).
pub(super) fn body(wire_len: u32, frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(&MAGIC)?;
    if wire_len > BLOCK {
        return Some(rest);
    }
    let descriptor = *rest.first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    let content_size = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        power => 1 << power,
    };
    let dictionary_id = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let window = usize::from(!is_single_segment);
    let (header, body) = rest.get(1 + window + dictionary_id + content_size..)?.split_at_checked(BLOCK_HEADER)?;
    (header == block_header(body.len())).then_some(body)
}

/// Replaces `frame` by the frame with this body.
pub(super) fn restore(wire_len: u32, body: &[u8], frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(&MAGIC);
    if wire_len <= BLOCK {
        frame.extend(HEADER.into_iter().chain(block_header(body.len())));
    }
    frame.extend_from_slice(body);
}

/// Returns the header of a block that is compressed, and the last.
fn block_header(len: usize) -> [u8; BLOCK_HEADER] {
    let [low, middle, high, ..] = (len << 3 | 0b101).to_le_bytes();
    [low, middle, high]
}
