//! Runs a reflector until it is stopped or dropped, or an error or a panic ends it.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use listwatch::StoreType;
use listwatch::client::Error;
use listwatch::internal::{chain, on_own_runtime};
use tracing::field;

use crate::contain::panic_message;
use crate::error::EndReason;
use crate::reflector::cache::Cache;
use crate::reflector::prepared::{PreparedReflector, TARGET};

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// Keeps the store synced until the future is dropped, [`Cache::stop`] is called, or an error ends it.
    ///
    /// Attempts back off exponentially, from the [`delay`](listwatch::client::Retry::delay) of the client's
    /// [`Retry`](listwatch::client::Retry) to 30 s, which jitter at most doubles. A watch that lived for 10 s resets
    /// the backoff. [`last_error`](crate::ReflectorStatus::last_error) contains the last error. Each error is a warning
    /// in the log until the first sync; later there is one for each minute of an outage: see [`listwatch::client`].
    ///
    /// However the reflector ends, [`Cache::is_running`] is then false, [`Cache::synced`] returns
    /// [`SyncError::Ended`](crate::SyncError::Ended), and subscribers receive [`Change::Ended`](crate::Change::Ended),
    /// all with the [reason](EndReason).
    ///
    /// # Errors
    ///
    /// [`Error`] when the selection is invalid, or the resource [cannot be
    /// watched](listwatch::client::Resource::without_watch).
    ///
    /// Until the collection was complete once (a loaded file counts), also when the caller must change something: the
    /// server refuses the request (400, 422), or TLS failed before its first response
    /// ([`TransportErrorKind::Tls`](listwatch::client::TransportErrorKind::Tls)). With
    /// [`fail_fast`](super::Reflector::fail_fast), lasting errors then end it too. Once the collection was complete,
    /// all errors are retried.
    ///
    /// An object that cannot be stored is not an error: it is [skipped](crate::ReflectorStatus::skipped), and the cache
    /// is incomplete. The reflector relists once the store has room for an object that exceeded the
    /// [budget](crate::Store::set_budget). A panic in an index function is an error of the object: see
    /// [`Index::errors`](crate::Index::errors).
    pub async fn run(self) -> Result<(), Error> {
        self.run_until(pending()).await
    }

    /// Runs the reflector in a task of tokio, and returns the cache that it keeps synced.
    ///
    /// # What keeps it running
    ///
    /// The task runs as long as anything exists through which its store can be read: this [`Cache`], a
    /// [`StoreReader`](crate::StoreReader), an [`Index`](crate::Index), a [`Subscriber`](crate::Subscriber), a
    /// [`ChangeCursor`](crate::ChangeCursor), a clone of one, or the [`Store`](crate::Store) if you supplied it. An
    /// [`Object`](crate::Object) and a [`Snapshot`](crate::Snapshot) do not count, because they never change. When the
    /// last of these is dropped, the watch ends.
    ///
    /// [`Cache::stop`] ends the task earlier. It also ends with the runtime, and with an error like [`run`](Self::run),
    /// which is then logged.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn spawn(mut self) -> Cache<T> {
        let cache = self.cache();
        let last_handle = self.attached.last_handle();
        let resource = self.resource.clone();
        tokio::spawn(async move {
            if let Err(error) = self.run_until(last_handle).await {
                tracing::error!(
                    name: "listwatch.ended",
                    target: TARGET,
                    %resource,
                    error = field::display(chain(&error)),
                    "the reflector ended"
                );
            }
        });
        cache
    }

    /// Keeps the store synced until this future is ready, a cache stops it, or an error or a panic ends it.
    async fn run_until(mut self, end: impl Future<Output = ()>) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let (mut stopped, mut end) = (pin!(stop.notified()), pin!(end));
        let ended = {
            let mut running = pin!(on_own_runtime(self.run_until_error()));
            poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() || end.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(None));
                }
                // The store is dropped afterwards, so nothing sees what a panic left half done.
                match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
                    Ok(running) => running.map(|Err(error)| Ok(Some(error))),
                    Err(panic) => Poll::Ready(Err(panic)),
                }
            })
            .await
        };
        let (reason, result) = match ended {
            Ok(None) => (EndReason::Stopped, Ok(())),
            Ok(Some(error)) => (EndReason::Failed(error.clone()), Err(error)),
            Err(panic) => {
                self.attached.end = Some(EndReason::Panicked(panic_message(&*panic).into()));
                drop(self);
                resume_unwind(panic)
            }
        };
        self.attached.end = Some(reason);
        result
    }
}
