//! A bounded queue for work that only a limited number of requests may do at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests a [`PermitQueue`] admits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    /// Requests that have a permit at the same time.
    pub(crate) permits: usize,
    /// Requests that wait for a permit.
    pub(crate) waiting: usize,
}

/// Permits, which requests get in the order in which they arrive.
pub(crate) struct PermitQueue {
    permits: Arc<Semaphore>,
    /// Bounds the requests that wait for a permit.
    places: Semaphore,
}

/// A permit of a [`PermitQueue`]. Its drop releases it.
pub(crate) type QueuePermit = OwnedSemaphorePermit;

/// As many requests wait as the queue admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl PermitQueue {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let QueueLimits { permits, waiting } = limits;
        Self { permits: Arc::new(Semaphore::new(permits)), places: Semaphore::new(waiting) }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] at once if too many requests wait.
    pub(crate) async fn acquire_permit(&self) -> Result<QueuePermit, QueueFull> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = self.places.try_acquire().map_err(|_| QueueFull)?;
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| QueueFull)
    }
}
