//! The adapter over a stream of chunks.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use pin_project_lite::pin_project;

use super::source::{ListError, Own, Source, adapter_methods};
use crate::decode::{ItemRef, ListEnd};
use crate::error::ItemError;
use crate::item::Item;

pin_project! {
    /// A stream of the items of a list, over a stream of its body's chunks.
    ///
    /// `T` says what each item becomes: see [`Item`]. Each poll gives one item; the rest of the chunk waits, and no other
    /// chunk is asked for before it is used up. It may be dropped or left unpolled at any time; the chunks are `reqwest`'s,
    /// `hyper`'s or anybody's.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use futures::{StreamExt, executor::block_on, stream};
    /// use listwatch::ListStream;
    ///
    /// # let body = Bytes::from_static(include_bytes!("../../fixtures/configmaps.pb"));
    /// # block_on(async {
    /// let chunks = stream::iter([Ok::<_, std::io::Error>(body)]);
    /// let mut items = ListStream::<_, [u8]>::new(chunks);
    /// while let Some(item) = items.next().await {
    ///     println!("{} bytes", item?.len());
    /// }
    /// assert_eq!(items.end().map(|end| end.items), Some(13));
    /// # Ok::<(), listwatch::ListError<std::io::Error>>(())
    /// # }).unwrap();
    /// ```
    pub struct ListStream<S, T, F = Own<T>> where T: Item, T: ?Sized {
        #[pin]
        chunks: S,
        source: Source<F>,
        chunk: Bytes,
        ended: bool,
        item: PhantomData<fn() -> T::Owned>,
    }
}

impl<S, T: Item + ?Sized> ListStream<S, T> {
    /// Nothing is polled yet.
    pub fn new(chunks: S) -> Self {
        Self { chunks, source: Source::new(T::own), chunk: Bytes::new(), ended: false, item: PhantomData }
    }
}

impl<S, T: Item + ?Sized, F> ListStream<S, T, F> {
    /// Gives each item to a closure in place of [`Item::own`]: for projections, filters and tuples.
    pub fn map_item<O, E, G>(self, own: G) -> ListStream<S, T, G>
    where
        G: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let Self { chunks, source, chunk, ended, item } = self;
        ListStream { chunks, source: source.map_item(own), chunk, ended, item }
    }

    adapter_methods!();
}

impl<S, C, T, F, O, E> ListStream<S, T, F>
where
    S: Stream<Item = Result<Bytes, C>>,
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Calls `on_item` for each item. `Continue` with the end of the list, unless `on_item` broke it off.
    ///
    /// # Errors
    ///
    /// [`ListError`] when the list is not complete.
    pub async fn for_each<B>(
        self,
        mut on_item: impl FnMut(O) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, ListEnd>, ListError<C>> {
        let mut items = pin!(self);
        while let Some(item) = poll_fn(|cx| items.as_mut().advance(cx)).await? {
            if let ControlFlow::Break(value) = on_item(item) {
                return Ok(ControlFlow::Break(value));
            }
        }
        Ok(ControlFlow::Continue(items.project().source.decoder.finish()?))
    }

    /// Calls `on_item` for each item until it fails.
    ///
    /// # Errors
    ///
    /// The first error of `on_item`, or [`ListError`] turned into it when the list is not complete.
    pub async fn try_for_each<X: From<ListError<C>>>(
        self,
        mut on_item: impl FnMut(O) -> Result<(), X>,
    ) -> Result<ListEnd, X> {
        let mut items = pin!(self);
        while let Some(item) = poll_fn(|cx| items.as_mut().advance(cx)).await? {
            on_item(item)?;
        }
        Ok(items.project().source.decoder.finish().map_err(ListError::Decode)?)
    }

    fn advance(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Option<O>, ListError<C>>> {
        let mut this = self.project();
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
            let Some(chunk) = ready!(this.chunks.as_mut().poll_next(cx)) else {
                this.source.finish()?;
                return Poll::Ready(Ok(None));
            };
            *this.chunk = chunk.map_err(ListError::Transport)?;
        }
    }
}

/// Ends after the last item, or after an error.
impl<S, C, T, F, O, E> Stream for ListStream<S, T, F>
where
    S: Stream<Item = Result<Bytes, C>>,
    T: Item + ?Sized,
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
