//! A store in a file: the collection of one moment, for the next start.
//!
//! Numbers are little-endian, lengths within a record are varints. Format 1:
//!
//! | part | bytes |
//! |---|---|
//! | magic | `lw-cache`, and the format in 4 bytes |
//! | records | the length of each in 8 bytes, then what it is in one, then the rest |
//! | 0, head | comes first: epoch, objects, version, what it holds |
//! | 1, dictionary | comes before what is compressed with it |
//! | 2, object | encoding, form, length when encoded, namespace, name, uid, version, body |
//! | checksum | CRC-32 of all before it, in 4 bytes |

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::mem;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crc32fast::Hasher;
use prost::encoding::{decode_varint, encode_varint};

#[cfg(feature = "zstd")]
use super::compress::{Compressor, Dictionary};
use super::entry::{Entry, Form, Identity, MAX_TEXT, wire_len};
use super::object::{Object, ObjectRef, Stored};
use super::state::Snapshot;
use super::store::{Held, ObjectKey, StorageFormat, Store, StoreError, identity, intern};
use crate::error::ItemError;
#[cfg(feature = "client")]
use crate::object::is_older;
use crate::sync::write;
use crate::wire::Encoding;

const MAGIC: [u8; 8] = *b"lw-cache";
const FORMAT: u32 = 1;
const CHECKSUM_LEN: usize = 4;
const BUFFER: usize = 256 << 10;

const HEAD: u8 = 0;
const DICTIONARY: u8 = 1;
const OBJECT: u8 = 2;

/// Objects that are not worth a thread.
const FEW: usize = 1024;

/// The bytes of an object as they came. Any other form is compressed.
const AS_IT_CAME: u64 = 0;
/// Without a dictionary; the next is with the first, and so on.
#[cfg(feature = "zstd")]
const COMPRESSED: u64 = 1;
/// A longer object is not compressed, so that no file has more allocated.
#[cfg(feature = "zstd")]
const MAX_COMPRESSED: u32 = 16 << 20;
/// Each takes far more memory than it has bytes.
#[cfg(feature = "zstd")]
const MAX_DICTIONARIES: usize = 64;

/// Why a store was not saved. The previous file is intact, except after [`Unflushed`](Self::Unflushed).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// It has no version yet; or a [`Replace`](super::Replace) that was not committed has changed it; or it lacks objects that it
    /// could not hold ([`Store::skipped`]).
    #[error("what is there is not the whole collection at one version")]
    Incomplete,
    /// Held decoded, as a type that does not have all that came: encoded again, some of it would be missing.
    #[error("{0} was decoded as a type that does not have all its fields")]
    Lossy(ObjectKey),
    /// It cannot be encoded, or not be decompressed.
    #[error("{0}: {1}")]
    Object(ObjectKey, ItemError),
    /// The file cannot be written.
    #[error("the file cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The new file has replaced the previous one, but the folder could not be flushed to disk: a crash of the machine may
    /// restore the previous file.
    #[error("the file was written, but its folder cannot be flushed to disk: {0}")]
    Unflushed(io::Error),
}

/// Why nothing was loaded. The store is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read: before the first save there is none.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It begins like none that was saved.
    #[error("the file was not written by Store::save")]
    NotSaved,
    /// Another version of this crate wrote it.
    #[error("the file is of format {0}, and this can read format {FORMAT}")]
    Format(u32),
    /// It is not as it was written, or was written by something else.
    #[error("the file is damaged: {what} at byte {offset}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where the part of the file begins that it is in.
        offset: u64,
    },
    /// It was saved as something else.
    #[error("the file holds {found}, not {expected}")]
    Foreign {
        /// What it was saved as.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// It was saved with the feature `zstd`, which is not there.
    #[error("the file is compressed, which takes the feature zstd")]
    Compressed,
    /// An object cannot be held: it cannot be decoded, where it is to be held so; or all of them are over the store's budget.
    #[error("an object of the file: {0}")]
    Object(#[from] StoreError),
    /// The store was written to before.
    #[error("the store is not empty")]
    NotEmpty,
}

/// A file, read and found whole.
pub(crate) struct Saved<T: Stored + ?Sized> {
    version: String,
    epoch: u32,
    entries: Vec<Arc<Entry<T::Decoded>>>,
    namespaces: HashSet<Arc<str>>,
    /// The first is what the store compressed with.
    #[cfg(feature = "zstd")]
    dictionaries: Vec<Arc<Dictionary>>,
}

impl<T: Stored + ?Sized> Store<T> {
    /// Saves the collection of this moment, with its version: what a watch from there brings after a restart makes it whole.
    /// `holds` says which collection it is, in words that [`load`](Self::load) is to be given again.
    ///
    /// The path has the file of before until the new one is whole and on disk, whatever happens meanwhile: it is written
    /// beside it, and moved there. It can be read by its owner only. What a killed process left beside it is removed; so of
    /// two that save to one path at once, one may fail.
    ///
    /// Objects are saved encoded or, with the feature `zstd`, compressed. Others may write meanwhile. It blocks: a
    /// [compressed](StorageFormat) store of 50,000 Pods was seen to take 0.1 s, one that is not half a second. It holds a
    /// [`snapshot`](Self::snapshot) meanwhile, samples of up to 512 objects and buffers, but nothing that grows with the collection.
    ///
    /// ```
    /// # use listwatch::cache::{StorageFormat, Store};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pods");
    /// # let before = Store::<[u8]>::new(StorageFormat::Encoded);
    /// # before.begin_replace().commit("7")?;
    /// before.save(&path, "the Pods of cluster blue")?;
    ///
    /// let after = Store::<[u8]>::new(StorageFormat::Encoded);
    /// after.load(&path, "the Pods of cluster blue")?;
    /// assert_eq!((after.len(), after.version()), (before.len(), before.version()));
    /// assert!(after.load(&path, "the Pods of cluster green").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SaveError`].
    pub fn save(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), SaveError> {
        let writer = self.writer();
        // Of two epochs, nobody can tell which state of an object is older. What was skipped, no watch from there brings.
        if self.state().version.is_empty() || writer.is_mixed || writer.skipped.len() > 0 {
            return Err(SaveError::Incomplete);
        }
        let (snapshot, epoch) = (self.snapshot(), writer.replaces);
        #[cfg(feature = "zstd")]
        let (format, dictionary) =
            (writer.format, writer.compressor.as_ref().and_then(Compressor::dictionary).cloned());
        drop(writer);
        replace(path.as_ref(), |file| {
            let mut output = Output::new(file)?;
            output.head(epoch, &snapshot, holds)?;
            #[cfg(feature = "zstd")]
            let mut compressor =
                if format == StorageFormat::Compressed { None } else { Compressor::trained(&snapshot) };
            #[cfg(feature = "zstd")]
            if let Some(dictionary) = &dictionary {
                output.dictionary(dictionary)?;
            }
            for object in snapshot.iter() {
                output.object(
                    &object,
                    #[cfg(feature = "zstd")]
                    compressor.as_mut(),
                )?;
            }
            Ok(output.finish()?)
        })
    }

    /// Loads into an empty store what [`save`](Self::save) saved as the same. Indexes and subscribers get the objects as if
    /// they were written.
    ///
    /// They are held as the store holds objects. A file whose objects take more than the [budget](Store::set_budget) in that form
    /// is refused before any of them is expanded. What was saved compressed is held so without being decompressed, if
    /// [`StorageFormat`] says so. Nothing is in the store before the whole file has been checked.
    ///
    /// The checksum is for what happens to files, not for those who forge them: a file of which it is right is believed. No
    /// length in it has more allocated than the file has bytes; but what is compressed may become 16 MiB an object where the store
    /// does not hold it compressed.
    ///
    /// # Errors
    ///
    /// [`LoadError`]. The store is as it was then.
    pub fn load(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), LoadError> {
        self.put_saved(self.read_saved(path.as_ref(), holds)?)
    }

    pub(crate) fn read_saved(&self, path: &Path, holds: &str) -> Result<Saved<T>, LoadError> {
        let (format, spending) = {
            let writer = self.writer();
            (writer.format, writer.spending.clone())
        };
        let mut input = Input::open(path)?;
        let damaged = |offset| LoadError::Damaged { what: "a malformed record", offset };
        let (at, head) = input.record()?.ok_or(damaged(0))?;
        let head = Head::parse(head).ok_or(damaged(at))?;
        if head.holds != holds {
            return Err(LoadError::Foreign { found: head.holds.to_owned(), expected: holds.to_owned() });
        }
        let objects = head.objects;
        let mut saved = Saved::new(head.version, head.epoch);
        let mut bytes = 0_usize;
        while let Some((at, record)) = input.record()? {
            let (what, rest) = record.split_first().ok_or(damaged(at))?;
            match *what {
                #[cfg(feature = "zstd")]
                DICTIONARY if saved.dictionaries.len() < MAX_DICTIONARIES => {
                    saved.dictionaries.push(Arc::new(Dictionary::new(rest).ok_or(damaged(at))?));
                }
                #[cfg(not(feature = "zstd"))]
                DICTIONARY => return Err(LoadError::Compressed),
                OBJECT => {
                    let record = Record::parse(rest).ok_or(damaged(at))?;
                    bytes = bytes.saturating_add(record.held::<T::Decoded>(format));
                    spending.check(bytes)?;
                    let entry = saved.entry(&record)?;
                    saved.entries.push(entry.ok_or(damaged(at))?);
                }
                _ => return Err(damaged(at)),
            }
        }
        if saved.entries.len() as u64 != objects {
            return Err(LoadError::Damaged { what: "another number of objects", offset: at });
        }
        self.expand(&mut saved.entries, &saved.namespaces, format)?;
        Ok(saved)
    }

    /// Has objects held as the store holds them. That takes most of the time of a load, so each core does a part.
    fn expand(
        &self,
        entries: &mut [Arc<Entry<T::Decoded>>],
        namespaces: &HashSet<Arc<str>>,
        format: StorageFormat,
    ) -> Result<(), LoadError> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let part = entries.len().div_ceil(threads).max(FEW);
        thread::scope(|scope| {
            let expand = |entry| self.expand_one(entry, namespaces, format);
            let parts = entries.chunks_mut(part).map(|part| scope.spawn(move || part.iter_mut().try_for_each(expand)));
            let parts: Vec<_> = parts.collect();
            parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    fn expand_one(
        &self,
        entry: &mut Arc<Entry<T::Decoded>>,
        namespaces: &HashSet<Arc<str>>,
        format: StorageFormat,
    ) -> Result<(), LoadError> {
        let is_held_so = match entry.form() {
            Form::Encoded(_) | Form::EncodedBeside(_) => format != StorageFormat::Decoded,
            #[cfg(feature = "zstd")]
            Form::Compressed(..) => format == StorageFormat::Compressed,
            Form::Decoded(..) => true,
        };
        if is_held_so {
            return Ok(());
        }
        let object = self.object(entry);
        let (encoding, bytes) = (object.encoding(), object.encoded().map_err(StoreError::from)?);
        let identity = identity(encoding, &bytes)?;
        // It is known, unless the file is forged.
        let namespace =
            || namespaces.get(&*identity.namespace).cloned().unwrap_or_else(|| (*identity.namespace).into());
        *entry = if format == StorageFormat::Decoded {
            let form = Form::Decoded(namespace(), Arc::new(T::decode(encoding, &bytes).map_err(StoreError::from)?));
            Arc::new(Entry::beside(encoding, wire_len(&bytes), &identity, &[], form))
        } else {
            // As `Writer::entry` does.
            Arc::new_cyclic(|_| Entry::encoded(encoding, &bytes, &identity, namespace))
        };
        Ok(())
    }

    pub(crate) fn put_saved(&self, saved: Saved<T>) -> Result<(), LoadError> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        if writer.replaces > 0 || !self.is_empty() || !self.state().version.is_empty() {
            return Err(LoadError::NotEmpty);
        }
        // The budget may have been set since.
        writer.spending.check(saved.entries.iter().map(|entry| Held::size(entry)).sum())?;
        writer.replaces = saved.epoch.into();
        writer.namespaces.extend(saved.namespaces);
        #[cfg(feature = "zstd")]
        if let (StorageFormat::Compressed, Some(dictionary)) = (writer.format, saved.dictionaries.first()) {
            writer.compressor.get_or_insert_with(Compressor::new).adopt(Arc::clone(dictionary));
        }
        for entry in saved.entries {
            let object = self.object(&entry);
            let identity = object.identity();
            let hash = self.hash(&identity.namespace, &identity.name);
            // Only a forged file has an object twice.
            if self.find(hash, &identity).is_none() {
                self.put(writer, hash, None, entry, &ObjectRef::kept(&identity, &object));
            }
        }
        write(&self.inner.state).version = saved.version;
        writer.subscribers.resynced();
        Ok(())
    }
}

/// Has `write` write a file that takes the place of the one at this path when it is whole.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), SaveError>) -> Result<(), SaveError> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    for left in fs::read_dir(folder)? {
        let left = left?;
        let name = left.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(UNFINISHED.as_bytes()) {
            _ = fs::remove_file(left.path());
        }
    }
    let file = tempfile::Builder::new().prefix(&prefix).suffix(UNFINISHED).tempfile_in(folder)?;
    let mut buffered = BufWriter::with_capacity(BUFFER, file.as_file());
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // Of the name; other systems do not open folders.
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(SaveError::Unflushed)?;
    Ok(())
}

const UNFINISHED: &str = ".unfinished";

struct Output<'f> {
    file: &'f mut dyn Write,
    sum: Hasher,
    record: Vec<u8>,
    #[cfg(feature = "zstd")]
    dictionaries: Vec<Arc<Dictionary>>,
}

impl<'f> Output<'f> {
    fn new(file: &'f mut dyn Write) -> io::Result<Self> {
        let mut output = Self {
            file,
            sum: Hasher::new(),
            record: Vec::new(),
            #[cfg(feature = "zstd")]
            dictionaries: Vec::new(),
        };
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

    fn head<T: Stored + ?Sized>(&mut self, epoch: u64, snapshot: &Snapshot<T>, holds: &str) -> io::Result<()> {
        self.record.push(HEAD);
        encode_varint(epoch, &mut self.record);
        encode_varint(snapshot.len() as u64, &mut self.record);
        self.text(snapshot.version());
        self.text(holds);
        self.write_record()
    }

    fn object<T: Stored + ?Sized>(
        &mut self,
        object: &Object<T>,
        #[cfg(feature = "zstd")] compressor: Option<&mut Compressor>,
    ) -> Result<(), SaveError> {
        let entry = object.entry();
        #[cfg(feature = "zstd")]
        if let Form::Compressed(_, dictionary) = entry.form()
            && entry.wire_len() <= MAX_COMPRESSED
            && let Some(form) = self.form(dictionary.as_ref())?
        {
            return Ok(self.entry(&entry, form, entry.body())?);
        }
        let bytes = object.encoded().map_err(|error| SaveError::Object(object.key(), error))?;
        if bytes.len() != entry.wire_len() as usize {
            return Err(SaveError::Lossy(object.key()));
        }
        #[cfg(feature = "zstd")]
        if entry.wire_len() <= MAX_COMPRESSED
            && let Some((body, dictionary)) = compressor.and_then(|compressor| compressor.compress(&bytes))
            && let Some(form) = self.form(dictionary.as_ref())?
        {
            return Ok(self.entry(&entry, form, body)?);
        }
        Ok(self.entry(&entry, AS_IT_CAME, &bytes)?)
    }

    fn entry<D>(&mut self, entry: &Entry<D>, form: u64, body: &[u8]) -> io::Result<()> {
        let Identity { namespace, name, uid, resource_version } = entry.identity();
        self.record.extend([OBJECT, u8::from(entry.encoding() == Encoding::Json)]);
        encode_varint(form, &mut self.record);
        encode_varint(entry.wire_len().into(), &mut self.record);
        for text in [namespace, name, uid, resource_version] {
            self.text(&text);
        }
        self.record.extend_from_slice(body);
        self.write_record()
    }

    /// That of what is compressed with it. `None` when there are too many.
    #[cfg(feature = "zstd")]
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

    #[cfg(feature = "zstd")]
    fn dictionary(&mut self, dictionary: &Arc<Dictionary>) -> io::Result<usize> {
        // A record may be in the making.
        let record = mem::replace(&mut self.record, [&[DICTIONARY], dictionary.bytes()].concat());
        self.write_record()?;
        self.record = record;
        self.dictionaries.push(Arc::clone(dictionary));
        Ok(self.dictionaries.len() - 1)
    }

    fn finish(self) -> io::Result<()> {
        self.file.write_all(&self.sum.finalize().to_le_bytes())
    }
}

/// The records of a file whose checksum is right.
struct Input {
    file: BufReader<File>,
    /// Where the next record begins.
    at: u64,
    /// Where the checksum begins.
    end: u64,
    record: Vec<u8>,
}

impl Input {
    fn open(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut file = BufReader::with_capacity(BUFFER, file);
        let (mut magic, mut format) = ([0; MAGIC.len()], [0; 4]);
        let at = (magic.len() + format.len()) as u64;
        let Some(end) = len.checked_sub(CHECKSUM_LEN as u64).filter(|end| *end >= at) else {
            return Err(LoadError::NotSaved);
        };
        file.read_exact(&mut magic)?;
        file.read_exact(&mut format)?;
        if magic != MAGIC {
            return Err(LoadError::NotSaved);
        }
        let format = u32::from_le_bytes(format);
        if format != FORMAT {
            return Err(LoadError::Format(format));
        }
        file.rewind()?;
        if sum(&mut file, end)? {
            file.seek(io::SeekFrom::Start(at))?;
            Ok(Self { file, at, end, record: Vec::new() })
        } else {
            Err(LoadError::Damaged { what: "another checksum", offset: end })
        }
    }

    /// The next record, and where it begins.
    fn record(&mut self) -> Result<Option<(u64, &[u8])>, LoadError> {
        let at = self.at;
        if at == self.end {
            return Ok(None);
        }
        let damaged = LoadError::Damaged { what: "the end of the file", offset: at };
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

/// Whether the checksum at `end` is that of all before it.
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

struct Head<'r> {
    epoch: u32,
    objects: u64,
    version: &'r str,
    holds: &'r str,
}

impl<'r> Head<'r> {
    fn parse(record: &'r [u8]) -> Option<Self> {
        let mut rest = record.strip_prefix(&[HEAD])?;
        let head = Self {
            epoch: decode_varint(&mut rest).ok()?.try_into().ok()?,
            objects: decode_varint(&mut rest).ok()?,
            version: text(&mut rest)?,
            holds: text(&mut rest)?,
        };
        (rest.is_empty() && !head.version.is_empty()).then_some(head)
    }
}

struct Record<'r> {
    encoding: Encoding,
    form: u64,
    wire_len: u32,
    identity: Identity<'r>,
    body: &'r [u8],
}

impl<'r> Record<'r> {
    fn parse(record: &'r [u8]) -> Option<Self> {
        let (encoding, rest) = record.split_first()?;
        let mut rest = rest;
        let encoding = match encoding {
            0 => Encoding::Protobuf,
            1 => Encoding::Json,
            _ => return None,
        };
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

    /// What the object takes once it is held so, at the least: nothing is expanded that cannot be held.
    fn held<D>(&self, format: StorageFormat) -> usize {
        let wire_len = self.wire_len as usize;
        match format {
            StorageFormat::Encoded => Entry::<D>::allocated_with(wire_len),
            #[cfg(feature = "zstd")]
            StorageFormat::Compressed => Entry::<D>::allocated_with(self.body.len()),
            StorageFormat::Decoded => Held::decoded_size(self.wire_len).saturating_add(Entry::<D>::allocated_with(0)),
        }
    }
}

fn text<'r>(rest: &mut &'r [u8]) -> Option<&'r str> {
    let len = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    str::from_utf8(text).ok()
}

impl<T: Stored + ?Sized> Saved<T> {
    fn new(version: &str, epoch: u32) -> Self {
        Self {
            version: version.to_owned(),
            epoch,
            entries: Vec::new(),
            namespaces: HashSet::new(),
            #[cfg(feature = "zstd")]
            dictionaries: Vec::new(),
        }
    }

    /// An object as the file has it. `None` when the record is malformed.
    fn entry(&mut self, record: &Record<'_>) -> Result<Option<Arc<Entry<T::Decoded>>>, LoadError> {
        let namespace = intern(&mut self.namespaces, &record.identity.namespace);
        if record.form == AS_IT_CAME {
            if record.body.len() != record.wire_len as usize {
                return Ok(None);
            }
            let identity = identity(record.encoding, record.body)?;
            // As `Writer::entry` does.
            let entry = Arc::new_cyclic(|_| Entry::encoded(record.encoding, record.body, &identity, || namespace));
            return Ok(Some(entry));
        }
        #[cfg(not(feature = "zstd"))]
        return Err(LoadError::Compressed);
        #[cfg(feature = "zstd")]
        {
            let Record { encoding, form, wire_len, ref identity, body } = *record;
            let at = form.checked_sub(COMPRESSED + 1).and_then(|at| usize::try_from(at).ok());
            let dictionary = at.map(|at| self.dictionaries.get(at));
            if wire_len > MAX_COMPRESSED || dictionary.is_some_and(|found| found.is_none()) {
                return Ok(None);
            }
            let form = Form::Compressed(namespace, dictionary.flatten().cloned());
            Ok(Some(Arc::new(Entry::beside(encoding, wire_len, identity, body, form))))
        }
    }
}

#[cfg(feature = "client")]
impl<T: Stored + ?Sized> Saved<T> {
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Objects by which a server can be told from another: the one that was changed last, which a server that went back in time
    /// does not have, and the one that was not changed for longest, which is the last to be gone from one that did not.
    pub(crate) fn witnesses(&self) -> Vec<Identity<'_>> {
        let all = self.entries.iter().map(|entry| entry.identity());
        // What was observed ahead of the watch, the server may not have everywhere yet.
        let all = all.filter(|object| !is_older(&self.version, &object.resource_version));
        let older = |a: &Identity<'_>, b: &Identity<'_>| is_older(&a.resource_version, &b.resource_version);
        let newest = all.clone().reduce(|newest, next| if older(&newest, &next) { next } else { newest });
        let oldest = all.reduce(|oldest, next| if older(&next, &oldest) { next } else { oldest });
        let oldest = oldest.filter(|oldest| newest.as_ref() != Some(oldest));
        newest.into_iter().chain(oldest).collect()
    }
}
