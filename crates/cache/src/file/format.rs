//! The file of a saved store.
//!
//! Numbers are little-endian, lengths within a record are varints.
//!
//! | part | bytes |
//! |---|---|
//! | magic | `lw-cache`, and the format in 4 bytes |
//! | records | for each: the length in 8 bytes, the kind in one byte, the contents |
//! | 0, head | the first record: epoch, number of objects, resource version, version to resume from, name of the collection |
//! | 1, dictionary | before the objects that are compressed with it |
//! | 2, object | encoding, form, length when encoded, namespace, name, uid, resource version, body |
//! | 3, reference | before the objects that are deltas to it: form, length when encoded, namespace, body |
//! | checksum | CRC-32 of all before it, in 4 bytes |
//!
//! Bodies are as `compress/frame.rs` and `compress/elide.rs` make them, unless the object is as it arrived.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;
use listwatch::internal::without_os_numbers;
use listwatch::{Encoding, ItemError, StoreType};
use prost::encoding::{decode_varint, encode_varint};

use crate::compress::dictionary::Dictionary;
use crate::compress::elide::ElidedObject;
use crate::compress::encoder::Encoder;
use crate::compress::group::MAX_GROUPED_LEN;
use crate::compress::pool::Reference;
use crate::error::StoreError;
use crate::key::{Identity, ObjectKey};
use crate::state::entry::EntryForm;
use crate::state::entry::StorageFormat;
use crate::state::entry::{Entry, MAX_TEXT};
use crate::state::object::Object;
use crate::state::snapshot::Snapshot;

const MAGIC: [u8; 8] = *b"lw-cache";
const FORMAT: u32 = 7;
const CHECKSUM_LEN: usize = 4;
pub(crate) const BUFFER: usize = 256 << 10;

const HEAD: u8 = 0;
pub(crate) const DICTIONARY: u8 = 1;
pub(crate) const OBJECT: u8 = 2;
pub(crate) const REFERENCE: u8 = 3;

/// The form of bytes as they arrived. Any other form is compressed.
pub(crate) const ENCODED: u64 = 0;
/// Compressed without a dictionary. The next value is compressed with the first dictionary, and so on.
pub(crate) const COMPRESSED: u64 = 1;
/// The delta to the first reference. The next value is the delta to the second reference, and so on.
pub(crate) const DELTA: u64 = COMPRESSED + 1 + MAX_DICTIONARIES as u64;
/// A longer object is not compressed, which bounds what loading a file allocates.
pub(crate) const MAX_COMPRESSED: u32 = 16 << 20;
/// Bounds the memory of dictionaries, which is far more than their bytes.
pub(crate) const MAX_DICTIONARIES: usize = 64;

/// Why a store was not saved or not loaded.
///
/// After an error of saving, the previous file is intact, except after [`Unflushed`](Self::Unflushed). After an error
/// of loading, the store and the reflector are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be written or read, for example because nothing was saved yet.
    #[error("the file cannot be read or written: {}", without_os_numbers(.0))]
    Io(io::Error),
    /// The new file has replaced the previous one, but its folder could not be flushed to disk.
    ///
    /// A crash of the machine may restore the previous file.
    #[error("the file was written, but its folder cannot be flushed to disk: {}", without_os_numbers(.0))]
    Unflushed(io::Error),
    /// Not saved, because the store does not show a complete collection.
    ///
    /// It has no resource version yet, an uncommitted [`Relist`](crate::Relist) has changed it, or it lacks objects
    /// that it could not hold ([`skipped`](crate::StoreReader::skipped)).
    #[error("the store does not contain the whole collection at one resource version")]
    Incomplete,
    /// Not saved, because this object cannot be decompressed.
    #[error("cannot read {0}: {1}")]
    Unreadable(ObjectKey, ItemError),
    /// The file does not begin like a saved store.
    #[error("the file was not written by Store::save")]
    NotSaved,
    /// The file was written by a version of this crate with another file format.
    #[error("the file has format {0}, expected format {FORMAT}")]
    Format(u32),
    /// The file was changed after it was written, or another program wrote it.
    #[error("the file is damaged: {what} at byte {offset}")]
    Damaged {
        /// The kind of damage.
        what: &'static str,
        /// The offset of the damaged part.
        offset: u64,
    },
    /// The file contains another collection.
    #[error("the file contains {found}, not {expected}")]
    Foreign {
        /// The collection that was saved.
        found: String,
        /// The collection that the caller expected.
        expected: String,
    },
    /// The metadata of an object of the file cannot be read, or the objects exceed the store's budget.
    #[error("the store cannot hold an object of the file: {0}")]
    Object(StoreError),
    /// Not loaded, because the store was already written to.
    #[error("the store is not empty")]
    NotEmpty,
    /// A request of a reflector for an object of the file failed.
    ///
    /// One reason is that the server has not reached the resource version of the file
    /// ([`Error::is_too_large_version`](listwatch::client::Error::is_too_large_version)).
    #[error("cannot check that the file is from this cluster: {0}")]
    Client(listwatch::client::Error),
    /// The file is from another cluster, or the server was restored from a backup.
    ///
    /// The server has an object at a version that the file should contain, or at an older one.
    #[error(
        "{object} is at version {found} on the server and at {saved} in the file, which has all changes up to {version}"
    )]
    OtherHistory {
        /// The object.
        object: ObjectKey,
        /// Its resource version in the file.
        saved: String,
        /// Its resource version on the server.
        found: String,
        /// The resource version of the file.
        version: String,
    },
    /// The file is from another cluster, or too old to decide, because the server has none of the requested objects.
    ///
    /// Also for a file without objects, or with objects without a uid.
    #[error("the server has none of the requested objects of the file, which may be from another cluster")]
    Unknown,
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self::Object(error)
    }
}

impl From<listwatch::client::Error> for FileError {
    fn from(error: listwatch::client::Error) -> Self {
        Self::Client(error)
    }
}

pub(crate) struct FileOutput<'f> {
    file: &'f mut dyn Write,
    sum: Hasher,
    record: Vec<u8>,
    dictionaries: Vec<Arc<Dictionary>>,
    /// The forms of the deltas to the references that were written, by the address of the reference, which the saved
    /// snapshot keeps alive.
    references: HashMap<usize, u64>,
}

impl<'f> FileOutput<'f> {
    pub(crate) fn new(file: &'f mut dyn Write) -> io::Result<Self> {
        let mut output =
            Self { file, sum: Hasher::new(), record: Vec::new(), dictionaries: Vec::new(), references: HashMap::new() };
        output.write(&MAGIC)?;
        output.write(&FORMAT.to_le_bytes())?;
        Ok(output)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    fn write_record(&mut self) -> io::Result<()> {
        let record = mem::take(&mut self.record);
        self.write(&(record.len() as u64).to_le_bytes())?;
        self.write(&record)?;
        self.record = record;
        self.record.clear();
        Ok(())
    }

    fn text(&mut self, text: &str) {
        encode_varint(text.len() as u64, &mut self.record);
        self.record.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn head<T: StoreType + ?Sized>(
        &mut self,
        epoch: u64,
        snapshot: &Snapshot<T>,
        resumes_from: &str,
        holds: &str,
    ) -> io::Result<()> {
        self.record.push(HEAD);
        encode_varint(epoch, &mut self.record);
        encode_varint(snapshot.len() as u64, &mut self.record);
        self.text(snapshot.resource_version());
        self.text(resumes_from);
        self.text(holds);
        self.write_record()
    }

    pub(crate) fn object<T: StoreType + ?Sized>(
        &mut self,
        object: &Object<T>,
        encoder: Option<&mut Encoder>,
    ) -> Result<(), FileError> {
        let entry = object.entry();
        let form = match entry.form() {
            _ if entry.wire_len() > MAX_COMPRESSED => None,
            EntryForm::Whole { shared, .. } => self.form(shared.dictionary.as_ref())?,
            EntryForm::Delta { reference, .. } => self.reference(reference)?,
            _ => None,
        };
        if let Some(form) = form {
            return Ok(self.entry(entry, form, entry.body())?);
        }
        let bytes = object.encoded().map_err(|error| FileError::Unreadable(object.key(), error))?;
        if entry.wire_len() <= MAX_COMPRESSED
            && let Some(encoder) = encoder
            && let Some(elided) = ElidedObject::of(&entry.identity(), bytes)
            && let Some(frame) = encoder.compress_alone(&elided)
            && frame.body.len() < bytes.len()
            && let Some(form) = self.form(frame.dictionary.as_ref())?
        {
            return Ok(self.entry(entry, form, frame.body)?);
        }
        Ok(self.entry(entry, ENCODED, bytes)?)
    }

    fn entry(&mut self, entry: &Entry, form: u64, body: &[u8]) -> io::Result<()> {
        let Identity { namespace, name, uid, resource_version } = entry.identity();
        self.record.extend([OBJECT, entry.encoding().number()]);
        encode_varint(form, &mut self.record);
        encode_varint(entry.wire_len().into(), &mut self.record);
        for text in [namespace, name, uid, resource_version] {
            self.text(&text);
        }
        self.record.extend_from_slice(body);
        self.write_record()
    }

    /// Returns the form of objects that are compressed with a dictionary; `None` if the file has too many dictionaries.
    fn form(&mut self, dictionary: Option<&Arc<Dictionary>>) -> io::Result<Option<u64>> {
        let Some(dictionary) = dictionary else { return Ok(Some(COMPRESSED)) };
        let mut known = self.dictionaries.iter();
        let at = match known.position(|known| Arc::ptr_eq(known, dictionary)) {
            Some(at) => at,
            None if self.dictionaries.len() == MAX_DICTIONARIES => return Ok(None),
            None => self.dictionary(dictionary)?,
        };
        Ok(Some(COMPRESSED + 1 + at as u64))
    }

    /// Returns the form of the deltas to a reference; `None` if the file has too many dictionaries.
    fn reference(&mut self, reference: &Arc<Reference>) -> io::Result<Option<u64>> {
        let address = Arc::as_ptr(reference).addr();
        if let Some(form) = self.references.get(&address) {
            return Ok(Some(*form));
        }
        let object = reference.object();
        let Some(form) = self.form(object.shared.dictionary.as_ref())? else { return Ok(None) };
        self.record.push(REFERENCE);
        encode_varint(form, &mut self.record);
        encode_varint(object.wire_len.into(), &mut self.record);
        self.text(&object.shared.namespace);
        self.record.extend_from_slice(object.body);
        self.write_record()?;
        let form = DELTA + self.references.len() as u64;
        self.references.insert(address, form);
        Ok(Some(form))
    }

    pub(crate) fn dictionary(&mut self, dictionary: &Arc<Dictionary>) -> io::Result<usize> {
        // A record may be unfinished.
        let record = mem::replace(&mut self.record, [&[DICTIONARY], &*dictionary.bytes()].concat());
        self.write_record()?;
        self.record = record;
        self.dictionaries.push(Arc::clone(dictionary));
        Ok(self.dictionaries.len() - 1)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.write_all(&self.sum.finalize().to_le_bytes())
    }
}

/// The records of a file with a correct checksum.
pub(crate) struct FileInput {
    file: BufReader<File>,
    /// The offset of the next record.
    at: u64,
    /// The offset of the checksum.
    end: u64,
    record: Vec<u8>,
}

impl FileInput {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut file = BufReader::with_capacity(BUFFER, file);
        let (mut magic, mut format) = ([0; MAGIC.len()], [0; 4]);
        let at = (magic.len() + format.len()) as u64;
        let Some(end) = len.checked_sub(CHECKSUM_LEN as u64).filter(|end| *end >= at) else {
            return Err(FileError::NotSaved);
        };
        file.read_exact(&mut magic)?;
        file.read_exact(&mut format)?;
        if magic != MAGIC {
            return Err(FileError::NotSaved);
        }
        let format = u32::from_le_bytes(format);
        if format != FORMAT {
            return Err(FileError::Format(format));
        }
        file.rewind()?;
        if sum(&mut file, end)? {
            file.seek(io::SeekFrom::Start(at))?;
            Ok(Self { file, at, end, record: Vec::new() })
        } else {
            Err(FileError::Damaged { what: "wrong checksum", offset: end })
        }
    }

    pub(crate) fn record(&mut self) -> Result<Option<(u64, &[u8])>, FileError> {
        let at = self.at;
        if at == self.end {
            return Ok(None);
        }
        let damaged = FileError::Damaged { what: "a record past the end of the file", offset: at };
        let mut len = [0; 8];
        let Some(left) = (self.end - at).checked_sub(len.len() as u64) else { return Err(damaged) };
        self.file.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        let Some(size) = usize::try_from(len).ok().filter(|_| len <= left) else { return Err(damaged) };
        self.record.resize(size, 0);
        self.file.read_exact(&mut self.record)?;
        self.at = self.end - (left - len);
        Ok(Some((at, &self.record)))
    }
}

/// Returns true if the checksum at `end` is correct.
fn sum(file: &mut BufReader<File>, end: u64) -> io::Result<bool> {
    let mut sum = Hasher::new();
    let mut covered = file.take(end);
    loop {
        let bytes = covered.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        sum.update(bytes);
        let len = bytes.len();
        covered.consume(len);
    }
    let mut expected = [0; CHECKSUM_LEN];
    file.read_exact(&mut expected)?;
    Ok(sum.finalize() == u32::from_le_bytes(expected))
}

pub(crate) struct FileHead<'r> {
    pub(crate) epoch: u32,
    pub(crate) objects: u64,
    pub(crate) version: &'r str,
    /// The version up to which the file contains all changes. It may contain a part of the changes up to `version`.
    pub(crate) resumes_from: &'r str,
    pub(crate) holds: &'r str,
}

impl<'r> FileHead<'r> {
    pub(crate) fn parse(record: &'r [u8]) -> Option<Self> {
        let mut rest = record.strip_prefix(&[HEAD])?;
        let head = Self {
            epoch: decode_varint(&mut rest).ok()?.try_into().ok()?,
            objects: decode_varint(&mut rest).ok()?,
            version: text(&mut rest)?,
            resumes_from: text(&mut rest)?,
            holds: text(&mut rest)?,
        };
        (rest.is_empty() && !head.version.is_empty() && !head.resumes_from.is_empty()).then_some(head)
    }
}

pub(crate) struct ObjectRecord<'r> {
    pub(crate) encoding: Encoding,
    pub(crate) form: u64,
    pub(crate) wire_len: u32,
    pub(crate) identity: Identity<'r>,
    pub(crate) body: &'r [u8],
}

impl<'r> ObjectRecord<'r> {
    pub(crate) fn parse(record: &'r [u8]) -> Option<Self> {
        let (encoding, rest) = record.split_first()?;
        let mut rest = rest;
        let encoding = Encoding::from_number(*encoding)?;
        let form = decode_varint(&mut rest).ok()?;
        let wire_len = decode_varint(&mut rest).ok()?.try_into().ok()?;
        let mut texts = [""; 4];
        for slot in &mut texts {
            *slot = text(&mut rest).filter(|text| text.len() <= MAX_TEXT)?;
        }
        let [namespace, name, uid, version] = texts;
        let identity = Identity {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: version.into(),
        };
        (!name.is_empty()).then_some(Self { encoding, form, wire_len, identity, body: rest })
    }

    /// Returns a lower bound of the object's memory in this format, so that an object that does not fit is not
    /// expanded.
    pub(crate) fn size(&self, format: StorageFormat) -> usize {
        match format {
            StorageFormat::Encoded => Entry::allocated_with(self.wire_len as usize),
            StorageFormat::Compressed => Entry::allocated_with(self.body.len()),
        }
    }
}

/// A reference, as a file has it.
pub(crate) struct ReferenceRecord<'r> {
    pub(crate) form: u64,
    pub(crate) wire_len: u32,
    pub(crate) namespace: &'r str,
    pub(crate) body: &'r [u8],
}

impl<'r> ReferenceRecord<'r> {
    pub(crate) fn parse(mut rest: &'r [u8]) -> Option<Self> {
        let form = decode_varint(&mut rest).ok()?;
        let wire_len = decode_varint(&mut rest).ok()?.try_into().ok().filter(|len| *len as usize <= MAX_GROUPED_LEN)?;
        let namespace = text(&mut rest).filter(|text| text.len() <= MAX_TEXT)?;
        Some(Self { form, wire_len, namespace, body: rest })
    }
}

fn text<'r>(rest: &mut &'r [u8]) -> Option<&'r str> {
    let len = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after;
    str::from_utf8(text).ok()
}
