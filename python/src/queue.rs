//! Batches of values on their way from a task of the runtime to Python.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_core::Stream;
use tokio::sync::Notify;

use crate::wake::Waiter;

/// The most batches that wait for Python.
const BATCHES: usize = 2;

/// The most values of a batch, and about the most bytes.
const VALUES: usize = 512;
const BYTES: usize = 256 << 10;

/// What a queue passes on.
pub trait Queued: Send + 'static {
    /// About the memory that it takes.
    fn size(&self) -> usize;
}

/// A bounded queue with one producer and one consumer.
pub struct Queue<T, E> {
    state: Mutex<State<T, E>>,
    has_room: Notify,
}

struct State<T, E> {
    batches: VecDeque<Vec<T>>,
    /// How the stream ended, once it has.
    end: Option<E>,
    waiter: Option<Waiter>,
}

/// What the consumer takes.
pub enum Taken<T, E> {
    Batch(Vec<T>),
    /// The stream has ended: each later call returns this too.
    End(E),
    /// Nothing yet: the waiter will be woken.
    Nothing,
}

impl<T: Queued, E: Clone> Queue<T, E> {
    pub fn new() -> Arc<Self> {
        let state = State { batches: VecDeque::new(), end: None, waiter: None };
        Arc::new(Self { state: Mutex::new(state), has_room: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest batch, or registers the waiter.
    pub fn take(&self, waiter: &Waiter) -> Taken<T, E> {
        let mut state = self.state();
        if let Some(batch) = state.batches.pop_front() {
            drop(state);
            self.has_room.notify_one();
            return Taken::Batch(batch);
        }
        if let Some(end) = &state.end {
            return Taken::End(end.clone());
        }
        state.waiter = Some(waiter.clone());
        Taken::Nothing
    }

    pub async fn push(&self, batch: Vec<T>) {
        loop {
            {
                let mut state = self.state();
                if state.batches.len() < BATCHES {
                    state.batches.push_back(batch);
                    wake(state);
                    return;
                }
            }
            self.has_room.notified().await;
        }
    }

    pub fn end(&self, end: E) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(end);
        }
        wake(state);
    }

    /// Drops what has not been taken, and ends.
    pub fn close(&self, end: E) {
        let mut state = self.state();
        let dropped = mem::take(&mut state.batches);
        state.end = Some(end);
        wake(state);
        drop(dropped);
    }

    /// Passes on all values of the stream. A batch that is not full is passed on when the stream has no more for now.
    /// Returns the first error.
    pub async fn fill<F>(&self, stream: impl Stream<Item = Result<T, F>>) -> Result<(), F> {
        let mut stream = pin!(stream);
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            let next = poll_fn(|cx| match stream.as_mut().poll_next(cx) {
                Poll::Pending if !batch.is_empty() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(next) => Poll::Ready(Some(next)),
            })
            .await;
            match next {
                Some(Some(Ok(value))) => {
                    bytes += value.size();
                    batch.push(value);
                    if batch.len() < VALUES && bytes < BYTES {
                        continue;
                    }
                }
                Some(Some(Err(error))) => {
                    self.push_rest(batch).await;
                    return Err(error);
                }
                Some(None) => {
                    self.push_rest(batch).await;
                    return Ok(());
                }
                None => {}
            }
            bytes = 0;
            self.push(mem::take(&mut batch)).await;
        }
    }

    async fn push_rest(&self, batch: Vec<T>) {
        if !batch.is_empty() {
            self.push(batch).await;
        }
    }
}

/// Wakes the consumer, after the lock is released.
fn wake<T, E>(mut state: MutexGuard<'_, State<T, E>>) {
    let waiter = state.waiter.take();
    drop(state);
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}
