//! A mirror of an API server without sockets, for unit tests. They import of later layers only this file.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use listwatch::client::{Client, Request, Resource, Response, ResponseFuture, Transport};
use listwatch_cache::{ChangeLogLimits, Reflector, Strategy};
use serde_json::{Value, json};

use crate::accept::{HttpServer, Reader};
pub(crate) use crate::answer::{LAG, UNCONFIRMED};
pub(crate) use crate::pipeline::Pipeline;
use crate::request::ListenerPort;
use crate::resource::Mirrored;
use crate::response::ResponseBody;
use crate::settings::{Access, Limits, MirrorSettings};

/// An API server with ConfigMaps. It sends the list at version 1000, and then changes.
pub(crate) struct FakeApiServer {
    items: Vec<Value>,
    /// The list in protobuf, instead of `items`.
    encoded: Option<Bytes>,
    version: AtomicUsize,
    /// The open watch.
    watch: Mutex<Option<UnboundedSender<Bytes>>>,
    /// True if reviews grant nothing any more.
    is_withdrawn: AtomicBool,
}

impl FakeApiServer {
    /// Creates an API server with this many ConfigMaps, each with this many bytes of data.
    pub(crate) fn new(objects: usize, len: usize) -> Arc<Self> {
        let items = (0..objects).map(|n| config_map(&format!("{n:06}"), n, len)).collect();
        let version = AtomicUsize::new(1000);
        Arc::new(Self { items, encoded: None, version, watch: Mutex::default(), is_withdrawn: AtomicBool::new(false) })
    }

    /// Creates an API server that sends this list in protobuf.
    pub(crate) fn of_list(list: Bytes) -> Arc<Self> {
        let (version, is_withdrawn) = (AtomicUsize::new(1000), AtomicBool::new(false));
        Arc::new(Self { items: Vec::new(), encoded: Some(list), version, watch: Mutex::default(), is_withdrawn })
    }

    /// Returns a mirror whose cache is synced, with `--stale-reads`.
    pub(crate) async fn mirror(self: &Arc<Self>, limits: Limits) -> Arc<Pipeline> {
        self.mirror_for(Access::Loopback, limits).await
    }

    /// Returns a mirror whose cache is synced, with `--stale-reads`. If it is [reviewed](Access::Reviewed), each token
    /// has all rights until [`withdraw`](Self::withdraw).
    pub(crate) async fn mirror_for(self: &Arc<Self>, access: Access, limits: Limits) -> Arc<Pipeline> {
        let settings = MirrorSettings { access, stale_reads: true, limits };
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
        Arc::new(Pipeline::new(&transport, vec![mirrored].into(), &settings, port))
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
    pub(crate) fn first_resource(&self) -> &Arc<Mirrored> {
        self.resources.iter().next().unwrap()
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

    /// Withdraws all rights.
    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
    }

    /// Sends a change of an object, at a version after the list's, to the open watch.
    pub(crate) fn change(&self, version: usize) {
        let event = json!({ "type": "MODIFIED", "object": config_map("000000", version, 100) });
        self.watch.lock().unwrap().as_ref().unwrap().unbounded_send(format!("{event}\n").into()).unwrap();
    }
}

fn config_map(name: &str, version: usize, len: usize) -> Value {
    let meta = json!({ "name": name, "namespace": "web", "uid": name, "resourceVersion": version.to_string() });
    let data = json!({ "x": name.repeat(len / name.len()) });
    json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": data })
}

impl Transport for FakeApiServer {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let mut content_type = "application/json";
        let body = if request.path_and_query.contains("watch=") {
            let (sender, changes) = unbounded();
            *self.watch.lock().unwrap() = Some(sender);
            changes.map(Ok).boxed()
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
