//! A history for readers.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use listwatch::client::Resource;
use listwatch_cache::Store;

use crate::commit::newer;
use crate::cut::{Point, Span, Unknown};
use crate::error::HistoryError;
use crate::part::{PartFile, PartStart, part_numbers, part_path};
use crate::past::PastCollection;
use crate::reader::{Cut, PartReader};

/// A history in a folder, for readers, also while it is written.
///
/// ```no_run
/// use listwatch::client::Resource;
/// use listwatch_history::{History, Point};
///
/// let history = History::open("/var/lib/history")?;
/// let pods = history.at(&Resource::PODS, &Point::Time("2026-11-27T14:03:00Z".parse()?))?;
/// for pod in &pods {
///     let pod = pod?;
///     println!("{}/{} at version {}", pod.namespace(), pod.name(), pod.resource_version());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) dir: PathBuf,
}

impl History {
    /// Opens the history in a folder.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the folder has no history or cannot be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, HistoryError> {
        let dir = dir.as_ref().to_owned();
        if part_numbers(&dir)?.is_empty() {
            return Err(HistoryError::Empty(dir));
        }
        Ok(Self { dir })
    }

    /// Returns true if the folder contains parts of a history.
    #[must_use]
    pub fn is_history(dir: &Path) -> bool {
        part_numbers(dir).is_ok_and(|numbers| !numbers.is_empty())
    }

    /// Returns the paths of the parts, oldest first.
    pub(crate) fn parts(&self) -> Result<Vec<PathBuf>, HistoryError> {
        let numbers = part_numbers(&self.dir)?;
        Ok(numbers.into_iter().map(|number| part_path(&self.dir, number)).collect())
    }

    /// Opens a part; `None` if its writer has dropped it meanwhile.
    pub(crate) fn open_part(path: &Path) -> Result<Option<PartReader>, HistoryError> {
        match PartReader::open(path) {
            Err(_) if !path.exists() => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Returns the resources that the history records, also those that only its older parts have.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when no part can be read.
    pub fn resources(&self) -> Result<Vec<Resource>, HistoryError> {
        let mut resources: Vec<Resource> = Vec::new();
        let mut last = None;
        for path in self.parts()?.iter().rev() {
            match PartFile::open(path).and_then(|part| part.collections()) {
                Ok(collections) => {
                    for (_, resource) in collections {
                        if !resources.contains(&resource) {
                            resources.push(resource);
                        }
                    }
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if resources.is_empty() => Err(error),
            _ => Ok(resources),
        }
    }

    /// Returns the spans of a collection in which each state is known, oldest first. Between two of them is a gap.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when a part cannot be read, or does not record the collection.
    pub fn spans(&self, resource: &Resource) -> Result<Vec<Span>, HistoryError> {
        let mut all: Vec<Span> = Vec::new();
        for path in self.parts()? {
            let Some(reader) = Self::open_part(&path)? else { continue };
            let Some(collection) = number_of(&reader, resource) else { continue };
            for (at, (_, span)) in reader.spans.0.iter().filter(|(of, _)| *of == collection).enumerate() {
                match all.last_mut() {
                    // The first span of a part continues the last one of the part before.
                    Some(last) if at == 0 && last.last_version == span.first_version => {
                        last.last_version.clone_from(&span.last_version);
                        last.resume_version.clone_from(&span.resume_version);
                        last.last_time = span.last_time;
                    }
                    _ => all.push(span.clone()),
                }
            }
        }
        if all.is_empty() { Err(self.not_recorded(resource)) } else { Ok(all) }
    }

    fn not_recorded(&self, resource: &Resource) -> HistoryError {
        let names = self.resources().unwrap_or_default();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        HistoryError::NotRecorded(resource.to_string(), names.join(", "))
    }

    /// Returns a collection at a point.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Unknown`] when nothing was recorded at the point: before the first state, in a gap, or after the
    /// last event or bookmark; [`HistoryError::NotRecorded`]; and other errors when a part is damaged or cannot be
    /// read.
    pub fn at(&self, resource: &Resource, point: &Point) -> Result<PastCollection, HistoryError> {
        let (mut before, mut after) = (None, None);
        let mut is_recorded = false;
        for path in self.parts()?.iter().rev() {
            if let Some(start) = Self::begins_after(path, resource, point)? {
                is_recorded = true;
                after = Some(start);
                continue;
            }
            let Some(reader) = Self::open_part(path)? else { continue };
            let Some(collection) = number_of(&reader, resource) else { continue };
            is_recorded = true;
            let spans: Vec<_> =
                reader.spans.0.iter().filter(|(of, _)| *of == collection).map(|(_, span)| span).collect();
            let is_found = |span: &Span| match point {
                Point::Version(version) => span.has_version(version),
                Point::Time(time) => span.has_time(*time),
                Point::Newest => true,
            };
            if let Some((place, span)) = spans.iter().enumerate().rev().find(|(_, span)| is_found(span)) {
                let next = spans.get(place + 1).copied();
                let (cut, version, time) = resolve(&reader, collection, span, next, point);
                let resource = reader.resource(collection).cloned().unwrap_or_else(|| resource.clone());
                return Ok(PastCollection::new(reader, (collection, resource), cut, version, time));
            }
            let is_before = |span: &&&Span| match point {
                Point::Version(version) => crate::cut::is_at_most(&span.last_version, version),
                Point::Time(time) => span.last_time < *time,
                Point::Newest => false,
            };
            if let Some(last) = spans.iter().rfind(is_before) {
                before = Some((last.last_version.clone(), last.last_time));
                let next = spans.iter().position(|span| span == last).and_then(|place| spans.get(place + 1));
                after = next.map(|next| (next.first_version.clone(), next.first_time)).or(after);
                break;
            }
            after = spans.first().map(|first| (first.first_version.clone(), first.first_time)).or(after);
        }
        if !is_recorded {
            return Err(self.not_recorded(resource));
        }
        let (collection, point) = (resource.to_string(), point.clone());
        Err(Box::new(Unknown { collection, point, before, after }).into())
    }

    /// Returns where the collection begins in a part, if that is after the point, without reading the whole part.
    fn begins_after(
        path: &Path,
        resource: &Resource,
        point: &Point,
    ) -> Result<Option<(String, Timestamp)>, HistoryError> {
        let read = || -> Result<(Vec<(u64, Resource)>, PartStart), HistoryError> {
            let file = PartFile::open(path)?;
            Ok((file.collections()?, file.start()?))
        };
        let (collections, start) = match read() {
            Err(_) if !path.exists() => return Ok(None),
            read => read?,
        };
        let collection = collections.iter().find(|(_, known)| is_same(known, resource)).map(|(number, _)| *number);
        let span = start.spans.iter().find(|(of, _)| Some(*of) == collection).map(|(_, span)| span);
        let Some(span) = span else { return Ok(None) };
        let is_after = match point {
            Point::Version(version) => !crate::cut::is_at_most(&span.first_version, version),
            Point::Time(time) => span.first_time > *time,
            Point::Newest => false,
        };
        Ok(is_after.then(|| (span.first_version.clone(), span.first_time)))
    }

    /// Copies the history into a new folder, part by part, and returns the number of parts.
    ///
    /// Each part is copied as it is at one moment, also while it is written.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the folder exists, or a part cannot be read or written.
    pub fn copy_to(&self, dir: &Path) -> Result<u64, HistoryError> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(dir).map_err(|error| HistoryError::Io { path: dir.to_owned(), error })?;
        let mut copied = 0;
        for path in self.parts()? {
            let part = match PartFile::open(&path) {
                // Its writer has dropped it.
                Err(_) if !path.exists() => continue,
                part => part?,
            };
            let copy = dir.join(path.file_name().unwrap_or_default());
            part.sql(part.connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]))?;
            copied += 1;
        }
        Ok(copied)
    }

    /// Fills an empty store with the newest recorded state of a collection, and returns the version from which a watch
    /// resumes. The result is `None` if the collection was not recorded.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when an object is damaged, or the store cannot hold it.
    pub fn fill(&self, resource: &Resource, store: &Store<[u8]>) -> Result<Option<String>, HistoryError> {
        let past = match self.at(resource, &Point::Newest) {
            Ok(past) => past,
            Err(HistoryError::NotRecorded(..)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if past.resource() != resource {
            return Ok(None);
        }
        let spans = self.spans(resource)?;
        let Some(span) = spans.last() else { return Ok(None) };
        let mut relist = store.begin_relist();
        for object in &past {
            let object = object?;
            drop(relist.apply(object.encoding(), object.bytes())?);
        }
        relist.commit(&span.resume_version)?;
        Ok(Some(span.resume_version.clone()))
    }
}

/// Returns true for the same resource, in any version of the API.
fn is_same(known: &Resource, resource: &Resource) -> bool {
    known.group() == resource.group() && known.plural() == resource.plural()
}

/// Returns the number of a collection in a part.
pub(crate) fn number_of(reader: &PartReader, resource: &Resource) -> Option<u64> {
    let same = reader.collections.iter().filter(|(_, known)| is_same(known, resource));
    let numbers: Vec<_> = same.map(|(number, known)| (*number, known == resource)).collect();
    numbers.iter().find(|(_, is_equal)| *is_equal).or(numbers.last()).map(|(number, _)| *number)
}

/// Returns the records, the version and the time of a point within a span.
fn resolve(
    reader: &PartReader,
    collection: u64,
    span: &Span,
    next: Option<&Span>,
    point: &Point,
) -> (Cut, String, Timestamp) {
    let end = next.map_or(u64::MAX, |next| next.first_seq);
    let marks = reader.marks.iter().filter(|mark| mark.collection == collection);
    match point {
        Point::Newest => (Cut::Before(end), span.last_version.clone(), span.last_time),
        Point::Version(version) => {
            let mut of_span = marks.filter(|mark| mark.seq >= span.first_seq && mark.seq <= end);
            let reached = of_span.find(|mark| crate::cut::is_at_most(version, &mark.version));
            let time = reached.and_then(|mark| Timestamp::from_millisecond(mark.time).ok());
            let cut = Cut::Version { first: span.first_seq, end, version: version.clone() };
            (cut, version.clone(), time.unwrap_or(span.first_time))
        }
        Point::Time(time) => {
            let until = time.as_millisecond();
            let reached = marks.filter(|mark| mark.time <= until && mark.seq >= span.first_seq);
            let version = reached.fold(&*span.first_version, |version, mark| newer(version, &mark.version));
            (Cut::Until(until), version.to_owned(), *time)
        }
    }
}
