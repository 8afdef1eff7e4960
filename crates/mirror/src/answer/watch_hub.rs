//! Wakes watches with selectors only for the changes that they may select.
//!
//! Each watch is a cursor in the change log. Woken by each change, a thousand watches would decode each change a
//! thousand times. So one task for each resource, the hub, reads the log in their place. It decodes a change once,
//! finds the watches that select its old or its new state, and tells each of them the place of the change.
//!
//! # Before you change this file
//!
//! - A watch keeps places, not changes. If it reads so slowly that the log drops them, it gets a 410, as every reader.
//!   A watch whose queue is empty skips to the place that the hub has delivered: its bookmarks continue, and changes
//!   that it does not select never lead to a 410.
//! - `collected` advances with the search for watches, under one lock, and `delivered` once the change is in the queue
//!   of each watch that was found. A new watch reads by itself up to `collected`. An idle watch skips to `delivered`, which it reads before its own queue.
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

/// The most places in the queue of a watch. Beyond them, the watch reads the log by itself.
const MAX_PLACES: usize = 1024;

/// The hubs of resources that have watches with selectors, by the address of the resource, which the hub keeps.
#[derive(Default)]
pub(super) struct WatchHubs(Mutex<HashMap<usize, Weak<WatchHub>>>);

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
        let hub = self.hub_of(mirrored);
        let watch = Arc::new(ToldWatch { selector: selector.clone(), told: Mutex::default() });
        let number = hub.add_watch(&watch);
        WatchChanges { cursor, told: Some(Told { hub, watch, number }) }
    }

    fn hub_of(&self, mirrored: &Arc<Mirrored>) -> Arc<WatchHub> {
        let mut hubs = lock(&self.0);
        let address = Arc::as_ptr(mirrored).addr();
        if let Some(hub) = hubs.get(&address).and_then(Weak::upgrade) {
            return hub;
        }
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = Arc::new(WatchHub { mirrored: Arc::clone(mirrored), state: Mutex::new(HubState::new()) });
        hubs.insert(address, Arc::downgrade(&hub));
        hub
    }
}

/// A change, or `ChangesExpired`; `None` after the error.
type NextChange = Option<Result<Arc<LoggedChange<[u8]>>, StoreError>>;

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
    pub(super) async fn next(&mut self) -> NextChange {
        if self.told.is_none() {
            return self.cursor.next().await;
        }
        poll_fn(|cx| self.poll_told(cx)).await
    }

    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<NextChange> {
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
    /// The places in its queue.
    #[default]
    Told,
    /// All changes before this place, and then the places in its queue.
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    use listwatch_cache::ChangeLogLimits;
    use tokio::task::yield_now;

    use super::*;
    use crate::response::ResponseBody;
    use crate::settings::{Limits, MirrorSettings};
    use crate::testing::{FakeApiServer, Pipeline, get};

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An open watch, polled by a waker that counts.
    struct Watch {
        query: &'static str,
        body: ResponseBody,
        woken: Arc<CountingWaker>,
    }

    impl Watch {
        async fn start(mirror: &Pipeline, query: &'static str) -> Self {
            let body = get(mirror, &format!("/api/v1/{query}"), "application/json").await.into_body();
            let mut watch = Self { query, body, woken: Arc::default() };
            assert_eq!(watch.read(), "");
            watch
        }

        /// Returns the frames that it has.
        fn read(&mut self) -> String {
            self.woken.0.store(0, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&self.woken));
            let mut frames = String::new();
            while let Poll::Ready(Some(frame)) = Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker)) {
                frames.push_str(str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
            }
            frames
        }
    }

    /// Changes the first object, and lets the hub tell the watches.
    async fn change(api: &FakeApiServer, mirror: &Pipeline, version: usize) {
        api.change(version);
        mirror.first_resource().cache.wait_for_resource_version(&version.to_string()).await.unwrap();
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn wakes_the_watches_that_select_a_change() {
        let api = FakeApiServer::new(3, 100);
        let mirror = api.mirror(Limits::default()).await;
        let mut watches = Vec::new();
        for (query, selects) in [
            ("configmaps?watch=1&resourceVersion=1000", true),
            ("namespaces/web/configmaps?watch=1&resourceVersion=1000", true),
            ("namespaces/other/configmaps?watch=1&resourceVersion=1000", false),
            ("configmaps?watch=1&resourceVersion=1000&fieldSelector=metadata.name%3D000000", true),
            ("configmaps?watch=1&resourceVersion=1000&fieldSelector=metadata.name%3D000001", false),
            ("configmaps?watch=1&resourceVersion=1000&fieldSelector=metadata.name!%3D000000", false),
            ("configmaps?watch=1&resourceVersion=1000&fieldSelector=metadata.namespace%3Dweb", true),
            ("configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000000", true),
            ("configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000001", false),
            ("configmaps?watch=1&resourceVersion=1000&labelSelector=n+in+(000000,000002)", true),
            ("configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000000,!x", true),
            ("configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000000,x", false),
            ("namespaces/other/configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000000", false),
        ] {
            watches.push((Watch::start(&mirror, query).await, selects));
        }
        for version in [1001, 1002, 1003] {
            change(&api, &mirror, version).await;
            for (watch, selects) in &mut watches {
                assert_eq!(watch.woken.0.load(Ordering::Relaxed) > 0, *selects, "{}", watch.query);
                let frames = watch.read();
                assert_eq!(frames.matches("MODIFIED").count(), usize::from(*selects), "{}: {frames}", watch.query);
                assert_eq!(frames.contains(&version.to_string()), *selects, "{}", watch.query);
            }
        }
        // A watch that begins at an older version reads the changes since by itself.
        let late = "/api/v1/configmaps?watch=1&resourceVersion=1001&labelSelector=n%3D000000";
        let mut late = get(&mirror, late, "application/json").await.into_body();
        for version in [1002, 1003] {
            let frame = late.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(str::from_utf8(&frame).unwrap().contains(&version.to_string()));
        }
        drop((watches, late));
        change(&api, &mirror, 1004).await;
        let mut again = Watch::start(&mirror, "configmaps?watch=1&resourceVersion=1004&labelSelector=n%3D000000").await;
        change(&api, &mirror, 1005).await;
        assert_eq!(again.read().matches("MODIFIED").count(), 1, "the hub runs again");
    }

    /// The log drops changes that the watch does not select.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_told_nothing_has_read_all() {
        const REST: &str = "configmaps?watch=1&resourceVersion=1000&allowWatchBookmarks=1&labelSelector=n%3D000001";
        const CHANGED: &str = "configmaps?watch=1&resourceVersion=1000&labelSelector=n%3D000000";

        let api = FakeApiServer::new(2, 100);
        let mut log = ChangeLogLimits::default();
        log.bytes = 1;
        let settings = MirrorSettings { stale_reads: true, ..MirrorSettings::default() };
        let mirror = api.mirror_with(settings, log, |own| own).await;
        let mut rest = Watch::start(&mirror, REST).await;
        let mut slow = Watch::start(&mirror, CHANGED).await;
        for version in 1001..1020 {
            change(&api, &mirror, version).await;
        }
        assert_eq!(rest.read(), "");
        tokio::time::advance(Duration::from_secs(60)).await;
        let bookmark = rest.read();
        assert!(bookmark.contains("BOOKMARK") && bookmark.contains("\"1019\""), "{bookmark}");
        assert!(slow.read().contains("Expired"), "it has lost changes that it selects");
        assert_eq!(rest.woken.0.load(Ordering::Relaxed), 0);
    }
}
