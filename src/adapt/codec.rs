//! The adapter for tokio-util's `FramedRead`.

use std::fmt;
use std::io;

use bytes::{Buf, BytesMut};
use tokio_util::codec::Decoder;

use super::source::{FromRef, ListError, Source, adapter_methods, source_of};
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

/// A `Decoder` for a `FramedRead` of tokio-util, which yields the items of a list from any `AsyncRead`.
///
/// It consumes the bytes of incomplete items too, so the buffer of the `FramedRead` does not grow. Every error ends the stream,
/// including the error of an incomplete list.
///
/// ```
/// use futures::StreamExt;
/// use listwatch::ListCodec;
/// use tokio_util::codec::FramedRead;
///
/// # let body = &include_bytes!("../../fixtures/configmaps.pb")[..];
/// # futures::executor::block_on(async {
/// let mut items = FramedRead::new(body, ListCodec::new::<[u8]>());
/// while let Some(item) = items.next().await {
///     println!("{} bytes", item?.len());
/// }
/// assert_eq!(items.decoder().end().map(|end| end.items), Some(13));
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// # }).unwrap();
/// ```
pub struct ListCodec<F> {
    source: Source<F>,
}

impl ListCodec<()> {
    /// Creates a codec for one list, whose items are decoded as `T`: see [`Item`].
    #[must_use]
    pub fn new<T: Item + ?Sized>() -> ListCodec<FromRef<T>> {
        ListCodec { source: source_of::<T>() }
    }

    /// Creates a codec for one list that gives each item to a closure: for projections, filters and tuples.
    pub fn with<F, O, E>(convert: F) -> ListCodec<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        ListCodec { source: Source::with(convert) }
    }
}

impl<F> ListCodec<F> {
    adapter_methods!();
}

impl<F, O, E> Decoder for ListCodec<F>
where
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

impl<F> fmt::Debug for ListCodec<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListCodec").field("source", &self.source).finish_non_exhaustive()
    }
}
