//! The state machine of a watcher, from one event to the next.
//!
//! # Advice
//!
//! The machine follows `step_trampolined` of kube's watcher, state by state, and has the names of its states. One test
//! program, `tests/watcher.rs`, runs both watchers against the same responses. It compares events, errors and requests,
//! so a change here begins with a new row of its table.
//!
//! Invariants:
//!
//! - `step` takes the state, and `Empty` takes its place. A return with `?` therefore starts over with [`Event::Init`].
//!   A step that continues after an error must write the state back before it returns.
//! - Everything between [`Event::Init`] and [`Event::InitDone`] is one complete collection. kube's stores replace their
//!   objects at [`Event::InitDone`]. So it is sent only after a complete list, or after the bookmark that ends the
//!   initial events.
//! - The version in `InitListed` and `Watching` is one up to which every event was delivered.
//! - The machine never retries before it has delivered the error. The caller's backoff counts errors.
//!
//! Odd parts, and their reasons:
//!
//! - `InitList` is a state of its own, because kube delivers [`Event::Init`] before it sends the list.
//! - The client of the collection has no retries: kube's users apply a backoff to the stream, and two backoffs would
//!   multiply.
//! - Version `"0"` of a list counts as missing: a watch from 0 would deliver the collection a second time.
//! - After a deletion the older of two versions is kept, because a deletion may carry the version of the last write.
//!
//! Different from kube's on purpose: the machine starts over when the server answers a watch request with 410. kube
//! repeats the request for the same version without end. The machine also starts over after a deletion among the
//! initial events, because delivered objects cannot be withdrawn.
//!
//! Not done: a stream over listwatch's resumed watch. It retries by itself, and would hide the errors that kube
//! reports.

use std::cmp::Ordering;
use std::mem;

use futures::StreamExt as _;
use kube::api::ResourceExt as _;
use kube::runtime::watcher::{self, Error as WatcherError, Event, InitialListStrategy};
use listwatch::client::{List, WatchEvent};
use listwatch::compare_resource_versions;
use serde::de::DeserializeOwned;

use super::decode::DecodeItem;
use super::errors::{interruption_error, kube_error, undecodable_object_error};
use super::requests::{KubeWatchEvents, WatchedCollection};

/// A watcher's collection, and how far it was delivered.
pub(super) struct WatcherMachine<K: DeserializeOwned + Send + 'static> {
    collection: WatchedCollection,
    state: WatcherState<K>,
}

/// ```text
/// Empty ──> InitList ──> Listing ──> InitListed <──> Watching
///   │                                                   ^
///   └──────────────────> InitialWatch ──────────────────┘
/// ```
///
/// After an error the state is `Empty`. Exceptions: `InitListed` and `Watching` continue with `InitListed`, unless the
/// version is expired or missing. An object of a watch that cannot be decoded does not change the state.
#[derive(Default)]
enum WatcherState<K: DeserializeOwned + Send + 'static> {
    #[default]
    Empty,
    /// [`Event::Init`] was delivered, and the list is requested next.
    InitList,
    Listing(Box<List<DecodeItem<K>>>),
    /// The initial events of a watch.
    InitialWatch(KubeWatchEvents<K>),
    /// All events up to this version were delivered.
    InitListed(String),
    Watching(KubeWatchEvents<K>, String),
}

/// The event of one step; `None` if the step has none.
type StepResult<K> = watcher::Result<Option<Event<K>>>;

impl<K> WatcherMachine<K>
where
    K: kube::Resource + DeserializeOwned + Send + 'static,
{
    pub(super) fn new(collection: WatchedCollection) -> Self {
        Self { collection, state: WatcherState::Empty }
    }

    /// Returns the next event.
    pub(super) async fn next_event(&mut self) -> watcher::Result<Event<K>> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// Advances the state, and returns the event of this step, if there is one.
    async fn step(&mut self) -> StepResult<K> {
        match mem::take(&mut self.state) {
            WatcherState::Empty => self.begin().await,
            WatcherState::InitList => {
                let list = self.collection.list().map_err(WatcherError::InitialListFailed)?;
                self.state = WatcherState::Listing(Box::new(list));
                Ok(None)
            }
            WatcherState::Listing(list) => self.read_list(list).await,
            WatcherState::InitialWatch(events) => self.read_initial_events(events).await,
            WatcherState::InitListed(version) => self.open_watch(version).await,
            WatcherState::Watching(events, version) => self.read_watch(events, version).await,
        }
    }

    /// Begins the collection: with a list, or with the initial events of a watch.
    async fn begin(&mut self) -> StepResult<K> {
        self.state = match self.collection.config.initial_list_strategy {
            InitialListStrategy::ListWatch => WatcherState::InitList,
            InitialListStrategy::StreamingList => {
                let events = self.collection.watch(None).await.map_err(WatcherError::WatchStartFailed)?;
                WatcherState::InitialWatch(events)
            }
        };
        Ok(Some(Event::Init))
    }

    /// Delivers the next item of the list, or its end.
    async fn read_list(&mut self, mut list: Box<List<DecodeItem<K>>>) -> StepResult<K> {
        match list.next().await {
            Some(Ok(item)) => {
                let item = item.map_err(|error| WatcherError::InitialListFailed(kube::Error::SerdeError(error)))?;
                self.state = WatcherState::Listing(list);
                Ok(Some(Event::InitApply(*item)))
            }
            Some(Err(error)) => Err(WatcherError::InitialListFailed(kube_error(error))),
            None => {
                let version = list.summary().map(|summary| summary.list_meta.resource_version.clone());
                // From version 0 a watch would begin with the collection.
                let version = version.filter(|version| !version.is_empty() && version != "0");
                self.state = WatcherState::InitListed(version.ok_or(WatcherError::NoResourceVersion)?);
                Ok(Some(Event::InitDone))
            }
        }
    }

    /// Delivers the next initial event, or their end.
    async fn read_initial_events(&mut self, mut events: KubeWatchEvents<K>) -> StepResult<K> {
        match events.next().await {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.state = WatcherState::InitialWatch(events);
                Ok(Some(Event::InitApply(*object.map_err(undecodable_object_error)?)))
            }
            Some(Ok(WatchEvent::Synced { resource_version })) => {
                self.state = WatcherState::Watching(events, resource_version);
                Ok(Some(Event::InitDone))
            }
            Some(Ok(WatchEvent::Bookmark { .. })) => {
                self.state = WatcherState::InitialWatch(events);
                Ok(None)
            }
            // Servers send no deletion among the initial events. Delivered objects cannot be withdrawn, so start over.
            Some(Ok(_)) | None => Ok(None),
            Some(Err(error)) => interruption_error(error).map_or(Ok(None), Err),
        }
    }

    /// Opens a watch after this version. If the server no longer has the version, the machine starts over.
    async fn open_watch(&mut self, version: String) -> StepResult<K> {
        match self.collection.watch(Some(&version)).await {
            Ok(events) => {
                self.state = WatcherState::Watching(events, version);
                Ok(None)
            }
            Err(error) => {
                if !matches!(&error, kube::Error::Api(status) if status.code == 410) {
                    self.state = WatcherState::InitListed(version);
                }
                Err(WatcherError::WatchStartFailed(error))
            }
        }
    }

    /// Delivers the next change after this version.
    async fn read_watch(&mut self, mut events: KubeWatchEvents<K>, version: String) -> StepResult<K> {
        match events.next().await {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.changed_object(events, version, object).map(|object| Some(Event::Apply(*object)))
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                self.changed_object(events, version, object).map(|object| Some(Event::Delete(*object)))
            }
            Some(Ok(WatchEvent::Bookmark { resource_version } | WatchEvent::Synced { resource_version })) => {
                self.state = WatcherState::Watching(events, later_version(version, resource_version));
                Ok(None)
            }
            Some(Ok(_)) | None => {
                self.state = WatcherState::InitListed(version);
                Ok(None)
            }
            Some(Err(error)) => {
                let is_expired = error.is_expired();
                let error = interruption_error(error);
                if !is_expired && !matches!(error, Some(WatcherError::NoResourceVersion)) {
                    self.state = WatcherState::InitListed(version);
                }
                error.map_or(Ok(None), Err)
            }
        }
    }

    /// Returns the object of an event after this version. The watch continues, also after an object that cannot be
    /// decoded.
    fn changed_object(
        &mut self,
        events: KubeWatchEvents<K>,
        version: String,
        object: serde_json::Result<Box<K>>,
    ) -> watcher::Result<Box<K>> {
        match object {
            Ok(object) => {
                let changed = object.resource_version().ok_or(WatcherError::NoResourceVersion)?;
                self.state = WatcherState::Watching(events, later_version(version, changed));
                Ok(object)
            }
            Err(error) => {
                self.state = WatcherState::Watching(events, version);
                Err(undecodable_object_error(error))
            }
        }
    }
}

/// Returns the later of two versions. The version of a deletion may be older than the version of the watch.
fn later_version(version: String, other: String) -> String {
    if compare_resource_versions(&other, &version).is_some_and(Ordering::is_lt) { version } else { other }
}
