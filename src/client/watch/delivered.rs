//! The version from which a watch resumes, and the events that it has delivered since.
//!
//! Several events may have the same version: when a lease of etcd expires, all its objects are deleted at one version.
//! Until an event of a newer version or a bookmark arrives, further events of the newest version may therefore be
//! missing, so the watch resumes from the version before and drops the events that the server repeats.
//!
//! The server may have forgotten the version before and still know the newest one. The watch then resumes from the
//! newest version if no event of it can be missing, which is the case if its only event added or modified an object:
//! kube-apiserver writes one object in each transaction of etcd (`storage/etcd3/store.go`), and only the deletions of
//! an expired lease share a version. After a deletion, after two writes of one version, and for versions that cannot be
//! compared, the version counts as expired.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::meta::EventType;
use crate::object::ItemRef;
use crate::object::version::{compare_resource_versions, is_comparable, is_older, is_resumable};

/// How many events are remembered at most; earlier ones may be repeated after a reconnect. A lease of kube-apiserver
/// has at most 1,000 objects (`--lease-max-object-count`).
const REMEMBERED: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Delivered {
    pub(super) events: u64,
    /// The version up to which all events were delivered; empty before the first version.
    resumes_from: String,
    /// The newest version of a delivered event or bookmark, which is `resumes_from` or the next version.
    newest: String,
    /// True if the event of `newest` added or modified an object.
    newest_is_write: bool,
    /// The number of the connection that delivered the first event of `newest`.
    newest_since: u64,
    /// True if the server sent two writes of one version.
    shares_versions: bool,
    /// How often `newest` has changed.
    moves: u64,
    /// How many connections there were.
    connection: u64,
    /// The events since `resumes_from`, by hash.
    seen: HashMap<u64, SeenEvent>,
    /// The last event of each object in `seen`, by the hash of the object.
    last: HashMap<u64, SeenEvent>,
    hasher: RandomState,
}

struct SeenEvent {
    /// The number of the connection that sent the event last.
    connection: u64,
    /// `Delivered::moves` at that time.
    moves: u64,
}

/// Stands for the connection of an event without a version, after which no event of the object counts as repeated.
const NEVER: u64 = u64::MAX;

/// An event, as hashes.
#[derive(Clone, Copy)]
pub(super) struct Fingerprint {
    object: u64,
    /// `None` for an event without a version, because such events cannot be told apart.
    event: Option<u64>,
}

impl Delivered {
    pub(super) fn up_to(version: String) -> Self {
        Self { newest: version.clone(), resumes_from: version, ..Self::default() }
    }

    /// Forgets everything but the number of events, because the stream starts over.
    pub(super) fn forget_versions(&mut self) {
        *self = Self { events: self.events, ..Self::default() };
    }

    /// Returns the version up to which all events were delivered; empty before the first version.
    pub(super) fn resumes_from(&self) -> &str {
        &self.resumes_from
    }

    /// Returns the newest version that was delivered. Further events may have the same version.
    pub(super) fn newest(&self) -> &str {
        &self.newest
    }

    /// Returns true if this connection delivered the newest version, so that the server has since forgotten what
    /// follows it.
    pub(super) fn has_advanced(&self) -> bool {
        self.newest_since == self.connection
    }

    /// Returns true if no event of the newest version can be missing.
    pub(super) fn has_all_of_newest(&self) -> bool {
        self.resumes_from == self.newest || self.newest_is_write && !self.shares_versions
    }

    /// Resumes from the newest version, because the server has forgotten the version before. Returns false if events of
    /// the newest version may be missing.
    pub(super) fn resume_from_newest(&mut self) -> bool {
        let is_complete = self.resumes_from != self.newest && self.has_all_of_newest();
        if is_complete {
            self.resumes_from.clone_from(&self.newest);
        }
        is_complete
    }

    /// Notes that the server sends the events after `resumes_from` again.
    pub(super) fn begin_connection(&mut self) {
        self.connection += 1;
    }

    /// Returns the fingerprint of an event; `None` if the metadata of the object is malformed.
    pub(super) fn fingerprint(&self, change: EventType, object: ItemRef<'_>, version: &str) -> Option<Fingerprint> {
        let meta = object.meta().ok()?;
        let key = (meta.namespace(), meta.name());
        let event = (!version.is_empty()).then(|| self.hasher.hash_one((&key, change, meta.uid(), version)));
        Some(Fingerprint { object: self.hasher.hash_one(&key), event })
    }

    /// Returns true if an earlier connection delivered this event, and this connection has not yet delivered one of the
    /// object.
    pub(super) fn is_repeated(&self, fingerprint: &Fingerprint) -> bool {
        let is_earlier = |seen: &SeenEvent| seen.connection < self.connection;
        let Fingerprint { object, event } = fingerprint;
        event.and_then(|event| self.seen.get(&event)).is_some_and(is_earlier)
            && self.last.get(object).is_some_and(is_earlier)
    }

    pub(super) fn record_event(&mut self, fingerprint: Option<Fingerprint>, change: EventType, version: &str) {
        self.shares_versions |= change != EventType::Deleted && version == self.newest;
        self.advance_to(version, change);
        let Some(Fingerprint { object, event }) = fingerprint else { return };
        if self.seen.len() >= REMEMBERED || self.last.len() >= REMEMBERED {
            self.seen.clear();
            self.last.clear();
        }
        let (connection, moves) = (self.connection, self.moves);
        if let Some(event) = event {
            self.seen.insert(event, SeenEvent { connection, moves });
        }
        let connection = if event.is_some() { connection } else { NEVER };
        self.last.insert(object, SeenEvent { connection, moves });
    }

    /// Records an event of another shard, which may arrive again after a reconnect.
    pub(super) fn record_other_shard(&mut self, change: EventType, version: &str) {
        let is_second = version == self.newest && self.newest_since == self.connection;
        self.shares_versions |= change != EventType::Deleted && is_second;
        self.advance_to(version, change);
    }

    /// Records the version of an event. If it is newer, all events of the version before were delivered.
    fn advance_to(&mut self, version: &str, change: EventType) {
        let is_newer = compare_resource_versions(version, &self.newest).is_none_or(Ordering::is_gt);
        if !is_newer || !is_resumable(version) {
            return;
        }
        self.resumes_from.clone_from(&self.newest);
        version.clone_into(&mut self.newest);
        self.newest_is_write = change != EventType::Deleted && is_comparable(version);
        self.newest_since = self.connection;
        // A deletion may have the version of the object, which is older than the deletion. The server may therefore
        // repeat everything that followed the first event of `resumes_from`.
        let moves = self.moves;
        for seen in [&mut self.seen, &mut self.last] {
            seen.retain(|_, seen| seen.moves == moves);
            seen.shrink_to(REMEMBERED / 64);
        }
        self.moves += 1;
    }

    /// Notes that all events up to this version of a bookmark or a list were delivered.
    pub(super) fn complete_version(&mut self, version: &str) {
        if is_resumable(version) && !is_older(version, &self.newest) {
            version.clone_into(&mut self.newest);
            version.clone_into(&mut self.resumes_from);
            (self.seen, self.last) = (HashMap::new(), HashMap::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends any number of events at one version does not fill the memory. Events may then be repeated,
    /// and none is lost.
    #[test]
    fn remembers_a_limited_number_of_events() {
        let mut delivered = Delivered::up_to("7".to_owned());
        let fingerprint = |n: usize| Fingerprint { object: n as u64, event: Some(n as u64) };
        for n in 0..=REMEMBERED {
            delivered.record_event(Some(fingerprint(n)), EventType::Added, "8");
        }
        delivered.begin_connection();
        assert_eq!((delivered.resumes_from(), delivered.newest(), delivered.seen.len()), ("7", "8", 1));
        assert!(!delivered.is_repeated(&fingerprint(0)) && delivered.is_repeated(&fingerprint(REMEMBERED)));
        // A newer version, and then another, forget the events of the version before.
        for (version, remembered) in [(9, 2), (10, 3), (11, 3)] {
            for n in [2 * version, 2 * version + 1] {
                delivered.record_event(Some(fingerprint(n)), EventType::Added, &version.to_string());
            }
            assert!(delivered.seen.len() <= remembered + 1, "{version}: {}", delivered.seen.len());
        }
        delivered.complete_version("11");
        assert_eq!((delivered.resumes_from(), delivered.seen.capacity()), ("11", 0));
        // Events without a version are remembered by their objects.
        for n in 0..=REMEMBERED {
            delivered.record_event(Some(Fingerprint { event: None, ..fingerprint(n) }), EventType::Deleted, "");
        }
        assert_eq!((delivered.seen.len(), delivered.last.len()), (0, 1));
    }

    #[test]
    fn resumes_from_the_newest_version_only_if_no_event_of_it_can_be_missing() {
        use EventType::{Added, Deleted, Modified};

        for (events, expected) in [
            (&[][..], None),
            (&[("a", Added, "8")], Some("8")),
            (&[("a", Added, "8"), ("a", Modified, "9")], Some("9")),
            // An old deletion has no place in the order.
            (&[("a", Modified, "9"), ("b", Deleted, "3")], Some("9")),
            (&[("a", Modified, "9"), ("a", Deleted, "9")], Some("9")),
            // More deletions may have this version.
            (&[("a", Deleted, "9")], None),
            (&[("a", Deleted, "9"), ("b", Added, "10")], Some("10")),
            // Each version may have several writes.
            (&[("a", Added, "8"), ("b", Added, "8")], None),
            (&[("a", Added, "8"), ("b", Added, "8"), ("c", Added, "9")], None),
            // These versions have no order.
            (&[("a", Added, "x8")], None),
        ] {
            let mut delivered = Delivered::up_to("7".to_owned());
            for (name, change, version) in events {
                let hash = |text: &str| delivered.hasher.hash_one(text);
                let fingerprint = Fingerprint { object: hash(name), event: Some(hash(version)) };
                delivered.record_event(Some(fingerprint), *change, version);
            }
            let before = delivered.resumes_from().to_owned();
            assert_eq!(delivered.resume_from_newest(), expected.is_some(), "{events:?}");
            assert_eq!(delivered.resumes_from(), expected.unwrap_or(&before), "{events:?}");
            assert!(!delivered.resume_from_newest(), "{events:?}");
        }
    }

    /// The server repeats events of other shards, too.
    #[test]
    fn an_event_of_another_shard_completes_the_version_before_it() {
        use EventType::{Added, Deleted};

        for (events, expected) in [
            (&[("other", Added, "8")][..], Some("8")),
            (&[("own", Added, "8"), ("other", Added, "9")], Some("9")),
            (&[("own", Added, "8"), ("other", Deleted, "8")], Some("8")),
            (&[("other", Added, "8"), ("reconnect", Added, ""), ("other", Added, "8")], Some("8")),
            // Each version may have several writes.
            (&[("own", Added, "8"), ("other", Added, "8")], None),
        ] {
            let mut delivered = Delivered::up_to("7".to_owned());
            delivered.begin_connection();
            for (what, change, version) in events {
                match *what {
                    "own" => delivered.record_event(None, *change, version),
                    "other" => delivered.record_other_shard(*change, version),
                    _ => delivered.begin_connection(),
                }
            }
            assert_eq!(delivered.resume_from_newest(), expected.is_some(), "{events:?}");
            assert_eq!(delivered.resumes_from(), expected.unwrap_or("7"), "{events:?}");
        }
    }

    #[test]
    fn a_stream_that_starts_over_keeps_only_the_number_of_events() {
        let mut delivered = Delivered::up_to("7".to_owned());
        delivered.record_event(None, EventType::Added, "8");
        delivered.events = 1;
        delivered.forget_versions();
        assert_eq!((delivered.events, delivered.resumes_from(), delivered.newest()), (1, "", ""));
    }
}
