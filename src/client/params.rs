//! The parameters of lists and watches, checked before anything is sent.

use std::fmt::Write;
use std::time::Duration;

use super::resource::{Resource, encode};
use crate::error::InvalidInput;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::object::shard::Shard;
use crate::object::version::is_resumable;
use crate::object::{FieldSelector, ItemRef, LabelSelector};

/// The objects of a collection that a list, a watch or a reflector requests, and their form.
///
/// The default is all objects, whole. Every selector that is set must select an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    shard: Option<Shard>,
    metadata_only: bool,
    json: bool,
}

impl Selection {
    /// Selects all objects: the default.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects objects by their labels.
    #[must_use]
    pub fn labels(mut self, selector: LabelSelector) -> Self {
        self.labels = selector;
        self
    }

    /// Selects objects by their fields. The server returns 400 for a field by which it cannot select the resource.
    #[must_use]
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.fields = selector;
        self
    }

    /// Selects the objects of one shard (KEP-5866, alpha in 1.36).
    ///
    /// A server without shards sends all objects. The client then leaves out objects of other shards: a list counts them in
    /// [`ListSummary::other_shards`](super::ListSummary::other_shards). In a watch no server reports whether it supports shards, so
    /// the client checks each object.
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Requests only the metadata of each object: the objects are `PartialObjectMetadata`, in protobuf for custom resources
    /// too.
    ///
    /// A server that cannot send them returns 406. The client then requests them in JSON, but never whole objects
    /// instead.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Requests JSON even where the server has protobuf, which is smaller and faster. A list of [`Json`](crate::Json)
    /// requests JSON without this call.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    #[doc(hidden)]
    pub fn json_if(mut self, json: bool) -> Self {
        self.json |= json;
        self
    }

    pub(super) fn shard_of(&self) -> Option<Shard> {
        self.shard
    }

    /// Returns the type meta of the objects that a server sends for this selection: the resource's, or with
    /// [`metadata_only`](Self::metadata_only) `PartialObjectMetadata` of `meta.k8s.io/v1`.
    #[must_use]
    pub fn type_meta(&self, resource: &Resource) -> TypeMeta {
        if self.metadata_only {
            TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata")
        } else {
            TypeMeta::new(resource.api_version(), resource.kind())
        }
    }

    #[doc(hidden)]
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// Returns true if the server would send the object. `item` must be the whole object.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object is malformed, or a field selector is not supported.
    #[doc(hidden)]
    pub fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let meta = item.meta()?;
        Ok(self.labels.matches(&meta)?
            && self.fields.matches(item)?
            && self.shard.is_none_or(|shard| shard.contains(&meta.uid())))
    }

    /// Refuses selectors that the server would refuse, or parse as other selectors.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let of = |selector| {
            move |error: InvalidInput| InvalidInput::new(format!("{selector} selector: {error}"), error.text())
        };
        self.labels.validate().map_err(of("label"))?;
        self.fields.validate().map_err(of("field"))
    }

    /// The selectors as a query string, without `?`.
    pub(super) fn query(&self) -> Query {
        let mut query = Query::default();
        if !self.labels.is_empty() {
            query.add("labelSelector", &self.labels.to_string());
        }
        if !self.fields.is_empty() {
            query.add("fieldSelector", &self.fields.to_string());
        }
        if let Some(shard) = self.shard {
            query.add("shardSelector", &shard.selector());
        }
        query
    }

    /// Identifies the selection in a file: a cache that was saved with another selection is not loaded.
    #[doc(hidden)]
    pub fn fingerprint(&self) -> String {
        format!("{} as {}", self.query().0, self.accept_list())
    }

    /// The `Accept` header of a list: protobuf if the server has it, or else JSON, as for whole custom resources.
    pub(super) fn accept_list(&self) -> String {
        self.accept("PartialObjectMetadataList")
    }

    /// Accepts only JSON, in a form that each server has: as whole objects, or as metadata if only that is selected.
    pub(super) fn plain_json(self) -> Self {
        Self { json: true, ..self }
    }

    /// The `Accept` header of a watch, which sends single objects.
    pub(super) fn accept_watch(&self) -> String {
        self.accept("PartialObjectMetadata")
    }

    fn accept(&self, metadata_kind: &str) -> String {
        let form = if self.metadata_only { format!(";as={metadata_kind};g=meta.k8s.io;v=v1") } else { String::new() };
        let json = format!("application/json{form}");
        if self.json { json } else { format!("application/vnd.kubernetes.protobuf{form},{json}") }
    }
}

/// The parameters of a list: the objects, their version, and the page size.
///
/// The default is the whole collection in one response, at the most recent version.
///
/// ```
/// use listwatch::client::{ListParams, ResourceVersion, Selection};
///
/// let web = Selection::default().labels("app=web".parse()?);
/// let params = ListParams::new(web).resource_version(ResourceVersion::Any);
/// let paged = ListParams::default().page_size(500);
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListParams {
    pub(super) selection: Selection,
    pub(super) resource_version: ResourceVersion,
    pub(super) page_size: Option<u32>,
    pub(super) timeout: Option<Duration>,
}

impl ListParams {
    /// Lists these objects, in one response, at the most recent version.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Sets how new the list must be: [`ResourceVersion::MostRecent`] unless set.
    #[must_use]
    pub fn resource_version(mut self, version: ResourceVersion) -> Self {
        self.resource_version = version;
        self
    }

    /// Requests the list in pages of this many items, one page after the other: in one response unless set.
    ///
    /// If a server or a proxy sends pages without this request, the client follows them too. All pages of an API server
    /// are of one version. With [`ResourceVersion::Any`] servers ignore the page size and send the whole collection.
    #[must_use]
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// Sets the time after which the server ends a response, which includes the time that the client takes to read it. It
    /// must be whole seconds.
    ///
    /// A server limits it to its own `--request-timeout`, 60 s by default. The client sends `timeout`, which applies to lists
    /// (apiserver `filters/request_deadline.go`), and `timeoutSeconds`, which is documented but applies to watches only.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses parameters for which the server returns 400 or 422, and values that it would interpret in another way.
    ///
    /// The server's rules are in apimachinery `internalversion/validation.ValidateListOptions` and apiserver
    /// `storage.ValidateListOptions`.
    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        self.selection.validate()?;
        match &self.resource_version {
            ResourceVersion::Exact(version) => check_exact(version)?,
            ResourceVersion::AtLeast(version) => check_version(version)?,
            ResourceVersion::MostRecent | ResourceVersion::Any => {}
        }
        if self.page_size == Some(0) {
            // The server would send all items.
            return Err(InvalidInput::new("page size 0", ""));
        }
        check_timeout(self.timeout)
    }

    /// The query string of the first page, or of the page that a continue token names. The token holds the version: the server
    /// refuses a version in addition to a token.
    pub(super) fn query(&self, continue_token: Option<&str>) -> String {
        let mut query = self.selection.query();
        if let Some(items) = self.page_size {
            query.add("limit", &items.to_string());
        }
        match (continue_token, &self.resource_version) {
            (Some(token), _) => query.add("continue", token),
            (None, ResourceVersion::MostRecent) => {}
            (None, ResourceVersion::Any) => query.add("resourceVersion", "0"),
            (None, ResourceVersion::AtLeast(version)) => {
                query.add("resourceVersion", version);
                query.add("resourceVersionMatch", "NotOlderThan");
            }
            (None, ResourceVersion::Exact(version)) => {
                query.add("resourceVersion", version);
                query.add("resourceVersionMatch", "Exact");
            }
        }
        if let Some(timeout) = self.timeout {
            query.add("timeout", &format!("{}s", timeout.as_secs()));
            query.add("timeoutSeconds", &timeout.as_secs().to_string());
        }
        query.0
    }
}

/// The parameters of a watch: the objects, and where the watch begins.
///
/// ```
/// use listwatch::client::{Selection, WatchParams};
///
/// let changes = WatchParams::from_now();
/// let since = WatchParams::from_version("71532");
/// let web = Selection::default().labels("app=web".parse()?);
/// let state_and_changes = WatchParams::with_initial_state().selection(web);
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchParams {
    pub(super) selection: Selection,
    pub(super) start: WatchStart,
    pub(super) timeout: Option<Duration>,
}

/// Where a watch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchStart {
    Now,
    /// After this version.
    Version(String),
    /// With the objects of a collection at this version, which is never [`ResourceVersion::Exact`].
    State(ResourceVersion),
}

impl WatchParams {
    /// Watches changes from now on.
    ///
    /// The client first lists one object of the collection, to get the current version.
    #[must_use]
    pub fn from_now() -> Self {
        Self::new(WatchStart::Now)
    }

    /// Watches changes after this version, which comes from a list or an earlier watch.
    #[must_use]
    pub fn from_version(version: impl Into<String>) -> Self {
        Self::new(WatchStart::Version(version.into()))
    }

    /// Watches the collection: each object as [`OwnedEvent::Added`](super::OwnedEvent::Added), then
    /// [`OwnedEvent::Synced`](super::OwnedEvent::Synced), then changes (KEP-3157, on by default from 1.34).
    ///
    /// The objects are as new as in a list of [`ResourceVersion::MostRecent`]. Servers without initial events refuse the
    /// request or never send the bookmark after the objects: a [`Watch`](super::Watch) then lists the collection.
    #[must_use]
    pub fn with_initial_state() -> Self {
        Self::new(WatchStart::State(ResourceVersion::MostRecent))
    }

    /// Watches the collection as [`with_initial_state`](Self::with_initial_state) does, but its objects need only be as new as
    /// this version, and with version `0` of any age.
    #[must_use]
    pub fn with_initial_state_at_least(version: impl Into<String>) -> Self {
        Self::new(WatchStart::State(match version.into() {
            version if version == "0" => ResourceVersion::Any,
            version => ResourceVersion::AtLeast(version),
        }))
    }

    fn new(start: WatchStart) -> Self {
        Self { selection: Selection::default(), start, timeout: None }
    }

    /// Sets which objects are watched: all unless set.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets the time after which the server ends a connection: 5 to 10 minutes at random unless set. It must be whole
    /// seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        self.selection.validate()?;
        match &self.start {
            WatchStart::Version(version) => check_exact(version)?,
            WatchStart::State(ResourceVersion::AtLeast(version)) => check_version(version)?,
            WatchStart::State(_) | WatchStart::Now => {}
        }
        check_timeout(self.timeout)
    }

    /// The query string of a connection that begins here.
    pub(super) fn query(&self, start: &WatchStart, bookmarks: bool, timeout: Duration) -> String {
        let mut query = self.selection.query();
        query.add("watch", "1");
        if bookmarks || matches!(start, WatchStart::State(_)) {
            query.add("allowWatchBookmarks", "true");
        }
        if let WatchStart::State(_) = start {
            query.add("sendInitialEvents", "true");
            query.add("resourceVersionMatch", "NotOlderThan");
        }
        let version = match start {
            WatchStart::Version(version)
            | WatchStart::State(ResourceVersion::AtLeast(version) | ResourceVersion::Exact(version)) => version,
            WatchStart::State(ResourceVersion::Any) => "0",
            WatchStart::State(ResourceVersion::MostRecent) | WatchStart::Now => "",
        };
        query.add("resourceVersion", version);
        query.add("timeoutSeconds", &timeout.as_secs().to_string());
        query.0
    }
}

/// A query string that is being written.
#[derive(Default)]
pub(super) struct Query(pub(super) String);

impl Query {
    fn add(&mut self, key: &str, value: &str) {
        let and = if self.0.is_empty() { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{and}{key}={}", encode(value));
    }
}

/// kube-apiserver `--request-timeout`.
pub(super) const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Versions are opaque (KEP-5504): a server may send any text.
fn check_version(version: &str) -> Result<(), InvalidInput> {
    if version.is_empty() {
        return Err(InvalidInput::of("resource version", version, "it must not be empty"));
    }
    Ok(())
}

/// The server takes 0 for "no version": it returns 422 for a list, and starts a watch at any version.
fn check_exact(version: &str) -> Result<(), InvalidInput> {
    check_version(version)?;
    if !is_resumable(version) {
        let reason = r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
        return Err(InvalidInput::new(reason, version));
    }
    Ok(())
}

/// The largest timeout: the server parses it as Go's `time.Duration`.
const MAX_TIMEOUT_SECONDS: u64 = 9_223_372_036;

/// The server uses its own timeout for 0, and returns 400 for a timeout that is too long. `timeoutSeconds` has no fractions.
fn check_timeout(timeout: Option<Duration>) -> Result<(), InvalidInput> {
    match timeout {
        Some(timeout) if timeout.subsec_nanos() != 0 || !(1..=MAX_TIMEOUT_SECONDS).contains(&timeout.as_secs()) => {
            let reason = format!("timeout {timeout:?}: it must be whole seconds, from 1 to {MAX_TIMEOUT_SECONDS}");
            Err(InvalidInput::new(reason, ""))
        }
        _ => Ok(()),
    }
}

/// How new a list must be. It also decides whether etcd or the watch cache serves the list.
///
/// | version | before 1.31 | 1.31 to 1.33 | since 1.34 |
/// |---|---|---|---|
/// | `MostRecent` | etcd | watch cache, caught up with etcd | watch cache, caught up with etcd |
/// | `Any` | watch cache, of any age | watch cache, of any age | watch cache, of any age |
/// | `AtLeast` | watch cache at that version; etcd with a page size | watch cache at that version | watch cache at that version |
/// | `Exact`, and all pages but the first | etcd | etcd | snapshot in the watch cache, else etcd |
///
/// A list from etcd is read and decoded for this one request, which costs etcd and the server memory and time in proportion to
/// the collection. A list from the watch cache costs the server the encoding alone.
///
/// "Caught up" takes up to 3 s; after that, and with etcd before 3.4.31 or 3.5.13, etcd serves the list. `AtLeast("0")` is
/// `Any`. A resource without a watch cache (`--watch-cache-sizes` of 0, as events have by default, or `--watch-cache=false`)
/// always comes from etcd. While a cache is being filled, lists with a page size and no selector come from etcd, and others
/// get 429 (1.31 and later). The table follows apiserver `cacher/delegator` (`ShouldDelegateList`) with default feature
/// gates: `ConsistentListFromCache` from 1.31 and `ListFromCacheSnapshot` from 1.34.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ResourceVersion {
    /// Everything that was written before the request: `resourceVersion` is left out.
    ///
    /// The default, because any other list may lack objects that the caller has just written (KEP-2340).
    #[default]
    MostRecent,
    /// The contents of the watch cache, of any age: `resourceVersion=0`. It is the cheapest list, but it may be older than an
    /// earlier list from another server, and page sizes are ignored.
    Any,
    /// This version or a newer version: `resourceVersionMatch=NotOlderThan`. If the server does not reach that version within
    /// 3 s, it returns 504 with the cause `ResourceVersionTooLarge`.
    AtLeast(String),
    /// Exactly this version: `resourceVersionMatch=Exact`. If etcd has compacted it, the server returns 410.
    Exact(String),
}

impl ResourceVersion {
    /// Returns true if the server ignores page sizes.
    pub(super) fn is_any(&self) -> bool {
        match self {
            Self::Any => true,
            Self::AtLeast(version) => version == "0",
            Self::MostRecent | Self::Exact(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> ResourceVersion {
        ResourceVersion::Exact(text.to_owned())
    }

    fn at_least(text: &str) -> ResourceVersion {
        ResourceVersion::AtLeast(text.to_owned())
    }

    #[test]
    fn list_queries_have_the_servers_parameters() {
        let params = ListParams::default;
        let version = |version| params().resource_version(version);
        let labels: LabelSelector = "tier in (a,b),!c".parse().unwrap();
        let fields: FieldSelector = r"metadata.name=a\,b&c".parse().unwrap();
        let selected = |selection: Selection| ListParams::new(selection);
        for (params, token, expected) in [
            (params(), None, ""),
            (selected(Selection::all().labels(labels)), None, "labelSelector=%21c%2Ctier%20in%20%28a%2Cb%29"),
            (selected(Selection::all().fields(fields)), None, "fieldSelector=metadata.name%3Da%5C%2Cb%26c"),
            (params().page_size(500), None, "limit=500"),
            (params(), Some("eyJ2_-"), "continue=eyJ2_-"),
            (params(), Some("a+b/c=d&"), "continue=a%2Bb%2Fc%3Dd%26"),
            (version(ResourceVersion::MostRecent), None, ""),
            (version(ResourceVersion::Any), None, "resourceVersion=0"),
            (version(at_least("7")), None, "resourceVersion=7&resourceVersionMatch=NotOlderThan"),
            (version(exact("7")), None, "resourceVersion=7&resourceVersionMatch=Exact"),
            (params().timeout(Duration::from_secs(30)), None, "timeout=30s&timeoutSeconds=30"),
            (selected(Selection::all().metadata_only().json()), None, ""),
            (
                selected(Selection::all().shard(Shard::new(1, 2).unwrap())),
                None,
                "shardSelector=shardRange%28object.metadata.uid%2C%20%270x8000000000000000%27%2C%20\
                 %270x10000000000000000%27%29",
            ),
            (
                selected(Selection::all().fields("a=b".parse().unwrap()).labels("c".parse().unwrap()))
                    .resource_version(exact("9"))
                    .timeout(Duration::from_secs(1))
                    .page_size(2),
                None,
                "labelSelector=c&fieldSelector=a%3Db&limit=2&resourceVersion=9&resourceVersionMatch=Exact\
                 &timeout=1s&timeoutSeconds=1",
            ),
            // A version is never sent with a token.
            (version(ResourceVersion::Any), Some("t"), "continue=t"),
            (version(exact("9")).page_size(2), Some("t"), "limit=2&continue=t"),
            (version(at_least("9")), Some("u"), "continue=u"),
        ] {
            assert_eq!(params.query(token), expected);
        }
    }

    #[test]
    fn refuses_what_the_server_refuses() {
        let seconds = Duration::from_secs;
        let params = ListParams::default;
        let version = |version| params().resource_version(version);
        for (params, expected) in [
            (
                version(exact("0")),
                r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ),
            (
                version(exact("00")),
                r#"exact version 0: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
            ),
            (version(exact("")), r#"invalid resource version "": it must not be empty"#),
            (version(at_least("")), r#"invalid resource version "": it must not be empty"#),
            (params().page_size(0), "page size 0"),
            (params().timeout(seconds(0)), "timeout 0ns: it must be whole seconds, from 1 to 9223372036"),
            (
                params().timeout(Duration::from_millis(1500)),
                "timeout 1.5s: it must be whole seconds, from 1 to 9223372036",
            ),
            (
                params().timeout(seconds(MAX_TIMEOUT_SECONDS + 1)),
                "timeout 9223372037s: it must be whole seconds, from 1 to 9223372036",
            ),
        ] {
            assert_eq!(params.validate().map_err(|error| error.to_string()), Err(expected.to_owned()), "{params:?}");
        }
        for params in [
            params(),
            version(ResourceVersion::Any).page_size(1),
            version(at_least("0")),
            version(at_least("7")).page_size(1),
            // Versions may exceed u64, and may be any text.
            version(exact("99999999999999999999999")),
            version(exact("opaque-1")),
            version(at_least("-1")),
            params().timeout(seconds(1)),
            params().timeout(seconds(MAX_TIMEOUT_SECONDS)),
        ] {
            assert_eq!(params.validate(), Ok(()), "{params:?}");
        }
    }

    #[test]
    fn accept_headers_name_the_requested_form() {
        let lists = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let objects = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (selection, list, watch) in [
            (Selection::all(), String::new(), String::new()),
            (Selection::all().metadata_only(), lists.to_owned(), objects.to_owned()),
        ] {
            let both = |form: &str| format!("application/vnd.kubernetes.protobuf{form},application/json{form}");
            assert_eq!((selection.accept_list(), selection.accept_watch()), (both(&list), both(&watch)));
            assert_eq!(selection.json().accept_list(), format!("application/json{list}"));
        }
    }
}
