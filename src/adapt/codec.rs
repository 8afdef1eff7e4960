//! The adapter for tokio-util's `FramedRead`.

use std::io;
use std::marker::PhantomData;

use bytes::{Buf, BytesMut};
use tokio_util::codec::Decoder;

use super::source::{FromRef, ListError, Source, adapter_methods, source};
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

/// A [`Decoder`] that makes a [`FramedRead`](tokio_util::codec::FramedRead) over any `AsyncRead` give the items of a list.
///
/// `T` says what each item becomes: see [`Item`]. It takes all bytes it is given, so the buffer of the `FramedRead` does
/// not grow; `for_each` and `try_for_each` over the items are those of `futures::StreamExt`. An error, also that of a list
/// that is not complete, ends the stream.
///
/// ```
/// use futures::StreamExt;
/// use listwatch::ListCodec;
/// use tokio_util::codec::FramedRead;
///
/// # let body = &include_bytes!("../../fixtures/configmaps.pb")[..];
/// # futures::executor::block_on(async {
/// let mut items = FramedRead::new(body, ListCodec::<[u8]>::new());
/// while let Some(item) = items.next().await {
///     println!("{} bytes", item?.len());
/// }
/// assert_eq!(items.decoder().end().map(|end| end.items), Some(13));
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// # }).unwrap();
/// ```
pub struct ListCodec<T: Item + ?Sized, F = FromRef<T>> {
    source: Source<F>,
    item: PhantomData<fn() -> T::Owned>,
}

impl<T: Item + ?Sized> ListCodec<T> {
    /// A codec for one list.
    #[must_use]
    pub fn new() -> Self {
        Self { source: source::<T>(), item: PhantomData }
    }
}

impl<T: Item + ?Sized> Default for ListCodec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item + ?Sized, F> ListCodec<T, F> {
    /// Gives each item to a closure in place of [`Item::from_ref`]: for projections, filters and tuples.
    pub fn map_item<O, E, G>(self, own: G) -> ListCodec<T, G>
    where
        G: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        ListCodec { source: self.source.map_item(own), item: self.item }
    }

    adapter_methods!();
}

impl<T, F, O, E> Decoder for ListCodec<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = O;
    type Error = ListError<io::Error>;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<O>, Self::Error> {
        let mut rest = &buffer[..];
        let item = self.source.next(&mut rest);
        let taken = buffer.len() - rest.len();
        buffer.advance(taken);
        Ok(item?)
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<O>, Self::Error> {
        let item = self.decode(buffer)?;
        if item.is_none() {
            self.source.finish()?;
        }
        Ok(item)
    }
}
