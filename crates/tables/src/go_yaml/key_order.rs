//! The order of keys: numbers in them by their size, letters last.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use serde_json::{Map, Value};

/// Returns the keys in the order in which they are written.
///
/// A heap sorts them, because the comparison of strange keys is no total order, for which a sort may panic.
pub(super) fn sorted_keys(members: &Map<String, Value>) -> Vec<&str> {
    let keys: BinaryHeap<_> = members.keys().map(|key| Key(key)).collect();
    keys.into_sorted_vec().into_iter().map(|key| key.0).collect()
}

struct Key<'a>(&'a str);

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if is_less(self.0, other.0) {
            return Ordering::Less;
        }
        if is_less(other.0, self.0) { Ordering::Greater } else { Ordering::Equal }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

fn is_less(a: &str, b: &str) -> bool {
    let same = a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b);
    let Some(((at, of_a), of_b)) = same else { return a.len() < b.len() };
    match (of_a.is_alphabetic(), of_b.is_alphabetic()) {
        (true, true) => return of_a < of_b,
        (false, false) => {}
        (_, is_letter) => return is_letter,
    }
    // Zeros continue a number that has begun before.
    let before = a.get(..at).unwrap_or_default().bytes().rev().take_while(u8::is_ascii_digit);
    let continues = (of_a == '0' || of_b == '0') && before.into_iter().any(|digit| digit != b'0');
    let number = |text: &str| {
        let digits = text.get(at..).unwrap_or_default().bytes().take_while(u8::is_ascii_digit);
        let start = (i64::from(continues), 0_usize);
        digits.fold(start, |(number, length), digit| {
            (number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), length + 1)
        })
    };
    (number(a), of_a) < (number(b), of_b)
}
