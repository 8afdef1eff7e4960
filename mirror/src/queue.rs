//! A bounded queue for work that only a limited number of requests may do at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns, which requests get in the order in which they arrive.
pub(crate) struct Queue {
    turns: Arc<Semaphore>,
    /// Bounds the requests that wait for a turn.
    places: Semaphore,
}

/// A turn of a [`Queue`]. It ends when it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

/// As many requests wait as the queue admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Queue {
    /// Creates a queue for this many turns at the same time, and this many requests that wait for one.
    pub(crate) fn new(turns: usize, places: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(turns)), places: Semaphore::new(places) }
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self) -> Result<Turn, Full> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Ok(turn);
        }
        let _place = self.places.try_acquire().map_err(|_| Full)?;
        Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Full)
    }
}
