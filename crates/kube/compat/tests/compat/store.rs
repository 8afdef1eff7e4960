use std::future::ready;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event};
use listwatch_cache::{Cache, Change, Object, StoreType, SyncError};

/// Returns the objects of a cache, and then its changes, as kube's watcher sends them. The stream ends with the cache.
async fn watcher_events<T: StoreType<Decoded: Clone>>(
    cache: Cache<T>,
) -> Result<impl Stream<Item = watcher::Result<Event<T::Decoded>>> + Send + 'static, SyncError> {
    fn decode<T: StoreType<Decoded: Clone>>(object: Object<T>) -> Option<T::Decoded> {
        let decoded = object.decode();
        drop(object);
        decoded.map(Arc::unwrap_or_clone).inspect_err(|error| eprintln!("error: {error}")).ok()
    }

    cache.synced().await?;
    // The changes begin before the objects are read, so that none is lost between.
    let changes = cache.subscribe().start();
    let objects: Vec<_> = cache.snapshot().iter().collect();
    let objects = stream::iter(objects).filter_map(|object| ready(decode(object).map(Event::InitApply)));
    let changes = changes.filter_map(|change| {
        ready(match change {
            Change::Applied { new, .. } => decode(new).map(Event::Apply),
            Change::Deleted { last, .. } => decode(last).map(Event::Delete),
            _ => None,
        })
    });
    let events = stream::iter([Event::Init]).chain(objects).chain(stream::iter([Event::InitDone])).chain(changes);
    Ok(events.map(Ok))
}
