//! Compares a collection after a gap with what was recorded before.

use std::collections::VecDeque;

use jiff::Timestamp;
use listwatch_cache::{Object, Snapshot};

use crate::error::HistoryError;
use crate::open_part::{NewChange, OldState};
use crate::reader::{Cut, PartObject, PartReader};
use crate::record::{ChangeKind, Record};
use crate::writer::HistoryWriter;

/// Returns the key of an object: namespace and name with a slash between them.
pub(crate) fn key_of(object: &Object<[u8]>) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

/// Compares a collection after a gap with what was recorded before.
pub(crate) struct Comparison<'a> {
    pub collection: u64,
    pub version: &'a str,
    pub now: Timestamp,
    pub since: Timestamp,
}

impl Comparison<'_> {
    /// Appends what differs, and returns the number of changes.
    pub fn append(
        &self,
        writer: &mut HistoryWriter,
        known: Option<u64>,
        snapshot: &Snapshot<[u8]>,
    ) -> Result<u64, HistoryError> {
        let reader = if known.is_some() { writer.reader()? } else { None };
        let mut recorded = RecordedObjects { reader, collection: self.collection, page: VecDeque::new(), after: None };
        let (mut found, mut next) = (0, recorded.next()?);
        for object in snapshot.iter() {
            let key = key_of(&object);
            while let Some((before, record)) = next.take_if(|(before, _)| before.key < key) {
                found += self.deleted(writer, &mut recorded, &before, &record);
                next = recorded.next()?;
            }
            let mut same = None;
            if let Some((before, record)) = next.take_if(|(before, _)| before.key == key) {
                if before.uid == object.uid() {
                    same = Some((before, record));
                } else {
                    found += self.deleted(writer, &mut recorded, &before, &record);
                }
                next = recorded.next()?;
            }
            found += self.compared(writer, &mut recorded, &key, &object, same.as_ref())?;
        }
        while let Some((before, record)) = next {
            found += self.deleted(writer, &mut recorded, &before, &record);
            next = recorded.next()?;
        }
        Ok(found)
    }

    fn since(&self) -> u64 {
        self.now.duration_since(self.since).as_millis().try_into().unwrap_or_default()
    }

    fn compared(
        &self,
        writer: &mut HistoryWriter,
        recorded: &mut RecordedObjects,
        key: &str,
        object: &Object<[u8]>,
        same: Option<&(PartObject, Record<'static>)>,
    ) -> Result<u64, HistoryError> {
        let bytes = object.encoded()?;
        let is_equal = |record: &Record<'_>| record.sum == crc32fast::hash(bytes) && record.len as usize == bytes.len();
        let kind = match same {
            Some((_, record)) if record.object_version == object.resource_version() => {
                if is_equal(record) {
                    return Ok(0);
                }
                ChangeKind::Reencoded
            }
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        let old_bytes = same.and_then(|(before, _)| recorded.bytes(before));
        let old = same.zip(old_bytes.as_ref()).map(|((before, record), bytes)| OldState {
            uid: &before.uid,
            version: &record.object_version,
            bytes,
        });
        let change = NewChange {
            collection: self.collection,
            kind,
            is_between: true,
            key,
            uid: object.uid(),
            version: self.version,
            object_version: object.resource_version(),
            encoding: object.encoding(),
            bytes,
            old,
        };
        writer.append(&change, self.now, self.since());
        Ok(1)
    }

    fn deleted(
        &self,
        writer: &mut HistoryWriter,
        recorded: &mut RecordedObjects,
        before: &PartObject,
        record: &Record<'_>,
    ) -> u64 {
        let bytes = recorded.bytes(before).unwrap_or_default();
        let old = OldState { uid: &before.uid, version: &record.object_version, bytes: &bytes };
        let change = NewChange {
            collection: self.collection,
            kind: ChangeKind::Deleted,
            is_between: true,
            key: &before.key,
            uid: &before.uid,
            version: self.version,
            object_version: &record.object_version,
            encoding: record.encoding,
            bytes: &bytes,
            old: Some(old),
        };
        writer.append(&change, self.now, self.since());
        1
    }
}

/// The live objects that were recorded, in key order.
struct RecordedObjects {
    reader: Option<PartReader>,
    collection: u64,
    page: VecDeque<PartObject>,
    after: Option<(String, u32)>,
}

impl RecordedObjects {
    fn next(&mut self) -> Result<Option<(PartObject, Record<'static>)>, HistoryError> {
        let Some(reader) = &self.reader else { return Ok(None) };
        loop {
            let Some(object) = self.page.pop_front() else {
                let after = self.after.as_ref().map(|(key, id)| (&**key, *id));
                self.page = reader.objects_after(self.collection, "", after, 256)?.into();
                if self.page.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            self.after = Some((object.key.clone(), object.id));
            let newest = reader.newest(object.id)?;
            if let Some((record, _)) = newest.filter(|(record, _)| record.kind != ChangeKind::Deleted) {
                return Ok(Some((object, record)));
            }
        }
    }

    /// Returns the bytes of the newest state, unless it is damaged.
    fn bytes(&mut self, object: &PartObject) -> Option<Vec<u8>> {
        let reader = self.reader.as_mut()?;
        let state = reader.state(object, &Cut::Before(u64::MAX)).ok()??;
        reader.bytes(object, &state).ok()
    }
}
