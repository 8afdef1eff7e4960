//! A map of results that are used for a short time, and are computed once for concurrent callers.
//!
//! `reviewer.rs` has one for tokens and one for rights.
//!
//! # Before you change this file
//!
//! - The lifetime of a result starts with its review, not with its answer. A withdrawn right is used no longer than
//!   that.
//! - Concurrent callers of a key share one review. The map holds it weakly, so it ends with the last caller. A review
//!   that nobody waits for would keep its permit, and its late result would be as old as its start.
//! - Each caller stores the result when it gets it, because the first caller may leave before the end. The first one
//!   that comes takes `running`, so a result is stored once.
//! - An entry that is not expendable stays after its lifetime. The next review of a token then counts against the user
//!   whom the last one found. So a flood of random tokens does not delay readers whose results have expired. While the
//!   API server answers no reviews, the reviewer uses such an entry for longer.
//! - Errors are not stored. After an error the entry is removed, unless its key was known before.
//! - Unknown tokens and denied rights are expendable. A full map drops them first, so a flood evicts no known reader.
//! - Keys are digests. The map then holds no token, and its size does not depend on the length of attributes.
//! - No user code and no review runs under the lock: `review` only creates a future there.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use super::error::ReviewError;

/// A bounded map of results.
pub(super) struct ReviewCache<K, V> {
    entries: Mutex<HashMap<K, CacheEntry<V>>>,
    max_entries: usize,
}

/// The result of a review, and how long it is used from the start of the review.
#[derive(Clone)]
pub(super) struct CachedReview<V> {
    pub(super) value: V,
    pub(super) lifetime: Duration,
    /// True if it is dropped before others when the map is full.
    pub(super) expendable: bool,
}

type ReviewFuture<V> = BoxFuture<'static, Result<CachedReview<V>, ReviewError>>;

struct CacheEntry<V> {
    /// The last result. It is used until this time. It is kept longer if it is not expendable, because the key is known
    /// then.
    last: Option<(CachedReview<V>, Instant)>,
    /// The review that callers wait for, and its start. It ends with the last of them, so it is never an old result,
    /// and holds no permit that others wait for.
    running: Option<(WeakShared<ReviewFuture<V>>, Instant)>,
}

impl<V: Clone> CacheEntry<V> {
    fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|(running, _)| running.upgrade().is_some())
    }

    fn is_used(&self, now: Instant) -> bool {
        self.last.as_ref().is_some_and(|(_, until)| now < *until) || self.is_running()
    }

    fn is_expendable(&self) -> bool {
        self.last.as_ref().is_none_or(|(kept, _)| kept.expendable)
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Send + Sync + 'static> ReviewCache<K, V> {
    pub(super) fn new(max_entries: usize) -> Self {
        Self { entries: Mutex::default(), max_entries }
    }

    /// Returns the result of this key. Starts a review if the map has no result, and no other caller waits for one.
    /// `review` gets the last result of the key, unless it was expendable.
    ///
    /// Errors are returned to all callers of the same review, and not kept.
    pub(super) async fn get_or_review<F>(&self, key: K, review: impl FnOnce(Option<&V>) -> F) -> Result<V, ReviewError>
    where
        F: Future<Output = Result<CachedReview<V>, ReviewError>> + Send + 'static,
    {
        let now = Instant::now();
        let review = {
            let mut entries = self.lock_entries();
            let entry = entries.get(&key);
            if let Some((kept, _)) = entry.and_then(|entry| entry.last.as_ref()).filter(|(_, until)| now < *until) {
                return Ok(kept.value.clone());
            }
            let running = entry.and_then(|entry| entry.running.as_ref()?.0.upgrade());
            let is_new = entry.is_none();
            let last = entry.and_then(|entry| entry.last.as_ref()).filter(|(last, _)| !last.expendable);
            if let Some(running) = running {
                running
            } else {
                let started = review(last.map(|(last, _)| &last.value)).boxed().shared();
                if is_new {
                    evict_entries(&mut entries, self.max_entries, now);
                }
                let entry = entries.entry(key.clone()).or_insert(CacheEntry { last: None, running: None });
                // It is `None` only after the end.
                entry.running = started.downgrade().map(|running| (running, now));
                started
            }
        };
        let result = review.clone().await;
        self.keep_result(&key, &review, &result);
        result.map(|kept| kept.value)
    }

    /// Returns the last result of a key, unless it is expendable, or its review began longer than `max_age` ago.
    pub(super) fn last_result(&self, key: &K, max_age: Duration) -> Option<V> {
        let entries = self.lock_entries();
        let (kept, until) = entries.get(key)?.last.as_ref().filter(|(kept, _)| !kept.expendable)?;
        let age = (Instant::now() + kept.lifetime).saturating_duration_since(*until);
        (age < max_age).then(|| kept.value.clone())
    }

    /// Keeps the result of a review. The first of its callers does.
    fn keep_result(&self, key: &K, review: &Shared<ReviewFuture<V>>, result: &Result<CachedReview<V>, ReviewError>) {
        let mut entries = self.lock_entries();
        let Some(entry) = entries.get_mut(key) else { return };
        let is_this = |(running, _): &mut (WeakShared<_>, _)| {
            running.upgrade().is_some_and(|running: Shared<ReviewFuture<V>>| running.ptr_eq(review))
        };
        let Some((_, started)) = entry.running.take_if(is_this) else { return };
        match result {
            Ok(kept) => entry.last = Some((kept.clone(), started + kept.lifetime)),
            Err(_) if entry.is_expendable() => drop(entries.remove(key)),
            Err(_) => {}
        }
    }

    fn lock_entries(&self) -> MutexGuard<'_, HashMap<K, CacheEntry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops entries until one more fits: expendable ones that are over, else an expendable one, else one that is over,
/// else any.
fn evict_entries<K: Clone + Eq + Hash, V: Clone>(
    entries: &mut HashMap<K, CacheEntry<V>>,
    max_entries: usize,
    now: Instant,
) {
    if entries.len() < max_entries {
        return;
    }
    entries.retain(|_, entry| !entry.is_expendable() || entry.is_used(now));
    if entries.len() < max_entries {
        return;
    }
    let first = |is_dropped: &dyn Fn(&CacheEntry<V>) -> bool| entries.iter().find(|(_, entry)| is_dropped(entry));
    let victim = first(&|entry| entry.is_expendable() && !entry.is_running())
        .or_else(|| first(&|entry| !entry.is_used(now)))
        .or_else(|| first(&|_| true));
    if let Some(victim) = victim.map(|(key, _)| key.clone()) {
        entries.remove(&victim);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;
    use tokio::time::advance;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    fn cache() -> ReviewCache<&'static str, usize> {
        ReviewCache::new(3)
    }

    /// Counts computations; each returns its number.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        fn next(
            &self,
            expendable: bool,
        ) -> impl FnOnce(Option<&usize>) -> BoxFuture<'static, Result<CachedReview<usize>, ReviewError>> {
            let Self(count) = self.clone();
            move |_| {
                let next = async move {
                    let value = count.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok(CachedReview { value, lifetime: LIFETIME, expendable })
                };
                next.boxed()
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_a_result_for_its_lifetime() {
        let (cache, counter) = (cache(), Counter::default());
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(0));
        advance(Duration::from_millis(9_999)).await;
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(0));
        advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_computation() {
        let (cache, counter) = (cache(), Counter::default());
        let (first, second) =
            tokio::join!(cache.get_or_review("a", counter.next(false)), cache.get_or_review("a", counter.next(false)));
        assert_eq!((first, second), (Ok(0), Ok(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_no_error() {
        let (cache, counter) = (cache(), Counter::default());
        let failed = ReviewError::failed("failed");
        let error = failed.clone();
        assert_eq!(cache.get_or_review("a", |_: Option<&usize>| async { Err(error) }).await, Err(failed));
        assert!(cache.lock_entries().is_empty());
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_map_drops_expendable_results_first() {
        let (cache, counter) = (cache(), Counter::default());
        cache.get_or_review("a", counter.next(false)).await.unwrap();
        for key in ["b", "c", "d", "e"] {
            cache.get_or_review(key, counter.next(true)).await.unwrap();
        }
        assert_eq!(cache.lock_entries().len(), 3);
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_map_drops_what_is_needed_least() {
        let running = std::future::pending::<Result<CachedReview<usize>, ReviewError>>().boxed().shared();
        let now = Instant::now();
        let entry = |(expendable, lasts, is_running)| CacheEntry {
            last: Some((CachedReview { value: 0, lifetime: LIFETIME, expendable }, now + Duration::from_secs(lasts))),
            running: running.downgrade().filter(|_| is_running).map(|running| (running, now)),
        };
        // Whether each entry is expendable, how long it lasts, and whether a review of it runs.
        for (entries, left) in [
            // All expendable ones that are over.
            ([(true, 0, false), (true, 0, false), (true, 9, false)], &[2][..]),
            ([(true, 0, true), (true, 0, false), (false, 9, false)], &[0, 2]),
            // Else one that is expendable.
            ([(true, 9, true), (true, 9, false), (false, 0, false)], &[0, 2]),
            // Else one that is over.
            ([(false, 0, false), (false, 9, false), (false, 9, true)], &[1, 2]),
            ([(false, 0, true), (false, 0, false), (false, 9, false)], &[0, 2]),
        ] {
            let mut map: HashMap<usize, _> = entries.into_iter().map(entry).enumerate().collect();
            evict_entries(&mut map, 4, now);
            assert_eq!(map.len(), 3, "one more fits");
            evict_entries(&mut map, 3, now);
            let mut keys: Vec<_> = map.into_keys().collect();
            keys.sort_unstable();
            assert_eq!(keys, left, "{entries:?}");
        }
        let mut map: HashMap<usize, _> = [(false, 9, true); 3].into_iter().map(entry).enumerate().collect();
        evict_entries(&mut map, 3, now);
        assert_eq!(map.len(), 2);
    }

    /// It would hold its permit until the entry is replaced, and its late result would be as old as its start.
    #[tokio::test(start_paused = true)]
    async fn an_abandoned_computation_ends() {
        let (cache, counter) = (cache(), Counter::default());
        let permit = Arc::new(());
        let holds = Arc::clone(&permit);
        let pending = |_: Option<&usize>| async move {
            std::future::pending::<()>().await;
            drop(holds);
            Err(ReviewError::TooMany)
        };
        let mut first = Box::pin(cache.get_or_review("a", pending));
        let mut second = Box::pin(cache.get_or_review("a", counter.next(false)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(Arc::strong_count(&permit), 2, "another caller waits for it");
        drop(second);
        assert_eq!(Arc::strong_count(&permit), 1);
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(0));
    }

    /// The first caller starts the computation, and leaves before its end.
    #[tokio::test(start_paused = true)]
    async fn each_caller_keeps_the_result() {
        let (cache, counter) = (cache(), Counter::default());
        let (done, ends) = oneshot::channel();
        let computation = |_: Option<&usize>| async move {
            let value = ends.await.unwrap();
            Ok(CachedReview { value, lifetime: LIFETIME, expendable: false })
        };
        let mut first = Box::pin(cache.get_or_review("a", computation));
        let mut second = Box::pin(cache.get_or_review("a", counter.next(false)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        done.send(7).unwrap();
        assert_eq!(second.await, Ok(7));
        assert_eq!(cache.get_or_review("a", counter.next(false)).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn remembers_keys_whose_result_was_valuable() {
        let (cache, counter) = (cache(), Counter::default());
        let seen = Mutex::new(Vec::new());
        let failed = |last: Option<&usize>| {
            seen.lock().unwrap().push(last.is_some());
            async { Err(ReviewError::TooMany) }
        };
        for (key, expendable) in [("a", false), ("b", true), ("c", true), ("d", true)] {
            cache.get_or_review(key, counter.next(expendable)).await.unwrap();
        }
        advance(2 * LIFETIME).await;
        // The second failure shows that the first has kept what is entry.
        for key in ["a", "a", "d", "e"] {
            cache.get_or_review(key, failed).await.unwrap_err();
        }
        assert_eq!(*seen.lock().unwrap(), [true, true, false, false]);
    }
}
