//! Sends reviews to the API server, a limited number at a time.
//!
//! | review | waits in | runs at most | waits at most |
//! |---|---|---:|---:|
//! | of a known token, or of a right | the queue of known tokens | 48 | 1,000 |
//! | of another token | the queue of its peer, then that of unknown tokens | 8 of a peer, 16 in all | 200 of a peer, 1,000 in all |
//!
//! A single queue was left out: a flood of random tokens occupied all its permits. A review of an unknown token gets
//! the permit of its peer first. The surplus of a flood then waits in the queue of its own address, and takes no place
//! in the common queue.
//!
//! A peer is an address, which readers behind the same proxy share. They compete with each other, not with other
//! addresses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use listwatch::client::{Request, Transport, TransportError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::ReviewError;
use crate::accept::Peer;
use crate::queue::{PermitQueue, QueueLimits};

/// Reviews of known readers. Readers are known by a token whose last review found a user.
const KNOWN_QUEUE: QueueLimits = QueueLimits { permits: 48, waiting: 1000 };
/// Reviews of all other tokens. Readers with random tokens flood neither the API server nor the reviews of known
/// readers.
const UNKNOWN_QUEUE: QueueLimits = QueueLimits { permits: 16, waiting: 1000 };
/// Those of them that are of one peer, so that a flood from one address leaves permits for others.
const PEER_QUEUE: QueueLimits = QueueLimits { permits: 8, waiting: 200 };
/// How long a review may take, including its wait for others.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted review, in bytes.
const MAX_REVIEW_BYTES: usize = 1 << 20;

/// The queue in which a review waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReviewQueue {
    /// Of a known token.
    Known,
    /// Of an unknown token, which this peer has sent.
    Unknown(Peer),
}

/// Sends reviews.
pub(super) struct ReviewClient {
    transport: Arc<dyn Transport>,
    known: PermitQueue,
    unknown: PermitQueue,
    /// The queues of peers that have reviews of unknown tokens.
    peers: Mutex<HashMap<Peer, Weak<PermitQueue>>>,
}

impl ReviewClient {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        let [known, unknown] = [KNOWN_QUEUE, UNKNOWN_QUEUE].map(PermitQueue::new);
        Self { transport, known, unknown, peers: Mutex::default() }
    }

    /// Sends a review, and returns its `status`.
    pub(super) async fn send_review<S: DeserializeOwned>(
        &self,
        path: &str,
        body: String,
        queue: ReviewQueue,
    ) -> Result<S, ReviewError> {
        let sent = async {
            let of_peer = match queue {
                ReviewQueue::Known => None,
                ReviewQueue::Unknown(peer) => Some(self.queue_of_peer(peer)),
            };
            // The permit of the peer first: a flood then waits in its own queue, and takes no place in the common one.
            let _permits = match &of_peer {
                Some(of_peer) => (Some(of_peer.acquire_permit().await?), self.unknown.acquire_permit().await?),
                None => (None, self.known.acquire_permit().await?),
            };
            self.post_review(path, body).await
        };
        let late = || ReviewError::failed(format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()));
        timeout(REVIEW_TIMEOUT, sent).await.unwrap_or_else(|_| Err(late()))
    }

    fn queue_of_peer(&self, peer: Peer) -> Arc<PermitQueue> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = peers.get(&peer).and_then(Weak::upgrade) {
            return queue;
        }
        peers.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(PermitQueue::new(PEER_QUEUE));
        peers.insert(peer, Arc::downgrade(&queue));
        queue
    }

    async fn post_review<S: DeserializeOwned>(&self, path: &str, body: String) -> Result<S, ReviewError> {
        #[derive(Deserialize)]
        struct Review<S> {
            status: S,
        }

        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let request = Request::new(path.to_owned(), headers);
        let broken = |error: TransportError| ReviewError::failed(self.transport.redact(error.to_string()));
        let response = self.transport.post(request, Bytes::from(body)).await.map_err(broken)?;
        if !response.status.is_success() {
            return Err(ReviewError::failed(format!("the API server answered {} to a review", response.status)));
        }
        let mut chunks = response.body;
        let mut answer = Vec::new();
        while let Some(chunk) = chunks.try_next().await.map_err(broken)? {
            if answer.len() + chunk.len() > MAX_REVIEW_BYTES {
                return Err(ReviewError::failed(format!("the review is over the limit of {MAX_REVIEW_BYTES} bytes")));
            }
            answer.extend_from_slice(&chunk);
        }
        // The parser's error might quote the token.
        let review = serde_json::from_slice::<Review<S>>(&answer);
        review.map(|review| review.status).map_err(|_| ReviewError::failed("the answer is not a review"))
    }
}
