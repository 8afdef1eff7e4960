//! The snapshots of lists in pages, so that a list continues at its version.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use listwatch::compare_resource_versions;
use listwatch_cache::{Cache, Snapshot};
use tokio::time::{Instant, sleep};

/// The snapshots of lists in pages that are kept, so that a list continues at its version.
const MAX_SNAPSHOTS: usize = 8;

/// How long such a snapshot is kept. The API server keeps versions for 5 minutes, and continues the list from then on.
const MAX_AGE: Duration = Duration::from_secs(60);

/// How often they are checked, while there are any.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The snapshots of lists in pages.
pub(super) struct PagedSnapshots {
    cache: Cache<[u8]>,
    /// The oldest first.
    snapshots: Mutex<VecDeque<PagedSnapshot>>,
}

/// The snapshot of a list in pages, and when its first page was read.
struct PagedSnapshot {
    at: Instant,
    snapshot: Arc<Snapshot<[u8]>>,
}

impl PagedSnapshots {
    pub(super) fn new(cache: Cache<[u8]>) -> Arc<Self> {
        Arc::new(Self { cache, snapshots: Mutex::default() })
    }

    /// Keeps a snapshot, until [`drop_expired`](Self::drop_expired) drops it or others take its place.
    pub(super) fn keep_snapshot(self: &Arc<Self>, snapshot: &Arc<Snapshot<[u8]>>) {
        let mut snapshots = self.lock_snapshots();
        if snapshots.iter().any(|kept| kept.snapshot.resource_version() == snapshot.resource_version()) {
            return;
        }
        if snapshots.is_empty() {
            tokio::spawn(Self::drop_expired(Arc::downgrade(self)));
        }
        snapshots.push_back(PagedSnapshot { at: Instant::now(), snapshot: Arc::clone(snapshot) });
        let surplus = snapshots.len().saturating_sub(MAX_SNAPSHOTS);
        let dropped: Vec<_> = snapshots.drain(..surplus).collect();
        // A drop may free many objects: not under the lock.
        drop(snapshots);
        drop(dropped);
    }

    /// Drops snapshots after [`MAX_AGE`], and as soon as the change log no longer reaches back to them. So objects that
    /// only a snapshot keeps alive are states in the log, whose memory has a limit. It ends with the last snapshot.
    async fn drop_expired(this: Weak<Self>) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let Some(this) = this.upgrade() else { return };
            let start = this.cache.change_log().start;
            let is_in_log = |version: &str| {
                let start = start.as_deref().and_then(|start| compare_resource_versions(start, version));
                start.is_some_and(Ordering::is_le)
            };
            let mut snapshots = this.lock_snapshots();
            let (kept, dropped) = snapshots.drain(..).partition(|kept: &PagedSnapshot| {
                kept.at.elapsed() < MAX_AGE && is_in_log(kept.snapshot.resource_version())
            });
            *snapshots = kept;
            let has_ended = snapshots.is_empty();
            drop(snapshots);
            drop::<VecDeque<_>>(dropped);
            if has_ended {
                return;
            }
        }
    }

    /// Returns the snapshot at this version.
    pub(super) fn find_snapshot(&self, resource_version: &str) -> Option<Arc<Snapshot<[u8]>>> {
        let snapshots = self.lock_snapshots();
        let found = snapshots.iter().find(|kept| kept.snapshot.resource_version() == resource_version);
        found.map(|kept| Arc::clone(&kept.snapshot))
    }

    pub(super) fn len(&self) -> usize {
        self.lock_snapshots().len()
    }

    fn lock_snapshots(&self) -> MutexGuard<'_, VecDeque<PagedSnapshot>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
