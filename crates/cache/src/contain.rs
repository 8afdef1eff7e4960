//! Code of the caller that a store runs, and what becomes of its panics.
//!
//! Index functions, filters, decoding, the comparison and the drop of values, and wakers are code of the caller.
//! Writers run it, so a panic that unwound through a writer would stop the reflector and leave the write half done.
//! Here, a panic becomes an error of the object for which the code was called.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use listwatch::ItemError;

use crate::error::StoreError;

/// The error of the caller's code that panicked, with the message of the panic.
#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub(crate) struct Panicked(Box<str>);

impl Panicked {
    fn new(payload: Box<dyn Any + Send>) -> Self {
        let panicked = Self(panic_message(&*payload).into());
        // The drop of the payload is code of the caller too.
        _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(mem::forget);
        panicked
    }

    /// Returns true if the error is a panic of a function, of decoding or of encoding.
    pub(crate) fn is(error: &(dyn Error + 'static)) -> bool {
        let item = match error.downcast_ref() {
            Some(StoreError::Object(item)) => Some(item),
            _ => error.downcast_ref(),
        };
        match item {
            Some(ItemError::Other(source)) => source.is::<Self>(),
            _ => error.is::<Self>(),
        }
    }
}

pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    message.unwrap_or("the panic has no message")
}

impl From<Panicked> for ItemError {
    fn from(panicked: Panicked) -> Self {
        Self::Other(Arc::new(panicked))
    }
}

/// Runs code of the caller, and returns a panic as an error. What the code was about to change must then be dropped, or
/// be valid after each step.
pub(crate) fn contain<R>(code: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(code)).map_err(Panicked::new)
}

/// Drops a value of the caller. A panic of the drop is only logged, because no object is left to which it belongs.
pub(crate) fn drop_contained<V>(value: V) {
    log_panic("the drop of a value", contain(|| drop(value)));
}

/// Wakes a task. A panic of its waker is only logged, so that the other tasks are woken too.
pub(crate) fn wake(waker: std::task::Waker) {
    log_panic("a waker", contain(|| waker.wake()));
}

fn log_panic(what: &str, result: Result<(), Panicked>) {
    if let Err(Panicked(message)) = result {
        tracing::error!(name: "listwatch.panic", target: "listwatch_cache", message = %message, "{what} panicked");
    }
}

/// A value of the caller whose drop cannot panic: see [`drop_contained`].
pub(crate) struct Contained<V>(Option<V>);

impl<V> Contained<V> {
    pub(crate) fn new(value: V) -> Self {
        Self(Some(value))
    }

    /// Returns the value, which is `None` only while it is dropped.
    pub(crate) fn get(&self) -> Option<&V> {
        self.0.as_ref()
    }
}

impl<V> Drop for Contained<V> {
    fn drop(&mut self) {
        if mem::needs_drop::<V>()
            && let Some(value) = self.0.take()
        {
            drop_contained(value);
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for Contained<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
