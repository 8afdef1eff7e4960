//! Requests that are read whole before they are used: single objects and discovery documents.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue};
use tokio::time::sleep;

use super::body;
use super::error::{Error, ErrorKind};
use super::handle::Client;
use super::progress::Counters;
use super::retry::RetryAdvice;
use super::send::Answer;
use crate::error::{DecodeError, DecodeErrorKind, Limit};

/// The size limit of bodies that are read whole: objects and discovery documents.
const DOCUMENT_SIZE: u64 = 64 << 20;

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
        while let Some(chunk) = body::next_chunk(&mut chunks).await? {
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
