//! Errors, with the page and the offset in the file.

use std::fmt;
use std::io;

use listwatch::internal::without_os_numbers;

/// Why a file of etcd could not be read, and where.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    page: Option<u64>,
    offset: Option<u64>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused to open or to read the file.
    #[error("cannot read: {}", without_os_numbers(.0))]
    Read(io::Error),
    /// Another process has locked the file, as etcd does while it runs.
    #[error(
        "the file is in use, probably by a running etcd; save a snapshot with `etcdctl snapshot save FILE` and read that file"
    )]
    InUse,
    /// Neither meta page is one of bbolt, so this is another kind of file.
    #[error("not a data file or snapshot of etcd: it has no valid meta page of bbolt")]
    NoMeta,
    /// The file was written on a machine with big-endian numbers, such as s390x. It can be read there.
    #[error("the file was written on a big-endian machine, and can be read there only")]
    BigEndian,
    /// The meta page has a version of the format that this crate does not know.
    #[error("version {0} of the bbolt format is unknown; this release reads version 2")]
    Version(u32),
    /// The file ends before a page that it should have.
    #[error("the file is truncated: it has {len} bytes, and this page ends at {end}")]
    Truncated {
        /// The bytes that the file has.
        len: u64,
        /// The offset at which the page ends.
        end: u64,
    },
    /// A page contradicts the format.
    #[error("damaged: {0}")]
    Page(PageFault),
    /// The file is a bbolt database without this bucket, so it is none of etcd.
    #[error("the file has no bucket {0:?}, so it was not written by etcd's server")]
    NoBucket(&'static str),
    /// A key or a value of etcd's key space contradicts its format.
    #[error("damaged: {0}")]
    Revision(RevisionFault),
    /// A value is larger than [`MAX_VALUE`](crate::MAX_VALUE).
    #[error("a value has {len} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The size that the page declares.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The requested revision was compacted, so its state is incomplete in this file.
    #[error("revision {requested} has been compacted; the oldest complete one is {oldest}")]
    Compacted {
        /// The requested revision.
        requested: i64,
        /// The oldest revision whose state the file has.
        oldest: i64,
    },
    /// The requested revision is newer than the file.
    #[error("revision {requested} is newer than the file, which ends at {newest}")]
    Future {
        /// The requested revision.
        requested: i64,
        /// The newest revision of the file.
        newest: i64,
    },
    /// The bytes of a snapshot do not have the SHA-256 that `etcdctl snapshot save` appended.
    #[error("the snapshot does not have the SHA-256 that etcdctl appended, so it is damaged or was changed")]
    Hash,
    /// The keys of a large state could not be sorted in a temporary file.
    #[error("cannot sort the keys in a temporary file: {}", without_os_numbers(.0))]
    Spill(io::Error),
}

/// How a page contradicts bbolt's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageFault {
    /// The page has the number of another page.
    #[error("the page says that it is page {0}")]
    Number(u64),
    /// The page is neither a branch nor a leaf.
    #[error("the page is neither a branch nor a leaf (flags {0:#06x})")]
    Flags(u16),
    /// A branch refers to a page outside of those in use.
    #[error("a reference to page {0}, which is not in use")]
    Reference(u64),
    /// A branch without elements.
    #[error("a branch without elements")]
    EmptyBranch,
    /// An element, its key or its value lies outside of its page.
    #[error("element {0} lies outside of its page")]
    Element(usize),
    /// An element has no key.
    #[error("element {0} has no key")]
    EmptyKey(usize),
    /// Keys are not in ascending order, as they are not where pages form a circle.
    #[error("the keys are not in ascending order")]
    Order,
    /// The tree has more levels, or more pages, than a file of this size can have.
    #[error("the tree has more levels or pages than a file of this size can have")]
    Circle,
    /// A bucket's value is too short.
    #[error("element {0} is a bucket without a header")]
    Bucket(usize),
}

/// How an entry contradicts the format of etcd's key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevisionFault {
    /// A key of the bucket `key` is not a revision.
    #[error("a key of the bucket \"key\" is not a revision")]
    Key,
    /// A value of the bucket `key` is not a `mvccpb.KeyValue`.
    #[error("a value of the bucket \"key\" is not a KeyValue")]
    Value,
    /// A `mvccpb.KeyValue` has no key.
    #[error("a KeyValue without a key")]
    NoKey,
    /// A `mvccpb.KeyValue` names another revision than its key does.
    #[error("a KeyValue whose revision differs from that of its key")]
    Mismatch,
}

impl Error {
    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The number of the page in which the fault lies, if it lies in one.
    #[must_use]
    pub fn page(&self) -> Option<u64> {
        self.page
    }

    /// The offset in the file, in bytes, of the page in which the fault lies.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    pub(crate) fn at(mut self, page: u64, offset: u64) -> Self {
        (self.page, self.offset) = (Some(page), Some(offset));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(page), Some(offset)) = (self.page, self.offset) {
            write!(f, "page {page} at offset {offset}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Read(error) | ErrorKind::Spill(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, page: None, offset: None }
    }
}

impl From<PageFault> for ErrorKind {
    fn from(fault: PageFault) -> Self {
        Self::Page(fault)
    }
}

impl From<RevisionFault> for ErrorKind {
    fn from(fault: RevisionFault) -> Self {
        Self::Revision(fault)
    }
}
