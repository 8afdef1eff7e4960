//! A mirror of an API server without sockets, for unit tests. They import of later layers only this file.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use listwatch::client::{Client, Request, Resource, Response, ResponseFuture, Transport};
use listwatch_cache::{ChangeLogLimits, Reflector, Strategy};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::accept::{HttpServer, Reader};
pub(crate) use crate::answer::LAG;
pub(crate) use crate::pipeline::Pipeline;
use crate::request::ListenerPort;
use crate::resource::{Mirrored, MirroredSet};
use crate::response::ResponseBody;
use crate::settings::{Access, Limits, MirrorSettings};

/// An API server with ConfigMaps. It sends the list at version 1000, and then changes.
pub(crate) struct FakeApiServer {
    items: Vec<Value>,
    /// The list in protobuf, instead of `items`.
    encoded: Option<Bytes>,
    version: Arc<AtomicUsize>,
    /// The open watch.
    watch: Mutex<Option<UnboundedSender<Bytes>>>,
    /// True if reviews grant nothing any more.
    is_withdrawn: AtomicBool,
    requested: Mutex<RequestedBookmark>,
    /// The paths and queries of all GETs.
    asked: Mutex<Vec<String>>,
}

/// What a watch gets that requests a bookmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestedBookmark {
    /// Nothing, until it ends.
    #[default]
    Nothing,
    /// After a second, the version of the API server.
    Newest,
    /// After a second, this version, as from an API server that lags behind another one.
    Version(usize),
    /// A change of the first object at this version, and the newest version after a second.
    AfterChange(usize),
}

impl FakeApiServer {
    /// Creates an API server with this many ConfigMaps, each with this many bytes of data.
    pub(crate) fn new(objects: usize, len: usize) -> Arc<Self> {
        let items = (0..objects).map(|n| config_map(&format!("{n:06}"), n, len)).collect();
        Self::with(items, None)
    }

    /// Creates an API server that sends this list in protobuf.
    pub(crate) fn of_list(list: Bytes) -> Arc<Self> {
        Self::with(Vec::new(), Some(list))
    }

    fn with(items: Vec<Value>, encoded: Option<Bytes>) -> Arc<Self> {
        Arc::new(Self {
            items,
            encoded,
            version: Arc::new(AtomicUsize::new(1000)),
            watch: Mutex::default(),
            is_withdrawn: AtomicBool::new(false),
            requested: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// Returns a mirror whose cache is synced, with `--stale-reads`.
    pub(crate) async fn mirror(self: &Arc<Self>, limits: Limits) -> Arc<Pipeline> {
        self.mirror_for(Access::Loopback, limits).await
    }

    /// Returns a mirror whose cache is synced, with `--stale-reads`. If it is [reviewed](Access::Reviewed), each token
    /// has all rights until [`withdraw`](Self::withdraw).
    pub(crate) async fn mirror_for(self: &Arc<Self>, access: Access, limits: Limits) -> Arc<Pipeline> {
        let settings = MirrorSettings { access, stale_reads: true, limits, ..MirrorSettings::default() };
        self.mirror_with(settings, ChangeLogLimits::default(), |mirrored| mirrored).await
    }

    /// Returns a mirror whose cache is synced.
    pub(crate) async fn mirror_with(
        self: &Arc<Self>,
        settings: MirrorSettings,
        log: ChangeLogLimits,
        change: impl FnOnce(Mirrored) -> Mirrored,
    ) -> Arc<Pipeline> {
        let transport = Arc::clone(self) as Arc<dyn Transport>;
        let reflector = Reflector::<[u8]>::new(&Client::new(Arc::clone(&transport)), &Resource::CONFIG_MAPS);
        let reflector = reflector.strategy(Strategy::ListThenWatch).change_log(log).prepare();
        let cache = reflector.cache();
        tokio::spawn(reflector.run());
        cache.synced().await.unwrap();
        let mirrored = change(Mirrored::new(cache, Resource::CONFIG_MAPS, None));
        let port = ListenerPort { port: 80, is_tls: false };
        let resources = MirroredSet::default();
        resources.add(mirrored);
        Arc::new(Pipeline::new(&transport, resources, &settings, port, None))
    }
}

/// A reader on this host.
pub(crate) fn local_reader() -> Reader {
    Reader::of_test(true, [127, 0, 0, 1])
}

/// Returns a server of connections of this mirror, with the default limits.
pub(crate) fn http_server(mirror: Arc<Pipeline>) -> Arc<HttpServer<Pipeline>> {
    let (metrics, shutdown) = (mirror.metrics.clone(), mirror.shutdown.clone());
    HttpServer::new(Limits::default(), mirror.connections.clone(), metrics, shutdown, mirror)
}

impl Pipeline {
    /// Returns the only mirrored resource.
    pub(crate) fn first_resource(&self) -> Arc<Mirrored> {
        self.resources.all().remove(0)
    }
}

/// Sends a GET from this host.
pub(crate) async fn get(mirror: &Pipeline, path: &str, accept: &'static str) -> http::Response<ResponseBody> {
    let request = http::Request::builder().uri(path).header(HOST, "localhost").header(ACCEPT, accept);
    mirror.respond(request.body(Empty::<Bytes>::new()).unwrap(), local_reader()).await
}

/// Returns the body of a list or an object in JSON from memory.
pub(crate) async fn json(mirror: &Pipeline, path: &str) -> Value {
    let response = get(mirror, path, "application/json").await;
    assert!(response.status().is_success() && response.headers().contains_key(LAG), "{path}: {}", response.status());
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

impl FakeApiServer {
    /// Advances the version of the list, as a write to another resource does.
    pub(crate) fn advance(&self, version: usize) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// Sets what watches get that request a bookmark.
    pub(crate) fn answer_requested(&self, with: RequestedBookmark) {
        *self.requested.lock().unwrap() = with;
    }

    /// Returns the number of GETs so far whose path and query contain this text.
    pub(crate) fn asked(&self, text: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.contains(text)).count()
    }

    /// Returns the number of watches so far that requested a bookmark.
    pub(crate) fn requested_bookmarks(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.ends_with(REQUESTS_BOOKMARK)).count()
    }

    /// Withdraws all rights.
    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
    }

    /// Sends a change of an object, at a version after the list's, to the open watch.
    pub(crate) fn change(&self, version: usize) {
        self.send(event("MODIFIED", "000000", version));
    }

    /// Sends bytes to the open watch.
    pub(crate) fn send(&self, bytes: Bytes) {
        self.watch.lock().unwrap().as_ref().unwrap().unbounded_send(bytes).unwrap();
    }
}

/// The end of the query of a watch that requests a bookmark.
const REQUESTS_BOOKMARK: &str = "&timeoutSeconds=3";

/// Returns an event of a watch.
fn event(kind: &str, name: &str, version: usize) -> Bytes {
    format!("{}\n", json!({ "type": kind, "object": config_map(name, version, 100) })).into()
}

fn config_map(name: &str, version: usize, len: usize) -> Value {
    let version = version.to_string();
    let meta =
        json!({ "name": name, "namespace": "web", "uid": name, "resourceVersion": version, "labels": { "n": name } });
    let data = json!({ "x": name.repeat(len / name.len()) });
    json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": data })
}

impl Transport for FakeApiServer {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.asked.lock().unwrap().push(request.path_and_query.clone());
        let mut content_type = "application/json";
        let body = if request.path_and_query.ends_with(REQUESTS_BOOKMARK) {
            let requested = *self.requested.lock().unwrap();
            let change = match requested {
                RequestedBookmark::AfterChange(version) => Some(version),
                _ => None,
            };
            let change = change.map(|version| event("MODIFIED", "000000", version));
            let newest = Arc::clone(&self.version);
            let late = async move {
                let is_silent = requested == RequestedBookmark::Nothing;
                sleep(Duration::from_secs(if is_silent { 3 } else { 1 })).await;
                let version = match requested {
                    RequestedBookmark::Version(version) => version,
                    _ => newest.load(Ordering::Relaxed),
                };
                (!is_silent).then(|| event("BOOKMARK", "bookmark", version))
            };
            stream::iter(change).chain(stream::once(late).filter_map(std::future::ready)).map(Ok).boxed()
        } else if request.path_and_query.contains("watch=") {
            if self.encoded.is_some() {
                content_type = "application/vnd.kubernetes.protobuf;stream=watch";
            }
            // Watches that the mirror forwards have no timeout.
            if request.path_and_query.contains("timeoutSeconds=") {
                let (sender, changes) = unbounded();
                *self.watch.lock().unwrap() = Some(sender);
                changes.map(Ok).boxed()
            } else {
                stream::pending().boxed()
            }
        } else if let Some(list) = &self.encoded {
            content_type = "application/vnd.kubernetes.protobuf";
            stream::iter([Ok(list.clone())]).boxed()
        } else {
            let meta = json!({ "resourceVersion": self.version.load(Ordering::Relaxed).to_string() });
            let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": self.items });
            stream::iter([Ok(list.to_string().into())]).boxed()
        };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        std::future::ready(Ok(Response::new(StatusCode::OK, headers, body))).boxed()
    }

    fn post(&self, _: Request, _: Bytes) -> ResponseFuture<'_> {
        let is_allowed = !self.is_withdrawn.load(Ordering::Relaxed);
        let review =
            json!({ "status": { "authenticated": true, "user": { "username": "jane" }, "allowed": is_allowed } });
        let body = stream::iter([Ok(review.to_string().into())]).boxed();
        std::future::ready(Ok(Response::new(StatusCode::CREATED, HeaderMap::new(), body))).boxed()
    }
}
