//! The bodies of responses.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use http_body::{Body, Frame, SizeHint};
use http_body_util::StreamBody;

/// The error of a body: the connection or the stream is reset, so that the reader sees that the body is incomplete.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response.
pub(crate) enum ResponseBody {
    /// Bytes that are known when the response starts; `None` after they were read, and for an empty body.
    Whole(Option<Bytes>),
    /// A body that is produced while it is sent.
    Streamed(ProducedBody),
    /// Such a body that ends at any time: of a watch, for example.
    Endless(ProducedBody),
}

type ProducedBody = Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>;

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    pub(crate) fn from_stream<E: Into<BodyError> + 'static>(
        stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        Self::new(StreamBody::new(stream.map_ok(Frame::data).map_err(Into::into)))
    }

    pub(crate) fn endless<E: Into<BodyError> + 'static>(
        stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        Self::Endless(Box::pin(StreamBody::new(stream.map_ok(Frame::data).map_err(Into::into))))
    }

    pub(crate) fn is_endless(&self) -> bool {
        matches!(self, Self::Endless(_))
    }

    /// Creates a body from an implementation of [`http_body::Body`].
    pub(crate) fn new(body: impl Body<Data = Bytes, Error = BodyError> + Send + 'static) -> Self {
        Self::Streamed(Box::pin(body))
    }
}

impl<B: Into<Bytes>> From<B> for ResponseBody {
    fn from(bytes: B) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Streamed(body) | Self::Endless(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Streamed(body) | Self::Endless(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Streamed(body) | Self::Endless(body) => body.size_hint(),
        }
    }
}
