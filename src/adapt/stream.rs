//! The adapter over a stream of chunks.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use pin_project_lite::pin_project;

use super::source::{FromRef, ListError, Source, adapter_methods, source};
use crate::decode::ListEnd;
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

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
    pub struct ListStream<S, T, F = FromRef<T>> where T: Item, T: ?Sized {
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
        Self { chunks, source: source::<T>(), chunk: Bytes::new(), ended: false, item: PhantomData }
    }
}

impl<S, T: Item + ?Sized, F> ListStream<S, T, F> {
    /// Gives each item to a closure in place of [`Item::from_ref`]: for projections, filters and tuples.
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
        on_item: impl FnMut(O) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, ListEnd>, ListError<C>> {
        let mut items = pin!(self);
        Ok(match for_each(|cx| items.as_mut().advance(cx), on_item).await? {
            ControlFlow::Continue(()) => ControlFlow::Continue(items.project().source.decoder.finish()?),
            ControlFlow::Break(value) => ControlFlow::Break(value),
        })
    }

    /// Calls `on_item` for each item until it fails.
    ///
    /// # Errors
    ///
    /// The first error of `on_item`, or [`ListError`] turned into it when the list is not complete.
    pub async fn try_for_each<X: From<ListError<C>>>(
        self,
        on_item: impl FnMut(O) -> Result<(), X>,
    ) -> Result<ListEnd, X> {
        let mut items = pin!(self);
        try_for_each(|cx| items.as_mut().advance(cx), on_item).await?;
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

/// Drives what polls for the next item, until there is none or `on_item` breaks it off.
pub(crate) async fn for_each<O, E, B>(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<Result<Option<O>, E>>,
    mut on_item: impl FnMut(O) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, E> {
    while let Some(item) = poll_fn(&mut next).await? {
        if let ControlFlow::Break(value) = on_item(item) {
            return Ok(ControlFlow::Break(value));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The same, until there is none or one of the two fails.
pub(crate) async fn try_for_each<O, E, X: From<E>>(
    next: impl FnMut(&mut Context<'_>) -> Poll<Result<Option<O>, E>>,
    mut on_item: impl FnMut(O) -> Result<(), X>,
) -> Result<(), X> {
    let failed = for_each(next, |item| on_item(item).map_or_else(ControlFlow::Break, ControlFlow::Continue)).await?;
    match failed {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}
