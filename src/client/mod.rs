//! Lists and watches anything of a real API server, while it arrives, and says exactly how it ended.
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")] {
//! use std::ops::ControlFlow;
//!
//! use listwatch::client::{Client, HttpTransport, ListOptions, Resource};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(HttpTransport::in_cluster()?.build()?);
//! let names = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).map_item(|pod| {
//!     pod.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
//! });
//! let end = names
//!     .for_each(|name| {
//!         println!("{name}");
//!         ControlFlow::<()>::Continue(())
//!     })
//!     .await?;
//! if let ControlFlow::Continue(summary) = end {
//!     println!("{} pods at version {}", summary.items, summary.list_meta.resource_version);
//! }
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`transport`] | [`Transport`]: a request in, status, headers and chunks out; `HttpTransport` is the one over reqwest |
//! | [`list`] | [`List`], what to list and how; [`Items`], its items; [`ListSummary`], how it ended |
//! | [`watch`] | [`Watch`], what to watch; [`WatchEvents`], of one connection; [`ResumedWatch`], which outlives connections |
//! | [`error`] | [`Error`], for everything that this module does |
//! | [`options`], [`selector`] | what to ask of a list or a watch |
//! | [`resource`], [`discovery`] | which collection |
//! | [`served_from`] | who answers |

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod body;
pub mod discovery;
pub mod error;
mod io_thread;
pub mod list;
pub mod options;
mod progress;
#[cfg(feature = "reqwest")]
mod reqwest;
pub mod resource;
mod retry;
pub mod selector;
pub mod served_from;
pub mod transport;
pub mod watch;

use std::collections::HashMap;
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

pub use self::error::{ApiError, Error, ErrorKind, Incomplete, UnexpectedBody};
#[cfg(feature = "cache")]
pub(crate) use self::list::Pages;
pub use self::list::{Items, List, ListSummary, Order, ParallelItems, ParallelList, Restart};
pub use self::options::{ListOptions, ResourceVersion, Shard};
use self::progress::Counters;
pub use self::progress::Progress;
#[cfg(feature = "reqwest")]
pub use self::reqwest::{HttpTransport, HttpTransportBuilder};
pub use self::resource::Resource;
pub(crate) use self::retry::Class;
pub use self::retry::Retry;
use self::retry::{Tries, classify};
pub use self::selector::{FieldSelector, LabelSelector};
use self::served_from::ServerVersion;
use self::transport::{Chunks, Request};
pub use self::transport::{Transport, TransportError, TransportErrorKind};
#[cfg(feature = "cache")]
pub(crate) use self::watch::{Change, Connections, PAGE};
pub use self::watch::{OwnedEvent, ResumedWatch, Watch, WatchEvents};
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError};
use crate::meta;
use crate::object::Item;
use crate::object::ItemRef;
use crate::sync::{Mutex, lock};
use crate::wire::{BodyFormat, Encoding};

/// The largest body that is read whole: of one object, or a discovery document.
const DOCUMENT_SIZE: usize = 64 << 20;

/// How long it is remembered that a server does not send the initial events of a collection: it may be upgraded, or have
/// been busy.
const WITHOUT_INITIAL_EVENTS: Duration = Duration::from_secs(3600);

/// A client of one API server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    retry: Retry,
    compression: Compression,
    read_idle_timeout: Duration,
    /// The last that was requested.
    server_version: Arc<Mutex<Option<ServerVersion>>>,
    /// Paths of collections whose initial events failed where a list succeeded, and when that was.
    without_initial_events: Arc<Mutex<HashMap<String, Instant>>>,
    /// Whether the server has answered a request, whatever it answered.
    was_reached: Arc<AtomicBool>,
}

/// Whether the server may compress.
///
/// A list over 128 KiB comes gzipped where that is accepted: a tenth of the bytes, for CPU of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not from a server that is [near](Transport::is_near), else gzip.
    #[default]
    Auto,
    /// No compression.
    Identity,
    /// gzip.
    Gzip,
}

impl Client {
    /// The default of [`read_idle_timeout`](Self::read_idle_timeout): 90 s, more than the 60 s after which a server gives a
    /// request up by itself.
    pub const DEFAULT_READ_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

    /// A client over this transport.
    pub fn new(transport: impl Transport) -> Self {
        Self {
            transport: Arc::new(transport),
            retry: Retry::default(),
            compression: Compression::default(),
            read_idle_timeout: Self::DEFAULT_READ_IDLE_TIMEOUT,
            server_version: Arc::default(),
            without_initial_events: Arc::default(),
            was_reached: Arc::default(),
        }
    }

    /// When to retry a request.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Whether to ask for compression: [`Compression::Auto`] unless set.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How long to wait for the head of a response, and for each of its bytes:
    /// [`DEFAULT_READ_IDLE_TIMEOUT`](Self::DEFAULT_READ_IDLE_TIMEOUT) unless set.
    ///
    /// A list that stalls longer ends in [`TransportErrorKind::ReadIdle`]. The time that the consumer takes does not count.
    #[must_use]
    pub fn read_idle_timeout(mut self, timeout: Duration) -> Self {
        self.read_idle_timeout = timeout;
        self
    }

    /// A list of this resource: of all namespaces, in one response, unless the [`List`] is told otherwise.
    ///
    /// `T` says what each item becomes: see [`Item`]. Nothing is sent yet.
    pub fn list<T: Item + ?Sized>(&self, resource: &Resource, options: &ListOptions) -> List<T> {
        List::new(self.clone(), resource.clone(), options.clone())
    }

    /// A watch of this resource, of all namespaces unless the [`Watch`] is told otherwise.
    ///
    /// `T` says what each object becomes: see [`Item`]. Nothing is sent yet.
    ///
    /// Where it begins is what the options say: right behind [`ResourceVersion::Exact`]; with
    /// [`ResourceVersion::MostRecent`] and [`ResourceVersion::Any`] the server sends each object that there is as added, and
    /// then what happens.
    pub fn watch<T: Item + ?Sized>(&self, resource: &Resource, options: &ListOptions) -> Watch<T> {
        Watch::new(self.clone(), resource.clone(), options.clone())
    }

    /// Whether the server may send the collection as initial events of a watch: not known to lack them.
    pub(crate) fn has_initial_events(&self, resource: &Resource) -> Result<bool, Error> {
        let failed = lock(&self.without_initial_events).get(&resource.list_path(None)?).copied();
        Ok(failed.is_none_or(|at| at.elapsed() >= WITHOUT_INITIAL_EVENTS))
    }

    /// A list of the collection succeeded where its initial events had failed.
    fn set_without_initial_events(&self, resource: &Resource) -> Result<(), Error> {
        lock(&self.without_initial_events).insert(resource.list_path(None)?, Instant::now());
        Ok(())
    }

    /// What an error means for the next attempt.
    pub(crate) fn classify(&self, error: &Error) -> Class {
        classify(error, self.was_reached.load(Ordering::Relaxed))
    }

    /// The times to wait between requests that follow one another without end.
    pub(crate) fn backoff(&self, max: Duration) -> ExponentialBackoff {
        self.retry.backoff(max)
    }

    /// One object. Of a custom resource `[u8]` is JSON, of any other protobuf.
    ///
    /// # Errors
    ///
    /// Those of [`List`]; [`Error::is_not_found`] where there is none.
    pub async fn get<T: Item + ?Sized>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<T::Owned, Error> {
        self.get_by::<T>(resource, resource.get_path(namespace, name)?).await
    }

    /// One object, by a server that knows this version already: one that does not answers with 504.
    #[cfg(feature = "cache")]
    pub(crate) async fn get_at_least<T: Item + ?Sized>(
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
        let accept = HeaderValue::from_static(match T::ENCODING {
            Some(Encoding::Json) => "application/json",
            _ => "application/vnd.kubernetes.protobuf,application/json",
        });
        self.document(path, accept, |document| self.object::<T>(resource, document)).await
    }

    fn object<T: Item + ?Sized>(&self, resource: &Resource, document: &Document) -> Result<T::Owned, ErrorKind> {
        let Document { headers, body, .. } = document;
        let expected = crate::TypeMeta { api_version: resource.api_version(), kind: resource.kind().to_owned() };
        let decode = |kind| ErrorKind::Decode(DecodeError::new(kind, 0, None, 0));
        let (encoding, found, object) = match body.first() {
            None => return Err(decode(DecodeErrorKind::Incomplete)),
            Some(b'k') => {
                let fault = DecodeErrorKind::Malformed { field: "the envelope", fault: Fault::PastParent };
                let (found, object) = body::envelope(body).ok_or_else(|| decode(fault))?;
                (Encoding::Protobuf, found, object)
            }
            Some(b'{') => {
                let found = meta::json::type_meta(body)
                    .map_err(|(field, fault)| decode(DecodeErrorKind::Item(ItemError::Metadata { field, fault })))?;
                (Encoding::Json, found, &**body)
            }
            Some(_) => return Err(self.unexpected(body, headers)),
        };
        if found.kind == "Status" {
            return Err(body::api_error(500, headers, body, &*self.transport).into());
        }
        if !found.is_expected(&expected) {
            return Err(ErrorKind::OtherKind { expected, found });
        }
        T::from_ref(ItemRef::new(encoding, object).with_type_meta(&found))
            .map_err(|error| decode(DecodeErrorKind::Item(error)))
    }

    /// Sends a request once, and waits for the first bytes of its body. An answer other than 2xx is an error, and so is a
    /// redirect.
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

    /// The same without a byte of the body, for each of which `body_idle` is to be waited at most. After a 401 the transport
    /// may read its credentials again: then the request is sent once more.
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
                tracing::warn!(%error, "asking again, with credentials that are read again");
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
        let audit_id = audit_id.map(|id| body::redact(&*self.transport, id));
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
        let warnings = warnings.map(|header| body::redact(&*self.transport, warning(header))).collect();
        Ok(Answer { headers, first: Bytes::new(), chunks, audit_id, warnings, started })
    }

    /// The error for a body that is neither protobuf nor JSON, or not the JSON that was asked for.
    fn unexpected(&self, beginning: &[u8], headers: &HeaderMap) -> ErrorKind {
        if let Some(found) = body::json_status(beginning) {
            return body::of_status(found, 500, headers).into();
        }
        ErrorKind::UnexpectedBody(Box::new(UnexpectedBody {
            sniffed: beginning.first().map_or(BodyFormat::Binary, |byte| BodyFormat::by_first_byte(*byte)),
            content_type: body::content_type(headers),
            snippet: body::snippet(beginning, &*self.transport),
        }))
    }

    /// What `read` makes of a whole body, for documents that are not lists; retried as a list is.
    async fn document<R>(
        &self,
        path: String,
        accept: HeaderValue,
        read: impl Fn(&Document) -> Result<R, ErrorKind>,
    ) -> Result<R, Error> {
        let mut tries = Tries::new(self.retry);
        loop {
            let error = match self.document_once(path.clone(), accept.clone()).await {
                Ok(document) => match read(&document) {
                    Ok(read) => return Ok(read),
                    Err(kind) => Error::new(kind).with_audit_id(document.audit_id),
                },
                Err(error) => error,
            };
            let error = error.redacted(&*self.transport);
            match tries.again(&error, self.classify(&error)) {
                Some(wait) => sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn document_once(&self, path: String, accept: HeaderValue) -> Result<Document, Error> {
        let Answer { headers, first, mut chunks, audit_id, .. } =
            self.send(path, accept, None, &Arc::default()).await?;
        let mut body = Vec::from(first);
        while let Some(chunk) = body::next_chunk(&mut chunks).await? {
            body.extend_from_slice(&chunk);
            if body.len() > DOCUMENT_SIZE {
                let message = format!("a document over {DOCUMENT_SIZE} bytes");
                return Err(TransportError::new(TransportErrorKind::Other, message).into());
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

/// A 2xx answer.
struct Answer {
    headers: HeaderMap,
    /// The first bytes of the body; none where it is empty.
    first: Bytes,
    chunks: Chunks,
    audit_id: Option<String>,
    warnings: Vec<String>,
    /// When the request was sent.
    started: Instant,
}

/// A 2xx answer, read whole.
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

/// The `Accept` header that options say.
fn accept_header(accept: String) -> Result<HeaderValue, TransportError> {
    HeaderValue::try_from(accept)
        .map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("the Accept header: {error}")))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.escape_debug().to_string())
}

/// The text of a `Warning` header, `299 - "text"` with quotes and backslashes escaped (apimachinery
/// `util/net.NewWarningHeader`); all of it where it is written otherwise.
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

/// Scheme, host and port of a redirect; `None` of one that does not say them all.
fn origin(location: &str) -> Option<String> {
    let uri = Uri::try_from(location).ok()?;
    let authority = uri.authority()?.as_str();
    // What is before the @ may be a password.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(format!("{}://{host}", uri.scheme_str()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn warnings() {
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
