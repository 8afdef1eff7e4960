//! The changes of a collection within a range, in the order in which the server made them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use listwatch::client::Resource;
use listwatch_cache::ObjectKey;

use crate::cut::{Point, Span, is_at_most};
use crate::error::HistoryError;
use crate::history::{History, number_of};
use crate::past::{PastObject, past_object};
use crate::reader::{Content, Cut, PartObject, PartReader, State, owned};
use crate::record::{ChangeKind, Record};

/// The bytes of states that are kept for the next change of their object.
const KEPT_BYTES: usize = 64 << 20;

/// Which changes [`History::changes`] returns.
#[derive(Clone, Debug)]
pub struct ChangeQuery {
    /// The collection.
    pub resource: Resource,
    /// Only changes in this namespace.
    pub namespace: Option<String>,
    /// Only changes of this object.
    pub key: Option<ObjectKey>,
    /// Only changes after this point; by default all.
    pub after: Option<Point>,
    /// Only changes up to this point; by default all.
    pub until: Option<Point>,
}

impl ChangeQuery {
    /// Returns a query of all changes of a collection.
    #[must_use]
    pub fn new(resource: Resource) -> Self {
        Self { resource, namespace: None, key: None, after: None, until: None }
    }

    fn admits(&self, record: &Record<'_>) -> bool {
        let is_until = |point: &Point| match point {
            Point::Version(version) => is_at_most(&record.version, version),
            Point::Time(time) => record.time <= time.as_millisecond(),
            Point::Newest => true,
        };
        !self.after.as_ref().is_some_and(is_until) && self.until.as_ref().is_none_or(is_until)
    }

    /// Returns true if a part or period between these times may have changes of the range.
    fn may_admit(&self, first: i64, last: i64) -> bool {
        let is_after = !matches!(&self.after, Some(Point::Time(time)) if last <= time.as_millisecond());
        let is_until = !matches!(&self.until, Some(Point::Time(time)) if first > time.as_millisecond());
        is_after && is_until
    }

    fn admits_gap(&self, before: &Span, next: &Span) -> bool {
        let is_until = |version: &str, time: Timestamp, point: &Point| match point {
            Point::Version(until) => is_at_most(version, until),
            Point::Time(until) => time <= *until,
            Point::Newest => true,
        };
        let ends_before =
            self.after.as_ref().is_some_and(|after| is_until(&next.first_version, next.first_time, after));
        let begins = self.until.as_ref().is_none_or(|until| is_until(&before.last_version, before.last_time, until));
        !ends_before && begins
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PastChange {
    /// The number of the change in the history.
    pub seq: u64,
    /// The change happened after this time, when the event or bookmark before it was received, ...
    pub after: Timestamp,
    /// ... and at most at this time, when it was received.
    pub received: Timestamp,
    /// The resource version of the change.
    pub resource_version: String,
    /// What the change did.
    pub kind: ChangeKind,
    /// True if the change was found after a gap, or is the first state that was recorded: several changes may have led
    /// to it, at any time in between.
    pub is_between: bool,
    /// The state before; `None` for a new object.
    pub old: Option<PastObject>,
    /// The state after the change, or the final state of a deleted object.
    pub object: PastObject,
}

/// A gap between two spans.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The version and time before, up to which all changes are known.
    pub from: (String, Timestamp),
    /// The version and time from which changes are known again.
    pub to: (String, Timestamp),
}

/// A change, or a gap in which changes are unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PastEvent {
    /// An object changed.
    Change(Box<PastChange>),
    /// What happened here is unknown. Changes that were found after it are [between](PastChange::is_between).
    Gap(Gap),
}

impl History {
    /// Returns the changes of a collection in the order in which the server made them.
    ///
    /// The range may contain gaps and unknown times, which [`spans`](Self::spans) tells from the known ones. The
    /// iterator holds the records of one period, and up to 64 MiB of states.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the history does not record the collection. Items are errors where the history is damaged;
    /// the changes of other objects follow.
    pub fn changes(&self, query: ChangeQuery) -> Result<Changes, HistoryError> {
        // An unknown resource is an error at once.
        self.spans(&query.resource)?;
        let parts = self.parts()?.into();
        Ok(Changes { query, parts, part: None, ready: VecDeque::new(), last_span: None })
    }
}

/// The changes of a collection: see [`History::changes`].
pub struct Changes {
    query: ChangeQuery,
    parts: VecDeque<PathBuf>,
    part: Option<PartChanges>,
    ready: VecDeque<Result<PastEvent, HistoryError>>,
    last_span: Option<Span>,
}

/// The changes of one part.
struct PartChanges {
    reader: PartReader,
    collection: u64,
    /// With a key, the objects that have it.
    wanted: Option<Vec<u32>>,
    /// The next period; the tail follows the last one.
    next_period: usize,
    records: VecDeque<(u32, Record<'static>, Vec<u8>)>,
    objects: HashMap<u32, Option<PartObject>>,
    states: HashMap<u32, State>,
    state_bytes: usize,
    /// Objects whose damage was reported.
    broken: HashSet<u32>,
    /// Gaps with the number of the first change after them.
    gaps: VecDeque<(u64, Gap)>,
}

impl Iterator for Changes {
    type Item = Result<PastEvent, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if let Some(part) = &mut self.part {
                match part.next(&self.query) {
                    Some(next) => return Some(next),
                    None => self.part = None,
                }
            }
            let path = self.parts.pop_front()?;
            match History::open_part(&path) {
                Ok(Some(reader)) => self.begin_part(reader),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Changes {
    fn begin_part(&mut self, reader: PartReader) {
        let Some(collection) = number_of(&reader, &self.query.resource) else { return };
        let mut gaps = VecDeque::new();
        for (_, span) in reader.spans.0.iter().filter(|(of, _)| *of == collection) {
            if let Some(before) = self.last_span.replace(span.clone()) {
                let is_continued = before.last_version == span.first_version && span.first_seq == reader.start.seq;
                if !is_continued && self.query.admits_gap(&before, span) {
                    let from = (before.last_version, before.last_time);
                    gaps.push_back((span.first_seq, Gap { from, to: (span.first_version.clone(), span.first_time) }));
                }
            }
        }
        if !self.query.may_admit(reader.start.time, reader.last_time) && gaps.is_empty() {
            return;
        }
        let wanted = self.query.key.as_ref().map(|key| {
            let found = reader.objects_of_key(collection, &format!("{}/{}", key.namespace, key.name));
            found.map(|objects| objects.into_iter().map(|object| object.id).collect())
        });
        let wanted = match wanted.transpose() {
            Ok(wanted) => wanted,
            Err(error) => return self.ready.push_back(Err(error)),
        };
        self.part = Some(PartChanges {
            reader,
            collection,
            wanted,
            next_period: 0,
            records: VecDeque::new(),
            objects: HashMap::new(),
            states: HashMap::new(),
            state_bytes: 0,
            broken: HashSet::new(),
            gaps,
        });
    }
}

impl PartChanges {
    fn next(&mut self, query: &ChangeQuery) -> Option<Result<PastEvent, HistoryError>> {
        loop {
            let next_seq = self.records.front().map(|(_, record, _)| record.seq);
            let is_at_end = next_seq.is_none() && self.next_period > self.reader.periods.len();
            if let Some((first_seq, _)) = self.gaps.front()
                && (is_at_end || next_seq.is_some_and(|seq| seq >= *first_seq))
            {
                return self.gaps.pop_front().map(|(_, gap)| Ok(PastEvent::Gap(gap)));
            }
            let Some((id, record, body)) = self.records.pop_front() else {
                if is_at_end {
                    return None;
                }
                if let Err(error) = self.read_segment(query) {
                    return Some(Err(error));
                }
                continue;
            };
            match self.change(query, id, record, &body) {
                Ok(Some(change)) => return Some(Ok(PastEvent::Change(Box::new(change)))),
                Ok(None) => {}
                Err(error) => {
                    self.states.remove(&id);
                    if self.broken.insert(id) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Reads the records of the next period, or of the tail, in order.
    fn read_segment(&mut self, query: &ChangeQuery) -> Result<(), HistoryError> {
        let at = self.next_period;
        self.next_period += 1;
        let mut found = Vec::new();
        let wants = |id: u32| self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&id));
        if let Some((number, period)) = self.reader.periods.get(at) {
            if !query.may_admit(period.first_time, period.last_time) {
                return Ok(());
            }
            for id in period.ids.iter().filter(|id| wants(**id)) {
                let row = self.reader.sealed_row(*number, *id)?;
                for record in self.reader.records_of_row(*id, &row)? {
                    found.push((*id, owned(&record), record.body.to_vec()));
                }
            }
        } else {
            for (id, bytes) in self.reader.tail_records().filter(|(id, _)| wants(*id)) {
                let record = Record::read(bytes, self.reader.origin());
                let record = record.ok_or_else(|| self.reader.file.damaged(format!("a record of object {id}")))?;
                found.push((id, owned(&record), record.body.to_vec()));
            }
        }
        found.retain(|(_, record, _)| query.admits(record));
        found.sort_by_key(|(_, record, _)| record.seq);
        self.records = found.into();
        Ok(())
    }

    fn change(
        &mut self,
        query: &ChangeQuery,
        id: u32,
        record: Record<'static>,
        body: &[u8],
    ) -> Result<Option<PastChange>, HistoryError> {
        let Some(object) = self.object(query, id)? else { return Ok(None) };
        let (reader, resource) = (&mut self.reader, &query.resource);
        let old = match self.states.remove(&id) {
            Some(state) => {
                self.state_bytes = self.state_bytes.saturating_sub(state_size(&state));
                Some(state)
            }
            None => reader.state(&object, &Cut::Before(record.seq))?,
        };
        let state = reader.apply(&object, old.as_ref(), record, body)?;
        let (seq, kind) = (state.record.seq, state.record.kind);
        let old = old.filter(|old| old.record.kind != ChangeKind::Deleted);
        let old = old.map(|old| past_object(reader, resource, &object, &old)).transpose()?;
        let current = past_object(reader, resource, &object, &state)?;
        let since = i64::try_from(state.record.since).unwrap_or(i64::MAX);
        let time = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH);
        let change = PastChange {
            seq,
            after: time(state.record.time.saturating_sub(since)),
            received: time(state.record.time),
            resource_version: state.record.version.clone().into_owned(),
            kind,
            is_between: state.record.is_between,
            old,
            object: current,
        };
        self.state_bytes += state_size(&state);
        if self.state_bytes > KEPT_BYTES {
            self.states.clear();
            self.state_bytes = state_size(&state);
        }
        self.states.insert(id, state);
        Ok(Some(change))
    }

    /// Returns an object, unless the query is of others.
    fn object(&mut self, query: &ChangeQuery, id: u32) -> Result<Option<PartObject>, HistoryError> {
        if let Some(known) = self.objects.get(&id) {
            return Ok(known.clone());
        }
        let object = self.reader.object(id)?;
        let is_wanted = object.collection == self.collection
            && query
                .namespace
                .as_ref()
                .is_none_or(|namespace| object.key.split_once('/').is_some_and(|(own, _)| own == namespace));
        let object = is_wanted.then_some(object);
        self.objects.insert(id, object.clone());
        Ok(object)
    }
}

fn state_size(state: &State) -> usize {
    match &state.content {
        Content::Packed(packed) => packed.size(),
        Content::Raw(bytes) => bytes.len(),
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("query", &self.query).finish_non_exhaustive()
    }
}
