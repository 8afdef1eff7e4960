//! A resource that a mirror answers from a cache.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use listwatch::client::{Client, Error, Resource};
use listwatch::encode::Encoder;
use listwatch::internal::is_older;
use listwatch::schema::Message;
use listwatch::{Encoding, FieldPath, ItemError, TypeMeta};
use listwatch_cache::{Cache, Index, Object, ObjectKey, Snapshot};
use tokio::time::Instant;

use super::confirmations::Confirmations;
use super::current_version::CurrentVersion;
use super::paged_snapshots::PagedSnapshots;
use super::table_printer::{TablePrinter, TablePrinters};
use crate::metrics::ResourceMetrics;

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
    /// The newest version of a change that a watch could not send; empty if there is none.
    incomplete_change: Mutex<String>,
    tables: TablePrinters,
    paged: Arc<PagedSnapshots>,
    pub(crate) current_version: CurrentVersion,
    pub(crate) confirmations: Arc<Confirmations>,
}

pub(crate) type TextIndex = Index<[u8], Arc<str>>;

/// Where an object has fields that the table of fields does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnknownFields {
    /// In its metadata, and perhaps elsewhere.
    InMetadata,
    Elsewhere,
}

/// Whether readers of a resource get answers from its cache.
#[derive(Clone, Debug)]
pub(crate) struct ResourceStatus {
    /// The name as users type it, such as `deployments.apps`.
    pub(crate) name: String,
    pub(crate) source: ReadSource,
    /// The time since the cache was last known to be up to date; `None` before it first was.
    pub(crate) lag: Option<Duration>,
    /// The state of the connection to the API server: `ok`, or the class of the last error.
    pub(crate) upstream: &'static str,
}

/// Who answers reads of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadSource {
    /// The cache, which has the whole collection.
    Cache,
    /// The API server, which refuses the collection to the mirror: the resource was deleted, or the right withdrawn. A
    /// reader then gets the answer that it would get there.
    ApiServer,
    /// Nobody, for this reason.
    Nobody(String),
}

impl ResourceStatus {
    /// Returns the status of a resource that the API server does not have yet.
    pub(super) fn missing(name: &str) -> Self {
        Self { name: name.to_owned(), source: ReadSource::ApiServer, lag: None, upstream: "missing" }
    }

    /// Returns true if the cache answers.
    pub(crate) fn is_ready(&self) -> bool {
        self.source == ReadSource::Cache
    }
}

/// The objects that a response could not show with all their fields.
pub(crate) struct IncompleteObjects {
    keys: HashSet<ObjectKey>,
    /// True if the key of one of them cannot be read.
    has_unnamed: bool,
}

impl IncompleteObjects {
    /// Returns true if a response with this object would lack fields.
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.has_unnamed || self.keys.contains(key)
    }

    /// Returns their keys; `None` if one is unknown, or if there are more than this.
    pub(crate) fn keys(&self, limit: usize) -> Option<impl Iterator<Item = &ObjectKey>> {
        (!self.has_unnamed && self.keys.len() <= limit).then(|| self.keys.iter())
    }
}

impl Mirrored {
    /// Creates a mirrored resource. `namespace` is the namespace to which the cache is limited, if it is.
    ///
    /// Its reflector must keep a [change log](listwatch_cache::Reflector::change_log). Until then, and without it,
    /// readers get 503.
    ///
    /// It adds an index to the store, which checks each object for fields that the [table](listwatch::schema) does not
    /// have.
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
            tables: TablePrinters::new(&resource, &type_meta),
            paged: PagedSnapshots::new(cache.clone()),
            current_version: CurrentVersion::new(resource.clone(), namespace.clone()),
            confirmations: Confirmations::new(cache.clone()),
            cache,
            resource,
            namespace,
            type_meta,
            unknown_fields,
            incomplete_change: Mutex::default(),
            indexes: Vec::new(),
        }
    }

    /// Answers field selectors of the form `PATH=VALUE` from an index. `path` is the path as in the selector, such as
    /// `spec.nodeName`, and `field` reads its text.
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
        let upstream = status.last_error.as_ref().filter(|_| !status.is_up_to_date);
        let is_refused = upstream.and_then(Error::code).is_some_and(|code| matches!(code, 403 | 404));
        let source = match (&status.resource_version, &status.ended_by, upstream) {
            _ if is_refused => ReadSource::ApiServer,
            (_, Some(reason), _) => ReadSource::Nobody(reason.to_string()),
            (Some(_), None, _) if status.skipped > 0 => {
                ReadSource::Nobody(format!("{} objects are missing", status.skipped))
            }
            (Some(_), None, _) if is_open => ReadSource::Cache,
            (Some(_), None, _) => ReadSource::Nobody("the cache is being relisted".to_owned()),
            (None, None, Some(error)) => ReadSource::Nobody(format!("not synced: {error}")),
            (None, None, None) => ReadSource::Nobody("not synced".to_owned()),
        };
        ResourceStatus {
            name: self.resource.to_string(),
            source,
            lag: status.last_synced_at.map(|at| Instant::now().into_std().saturating_duration_since(at)),
            upstream: match upstream {
                Some(error) => error.class().as_str(),
                None if status.is_up_to_date => "ok",
                None => "connecting",
            },
        }
    }

    /// Returns what the metrics show.
    ///
    /// It waits while a write holds the store, such as the commit of a list: see [`Cache::memory`].
    pub(crate) fn metrics(&self) -> ResourceMetrics {
        let (status, log) = (self.status(), self.cache.change_log());
        ResourceMetrics {
            is_ready: status.is_ready(),
            resource: status.name,
            objects: self.cache.len(),
            paged_snapshots: self.paged_snapshots(),
            lag: status.lag,
            // Without a start, the log is closed.
            log_age: log.start.is_some().then_some(log.age),
            memory: self.cache.memory(),
            budget: self.cache.budget(),
            status: self.cache.status(),
        }
    }

    /// Returns the objects that a response in this encoding could not show with all their fields; `None` if there are
    /// none.
    ///
    /// It costs a copy of their keys. After an upgrade of the API server, these may be all objects.
    pub(crate) fn incomplete_objects(&self, encoding: Encoding, has_whole_objects: bool) -> Option<IncompleteObjects> {
        // The names of unknown fields are unknown, too.
        let unknown = self.unknown_fields.as_ref().filter(|_| encoding.is_self_describing())?;
        let errors = unknown.errors();
        let elsewhere = has_whole_objects.then_some(UnknownFields::Elsewhere);
        let values = [Some(UnknownFields::InMetadata), elsewhere];
        let mut keys: HashSet<ObjectKey> = values
            .iter()
            .flatten()
            .filter(|value| unknown.count(*value) > 0)
            .flat_map(|value| unknown.get(value))
            .map(|object| object.key())
            .collect();
        let has_unnamed = errors.iter().any(|error| error.key.is_none());
        keys.extend(errors.into_iter().filter_map(|error| error.key));
        (has_unnamed || !keys.is_empty()).then_some(IncompleteObjects { keys, has_unnamed })
    }

    /// Records that a watch could not send the change of this version, because it would have lacked fields.
    pub(crate) fn record_incomplete_change(&self, version: &str) {
        let mut last = self.incomplete_change.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_empty() || is_older(&last, version) {
            version.clone_into(&mut last);
        }
    }

    /// Returns true if a watch that resumes at this version meets such a change again.
    pub(crate) fn has_incomplete_change_after(&self, version: &str) -> bool {
        let last = self.incomplete_change.lock().unwrap_or_else(PoisonError::into_inner);
        !last.is_empty() && is_older(version, &last)
    }

    /// Returns true if the API server has a protobuf form of the objects.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.unknown_fields.is_some()
    }

    /// Returns the encoding of the objects in the cache.
    pub(crate) fn encoding(&self) -> Encoding {
        if self.has_protobuf() { Encoding::Protobuf } else { Encoding::Json }
    }

    /// Returns the printer of Tables; `None` if the columns are not known.
    pub(crate) fn table_printer(&self) -> Option<TablePrinter> {
        self.tables.printer()
    }

    /// Keeps the columns of a custom resource up to date. It completes at once for other resources.
    pub(crate) async fn follow_columns(&self, client: &Client) {
        self.tables.follow_definition(client).await;
    }

    /// Keeps the snapshot of a list in pages for some time, so that the list continues at its version.
    pub(crate) fn keep_paged(&self, snapshot: &Arc<Snapshot<[u8]>>) {
        self.paged.keep_snapshot(snapshot);
    }

    /// Returns the snapshot of a list in pages at this version.
    pub(crate) fn paged_at(&self, resource_version: &str) -> Option<Arc<Snapshot<[u8]>>> {
        self.paged.find_snapshot(resource_version)
    }

    /// Returns the number of snapshots that are kept for lists in pages.
    pub(crate) fn paged_snapshots(&self) -> usize {
        self.paged.len()
    }
}

impl fmt::Debug for Mirrored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirrored").field("resource", &self.resource).field("cache", &self.cache).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use crate::metrics::ShownResources;
    use crate::settings::Limits;
    use crate::testing::{FakeApiServer, LAG, get};

    /// Returns a field of a message in protobuf.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        assert!(number < 16 && bytes.len() < 1 << 14, "one byte, and one or two bytes");
        let [low, high] = [bytes.len() & 0x7f, bytes.len() >> 7].map(|part| u8::try_from(part).unwrap());
        let len = if high == 0 { vec![low] } else { vec![low | 0x80, high] };
        [&[number << 3 | 2][..], &len, bytes].concat()
    }

    /// Returns a ConfigMap at this version with these fields after the known ones.
    fn config_map(name: &str, version: &str, in_metadata: &[u8], elsewhere: &[u8]) -> Vec<u8> {
        let (name, version) = (name.as_bytes(), version.as_bytes());
        let meta = [field(1, name), field(3, b"web"), field(5, name), field(6, version), in_metadata.to_vec()].concat();
        [field(1, &meta), elsewhere.to_vec()].concat()
    }

    /// Returns a list of a ConfigMap `a` with these fields after the known ones, and of `b` without them.
    fn list(in_metadata: &[u8], elsewhere: &[u8]) -> Vec<u8> {
        let items = [config_map("a", "9", in_metadata, elsewhere), config_map("b", "8", b"", b"")];
        let raw = [field(1, &field(2, b"1000")), items.map(|item| field(2, &item)).concat()].concat();
        let type_meta = [field(1, b"v1"), field(2, b"ConfigMapList")].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")].concat()
    }

    /// Returns an event that modifies `a` to this state.
    fn modified(object: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        let object = [b"k8s\0".to_vec(), field(1, &type_meta), field(2, object), field(3, b""), field(4, b"")].concat();
        let event = [field(1, b"MODIFIED"), field(2, &field(1, &object))].concat();
        [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
    }

    #[tokio::test]
    async fn forwards_only_the_json_that_would_lack_fields() {
        const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        const JSON: &str = "application/json";
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

        let unknown = field(15, b"new");
        for (in_metadata, elsewhere, whole, metadata) in [
            (&b""[..], &b""[..], true, true),
            (b"", &unknown, false, true),
            (&unknown, b"", false, false),
            (&unknown, &unknown, false, false),
        ] {
            let mirror = FakeApiServer::of_list(list(in_metadata, elsewhere).into()).mirror(Limits::default()).await;
            let mut forwarded = 0;
            for (path, accept, is_from_memory) in [
                ("/api/v1/configmaps?resourceVersion=0", JSON, whole),
                ("/api/v1/configmaps?resourceVersion=0", LIST, metadata),
                ("/api/v1/configmaps?resourceVersion=0", PROTOBUF, true),
                ("/api/v1/namespaces/web/configmaps/a", JSON, whole),
                ("/api/v1/namespaces/web/configmaps/a", OBJECT, metadata),
                ("/api/v1/configmaps?watch=1", OBJECT, metadata),
                ("/api/v1/configmaps?watch=1", JSON, whole),
                ("/api/v1/configmaps?watch=1&resourceVersion=1000", JSON, whole),
                ("/api/v1/configmaps?watch=1", PROTOBUF, true),
                // Those without the object.
                ("/api/v1/namespaces/web/configmaps/b", JSON, true),
                ("/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Db", JSON, true),
                ("/api/v1/namespaces/other/configmaps?resourceVersion=0", JSON, true),
                ("/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Db", JSON, true),
                ("/api/v1/namespaces/other/configmaps?watch=1", JSON, true),
            ] {
                let response = get(&mirror, path, accept).await;
                assert_eq!(response.headers().contains_key(LAG), is_from_memory, "{path} {accept} {in_metadata:?}");
                forwarded += usize::from(!is_from_memory);
            }
            let shown = ShownResources::of_one(mirror.first_resource().metrics());
            let metrics = mirror.metrics.encode_text(shown, None).unwrap();
            let sample = format!("listwatch_mirror_forwarded_total{{reason=\"unknown_fields\"}} {forwarded}\n");
            assert!(forwarded == 0 || metrics.contains(&sample), "{metrics}");
        }
    }

    /// With a 410, the reader would list, watch, and get a 410 again with each change.
    #[tokio::test]
    async fn a_json_watch_that_meets_unknown_fields_continues_at_the_api_server() {
        const WATCH: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&resourceVersion=";

        let api = FakeApiServer::of_list(list(b"", b"").into());
        let mirror = api.mirror(Limits::default()).await;
        let is_cached = async |version: &str, accept| {
            get(&mirror, &format!("{WATCH}{version}"), accept).await.headers().contains_key(LAG)
        };
        let cache = mirror.first_resource().cache.clone();
        let mut json = get(&mirror, &format!("{WATCH}1000"), "application/json").await.into_body();
        let mut protobuf =
            get(&mirror, &format!("{WATCH}1000"), "application/vnd.kubernetes.protobuf").await.into_body();
        for (version, elsewhere) in [("1001", &b""[..]), ("1002", &field(15, b"new"))] {
            api.send(modified(&config_map("a", version, b"", elsewhere)).into());
            cache.wait_for_resource_version(version).await.unwrap();
        }
        let first = json.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(br#"{"type":"MODIFIED""#), "{first:?}");
        assert!(json.frame().await.is_none(), "it ends without a bookmark, so that the reader resumes at version 1001");
        for _ in 0..2 {
            assert!(protobuf.frame().await.unwrap().is_ok());
        }
        for (version, accept, expected) in [
            ("1001", "application/json", false),
            ("1002", "application/json", false),
            ("1001", "application/vnd.kubernetes.protobuf", true),
        ] {
            assert_eq!(is_cached(version, accept).await, expected, "{version} {accept}");
        }
        // Once the field is gone, only readers from before meet the change.
        api.send(modified(&config_map("a", "1003", b"", b"")).into());
        cache.wait_for_resource_version("1003").await.unwrap();
        assert!(!is_cached("1001", "application/json").await);
        assert!(is_cached("1002", "application/json").await);
    }
}
