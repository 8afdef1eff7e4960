//! [`watcher`](fn@watcher) replaces `kube::runtime::watcher`. It has the same arguments, events and errors, but decodes each
//! object as soon as it has arrived; kube reads a whole page of the list before it decodes it. [`metadata_watcher`] replaces
//! kube's in the same way.
//!
//! [`Watcher::projection`] drops fields before objects are decoded. Drop `metadata.managedFields` unless you read them: in the Pods
//! of a real API server they take more than half of the memory and of the time of decoding. Without a projection this watcher saves
//! no memory of kube's store, and takes about as much CPU time as kube's: see the [guide](crate::guide#kubes-store-without-managedfields).
//!
//! The names are the same as in kube, so where you call kube's `watcher` only the import changes, and the call to `projection` is added:
//!
//! ```
//! use futures::TryStreamExt as _;
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::runtime::{WatchStreamExt as _, reflector};
//! use kube::{Api, Client};
//! use listwatch::Projection;
//! use listwatch::path::meta;
//! // In place of `use kube::runtime::watcher`.
//! use listwatch_kube::runtime::watcher;
//!
//! # async fn run(client: Client) -> Result<(), watcher::Error> {
//! let (pods, writer) = reflector::store::<Pod>();
//! let events = watcher(Api::all(client), watcher::Config::default().streaming_lists())
//!     .projection(Projection::new().drop(&meta::MANAGED_FIELDS))
//!     .default_backoff();
//! let mut applied = std::pin::pin!(reflector(writer, events).applied_objects());
//! while let Some(pod) = applied.try_next().await? {
//!     println!("{:?}, one of {}", pod.metadata.name, pods.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In place of `Controller::new`, `Controller::for_stream` accepts such a stream, after `reflect` and `applied_objects`. It needs kube's feature `unstable-runtime`, which this
//! crate does not enable. The [guide](crate::guide#kubes-store-without-managedfields) has the whole change.
//!

use std::cmp::Ordering;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use kube::api::{Api, ListMeta, PartialObjectMeta, ResourceExt as _};
use kube::core::request;
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};
/// kube's module: `Config`, `Event`, `Error` and the rest. The functions in it are kube's own.
pub use kube::runtime::watcher::{self};
use kube::runtime::watcher::{Config, Error as WatcherError, Event, InitialListStrategy, ListSemantic};
use listwatch::Fault;
use listwatch::client::{
    Client, Compression, Error, ErrorKind, List, ListParams, OwnedEvent, Resource, ResourceVersion, Retry, Selection,
    TransportErrorKind, WatchEvents, WatchParams,
};
use listwatch::{DecodeErrorKind, Encoding, ItemError, ItemRef, Projection, compare_resource_versions};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};

use crate::KubeTransport;

/// kube's default timeout of a watch.
const TIMEOUT: Duration = Duration::from_secs(290);

/// The buffer of projected objects is shrunk to this capacity.
const KEPT_COPY: usize = 64 << 10;

/// Replaces a timeout of 0, for which a server chooses 30 to 60 minutes.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

/// Watches a collection until the stream is dropped. This function replaces kube's [`watcher`](fn@kube::runtime::watcher).
///
/// Everything from [`Event::Init`] to [`Event::InitDone`] is the complete collection. An error is an item, after which the
/// stream resumes when it is polled: after the last event, or with [`Event::Init`] if that is no longer possible. It never
/// retries before it has delivered the error, so apply a backoff
/// ([`default_backoff`](kube::runtime::WatchStreamExt::default_backoff)).
///
/// The watcher keeps one object and a chunk of the body in memory, whatever [`page_size`](Config::page_size) is; without a page size
/// the list is one request. Objects are delivered while the response arrives, so the consumer must read a page, or without pages
/// the whole list, within the server's request timeout, 60 s by default.
///
/// kube enables no keepalive on its connections, so a dead connection is detected after the [idle timeout] of the watch.
///
/// [idle timeout]: listwatch::client::Watch::idle_timeout
///
/// Other differences from kube's:
///
/// - If an object of a list cannot be decoded, or the list is interrupted, the objects before it were delivered.
/// - [`ListSemantic::Any`] requests the whole watch cache. kube does so only without a page size.
/// - A `timeout` of 0 is an hour. A connection may be closed as dead before its timeout: see
///   [`Watch::idle_timeout`](listwatch::client::Watch::idle_timeout).
/// - If the server returns 410 for a watch, the collection is relisted; kube requests the same version for ever.
/// - An object of a watch that cannot be decoded causes a [`SerdeError`](kube::Error::SerdeError) with the reason; kube reports
///   an empty `Status`.
/// - A selector or a path that the server would refuse is not sent: the error is [`BuildRequest`](kube::Error::BuildRequest).
/// - Every other error, except an API error, is a [`Service`](kube::Error::Service) that contains an [`Error`]: for example that an
///   object or a frame exceeds 16 MiB.
pub fn watcher<K>(api: Api<K>, config: Config) -> Watcher<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Watcher::new(api, config)
}

/// Watches the metadata of a collection until the stream is dropped. This function replaces kube's
/// [`metadata_watcher`](kube::runtime::metadata_watcher). kube 5 deprecates its function: a watcher over
/// `Api<PartialObjectMeta<K>>` does the same, also with this crate's [`watcher`](fn@watcher).
///
/// The server sends only the metadata of each object. The metadata includes the managed fields, which
/// [`Watcher::projection`] can drop. [`watcher`](fn@watcher) lists the differences from kube's watchers.
pub fn metadata_watcher<K>(api: Api<K>, config: Config) -> Watcher<PartialObjectMeta<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Watcher::new(api, config)
}

/// The stream of events that [`watcher`](fn@watcher) and [`metadata_watcher`] return.
///
/// Nothing is sent before it is polled.
#[must_use = "nothing is sent until it is polled"]
pub struct Watcher<K> {
    source: Source,
    /// `None` before the first poll.
    events: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
}

impl<K> Watcher<K> {
    fn new<A: kube::Resource>(api: Api<A>, config: Config) -> Self {
        let (path, namespace) = (api.resource_url().to_owned(), api.namespace().map(str::to_owned));
        let client = Client::new(KubeTransport::new(api.into_client())).retry(Retry::never());
        Self { source: Source { client, path, namespace, config, projection: None }, events: None }
    }

    /// Drops fields of each object before it is decoded, in lists, streaming lists and watches.
    ///
    /// The fields are removed from the JSON of one object at a time, so they never reach serde and take no memory afterwards. The
    /// projection changes neither the requests nor the sequence of events: the server still sends the fields.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::{Api, Client};
    /// use listwatch::Projection;
    /// use listwatch::path::{meta, pod};
    /// use listwatch_kube::runtime::watcher;
    ///
    /// # fn watch(client: Client) {
    /// let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&meta::LAST_APPLIED).drop(&pod::STATUS);
    /// let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).projection(slim);
    /// # }
    /// ```
    ///
    /// The watcher copies each object's remaining JSON into a buffer. It keeps a buffer of up to 64 KiB for the next object. The
    /// [guide](crate::guide#kubes-store-without-managedfields) has measured figures.
    ///
    /// It replaces an earlier projection. If the stream was polled before, it starts over with [`Event::Init`].
    ///
    /// # Errors
    ///
    /// The watcher sends nothing and returns [`BuildRequest`](kube::Error::BuildRequest) as its first error if the projection
    /// drops the name, namespace, uid or resource version, which kube's stores and the watcher need, or if a path has no names for
    /// JSON. A projection that [keeps](Projection::keep) only some fields must also keep `FieldPath::new("metadata", &[1])`.
    ///
    /// A field that `K` requires, such as the `spec` of a type that derives `CustomResource`, must not be dropped: each object would
    /// be a [`SerdeError`](kube::Error::SerdeError). Columns in such errors count in the remaining JSON.
    pub fn projection(self, projection: Projection) -> Self {
        Self { source: Source { projection: Some(Arc::new(projection)), ..self.source }, events: None }
    }
}

impl<K> Stream for Watcher<K>
where
    K: kube::Resource + DeserializeOwned + Send + 'static,
{
    type Item = watcher::Result<Event<K>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { source, events } = &mut *self;
        let events = events.get_or_insert_with(|| {
            let machine = Machine { source: source.clone(), state: State::Empty };
            let events = unfold(machine, |mut machine| async {
                let event = machine.next().await;
                Some((event, machine))
            });
            events.boxed()
        });
        events.poll_next_unpin(cx)
    }
}

impl<K> Debug for Watcher<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("path", &self.source.path).finish_non_exhaustive()
    }
}

/// What is watched, and how.
#[derive(Clone)]
struct Source {
    client: Client,
    path: String,
    namespace: Option<String>,
    config: Config,
    /// Checked before each request.
    projection: Option<Arc<Projection>>,
}

struct Machine<K: DeserializeOwned + Send + 'static> {
    source: Source,
    state: State<K>,
}

/// Returns a decoding error as the item, so that it does not end the watch, as in kube.
///
/// Objects are boxed because they may have several kilobytes, which each layer of the stream would copy.
type Decode<K> = Box<dyn FnMut(ItemRef<'_>) -> Result<serde_json::Result<Box<K>>, ItemError> + Send>;
type Events<K> = WatchEvents<Decode<K>>;

/// ```text
/// Empty ──> Init ──> Listing ──> Listed <──> Watching
///   │                                           ^
///   └──────────────> Streaming ─────────────────┘
/// ```
///
/// After an error the state is `Empty`. Exceptions: `Listed` and `Watching` continue with `Listed`, unless the version is expired or
/// missing, and an object of a watch that cannot be decoded does not change the state.
#[derive(Default)]
enum State<K: DeserializeOwned + Send + 'static> {
    #[default]
    Empty,
    /// A list is requested next.
    Init,
    Listing(Box<List<Decode<K>>>),
    /// The initial events of a watch.
    Streaming(Events<K>),
    /// All events up to this version were delivered.
    Listed(String),
    Watching(Events<K>, String),
}

impl<K> Machine<K>
where
    K: kube::Resource + DeserializeOwned + Send + 'static,
{
    async fn next(&mut self) -> watcher::Result<Event<K>> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// Advances the state, and returns the event of this step, if there is one.
    async fn step(&mut self) -> watcher::Result<Option<Event<K>>> {
        match mem::take(&mut self.state) {
            State::Empty if self.source.config.initial_list_strategy == InitialListStrategy::ListWatch => {
                self.state = State::Init;
                Ok(Some(Event::Init))
            }
            State::Empty => {
                let events = self.source.watch(None).await.map_err(WatcherError::WatchStartFailed)?;
                self.state = State::Streaming(events);
                Ok(Some(Event::Init))
            }
            State::Init => {
                let list = self.source.list().map_err(WatcherError::InitialListFailed)?;
                self.state = State::Listing(Box::new(list));
                Ok(None)
            }
            State::Listing(mut items) => match items.next().await {
                Some(Ok(item)) => {
                    let item = item.map_err(|error| WatcherError::InitialListFailed(kube::Error::SerdeError(error)))?;
                    self.state = State::Listing(items);
                    Ok(Some(Event::InitApply(*item)))
                }
                Some(Err(error)) => Err(WatcherError::InitialListFailed(kube_error(error))),
                None => {
                    let version = items.summary().map(|summary| summary.list_meta.resource_version.clone());
                    // From version 0 a watch would begin with the collection.
                    let version = version.filter(|version| !version.is_empty() && version != "0");
                    self.state = State::Listed(version.ok_or(WatcherError::NoResourceVersion)?);
                    Ok(Some(Event::InitDone))
                }
            },
            State::Streaming(mut events) => match events.next().await {
                Some(Ok(OwnedEvent::Added(object) | OwnedEvent::Modified(object))) => {
                    self.state = State::Streaming(events);
                    Ok(Some(Event::InitApply(*object.map_err(undecodable)?)))
                }
                Some(Ok(OwnedEvent::Synced { resource_version })) => {
                    self.state = State::Watching(events, resource_version);
                    Ok(Some(Event::InitDone))
                }
                Some(Ok(OwnedEvent::Bookmark { .. })) => {
                    self.state = State::Streaming(events);
                    Ok(None)
                }
                // Servers send no deletion among the initial events. Delivered objects cannot be withdrawn, so start over.
                Some(Ok(_)) | None => Ok(None),
                Some(Err(error)) => interruption(error).map_or(Ok(None), Err),
            },
            State::Listed(version) => match self.source.watch(Some(&version)).await {
                Ok(events) => {
                    self.state = State::Watching(events, version);
                    Ok(None)
                }
                Err(error) => {
                    if !matches!(&error, kube::Error::Api(status) if status.code == 410) {
                        self.state = State::Listed(version);
                    }
                    Err(WatcherError::WatchStartFailed(error))
                }
            },
            State::Watching(mut events, version) => match events.next().await {
                Some(Ok(OwnedEvent::Added(object) | OwnedEvent::Modified(object))) => {
                    self.changed(events, version, object).map(|object| Some(Event::Apply(*object)))
                }
                Some(Ok(OwnedEvent::Deleted(object))) => {
                    self.changed(events, version, object).map(|object| Some(Event::Delete(*object)))
                }
                Some(Ok(OwnedEvent::Bookmark { resource_version } | OwnedEvent::Synced { resource_version })) => {
                    self.state = State::Watching(events, newer(version, resource_version));
                    Ok(None)
                }
                Some(Ok(_)) | None => {
                    self.state = State::Listed(version);
                    Ok(None)
                }
                Some(Err(error)) => {
                    let is_expired = error.is_expired();
                    let error = interruption(error);
                    if !is_expired && !matches!(error, Some(WatcherError::NoResourceVersion)) {
                        self.state = State::Listed(version);
                    }
                    error.map_or(Ok(None), Err)
                }
            },
        }
    }

    /// Returns the object of an event after this version. The watch continues, also after an object that cannot be decoded.
    fn changed(
        &mut self,
        events: Events<K>,
        version: String,
        object: serde_json::Result<Box<K>>,
    ) -> watcher::Result<Box<K>> {
        match object {
            Ok(object) => {
                let changed = object.resource_version().ok_or(WatcherError::NoResourceVersion)?;
                self.state = State::Watching(events, newer(version, changed));
                Ok(object)
            }
            Err(error) => {
                self.state = State::Watching(events, version);
                Err(undecodable(error))
            }
        }
    }
}

impl Source {
    fn list<K: kube::Resource + DeserializeOwned + 'static>(&self) -> kube::Result<List<Decode<K>>> {
        let (version, pages) = match self.config.list_semantic {
            ListSemantic::MostRecent => (ResourceVersion::MostRecent, self.config.page_size.filter(|items| *items > 0)),
            // At version 0, servers ignore page sizes.
            ListSemantic::Any => (ResourceVersion::AtLeast("0".to_owned()), None),
        };
        let mut params = ListParams::new(self.selection(K::metadata_api())?).resource_version(version);
        if let Some(items) = pages {
            params = params.page_size(items);
        }
        let list = self.client.list_with(&self.resource()?, &params, self.decode()?);
        Ok(match &self.namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        })
    }

    /// Opens a watch that resumes from this version, or that begins with the initial events if there is none.
    async fn watch<K>(&self, version: Option<&str>) -> kube::Result<Events<K>>
    where
        K: kube::Resource + DeserializeOwned + 'static,
    {
        let timeout = match self.config.timeout {
            None => TIMEOUT,
            Some(0) => LONG_TIMEOUT,
            Some(seconds) => Duration::from_secs(seconds.into()),
        };
        let params = match version {
            Some(version) => WatchParams::from_version(version),
            None => WatchParams::with_initial_state_at_least("0"),
        };
        let params = params.selection(self.selection(K::metadata_api())?).timeout(timeout);
        // kube requests no compression either: its decompression stops after the first gzip member.
        let client = self.client.clone().compression(Compression::Identity);
        let watch = client.watch_with(&self.resource()?, &params, self.decode()?);
        let mut watch = watch.bookmarks(self.config.bookmarks);
        if let Some(namespace) = &self.namespace {
            watch = watch.namespace(namespace);
        }
        if version.is_none() && !self.config.bookmarks {
            return Err(invalid("initial events end in a bookmark, but bookmarks are disabled"));
        }
        watch.open().await.map_err(kube_error)
    }

    fn selection(&self, metadata_only: bool) -> kube::Result<Selection> {
        let Config { label_selector, field_selector, .. } = &self.config;
        let labels = label_selector.as_deref().unwrap_or_default().parse().map_err(invalid)?;
        let fields = field_selector.as_deref().unwrap_or_default().parse().map_err(invalid)?;
        let selection = Selection::all().json().labels(labels).fields(fields);
        Ok(if metadata_only { selection.metadata_only() } else { selection })
    }

    fn decode<K: DeserializeOwned + 'static>(&self) -> kube::Result<Decode<K>> {
        self.projection.as_deref().map_or(Ok(()), check)?;
        let projection = self.projection.clone();
        let mut copy = Vec::new();
        Ok(Box::new(move |item| {
            let decoded = match projection.as_deref() {
                None => decode(item),
                Some(projection) => decode_projected(item, projection, &mut copy),
            };
            Ok(decoded)
        }))
    }

    /// Returns the resource of the path, with an empty kind, because an `Api` does not expose the kind.
    fn resource(&self) -> kube::Result<Resource> {
        let mut segments = self.path.split('/').skip(1);
        let mut next = || segments.next().unwrap_or_default().to_owned();
        let group = if next() == "api" { String::new() } else { next() };
        let version = next();
        Ok(Resource::new(
            group,
            version,
            segments.last().ok_or_else(|| invalid("the path is not a path of a collection"))?.to_owned(),
            "",
        ))
    }
}

/// Refuses a projection that does not apply to JSON, or drops metadata that the watcher or kube's stores need.
fn check(projection: &Projection) -> kube::Result<()> {
    let object = br#"{"metadata":{"name":"a","namespace":"a","uid":"a","resourceVersion":"1"}}"#;
    let copy = ItemRef::new(Encoding::Json, object).project(projection).map_err(invalid)?;
    let meta = ItemRef::new(Encoding::Json, &copy).meta().map_err(invalid)?;
    for (field, value) in [
        ("name", meta.name()),
        ("namespace", meta.namespace()),
        ("uid", meta.uid()),
        ("resourceVersion", meta.resource_version()),
    ] {
        if value.is_empty() {
            return Err(invalid(format!("the projection drops metadata.{field}, which a watcher needs")));
        }
    }
    Ok(())
}

/// Decodes the remaining JSON, which it copies into an empty buffer that serves many objects.
fn decode_projected<K: DeserializeOwned>(
    item: ItemRef<'_>,
    projection: &Projection,
    copy: &mut Vec<u8>,
) -> serde_json::Result<Box<K>> {
    let decoded = match item.project_into(projection, copy) {
        Ok(()) => decode(ItemRef::new(item.encoding(), copy)),
        // Returns serde's own error, as kube does.
        Err(error) => Err(serde_json::from_slice::<IgnoredAny>(item.bytes())
            .err()
            .unwrap_or_else(|| serde_json::Error::custom(error))),
    };
    copy.clear();
    copy.shrink_to(KEPT_COPY);
    decoded
}

fn decode<K: DeserializeOwned>(item: ItemRef<'_>) -> serde_json::Result<Box<K>> {
    item.decode_json().or_else(|error| match error {
        ItemError::DecodedSize { .. } => Err(serde_json::Error::custom(error)),
        // Returns serde's own error, as kube does.
        _ => serde_json::from_slice(item.bytes()).map(Box::new),
    })
}

/// Returns the later of two versions. The version of a deletion may be older than the version of the watch.
fn newer(version: String, other: String) -> String {
    if compare_resource_versions(&other, &version).is_some_and(Ordering::is_lt) { version } else { other }
}

/// Returns the error of an interrupted watch, or `None` if kube's watcher would resume without an error.
fn interruption(error: Error) -> Option<WatcherError> {
    match error.kind() {
        ErrorKind::Api { code, status, .. } => {
            return Some(WatcherError::WatchError(Box::new(of_server(*code, status))));
        }
        ErrorKind::Transport(error)
            if error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof)
                || error.kind() == TransportErrorKind::ReadIdle =>
        {
            return None;
        }
        ErrorKind::Decode(error) => match error.kind() {
            DecodeErrorKind::TruncatedFrame => return None,
            DecodeErrorKind::Malformed { field: "metadata.resourceVersion", fault: Fault::Missing } => {
                return Some(WatcherError::NoResourceVersion);
            }
            _ => {}
        },
        _ => {}
    }
    Some(WatcherError::WatchFailed(kube_error(error)))
}

fn undecodable(error: serde_json::Error) -> WatcherError {
    WatcherError::WatchFailed(kube::Error::SerdeError(error))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn invalid(reason: impl ToString) -> kube::Error {
    kube::Error::BuildRequest(request::Error::Validation(reason.to_string()))
}

fn kube_error(error: Error) -> kube::Error {
    match error.kind() {
        ErrorKind::Api { code, status, .. } => kube::Error::Api(Box::new(of_server(*code, status))),
        ErrorKind::Params(_) => invalid(error),
        _ => kube::Error::Service(Box::new(error)),
    }
}

fn of_server(code: u16, status: &listwatch::Status) -> Status {
    let listwatch::Status { metadata, status, message, reason, details, .. } = status.clone();
    let metadata = metadata.map(|meta| ListMeta {
        continue_: Some(meta.continue_token).filter(|token| !token.is_empty()),
        remaining_item_count: meta.remaining_item_count,
        resource_version: Some(meta.resource_version).filter(|version| !version.is_empty()),
        ..ListMeta::default()
    });
    let details = details.map(|details| StatusDetails {
        name: details.name,
        group: details.group,
        kind: details.kind,
        uid: details.uid,
        causes: details.causes.into_iter().map(cause).collect(),
        retry_after_seconds: details.retry_after_seconds.try_into().unwrap_or_default(),
    });
    let status = match &*status {
        "Success" => Some(StatusSummary::Success),
        "Failure" => Some(StatusSummary::Failure),
        _ => None,
    };
    Status { status, code, message, metadata, reason, details }
}

fn cause(cause: listwatch::StatusCause) -> StatusCause {
    StatusCause { reason: cause.reason, message: cause.message, field: cause.field }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;
    use listwatch::Json;
    use listwatch::client::{Request, Response, ResponseFuture, Transport, TransportError};
    use serde_json::Value;

    use super::*;

    /// Responds with one chunk, or with an error in the body.
    struct Answers(Result<&'static str, TransportError>);

    impl Transport for Answers {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            let chunk = self.0.clone().map(Bytes::from);
            let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
            let body = Box::pin(stream::iter([chunk]));
            Box::pin(async move { Ok(Response::new(status, headers, body)) })
        }
    }

    /// Like kube's watcher, it does not report that the connection was closed or idle, but any other error of a watch.
    #[tokio::test]
    async fn reports_the_same_interruptions_as_kube() {
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        let broken = |kind| Err(TransportError::new(kind, ""));
        for (answer, expected) in [
            (Err(TransportError::from_error(TransportErrorKind::Broken, &eof)), "None"),
            (broken(TransportErrorKind::Broken), "Some(WatchFailed(Service("),
            (broken(TransportErrorKind::ReadIdle), "None"),
            (Ok(r#"{"type":"ADDED","object":{"kind""#), "None"),
            (Ok("{\"type\":\"ADDED\"]}\n"), "Some(WatchFailed(Service("),
            (Ok("{\"type\":\"ADDED\",\"object\":{\"metadata\":{}}}\n"), "Some(NoResourceVersion"),
        ] {
            let client = Client::new(Answers(answer.clone())).retry(Retry::never());
            let watch = client.watch::<Json<Value>>(&Resource::CONFIG_MAPS, &WatchParams::from_version("1"));
            let error = match watch.open().await {
                Ok(mut events) => events.next().await.expect("an item").expect_err("an error"),
                Err(error) => error,
            };
            let error = interruption(error);
            assert!(format!("{error:?}").starts_with(expected), "{error:?}, not {expected}, for {answer:?}");
        }
    }
}
