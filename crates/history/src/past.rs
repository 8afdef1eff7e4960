//! A collection at a point of the past, read as a cache.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use listwatch::client::Resource;
use listwatch::{Encoding, ItemError, ItemRef, LabelSelector, MetaView, TypeMeta};

use crate::error::HistoryError;
use crate::reader::{Cut, PartObject, PartReader, State};
use crate::record::ChangeKind;

/// How many keys an iterator reads ahead.
const PAGE: usize = 256;

/// A state of an object.
#[derive(Clone, Debug)]
pub struct PastObject {
    pub(crate) key: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) encoding: Encoding,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) type_meta: TypeMeta,
}

impl PastObject {
    /// Returns the namespace, which is empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').unwrap_or_default().0
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.split_once('/').unwrap_or_default().1
    }

    /// Returns the uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the resource version, which identifies this state of the object.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns the encoding in which the object was recorded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the bytes as the server sent them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the object with its kind, to read fields and to convert it.
    #[must_use]
    pub fn item(&self) -> ItemRef<'_> {
        ItemRef::new(self.encoding, &self.bytes).with_type_meta(&self.type_meta)
    }

    /// Returns the metadata.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the recorded object is malformed.
    pub fn meta(&self) -> Result<MetaView<'_>, ItemError> {
        self.item().meta()
    }
}

/// A collection at a point of the past, which reads as the store of a cache. Clones share it.
///
/// It keeps one transaction of SQLite open, so that it shows the same state while the history is written. A read of an
/// object decompresses at most 32 deltas.
#[derive(Clone)]
pub struct PastCollection {
    shared: Arc<Shared>,
}

struct Shared {
    reader: Mutex<PartReader>,
    collection: u64,
    resource: Resource,
    cut: Cut,
    version: String,
    time: Timestamp,
}

impl PastCollection {
    pub(crate) fn new(
        reader: PartReader,
        (collection, resource): (u64, Resource),
        cut: Cut,
        version: String,
        time: Timestamp,
    ) -> Self {
        let reader = Mutex::new(reader);
        Self { shared: Arc::new(Shared { reader, collection, resource, cut, version, time }) }
    }

    /// Returns the resource of the collection.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.shared.resource
    }

    /// Returns the resource version of the state.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.shared.version
    }

    /// Returns the time of the state: the chosen one, or when its version was known to be reached.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.shared.time
    }

    /// Returns the object with this key: an [`&ObjectKey`](listwatch_cache::ObjectKey), or a pair of namespace and
    /// name.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the history is damaged there, or cannot be read.
    pub fn get<'k>(&self, key: impl Into<(&'k str, &'k str)>) -> Result<Option<PastObject>, HistoryError> {
        let (namespace, name) = key.into();
        let mut reader = self.shared.reader();
        for object in reader.objects_of_key(self.shared.collection, &format!("{namespace}/{name}"))?.into_iter().rev() {
            if let Some(found) = self.shared.live_state(&mut reader, &object)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Iterates over the objects in key order: by the bytes of `namespace/name`, as an API server lists them.
    ///
    /// The iterator holds a page of keys, and one object at a time. After an error, which names the object, it
    /// continues with the next one.
    #[must_use]
    pub fn iter(&self) -> PastObjects {
        self.range(String::new())
    }

    /// Iterates over the objects of a namespace in key order.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> PastObjects {
        self.range(format!("{namespace}/"))
    }

    fn range(&self, prefix: String) -> PastObjects {
        let shared = Arc::clone(&self.shared);
        PastObjects { shared, prefix, page: VecDeque::new(), after: None, has_ended: false }
    }

    /// Returns the objects of one namespace, or of all, that a selector matches, in key order.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when an object is damaged or malformed.
    pub fn list_labels(
        &self,
        namespace: Option<&str>,
        selector: &LabelSelector,
    ) -> Result<Vec<PastObject>, HistoryError> {
        let mut selected = Vec::new();
        for object in namespace.map_or_else(|| self.iter(), |namespace| self.namespace(namespace)) {
            let object = object?;
            if selector.matches(&object.meta()?)? {
                selected.push(object);
            }
        }
        Ok(selected)
    }
}

impl IntoIterator for &PastCollection {
    type Item = Result<PastObject, HistoryError>;
    type IntoIter = PastObjects;

    fn into_iter(self) -> PastObjects {
        self.iter()
    }
}

impl fmt::Debug for PastCollection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastCollection")
            .field("resource", &self.shared.resource)
            .field("resource_version", &self.shared.version)
            .field("time", &self.shared.time)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn reader(&self) -> MutexGuard<'_, PartReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live_state(&self, reader: &mut PartReader, object: &PartObject) -> Result<Option<PastObject>, HistoryError> {
        match reader.state(object, &self.cut)? {
            Some(state) if state.record.kind != ChangeKind::Deleted => {
                past_object(reader, &self.resource, object, &state).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Returns a state with its bytes.
pub(crate) fn past_object(
    reader: &mut PartReader,
    resource: &Resource,
    object: &PartObject,
    state: &State,
) -> Result<PastObject, HistoryError> {
    Ok(PastObject {
        bytes: reader.bytes(object, state)?.into(),
        key: object.key.clone(),
        uid: object.uid.clone(),
        resource_version: state.record.object_version.clone().into_owned(),
        encoding: state.record.encoding,
        type_meta: TypeMeta::new(resource.api_version(), resource.kind()),
    })
}

/// The objects of a [`PastCollection`].
pub struct PastObjects {
    shared: Arc<Shared>,
    prefix: String,
    page: VecDeque<PartObject>,
    after: Option<(String, u32)>,
    has_ended: bool,
}

impl Iterator for PastObjects {
    type Item = Result<PastObject, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let shared = Arc::clone(&self.shared);
        let mut reader = shared.reader();
        loop {
            while let Some(object) = self.page.pop_front() {
                self.after = Some((object.key.clone(), object.id));
                if let Some(found) = shared.live_state(&mut reader, &object).transpose() {
                    return Some(found);
                }
            }
            if self.has_ended {
                return None;
            }
            let after = self.after.as_ref().map(|(key, id)| (&**key, *id));
            match reader.objects_after(shared.collection, &self.prefix, after, PAGE) {
                Ok(objects) if objects.is_empty() => self.has_ended = true,
                Ok(objects) => self.page.extend(objects),
                Err(error) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl fmt::Debug for PastObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastObjects").field("after", &self.after).finish_non_exhaustive()
    }
}
