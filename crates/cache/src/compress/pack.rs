//! Packing: uids, times and digests as numbers, before zstd sees an object.
//!
//! zstd cannot shorten what is random. It writes the 36 characters of a uid in about 20 bytes, and a uid ends the match
//! of the text around it. Packing therefore replaces each such text by two bytes: the marker of `elide.rs`, and a
//! number that `elide.rs` does not use. The values of the texts follow the text.
//!
//! | text | value |
//! |---|---|
//! | a uid, as API servers write it | 16 bytes |
//! | a time of RFC 3339 in UTC, in seconds | the difference to the time before it in the object, mostly 1 to 4 bytes |
//! | such a time with microseconds | that, and the microseconds as a varint |
//! | 32 to 510 digits of hexadecimal | the number of bytes, and the bytes |
//! | a uid or digits that were packed before in the object | their place among these |
//!
//! An object that is stored whole has its values before the frame, because a dictionary's code for literals suits only
//! text. A delta has its values in the frame, because the reference contains some of them too.
//!
//! A text that many objects share, such as the digest of an image, is in the dictionary, and zstd copies it for less.
//! An object without a delta group keeps such a text: see [`KnownTexts`]. An object with a group keeps none, so that
//! the delta and the reference have markers at the same places.

use memchr::{memchr, memchr_iter};
use prost::encoding::{decode_varint, encode_varint};
use smallvec::SmallVec;

use crate::compress::elide::MARKER;
use crate::hex::{self, UID_LEN, format_uid, parse_uid};

/// The numbers that follow the marker. `elide.rs` uses smaller ones.
const UID: u8 = 7;
const TIME: u8 = 8;
const MICRO_TIME: u8 = 9;
const DIGITS: u8 = 10;
const REPEATED: u8 = 11;

const TIME_LEN: usize = "2026-01-02T03:04:05Z".len();
const MICRO_TIME_LEN: usize = "2026-01-02T03:04:05.678901Z".len();
/// The number of characters of a time before its zone or its microseconds.
const SECONDS_LEN: usize = TIME_LEN - 1;
/// A run of at least [`FEWEST_DIGITS`] has all digits of such a block, at one of its multiples.
const BLOCK: usize = 16;
const FEWEST_DIGITS: usize = 2 * BLOCK;
const MOST_DIGITS: usize = 2 * u8::MAX as usize;
/// The most texts of an object to which a later one may refer.
const MOST_REPEATED: usize = u8::MAX as usize;

/// The fields of a time: the place of the digits, their number, the first value, and the number of values.
const FIELDS: [(usize, usize, u64, u64); 6] =
    [(0, 4, 0, 10_000), (5, 2, 1, 12), (8, 2, 1, 31), (11, 2, 0, 24), (14, 2, 0, 60), (17, 2, 0, 61)];
const SEPARATORS: [(usize, u8); 5] = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
/// The time before the first: the beginning of 2026.
const EPOCH: u64 = 2026 * 12 * 31 * 24 * 60 * 61;

#[derive(Clone, Default)]
pub(super) struct PackedObject {
    /// The text with its markers, followed by the values.
    pub(super) bytes: Vec<u8>,
    pub(super) text_len: usize,
}

impl PackedObject {
    pub(super) fn text(&self) -> &[u8] {
        self.bytes.get(..self.text_len).unwrap_or_default()
    }

    pub(super) fn values(&self) -> &[u8] {
        self.bytes.get(self.text_len..).unwrap_or_default()
    }

    /// Copies the other object into this one's buffer.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
        self.text_len = other.text_len;
    }
}

/// Packs one object after the other. Its buffers are kept, because new ones would leave holes between the entries of a
/// list.
#[derive(Default)]
pub(super) struct Packer {
    found: Vec<Found>,
    values: Vec<u8>,
}

/// A text that may be packed: its place, its length, and the number that follows the marker.
type Found = (usize, usize, u8);

/// The hashes of the texts that a dictionary contains, and that are therefore not packed. Texts with the same hash cost
/// only memory.
#[derive(Default)]
pub(super) struct KnownTexts(Vec<u32>);

impl KnownTexts {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut found = Vec::new();
        find(bytes, &mut found);
        let texts = found.iter().filter_map(|(at, len, _)| bytes.get(*at..at + len));
        let mut hashes: Vec<_> = texts.map(crc32fast::hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes)
    }

    /// Returns the texts that occur in at least two samples.
    pub(super) fn shared_by<'a>(samples: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut hashes: Vec<_> = samples.flat_map(|sample| Self::of(sample).0).collect();
        hashes.sort_unstable();
        let mut last = None;
        hashes.retain(|hash| last.replace(*hash) == Some(*hash));
        Self(hashes)
    }

    fn has(&self, text: &[u8]) -> bool {
        !self.0.is_empty() && self.0.binary_search(&crc32fast::hash(text)).is_ok()
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }
}

impl Packer {
    /// Packs an object after its elision.
    pub(super) fn pack(&mut self, bytes: &[u8], known: &KnownTexts, packed: &mut PackedObject) {
        let Self { found, values } = self;
        let text = &mut packed.bytes;
        text.clear();
        values.clear();
        find(bytes, found);
        let (mut done, mut last) = (0, EPOCH);
        let mut before: SmallVec<[&[u8]; 32]> = SmallVec::new();
        for (at, len, mut kind) in found.drain(..) {
            let (Some(between), Some(original)) = (bytes.get(done..at), bytes.get(at..at + len)) else { continue };
            if known.has(original) {
                continue;
            }
            text.extend_from_slice(between);
            done = at + len;
            if matches!(kind, UID | DIGITS) {
                if let Some(place) = before.iter().position(|before| *before == original) {
                    kind = REPEATED;
                    values.extend(u8::try_from(place));
                } else if before.len() < MOST_REPEATED {
                    before.push(original);
                }
            }
            match kind {
                UID => values.extend(parse_uid(original).unwrap_or_default().to_be_bytes()),
                DIGITS => {
                    values.extend(u8::try_from(len / 2));
                    values.extend(original.chunks_exact(2).filter_map(parse_byte));
                }
                TIME | MICRO_TIME => {
                    let time = parse_time(original).unwrap_or_default();
                    let difference = time.wrapping_sub(last).cast_signed();
                    last = time;
                    encode_varint((difference << 1 ^ difference >> 63).cast_unsigned(), values);
                    if kind == MICRO_TIME {
                        encode_varint(micros(original).unwrap_or_default(), values);
                    }
                }
                _ => {}
            }
            text.extend_from_slice(&[MARKER, kind]);
        }
        text.extend_from_slice(bytes.get(done..).unwrap_or_default());
        packed.text_len = text.len();
        text.extend_from_slice(values);
    }

    pub(super) fn capacity(&self) -> usize {
        self.found.capacity() * size_of::<Found>() + self.values.capacity()
    }
}

/// Appends a body. For an object that is stored whole, the frame contains only the text, else also the values.
pub(super) fn write_body(values: &[u8], is_whole: bool, frame: &[u8], body: &mut Vec<u8>) {
    encode_varint(values.len() as u64, body);
    if is_whole {
        body.extend_from_slice(values);
    }
    body.extend_from_slice(frame);
}

/// Returns the number of bytes of the values, and the rest of the body.
pub(super) fn split(mut body: &[u8]) -> Option<(usize, &[u8])> {
    let len = usize::try_from(decode_varint(&mut body).ok()?).ok()?;
    Some((len, body))
}

/// Replaces `bytes` by the bytes that were packed.
///
/// Returns `None` if there would be more than `most`, or if [`Packer::pack`] did not write the object.
pub(super) fn unpack(packed: &PackedObject, most: usize, bytes: &mut Vec<u8>) -> Option<()> {
    bytes.clear();
    bytes.reserve(most);
    let (mut rest, mut values, mut last) = (packed.text(), packed.values(), EPOCH);
    let mut before: SmallVec<[(usize, usize); 32]> = SmallVec::new();
    while let Some(at) = memchr(MARKER, rest) {
        let (between, after) = rest.split_at_checked(at)?;
        let [_, kind, after @ ..] = after else { return None };
        rest = after;
        bytes.extend_from_slice(between);
        let start = bytes.len();
        match *kind {
            UID => {
                let (number, after) = values.split_first_chunk()?;
                values = after;
                bytes.extend_from_slice(&format_uid(u128::from_be_bytes(*number)));
            }
            DIGITS => {
                let len = usize::from(*values.split_off_first()?);
                let numbers = values.split_off(..len)?.iter();
                bytes.extend(numbers.flat_map(|byte| [hex::digit(byte >> 4), hex::digit(byte & 15)]));
            }
            TIME | MICRO_TIME => {
                let difference = decode_varint(&mut values).ok()?;
                last = last.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg());
                push_time(last, bytes);
                if *kind == MICRO_TIME {
                    push_micros(decode_varint(&mut values).ok()?, bytes);
                }
                bytes.push(b'Z');
            }
            REPEATED => {
                let (at, len) = *before.get(usize::from(*values.split_off_first()?))?;
                bytes.extend_from_within(at..at + len);
            }
            elided => bytes.extend_from_slice(&[MARKER, elided]),
        }
        if matches!(*kind, UID | DIGITS) && before.len() < MOST_REPEATED {
            before.push((start, bytes.len() - start));
        }
        // Each text is short, so a forged body soon ends here.
        if bytes.len() > most {
            return None;
        }
    }
    bytes.extend_from_slice(rest);
    (bytes.len() <= most && values.is_empty()).then_some(())
}

/// Replaces `found` by the texts of an object that may be packed, in the order of their places.
fn find(bytes: &[u8], found: &mut Vec<Found>) {
    found.clear();
    for at in memchr_iter(b'-', bytes) {
        let Some(after) = bytes.get(at..) else { continue };
        if after.get(5) == Some(&b'-') {
            let start = at.wrapping_sub(8);
            if bytes.get(start..start.wrapping_add(UID_LEN)).and_then(parse_uid).is_some() {
                found.push((start, UID_LEN, UID));
            }
        } else if after.get(3) == Some(&b'-') {
            let start = at.wrapping_sub(4);
            found.extend(bytes.get(start..).and_then(time_kind).map(|(len, kind)| (start, len, kind)));
        }
    }
    let others = found.len();
    let (mut at, mut done) = (0, 0);
    while let Some(block) = bytes.get(at..at + BLOCK) {
        if block.iter().all(|byte| is_hex(*byte)) {
            let before = bytes.get(done.max(at - at.min(BLOCK))..at).unwrap_or_default();
            let start = at - before.iter().rev().take_while(|byte| is_hex(**byte)).count();
            let run = bytes.get(start..).unwrap_or_default().iter().take(MOST_DIGITS);
            let len = run.take_while(|byte| is_hex(**byte)).count() / 2 * 2;
            if len >= FEWEST_DIGITS {
                found.push((start, len, DIGITS));
                done = start + len;
            }
        }
        at = done.max(at + BLOCK);
    }
    if others < found.len() {
        found.sort_unstable();
    }
}

fn is_hex(byte: u8) -> bool {
    hex::value(byte).is_some()
}

fn parse_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    Some(hex::value(*high)? << 4 | hex::value(*low)?)
}

/// Returns the length and the number of a time at the beginning of the bytes.
fn time_kind(bytes: &[u8]) -> Option<(usize, u8)> {
    parse_time(bytes)?;
    match bytes.get(SECONDS_LEN)? {
        b'Z' => Some((TIME_LEN, TIME)),
        b'.' => (micros(bytes).is_some() && bytes.get(MICRO_TIME_LEN - 1) == Some(&b'Z'))
            .then_some((MICRO_TIME_LEN, MICRO_TIME)),
        _ => None,
    }
}

/// Returns the seconds of a time in a calendar whose months have 31 days, and whose minutes have 61 seconds.
fn parse_time(bytes: &[u8]) -> Option<u64> {
    if !SEPARATORS.iter().all(|(at, separator)| bytes.get(*at) == Some(separator)) {
        return None;
    }
    FIELDS.into_iter().try_fold(0, |time, (at, digits, first, count)| {
        let value = decimal(bytes.get(at..at + digits)?)?.checked_sub(first)?;
        (value < count).then_some(time * count + value)
    })
}

fn micros(bytes: &[u8]) -> Option<u64> {
    decimal(bytes.get(SECONDS_LEN + 1..MICRO_TIME_LEN - 1)?)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

fn push_time(mut time: u64, bytes: &mut Vec<u8>) {
    let mut text = *b"0000-00-00T00:00:00";
    for (at, digits, first, count) in FIELDS.into_iter().rev() {
        write_decimal(time % count + first, text.get_mut(at..at + digits).unwrap_or_default());
        time /= count;
    }
    bytes.extend_from_slice(&text);
}

fn push_micros(micros: u64, bytes: &mut Vec<u8>) {
    let mut text = *b".000000";
    write_decimal(micros, text.get_mut(1..).unwrap_or_default());
    bytes.extend_from_slice(&text);
}

fn write_decimal(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocated::assert_reports_what_it_allocates;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const OTHER: &str = "f1234567-89ab-cdef-0123-456789abcdef";

    fn packed(bytes: &str, known: &str) -> (Vec<u8>, Vec<u8>) {
        let mut packed = PackedObject::default();
        Packer::default().pack(bytes.as_bytes(), &KnownTexts::of(known.as_bytes()), &mut packed);
        (packed.text().to_vec(), packed.values().to_vec())
    }

    fn unpacked(text: &[u8], values: &[u8], most: usize) -> Option<Vec<u8>> {
        let packed = PackedObject { bytes: [text, values].concat(), text_len: text.len() };
        let mut bytes = vec![7];
        unpack(&packed, most, &mut bytes).map(|()| bytes)
    }

    #[test]
    fn texts_are_packed_and_unpacked() {
        let digest = "0123456789abcdef".repeat(4);
        let long = "0123456789abcdef".repeat(40);
        // The object, the texts in the reference, and the lengths of text and values.
        for (bytes, known, text_len, values_len) in [
            (String::new(), "", 0, 0),
            ("nothing - of --- it".into(), "", 19, 0),
            (UUID.into(), "", 2, 16),
            (format!("uid: {UUID}, owner: {OTHER}"), "", 5 + 2 + 9 + 2, 32),
            // Neighbours of a uid do not matter.
            (format!("a{UUID}-{UUID}f"), "", 1 + 2 + 1 + 2 + 1, 16 + 1),
            // Not as API servers write it.
            (UUID.to_uppercase(), "", 36, 0),
            (UUID.replace("cdef-", "cdeg-"), "", 36, 0),
            (UUID[1..].into(), "", 35, 0),
            // Known texts stay.
            (format!("{UUID} {OTHER}"), UUID, 36 + 1 + 2, 16),
            (format!("{OTHER} {OTHER}"), UUID, 2 + 1 + 2, 16 + 1),
            ("2026-01-01T00:00:00Z".into(), "", 2, 1),
            ("2026-01-01T00:00:01Z 2026-01-01T00:00:00Z".into(), "", 5, 2),
            ("0000-01-01T00:00:00Z".into(), "", 2, 6),
            ("9999-12-31T23:59:60Z".into(), "", 2, 6),
            ("2026-11-26T18:49:47.000042Z".into(), "", 2, 5),
            ("2026-11-26T18:49:47.999999Z2026-11-26T18:49:47Z".into(), "", 4, 4 + 3 + 1),
            ("x2026-11-26T18:49:47Zx".into(), "2026-11-26T18:49:47Z", 22, 0),
            // No times, times of other zones, and of other precisions.
            ("2026-00-26T18:49:47Z 2026-13-26T18:49:47Z 2026-11-00T18:49:47Z".into(), "", 62, 0),
            ("2026-11-32T18:49:47Z 2026-11-26T24:49:47Z 2026-11-26T18:60:47Z".into(), "", 62, 0),
            ("2026-11-26T18:49:61Z 2026-11-26 18:49:47Z 2026-11-26T18:49:4 Z".into(), "", 62, 0),
            ("2026-11-26T18:49:47+01:00 2026-11-26T18:49:47.123Z 2026-11-26".into(), "", 61, 0),
            ("2026-11-26T18:49:47.12345 Z".into(), "", 27, 0),
            ("26-11-26T18:49:47Z".into(), "", 18, 0),
            (digest.clone(), "", 2, 33),
            (format!("sha256:{digest} sha256:{digest}"), "", 7 + 2 + 1 + 7 + 2, 33 + 1),
            // An odd digit is left out.
            (format!("x{}x", &digest[..33]), "", 1 + 2 + 1 + 1, 1 + 16),
            (digest[..31].into(), "", 31, 0),
            (digest.to_uppercase(), "", 64, 0),
            // Of a long run, as much as the length may say.
            (long.clone(), "", 2 + 2, 256 + 66),
            ("0".repeat(510), "", 2, 256),
        ] {
            let (text, values) = packed(&bytes, known);
            assert_eq!((text.len(), values.len()), (text_len, values_len), "{bytes}");
            assert_eq!(unpacked(&text, &values, bytes.len()).as_deref(), Some(bytes.as_bytes()), "{bytes}");
            if !values.is_empty() {
                assert_eq!(unpacked(&text, &values, bytes.len() - 1), None, "{bytes}");
            }
        }
    }

    #[test]
    fn runs_of_digits_are_found_at_every_place() {
        for before in 0..40 {
            for len in 30..50 {
                let bytes = format!("{}{}{}", "x".repeat(before), "a".repeat(len), "x".repeat(before));
                let (text, values) = packed(&bytes, "");
                let is_packed = len >= FEWEST_DIGITS;
                assert_eq!(text.len() < bytes.len(), is_packed, "{before} {len}");
                assert_eq!(unpacked(&text, &values, bytes.len()).as_deref(), Some(bytes.as_bytes()));
            }
        }
    }

    #[test]
    fn more_texts_than_a_place_can_name_are_packed() {
        let uids: Vec<_> = (0..600).map(|number| format!("{number:08x}-89ab-cdef-0123-456789abcdef")).collect();
        let bytes = uids.join(" ") + " " + &uids.join(" ");
        let (text, values) = packed(&bytes, "");
        assert_eq!(values.len(), 600 * 16 + MOST_REPEATED + (600 - MOST_REPEATED) * 16);
        assert_eq!(unpacked(&text, &values, bytes.len()).as_deref(), Some(bytes.as_bytes()));
    }

    /// Texts next to each other, cut off, and in any order.
    #[test]
    fn any_mixture_is_unpacked() {
        let digest = "0123456789abcdef".repeat(5);
        let pieces =
            [UUID, OTHER, "2026-11-26T18:49:47Z", "2026-01-02T03:04:05.678901Z", &digest, "-", "a", "Z", " x "];
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut bytes = String::new();
            for _ in 0..rng.usize(1..8) {
                let piece = pieces[rng.usize(..pieces.len())];
                bytes += &piece[if rng.bool() { 0 } else { rng.usize(..piece.len()) }..];
            }
            let known = if rng.bool() { UUID } else { "" };
            let (text, values) = packed(&bytes, known);
            assert!(text.len() + values.len() <= bytes.len(), "{bytes}");
            assert_eq!(unpacked(&text, &values, bytes.len()).as_deref(), Some(bytes.as_bytes()), "{bytes}");
        }
    }

    /// What `elide.rs` wrote before passes through, also next to packed texts.
    #[test]
    fn markers_of_the_elision_stay() {
        let elided = [&[MARKER, 0, MARKER, 4][..], UUID.as_bytes(), &[MARKER, 3]].concat();
        let mut packed = PackedObject::default();
        Packer::default().pack(&elided, &KnownTexts::default(), &mut packed);
        assert_eq!(packed.text(), [MARKER, 0, MARKER, 4, MARKER, UID, MARKER, 3]);
        assert_eq!(unpacked(packed.text(), packed.values(), 100), Some(elided));
    }

    #[test]
    fn samples_share_texts_that_two_of_them_have() {
        let samples = [format!("{UUID} {UUID}"), OTHER.to_owned(), format!("2026-11-26T18:49:47Z {OTHER}")];
        let known = KnownTexts::shared_by(samples.iter().map(String::as_bytes));
        for (text, is_known) in [(UUID, false), (OTHER, true), ("2026-11-26T18:49:47Z", false)] {
            assert_eq!(known.has(text.as_bytes()), is_known, "{text}");
        }
    }

    #[test]
    fn forged_bodies_are_refused() {
        let most = 1000;
        for (text, values) in [
            (&[MARKER][..], &[1][..]),
            (&[MARKER, UID], &[0; 15]),
            (&[MARKER, UID], &[0; 17]),
            (&[MARKER, DIGITS], &[2, 0]),
            (&[MARKER, TIME], &[0x80]),
            (&[MARKER, MICRO_TIME], &[0]),
            (&[MARKER, REPEATED], &[0]),
            (&[MARKER, UID].repeat(40), &[0; 16 * 40]),
        ] {
            assert_eq!(unpacked(text, values, most), None, "{text:?}");
        }
        // Numbers that `pack` does not write are text, too.
        let values = [&[0xff; 9][..], &[1], &[0xff; 9], &[1]].concat();
        assert!(unpacked(&[MARKER, MICRO_TIME], &values, most).is_some());
        assert_eq!(split(&[]), None);
        assert_eq!(split(&[2, 1, 2, 9]), Some((2, &[1, 2, 9][..])));
    }

    #[test]
    fn digits_before_a_uid_are_packed_too() {
        let (text, _) = packed(&format!("{} {UUID}", "0123456789abcdef".repeat(4)), "");
        assert!(text.len() < 10, "{text:?}");
    }

    #[test]
    fn reports_what_it_allocates() {
        let texts: Vec<_> = (0..2000).map(|i| format!("{i:08x}-89ab-cdef-0123-456789abcdef")).collect();
        let texts = texts.join(" ");
        assert_reports_what_it_allocates(|| KnownTexts::of(texts.as_bytes()), KnownTexts::capacity);
        let create = || {
            let (mut packer, mut object) = (Packer::default(), PackedObject::default());
            packer.pack(texts.as_bytes(), &KnownTexts::default(), &mut object);
            (packer, object)
        };
        assert_reports_what_it_allocates(create, |(packer, object)| packer.capacity() + object.bytes.capacity());
    }
}
