//! What takes the space of a file: what an operator needs when etcd says `mvcc: database space exceeded`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};
use std::ops::ControlFlow;

use crate::error::Error;
use crate::pages::{Pages, Root};
use crate::revisions::visit_revisions;
use crate::sorted_keys::{Entry, KeySorter};

/// The largest number of resources, and of namespaces, that are counted apart. Further ones are counted in `others`.
const MAX_GROUPS: usize = 10_000;

/// What takes the space of a file, from [`DataFile::usage`](crate::DataFile::usage).
///
/// Bytes are those that an entry takes in its page, which is a little more than the value: the key of etcd, the
/// revisions and 16 bytes of index come with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The size of a page, in bytes.
    pub page_size: u64,
    /// The pages of the file that are allocated, or free for use again.
    pub pages: u64,
    /// The pages that no bucket uses. etcd reuses them, but gives them back to the disk only by `etcdctl defrag`.
    pub free_pages: u64,
    /// The pages of the bucket `key`, which has all keys and values.
    pub key_pages: u64,
    /// All keys together.
    pub total: KeyUsage,
    /// The keys of each folder, such as `/registry/pods`, in the order of the folders.
    pub by_resource: BTreeMap<String, KeyUsage>,
    /// The keys of each namespace. Keys without a namespace are under `""`.
    pub by_namespace: BTreeMap<String, KeyUsage>,
    /// The keys with the most revisions that are not compacted: who writes too often. Most first.
    pub most_revisions: Vec<UsedKey>,
    /// The largest values that are not deleted. Largest first.
    pub largest: Vec<UsedKey>,
}

/// The space of some keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyUsage {
    /// The keys that exist.
    pub keys: u64,
    /// The bytes of their newest revisions.
    pub bytes: u64,
    /// The keys that are deleted, but not yet compacted.
    pub deleted_keys: u64,
    /// The revisions that a compaction removes: all but the newest of each key, and all of a deleted key.
    pub old_revisions: u64,
    /// Their bytes.
    pub old_bytes: u64,
}

/// A key in a list of [`Usage`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct UsedKey {
    /// The key of etcd. Bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The revisions that are not compacted.
    pub revisions: u64,
    /// The bytes of all these revisions.
    pub bytes: u64,
    /// The bytes of the newest revision.
    pub newest_bytes: u64,
}

/// What is known about a key while the bucket is read.
#[derive(Clone, Copy)]
struct Counted {
    revisions: u64,
    bytes: u64,
    newest: u32,
    is_tombstone: bool,
}

impl Entry for Counted {
    const LEN: usize = 21;

    fn after(self, earlier: Self) -> Self {
        Self { revisions: self.revisions + earlier.revisions, bytes: self.bytes + earlier.bytes, ..self }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.revisions.to_le_bytes())?;
        out.write_all(&self.bytes.to_le_bytes())?;
        out.write_all(&self.newest.to_le_bytes())?;
        out.write_all(&[self.is_tombstone.into()])
    }

    fn read(bytes: &[u8]) -> io::Result<Self> {
        let bytes: [u8; Self::LEN] = bytes.try_into().map_err(io::Error::other)?;
        let [a @ .., _, _, _, _, _, _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, b @ .., _, _, _, _, _] = bytes;
        let [.., n0, n1, n2, n3, tombstone] = bytes;
        Ok(Self {
            revisions: u64::from_le_bytes(a),
            bytes: u64::from_le_bytes(b),
            newest: u32::from_le_bytes([n0, n1, n2, n3]),
            is_tombstone: tombstone != 0,
        })
    }
}

/// Reads the usage; `other_pages` are the pages of all buckets but `key`.
pub(crate) fn read_usage(
    pages: &Pages,
    key_bucket: Root,
    other_pages: u64,
    top: usize,
    memory: usize,
) -> Result<Usage, Error> {
    let mut sorter = KeySorter::new(memory);
    let key_pages = visit_revisions(pages, key_bucket, |entry| {
        let newest = u32::try_from(entry.size).unwrap_or(u32::MAX);
        let is_tombstone = entry.at.is_tombstone;
        sorter.push(entry.key, Counted { revisions: 1, bytes: entry.size, newest, is_tombstone })?;
        Ok(ControlFlow::Continue(()))
    })?;
    let in_use = other_pages.saturating_add(key_pages);
    let mut usage = Usage {
        page_size: pages.meta.page_size.into(),
        pages: pages.meta.pages,
        free_pages: pages.meta.pages.saturating_sub(in_use),
        key_pages,
        ..Usage::default()
    };
    let (mut most_revisions, mut largest) = (Top::new(top), Top::new(top));
    let mut keys = sorter.finish()?;
    while let Some((key, counted)) = keys.next()? {
        let text = String::from_utf8_lossy(key);
        let (resource, namespace) = place_of(&text);
        usage.total.add(counted);
        group(&mut usage.by_resource, resource).add(counted);
        group(&mut usage.by_namespace, namespace).add(counted);
        most_revisions.add(counted.revisions, &text, counted);
        if !counted.is_tombstone {
            largest.add(counted.newest.into(), &text, counted);
        }
    }
    usage.most_revisions = most_revisions.into_keys();
    usage.largest = largest.into_keys();
    Ok(usage)
}

impl KeyUsage {
    fn add(&mut self, counted: Counted) {
        let newest = if counted.is_tombstone { 0 } else { u64::from(counted.newest) };
        self.keys += u64::from(!counted.is_tombstone);
        self.deleted_keys += u64::from(counted.is_tombstone);
        self.bytes += newest;
        self.old_revisions += counted.revisions - u64::from(!counted.is_tombstone);
        self.old_bytes += counted.bytes - newest;
    }
}

fn group<'a>(groups: &'a mut BTreeMap<String, KeyUsage>, name: &str) -> &'a mut KeyUsage {
    let name = if groups.len() < MAX_GROUPS || groups.contains_key(name) { name } else { "others" };
    groups.entry(name.to_owned()).or_default()
}

/// Returns the folder of a key, and the namespace in it or `""`. Whether a folder has namespaces shows only in the
/// number of parts: `/registry/minions/node-1` has none.
fn place_of(key: &str) -> (&str, &str) {
    let end_of_part = |from: usize| key.get(from..).and_then(|rest| rest.find('/')).map(|at| from + at);
    // `/registry/RESOURCE/`, with a group `/registry/GROUP/RESOURCE/`, and `/registry/services/specs/`.
    let Some(root) = end_of_part(1) else { return (key, "") };
    let Some(mut end) = end_of_part(root + 1) else { return (key, "") };
    let folder = key.get(root + 1..end).unwrap_or_default();
    if folder.contains('.') || folder == "services" {
        match end_of_part(end + 1) {
            Some(resource) => end = resource,
            None => return (key.get(..end).unwrap_or(key), ""),
        }
    }
    let namespace = end_of_part(end + 1).and_then(|at| key.get(end + 1..at)).unwrap_or_default();
    (key.get(..end).unwrap_or(key), namespace)
}

/// The keys with the greatest numbers.
struct Top {
    limit: usize,
    /// The least number is on top.
    heap: BinaryHeap<Reverse<(u64, UsedKey)>>,
}

impl Top {
    fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::new() }
    }

    fn add(&mut self, number: u64, key: &str, counted: Counted) {
        if self.heap.len() == self.limit {
            match self.heap.peek() {
                Some(Reverse((least, ..))) if number > *least => self.heap.pop(),
                _ => return,
            };
        }
        let Counted { revisions, bytes, newest, .. } = counted;
        let used = UsedKey { key: key.to_owned(), revisions, bytes, newest_bytes: newest.into() };
        self.heap.push(Reverse((number, used)));
    }

    fn into_keys(self) -> Vec<UsedKey> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse((_, key))| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_read_back_from_a_temporary_file() {
        let counted = Counted { revisions: 1 << 40, bytes: 3 << 50, newest: 77, is_tombstone: true };
        let mut bytes = Vec::new();
        counted.write(&mut bytes).unwrap();
        let read = Counted::read(&bytes).unwrap();
        assert_eq!(
            (read.revisions, read.bytes, read.newest, read.is_tombstone),
            (counted.revisions, counted.bytes, counted.newest, counted.is_tombstone)
        );
    }

    #[test]
    fn finds_the_folder_and_the_namespace_of_a_key() {
        for (key, folder, namespace) in [
            ("/registry/pods/shop/web-1", "/registry/pods", "shop"),
            ("/registry/minions/node-1", "/registry/minions", ""),
            ("/registry/services/specs/shop/web", "/registry/services/specs", "shop"),
            ("/registry/example.com/widgets/shop/a", "/registry/example.com/widgets", "shop"),
            ("/registry/example.com/globes/a", "/registry/example.com/globes", ""),
            ("/registry/health", "/registry/health", ""),
            ("/registry/example.com/x", "/registry/example.com", ""),
            ("compact_rev_key", "compact_rev_key", ""),
            ("/", "/", ""),
            ("", "", ""),
        ] {
            assert_eq!(place_of(key), (folder, namespace), "{key}");
        }
    }
}
