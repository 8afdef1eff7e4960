//! What tokio's runtimes and their clocks require of the client.
//!
//! Timers and sockets belong to a runtime of tokio. A timer panics when it is polled after its runtime has ended, and
//! never fires if nobody drives its runtime. Each future and body of the client therefore remembers its runtime, and
//! ends in an error on any other.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

use super::error::Error;
use super::transport::{TransportError, TransportErrorKind};

/// The longest time that a caller can set, because an `Instant` cannot hold the end of much longer times.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The runtime that polled first.
#[derive(Default)]
pub(super) struct OwnRuntime(Option<Id>);

impl OwnRuntime {
    /// Returns an error outside of a runtime, and on another runtime than at the first call.
    pub(super) fn check(&mut self) -> Result<(), TransportError> {
        let wrong = |message| TransportError::new(TransportErrorKind::Setup, message);
        let current =
            Handle::try_current().map_err(|_| wrong("the request is polled outside of a tokio runtime"))?.id();
        if *self.0.get_or_insert(current) == current {
            Ok(())
        } else {
            Err(wrong("the request is polled on another tokio runtime than the one on which it began"))
        }
    }
}

/// Runs a future that uses timers or tasks of tokio.
///
/// # Errors
///
/// The errors of the future, and [`TransportErrorKind::Setup`] outside of a runtime or on another runtime than before.
pub fn on_own_runtime<T, E: From<Error>>(
    future: impl Future<Output = Result<T, E>>,
) -> impl Future<Output = Result<T, E>> {
    // Boxed, so that the future is not stored twice.
    let (mut runtime, mut future) = (OwnRuntime::default(), Box::pin(future));
    poll_fn(move |cx| match runtime.check() {
        Ok(()) => future.as_mut().poll(cx),
        Err(error) => Poll::Ready(Err(Error::from(error).into())),
    })
}

/// A timer that any runtime of tokio may poll. tokio's own timer panics once the runtime that created it has ended.
#[derive(Default)]
pub struct Timer(Option<(Id, Pin<Box<Sleep>>)>);

impl Timer {
    /// Waits until this time, or forever outside of a runtime.
    ///
    /// # Panics
    ///
    /// Panics on a runtime without time.
    pub fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(runtime) = Handle::try_current() else { return Poll::Pending };
        if self.0.as_ref().is_some_and(|(id, _)| *id != runtime.id()) {
            self.0 = None;
        }
        let (_, timer) = self.0.get_or_insert_with(|| (runtime.id(), Box::pin(sleep_until(at))));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}
