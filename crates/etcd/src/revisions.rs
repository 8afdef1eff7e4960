//! The bucket `key`, entry by entry: the revision and the key of each, without reading whole values.

use std::ops::ControlFlow;

use crate::error::{Error, RevisionFault};
use crate::key_value::{KeyValue, Revision};
use crate::pages::{Page, Pages, Root};
use crate::tree::Walk;

/// The bytes of a value that are read to find its key, which stands first. Keys of Kubernetes are shorter.
const KEY_AT_FRONT: u64 = 1024;

/// An entry of the bucket.
pub(crate) struct RevisionEntry<'a> {
    pub(crate) at: Revision,
    /// The key of etcd, such as `/registry/pods/default/web-1`.
    pub(crate) key: &'a [u8],
    pub(crate) page: &'a Page,
    pub(crate) index: usize,
    /// The bytes that the entry takes in its page.
    pub(crate) size: u64,
}

/// Calls `visit` with each entry in the order of revisions, until it breaks. Returns the number of pages of the bucket
/// that were visited.
pub(crate) fn visit_revisions(
    pages: &Pages,
    root: Root,
    mut visit: impl FnMut(RevisionEntry<'_>) -> Result<ControlFlow<()>, Error>,
) -> Result<u64, Error> {
    let mut walk = Walk::new(pages, root)?;
    let mut buffer = Vec::new();
    while let Some(entry) = walk.next()? {
        let (page, index, element) = (&*entry.page, entry.index, entry.element);
        let at = Revision::parse(walk.key()).map_err(|fault| page.error(fault))?;
        if element.is_bucket {
            return Err(page.error(RevisionFault::Value));
        }
        let mut front = pages.value(page, element, KEY_AT_FRONT, &mut buffer)?;
        let key = if let Some(key) = KeyValue::key_at_front(front) {
            key
        } else {
            front = pages.value(page, element, u64::MAX, &mut buffer)?;
            KeyValue::parse(front).map_err(|fault| page.error(fault))?.key
        };
        if visit(RevisionEntry { at, key, page, index, size: element.size() })?.is_break() {
            break;
        }
    }
    Ok(walk.pages())
}
