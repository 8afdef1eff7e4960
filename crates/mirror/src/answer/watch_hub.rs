//! Wakes watches with selectors only for the changes that they may select.
//!
//! Each watch is a cursor in the change log. Woken by each change, a thousand watches would decode each change a
//! thousand times. So one task for each resource, the hub, reads the log in their place. It decodes a change once, finds
//! the watches that select its old or its new state, and tells each of them the place of the change.
//!
//! # Before you change this file
//!
//! - A watch keeps places, not changes. If it reads so slowly that the log drops them, it gets a 410, as every reader.
//!   A watch that is told nothing skips to the place that the hub has delivered: its bookmarks continue, and it gets no
//!   410 for changes that it does not select.
//! - `collected` advances with the search for watches, under one lock, and `delivered` once all of them are told. A new
//!   watch reads by itself up to `collected`. An idle watch skips to `delivered`, which it reads before its own queue.
//! - The watch selects again, because it must know whether the change is an `ADDED`, a `MODIFIED` or a `DELETED`.
//! - A change that cannot be read may concern any watch. They find the error themselves.
//! - Once the log is closed, each watch reads by itself, and finds that its place has expired.
//! - No lock is held while selectors are evaluated.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use listwatch_cache::{ChangeCursor, ChangePosition, LoggedChange, Object, StoreError};
use tokio::task::consume_budget;

use super::select::ReadSelector;
use super::watch_routes::WatchRoutes;
use crate::resource::Mirrored;

/// The most places that a watch is told before it reads the log by itself.
const MAX_PLACES: usize = 1024;

/// The hubs of resources, by the address of the resource.
#[derive(Default)]
pub(super) struct WatchHubs(Mutex<HashMap<usize, Arc<WatchHub>>>);

impl WatchHubs {
    /// Returns the changes after a cursor that a watch may select, and perhaps others.
    pub(super) fn follow(
        &self,
        mirrored: &Arc<Mirrored>,
        selector: &ReadSelector,
        cursor: ChangeCursor<[u8]>,
    ) -> WatchChanges {
        if selector.selects_all() {
            return WatchChanges { cursor, told: None };
        }
        let hub = {
            let mut hubs = lock(&self.0);
            let new = || Arc::new(WatchHub { mirrored: Arc::clone(mirrored), state: Mutex::new(HubState::new()) });
            Arc::clone(hubs.entry(Arc::as_ptr(mirrored).addr()).or_insert_with(new))
        };
        let watch = Arc::new(ToldWatch { selector: selector.clone(), told: Mutex::default() });
        let number = hub.add_watch(&watch);
        WatchChanges { cursor, told: Some(Told { hub, watch, number }) }
    }
}

/// The changes that a watch reads.
pub(super) struct WatchChanges {
    cursor: ChangeCursor<[u8]>,
    /// `None` for a watch that selects all objects.
    told: Option<Told>,
}

/// The registration of a watch at its hub. Its drop removes the watch.
struct Told {
    hub: Arc<WatchHub>,
    watch: Arc<ToldWatch>,
    number: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        lock(&self.hub.state).routes.remove(self.number);
    }
}

impl WatchChanges {
    /// Waits for the next change that the watch may select.
    ///
    /// # Errors
    ///
    /// [`StoreError::ChangesExpired`].
    pub(super) async fn next(&mut self) -> Option<Result<Arc<LoggedChange<[u8]>>, StoreError>> {
        if self.told.is_none() {
            return self.cursor.next().await;
        }
        poll_fn(|cx| self.poll_told(cx)).await
    }

    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<LoggedChange<[u8]>>, StoreError>>> {
        let Self { cursor, told } = self;
        let Some(Told { hub, watch, number }) = told else { return Poll::Ready(None) };
        loop {
            match watch.poll_place(cursor.position(), cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(NextPlace::At(place)) => cursor.skip_to(place),
                Poll::Ready(NextPlace::Own) => {}
            }
            match cursor.try_next() {
                Ok(Some(change)) => return Poll::Ready(Some(Ok(change))),
                Err(expired) => return Poll::Ready(Some(Err(expired))),
                // It has read the whole log by itself, and needs a hub again.
                Ok(None) if watch.reads_alone() => {
                    *number = hub.add_watch(watch);
                    if watch.reads_alone() {
                        return Poll::Ready(Some(Err(StoreError::ChangesExpired)));
                    }
                }
                Ok(None) => {}
            }
        }
    }

    /// Returns the resource version up to which the watch has all changes that it selects.
    pub(super) fn resource_version(&mut self) -> &str {
        if let Some(Told { hub, watch, .. }) = &self.told {
            // In this order: the hub tells the watches before it advances.
            let delivered = lock(&hub.state).delivered;
            if let Some(delivered) = delivered
                && watch.has_read_all(self.cursor.position())
            {
                self.cursor.skip_to(delivered);
            }
        }
        self.cursor.resource_version()
    }
}

/// A watch, and what the hub has told it.
struct ToldWatch {
    selector: ReadSelector,
    told: Mutex<ToldPlaces>,
}

#[derive(Default)]
struct ToldPlaces {
    /// The places of changes that it has yet to read.
    places: VecDeque<ChangePosition>,
    reads: Reads,
    waker: Option<Waker>,
}

/// What a watch reads of the log.
#[derive(Clone, Copy, Debug, Default)]
enum Reads {
    /// What it is told.
    #[default]
    Told,
    /// All changes before this place, and then what it is told.
    AllBefore(ChangePosition),
    /// All changes: it has no hub.
    All,
}

/// What a watch reads next.
enum NextPlace {
    /// The change at this place.
    At(ChangePosition),
    /// The next change of the log.
    Own,
}

impl ToldWatch {
    fn poll_place(&self, position: ChangePosition, cx: &mut Context<'_>) -> Poll<NextPlace> {
        let mut told = lock(&self.told);
        match told.reads {
            Reads::All => return Poll::Ready(NextPlace::Own),
            Reads::AllBefore(place) if position.is_before(place) => return Poll::Ready(NextPlace::Own),
            Reads::AllBefore(_) | Reads::Told => told.reads = Reads::Told,
        }
        while let Some(place) = told.places.pop_front() {
            // It has read the others by itself.
            if place == position || position.is_before(place) {
                return Poll::Ready(NextPlace::At(place));
            }
        }
        told.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn reads_alone(&self) -> bool {
        matches!(lock(&self.told).reads, Reads::All)
    }

    fn has_read_all(&self, position: ChangePosition) -> bool {
        let told = lock(&self.told);
        told.places.is_empty()
            && match told.reads {
                Reads::All => false,
                Reads::AllBefore(place) => !position.is_before(place),
                Reads::Told => true,
            }
    }

    /// Tells the place of the change before this one.
    fn tell(&self, after: ChangePosition) {
        let mut told = lock(&self.told);
        if told.places.len() >= MAX_PLACES {
            told.places = VecDeque::new();
            told.reads = Reads::AllBefore(after);
        } else if !matches!(told.reads, Reads::All) {
            told.places.push_back(after.previous());
        }
        let waker = told.waker.take();
        drop(told);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Changes what it reads, and forgets what it was told.
    fn start_over(&self, reads: Reads) {
        let mut told = lock(&self.told);
        (told.places, told.reads) = (VecDeque::new(), reads);
        let waker = told.waker.take();
        drop(told);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Reads the change log of a resource for its watches with selectors.
struct WatchHub {
    mirrored: Arc<Mirrored>,
    state: Mutex<HubState>,
}

struct HubState {
    routes: WatchRoutes<Arc<ToldWatch>>,
    /// The number of watches so far, which numbers the next one.
    watches: u64,
    /// The watches of all changes before this place are found; `None` while no task runs.
    collected: Option<ChangePosition>,
    /// And were told.
    delivered: Option<ChangePosition>,
}

impl HubState {
    fn new() -> Self {
        Self { routes: WatchRoutes::new(), watches: 0, collected: None, delivered: None }
    }
}

impl WatchHub {
    /// Adds a watch, and returns its number. It reads by itself what the hub has read before.
    fn add_watch(self: &Arc<Self>, watch: &Arc<ToldWatch>) -> u64 {
        let mut state = lock(&self.state);
        state.watches += 1;
        let number = state.watches;
        if state.collected.is_none() {
            let cache = &self.mirrored.cache;
            let cursor = cache.changes_after(&cache.resource_version()).ok();
            state.collected = cursor.as_ref().map(ChangeCursor::position);
            state.delivered = state.collected;
            if let Some(cursor) = cursor {
                tokio::spawn(tell_watches(Arc::downgrade(self), cursor));
            }
        }
        // Without a log, the watch reads by itself, and finds that it has expired.
        watch.start_over(state.collected.map_or(Reads::All, Reads::AllBefore));
        state.routes.insert(number, &watch.selector, Arc::clone(watch));
        number
    }

    /// Finds the watches that a change may concern; `None` if there are no watches any more.
    fn collect(&self, change: &Change, after: ChangePosition) -> Option<BTreeMap<u64, Arc<ToldWatch>>> {
        let mut state = lock(&self.state);
        if state.routes.is_empty() {
            (state.collected, state.delivered) = (None, None);
            return None;
        }
        state.collected = Some(after);
        let mut found = BTreeMap::new();
        for object in change.states() {
            if state.routes.find(&self.mirrored, object, &mut found).is_err() {
                return Some((0..).zip(state.routes.watches().cloned()).collect());
            }
        }
        Some(found)
    }

    /// Lets all watches read by themselves.
    fn release_watches(&self) {
        let mut state = lock(&self.state);
        (state.collected, state.delivered) = (None, None);
        let routes = mem::replace(&mut state.routes, WatchRoutes::new());
        drop(state);
        routes.watches().for_each(|watch| watch.start_over(Reads::All));
    }
}

/// The states of a change, which are decoded once.
struct Change {
    new: Object<[u8]>,
    old: Option<Object<[u8]>>,
}

impl Change {
    fn states(&self) -> impl Iterator<Item = &Object<[u8]>> {
        std::iter::once(&self.new).chain(&self.old)
    }

    /// Returns true if a watch selects one of the states, or if that is unknown.
    fn concerns(&self, mirrored: &Mirrored, selector: &ReadSelector) -> bool {
        self.states().any(|object| selector.selects(mirrored, object).unwrap_or(true))
    }
}

/// Reads the log until it is closed, or no watch is left.
async fn tell_watches(hub: Weak<WatchHub>, mut cursor: ChangeCursor<[u8]>) {
    loop {
        let next = cursor.next().await;
        let Some(hub) = hub.upgrade() else { return };
        let Some(Ok(change)) = next else { return hub.release_watches() };
        let after = cursor.position();
        let change = Change { new: change.object(), old: change.old() };
        let Some(found) = hub.collect(&change, after) else { return };
        for watch in found.values() {
            if change.concerns(&hub.mirrored, &watch.selector) {
                watch.tell(after);
            }
            consume_budget().await;
        }
        lock(&hub.state).delivered = Some(after);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
