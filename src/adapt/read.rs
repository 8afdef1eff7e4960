//! The adapter over `io::Read`.

use std::fmt;
use std::io::{self, Read};
use std::iter::FusedIterator;

use super::source::{FromRef, ListError, Source, adapter_methods, source_of};
use crate::error::ItemError;
use crate::object::Item;
use crate::object::ItemRef;

const CHUNK: usize = 64 << 10;

/// An iterator over the items of a list that is read from an [`io::Read`].
///
/// The reader needs no buffer around the `Read`, because it reads chunks of 64 KiB. That chunk is its only memory
/// besides the decoder's. After a `for` loop over `&mut reader`, [`end`](Self::end) returns the metadata and the counts
/// of the list.
///
/// ```
/// use k8s_pb::api::core::v1::ConfigMap;
/// use listwatch::ListReader;
///
/// # let path = "fixtures/configmaps.pb";
/// let mut items = ListReader::new::<ConfigMap>(std::fs::File::open(path)?);
/// let mut keys = 0;
/// for config_map in &mut items {
///     keys += config_map?.data.len();
/// }
/// let end = items.end().expect("a list that ends without an error is complete");
/// println!("{keys} keys in {} ConfigMaps", end.items);
/// # assert_eq!((keys, end.items), (25, 13));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListReader<R, F> {
    read: R,
    source: Source<F>,
    chunk: Box<[u8]>,
    /// The bytes of `chunk` from `taken` to `filled` were read and are not decoded yet. Invariant:
    /// `taken <= filled <= chunk.len()`.
    taken: usize,
    filled: usize,
    ended: bool,
}

impl<R> ListReader<R, ()> {
    /// Creates a reader that decodes each item as `T`: see [`Item`]. It reads nothing until it is iterated.
    pub fn new<T: Item + ?Sized>(read: R) -> ListReader<R, FromRef<T>> {
        ListReader::of(read, source_of::<T>())
    }

    /// Creates a reader that passes each item to a closure, for projections, filters and tuples.
    ///
    /// It reads nothing until it is iterated.
    ///
    /// ```
    /// use listwatch::ListReader;
    ///
    /// # let file = &include_bytes!("../../fixtures/configmaps.pb")[..];
    /// let names = ListReader::with(file, |item| item.meta().map(|meta| meta.name().into_owned()));
    /// assert_eq!(names.count(), 13);
    /// ```
    pub fn with<F, O, E>(read: R, convert: F) -> ListReader<R, F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        ListReader::of(read, Source::with(convert))
    }
}

impl<R, F> ListReader<R, F> {
    fn of(read: R, source: Source<F>) -> Self {
        Self { read, source, chunk: vec![0; CHUNK].into(), taken: 0, filled: 0, ended: false }
    }

    adapter_methods!();

    /// Returns a reference to the source of the body.
    pub fn get_ref(&self) -> &R {
        &self.read
    }

    /// Returns the source of the body, from which up to 64 KiB more than the returned items may have been read.
    pub fn into_inner(self) -> R {
        self.read
    }
}

impl<R, F, O, E> ListReader<R, F>
where
    R: Read,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
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
impl<R, F, O, E> Iterator for ListReader<R, F>
where
    R: Read,
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

impl<R, F, O, E> FusedIterator for ListReader<R, F>
where
    R: Read,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
}

impl<R: fmt::Debug, F> fmt::Debug for ListReader<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, source, .. } = self;
        f.debug_struct("ListReader").field("read", read).field("source", source).finish_non_exhaustive()
    }
}
