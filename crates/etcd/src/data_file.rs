//! An open data file or snapshot of etcd: what it says of itself, and its check.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, RevisionFault};
use crate::key_value::{KeyValue, Revision};
use crate::pages::{Pages, Root};
use crate::revisions::visit_revisions;
use crate::state::State;
use crate::storage_key::ROOTS;
use crate::tree::{Walk, bucket, find_bucket, last};
use crate::usage::{Usage, read_usage};
use crate::wal;

/// The bytes of the SHA-256 that `etcdctl snapshot save` appends.
const HASH: u64 = 32;

/// A data file of etcd (`member/snap/db`) or a snapshot (`etcdctl snapshot save`), open for reading.
///
/// The file is held under a shared lock until this value and its states are dropped. Nothing is mapped, and memory does
/// not grow with the file.
#[derive(Debug)]
pub struct DataFile {
    pages: Arc<Pages>,
    path: PathBuf,
    newest: i64,
    compacted: i64,
    consistent_index: Option<u64>,
}

/// What [`DataFile::check`] has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Whether the file ends with the SHA-256 of `etcdctl snapshot save`, which was right. Without it, changed values
    /// cannot be found, because bbolt has no checksums of pages.
    pub has_hash: bool,
    /// The buckets that were walked.
    pub buckets: u64,
    /// The entries of the bucket `key`: values and deletions of all revisions in the file.
    pub revisions: u64,
}

impl DataFile {
    /// Opens a file, and reads its meta pages and what etcd says about its revisions. This reads a few pages.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`] if a running etcd has locked the file, [`ErrorKind::NoMeta`] or [`ErrorKind::NoBucket`] if
    /// the file is not etcd's, and others if it is damaged or cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let pages = Arc::new(Pages::open(&path)?);
        let newest = match last(&pages, bucket(&pages, "key")?)? {
            None => 0,
            Some(entry) => {
                let mut buffer = Vec::new();
                let key = pages.key(&entry.page, entry.element, &mut buffer)?;
                Revision::parse(key).map_err(|fault| entry.page.error(fault))?.main
            }
        };
        let mut file = Self { pages, path, newest, compacted: 0, consistent_index: None };
        file.read_meta_bucket()?;
        // A compaction may have removed every key up to its revision (as `restore` of etcd's mvcc store).
        file.newest = file.newest.max(file.compacted);
        Ok(file)
    }

    fn read_meta_bucket(&mut self) -> Result<(), Error> {
        let Some(root) = find_bucket(&self.pages, "meta")? else { return Ok(()) };
        let mut walk = Walk::new(&self.pages, root)?;
        let mut buffer = Vec::new();
        let (mut compacted, mut consistent_index) = (0, None);
        while let Some(entry) = walk.next()? {
            let value = self.pages.value(&entry.page, entry.element, 64, &mut buffer)?;
            match walk.key() {
                b"scheduledCompactRev" | b"finishedCompactRev" => {
                    let revision = Revision::parse(value).map_err(|fault| entry.page.error(fault))?;
                    compacted = revision.main.max(compacted);
                }
                b"consistent_index" => consistent_index = value.try_into().ok().map(u64::from_be_bytes),
                _ => {}
            }
        }
        (self.compacted, self.consistent_index) = (compacted, consistent_index);
        Ok(())
    }

    /// The newest revision in the file, which is the `resourceVersion` of a list of everything in it.
    #[must_use]
    pub fn newest_revision(&self) -> i64 {
        self.newest
    }

    /// The revision of the last compaction, or 0. States of earlier revisions are incomplete, and cannot be read.
    #[must_use]
    pub fn compacted_revision(&self) -> i64 {
        self.compacted
    }

    /// The index of the last entry of the write-ahead log whose effect the file has, if the file names one. Later
    /// entries are in `member/wal` only.
    #[must_use]
    pub fn consistent_index(&self) -> Option<u64> {
        self.consistent_index
    }

    /// The size of the file, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pages.len()
    }

    /// Checks that the file has the state of a revision.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Compacted`] or [`ErrorKind::Future`] if it does not.
    pub fn check_revision(&self, revision: i64) -> Result<(), Error> {
        if revision < self.compacted {
            return Err(ErrorKind::Compacted { requested: revision, oldest: self.compacted }.into());
        }
        if revision > self.newest {
            return Err(ErrorKind::Future { requested: revision, newest: self.newest }.into());
        }
        Ok(())
    }

    /// Reads the state of all keys that begin with `prefix` at a revision, or at the newest one. It walks through the
    /// bucket once, without reading whole values, and sorts the keys. At most `memory` bytes of keys are in memory, and
    /// for a moment a copy of half of them. The others are in a temporary file in `TMPDIR`, or in `/var/tmp` if
    /// `TMPDIR` is not set.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Compacted`] or [`ErrorKind::Future`] if the file does not have the state of this revision,
    /// [`ErrorKind::Spill`] if the temporary file cannot be written, and others if the file is damaged.
    pub fn state(&self, prefix: &[u8], revision: Option<i64>, memory: usize) -> Result<State, Error> {
        let revision = revision.unwrap_or(self.newest);
        self.check_revision(revision)?;
        State::new(Arc::clone(&self.pages), bucket(&self.pages, "key")?, prefix, revision, memory)
    }

    /// Returns the number of committed entries of the write-ahead log that the file does not have yet; `None` if there
    /// is no log beside the file, or the file does not name its [`consistent_index`](Self::consistent_index). It reads
    /// the last files of the log, 64 MB each.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Read`] if the log cannot be read.
    pub fn missing_log_entries(&self) -> Result<Option<u64>, Error> {
        let Some(index) = self.consistent_index else { return Ok(None) };
        wal::entries_after(&self.path, index).map_err(|error| ErrorKind::Read(error).into())
    }

    /// Finds the folder of Kubernetes: the first of [`ROOTS`] that a key begins with, or the part before `/namespaces/`
    /// of a key such as `/example/namespaces/default`; `None` if no key shows it. It reads until it has found the
    /// folder, which usually takes a few pages.
    ///
    /// # Errors
    ///
    /// If a page is damaged or cannot be read.
    pub fn find_root(&self) -> Result<Option<String>, Error> {
        let mut found = None;
        visit_revisions(&self.pages, bucket(&self.pages, "key")?, |entry| {
            let key = std::str::from_utf8(entry.key).unwrap_or_default();
            let is_known = |root: &&str| key.strip_prefix(*root).is_some_and(|rest| rest.starts_with('/'));
            // OpenShift keeps its own resources in another folder, beside those of Kubernetes.
            let known = ROOTS.iter().find(|root| is_known(root) && **root != "/openshift.io");
            found = known.map(|root| (*root).to_owned()).or_else(|| match key.split_once("/namespaces/") {
                Some((root, name)) if root.starts_with('/') && !name.contains('/') => Some(root.to_owned()),
                _ => None,
            });
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }

    /// Reads what takes the space of the file, with the `top` largest values and the `top` keys with the most
    /// revisions. It walks through all buckets once, without reading whole values, and keeps `memory` bytes of keys, as
    /// [`state`](Self::state).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Spill`] if the temporary file cannot be written, and others if the file is damaged.
    pub fn usage(&self, top: usize, memory: usize) -> Result<Usage, Error> {
        let mut buckets = vec![Root::Page(self.pages.meta.root)];
        let (mut key_bucket, mut buffer) = (None, Vec::new());
        // Both meta pages.
        let (mut other_pages, mut visited) = (2, 0);
        let mut is_root = true;
        while let Some(root) = buckets.pop() {
            let mut walk = Walk::new(&self.pages, root)?;
            while let Some(entry) = walk.next()? {
                if entry.element.is_bucket {
                    let value = self.pages.value(&entry.page, entry.element, u64::MAX, &mut buffer)?;
                    let bucket = entry.page.bucket(entry.index, value)?;
                    if is_root && walk.key() == b"key" {
                        key_bucket = Some(bucket);
                    } else {
                        buckets.push(bucket);
                    }
                }
            }
            other_pages += walk.pages();
            walk.add_visited(&mut visited)?;
            is_root = false;
        }
        let key_bucket = key_bucket.ok_or(ErrorKind::NoBucket("key"))?;
        other_pages += self.pages.free_list_pages();
        read_usage(&self.pages, key_bucket, other_pages, top, memory)
    }

    /// Verifies what can be verified: the SHA-256 of a snapshot, the structure of every bucket, and the form of every
    /// revision and its value. It reads the whole file.
    ///
    /// # Errors
    ///
    /// The first fault, with its page and offset.
    pub fn check(&self) -> Result<Check, Error> {
        let has_hash = self.check_hash()?;
        let mut check = Check { has_hash, buckets: 0, revisions: 0 };
        let mut buckets = vec![(Root::Page(self.pages.meta.root), false)];
        let (mut buffer, mut visited) = (Vec::new(), 0);
        while let Some((root, is_key_space)) = buckets.pop() {
            check.buckets += 1;
            let mut walk = Walk::new(&self.pages, root)?;
            while let Some(entry) = walk.next()? {
                let value = self.pages.value(&entry.page, entry.element, u64::MAX, &mut buffer)?;
                if is_key_space {
                    check.revisions += 1;
                    let value = if entry.element.is_bucket { None } else { Some(value) };
                    check_revision(walk.key(), value).map_err(|fault| entry.page.error(fault))?;
                } else if entry.element.is_bucket {
                    buckets.push((entry.page.bucket(entry.index, value)?, check.buckets == 1 && walk.key() == b"key"));
                }
            }
            walk.add_visited(&mut visited)?;
        }
        Ok(check)
    }

    /// Compares the SHA-256 at the end, if the size of the file shows one, as `etcdutl snapshot restore` decides.
    fn check_hash(&self) -> Result<bool, Error> {
        let len = self.pages.len();
        if len % 512 != HASH {
            return Ok(false);
        }
        let mut file = File::open(&self.path).map_err(ErrorKind::Read)?;
        let mut hasher = Sha256::new();
        let mut left = len - HASH;
        let mut chunk = vec![0; 64 << 10];
        while left > 0 {
            let want = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = chunk.get_mut(..want).unwrap_or_default();
            file.read_exact(part).map_err(ErrorKind::Read)?;
            hasher.update(&*part);
            left -= want as u64;
        }
        let mut expected = Vec::new();
        file.take(HASH).read_to_end(&mut expected).map_err(ErrorKind::Read)?;
        if hasher.finalize().as_slice() != expected {
            return Err(ErrorKind::Hash.into());
        }
        Ok(true)
    }
}

/// Checks an entry of the key space, whose value is none if it is a bucket.
fn check_revision(key: &[u8], value: Option<&[u8]>) -> Result<(), RevisionFault> {
    let revision = Revision::parse(key)?;
    let value = KeyValue::parse(value.ok_or(RevisionFault::Value)?)?;
    // A deletion has the key only.
    if !revision.is_tombstone && value.mod_revision != revision.main {
        return Err(RevisionFault::Mismatch);
    }
    Ok(())
}

/// Whether a file begins as one of bbolt does, so that a program can tell it from other sources.
///
/// # Errors
///
/// The error of the read.
pub fn is_data_file(path: impl AsRef<Path>) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut start = [0; 20];
    let mut filled = 0;
    while let Some(rest) = start.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => return Ok(false),
            read => filled += read,
        }
    }
    Ok(start.ends_with(&0xED0C_DAED_u32.to_le_bytes()))
}
