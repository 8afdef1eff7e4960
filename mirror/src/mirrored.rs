//! A resource that a mirror answers from a cache.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use listwatch::client::Resource;
use listwatch::encode::Encoder;
use listwatch::schema::Message;
use listwatch::{Encoding, FieldPath, ItemError, TypeMeta, compare_resource_versions};
use listwatch_cache::Cache;
use listwatch_cache::{Index, Object, Snapshot};
use tokio::time::{Instant, sleep};

use crate::accept::Form;
use crate::reads::freshness::Probe;

/// The snapshots of lists in pages that are kept, so that a list continues at its version.
const PAGED: usize = 8;

/// How long such a snapshot is kept. The API server keeps versions for 5 minutes, and continues the list from then on.
const PAGED_FOR: Duration = Duration::from_secs(60);

/// How often they are checked, while there are any.
const PAGED_CHECK: Duration = Duration::from_secs(1);

/// A resource that a mirror answers from a cache.
pub struct Mirrored {
    pub(crate) cache: Cache<[u8]>,
    pub(crate) resource: Resource,
    /// `None` if the cache has all namespaces.
    pub(crate) namespace: Option<String>,
    /// The type meta of one object.
    pub(crate) type_meta: TypeMeta,
    /// The objects that have fields which the table of fields does not have. JSON would lack them.
    unknown_fields: Option<Index<[u8], UnknownFields>>,
    /// Indexes by the paths of their field selectors.
    pub(crate) indexes: Vec<(String, TextIndex)>,
    paged: Mutex<VecDeque<Paged>>,
    pub(crate) probe: Probe,
}

pub(crate) type TextIndex = Index<[u8], Arc<str>>;

/// Where an object has fields that the table of fields does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnknownFields {
    /// In its metadata, and perhaps elsewhere.
    InMetadata,
    Elsewhere,
}

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
    /// Creates a mirrored resource. Its reflector must keep a [change log](listwatch_cache::Reflector::change_log): until then,
    /// and without it, readers get 503. `namespace` is the namespace to which the cache is limited, if it is.
    ///
    /// It adds an index to the store, which checks each object for fields that the [table](listwatch::schema) does not have.
    #[must_use]
    pub fn new(cache: Cache<[u8]>, resource: Resource, namespace: Option<String>) -> Self {
        let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
        let unknown_fields = Message::of(&type_meta.api_version, &type_meta.kind).is_some().then(|| {
            let type_meta = type_meta.clone();
            let of_metadata = Encoder::new(Encoding::Json, type_meta.clone(), "").metadata_only();
            cache.index("unknown fields", move |object| {
                let item = object.item()?.with_type_meta(&type_meta);
                if !item.has_unknown_fields()? {
                    return Ok::<_, ItemError>(None);
                }
                let is_in_metadata = of_metadata.object(&item, &mut Vec::new())? > 0;
                Ok(Some(if is_in_metadata { UnknownFields::InMetadata } else { UnknownFields::Elsewhere }))
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

    /// Returns true if a response in this form would lack fields of an object.
    pub(crate) fn lacks_fields_in(&self, form: Form) -> bool {
        let Some(unknown) = self.unknown_fields.as_ref().filter(|_| form.encoding == Encoding::Json) else {
            return false;
        };
        unknown.count(&UnknownFields::InMetadata) > 0
            || !form.metadata_only && unknown.count(&UnknownFields::Elsewhere) > 0
            || !unknown.errors().is_empty()
    }

    /// Returns true if the API server has a protobuf form of the objects.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.unknown_fields.is_some()
    }

    /// Returns the encoding of the objects in the cache.
    pub(crate) fn encoding(&self) -> Encoding {
        if self.has_protobuf() { Encoding::Protobuf } else { Encoding::Json }
    }

    /// Keeps the snapshot of a list in pages, until [`drop_paged`](Self::drop_paged) drops it or others take its place.
    pub(crate) fn keep_paged(self: &Arc<Self>, snapshot: &Arc<Snapshot<[u8]>>) {
        let mut paged = self.paged();
        if paged.iter().any(|kept| kept.snapshot.resource_version() == snapshot.resource_version()) {
            return;
        }
        if paged.is_empty() {
            tokio::spawn(Self::drop_paged(Arc::downgrade(self)));
        }
        paged.push_back(Paged { at: Instant::now(), snapshot: Arc::clone(snapshot) });
        let surplus = paged.len().saturating_sub(PAGED);
        let dropped: Vec<_> = paged.drain(..surplus).collect();
        drop(paged);
        drop(dropped);
    }

    /// Drops snapshots of lists in pages after [`PAGED_FOR`], and as soon as the change log no longer reaches back to
    /// them: the objects that only a snapshot keeps alive are then states in the log, whose memory has a limit. It ends
    /// with the last snapshot.
    async fn drop_paged(mirrored: Weak<Self>) {
        loop {
            sleep(PAGED_CHECK).await;
            let Some(mirrored) = mirrored.upgrade() else { return };
            let start = mirrored.cache.change_log().start;
            let is_in_log = |version: &str| {
                let start = start.as_deref().and_then(|start| compare_resource_versions(start, version));
                start.is_some_and(Ordering::is_le)
            };
            let mut paged = mirrored.paged();
            let (kept, dropped) = paged
                .drain(..)
                .partition(|kept: &Paged| kept.at.elapsed() < PAGED_FOR && is_in_log(kept.snapshot.resource_version()));
            *paged = kept;
            let has_ended = paged.is_empty();
            drop(paged);
            drop::<VecDeque<_>>(dropped);
            if has_ended {
                return;
            }
        }
    }

    /// Returns the snapshot of a list in pages at this version.
    pub(crate) fn paged_at(&self, resource_version: &str) -> Option<Arc<Snapshot<[u8]>>> {
        let paged = self.paged();
        let found = paged.iter().find(|kept| kept.snapshot.resource_version() == resource_version);
        found.map(|kept| Arc::clone(&kept.snapshot))
    }

    /// Returns the number of snapshots that are kept for lists in pages.
    pub(crate) fn paged_snapshots(&self) -> usize {
        self.paged().len()
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

#[cfg(test)]
mod tests {
    use crate::mirror::Limits;
    use crate::reads::LAG;
    use crate::testing::{Api, get};

    /// Returns a field of a message in protobuf.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let len = u8::try_from(bytes.len()).unwrap();
        assert!(number < 16 && len < 128, "one byte each");
        [&[number << 3 | 2, len], bytes].concat()
    }

    /// Returns a list of one ConfigMap with these fields after the known ones.
    fn list(in_metadata: &[u8], elsewhere: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"a"), field(3, b"web"), field(5, b"u"), field(6, b"9"), in_metadata.to_vec()].concat();
        let item = [field(1, &meta), elsewhere.to_vec()].concat();
        let raw = [field(1, &field(2, b"1000")), field(2, &item)].concat();
        let type_meta = [field(1, b"v1"), field(2, b"ConfigMapList")].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")].concat()
    }

    /// The body of a list would otherwise end at the object.
    #[tokio::test]
    async fn forwards_json_that_would_lack_fields() {
        const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

        let unknown = field(15, b"new");
        for (in_metadata, elsewhere, whole, metadata) in [
            (&b""[..], &b""[..], true, true),
            (b"", &unknown, false, true),
            (&unknown, b"", false, false),
            (&unknown, &unknown, false, false),
        ] {
            let shared = Api::of_list(list(in_metadata, elsewhere).into()).mirror(Limits::default()).await;
            for (path, accept, is_from_memory) in [
                ("/api/v1/configmaps?resourceVersion=0", "application/json", whole),
                ("/api/v1/configmaps?resourceVersion=0", LIST, metadata),
                ("/api/v1/configmaps?resourceVersion=0", PROTOBUF, true),
                ("/api/v1/namespaces/web/configmaps/a", "application/json", whole),
                ("/api/v1/namespaces/web/configmaps/a", OBJECT, metadata),
                ("/api/v1/configmaps?watch=1", OBJECT, metadata),
            ] {
                let response = get(&shared, path, accept).await;
                assert_eq!(response.headers().contains_key(LAG), is_from_memory, "{path} {accept} {in_metadata:?}");
            }
        }
    }
}
