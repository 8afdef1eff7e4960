//! A map of results that are used for a short time, and are computed once for concurrent callers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use crate::review::ReviewFailed;

/// A bounded map of results.
pub(crate) struct Ttl<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    /// The largest number of entries.
    most: usize,
}

/// A result, and how long it is used from the start of its computation.
#[derive(Clone)]
pub(crate) struct Kept<V> {
    pub(crate) value: V,
    pub(crate) lifetime: Duration,
    /// True if it is dropped before others when the map is full.
    pub(crate) expendable: bool,
}

type Computation<V> = BoxFuture<'static, Result<Kept<V>, ReviewFailed>>;

struct Entry<V> {
    /// The last result. It is used until this time, and kept longer if it is not expendable, because that is known of
    /// its key then.
    last: Option<(Kept<V>, Instant)>,
    /// The computation that callers wait for, and its start. It ends with the last of them, so it is never an old
    /// result, and holds nothing that others wait for.
    running: Option<(WeakShared<Computation<V>>, Instant)>,
}

impl<V: Clone> Entry<V> {
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

impl<K: Clone + Eq + Hash, V: Clone + Send + Sync + 'static> Ttl<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: Mutex::default(), most }
    }

    /// Returns the result of this key. Computes it if it is not in the map, and another caller does not compute it already.
    /// `compute` gets true if the last result of the key was not expendable.
    ///
    /// Errors are returned to all callers of the same computation, and not kept.
    pub(crate) async fn get<F>(&self, key: K, compute: impl FnOnce(bool) -> F) -> Result<V, ReviewFailed>
    where
        F: Future<Output = Result<Kept<V>, ReviewFailed>> + Send + 'static,
    {
        let now = Instant::now();
        let computed = {
            let mut entries = self.entries();
            let known = entries.get(&key);
            if let Some((kept, _)) = known.and_then(|entry| entry.last.as_ref()).filter(|(_, until)| now < *until) {
                return Ok(kept.value.clone());
            }
            let running = known.and_then(|entry| entry.running.as_ref()?.0.upgrade());
            let (is_new, is_valuable) = (known.is_none(), known.is_some_and(|entry| !entry.is_expendable()));
            running.unwrap_or_else(|| {
                let computed = compute(is_valuable).boxed().shared();
                if is_new {
                    make_room(&mut entries, self.most, now);
                }
                let entry = entries.entry(key.clone()).or_insert(Entry { last: None, running: None });
                // It is `None` only after the end.
                entry.running = computed.downgrade().map(|running| (running, now));
                computed
            })
        };
        let result = computed.clone().await;
        self.ended(&key, &computed, &result);
        result.map(|kept| kept.value)
    }

    /// Keeps the result of a computation. The first of its callers does.
    fn ended(&self, key: &K, computed: &Shared<Computation<V>>, result: &Result<Kept<V>, ReviewFailed>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return };
        let is_this = |(running, _): &mut (WeakShared<_>, _)| {
            running.upgrade().is_some_and(|running: Shared<Computation<V>>| running.ptr_eq(computed))
        };
        let Some((_, started)) = entry.running.take_if(is_this) else { return };
        match result {
            Ok(kept) => entry.last = Some((kept.clone(), started + kept.lifetime)),
            Err(_) if entry.is_expendable() => drop(entries.remove(key)),
            Err(_) => {}
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops entries until one more fits: expendable ones that are over, else an expendable one, else one that is over,
/// else any.
fn make_room<K: Clone + Eq + Hash, V: Clone>(entries: &mut HashMap<K, Entry<V>>, most: usize, now: Instant) {
    if entries.len() < most {
        return;
    }
    entries.retain(|_, entry| !entry.is_expendable() || entry.is_used(now));
    if entries.len() < most {
        return;
    }
    let first = |is_dropped: &dyn Fn(&Entry<V>) -> bool| entries.iter().find(|(_, entry)| is_dropped(entry));
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

    const FOR: Duration = Duration::from_secs(10);

    fn ttl() -> Ttl<&'static str, usize> {
        Ttl::new(3)
    }

    /// Counts computations; each returns its number.
    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        fn next(&self, expendable: bool) -> impl FnOnce(bool) -> BoxFuture<'static, Result<Kept<usize>, ReviewFailed>> {
            let Self(count) = self.clone();
            move |_| {
                let next = async move {
                    let value = count.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok(Kept { value, lifetime: FOR, expendable })
                };
                next.boxed()
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
        let failed = ReviewFailed::Failed("failed".to_owned());
        let error = failed.clone();
        assert_eq!(ttl.get("a", |_| async { Err(error) }).await, Err(failed));
        assert!(ttl.entries().is_empty());
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

    /// It would hold its turn until the entry is replaced, and its late result would be as old as its start.
    #[tokio::test(start_paused = true)]
    async fn an_abandoned_computation_ends() {
        let (ttl, counter) = (ttl(), Counter::default());
        let turn = Arc::new(());
        let holds = Arc::clone(&turn);
        let pending = |_| async move {
            std::future::pending::<()>().await;
            drop(holds);
            Err(ReviewFailed::TooMany)
        };
        let mut first = Box::pin(ttl.get("a", pending));
        let mut second = Box::pin(ttl.get("a", counter.next(false)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(Arc::strong_count(&turn), 2, "another caller waits for it");
        drop(second);
        assert_eq!(Arc::strong_count(&turn), 1);
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(0));
    }

    /// The first caller starts the computation, and leaves before its end.
    #[tokio::test(start_paused = true)]
    async fn each_caller_keeps_the_result() {
        let (ttl, counter) = (ttl(), Counter::default());
        let (done, ends) = oneshot::channel();
        let computation = |_| async move {
            let value = ends.await.unwrap();
            Ok(Kept { value, lifetime: FOR, expendable: false })
        };
        let mut first = Box::pin(ttl.get("a", computation));
        let mut second = Box::pin(ttl.get("a", counter.next(false)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(first);
        done.send(7).unwrap();
        assert_eq!(second.await, Ok(7));
        assert_eq!(ttl.get("a", counter.next(false)).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn remembers_keys_whose_result_was_valuable() {
        let (ttl, counter) = (ttl(), Counter::default());
        let seen = Mutex::new(Vec::new());
        let failed = |is_valuable| {
            seen.lock().unwrap().push(is_valuable);
            async { Err(ReviewFailed::TooMany) }
        };
        for (key, expendable) in [("a", false), ("b", true), ("c", true), ("d", true)] {
            ttl.get(key, counter.next(expendable)).await.unwrap();
        }
        advance(2 * FOR).await;
        // The second failure shows that the first has kept what is known.
        for key in ["a", "a", "d", "e"] {
            ttl.get(key, failed).await.unwrap_err();
        }
        assert_eq!(*seen.lock().unwrap(), [true, true, false, false]);
    }
}
