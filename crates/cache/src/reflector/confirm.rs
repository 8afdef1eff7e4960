//! Requests a bookmark when a cache cannot wait for the one that its own watch gets each minute.
//!
//! The version of an API server grows with writes to any resource, and a cache learns newer versions only from its own
//! collection. So the cache of a quiet collection is mostly at an older version than the server, although it lacks
//! nothing.
//!
//! # Facts about kube-apiserver, measured at 1.37
//!
//! - A watch gets a bookmark 2 s before its end, at the next tick of a clock that ticks each 1 to 1.25 s. So a watch of
//!   3 s gets one after up to 2.2 s, and a shorter watch gets none.
//! - The bookmark has the version that the server's own cache has processed. A list without a version moves that
//!   version to the newest.
//!
//! # Before you change this file
//!
//! - A bookmark proves that the cache is complete only together with the events before it. So each of them must be in
//!   the cache already. The server may be another one than the reflector's, and be ahead of it.
//! - The watch begins where the reflector's own watch would resume. Several deletions may share a version, so the
//!   version of the last one proves nothing.
//! - Only the reflector advances the version, in its task: a relist may begin at any time.

use std::collections::HashMap;
use std::time::Duration;

use listwatch::client::{Client, Error, WatchEvent, WatchParams};
use listwatch::internal::is_older;
use listwatch::{ItemError, ItemRef, StoreType};

use crate::key::ObjectKey;
use crate::reflector::cache::Cache;
use crate::reflector::sync::QuietSpan;

/// The shortest watch that gets a bookmark.
const LASTS: Duration = Duration::from_secs(3);

/// The most objects that may change meanwhile. A collection with more changes learns new versions from them.
const MOST_CHANGED: usize = 64;

/// The last event of an object.
struct LastEvent {
    version: String,
    is_deleted: bool,
}

impl<T: StoreType + ?Sized> Cache<T> {
    /// Requests a bookmark from the server, so that the cache learns a newer resource version although nothing in its
    /// collection changes. API servers otherwise send one a minute.
    ///
    /// It opens a watch of 3 s with this client, from the version of the cache, of the same objects.
    /// If the watch delivers a bookmark, and no change before it that the cache lacks, the reflector handles the
    /// bookmark as one of its own watch. It does so when its task runs next, so await
    /// [`wait_for_resource_version`](Self::wait_for_resource_version) beside this call.
    ///
    /// The bookmark has the version that the server's own cache has processed. To learn the version of the server, and
    /// to move its cache to that version, call [`Client::current_version`](listwatch::client::Client::current_version)
    /// first. kube-apiserver 1.37 sends the bookmark after 0.1 to 2.2 s. Several calls at the same time are useful: if
    /// one begins each second, a bookmark arrives each 1 to 1.25 s.
    ///
    /// The call returns without a bookmark if the server sends none, if more than 64 objects change, or if the cache is
    /// not synced.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server cannot be reached or refuses the watch, for example because the version has expired.
    /// The reflector does not see these errors.
    pub async fn request_bookmark(&self, client: &Client) -> Result<(), Error> {
        let from = self.status.borrow().resumes_from.clone();
        let (Some(mut from), Some(collection)) = (from, self.collection.get()) else { return Ok(()) };
        let selection = collection.selection.clone().encoded_as(T::ENCODING);
        let params = WatchParams::from_version(&*from).selection(selection).timeout(LASTS);
        let watch = client.watch_with(&self.resource, &params, read_event);
        let watch = match &collection.namespace {
            Some(namespace) => watch.namespace(namespace),
            None => watch,
        };
        let mut events = watch.open().await?;
        let mut last_events = HashMap::new();
        while let Some(event) = events.next().await.transpose()? {
            let is_deleted = matches!(event, WatchEvent::Deleted(_));
            match event {
                WatchEvent::Added(changed) | WatchEvent::Modified(changed) | WatchEvent::Deleted(changed) => {
                    let (key, version) = changed;
                    from.clone_from(&version);
                    last_events.insert(key, LastEvent { version, is_deleted });
                }
                WatchEvent::Bookmark { resource_version: to } => {
                    if last_events.iter().all(|(key, last)| self.has_event(key, last)) {
                        // If there is no place, the reflector has yet to handle other bookmarks.
                        drop(self.quiet_spans.try_send(QuietSpan { from, to }));
                    }
                    return Ok(());
                }
                _ => return Ok(()),
            }
            if last_events.len() > MOST_CHANGED {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns true if the cache has the state of this event, or a newer one.
    fn has_event(&self, key: &ObjectKey, last: &LastEvent) -> bool {
        match self.store.get(key) {
            Some(object) if last.is_deleted => is_older(&last.version, object.resource_version()),
            Some(object) => !is_older(object.resource_version(), &last.version),
            None => last.is_deleted,
        }
    }
}

fn read_event(object: ItemRef<'_>) -> Result<(ObjectKey, String), ItemError> {
    let meta = object.meta()?;
    let key = ObjectKey { namespace: meta.namespace().into_owned(), name: meta.name().into_owned() };
    Ok((key, meta.resource_version().into_owned()))
}
