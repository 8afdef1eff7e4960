//! The count of a store's handles. A reflector that was spawned ends with the last of them.

use tokio::sync::watch;

/// Counts everything through which changes of a store can be read or awaited: readers, writers, indexes, subscribers,
/// and cursors of the change log.
pub(crate) struct HandleCount(watch::Sender<()>);

/// A handle that counts until it is dropped, as do its clones.
#[derive(Clone)]
pub(crate) struct CountedHandle(#[expect(dead_code, reason = "it is only counted")] Option<watch::Receiver<()>>);

impl HandleCount {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    pub(crate) fn add(&self) -> CountedHandle {
        CountedHandle(Some(self.0.subscribe()))
    }

    /// Waits until no handle is left.
    pub(crate) async fn none_left(&self) {
        self.0.closed().await;
    }
}

impl CountedHandle {
    /// Returns a handle that does not count.
    pub(crate) fn uncounted() -> Self {
        Self(None)
    }
}
