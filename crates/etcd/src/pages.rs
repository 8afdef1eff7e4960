//! The pages of a bbolt file: the meta pages, branches and leaves.
//!
//! Pages are read by position into buffers of their own, never mapped: the file may be larger than memory, and a mapped
//! file that is truncated kills the process. Layouts are those of `internal/common` of bbolt 1.5, in little endian.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fs4::{FileExt, TryLockError};

use crate::error::{Error, ErrorKind, PageFault};

/// The size of the header of a page, and of an element.
const HEADER: usize = 16;
const ELEMENT: usize = 16;
/// The bytes of a meta page that its checksum covers, and the checksum behind them.
const META_SUMMED: usize = 56;
const META: usize = META_SUMMED + 8;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;
/// The page sizes at which bbolt looks for the second meta page if the first is damaged: 1 KiB to 16 MiB.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 10..=24;

/// The largest value that is read, in bytes: 64 MiB. etcd limits a request to 1.5 MiB by default. A larger value is
/// [`ErrorKind::TooLarge`], so that a lying length in a large file does not take its size in memory.
pub const MAX_VALUE: u64 = 64 << 20;

/// An open bbolt file, of which one state is read: that of the newer valid meta page.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    len: u64,
    pub(crate) meta: Meta,
}

/// A valid meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) page_size: u32,
    /// The root page of the root bucket.
    pub(crate) root: u64,
    /// The number of the free list's page, or `u64::MAX` if there is none.
    pub(crate) free_list: u64,
    /// The number of pages in use: all page numbers are below.
    pub(crate) pages: u64,
    pub(crate) transaction: u64,
}

/// A branch or a leaf, with at least all of its elements in memory.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its number, or that of the page that has this inline bucket.
    id: u64,
    offset: u64,
    pub(crate) is_leaf: bool,
    pub(crate) count: usize,
    /// Where its bytes end, relative to its start: with overflow pages, beyond `bytes`.
    end: u64,
    bytes: Vec<u8>,
}

/// Where the key and the value of an element of a leaf lie, relative to the start of its page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) is_bucket: bool,
    key: (u64, u32),
    value: (u64, u32),
}

impl Element {
    /// The bytes that it takes in its page.
    pub(crate) fn size(self) -> u64 {
        ELEMENT as u64 + u64::from(self.key.1) + u64::from(self.value.1)
    }
}

/// The root of a bucket: a page, or a leaf inside the value that declares the bucket.
#[derive(Clone, Debug)]
pub(crate) enum Root {
    Page(u64),
    Inline(Arc<Page>),
}

impl Pages {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(ErrorKind::Read)?;
        match FileExt::try_lock_shared(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::InUse.into()),
            // File systems without locks: nobody else could have locked the file either.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(ErrorKind::Read(error).into()),
        }
        let len = file.metadata().map_err(ErrorKind::Read)?.len();
        let meta = newest_meta(&file, len)?;
        Ok(Self { file, len, meta })
    }

    /// The size of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The most pages that a bucket can have: a damaged meta page may claim more than the file has.
    pub(crate) fn most_pages(&self) -> u64 {
        self.meta.pages.min(self.len / self.page_size())
    }

    fn page_size(&self) -> u64 {
        u64::from(self.meta.page_size)
    }

    /// Reads a branch or a leaf.
    pub(crate) fn page(&self, id: u64) -> Result<Page, Error> {
        let offset = id.saturating_mul(self.page_size());
        self.read_page(id, offset).map_err(|error| match error.page() {
            Some(_) => error,
            None => error.at(id, offset),
        })
    }

    fn read_page(&self, id: u64, offset: u64) -> Result<Page, Error> {
        // Pages 0 and 1 are meta pages.
        if id < 2 || id >= self.meta.pages {
            return Err(ErrorKind::from(PageFault::Reference(id)).into());
        }
        let mut bytes = Vec::new();
        self.read(offset, self.page_size(), &mut bytes)?;
        let Header { number, flags, count, overflow } = Header::read(&bytes).ok_or(ErrorKind::NoMeta)?;
        if number != id {
            return Err(ErrorKind::from(PageFault::Number(number)).into());
        }
        let end = (u64::from(overflow) + 1).saturating_mul(self.page_size());
        if offset.saturating_add(end) > self.len {
            return Err(ErrorKind::Truncated { len: self.len, end: offset.saturating_add(end) }.into());
        }
        let elements = HEADER + usize::from(count) * ELEMENT;
        if elements as u64 > end {
            return Err(ErrorKind::from(PageFault::Element(usize::from(count))).into());
        }
        if elements > bytes.len() {
            self.read(offset, elements as u64, &mut bytes)?;
        }
        Page::new(id, offset, flags, count, end, bytes)
    }

    /// The pages of the free list, if the file has one: etcd does not write it.
    pub(crate) fn free_list_pages(&self) -> u64 {
        if self.meta.free_list == u64::MAX {
            return 0;
        }
        let mut header = Vec::new();
        let read = self.read(self.meta.free_list.saturating_mul(self.page_size()), HEADER as u64, &mut header);
        let overflow = read.ok().and_then(|()| Header::read(&header)).map_or(0, |header| header.overflow);
        1 + u64::from(overflow)
    }

    /// Reads `len` bytes at `offset`, which the caller has bounded, into `out`.
    fn read(&self, offset: u64, len: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let end = offset.saturating_add(len);
        if end > self.len {
            return Err(ErrorKind::Truncated { len: self.len, end }.into());
        }
        out.clear();
        out.resize(usize::try_from(len).map_err(|_| ErrorKind::TooLarge { len, limit: MAX_VALUE })?, 0);
        read_exact_at(&self.file, out, offset).map_err(|error| ErrorKind::Read(error).into())
    }

    /// Borrows the key of an element, or reads it into `buffer` if it lies in an overflow page.
    pub(crate) fn key<'a>(&self, page: &'a Page, element: Element, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        self.part(page, element.key.0, element.key.1.into(), buffer)
    }

    /// Borrows the value of an element, or its first `limit` bytes, or reads them into `buffer`.
    pub(crate) fn value<'a>(
        &self,
        page: &'a Page,
        element: Element,
        limit: u64,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        let len = u64::from(element.value.1);
        self.part(page, element.value.0, len.min(limit), buffer)
    }

    fn part<'a>(&self, page: &'a Page, at: u64, len: u64, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        if len > MAX_VALUE {
            return Err(page.error(ErrorKind::TooLarge { len, limit: MAX_VALUE }));
        }
        if let Some(bytes) = slice(&page.bytes, at, len) {
            return Ok(bytes);
        }
        // `element` has checked that the part lies in the page, which lies in the file.
        self.read(page.offset.saturating_add(at), len, buffer).map_err(|error| error.at(page.id, page.offset))?;
        Ok(buffer)
    }
}

impl Page {
    fn new(id: u64, offset: u64, flags: u16, count: u16, end: u64, bytes: Vec<u8>) -> Result<Self, Error> {
        let is_leaf = match flags {
            LEAF => true,
            BRANCH if count == 0 => return Err(ErrorKind::from(PageFault::EmptyBranch).into()),
            BRANCH => false,
            other => return Err(ErrorKind::from(PageFault::Flags(other)).into()),
        };
        Ok(Self { id, offset, is_leaf, count: count.into(), end, bytes })
    }

    /// The number of pages of the file that it takes: an inline bucket takes none of its own.
    pub(crate) fn pages(&self, page_size: u32) -> u64 {
        self.end / u64::from(page_size)
    }

    /// The number of the page. An inline bucket has that of the page in which it lies.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::from(kind.into()).at(self.id, self.offset)
    }

    fn raw(&self, index: usize) -> Result<(u64, [u8; ELEMENT]), Error> {
        let at = HEADER + index * ELEMENT;
        let bytes = (index < self.count).then(|| self.bytes.get(at..at + ELEMENT)).flatten();
        let bytes =
            bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| self.error(PageFault::Element(index)))?;
        Ok((at as u64, bytes))
    }

    /// The page to which an element of a branch refers.
    pub(crate) fn child(&self, index: usize) -> Result<u64, Error> {
        let (_, raw) = self.raw(index)?;
        Ok(u64_at(&raw, 8))
    }

    /// An element of a leaf, whose key and value lie in the page.
    pub(crate) fn element(&self, index: usize) -> Result<Element, Error> {
        let (at, raw) = self.raw(index)?;
        let (flags, pos, key_len, value_len) = (u32_at(&raw, 0), u32_at(&raw, 4), u32_at(&raw, 8), u32_at(&raw, 12));
        if key_len == 0 {
            return Err(self.error(PageFault::EmptyKey(index)));
        }
        let key = at + u64::from(pos);
        let value = key + u64::from(key_len);
        if value + u64::from(value_len) > self.end {
            return Err(self.error(PageFault::Element(index)));
        }
        Ok(Element { is_bucket: flags & BUCKET != 0, key: (key, key_len), value: (value, value_len) })
    }

    /// The root of the bucket that an element declares, from the element's value.
    pub(crate) fn bucket(&self, index: usize, value: &[u8]) -> Result<Root, Error> {
        // The root page and a sequence number; with root page 0, an inline leaf.
        let (Some(root), Some(inline)) = (value.get(..8), value.get(HEADER..)) else {
            return Err(self.error(PageFault::Bucket(index)));
        };
        match u64_at(root, 0) {
            0 => {
                let Header { flags, count, .. } =
                    Header::read(inline).ok_or_else(|| self.error(PageFault::Bucket(index)))?;
                if flags != LEAF {
                    return Err(self.error(PageFault::Flags(flags)));
                }
                let end = inline.len() as u64;
                let page = Self::new(self.id, self.offset, flags, count, end, inline.to_vec());
                Ok(Root::Inline(Arc::new(page.map_err(|error| error.at(self.id, self.offset))?)))
            }
            id => Ok(Root::Page(id)),
        }
    }
}

/// The header of a page.
struct Header {
    number: u64,
    flags: u16,
    count: u16,
    overflow: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let flags_and_count = u32_at(bytes, 8);
        Some(Self {
            number: u64_at(bytes, 0),
            flags: (flags_and_count & 0xFFFF) as u16,
            count: (flags_and_count >> 16) as u16,
            overflow: u32_at(bytes, 12),
        })
    }
}

/// Finds the meta page that bbolt would use: of two valid ones, that of the later transaction.
fn newest_meta(file: &File, len: u64) -> Result<Meta, Error> {
    let first = meta_at(file, len, 0);
    let second = match &first {
        Ok(meta) => meta_at(file, len, meta.page_size.into()),
        // The first is damaged, so the page size is unknown: look where the second would lie at each size.
        Err(_) => PAGE_SIZES
            .map(|bits| 1_u64 << bits)
            .find_map(|size| meta_at(file, len, size).ok().filter(|meta| u64::from(meta.page_size) == size))
            .ok_or(ErrorKind::NoMeta),
    };
    match (first, second) {
        (Ok(first), Ok(second)) if second.transaction > first.transaction && second.page_size == first.page_size => {
            Ok(second)
        }
        (Ok(first), _) => Ok(first),
        (Err(_), Ok(second)) => Ok(second),
        (Err(kind), Err(_)) => Err(kind.into()),
    }
}

fn meta_at(file: &File, len: u64, offset: u64) -> Result<Meta, ErrorKind> {
    let mut page = [0; HEADER + META];
    if offset.saturating_add(page.len() as u64) > len {
        return Err(ErrorKind::NoMeta);
    }
    read_exact_at(file, &mut page, offset).map_err(ErrorKind::Read)?;
    let (_, meta) = page.split_at(HEADER);
    let (summed, sum) = meta.split_at(META_SUMMED);
    match u32_at(summed, 0) {
        MAGIC => {}
        swapped if swapped == MAGIC.swap_bytes() => return Err(ErrorKind::BigEndian),
        _ => return Err(ErrorKind::NoMeta),
    }
    if u64_at(sum, 0) != fnv1a(summed) {
        return Err(ErrorKind::NoMeta);
    }
    let (version, page_size) = (u32_at(summed, 4), u32_at(summed, 8));
    if version != VERSION {
        return Err(ErrorKind::Version(version));
    }
    if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size.trailing_zeros()) {
        return Err(ErrorKind::NoMeta);
    }
    Ok(Meta {
        page_size,
        root: u64_at(summed, 16),
        free_list: u64_at(summed, 32),
        pages: u64_at(summed, 40),
        transaction: u64_at(summed, 48),
    })
}

/// FNV-1a with 64 bits, which bbolt uses for its meta pages.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

fn slice(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(len).ok()?)?)
}

/// Reads a number; one that lies outside of `bytes` is 0.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => (buffer, offset) = (&mut buffer[read..], offset + read as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
