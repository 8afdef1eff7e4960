//! Comparison of resource versions.

use std::cmp::Ordering;

/// Compares two resource versions of the same resource, or returns `None` if they cannot be compared.
///
/// Two equal texts are always equal. Otherwise, both must consist of digits without a leading zero; they may exceed
/// `u64`. Sources: KEP-5504, and `util/resourceversion.CompareResourceVersion` in apimachinery.
///
/// ```
/// use std::cmp::Ordering;
///
/// use listwatch::compare_resource_versions;
///
/// assert_eq!(compare_resource_versions("9", "10"), Some(Ordering::Less));
/// assert_eq!(compare_resource_versions("9", "a"), None);
/// ```
#[must_use]
pub fn compare_resource_versions(a: &str, b: &str) -> Option<Ordering> {
    if a == b {
        Some(Ordering::Equal)
    } else if is_comparable(a) && is_comparable(b) {
        Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
    } else {
        None
    }
}

/// Returns true if the version can be compared with others.
#[must_use]
pub fn is_comparable(version: &str) -> bool {
    !version.is_empty() && !version.starts_with('0') && version.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if a watch can resume from the version. For an empty version or 0, which mean "any version", the server
/// sends the collection as it is now.
pub(crate) fn is_resumable(version: &str) -> bool {
    version.bytes().any(|byte| byte != b'0')
}

/// Returns true if `version` is older than `than`; false if the two cannot be compared.
#[must_use]
pub fn is_older(version: &str, than: &str) -> bool {
    compare_resource_versions(version, than) == Some(Ordering::Less)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_length_and_then_by_digits() {
        for (a, b, expected) in [
            ("1", "2", Some(Ordering::Less)),
            ("2", "1", Some(Ordering::Greater)),
            ("9", "10", Some(Ordering::Less)),
            ("99999999999999999999", "100000000000000000000", Some(Ordering::Less)),
            ("7", "7", Some(Ordering::Equal)),
            ("x", "x", Some(Ordering::Equal)),
            ("0", "1", None),
            ("01", "2", None),
            ("", "2", None),
            ("1", "b", None),
            ("1", "-2", None),
        ] {
            assert_eq!(compare_resource_versions(a, b), expected, "{a} {b}");
            assert_eq!(is_older(a, b), expected == Some(Ordering::Less), "{a} {b}");
        }
    }
}
