//! The state of the key space at one revision.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::Error;
use crate::key_value::KeyValue;
use crate::pages::{Page, Pages, Root};
use crate::revisions::visit_revisions;
use crate::sorted_keys::{Entry, KeySorter, SortedKeys};

/// Where the newest value of a key lies.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    index: u16,
    is_tombstone: bool,
}

impl Entry for Place {
    const LEN: usize = 11;

    fn after(self, _earlier: Self) -> Self {
        self
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.page.to_le_bytes())?;
        out.write_all(&self.index.to_le_bytes())?;
        out.write_all(&[self.is_tombstone.into()])
    }

    fn read(bytes: &[u8]) -> io::Result<Self> {
        let bytes: [u8; Self::LEN] = bytes.try_into().map_err(io::Error::other)?;
        let [page @ .., low, high, tombstone] = bytes;
        Ok(Self {
            page: u64::from_le_bytes(page),
            index: u16::from_le_bytes([low, high]),
            is_tombstone: tombstone != 0,
        })
    }
}

/// The keys of a [`DataFile`](crate::DataFile) at one revision, in byte order, each with its value.
pub struct State {
    pages: Arc<Pages>,
    keys: SortedKeys<Place>,
    revision: i64,
    buffer: Vec<u8>,
    key: Vec<u8>,
    /// The page of the last value. A small bucket lies inside of another page, and has this one only.
    page: Option<Arc<Page>>,
}

impl State {
    pub(crate) fn new(
        pages: Arc<Pages>,
        root: Root,
        prefix: &[u8],
        revision: i64,
        memory: usize,
    ) -> Result<Self, Error> {
        let mut sorter = KeySorter::new(memory);
        let page = match &root {
            Root::Inline(page) => Some(Arc::clone(page)),
            Root::Page(_) => None,
        };
        visit_revisions(&pages, root, |entry| {
            // Later revisions are skipped, but walked through: a damaged one must not end the state early, and the
            // order of the keys shows it.
            if entry.at.main <= revision && entry.key.starts_with(prefix) {
                // A page has at most 65,535 elements.
                let index = u16::try_from(entry.index).unwrap_or(u16::MAX);
                let place = Place { page: entry.page.id(), index, is_tombstone: entry.at.is_tombstone };
                sorter.push(entry.key, place)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self { pages, keys: sorter.finish()?, revision, buffer: Vec::new(), key: Vec::new(), page })
    }

    /// The revision of this state.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads the next key, without its value.
    ///
    /// # Errors
    ///
    /// If the temporary file of the keys cannot be read.
    pub fn next_key(&mut self) -> Result<Option<&[u8]>, Error> {
        while let Some((key, place)) = self.keys.next()? {
            if !place.is_tombstone {
                self.key.clear();
                self.key.extend_from_slice(key);
                return Ok(Some(&self.key));
            }
        }
        Ok(None)
    }

    /// Reads the next key and its value.
    ///
    /// # Errors
    ///
    /// If a page is damaged or cannot be read. The state is incomplete then.
    #[expect(clippy::should_implement_trait, reason = "it borrows from the state")]
    pub fn next(&mut self) -> Result<Option<KeyValue<'_>>, Error> {
        let place = loop {
            match self.keys.next()? {
                Some((_, place)) if place.is_tombstone => {}
                Some((_, place)) => break place,
                None => return Ok(None),
            }
        };
        let page = match self.page.take() {
            Some(page) if page.id() == place.page => page,
            _ => Arc::new(self.pages.page(place.page)?),
        };
        let page = &*self.page.insert(page);
        let element = page.element(place.index.into())?;
        let value = self.pages.value(page, element, u64::MAX, &mut self.buffer)?;
        KeyValue::parse(value).map(Some).map_err(|fault| page.error(fault))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("revision", &self.revision).finish_non_exhaustive()
    }
}
