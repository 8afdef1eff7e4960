//! The bound on objects, lists and initial states of watches that are written at the same time.

use std::time::Duration;

use crate::fairness::{FairPool, Holder, PoolFull, PoolPermit};
use crate::metrics::MirrorMetrics;
use crate::response::{Refusal, status};
use crate::settings::Limits;

/// The bodies that are written from memory at the same time: objects, lists, and initial states of watches.
pub(crate) struct ReadPool {
    pool: FairPool,
    list_timeout: Duration,
}

/// What a reader may take of a [`ReadPool`].
pub(super) struct ReadShare<'a> {
    pool: &'a ReadPool,
    holder: &'a Holder,
}

impl ReadPool {
    pub(crate) fn new(limits: &Limits, metrics: &MirrorMetrics) -> Self {
        let pool = FairPool::new(limits.reads, limits.waiting, metrics.pool("reads", limits.reads));
        Self { pool, list_timeout: limits.list_timeout }
    }

    pub(super) fn share_of<'a>(&'a self, holder: &'a Holder) -> ReadShare<'a> {
        ReadShare { pool: self, holder }
    }
}

impl ReadShare<'_> {
    /// Waits for the right to write a body, which the body owns.
    ///
    /// # Errors
    ///
    /// 429 if too many requests wait.
    pub(super) async fn acquire_permit(&self) -> Result<PoolPermit, Refusal> {
        let permit = self.pool.pool.acquire(self.holder).await;
        permit.map_err(|PoolFull| status::too_many_requests("too many reads, please try again later", 1).into())
    }

    /// Returns the time in which the reader must accept an initial state. The connection enforces it for lists.
    pub(super) fn list_timeout(&self) -> Duration {
        self.pool.list_timeout
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn bounds_reads_and_those_that_wait() {
        let limits = Limits { reads: 1, waiting: 1, ..Limits::default() };
        let pool = ReadPool::new(&limits, &MirrorMetrics::default());
        let [a, b] = ["a", "b"].map(|name| Holder::User(name.into()));
        let [a, b] = [pool.share_of(&a), pool.share_of(&b)];
        let first = a.acquire_permit().await.unwrap();
        let mut second = Box::pin(b.acquire_permit());
        assert!(second.as_mut().now_or_never().is_none());
        let Err(Refusal::Status(status)) = a.acquire_permit().await else { panic!("no place to wait") };
        assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
        drop(first);
        assert!(second.await.is_ok());
    }
}
