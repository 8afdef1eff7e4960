//! A commit: the changes and bookmarks that were received within a moment, as one row of the tail.

use listwatch::internal::is_older;

use crate::cut::Span;
use crate::record::{read_bytes, read_number, read_version, write_bytes, write_number, write_version};

/// How far a collection has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub collection: u64,
    /// True if this is the beginning of a span: what happened before is unknown.
    pub is_new_span: bool,
    pub version: String,
    pub resume_version: String,
}

/// A commit without its records, which follow in its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitHead {
    /// The number of its first change.
    pub seq: u64,
    pub time: i64,
    /// The number of objects of the part, with the new ones.
    pub objects: u64,
    pub progress: Vec<Progress>,
    pub records: u64,
}

impl CommitHead {
    pub fn write(&self, out: &mut Vec<u8>) {
        for number in [self.seq, self.time.try_into().unwrap_or_default(), self.objects, self.progress.len() as u64] {
            write_number(number, out);
        }
        for progress in &self.progress {
            write_number(progress.collection << 1 | u64::from(progress.is_new_span), out);
            write_version(&progress.version, out);
            write_version(&progress.resume_version, out);
        }
        write_number(self.records, out);
    }

    /// Reads the head off the front.
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut head = Self { seq: read_number(bytes)?, ..Self::default() };
        head.time = read_number(bytes)?.try_into().ok()?;
        head.objects = read_number(bytes)?;
        for _ in 0..read_number(bytes)? {
            let flags = read_number(bytes)?;
            let [version, resume_version] = [read_version(bytes)?.into_owned(), read_version(bytes)?.into_owned()];
            head.progress.push(Progress {
                collection: flags >> 1,
                is_new_span: flags & 1 == 1,
                version,
                resume_version,
            });
        }
        head.records = read_number(bytes)?;
        Some(head)
    }
}

/// Appends a record with its object.
pub(crate) fn write_entry(object: u32, record: &[u8], out: &mut Vec<u8>) {
    write_number(object.into(), out);
    write_bytes(record, out);
}

/// Reads an object and its record off the front.
pub(crate) fn read_entry<'a>(bytes: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    Some((read_number(bytes)?.try_into().ok()?, read_bytes(bytes)?))
}

/// The spans of all collections, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(pub Vec<(u64, Span)>);

impl Spans {
    /// Notes the progress of a commit; `None` if it continues a span that does not exist.
    pub fn advance(&mut self, head: &CommitHead) -> Option<()> {
        let time = jiff::Timestamp::from_millisecond(head.time).ok()?;
        for Progress { collection, is_new_span, version, resume_version } in &head.progress {
            if *is_new_span {
                let span = Span {
                    first_seq: head.seq,
                    first_version: version.clone(),
                    first_time: time,
                    last_version: version.clone(),
                    resume_version: resume_version.clone(),
                    last_time: time,
                };
                self.0.push((*collection, span));
                continue;
            }
            let span = self.last_mut(*collection)?;
            span.last_version.clone_from(version);
            span.resume_version.clone_from(resume_version);
            span.last_time = span.last_time.max(time);
        }
        Some(())
    }

    fn last_mut(&mut self, collection: u64) -> Option<&mut Span> {
        self.0.iter_mut().rev().find(|(of, _)| *of == collection).map(|(_, span)| span)
    }

    pub fn last(&self, collection: u64) -> Option<&Span> {
        self.0.iter().rev().find(|(of, _)| *of == collection).map(|(_, span)| span)
    }

    /// Returns the last span of each collection, as one that begins now.
    pub fn continued(&self, seq: u64) -> Vec<(u64, Span)> {
        let mut collections: Vec<_> = self.0.iter().map(|(collection, _)| *collection).collect();
        collections.sort_unstable();
        collections.dedup();
        let continued = |collection| {
            let span = self.last(collection)?;
            let (version, time) = (span.last_version.clone(), span.last_time);
            Some((collection, Span { first_seq: seq, first_version: version, first_time: time, ..span.clone() }))
        };
        collections.into_iter().filter_map(continued).collect()
    }
}

/// Returns the newer of two versions, or the second if they cannot be compared.
pub(crate) fn newer<'a>(first: &'a str, second: &'a str) -> &'a str {
    if is_older(second, first) { first } else { second }
}
