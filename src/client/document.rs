//! Requests whose response is read whole before it is used: single objects and discovery documents.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep, timeout_at};

use super::api_client::Client;
use super::body;
use super::classify::RetryAdvice;
use super::error::{Error, ErrorKind};
use super::progress::Counters;
use super::runtime::on_own_runtime;
use super::send::{Answer, within};
use super::transport::{TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind, Limit};

pub(super) const DOCUMENT_SIZE: (Limit, u64) = (Limit::Bytes, 64 << 20);

pub(super) struct DocumentRequest {
    pub(super) path: String,
    pub(super) accept: HeaderValue,
    /// The limit that a longer body exceeds.
    pub(super) limit: (Limit, u64),
    /// When all attempts together end.
    pub(super) deadline: Option<Instant>,
    pub(super) counters: Arc<Counters>,
}

/// How long such a body is read at most, however slowly its bytes arrive. API servers end a request after 60 s.
const DOCUMENT_TIME: Duration = Duration::from_secs(300);

pub(super) struct Document {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) audit_id: Option<String>,
}

impl Client {
    /// Requests a document that is not a list, with the retries of a list, and converts it with `read`.
    pub(super) async fn document<R>(
        &self,
        request: &DocumentRequest,
        classify: impl Fn(&Error) -> RetryAdvice,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        on_own_runtime(self.retried_document(request, classify, read)).await
    }

    async fn retried_document<R>(
        &self,
        request: &DocumentRequest,
        classify: impl Fn(&Error) -> RetryAdvice,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        let mut tries = self.tries();
        loop {
            let error = match self.document_once(request).await {
                Ok(document) => match read(&document) {
                    Ok(read) => return Ok(read),
                    Err(kind) => Error::new(kind).with_audit_id(document.audit_id),
                },
                Err(error) => error,
            };
            let error = error.redacted(&*self.transport);
            let Some(wait) = tries.again(&error, classify(&error)) else { return Err(error) };
            within(request.deadline, async {
                sleep(wait).await;
                Ok(())
            })
            .await?;
        }
    }

    async fn document_once(&self, request: &DocumentRequest) -> Result<Document, Error> {
        let DocumentRequest { path, accept, limit: (limit, max), deadline, counters } = request;
        let Answer { headers, first, mut chunks, audit_id, .. } =
            self.send(path.clone(), accept.clone(), *deadline, counters).await?;
        let end = Instant::now() + DOCUMENT_TIME;
        let late = |bytes| {
            let message =
                format!("the server has not sent the whole body: {bytes} bytes in {} s", DOCUMENT_TIME.as_secs());
            TransportError::new(TransportErrorKind::ReadIdle, message)
        };
        let mut body = Vec::new();
        let mut next = Some(first);
        while let Some(chunk) = next {
            body.extend_from_slice(&chunk);
            let size = body.len() as u64;
            if size > *max {
                let kind = DecodeErrorKind::Limit { limit: *limit, size, max: *max };
                return Err(ErrorKind::Decode(DecodeError::new(kind, size, None, 0)).into());
            }
            next = timeout_at(end, body::next_chunk(&mut chunks)).await.map_err(|_| late(body.len()))??;
        }
        Ok(Document { headers, body, audit_id })
    }
}
