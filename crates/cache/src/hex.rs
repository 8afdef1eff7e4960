//! Lower-case hexadecimal, and uids in it.

/// The length of a uid as API servers write it, such as `01234567-89ab-cdef-0123-456789abcdef`.
pub(crate) const UID_LEN: usize = 36;

pub(crate) fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

pub(crate) fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' - 10 + value }
}

/// Returns the number of a uid; `None` unless [`format_uid`] returns the same text.
pub(crate) fn parse_uid(uid: &[u8]) -> Option<u128> {
    let uid: &[u8; UID_LEN] = uid.try_into().ok()?;
    uid.iter().enumerate().try_fold(0, |number, (at, byte)| {
        if is_hyphen(at) { (*byte == b'-').then_some(number) } else { Some(number << 4 | u128::from(value(*byte)?)) }
    })
}

pub(crate) fn format_uid(number: u128) -> [u8; UID_LEN] {
    let mut digits = (0..32).rev().map(|place| digit((number >> (4 * place) & 0xf) as u8));
    let mut uid = [b'-'; UID_LEN];
    for (at, byte) in uid.iter_mut().enumerate() {
        if !is_hyphen(at) {
            *byte = digits.next().unwrap_or(b'-');
        }
    }
    uid
}

fn is_hyphen(at: usize) -> bool {
    matches!(at, 8 | 13 | 18 | 23)
}
