//! Frames of zstd, which are stored without their beginnings.

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest object that zstd compresses as one block.
const BLOCK: u32 = 128 << 10;
/// The rest of the header: no checksum, no dictionary, no length, and a window of 128 KiB.
const HEADER: [u8; 2] = [0, 7 << 3];
const BLOCK_HEADER: usize = 3;

/// Returns the body of a frame, which is the part that is stored. If the frame has one block, the beginning follows
/// from the length of the body. If the object is longer than a block, only the magic number is left out. Returns `None`
/// if zstd did not compress the only block.
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

pub(super) fn restore(wire_len: u32, body: &[u8], frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(&MAGIC);
    if wire_len <= BLOCK {
        frame.extend(HEADER.into_iter().chain(block_header(body.len())));
    }
    frame.extend_from_slice(body);
}

/// Returns the header of a compressed block that is the last of its frame.
fn block_header(len: usize) -> [u8; BLOCK_HEADER] {
    let [low, middle, high, ..] = (len << 3 | 0b101).to_le_bytes();
    [low, middle, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compresses with the parameters that decide about the header of a frame.
    fn compressed(bytes: &[u8], has_checksum: bool, has_length: bool) -> Vec<u8> {
        let mut context = zstd_safe::CCtx::create();
        context.set_parameter(zstd_safe::CParameter::ChecksumFlag(has_checksum)).unwrap();
        context.set_parameter(zstd_safe::CParameter::ContentSizeFlag(has_length)).unwrap();
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        context.compress2(&mut frame, bytes).unwrap();
        frame
    }

    fn decompressed(frame: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        zstd_safe::decompress(&mut bytes, frame).unwrap();
        bytes
    }

    #[test]
    fn restores_the_beginning_of_a_frame() {
        let block = BLOCK as usize;
        // Lengths of which zstd writes 0, 1, 2 and 4 bytes; and more than a block.
        for len in [64, 255, 256, 65_791, 65_792, block - 1, block, block + 1, 3 * block] {
            let bytes: Vec<u8> = b"pods/web ".iter().copied().cycle().take(len).collect();
            for has_length in [true, false] {
                let frame = compressed(&bytes, false, has_length);
                let wire_len = u32::try_from(len).unwrap();
                let stored = body(wire_len, &frame).unwrap();
                let left_out = frame.len() - stored.len();
                if len > block {
                    assert_eq!(left_out, MAGIC.len(), "{len}");
                } else {
                    assert!(left_out >= MAGIC.len() + 2 + BLOCK_HEADER, "{len}: {left_out}");
                }
                let mut restored = vec![7];
                restore(wire_len, stored, &mut restored);
                assert_eq!(decompressed(&restored, len), bytes, "{len}");
            }
        }
    }

    #[test]
    fn refuses_frames_that_cannot_be_restored() {
        let text = b"pods/web ".repeat(20);
        let frame = compressed(&text, false, true);
        let mut rng = fastrand::Rng::with_seed(5);
        let random: Vec<u8> = (0..1000).map(|_| rng.u8(..)).collect();
        for (what, frame) in [
            ("a raw block", compressed(&random, false, true)),
            ("a checksum after the block", compressed(&text, true, true)),
            ("nothing", Vec::new()),
            ("another magic number", [&[0][..], &frame[1..]].concat()),
            ("bytes after the block", [&frame[..], b"x"].concat()),
        ] {
            assert_eq!(body(1000, &frame), None, "{what}");
        }
        for len in 0..frame.len() {
            assert_eq!(body(180, &frame[..len]), None, "{len}");
        }
    }
}
