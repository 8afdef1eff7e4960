//! Requests that are read whole before they are used: single objects and discovery documents.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep, timeout_at};

use super::body;
use super::error::{Error, ErrorKind};
use super::handle::Client;
use super::progress::Counters;
use super::retry::RetryAdvice;
use super::runtime::on_own_runtime;
use super::send::Answer;
use super::transport::{TransportError, TransportErrorKind};
use crate::error::{DecodeError, DecodeErrorKind, Limit};

/// The size limit of bodies that are read whole: objects and discovery documents.
const DOCUMENT_SIZE: u64 = 64 << 20;

/// The longest time for which such a body is read, however slowly its bytes drip. API servers end a request after 60 s.
const DOCUMENT_TIME: Duration = Duration::from_secs(300);

/// A 2xx response with its whole body.
pub(super) struct Document {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) audit_id: Option<String>,
}

impl Client {
    /// Requests a document that is not a list, with the retries of a list, and converts it by `read`.
    pub(super) async fn document<R>(
        &self,
        path: String,
        accept: HeaderValue,
        classify: impl Fn(&Error) -> RetryAdvice,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        on_own_runtime(self.retried_document(path, accept, classify, read)).await
    }

    async fn retried_document<R>(
        &self,
        path: String,
        accept: HeaderValue,
        classify: impl Fn(&Error) -> RetryAdvice,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        let mut tries = self.tries();
        loop {
            let error = match self.document_once(path.clone(), accept.clone()).await {
                Ok(document) => match read(&document) {
                    Ok(read) => return Ok(read),
                    Err(kind) => Error::new(kind).with_audit_id(document.audit_id),
                },
                Err(error) => error,
            };
            let error = error.redacted(&*self.transport);
            match tries.again(&error, classify(&error)) {
                Some(wait) => sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn document_once(&self, path: String, accept: HeaderValue) -> Result<Document, Error> {
        let Answer { headers, first, mut chunks, audit_id, .. } =
            self.send(path, accept, None, &Arc::new(Counters::new(&self.totals))).await?;
        let mut body = Vec::from(first);
        let end = Instant::now() + DOCUMENT_TIME;
        let late = |bytes| {
            let message = format!("the body has not ended: {bytes} bytes in {} s", DOCUMENT_TIME.as_secs());
            TransportError::new(TransportErrorKind::ReadIdle, message)
        };
        loop {
            let next = timeout_at(end, body::next_chunk(&mut chunks)).await;
            let Some(chunk) = next.map_err(|_| late(body.len()))?? else { break };
            body.extend_from_slice(&chunk);
            let size = body.len() as u64;
            if size > DOCUMENT_SIZE {
                let kind = DecodeErrorKind::Limit { limit: Limit::Bytes, size, max: DOCUMENT_SIZE };
                return Err(ErrorKind::Decode(DecodeError::new(kind, size, None, 0)).into());
            }
        }
        Ok(Document { headers, body, audit_id })
    }
}
