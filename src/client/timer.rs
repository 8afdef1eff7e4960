//! A timer that outlives its runtime.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that any runtime of tokio may poll. tokio's own timer panics once the runtime that created it has ended.
#[derive(Default)]
pub struct Timer(Option<(Id, Pin<Box<Sleep>>)>);

impl Timer {
    /// Waits until this time; for ever outside of a runtime.
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
