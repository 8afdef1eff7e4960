//! A resource that a mirror answers from a cache.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use listwatch::cache::{Index, Object, Snapshot};
use listwatch::client::Resource;
use listwatch::reflector::Cache;
use listwatch::schema::Message;
use listwatch::{Encoding, FieldPath, ItemError, TypeMeta};
use tokio::time::Instant;

use crate::reads::freshness::Probe;

/// The snapshots of lists in pages that are kept, so that a list continues at its version.
const PAGED: usize = 8;

/// How long such a snapshot is kept. The API server keeps versions for 5 minutes, and continues the list from then on.
const PAGED_FOR: Duration = Duration::from_secs(60);

/// A resource that a mirror answers from a cache.
pub struct Mirrored {
    pub(crate) cache: Cache<[u8]>,
    pub(crate) resource: Resource,
    /// `None` if the cache has all namespaces.
    pub(crate) namespace: Option<String>,
    /// The type meta of one object.
    pub(crate) type_meta: TypeMeta,
    /// Objects by whether they have a field that the table of fields does not have. JSON would lack it.
    unknown_fields: Option<Index<[u8], bool>>,
    /// Indexes by the paths of their field selectors.
    pub(crate) indexes: Vec<(String, TextIndex)>,
    paged: Mutex<VecDeque<Paged>>,
    pub(crate) probe: Probe,
}

pub(crate) type TextIndex = Index<[u8], Arc<str>>;

/// The snapshot of a list in pages, and when its first page was read.
struct Paged {
    at: Instant,
    snapshot: Arc<Snapshot<[u8]>>,
}

/// Whether readers of a resource get answers from its cache.
#[derive(Clone, Debug)]
pub(crate) struct ResourceStatus {
    /// The name as users type it, such as `deployments.apps`.
    pub(crate) name: String,
    /// True if the cache has the whole collection.
    pub(crate) ready: bool,
    /// The time since the cache was last known to be up to date; `None` before it first was.
    pub(crate) lag: Option<Duration>,
    /// Why the resource is not ready.
    pub(crate) reason: Option<String>,
}

impl Mirrored {
    /// Creates a mirrored resource. Its reflector must keep a [change log](listwatch::reflector::Reflector::change_log): until then,
    /// and without it, readers get 503. `namespace` is the namespace to which the cache is limited, if it is.
    ///
    /// It adds an index to the store, which checks each object for fields that the [table](listwatch::schema) does not have.
    #[must_use]
    pub fn new(cache: Cache<[u8]>, resource: Resource, namespace: Option<String>) -> Self {
        let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
        let unknown_fields = Message::of(&type_meta.api_version, &type_meta.kind).is_some().then(|| {
            let type_meta = type_meta.clone();
            cache.index("unknown fields", move |object| {
                let has = object.item()?.with_type_meta(&type_meta).has_unknown_fields()?;
                Ok::<_, ItemError>(has.then_some(true))
            })
        });
        Self {
            cache,
            resource,
            namespace,
            type_meta,
            unknown_fields,
            indexes: Vec::new(),
            paged: Mutex::default(),
            probe: Probe::default(),
        }
    }

    /// Answers field selectors of the form `PATH=VALUE` from an index. `path` is the path as in the selector, such as `spec.nodeName`,
    /// and `field` reads its text.
    #[must_use]
    pub fn index(mut self, path: &str, field: FieldPath) -> Self {
        let index = self.cache.index(path, move |object: &Object<[u8]>| {
            let text = field.str(object.item()?)?;
            // A selector with an empty value selects objects without the field.
            Ok::<_, ItemError>(Some(Arc::from(text.as_deref().unwrap_or_default())))
        });
        self.indexes.push((path.to_owned(), index));
        self
    }

    /// Returns whether the cache can answer.
    pub(crate) fn status(&self) -> ResourceStatus {
        let status = self.cache.status();
        let is_open = self.cache.change_log().start.is_some();
        let reason = match (&status.resource_version, &status.ended_by, &status.last_error) {
            (_, Some(error), _) => Some(format!("the reflector has ended: {error}")),
            (Some(_), None, _) if status.skipped > 0 => Some(format!("{} objects are missing", status.skipped)),
            (Some(_), None, _) if is_open => None,
            (Some(_), None, _) => Some("the cache is being relisted".to_owned()),
            (None, None, Some(error)) => Some(format!("not synced: {error}")),
            (None, None, None) => Some("not synced".to_owned()),
        };
        ResourceStatus {
            name: self.resource.to_string(),
            ready: reason.is_none(),
            lag: status.last_synced_at.map(|at| at.elapsed()),
            reason,
        }
    }

    /// Returns the age of the oldest change that a reader can resume from; `None` while the change log is closed.
    pub(crate) fn log_age(&self) -> Option<Duration> {
        let log = self.cache.change_log();
        log.start.is_some().then_some(log.age)
    }

    /// Returns true if a response in JSON would lack fields of an object.
    pub(crate) fn has_unknown_fields(&self) -> bool {
        self.unknown_fields.as_ref().is_some_and(|unknown| unknown.count(&true) > 0 || !unknown.errors().is_empty())
    }

    /// Returns true if the API server has a protobuf form of the objects.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.unknown_fields.is_some()
    }

    /// Returns the encoding of the objects in the cache.
    pub(crate) fn encoding(&self) -> Encoding {
        if self.has_protobuf() { Encoding::Protobuf } else { Encoding::Json }
    }

    /// Keeps the snapshot of a list in pages.
    pub(crate) fn keep_paged(&self, snapshot: &Arc<Snapshot<[u8]>>) {
        let mut paged = self.paged();
        if !paged.iter().any(|kept| kept.snapshot.resource_version() == snapshot.resource_version()) {
            paged.push_back(Paged { at: Instant::now(), snapshot: Arc::clone(snapshot) });
            let surplus = paged.len().saturating_sub(PAGED);
            let dropped: Vec<_> = paged.drain(..surplus).collect();
            drop(paged);
            drop(dropped);
        }
    }

    /// Returns the snapshot of a list in pages at this version.
    pub(crate) fn paged_at(&self, resource_version: &str) -> Option<Arc<Snapshot<[u8]>>> {
        let mut paged = self.paged();
        let expired = paged.iter().take_while(|kept| kept.at.elapsed() > PAGED_FOR).count();
        let dropped: Vec<_> = paged.drain(..expired).collect();
        let found = paged.iter().find(|kept| kept.snapshot.resource_version() == resource_version);
        let found = found.map(|kept| Arc::clone(&kept.snapshot));
        drop(paged);
        drop(dropped);
        found
    }

    fn paged(&self) -> MutexGuard<'_, VecDeque<Paged>> {
        self.paged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Mirrored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirrored").field("resource", &self.resource).field("cache", &self.cache).finish_non_exhaustive()
    }
}
