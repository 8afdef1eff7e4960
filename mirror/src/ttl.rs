//! A map of results that are used for a short time, and are computed once for concurrent callers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

use crate::review::ReviewFailed;

/// A bounded map of results.
pub(crate) struct Ttl<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    /// The largest number of entries.
    most: usize,
    /// Callers share a computation for this time after its start: one that its callers abandoned would return an old result.
    shared_for: Duration,
}

/// A result, and how long it is used from the start of its computation.
#[derive(Clone)]
pub(crate) struct Kept<V> {
    pub(crate) value: V,
    pub(crate) lifetime: Duration,
    /// True if it is dropped before others when the map is full.
    pub(crate) expendable: bool,
}

type Computed<V> = Shared<BoxFuture<'static, Result<Kept<V>, ReviewFailed>>>;

struct Entry<V> {
    computed: Computed<V>,
    /// Until then the entry is used.
    until: Instant,
    expendable: bool,
}

impl<K: Clone + Eq + Hash, V: Clone + Send + Sync + 'static> Ttl<K, V> {
    pub(crate) fn new(most: usize, shared_for: Duration) -> Self {
        Self { entries: Mutex::default(), most, shared_for }
    }

    /// Returns the result of this key. Computes it if it is not in the map, and another caller does not compute it already.
    ///
    /// Errors are returned to all callers of the same computation, and not kept.
    pub(crate) async fn get(
        &self,
        key: K,
        compute: impl Future<Output = Result<Kept<V>, ReviewFailed>> + Send + 'static,
    ) -> Result<V, ReviewFailed> {
        let started = Instant::now();
        let (computed, is_new) = {
            let mut entries = self.entries();
            if let Some(entry) = entries.get(&key).filter(|entry| started < entry.until) {
                (entry.computed.clone(), false)
            } else {
                let computed = compute.boxed().shared();
                make_room(&mut entries, self.most, started);
                let until = started + self.shared_for;
                entries.insert(key.clone(), Entry { computed: computed.clone(), until, expendable: true });
                (computed, true)
            }
        };
        let result = computed.clone().await;
        if is_new || result.is_err() {
            let mut entries = self.entries();
            if let Some(entry) = entries.get_mut(&key).filter(|entry| entry.computed.ptr_eq(&computed)) {
                match &result {
                    Ok(kept) => {
                        entry.until = started + kept.lifetime;
                        entry.expendable = kept.expendable;
                    }
                    Err(_) => drop(entries.remove(&key)),
                }
            }
        }
        result.map(|kept| kept.value)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops entries until one more fits: those that are over, else the expendable ones, else any.
fn make_room<K: Clone + Eq + Hash, V>(entries: &mut HashMap<K, Entry<V>>, most: usize, now: Instant) {
    if entries.len() < most {
        return;
    }
    entries.retain(|_, entry| now < entry.until);
    if entries.len() < most {
        return;
    }
    let victim = entries.iter().find(|(_, entry)| entry.expendable).or_else(|| entries.iter().next());
    if let Some(victim) = victim.map(|(key, _)| key.clone()) {
        entries.remove(&victim);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::advance;

    use super::*;

    const FOR: Duration = Duration::from_secs(10);

    fn ttl() -> Ttl<&'static str, usize> {
        Ttl::new(3, FOR)
    }

    /// Counts computations; each returns its number.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        fn next(&self, expendable: bool) -> impl Future<Output = Result<Kept<usize>, ReviewFailed>> + Send + 'static {
            let Self(count) = self.clone();
            async move {
                let value = count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(Kept { value, lifetime: FOR, expendable })
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_a_result_for_its_lifetime() {
        let (ttl, counter) = (ttl(), Counter::default());
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
        advance(Duration::from_millis(9_999)).await;
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
        advance(Duration::from_millis(1)).await;
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_computation() {
        let (ttl, counter) = (ttl(), Counter::default());
        let (first, second) = tokio::join!(ttl.get("a", counter.next(false)), ttl.get("a", counter.next(false)));
        assert_eq!((first, second), (Ok(0), Ok(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_no_error() {
        let (ttl, counter) = (ttl(), Counter::default());
        let failed = ReviewFailed("failed".to_owned());
        let error = failed.clone();
        assert_eq!(ttl.get("a", async { Err(error) }).await, Err(failed));
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_map_drops_expendable_results_first() {
        let (ttl, counter) = (ttl(), Counter::default());
        ttl.get("a", counter.next(false)).await.unwrap();
        for key in ["b", "c", "d", "e"] {
            ttl.get(key, counter.next(true)).await.unwrap();
        }
        assert_eq!(ttl.entries().len(), 3);
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
    }

    /// The callers of a computation may be gone; its late result would be as old as its start.
    #[tokio::test(start_paused = true)]
    async fn replaces_an_abandoned_computation() {
        let (ttl, counter) = (ttl(), Counter::default());
        assert!(ttl.get("a", std::future::pending()).now_or_never().is_none());
        advance(FOR).await;
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
    }
}
