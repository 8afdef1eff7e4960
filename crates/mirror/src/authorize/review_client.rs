//! Sends reviews to the API server, a limited number at a time.
//!
//! The review of a right, and of a token whose last review found a user, counts against this user. That of any other
//! token counts against the address of the reader. See [`FairPool`] for what each may take.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use listwatch::client::{Request, Transport, TransportError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::error::ReviewError;
use crate::fairness::{FairPool, Holder};
use crate::metrics::MirrorMetrics;
use crate::settings::Limits;

/// The path of reviews of tokens.
pub(super) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// How long a review may take, including its wait for others.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long reviews count as failing after one was not answered.
const FAILING_FOR: Duration = Duration::from_secs(5);
/// The largest accepted review, in bytes.
const MAX_REVIEW_BYTES: usize = 1 << 20;

/// Sends reviews.
pub(super) struct ReviewClient {
    transport: Arc<dyn Transport>,
    pool: FairPool,
    metrics: MirrorMetrics,
    /// Reviews count as failing until this time.
    failing_until: Mutex<Option<Instant>>,
}

impl ReviewClient {
    pub(super) fn new(transport: Arc<dyn Transport>, limits: &Limits, metrics: MirrorMetrics) -> Self {
        let pool = FairPool::new(limits.reviews, limits.waiting, metrics.pool("reviews", limits.reviews));
        Self { transport, pool, metrics, failing_until: Mutex::default() }
    }

    /// Returns true if the API server left a review unanswered a short time ago, and has answered none since.
    pub(super) fn is_failing(&self) -> bool {
        let until = *self.failing_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Records whether the API server has answered a review in time.
    pub(super) fn record_answer(&self, is_answered: bool) {
        let until = (!is_answered).then(|| Instant::now() + FAILING_FOR);
        *self.failing_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Sends a review, and returns its `status`.
    pub(super) async fn send_review<S: DeserializeOwned>(
        &self,
        path: &str,
        body: String,
        holder: &Holder,
    ) -> Result<S, ReviewError> {
        let sent = async {
            let _permit = self.pool.acquire(holder).await?;
            let started = Instant::now();
            let reviewed = self.post_review(path, body).await;
            let review = if path == TOKEN_REVIEWS { "token" } else { "access" };
            self.metrics.observe_review(review, started.elapsed());
            self.record_answer(!matches!(reviewed, Err(ReviewError::Unanswered(_))));
            reviewed
        };
        let late = || ReviewError::unanswered(format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()));
        timeout(REVIEW_TIMEOUT, sent).await.unwrap_or_else(|_| Err(late()))
    }

    async fn post_review<S: DeserializeOwned>(&self, path: &str, body: String) -> Result<S, ReviewError> {
        #[derive(Deserialize)]
        struct Review<S> {
            status: S,
        }

        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let request = Request::new(path.to_owned(), headers);
        let broken = |error: TransportError| ReviewError::unanswered(self.transport.redact(error.to_string()));
        let response = self.transport.post(request, Bytes::from(body)).await.map_err(broken)?;
        if !response.status.is_success() {
            let message = format!("the API server answered {} to a review", response.status);
            let is_outage = response.status.is_server_error()
                || matches!(response.status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
            return Err(if is_outage { ReviewError::Unanswered(message) } else { ReviewError::Failed(message) });
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
