//! The base of a new part: the state of every live object.

use std::path::Path;

use jiff::Timestamp;
use listwatch::Encoding;
use listwatch::client::Resource;
use listwatch_cache::{PackedState, StateCodec, StateNames};

use crate::cut::Span;
use crate::error::HistoryError;
use crate::part::{PartFile, PartStart, write_resource};
use crate::record::{ChangeKind, Form, Origin, Record, add_checksum, write_bytes, write_number};

/// Dictionaries are trained on this many states, and not on fewer than 64, which teach nothing.
const SAMPLES: usize = 512;
const FEW_SAMPLES: usize = 64;

/// A state of the base, in key order.
pub(crate) struct BaseState {
    pub key: String,
    pub uid: String,
    pub encoding: Encoding,
    pub version: String,
    /// `None` if the object was damaged where it comes from.
    pub bytes: Option<Vec<u8>>,
}

type Visit<'v> = &'v mut dyn FnMut(BaseState) -> Result<(), HistoryError>;

/// Where the states of a base come from.
pub(crate) trait BaseSource {
    fn collections(&self) -> Vec<(u64, Resource)>;

    fn spans(&self) -> Vec<(u64, Span)>;

    /// Returns the number of objects, or a little more.
    fn len(&self, collection: u64) -> usize;

    /// Visits every `step`th object of a collection, in key order.
    fn visit(&mut self, collection: u64, step: usize, visit: Visit<'_>) -> Result<(), HistoryError>;
}

/// An object of the new part, for its writer.
pub(crate) struct BaseObject<'a> {
    pub collection: u64,
    pub key: &'a str,
    pub id: u32,
    pub sum: u32,
}

/// Writes a part with its base, and returns it.
pub(crate) fn write_base(
    path: &Path,
    (seq, time): (u64, Timestamp),
    source: &mut dyn BaseSource,
    mut added: impl FnMut(BaseObject<'_>),
) -> Result<PartFile, HistoryError> {
    let file = PartFile::create(path)?;
    file.sql(file.connection.execute_batch("BEGIN"))?;
    let origin = Origin { seq, time: time.as_millisecond() };
    let mut objects = 0_u32;
    let collections = source.collections();
    let count = collections.len() as u64;
    for (collection, resource) in collections {
        file.put("collections", collection, write_resource(&resource))?;
        let mut writer = BaseWriter::trained(&file, collection, source)?;
        source.visit(collection, 1, &mut |state| {
            objects += 1;
            let sum = writer.add(objects, origin, &state)?;
            added(BaseObject { collection, key: &state.key, id: objects, sum });
            Ok(())
        })?;
    }
    let start =
        PartStart { seq, time: origin.time, objects: objects.into(), collections: count, spans: source.spans() };
    file.put("meta", 0, start.write())?;
    file.sql(file.connection.execute_batch("COMMIT"))?;
    Ok(file)
}

struct BaseWriter<'f> {
    file: &'f PartFile,
    collection: u64,
    codec: StateCodec,
    /// The last state that was stored whole, which the next objects of the same owner resemble.
    leader: Option<(u32, String, PackedState)>,
}

impl<'f> BaseWriter<'f> {
    fn trained(file: &'f PartFile, collection: u64, source: &mut dyn BaseSource) -> Result<Self, HistoryError> {
        let mut samples = Vec::new();
        let len = source.len(collection);
        if len >= FEW_SAMPLES {
            source.visit(collection, len.div_ceil(SAMPLES), &mut |state| {
                samples.push(state);
                Ok(())
            })?;
        }
        let bodies = samples.iter().filter_map(|state| Some((names(state), state.bytes.as_deref()?)));
        let dictionary = if samples.len() < FEW_SAMPLES { None } else { StateCodec::train(bodies) };
        if let Some(dictionary) = &dictionary {
            file.put("dictionaries", collection, dictionary.clone())?;
        }
        Ok(Self { file, collection, codec: StateCodec::new(dictionary.as_deref()), leader: None })
    }

    /// Adds an object with its state, and returns the checksum of the state.
    fn add(&mut self, id: u32, origin: Origin, state: &BaseState) -> Result<u32, HistoryError> {
        let BaseState { key, uid, encoding, version, bytes } = state;
        put_object(self.file, id, self.collection, key, uid)?;
        let bytes = bytes.as_deref();
        let (form, body) = match bytes {
            None => (Form::Lost, Vec::new()),
            Some(bytes) => self.compress(id, state, bytes),
        };
        let record = Record {
            kind: ChangeKind::Added,
            is_between: false,
            encoding: *encoding,
            form,
            seq: origin.seq,
            time: origin.time,
            since: 0,
            version: version.into(),
            object_version: version.into(),
            len: bytes.map_or(0, <[u8]>::len).try_into().unwrap_or(u32::MAX),
            sum: crc32fast::hash(bytes.unwrap_or_default()),
            body: &body,
        };
        let mut row = Vec::new();
        record.write(origin, &mut row);
        self.file.put("base", id.into(), row)?;
        Ok(record.sum)
    }

    fn compress(&mut self, id: u32, state: &BaseState, bytes: &[u8]) -> (Form, Vec<u8>) {
        let names = names(state);
        let group = state.key.rsplit_once(['-', '.']).map_or(&*state.key, |(group, _)| group);
        let packed = self.codec.pack(&names, bytes);
        if let (Some((leader, of, reference)), Some(packed)) = (&self.leader, &packed)
            && of == group
            && let Some(delta) = self.codec.compress_delta(packed, reference)
            && delta.len() < bytes.len() / 8
        {
            let mut body = Vec::new();
            write_number((*leader).into(), &mut body);
            body.extend_from_slice(delta);
            return (Form::Sibling, body);
        }
        let whole = self.codec.compress_whole(&names, bytes).map(<[u8]>::to_vec);
        self.leader = packed.map(|packed| (id, group.to_owned(), packed));
        whole.map_or_else(|| (Form::Raw, bytes.to_vec()), |body| (Form::Whole, body))
    }
}

fn names(state: &BaseState) -> StateNames<'_> {
    let (namespace, name) = state.key.split_once('/').unwrap_or_default();
    StateNames { namespace, name, uid: &state.uid, resource_version: &state.version }
}

/// Adds an object to the table of a part.
pub(crate) fn put_object(file: &PartFile, id: u32, collection: u64, key: &str, uid: &str) -> Result<(), HistoryError> {
    let mut data = Vec::new();
    write_bytes(key.as_bytes(), &mut data);
    write_bytes(uid.as_bytes(), &mut data);
    add_checksum("objects", [id.into(), collection], &mut data);
    let insert = || {
        let text = "INSERT INTO objects (id, collection, key, data) VALUES (?1, ?2, ?3, ?4)";
        file.connection.prepare_cached(text)?.execute((id, collection.cast_signed(), key, data))
    };
    file.sql(insert()).map(drop)
}
