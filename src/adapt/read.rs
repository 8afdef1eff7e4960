//! The adapter over `io::Read`.

use std::io::{self, Read};
use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::source::{FromRef, ListError, Source, adapter_methods, source};
use crate::decode::ListEnd;
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

const CHUNK: usize = 64 << 10;

/// An iterator over the items of a list that is read from an [`io::Read`].
///
/// `T` says what each item becomes: see [`Item`]. It reads in chunks of 64 KiB, the only memory it holds beside the
/// decoder's, so the reader needs no buffer of its own.
///
/// ```
/// use k8s_pb::api::core::v1::ConfigMap;
/// use listwatch::ListReader;
///
/// # let path = "fixtures/configmaps.pb";
/// let mut items = ListReader::<_, ConfigMap>::new(std::fs::File::open(path)?);
/// let mut keys = 0;
/// for config_map in &mut items {
///     keys += config_map?.data.len();
/// }
/// let end = items.end().expect("without an error the list is complete");
/// println!("{keys} keys in {} ConfigMaps", end.items);
/// # assert_eq!((keys, end.items), (25, 13));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListReader<R, T: Item + ?Sized, F = FromRef<T>> {
    read: R,
    source: Source<F>,
    chunk: Box<[u8]>,
    /// What of `chunk` is read and not yet taken. Invariant: `taken <= filled <= chunk.len()`.
    taken: usize,
    filled: usize,
    ended: bool,
    item: PhantomData<fn() -> T::Owned>,
}

impl<R, T: Item + ?Sized> ListReader<R, T> {
    /// Nothing is read yet.
    pub fn new(read: R) -> Self {
        Self {
            read,
            source: source::<T>(),
            chunk: vec![0; CHUNK].into(),
            taken: 0,
            filled: 0,
            ended: false,
            item: PhantomData,
        }
    }
}

impl<R, T: Item + ?Sized, F> ListReader<R, T, F> {
    /// Gives each item to a closure in place of [`Item::from_ref`]: for projections, filters and tuples.
    ///
    /// ```
    /// use listwatch::{ItemError, ListReader};
    ///
    /// # let file = &include_bytes!("../../fixtures/configmaps.pb")[..];
    /// let names = ListReader::<_, [u8]>::new(file).map_item(|item| Ok::<_, ItemError>(item.meta()?.name().to_owned()));
    /// assert_eq!(names.count(), 13);
    /// ```
    pub fn map_item<O, E, G>(self, own: G) -> ListReader<R, T, G>
    where
        G: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let Self { read, source, chunk, taken, filled, ended, item } = self;
        ListReader { read, source: source.map_item(own), chunk, taken, filled, ended, item }
    }

    adapter_methods!();
}

impl<R, T, F, O, E> ListReader<R, T, F>
where
    R: Read,
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Calls `on_item` for each item. `Continue` with the end of the list, unless `on_item` broke it off.
    ///
    /// # Errors
    ///
    /// [`ListError`] when the list is not complete.
    pub fn for_each<B>(
        mut self,
        mut on_item: impl FnMut(O) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, ListEnd>, ListError<io::Error>> {
        while let Some(item) = self.advance()? {
            if let ControlFlow::Break(value) = on_item(item) {
                return Ok(ControlFlow::Break(value));
            }
        }
        Ok(ControlFlow::Continue(self.source.decoder.finish()?))
    }

    /// Calls `on_item` for each item until it fails.
    ///
    /// # Errors
    ///
    /// The first error of `on_item`, or [`ListError`] turned into it when the list is not complete.
    pub fn try_for_each<X: From<ListError<io::Error>>>(
        mut self,
        mut on_item: impl FnMut(O) -> Result<(), X>,
    ) -> Result<ListEnd, X> {
        while let Some(item) = self.advance()? {
            on_item(item)?;
        }
        Ok(self.source.decoder.finish().map_err(ListError::Decode)?)
    }

    fn advance(&mut self) -> Result<Option<O>, ListError<io::Error>> {
        loop {
            let mut rest = self.chunk.get(self.taken..self.filled).unwrap_or_default();
            let item = self.source.next(&mut rest)?;
            self.taken = self.filled - rest.len();
            if item.is_some() {
                return Ok(item);
            }
            match self.read.read(&mut self.chunk) {
                Ok(0) => {
                    self.source.finish()?;
                    return Ok(None);
                }
                Ok(read) => (self.taken, self.filled) = (0, read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ListError::Transport(error)),
            }
        }
    }
}

/// Ends after the last item, or after an error.
impl<R, T, F, O, E> Iterator for ListReader<R, T, F>
where
    R: Read,
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<O, ListError<io::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance();
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
