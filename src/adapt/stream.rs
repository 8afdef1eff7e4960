//! The adapter over a stream of chunks.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use super::source::{FromRef, ListError, Source, adapter_methods, source_of};
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

/// The most bytes without an item that one poll decodes.
///
/// The limit lets other tasks run during a body of unknown fields or white space.
const TURN: usize = 1 << 20;

/// The least that a chunk counts towards [`TURN`], because chunks may be empty.
const LEAST_OF_TURN: usize = 16 << 10;

pin_project! {
    /// A stream of the items of a list, over a stream of the chunks of its body.
    ///
    /// The chunks may come from `reqwest`, `hyper` or any other library. Each poll returns at most one item, and the
    /// next chunk is polled only once the current chunk is decoded. The stream may be dropped or left unpolled at any
    /// time.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use futures::{StreamExt, executor::block_on, stream};
    /// use listwatch::ListStream;
    ///
    /// # let body = Bytes::from_static(include_bytes!("../../fixtures/configmaps.pb"));
    /// # block_on(async {
    /// let chunks = stream::iter([Ok::<_, std::io::Error>(body)]);
    /// let mut items = ListStream::new::<[u8]>(chunks);
    /// while let Some(item) = items.next().await {
    ///     println!("{} bytes", item?.len());
    /// }
    /// assert_eq!(items.end().map(|end| end.items), Some(13));
    /// # Ok::<(), listwatch::ListError<std::io::Error>>(())
    /// # }).unwrap();
    /// ```
    pub struct ListStream<S, F> {
        #[pin]
        chunks: S,
        source: Source<F>,
        chunk: Bytes,
        ended: bool,
    }
}

impl<S> ListStream<S, ()> {
    /// Creates a stream that decodes each item as `T`: see [`Item`]. It polls nothing until it is polled.
    pub fn new<T: Item + ?Sized>(chunks: S) -> ListStream<S, FromRef<T>> {
        ListStream::of(chunks, source_of::<T>())
    }

    /// Creates a stream that passes each item to a closure, for projections, filters and tuples.
    ///
    /// It polls nothing until it is polled.
    pub fn with<F, O, E>(chunks: S, convert: F) -> ListStream<S, F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        ListStream::of(chunks, Source::with(convert))
    }
}

impl<S, F> ListStream<S, F> {
    fn of(chunks: S, source: Source<F>) -> Self {
        Self { chunks, source, chunk: Bytes::new(), ended: false }
    }

    adapter_methods!();

    /// Returns a reference to the stream of chunks.
    pub fn get_ref(&self) -> &S {
        &self.chunks
    }

    /// Returns the stream of chunks. The rest of the current chunk is lost.
    pub fn into_inner(self) -> S {
        self.chunks
    }
}

impl<S, C, F, O, E> ListStream<S, F>
where
    S: Stream<Item = Result<Bytes, C>>,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    fn advance(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Option<O>, ListError<C>>> {
        let mut this = self.project();
        let mut decoded = 0;
        loop {
            let mut rest = &this.chunk[..];
            let item = this.source.next(&mut rest);
            let taken = this.chunk.len() - rest.len();
            this.chunk.advance(taken);
            if this.chunk.is_empty() {
                // A waiting stream keeps no chunk alive.
                *this.chunk = Bytes::new();
            }
            if let Some(item) = item? {
                return Poll::Ready(Ok(Some(item)));
            }
            if decoded >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(chunk) = ready!(this.chunks.as_mut().poll_next(cx)) else {
                this.source.finish()?;
                return Poll::Ready(Ok(None));
            };
            *this.chunk = chunk.map_err(ListError::Transport)?;
            decoded += this.chunk.len().max(LEAST_OF_TURN);
        }
    }
}

/// Ends after the last item, or after an error.
impl<S, C, F, O, E> Stream for ListStream<S, F>
where
    S: Stream<Item = Result<Bytes, C>>,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<O, ListError<C>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.as_mut().advance(cx));
        *self.project().ended = !matches!(next, Ok(Some(_)));
        Poll::Ready(next.transpose())
    }
}

impl<S, C, F, O, E> FusedStream for ListStream<S, F>
where
    S: Stream<Item = Result<Bytes, C>>,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl<S: fmt::Debug, F> fmt::Debug for ListStream<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chunks, source, .. } = self;
        f.debug_struct("ListStream").field("chunks", chunks).field("source", source).finish_non_exhaustive()
    }
}
