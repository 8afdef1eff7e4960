//! Lists, watches and gets objects of an API server, and decodes the responses while they arrive.
//!
//! ```no_run
//! # #[cfg(feature = "http")] {
//! use listwatch::client::{Client, ListParams, Resource};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::try_default()?;
//! let mut names = client
//!     .list_with(&Resource::PODS, &ListParams::default(), |pod| {
//!         pod.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
//!     });
//! while let Some(name) = names.next().await {
//!     let name = name?;
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
//! | count it | [`Client::count`] | [`Count`] |
//! | get an object | [`Client::get`] | [`Get`], which gives the object |
//! | find a resource by a typed name | [`Client::resolve`] | [`Resource`] |
//!
//! [`ListParams`] and [`WatchParams`] describe a request, and each contains a [`Selection`] of objects. Every error is
//! an [`Error`]. A [`Transport`] sends the requests: `HttpTransport`, or your own.
//!
//! # Observing a client
//!
//! [`Client::metrics`] returns counters, and `ReflectorStatus` counts the syncs, changes and errors of a reflector. The
//! client also emits spans and events of the crate `tracing`, whose names and fields are stable:
//!
//! | span | fields |
//! |---|---|
//! | `listwatch.list` | `resource`, `namespace`, `label_selector`, `field_selector`, `resource_version`, `page_size`; at the end `items`, `bytes`, `first_item_ms`, `attempts`, `status` |
//! | `listwatch.watch` | `resource`, `namespace`, `label_selector`, `field_selector`; at the end `attempts`, `status` |
//! | `listwatch.get` | `resource`, `namespace`, `name`; at the end `attempts`, `status` |
//!
//! `attempts` is the number of requests, and `status` the HTTP status of the last response, if there was one. A request
//! without a namespace is for all namespaces.
//!
//! | event | level | fields |
//! |---|---|---|
//! | `listwatch.retry`: a request of a list or a document is retried | warn | `error`, `attempt`, `seconds` (until then) |
//! | `listwatch.outage`: requests of a watch or a reflector fail | warn | `resource`, `server`, `error`, `failures`, `seconds` (since the first) |
//! | `listwatch.outage_ended`: they succeed again | warn | `resource`, `server`, `error` (the last), `failures`, `seconds` |
//! | `listwatch.slow_sync`: a reflector has no complete collection for 5 minutes, and again each 10 minutes | warn | `resource`, `server`, `objects` and `bytes` (that the attempt received), `seconds` |
//! | `listwatch.slow_sync_ended`: it is complete | warn | `resource`, `server`, `seconds` |
//! | `listwatch.resume`: a watch reconnects | warn if it lists the collection instead, else debug | `error`, `resource_version` |
//! | `listwatch.server_warning`: the server sent a warning for a watch | warn | `warning` |
//! | `listwatch.restart`: the next page has expired; the list starts over or continues at the latest version | warn | `error`, `abandoned` |
//! | `listwatch.credentials`: the client reloads credentials or certificates, or cannot read them and uses the previous ones | warn | `error` |
//! | `listwatch.plain_http`: credentials and a server whose URL is `http` | warn | `server` |
//! | `listwatch.discovery`: the resources of a group are unknown or outdated | warn | `path` (of the document), `error` |
//!
//! The target of `listwatch.outage`, `listwatch.slow_sync` and the events that end them is `listwatch`; all other
//! targets begin with it. Until the first success, every failure is an outage. After that, one failure is enough if
//! somebody must repair something, such as a missing role, while other failures must happen three times in a row. An
//! outage that continues is reported once a minute.
//!
//! A server or a reader can cause most of these warnings at will. Identical warnings are therefore logged once a
//! minute, and at most 100 different ones; `left_out` counts the identical warnings since the last one.

mod api_client;
mod body;
mod builtin;
pub(crate) mod classify;
mod count;
mod credentials;
pub(crate) mod crypto;
mod discovery;
mod document;
mod error;
mod get;
#[cfg(feature = "http")]
mod http_transport;
mod io_thread;
#[cfg(feature = "http")]
mod kubeconfig;
pub(crate) mod list;
mod metrics;
pub(crate) mod outage;
mod params;
mod progress;
mod proxy;
mod raw;
mod redact;
mod redirect;
mod resolve;
mod resource;
mod retry;
pub(crate) mod runtime;
mod send;
mod service;
mod span;
mod table;
pub(crate) mod transport;
mod warning;
pub(crate) mod warning_limit;
pub(crate) mod watch;
#[cfg(feature = "http")]
mod yaml;

pub use self::api_client::{Client, Compression};
pub use self::classify::ErrorClass;
pub use self::count::Count;
pub use self::credentials::Credentials;
pub use self::error::{Error, ErrorKind};
pub use self::get::Get;
#[cfg(feature = "http")]
pub use self::http_transport::{Config, HttpTransport};
pub use self::io_thread::IoThread;
#[cfg(feature = "http")]
pub use self::kubeconfig::Kubeconfig;
pub use self::list::{List, ListSummary, Restart};
pub use self::metrics::Metrics;
pub use self::params::{ListParams, ResourceVersion, Selection, WatchParams};
pub use self::progress::Progress;
pub use self::proxy::environment_proxy;
#[doc(hidden)]
pub use self::raw::RawBody;
pub use self::redact::redact_secret;
pub use self::redirect::Redirects;
pub use self::resource::{Kind, Resource};
pub use self::retry::Retry;
pub use self::service::ServiceTransport;
#[doc(hidden)]
pub use self::table::TableForm;
pub use self::transport::{
    MAX_HEADERS, Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind, is_loopback,
};
pub use self::watch::{Disconnect, Watch, WatchEvent, WatchEvents};
