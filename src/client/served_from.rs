//! Who answers a list, the watch cache or etcd, and how fresh that is.

use std::fmt;

use super::options::{ListOptions, ResourceVersion};

/// A server's version, from its `/version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    /// 1, so far.
    pub major: u32,
    /// 36 of 1.36.
    pub minor: u32,
}

impl ServerVersion {
    /// From `major` and `minor` of `/version`, which some providers write like `36+`.
    #[must_use]
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| text.trim_end_matches('+').parse().ok();
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Who answers a list. [`Display`](fmt::Display) explains it in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServedFrom {
    /// etcd, at the version asked for. Limits count.
    Etcd,
    /// A snapshot that the watch cache holds of the version asked for, else etcd. Limits count.
    SnapshotOrEtcd,
    /// The watch cache, once it has seen all that etcd held when the request came. Limits count.
    ConsistentCache,
    /// The watch cache, once it has the version asked for. Limits count.
    CacheAtLeast,
    /// The watch cache as it is. Limits are ignored.
    CacheAnyAge,
}

impl fmt::Display for ServedFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "from etcd, read and decoded for this request",
            Self::SnapshotOrEtcd => {
                "from a snapshot in the watch cache if it holds that version, else from etcd"
            }
            Self::ConsistentCache => {
                "from the watch cache once it has caught up with etcd (after 3 s, or where etcd is older than 3.4.31 or \
                 3.5.13, from etcd itself)"
            }
            Self::CacheAtLeast => {
                "from the watch cache once it has that version (after 3 s an error that asks to try again)"
            }
            Self::CacheAnyAge => "from the watch cache as it is, of any age; a limit is ignored",
        })?;
        match self {
            Self::Etcd => Ok(()),
            _ => f.write_str("; resources without a watch cache, as events by default, come from etcd"),
        }
    }
}

/// Tells who answers a list of these options on a server of this version with default feature gates.
///
/// Which resource it is does not count, with one exception that the explanation names: a resource without a watch
/// cache (`--watch-cache-sizes` of 0, as events have by default, or `--watch-cache=false`) always comes from etcd. And
/// while a cache is being filled, lists with a limit and no selector come from etcd, others get 429 (1.31 and later).
/// A field selector for one `metadata.name` reads a single key, of which there are no snapshots.
///
/// The rules are those of apiserver `cacher/delegator` (`ShouldDelegateList`), with `ConsistentListFromCache` from 1.31
/// and `ListFromCacheSnapshot` from 1.34. What is said of 1.22 to 1.30 is said of older servers too.
#[must_use]
pub fn served_from(options: &ListOptions, server: ServerVersion) -> ServedFrom {
    let since = |minor| server >= ServerVersion { major: 1, minor };
    let consistent_reads = since(31);
    let snapshots = since(34);
    let exact = if snapshots { ServedFrom::SnapshotOrEtcd } else { ServedFrom::Etcd };
    if let Some(token) = &options.continue_token {
        return if snapshots && is_inconsistent(token) { ServedFrom::ConsistentCache } else { exact };
    }
    match &options.resource_version {
        ResourceVersion::Exact(_) => exact,
        _ if options.is_any() => ServedFrom::CacheAnyAge,
        ResourceVersion::AtLeast(_) if options.limit.is_none() || consistent_reads => ServedFrom::CacheAtLeast,
        ResourceVersion::MostRecent if consistent_reads => ServedFrom::ConsistentCache,
        ResourceVersion::MostRecent | ResourceVersion::AtLeast(_) | ResourceVersion::Any => ServedFrom::Etcd,
    }
}

/// Whether a continue token goes on at the latest version, as the one in a 410 does: its version is -1.
///
/// Tokens are base64 of `{"v":"meta.k8s.io/v1","rv":-1,…` (apiserver `storage/continue.go`). What comes before the
/// version is 27 bytes, so 36 characters that never change; the minus sign makes the next one an `L`, digits make it
/// `M`, `N` or `O`. A token of another form is taken for a consistent one.
pub(super) fn is_inconsistent(token: &str) -> bool {
    token.starts_with("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6L")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rv` 12345 and -1; the second is from fixtures/error-410-continue.pb.
    const CONSISTENT: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIzNDUsInN0YXJ0IjoiYVx1MDAwMCJ9";
    const INCONSISTENT: &str =
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoidGVhbS0wOC9jaGVja291dC01NzNjNjNmYy0wMDAwOFx1MDAwMCJ9";

    fn version(version: ResourceVersion) -> ListOptions {
        ListOptions::default().resource_version(version)
    }

    #[test]
    fn table() {
        use ServedFrom::{CacheAnyAge, CacheAtLeast, ConsistentCache, Etcd, SnapshotOrEtcd};

        let at_least = |text: &str| version(ResourceVersion::AtLeast(text.to_owned()));
        let token = |token: &str| ListOptions::default().continue_token(token);
        let exact = version(ResourceVersion::Exact("7".to_owned()));
        let any = version(ResourceVersion::Any);
        // Options, then who answers in 1.22–1.30, in 1.31–1.33, and since 1.34. The row of the legacy exact match
        // (version and limit without a match) is missing: it cannot be asked for.
        for (options, expected) in [
            (token(CONSISTENT), [Etcd, Etcd, SnapshotOrEtcd]),
            (token(INCONSISTENT), [Etcd, Etcd, ConsistentCache]),
            (exact.clone(), [Etcd, Etcd, SnapshotOrEtcd]),
            (any.clone(), [CacheAnyAge; 3]),
            (ListOptions::default(), [Etcd, ConsistentCache, ConsistentCache]),
            (at_least("7").limit(5), [Etcd, CacheAtLeast, CacheAtLeast]),
            (at_least("7"), [CacheAtLeast; 3]),
            // The same with a limit, or more than one row at once: the upper row counts.
            (token(CONSISTENT).limit(5), [Etcd, Etcd, SnapshotOrEtcd]),
            (token("of another server"), [Etcd, Etcd, SnapshotOrEtcd]),
            (any.clone().continue_token(INCONSISTENT), [Etcd, Etcd, ConsistentCache]),
            (exact.limit(5), [Etcd, Etcd, SnapshotOrEtcd]),
            (any.limit(5), [CacheAnyAge; 3]),
            (at_least("0").limit(5), [CacheAnyAge; 3]),
            (ListOptions::default().limit(5), [Etcd, ConsistentCache, ConsistentCache]),
        ] {
            let minors = [[22, 25, 30], [31, 32, 33], [34, 36, 99]];
            for (minors, expected) in minors.into_iter().zip(expected) {
                for minor in minors {
                    let server = ServerVersion { major: 1, minor };
                    assert_eq!(served_from(&options, server), expected, "{server} {options:?}");
                }
            }
        }
        let future = ServerVersion { major: 2, minor: 0 };
        assert_eq!(served_from(&ListOptions::default(), future), ConsistentCache);
    }

    #[test]
    fn explanations() {
        let note = "; resources without a watch cache, as events by default, come from etcd";
        for (answer, start) in [
            (ServedFrom::SnapshotOrEtcd, "from a snapshot"),
            (ServedFrom::ConsistentCache, "from the watch cache once it has caught up"),
            (ServedFrom::CacheAtLeast, "from the watch cache once it has that version"),
            (ServedFrom::CacheAnyAge, "from the watch cache as it is"),
        ] {
            let text = answer.to_string();
            assert!(text.starts_with(start) && text.ends_with(note), "{text}");
        }
        assert!(!ServedFrom::Etcd.to_string().contains("watch cache"));
    }

    #[test]
    fn versions() {
        for (major, minor, expected) in [
            ("1", "36", Some((1, 36))),
            ("1", "27+", Some((1, 27))),
            ("1", "", None),
            ("", "36", None),
            ("v1", "36", None),
        ] {
            let parsed = ServerVersion::parse(major, minor);
            assert_eq!(parsed.map(|v| (v.major, v.minor)), expected);
        }
        assert_eq!(ServerVersion { major: 1, minor: 36 }.to_string(), "1.36");
    }
}
