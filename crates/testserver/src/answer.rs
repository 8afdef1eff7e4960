//! Answers to requests.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::body::{Body, BodyStream};
use crate::request::RecordedRequest;

/// A response: status, headers and body.
#[derive(Clone, Debug)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    /// Answers with status 200, content type `application/vnd.kubernetes.protobuf` and this body.
    #[must_use]
    pub fn ok(body: Body) -> Self {
        let protobuf = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
        Self { status: StatusCode::OK, headers: HeaderMap::from_iter([(CONTENT_TYPE, protobuf)]), body }
    }

    /// Sets the status.
    ///
    /// # Panics
    /// When `code` is not a number of three digits.
    #[must_use]
    pub fn status(mut self, code: u16) -> Self {
        self.status = StatusCode::from_u16(code).expect("a status has three digits");
        self
    }

    /// Sets a header, and replaces all headers of this name.
    ///
    /// # Panics
    /// When `name` is not a valid header name, or `value` not a valid header value.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a valid header name");
        let value = HeaderValue::try_from(value).expect("a valid header value");
        self.headers.insert(name, value);
        self
    }

    /// Sets the content type.
    ///
    /// # Panics
    /// When `value` is not a valid header value.
    #[must_use]
    pub fn content_type(self, value: &str) -> Self {
        self.header("content-type", value)
    }

    /// Removes the content type, as an API server does when a request times out before it has sent the headers.
    #[must_use]
    pub fn no_content_type(mut self) -> Self {
        self.headers.remove(CONTENT_TYPE);
        self
    }

    /// Returns a handler that gives this answer to every request.
    pub fn always(self) -> impl Fn(&RecordedRequest, usize) -> Self + Send + Sync + 'static {
        Self::in_turn([self])
    }

    /// Returns a handler that gives these answers in turn, and the last one to all later requests.
    ///
    /// # Panics
    /// When `answers` is empty.
    pub fn in_turn(
        answers: impl IntoIterator<Item = Self>,
    ) -> impl Fn(&RecordedRequest, usize) -> Self + Send + Sync + 'static {
        let answers: Vec<Self> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "at least one answer");
        move |_, n| answers[n.min(answers.len() - 1)].clone()
    }

    pub(crate) fn into_response(self, bytes_sent: Arc<AtomicU64>) -> Response<BodyStream> {
        let Self { status, mut headers, body } = self;
        if body.is_compressed() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(length) = body.content_length() {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        let mut response = Response::new(body.stream(bytes_sent));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}
