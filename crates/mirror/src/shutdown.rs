//! The signal that the mirror shuts down.

use std::future::Future;

use tokio::sync::watch;

/// The signal that the mirror shuts down. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    /// Starts the shutdown: connections finish their requests, and watches end.
    pub(crate) fn start(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_started(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns a future that completes when the shutdown starts, or when all clones of the signal were dropped.
    pub(crate) fn started(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut started = self.0.subscribe();
        async move {
            // It fails if all clones were dropped.
            _ = started.wait_for(|has_started| *has_started).await;
        }
    }
}
