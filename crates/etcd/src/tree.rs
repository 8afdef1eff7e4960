//! A walk through the elements of one bucket, in key order.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, PageFault};
use crate::pages::{Element, Page, Pages, Root};

/// The most pages from the root of a bucket to a leaf. A file that the number of a page can address needs less than 64.
const MAX_DEPTH: usize = 64;

/// A walk through the leaves of a bucket.
///
/// bbolt has no checksums below its meta pages, so damaged references could lead in circles. Three rules end every
/// walk: keys ascend, no more pages are visited than the file has, and no path has more than [`MAX_DEPTH`] pages.
pub(crate) struct Walk<'p> {
    pages: &'p Pages,
    /// The branches and the leaf on the way to the next element, each with the index of the next element.
    path: Vec<(Arc<Page>, usize)>,
    visited: u64,
    /// The pages of all visited branches and leaves, with their overflow pages.
    pages_taken: u64,
    last_key: Vec<u8>,
    buffer: Vec<u8>,
}

/// An element of a leaf, with the page in which it lies.
pub(crate) struct Entry {
    pub(crate) page: Arc<Page>,
    pub(crate) index: usize,
    pub(crate) element: Element,
}

impl<'p> Walk<'p> {
    pub(crate) fn new(pages: &'p Pages, root: Root) -> Result<Self, Error> {
        let mut walk =
            Self { pages, path: Vec::new(), visited: 0, pages_taken: 0, last_key: Vec::new(), buffer: Vec::new() };
        match root {
            Root::Page(id) => walk.descend(id)?,
            Root::Inline(page) => walk.path.push((page, 0)),
        }
        Ok(walk)
    }

    /// Returns the next element, whose key is greater than that of the element before.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            let Some((page, index)) = self.path.last_mut() else { return Ok(None) };
            if *index >= page.count {
                self.path.pop();
                continue;
            }
            let (page, at) = (Arc::clone(page), *index);
            *index += 1;
            if page.is_leaf {
                return self.entry(page, at).map(Some);
            }
            let child = page.child(at)?;
            self.descend(child)?;
        }
    }

    /// Adds the number of visited branches and leaves to the total of all buckets, because a damaged reference may lead
    /// from one bucket to another, or back to itself.
    pub(crate) fn add_visited(&self, total: &mut u64) -> Result<(), Error> {
        *total += self.visited;
        if *total > self.pages.most_pages() { Err(ErrorKind::from(PageFault::Circle).into()) } else { Ok(()) }
    }

    /// The number of pages that were visited, with their overflow pages.
    pub(crate) fn pages(&self) -> u64 {
        self.pages_taken
    }

    /// The key of the element that `next` returned last.
    pub(crate) fn key(&self) -> &[u8] {
        &self.last_key
    }

    fn entry(&mut self, page: Arc<Page>, index: usize) -> Result<Entry, Error> {
        let element = page.element(index)?;
        let key = self.pages.key(&page, element, &mut self.buffer)?;
        if key <= self.last_key.as_slice() {
            return Err(page.error(PageFault::Order));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(Entry { page, index, element })
    }

    fn descend(&mut self, id: u64) -> Result<(), Error> {
        self.visited += 1;
        let page = self.pages.page(id)?;
        if self.visited > self.pages.most_pages() || self.path.len() >= MAX_DEPTH {
            return Err(page.error(PageFault::Circle));
        }
        self.pages_taken += page.pages(self.pages.meta.page_size);
        self.path.push((Arc::new(page), 0));
        Ok(())
    }
}

/// Returns the entry with the greatest key of a bucket, or nothing if the bucket is empty, by the rightmost path.
pub(crate) fn last(pages: &Pages, root: Root) -> Result<Option<Entry>, Error> {
    let mut depth = 0;
    let mut page = match root {
        Root::Page(id) => Arc::new(pages.page(id)?),
        Root::Inline(page) => page,
    };
    while !page.is_leaf {
        let child = page.child(page.count.saturating_sub(1))?;
        depth += 1;
        if depth >= MAX_DEPTH {
            return Err(page.error(PageFault::Circle));
        }
        page = Arc::new(pages.page(child)?);
    }
    let Some(index) = page.count.checked_sub(1) else { return Ok(None) };
    let element = page.element(index)?;
    Ok(Some(Entry { page, index, element }))
}

/// Finds a bucket of the root bucket by its name.
pub(crate) fn bucket(pages: &Pages, name: &'static str) -> Result<Root, Error> {
    find_bucket(pages, name)?.ok_or_else(|| ErrorKind::NoBucket(name).into())
}

/// As [`bucket`], but nothing if there is none.
pub(crate) fn find_bucket(pages: &Pages, name: &str) -> Result<Option<Root>, Error> {
    let mut walk = Walk::new(pages, Root::Page(pages.meta.root))?;
    let (mut buffer, mut found) = (Vec::new(), None);
    // To the end also after the bucket was found: there are few, and a damaged root bucket is an error this way.
    while let Some(entry) = walk.next()? {
        if walk.key() == name.as_bytes() && entry.element.is_bucket {
            let value = pages.value(&entry.page, entry.element, u64::MAX, &mut buffer)?;
            found = Some(entry.page.bucket(entry.index, value)?);
        }
    }
    Ok(found)
}
