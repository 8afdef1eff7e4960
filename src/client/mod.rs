//! Lists and watches collections of an API server while the responses arrive.
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")] {
//! use futures::TryStreamExt;
//! use listwatch::client::{Client, HttpTransport, ListParams, Resource};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(HttpTransport::in_cluster()?.build()?);
//! let mut names = client
//!     .list_with(&Resource::PODS, &ListParams::default(), |pod| {
//!         pod.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
//!     });
//! while let Some(name) = names.try_next().await? {
//!     println!("{name}");
//! }
//! let summary = names.summary().expect("a list that ends without an error is complete");
//! println!("{} pods at version {}", summary.items, summary.list_meta.resource_version);
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! | to | call | which gives |
//! |---|---|---|
//! | list a collection | [`Client::list`], [`list_of`](Client::list_of), [`list_with`](Client::list_with) | [`List`]: a stream or a `Vec`, and a [`ListSummary`] |
//! | watch it | [`Client::watch`], [`watch_of`](Client::watch_of), [`watch_with`](Client::watch_with) | [`Watch`]: a stream that resumes, or [`WatchEvents`] of one connection |
//! | get an object | [`Client::get`] | the object |
//! | find a resource by a typed name | [`Client::resolve`] | [`Resource`] |
//!
//! [`ListParams`] and [`WatchParams`] describe a request, and both have a [`Selection`] of objects. All errors are an [`Error`]. A
//! [`Transport`] sends the requests: `HttpTransport`, which uses reqwest, or your own.
//!
//! # Observing a client
//!
//! [`Client::metrics`] returns counters; `ReflectorStatus` counts the syncs and errors of a reflector. The client emits spans and events of the crate `tracing` with stable names and fields:
//!
//! | span | fields |
//! |---|---|
//! | `listwatch.list` | `resource`, `resource_version`, `page_size`; at the end `items`, `bytes`, `first_item_ms` |
//! | `listwatch.watch` | `resource` |
//!
//! | event | level | fields |
//! |---|---|---|
//! | `listwatch.retry`: a request of a list or a document is retried | warn | `error`, `attempt`, `seconds` (until then) |
//! | `listwatch.resume`: a watch reconnects | warn if the error may need action, else debug | `error`, `resource_version` |
//! | `listwatch.server_warning`: the server sent a warning for a watch | warn | `warning` |
//! | `listwatch.restart`: the next page has expired; the list starts over or continues at the latest version | warn | `error`, `abandoned` |
//! | `listwatch.credentials`: the client reloads credentials or certificates, or cannot read them and uses the previous ones | warn | `error` |
//! | `listwatch.plain_http`: credentials and a server whose URL is `http` | warn | `server` |
//! | `listwatch.discovery`: the resources of a group are unknown or outdated | warn | `path` (of the document), `error` |

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod authorities;
mod body;
mod builtin;
mod credentials;
mod discovery;
mod error;
mod io_thread;
mod list;
mod metrics;
mod params;
mod progress;
mod proxy;
mod redact;
#[cfg(feature = "reqwest")]
mod reqwest;
mod resolve;
mod resource;
mod retry;
mod transport;
mod watch;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::ExponentialBackoff;
use bytes::Bytes;
use http::Uri;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION};
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use self::authorities::Authorities;
pub use self::credentials::Credentials;
pub use self::error::{Error, ErrorKind};
pub use self::io_thread::IoThread;
pub use self::list::{List, ListSummary, Pages, Restart};
pub use self::metrics::Metrics;
use self::metrics::Totals;
pub use self::params::{ListParams, ResourceVersion, Selection, WatchParams};
use self::progress::Counters;
pub use self::progress::Progress;
pub use self::proxy::environment_proxy;
#[cfg(feature = "reqwest")]
pub use self::reqwest::{HttpTransport, HttpTransportBuilder};
pub use self::resource::{Kind, Resource};
pub use self::retry::{Class, MAX_RETRY_AFTER, Retry};
use self::retry::{Tries, classify};
pub use self::transport::{
    Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind, chain, is_loopback, redact_secret,
};
pub use self::watch::{Connections, Disconnect, OwnedEvent, PAGE, Watch, WatchEvents};
use crate::adapt::FromRef;
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError, Limit};
use crate::meta;
use crate::object::Item;
use crate::object::ItemRef;
use crate::sync::{Mutex, lock};
use crate::wire::{Beginning, BodyFormat, Encoding};

/// The size limit of bodies that are read whole: objects and discovery documents.
const DOCUMENT_SIZE: u64 = 64 << 20;

/// The time for which a client remembers that a server does not send the initial events of a collection. Afterwards it requests
/// them again: the server may have been upgraded, or it was busy.
const WITHOUT_INITIAL_EVENTS: Duration = Duration::from_secs(3600);

/// The longest time that is set: an `Instant` cannot hold the end of much longer times.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A client of one API server. Clones are cheap and share connections and metrics.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    retry: Retry,
    compression: Compression,
    read_idle_timeout: Duration,
    totals: Arc<Totals>,
    /// Paths of collections whose initial events failed while a list succeeded, and the times of these lists.
    without_initial_events: Arc<Mutex<HashMap<String, Instant>>>,
    /// Paths of collections for which the server returned 406, and whether only metadata was requested.
    only_json: Arc<Mutex<HashSet<(String, bool)>>>,
    /// True once the server has responded to a request, with any status.
    was_reached: Arc<AtomicBool>,
}

/// The compression of responses that a client requests.
///
/// API servers gzip lists over 128 KiB, to about a ninth for uniform Pods. It costs CPU on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// No compression if the server is [near](Transport::is_near), else gzip.
    #[default]
    Auto,
    /// No compression.
    Identity,
    /// gzip.
    Gzip,
}

impl Client {
    /// The default of [`read_idle_timeout`](Self::read_idle_timeout): 90 s, more than a server's request timeout of 60 s.
    pub const DEFAULT_READ_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

    /// Creates a client over this transport.
    pub fn new(transport: impl Transport) -> Self {
        Self {
            transport: Arc::new(transport),
            retry: Retry::default(),
            compression: Compression::default(),
            read_idle_timeout: Self::DEFAULT_READ_IDLE_TIMEOUT,
            totals: Arc::default(),
            without_initial_events: Arc::default(),
            only_json: Arc::default(),
            was_reached: Arc::default(),
        }
    }

    /// Sets how often requests are retried.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets whether the server may compress responses: [`Compression::Auto`] unless set.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets how long to wait for the head of a response, and for each of its bytes:
    /// [`DEFAULT_READ_IDLE_TIMEOUT`](Self::DEFAULT_READ_IDLE_TIMEOUT) unless set.
    ///
    /// A list that stalls longer ends in [`TransportErrorKind::ReadIdle`]. The time that the consumer takes does not count. Watches
    /// have their own [`idle_timeout`](Watch::idle_timeout).
    #[must_use]
    pub fn read_idle_timeout(mut self, timeout: Duration) -> Self {
        self.read_idle_timeout = timeout.min(LONGEST);
        self
    }

    /// Returns the counters of this client and its clones.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.totals.metrics()
    }

    /// Returns a list of this resource, in all namespaces unless the [`List`] sets some. Nothing is sent yet.
    ///
    /// Items are decoded as `T`: see [`Item`].
    pub fn list<T: Item + ?Sized>(&self, resource: &Resource, params: &ListParams) -> List<FromRef<T>> {
        let mut params = params.clone();
        params.selection = params.selection.json_if(T::ENCODING == Some(Encoding::Json));
        List::new(self, resource, params, T::from_ref)
    }

    /// Returns a list of the resource of `T`, as [`list`](Self::list) does.
    pub fn list_of<T: Item + Kind + ?Sized>(&self, params: &ListParams) -> List<FromRef<T>> {
        self.list::<T>(&T::resource(), params)
    }

    /// Returns a list whose items a closure decodes: for projections, filters and tuples.
    ///
    /// The closure borrows the item and copies what it needs.
    pub fn list_with<O, E, F>(&self, resource: &Resource, params: &ListParams, decode: F) -> List<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        List::new(self, resource, params.clone(), decode)
    }

    /// Returns a watch of this resource, in all namespaces unless the [`Watch`] sets one. Nothing is sent yet.
    ///
    /// Objects are decoded as `T`: see [`Item`].
    pub fn watch<T: Item + ?Sized>(&self, resource: &Resource, params: &WatchParams) -> Watch<FromRef<T>> {
        let mut params = params.clone();
        params.selection = params.selection.json_if(T::ENCODING == Some(Encoding::Json));
        Watch::new(self, resource, params, T::from_ref)
    }

    /// Returns a watch of the resource of `T`, as [`watch`](Self::watch) does.
    pub fn watch_of<T: Item + Kind + ?Sized>(&self, params: &WatchParams) -> Watch<FromRef<T>> {
        self.watch::<T>(&T::resource(), params)
    }

    /// Returns a watch whose objects a closure decodes: for projections, filters and tuples.
    ///
    /// The closure borrows the object and copies what it needs.
    pub fn watch_with<O, E, F>(&self, resource: &Resource, params: &WatchParams, decode: F) -> Watch<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        Watch::new(self, resource, params.clone(), decode)
    }

    /// Returns false if the server is known not to send the collection as initial events of a watch.
    #[doc(hidden)]
    pub fn has_initial_events(&self, resource: &Resource) -> Result<bool, Error> {
        let failed = lock(&self.without_initial_events).get(&resource.list_path(None)?).copied();
        Ok(failed.is_none_or(|at| at.elapsed() >= WITHOUT_INITIAL_EVENTS))
    }

    /// Remembers that a list of the collection succeeded after its initial events had failed.
    fn set_without_initial_events(&self, resource: &Resource) -> Result<(), Error> {
        lock(&self.without_initial_events).insert(resource.list_path(None)?, Instant::now());
        Ok(())
    }

    /// Returns the selection in the form in which the server has these objects: plain JSON after a 406.
    fn acceptable(&self, resource: &Resource, selection: &Selection) -> Result<Selection, Error> {
        let key = (resource.list_path(None)?, selection.is_metadata_only());
        let selection = selection.clone();
        Ok(if lock(&self.only_json).contains(&key) { selection.plain_json() } else { selection })
    }

    /// Returns true if the error refuses the form that was requested, so that the next request should be for plain
    /// JSON.
    ///
    /// Aggregated API servers return 406 for protobuf if a type does not implement it, although the request accepts
    /// JSON too (apimachinery `runtime/serializer/protobuf`, `errNotMarshalable`). The client remembers that, with its
    /// clones.
    fn needs_plain_json(&self, error: &Error, resource: &Resource, requested: &Selection) -> Result<bool, Error> {
        if error.code() != Some(406) || *requested == requested.clone().plain_json() {
            return Ok(false);
        }
        tracing::debug!(error = %transport::chain(error), %resource, "requesting plain JSON");
        lock(&self.only_json).insert((resource.list_path(None)?, requested.is_metadata_only()));
        Ok(true)
    }

    /// Returns the class of an error, which decides the next attempt.
    #[doc(hidden)]
    pub fn classify(&self, error: &Error) -> Class {
        classify(error, self.was_reached.load(Ordering::Relaxed))
    }

    /// Begins the attempts of a request.
    fn tries(&self) -> Tries {
        Tries::new(self.retry, &self.totals)
    }

    /// Returns the waits between retries without a limit of their number.
    #[doc(hidden)]
    pub fn backoff(&self, max: Duration) -> ExponentialBackoff {
        self.retry.backoff(max)
    }

    /// Returns one object. `[u8]` is JSON for a custom resource, and protobuf for others.
    ///
    /// # Errors
    ///
    /// [`Error`]: it [is not found](Error::is_not_found) if there is no such object.
    pub async fn get<T: Item + ?Sized>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<T::Owned, Error> {
        self.get_by::<T>(resource, resource.get_path(namespace, name)?).await
    }

    /// Returns one object of this version or a newer one. A server that does not have that version yet returns 504.
    #[doc(hidden)]
    pub async fn get_at_least<T: Item + ?Sized>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        version: &str,
    ) -> Result<T::Owned, Error> {
        let path = resource.get_path(namespace, name)?;
        self.get_by::<T>(resource, format!("{path}?resourceVersion={}", resource::encode(version))).await
    }

    async fn get_by<T: Item + ?Sized>(&self, resource: &Resource, path: String) -> Result<T::Owned, Error> {
        let whole = Selection::all().json_if(T::ENCODING == Some(Encoding::Json));
        loop {
            let requested = self.acceptable(resource, &whole)?;
            let accept = accept_header(requested.accept_watch())?;
            let object = |document: &Document| self.object::<T>(resource, document);
            let got = self.document(path.clone(), accept, |error| self.classify(error), object).await;
            match got {
                Err(error) if self.needs_plain_json(&error, resource, &requested)? => {}
                got => return got,
            }
        }
    }

    fn object<T: Item + ?Sized>(&self, resource: &Resource, document: &Document) -> Result<T::Owned, ErrorKind> {
        let Document { headers, body, .. } = document;
        let expected = crate::TypeMeta { api_version: resource.api_version(), kind: resource.kind().to_owned() };
        let decode = |kind| ErrorKind::Decode(DecodeError::new(kind, 0, None, 0));
        let (encoding, found, object) = match Beginning::find(body) {
            None => return Err(decode(DecodeErrorKind::Incomplete)),
            Some((Beginning::Protobuf, body)) if body.starts_with(&meta::MAGIC) => {
                let fault = DecodeErrorKind::Malformed { field: "the envelope", fault: Fault::PastParent };
                let (found, object) = body::envelope(body).ok_or_else(|| decode(fault))?;
                (Encoding::Protobuf, found, object)
            }
            Some((Beginning::Json, body)) => {
                let found = meta::json::type_meta(body)
                    .map_err(|(field, fault)| decode(DecodeErrorKind::Item(ItemError::Metadata { field, fault })))?;
                (Encoding::Json, found, body)
            }
            Some(_) => return Err(self.unexpected(body, headers)),
        };
        if found.kind == "Status" {
            return Err(body::api_error(500, headers, body, &*self.transport));
        }
        if !found.is_expected(&expected) {
            return Err(ErrorKind::OtherKind { expected, found });
        }
        T::from_ref(ItemRef::new(encoding, object).with_type_meta(&found))
            .map_err(|error| decode(DecodeErrorKind::Item(error)))
    }

    /// Sends a request once, and waits for the first bytes of its body. A response other than 2xx is an error.
    async fn send(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let idle = Some(self.read_idle_timeout);
        let mut answer = self.head(path_and_query, accept, idle, deadline, counters).await?;
        answer.first = body::next_chunk(&mut answer.chunks).await?.unwrap_or_default();
        Ok(answer)
    }

    /// Sends a request once, and waits for the head of the response. Each byte of the body has the timeout `body_idle`. After a
    /// 401 it retries once if the transport renews credentials.
    async fn head(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        body_idle: Option<Duration>,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let answer = self.head_once(path_and_query.clone(), accept.clone(), body_idle, deadline, counters).await;
        match answer {
            Err(error) if error.is_unauthorized() && self.transport.renews_credentials() => {
                let error = error.redacted(&*self.transport);
                self.totals.retry();
                tracing::warn!(name: "listwatch.credentials", error = %transport::chain(&error), "retrying with reloaded credentials");
                self.head_once(path_and_query, accept, body_idle, deadline, counters).await
            }
            answer => answer,
        }
    }

    async fn head_once(
        &self,
        path_and_query: String,
        accept: HeaderValue,
        body_idle: Option<Duration>,
        deadline: Option<Instant>,
        counters: &Arc<Counters>,
    ) -> Result<Answer, Error> {
        let gzip = match self.compression {
            Compression::Auto => !self.transport.is_near(),
            Compression::Identity => false,
            Compression::Gzip => true,
        };
        let encoding = HeaderValue::from_static(if gzip { "gzip" } else { "identity" });
        let headers = HeaderMap::from_iter([(ACCEPT, accept), (ACCEPT_ENCODING, encoding)]);
        counters.request();
        let started = Instant::now();
        let idle = self.read_idle_timeout;
        let response = timeout(idle, self.transport.get(Request::new(path_and_query, headers)));
        let response = within(deadline, async {
            response.await.map_err(|_| body::idle_error(idle)).and_then(|response| response)
        });
        let response = response.await?;
        self.was_reached.store(true, Ordering::Relaxed);
        let (status, headers) = (response.status, response.headers);
        let audit_id = text(&headers, &HeaderName::from_static("audit-id"));
        let audit_id = audit_id.map(|id| redact::redact(&*self.transport, id));
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).and_then(origin);
            return Err(Error::new(ErrorKind::Redirect { status, to }).with_audit_id(audit_id));
        }
        let counters = Arc::clone(counters);
        if !status.is_success() {
            let body = match body::body(response.body, &headers, Some(idle), deadline, counters) {
                Ok(mut chunks) => body::beginning(Bytes::new(), &mut chunks).await,
                Err(_) => Vec::new(),
            };
            let error = body::api_error(status.as_u16(), &headers, &body, &*self.transport);
            return Err(Error::new(error).with_audit_id(audit_id));
        }
        let chunks = body::body(response.body, &headers, body_idle, deadline, counters)?;
        let warnings = headers.get_all(http::header::WARNING).iter().filter_map(|text| text.to_str().ok());
        let warnings = warnings.map(|header| redact::redact(&*self.transport, warning(header))).collect();
        Ok(Answer { headers, first: Bytes::new(), chunks, audit_id, warnings, started })
    }

    /// Returns the error for a body that is neither protobuf nor the requested JSON.
    fn unexpected(&self, beginning: &[u8], headers: &HeaderMap) -> ErrorKind {
        if let Some(found) = body::json_status(beginning) {
            return body::of_status(found, 500, headers);
        }
        ErrorKind::UnexpectedBody {
            format: match Beginning::find(beginning) {
                Some((Beginning::Other(format), _)) => format,
                Some((Beginning::Json, _)) => BodyFormat::Json,
                Some((Beginning::Protobuf | Beginning::Space, _)) => BodyFormat::Text,
                None => BodyFormat::Binary,
            },
            content_type: body::content_type(headers),
            snippet: body::snippet(beginning, &*self.transport),
        }
    }

    /// Requests a document that is not a list, with the retries of a list, and converts it by `read`.
    async fn document<R>(
        &self,
        path: String,
        accept: HeaderValue,
        classify: impl Fn(&Error) -> Class,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        let mut tries = self.tries();
        loop {
            let error = match self.document_once(path.clone(), accept.clone()).await {
                Ok(document) => match read(&document) {
                    Ok(read) => return Ok(read),
                    Err(kind) => Error::new(kind).with_audit_id(document.audit_id),
                },
                Err(error) => error,
            };
            let error = error.redacted(&*self.transport);
            match tries.again(&error, classify(&error)) {
                Some(wait) => sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn document_once(&self, path: String, accept: HeaderValue) -> Result<Document, Error> {
        let Answer { headers, first, mut chunks, audit_id, .. } =
            self.send(path, accept, None, &Arc::new(Counters::new(&self.totals))).await?;
        let mut body = Vec::from(first);
        while let Some(chunk) = body::next_chunk(&mut chunks).await? {
            body.extend_from_slice(&chunk);
            let size = body.len() as u64;
            if size > DOCUMENT_SIZE {
                let kind = DecodeErrorKind::Limit { limit: Limit::Bytes, size, max: DOCUMENT_SIZE };
                return Err(ErrorKind::Decode(DecodeError::new(kind, size, None, 0)).into());
            }
        }
        Ok(Document { headers, body, audit_id })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("retry", &self.retry)
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

/// A 2xx response.
struct Answer {
    headers: HeaderMap,
    /// The first bytes of the body; empty if the body is.
    first: Bytes,
    chunks: transport::Chunks,
    audit_id: Option<String>,
    warnings: Vec<String>,
    /// When the request was sent.
    started: Instant,
}

/// A 2xx response with its whole body.
struct Document {
    headers: HeaderMap,
    body: Vec<u8>,
    audit_id: Option<String>,
}

async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    match deadline {
        None => future.await,
        Some(deadline) => timeout_at(deadline, future)
            .await
            .unwrap_or_else(|_| Err(TransportError::new(TransportErrorKind::Deadline, "before the body"))),
    }
}

fn accept_header(accept: String) -> Result<HeaderValue, TransportError> {
    HeaderValue::try_from(accept)
        .map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("the Accept header: {error}")))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.escape_debug().to_string())
}

/// Returns the text of a `Warning` header, `299 - "text"` with quotes and backslashes escaped (apimachinery
/// `util/net.NewWarningHeader`), or the whole header if it has another form.
fn warning(header: &str) -> String {
    let Some(text) = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')) else {
        return header.to_owned();
    };
    let mut unescaped = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        unescaped.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    unescaped
}

/// Returns scheme, host and port of a redirect; `None` if one of them is missing.
fn origin(location: &str) -> Option<String> {
    let uri = Uri::try_from(location).ok()?;
    let authority = uri.authority()?.as_str();
    // The part before the @ may be a password.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(format!("{}://{host}", uri.scheme_str()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn unescapes_the_text_of_warnings() {
        for (header, expected) in [
            (r#"299 - "old""#, "old"),
            (r#"299 - "say \"new\" \\ please""#, r#"say "new" \ please"#),
            (r#"299 - """#, ""),
            (r#"199 proxy "stale""#, r#"199 proxy "stale""#),
            (r#"299 - "half"#, r#"299 - "half"#),
            (r#"299 - ""#, r#"299 - ""#),
        ] {
            assert_eq!(super::warning(header), expected, "{header}");
        }
    }
}
