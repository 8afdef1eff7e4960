//! Lets the cache of a quiet collection reach the version of the API server while readers wait for it.
//!
//! - Readers wait for a version of the cache, and share whatever advances it: a change, a bookmark of the reflector's
//!   watch, or one that is requested here. Each reader knows the version that it needs, from a request that began after
//!   it had arrived. So no bookmark from before its arrival confirms its read.
//! - A watch that requests a bookmark gets one at the next tick of the API server, up to 1.25 s apart, but only if it
//!   was open for up to a second before. So a watch is opened each [`OPEN_INTERVAL`]: then each tick brings a bookmark.
//! - These watches continue for [`KEEP_FOR`] after the last reader, so that the next reader finds one open.
//!   A small watch each second costs the API server less than the list that it replaces.
//! - If a read was not confirmed in time, the server sends no bookmarks, or the reflector's watch stalls. Further lists
//!   are then forwarded at once for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use listwatch::client::Client;
use listwatch_cache::Cache;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// The time between two watches. The API server sorts the watches that get a bookmark by the second.
const OPEN_INTERVAL: Duration = Duration::from_millis(900);

/// How long watches are opened after the last reader.
const KEEP_FOR: Duration = Duration::from_secs(30);

/// A watch lasts 3 s, if the API server ends it.
const WATCH_TIMEOUT: Duration = Duration::from_secs(4);

/// How long lists are forwarded at once after a failure.
const FAILED_FOR: Duration = Duration::from_secs(30);

/// Requests bookmarks for the cache of a resource while readers need them.
pub(crate) struct Confirmations {
    cache: Cache<[u8]>,
    demand: Mutex<Demand>,
}

#[derive(Default)]
struct Demand {
    /// Readers need bookmarks until this time.
    until: Option<Instant>,
    /// True while the task runs.
    is_running: bool,
    /// A reader was not confirmed in time. Further ones do not wait until this time.
    failed_until: Option<Instant>,
}

impl Confirmations {
    pub(super) fn new(cache: Cache<[u8]>) -> Arc<Self> {
        Arc::new(Self { cache, demand: Mutex::default() })
    }

    /// Requests bookmarks for a while, with this client.
    pub(crate) fn request(self: &Arc<Self>, client: &Client) {
        let mut demand = self.lock_demand();
        demand.until = Some(Instant::now() + KEEP_FOR);
        if !demand.is_running {
            demand.is_running = true;
            tokio::spawn(request_while_needed(Arc::downgrade(self), client.clone()));
        }
    }

    /// Records whether a reader was confirmed in time.
    pub(crate) fn record_result(&self, is_confirmed: bool) {
        self.lock_demand().failed_until = (!is_confirmed).then(|| Instant::now() + FAILED_FOR);
    }

    /// Returns true if the last reader was not confirmed in time, a short time ago.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock_demand().failed_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns true if readers still need bookmarks. Otherwise the task ends.
    fn is_needed(&self) -> bool {
        let mut demand = self.lock_demand();
        demand.is_running = demand.until.is_some_and(|until| Instant::now() < until);
        demand.is_running
    }

    fn lock_demand(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn request_while_needed(confirmations: Weak<Confirmations>, client: Client) {
    let mut openings = interval(OPEN_INTERVAL);
    openings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Its drop ends the watches.
    let mut watches = JoinSet::new();
    loop {
        openings.tick().await;
        let Some(confirmations) = confirmations.upgrade().filter(|of| of.is_needed()) else { return };
        let (cache, client) = (confirmations.cache.clone(), client.clone());
        watches.spawn(async move {
            // A reader that is not confirmed is forwarded, and gets the error of the API server.
            drop(timeout(WATCH_TIMEOUT, cache.request_bookmark(&client)).await);
        });
        while watches.try_join_next().is_some() {}
    }
}
