//! The state of the key space at one revision.

use std::sync::Arc;

use crate::error::{Error, RevisionFault};
use crate::key_value::{KeyValue, Revision};
use crate::pages::{Page, Pages, Root};
use crate::sorted_keys::{KeySorter, Place, SortedKeys};
use crate::tree::Walk;

/// The bytes of a value that are read to find its key, which stands first. Keys of Kubernetes are shorter.
const KEY_AT_FRONT: u64 = 1024;

/// The keys of a [`DataFile`](crate::DataFile) at one revision, in byte order, each with its value.
pub struct State<'f> {
    pages: &'f Pages,
    keys: SortedKeys,
    revision: i64,
    buffer: Vec<u8>,
    /// The page of the last value. A small bucket lies inside of another page, and has this one only.
    page: Option<Arc<Page>>,
}

impl<'f> State<'f> {
    pub(crate) fn new(
        pages: &'f Pages,
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
        let mut walk = Walk::new(pages, root)?;
        let mut buffer = Vec::new();
        while let Some(entry) = walk.next()? {
            let at = Revision::parse(walk.key()).map_err(|fault| entry.page.error(fault))?;
            if entry.element.is_bucket {
                return Err(entry.page.error(RevisionFault::Value));
            }
            // Later revisions are skipped, but walked through: a damaged one must not end the state early, and the order of
            // the keys shows it.
            if at.main > revision {
                continue;
            }
            let mut front = pages.value(&entry.page, entry.element, KEY_AT_FRONT, &mut buffer)?;
            let key = if let Some(key) = KeyValue::key_at_front(front) {
                key
            } else {
                front = pages.value(&entry.page, entry.element, u64::MAX, &mut buffer)?;
                KeyValue::parse(front).map_err(|fault| entry.page.error(fault))?.key
            };
            if !key.starts_with(prefix) {
                continue;
            }
            // A page has at most 65,535 elements.
            let index = u16::try_from(entry.index).unwrap_or(u16::MAX);
            sorter.push(key, Place { page: entry.page.id(), index, is_tombstone: at.is_tombstone })?;
        }
        Ok(Self { pages, keys: sorter.finish()?, revision, buffer: Vec::new(), page })
    }

    /// The revision of this state.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Reads the next key and its value.
    ///
    /// # Errors
    ///
    /// If a page is damaged or cannot be read. The state is incomplete then.
    #[expect(clippy::should_implement_trait, reason = "it borrows from the state")]
    pub fn next(&mut self) -> Result<Option<KeyValue<'_>>, Error> {
        let Some((_, place)) = self.keys.next()? else { return Ok(None) };
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

impl std::fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("revision", &self.revision).finish_non_exhaustive()
    }
}
