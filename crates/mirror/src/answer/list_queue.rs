//! The bound on lists and initial states of watches that are written at the same time.

use std::time::Duration;

use crate::queue::{PermitQueue, QueueFull, QueueLimits, QueuePermit};
use crate::response::{Refusal, status};
use crate::settings::Limits;

/// The lists and initial states of watches that are written, and those that wait.
pub(crate) struct ListQueue {
    queue: PermitQueue,
    timeout: Duration,
}

/// The right to write the body of a list, or the initial state of a watch. The body owns it.
pub(super) type ListPermit = QueuePermit;

impl ListQueue {
    pub(crate) fn new(limits: &Limits) -> Self {
        let queue = PermitQueue::new(QueueLimits { permits: limits.lists, waiting: limits.waiting_lists });
        Self { queue, timeout: limits.list_timeout }
    }

    /// Waits for the right to write.
    ///
    /// # Errors
    ///
    /// 429 if too many lists wait.
    pub(super) async fn acquire_permit(&self) -> Result<ListPermit, Refusal> {
        let permit = self.queue.acquire_permit().await;
        permit.map_err(|QueueFull| status::too_many_requests("too many lists, please try again later", 1).into())
    }

    /// Returns the time in which the reader must accept an initial state. The connection enforces it for lists.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn bounds_lists_and_those_that_wait() {
        let limits = Limits { lists: 1, waiting_lists: 1, ..Limits::default() };
        let queue = ListQueue::new(&limits);
        let first = queue.acquire_permit().await.unwrap();
        let mut second = Box::pin(queue.acquire_permit());
        assert!(second.as_mut().now_or_never().is_none());
        let Err(Refusal::Status(status)) = queue.acquire_permit().await else { panic!("no place to wait") };
        assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
        drop(first);
        assert!(second.await.is_ok());
    }
}
