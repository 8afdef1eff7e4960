//! The state that all requests of a mirror share.

use std::sync::Arc;

use listwatch::client::{Client, Retry, Transport};
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::mirror::{Access, Limits};
use crate::mirrored::Mirrored;
use crate::queue::{Full, Queue, Turn};
use crate::request::Read;
use crate::review::Reviewer;
use crate::status::{self, Refusal};

pub(crate) struct Shared {
    pub(crate) transport: Arc<dyn Transport>,
    /// Requests the versions of the API server, without retries.
    pub(crate) client: Client,
    pub(crate) resources: Vec<Arc<Mirrored>>,
    pub(crate) access: Access,
    pub(crate) stale_reads: bool,
    pub(crate) limits: Limits,
    /// The port of the listener, for the check of `Host`.
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) reviewer: Arc<Reviewer>,
    pub(crate) metrics: Metrics,
    /// A list has a turn while its body is written: see [`list_permit`](Self::list_permit).
    lists: Queue,
    /// True once the mirror shuts down: watches end then.
    shutdown: watch::Sender<bool>,
}

/// The right to write the body of a list, or the initial state of a watch. The body owns it.
pub(crate) type ListPermit = Turn;

impl Shared {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        resources: Vec<Arc<Mirrored>>,
        access: Access,
        stale_reads: bool,
        limits: Limits,
        port: u16,
        tls: bool,
    ) -> Self {
        Self {
            client: Client::new(Arc::clone(&transport)).retry(Retry::never()),
            reviewer: Arc::new(Reviewer::new(Arc::clone(&transport))),
            metrics: Metrics::default(),
            lists: Queue::new(limits.lists, limits.waiting_lists),
            shutdown: watch::Sender::new(false),
            transport,
            resources,
            access,
            stale_reads,
            limits,
            port,
            tls,
        }
    }

    /// Returns the port that a URL without a port means.
    pub(crate) fn default_port(&self) -> u16 {
        if self.tls { 443 } else { 80 }
    }

    /// Returns the mirrored resource that can answer a read: of the same group, version and plural, and of its namespace.
    pub(crate) fn find(&self, read: &Read) -> Option<&Arc<Mirrored>> {
        self.resources.iter().find(|mirrored| {
            let resource = &mirrored.resource;
            resource.group() == read.group
                && resource.version() == read.version
                && resource.plural() == read.plural
                && (mirrored.namespace.is_none() || mirrored.namespace == read.namespace)
        })
    }

    /// Waits for the right to write the body of a list, or the initial state of a watch.
    ///
    /// # Errors
    ///
    /// 429 if too many lists wait.
    pub(crate) async fn list_permit(&self) -> Result<ListPermit, Refusal> {
        let turn = self.lists.turn().await;
        turn.map_err(|Full| status::too_many_requests("too many lists, please try again later", 1).into())
    }

    /// Waits until the mirror shuts down. Watches end then.
    pub(crate) fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut shutdown = self.shutdown.subscribe();
        async move {
            // Fails if the mirror was dropped.
            _ = shutdown.wait_for(|is_shutdown| *is_shutdown).await;
        }
    }

    pub(crate) fn start_shutdown(&self) {
        self.shutdown.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use listwatch::client::{Request, ResponseFuture};

    use super::*;

    struct Silent;

    impl Transport for Silent {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            std::future::pending().boxed()
        }
    }

    #[tokio::test]
    async fn bounds_lists_and_those_that_wait() {
        let limits = Limits { lists: 1, waiting_lists: 1, ..Limits::default() };
        let shared = Shared::new(Arc::new(Silent), Vec::new(), Access::Loopback, false, limits, 80, false);
        let first = shared.list_permit().await.unwrap();
        let mut second = Box::pin(shared.list_permit());
        assert!(second.as_mut().now_or_never().is_none());
        let Err(Refusal::Status(status)) = shared.list_permit().await else { panic!("no place to wait") };
        assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
        drop(first);
        assert!(second.await.is_ok());
    }
}
