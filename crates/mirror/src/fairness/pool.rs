//! A pool of units, such as lists that are written at the same time, which readers share by one rule.
//!
//! The rule: **a holder gets more only if it then holds no more than what is left free.** A single reader thus gets
//! half of a pool, the next one half of the rest, and a reader that holds nothing gets the last unit. Switches share
//! the memory of their ports by this rule, which is known as dynamic thresholds.
//!
//! # Before you change this file
//!
//! - Who asks for more than its share waits. A freed unit goes to the waiting holder that has the least, so a flood
//!   only delays itself. The places to wait are shared by the same rule, and without a place the answer is a 429.
//! - An address may belong to many readers. The rule applies to it only when three quarters of the pool are used, and
//!   then it waits like everybody else: no address is refused while it holds nothing.
//! - Nobody waits longer than [`WAIT_LIMIT`].
//! - A permit that is granted to a reader that has just left comes back when the channel drops it. So no permit is
//!   dropped under the lock.
//!
//! # What was left out
//!
//! - The priority levels, seats and virtual time of kube-apiserver's API Priority and Fairness. Its queues share by the
//!   time that requests take. Here it is enough that no user can hold what others need.
//! - A separate queue for each kind of reader. There were three, and each admitted one flood.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::holder::Holder;
use crate::metrics::PoolMetrics;

/// The longest wait for a unit: a quarter of the API server's request timeout, as its own queues have.
const WAIT_LIMIT: Duration = Duration::from_secs(15);

/// A pool of units. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FairPool(Arc<PoolShared>);

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    metrics: PoolMetrics,
}

/// Units of a pool, which return when it is dropped.
#[derive(Debug)]
pub(crate) struct PoolPermit {
    pool: FairPool,
    holder: Holder,
    units: usize,
}

/// The pool has no unit for this holder, and no place to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFull;

#[derive(Debug)]
struct PoolState {
    units: Shares,
    places: Shares,
    holders: HashMap<Holder, Held>,
    /// The number of the next waiter.
    next: u64,
}

/// Something that is shared by the rule.
#[derive(Clone, Copy, Debug)]
struct Shares {
    all: usize,
    used: usize,
}

/// What a holder has, and its requests that wait, in their order.
#[derive(Debug, Default)]
struct Held {
    units: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    granted: oneshot::Sender<PoolPermit>,
}

impl Shares {
    /// Returns true if a holder that has `held` may have `more`.
    fn admits(self, holder: &Holder, held: usize, more: usize) -> bool {
        let Some(left) = self.all.checked_sub(self.used + more) else { return false };
        let is_nearly_full = self.used + more > self.all - self.all / 4;
        let is_lenient = matches!(holder, Holder::Address(_)) && !is_nearly_full;
        held == 0 || is_lenient || held + more <= left
    }
}

impl FairPool {
    /// Creates a pool with this many units, and with this many places to wait.
    pub(crate) fn new(units: usize, places: usize, metrics: PoolMetrics) -> Self {
        let [units, places] = [units, places].map(|all| Shares { all, used: 0 });
        let state = Mutex::new(PoolState { units, places, holders: HashMap::new(), next: 0 });
        Self(Arc::new(PoolShared { state, metrics }))
    }

    /// Creates a pool that nobody measures.
    #[cfg(test)]
    pub(crate) fn of_test(units: usize, places: usize) -> Self {
        Self::new(units, places, crate::metrics::MirrorMetrics::default().pool("test", units))
    }

    /// Waits for one unit.
    ///
    /// # Errors
    ///
    /// [`PoolFull`] at once if too many requests wait, and after 15 s.
    pub(crate) async fn acquire(&self, holder: &Holder) -> Result<PoolPermit, PoolFull> {
        let (mut waiting, granted) = {
            let mut state = self.lock();
            let held = state.holders.get(holder).map_or(0, |held| held.units);
            // A holder with waiting requests is above its share.
            if state.units.admits(holder, held, 1) {
                return Ok(state.take(self, holder, 1));
            }
            let entry = state.holders.get(holder).map_or(0, |held| held.waiting.len());
            if !state.places.admits(holder, entry, 1) {
                self.0.metrics.count_refused();
                return Err(PoolFull);
            }
            state.places.used += 1;
            let number = state.next;
            state.next += 1;
            let (sender, granted) = oneshot::channel();
            let held = state.holders.entry(holder.clone()).or_default();
            held.waiting.push_back(Waiter { number, granted: sender });
            (WaitGuard { pool: self, holder, number: Some(number) }, granted)
        };
        let started = Instant::now();
        let granted = timeout(WAIT_LIMIT, granted).await;
        self.0.metrics.observe_wait(started.elapsed());
        let Ok(Ok(granted)) = granted else {
            self.0.metrics.count_refused();
            return Err(PoolFull);
        };
        waiting.number = None;
        Ok(granted)
    }

    /// Takes units without waiting.
    ///
    /// # Errors
    ///
    /// [`PoolFull`] if the holder would have more than its share.
    pub(crate) fn try_acquire(&self, holder: &Holder, units: usize) -> Result<PoolPermit, PoolFull> {
        let mut state = self.lock();
        let held = state.holders.get(holder).map_or(0, |held| held.units);
        if state.units.admits(holder, held, units) { Ok(state.take(self, holder, units)) } else { Err(PoolFull) }
    }

    /// Counts a request that got no unit, after [`try_acquire`](Self::try_acquire).
    pub(crate) fn count_refused(&self) {
        self.0.metrics.count_refused();
    }

    /// Returns the number of units that are held.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.lock().units.used
    }

    /// Returns the number of units that this holder has.
    pub(crate) fn held(&self, holder: &Holder) -> usize {
        self.lock().holders.get(holder).map_or(0, |held| held.units)
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn take(&mut self, pool: &FairPool, holder: &Holder, units: usize) -> PoolPermit {
        self.units.used += units;
        pool.0.metrics.set_used(self.units.used);
        self.holders.entry(holder.clone()).or_default().units += units;
        PoolPermit { pool: pool.clone(), holder: holder.clone(), units }
    }

    /// Removes a holder that has nothing.
    fn forget(&mut self, holder: &Holder) {
        if self.holders.get(holder).is_some_and(|held| held.units == 0 && held.waiting.is_empty()) {
            self.holders.remove(holder);
        }
    }

    /// Grants units to those who wait, the holder with the least first. Returns the permits of those who have left.
    fn grant(&mut self, pool: &FairPool) -> Vec<PoolPermit> {
        let mut unused = Vec::new();
        while self.units.used < self.units.all {
            let waiting = self.holders.iter().filter_map(|(holder, held)| {
                let first = held.waiting.front()?.number;
                self.units.admits(holder, held.units, 1).then_some((held.units, first, holder))
            });
            let next = waiting.min_by_key(|(units, first, _)| (*units, *first)).map(|(_, _, holder)| holder.clone());
            let Some(holder) = next else { break };
            let waiter = self.holders.get_mut(&holder).and_then(|held| held.waiting.pop_front());
            let Some(waiter) = waiter else { break };
            self.places.used -= 1;
            unused.extend(waiter.granted.send(self.take(pool, &holder, 1)).err());
        }
        unused
    }
}

impl PoolPermit {
    /// Moves the units to another holder, or returns them if it may not have them.
    pub(crate) fn move_to(self, holder: &Holder) -> Result<Self, Self> {
        let is_admitted = {
            let state = self.pool.lock();
            let held = state.holders.get(holder).map_or(0, |held| held.units);
            let without = Shares { used: state.units.used - self.units, ..state.units };
            without.admits(holder, held, self.units)
        };
        if is_admitted { Ok(self.give_to(holder)) } else { Err(self) }
    }

    /// Gives the units to another holder, whatever it has.
    pub(crate) fn give_to(mut self, holder: &Holder) -> Self {
        let pool = self.pool.clone();
        let mut state = pool.lock();
        if let Some(held) = state.holders.get_mut(&self.holder) {
            held.units -= self.units;
        }
        state.forget(&self.holder);
        state.holders.entry(holder.clone()).or_default().units += self.units;
        self.holder = holder.clone();
        self
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        let unused = {
            let mut state = self.pool.lock();
            state.units.used -= self.units;
            self.pool.0.metrics.set_used(state.units.used);
            if let Some(held) = state.holders.get_mut(&self.holder) {
                held.units -= self.units;
            }
            state.forget(&self.holder);
            state.grant(&self.pool)
        };
        // It returns them, and grants again.
        drop(unused);
    }
}

/// Removes a request that no longer waits.
struct WaitGuard<'a> {
    pool: &'a FairPool,
    holder: &'a Holder,
    /// `None` once it has its unit.
    number: Option<u64>,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.pool.lock();
        let Some(held) = state.holders.get_mut(self.holder) else { return };
        let Some(at) = held.waiting.iter().position(|waiter| waiter.number == number) else { return };
        held.waiting.remove(at);
        state.places.used -= 1;
        state.forget(self.holder);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::super::Peer;
    use super::*;
    use futures::FutureExt as _;

    fn user(name: &str) -> Holder {
        Holder::User(name.into())
    }

    fn address(host: u8) -> Holder {
        Holder::Address(Peer::new([10, 0, 0, host].into()))
    }

    /// Takes as many units as the holder gets.
    fn take_all(pool: &FairPool, holder: &Holder) -> Vec<PoolPermit> {
        std::iter::from_fn(|| pool.try_acquire(holder, 1).ok()).collect()
    }

    #[test]
    fn a_holder_gets_no_more_than_what_is_left_free() {
        let pool = FairPool::of_test(100, 0);
        let held: Vec<_> =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| take_all(&pool, &user(name))).into();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [50, 25, 12, 6, 3, 2, 1, 1, 0]);
        drop(held);
        assert_eq!((pool.used(), pool.lock().holders.len()), (0, 0));
        // An address may be that of many readers.
        let held: Vec<_> = [address(1), address(2), user("a")].map(|holder| take_all(&pool, &holder)).into();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [75, 12, 6]);
    }

    #[test]
    fn several_units_are_one_request() {
        let pool = FairPool::of_test(10, 0);
        let _held = pool.try_acquire(&user("a"), 4).unwrap();
        assert_eq!(pool.try_acquire(&user("a"), 2).unwrap_err(), PoolFull);
        assert_eq!(pool.try_acquire(&user("b"), 7).unwrap_err(), PoolFull);
        let _all = pool.try_acquire(&user("b"), 6).unwrap();
        assert_eq!(pool.used(), 10);
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<PoolPermit, PoolFull>> + 'a>>;

    #[tokio::test(start_paused = true)]
    async fn a_flood_delays_only_itself() {
        let (pool, a, b, c) = (FairPool::of_test(8, 8), user("a"), user("b"), user("c"));
        let mut held = take_all(&pool, &a);
        assert_eq!(held.len(), 4);
        let mut waiting: Vec<Waiting<'_>> = (0..10).map(|_| Box::pin(pool.acquire(&a)) as Waiting<'_>).collect();
        let refused = waiting.iter_mut().filter_map(futures::FutureExt::now_or_never).filter(Result::is_err).count();
        assert_eq!(refused, 6, "4 of 8 places are one holder's");
        let _of_b = pool.acquire(&b).now_or_never().unwrap().unwrap();
        let _of_c = pool.acquire(&c).now_or_never().unwrap().unwrap();
        let mut second = Box::pin(pool.acquire(&b));
        assert!(second.as_mut().now_or_never().is_none());
        // The flood came first, and holds more.
        held.pop();
        let _second = second.now_or_never().unwrap().unwrap();
        assert!(waiting[0].as_mut().now_or_never().is_none());
        held.clear();
        assert!(waiting[0].as_mut().now_or_never().unwrap().is_ok());
        drop(waiting);
        assert_eq!(pool.lock().places.used, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_leaves_or_waits_too_long_holds_nothing() {
        let (pool, a, b) = (FairPool::of_test(1, 8), user("a"), user("b"));
        let held = pool.acquire(&a).await.unwrap();
        let started = Instant::now();
        assert_eq!(pool.acquire(&b).await.unwrap_err(), PoolFull);
        assert_eq!(started.elapsed(), WAIT_LIMIT);
        let [mut gone, mut stays] = [(); 2].map(|()| Box::pin(pool.acquire(&b)));
        assert!(gone.as_mut().now_or_never().is_none() && stays.as_mut().now_or_never().is_none());
        // It is granted to a reader that leaves before it looks.
        drop(held);
        drop(gone);
        drop(stays.now_or_never().unwrap().unwrap());
        let state = pool.lock();
        assert_eq!((state.units.used, state.places.used, state.holders.len()), (0, 0, 0));
    }
}
