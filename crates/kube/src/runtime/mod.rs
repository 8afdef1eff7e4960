//! [`watcher`](fn@watcher) replaces `kube::runtime::watcher`, and decodes each object as soon as it has arrived.
//!
//! It has kube's arguments, events and errors. kube reads a whole page of the list before it decodes it.
//! [`metadata_watcher`] replaces kube's function of that name in the same way.
//!
//! [`Watcher::projection`] drops fields before objects are decoded. Drop `metadata.managedFields` unless you read them.
//! In the Pods of a real API server they take more than half of the memory and of the time of decoding. Without a
//! projection this watcher saves no memory of kube's store, and takes about as much CPU time as kube's. See the
//! [guide](crate::guide#kubes-store-without-managedfields).
//!
//! The names are kube's. Where you call kube's `watcher`, only the import changes, and the call to `projection` is
//! added:
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
//! `Controller::for_stream` accepts such a stream in place of `Controller::new`, after `reflect` and `applied_objects`.
//! It needs kube's feature `unstable-runtime`, which this crate does not enable. The
//! [guide](crate::guide#kubes-store-without-managedfields) has the whole change.

// The order of the files, lowest first: errors, decode, requests, state, this file.
mod decode;
mod errors;
mod requests;
mod state;

use std::fmt::{self, Debug};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use kube::api::{Api, PartialObjectMeta};
/// kube's module: `Config`, `Event`, `Error` and the rest. The functions in it are kube's own.
pub use kube::runtime::watcher::{self};
use kube::runtime::watcher::{Config, Event};
use listwatch::Projection;
use listwatch::client::{Client, Retry};
use serde::de::DeserializeOwned;

use self::requests::WatchedCollection;
use self::state::WatcherMachine;
use crate::transport::KubeTransport;

/// Watches a collection until the stream is dropped.
///
/// This function replaces kube's [`watcher`](fn@kube::runtime::watcher).
///
/// Everything from [`Event::Init`] to [`Event::InitDone`] is the complete collection. An error is an item, and the next
/// poll resumes the stream. It resumes after the last event, or with [`Event::Init`] if that is no longer possible. The
/// stream never retries before it has delivered the error, so apply a backoff
/// ([`default_backoff`](kube::runtime::WatchStreamExt::default_backoff)).
///
/// # Memory and time
///
/// The watcher keeps one object and a chunk of the body in memory, whatever [`page_size`](Config::page_size) is.
/// Without a page size the list is one request. Objects are delivered while the response arrives. So the consumer must
/// read a page within the server's request timeout, 60 s by default, or without pages the whole list.
///
/// kube enables no keepalive on its connections, so a dead connection is detected after the [idle timeout] of the
/// watch.
///
/// [idle timeout]: listwatch::client::Watch::idle_timeout
///
/// # Differences from kube's
///
/// - If an object of a list cannot be decoded, or the list is interrupted, the objects before it were delivered.
/// - [`ListSemantic::Any`](watcher::ListSemantic::Any) requests the whole watch cache. kube does so only without a page
///   size.
/// - A `timeout` of 0 is an hour. A connection may be closed as dead before its timeout: see
///   [`Watch::idle_timeout`](listwatch::client::Watch::idle_timeout).
/// - If the server returns 410 for a watch, the collection is relisted. kube repeats the request for the same version without end.
/// - An object of a watch that cannot be decoded causes a [`SerdeError`](kube::Error::SerdeError) with the reason. kube
///   reports an empty `Status`.
/// - A selector or a path that the server would refuse is not sent. The error is
///   [`BuildRequest`](kube::Error::BuildRequest).
/// - Every other error, except an API error, is a [`Service`](kube::Error::Service) that contains an
///   [`Error`](listwatch::client::Error). An example is an object or a frame over 16 MiB.
pub fn watcher<K>(api: Api<K>, config: Config) -> Watcher<K>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Watcher::new(api, config)
}

/// Watches the metadata of a collection until the stream is dropped.
///
/// This function replaces kube's [`metadata_watcher`](kube::runtime::metadata_watcher), which kube 5 deprecates: a
/// watcher over `Api<PartialObjectMeta<K>>` does the same, also with this crate's [`watcher`](fn@watcher).
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
    collection: WatchedCollection,
    /// `None` before the first poll.
    events: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
}

impl<K> Watcher<K> {
    fn new<A: kube::Resource>(api: Api<A>, config: Config) -> Self {
        let (path, namespace) = (api.resource_url().to_owned(), api.namespace().map(str::to_owned));
        let client = Client::new(KubeTransport::new(api.into_client())).retry(Retry::never());
        Self { collection: WatchedCollection { client, path, namespace, config, projection: None }, events: None }
    }

    /// Drops fields of each object before it is decoded, in lists, streaming lists and watches.
    ///
    /// The fields are removed from the JSON of one object at a time. They never reach serde, and take no memory
    /// afterwards. The projection changes neither the requests nor the sequence of events: the server still sends the
    /// fields.
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
    /// A later projection replaces this one. If the stream was polled before, it starts over with [`Event::Init`].
    ///
    /// The watcher copies each object's remaining JSON into a buffer. It keeps a buffer of up to 64 KiB for the next
    /// object. The [guide](crate::guide#kubes-store-without-managedfields) has measured figures.
    ///
    /// # Errors
    ///
    /// The watcher sends nothing, and its first error is a [`BuildRequest`](kube::Error::BuildRequest), in two cases:
    ///
    /// - The projection drops the name, namespace, uid or resource version, which kube's stores and the watcher need. A
    ///   projection that [keeps](Projection::keep) only some fields must also keep `FieldPath::new("metadata", &[1])`.
    /// - A path has no names for JSON.
    ///
    /// A field that `K` requires must not be dropped, such as the `spec` of a type that derives `CustomResource`. Each
    /// object would be a [`SerdeError`](kube::Error::SerdeError). Columns in such errors count in the remaining JSON.
    pub fn projection(self, projection: Projection) -> Self {
        let collection = WatchedCollection { projection: Some(Arc::new(projection)), ..self.collection };
        Self { collection, events: None }
    }
}

impl<K> Stream for Watcher<K>
where
    K: kube::Resource + DeserializeOwned + Send + 'static,
{
    type Item = watcher::Result<Event<K>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { collection, events } = &mut *self;
        let events = events.get_or_insert_with(|| {
            let machine = WatcherMachine::new(collection.clone());
            let events = unfold(machine, |mut machine| async {
                let event = machine.next_event().await;
                Some((event, machine))
            });
            events.boxed()
        });
        events.poll_next_unpin(cx)
    }
}

impl<K> Debug for Watcher<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("path", &self.collection.path).finish_non_exhaustive()
    }
}
