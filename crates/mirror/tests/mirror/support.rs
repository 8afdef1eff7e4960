//! An API server without sockets, a running mirror, and raw clients.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, future, io};

use bytes::Bytes;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode};
use listwatch::client::{Client, Request, Resource, Response, ResponseFuture, Transport, TransportError};
use listwatch_cache::{ChangeLogLimits, Reflector, StorageFormat, Store, Strategy};
use listwatch_mirror::{Access, Mirror, Mirrored};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An API server. It answers a GET with the path of the request, a watch with a body that never ends, and
/// `/openapi/endless` with a body that always has more bytes.
#[derive(Default)]
pub struct Upstream {
    pub requests: Mutex<Vec<(String, HeaderMap)>>,
    /// Paths and bodies of reviews.
    pub reviews: Mutex<Vec<(String, Value)>>,
    /// Users by token.
    pub users: Mutex<HashMap<&'static str, &'static str>>,
    /// Every user may read everything, except requests whose review contains one of these texts.
    pub denied: Mutex<Vec<&'static str>>,
    pub fails: AtomicBool,
    /// The lists by their paths: see [`cached`].
    lists: Mutex<HashMap<String, Bytes>>,
    /// The number of open endless bodies.
    pub open: watch::Sender<usize>,
}

impl Upstream {
    pub fn new() -> Arc<Self> {
        let upstream = Self::default();
        upstream.users.lock().unwrap().insert("t0ken", "jane");
        Arc::new(upstream)
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }

    /// Waits until this number of endless bodies is open.
    pub async fn wait_for_open(&self, expected: usize) {
        self.open.subscribe().wait_for(|open| *open == expected).await.unwrap();
    }

    fn review(&self, path: &str, review: &Value) -> Value {
        self.reviews.lock().unwrap().push((path.to_owned(), review.clone()));
        if path.ends_with("tokenreviews") {
            let token = review["spec"]["token"].as_str().unwrap();
            return match self.users.lock().unwrap().get(token) {
                // As the API server, which returns those of the audiences that the token is for.
                Some(user) => json!({
                    "authenticated": true,
                    "user": { "username": user, "groups": ["g"] },
                    "audiences": ["mirror"],
                }),
                None => json!({ "authenticated": false, "error": "invalid bearer token" }),
            };
        }
        let spec = review["spec"].to_string();
        let is_denied = self.denied.lock().unwrap().iter().any(|part| spec.contains(part));
        json!({ "allowed": !is_denied })
    }

    /// Counts a body as open until it is dropped.
    fn counted(
        self: &Arc<Self>,
        body: impl Stream<Item = Bytes> + Send + 'static,
    ) -> impl Stream<Item = Result<Bytes, TransportError>> + Send + 'static {
        struct Open(Arc<Upstream>);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.open.send_modify(|open| *open -= 1);
            }
        }
        self.open.send_modify(|open| *open += 1);
        let open = Open(Arc::clone(self));
        body.map(move |chunk| {
            let _open = &open;
            Ok(chunk)
        })
    }
}

/// The transport to an [`Upstream`].
pub struct To(pub Arc<Upstream>);

impl Transport for To {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let path = request.path_and_query;
        self.0.requests.lock().unwrap().push((path.clone(), request.headers));
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/json"),
            ("set-cookie", "a=b"),
            ("connection", "keep-alive"),
            ("location", "https://elsewhere"),
            ("x-other", "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let status = match &*path {
            "/openapi/unauthorized" => StatusCode::UNAUTHORIZED,
            "/openapi/redirect" => StatusCode::FOUND,
            "/openapi/missing" => StatusCode::NOT_FOUND,
            "/api/v1/denied-to-mirror" => StatusCode::FORBIDDEN,
            _ => StatusCode::OK,
        };
        let list = path.split_once('?').and_then(|(path, _)| self.0.lists.lock().unwrap().get(path).cloned());
        let body = if let Some(list) = list {
            if path.contains("watch=") { stream::pending().boxed() } else { stream::iter([Ok(list)]).boxed() }
        } else if path.contains("watch=1") {
            let first = stream::iter([Bytes::from_static(b"event\n")]);
            self.0.counted(first.chain(stream::pending())).boxed()
        } else if path == "/openapi/endless" {
            self.0.counted(stream::repeat(Bytes::from_static(&[b'x'; 16 << 10]))).boxed()
        } else {
            stream::iter([Ok(Bytes::from(path))]).boxed()
        };
        future::ready(Ok(Response::new(status, headers, body))).boxed()
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        let fails = self.0.fails.load(Ordering::Relaxed);
        let status = if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED };
        let review = self.0.review(&request.path_and_query, &serde_json::from_slice(&body).unwrap());
        let body = Bytes::from(json!({ "status": review }).to_string());
        future::ready(Ok(Response::new(status, HeaderMap::new(), stream::iter([Ok(body)]).boxed()))).boxed()
    }
}

/// A running mirror.
pub struct Running {
    pub address: SocketAddr,
    certificate: Option<CertificateDer<'static>>,
    /// The files of the certificate.
    _files: Option<tempfile::TempDir>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<io::Result<()>>,
}

/// Returns a cache that is not synced.
pub fn mirrored(upstream: &Arc<Upstream>, resource: &Resource) -> Mirrored {
    let client = Client::new(To(Arc::clone(upstream)));
    Mirrored::new(Reflector::<[u8]>::new(&client, resource).prepare().cache(), resource.clone(), None)
}

/// Returns a synced cache with this many ConfigMaps, each with this many bytes of data.
pub async fn synced(upstream: &Arc<Upstream>, objects: usize, len: usize) -> Mirrored {
    let data = "x".repeat(len);
    let items = (0..objects).map(|n| {
        let name = format!("{n:06}");
        let meta = json!({ "name": name, "namespace": "a", "uid": name, "resourceVersion": "5" });
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": { "x": data } })
    });
    cached(upstream, &Resource::CONFIG_MAPS, items.collect()).await
}

/// Returns a synced cache with these objects, which the API server sends as JSON.
pub async fn cached(upstream: &Arc<Upstream>, resource: &Resource, items: Vec<Value>) -> Mirrored {
    let (kind, api_version) = (resource.kind(), resource.api_version());
    let meta = json!({ "resourceVersion": "7" });
    let list = json!({ "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": meta, "items": items });
    let root = if resource.group().is_empty() { "api" } else { "apis" };
    let path = format!("/{root}/{api_version}/{}", resource.plural());
    upstream.lists.lock().unwrap().insert(path, list.to_string().into());
    let client = Client::new(To(Arc::clone(upstream)));
    let reflector = Reflector::<[u8]>::new(&client, resource).strategy(Strategy::ListThenWatch);
    let store = Store::new(StorageFormat::Encoded);
    store.set_budget(Some(1 << 30));
    let reflector = reflector.store(store).change_log(ChangeLogLimits::default()).prepare();
    let cache = reflector.cache();
    tokio::spawn(reflector.run());
    cache.synced().await.unwrap();
    Mirrored::new(cache, resource.clone(), None)
}

pub fn mirror(upstream: &Arc<Upstream>) -> Mirror {
    let client = Client::new(To(Arc::clone(upstream)));
    Mirror::new(Arc::new(To(Arc::clone(upstream)))).client(&client)
}

impl Running {
    pub fn start(mirror: Mirror) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(mirror.serve(listener, async move { _ = stopped.await }));
        Self { address, certificate: None, _files: None, stop: Some(stop), served }
    }

    /// Starts a mirror with TLS and reviews.
    pub fn reviewed(mirror: Mirror) -> Self {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        fs::write(&certificate, certified.cert.pem()).unwrap();
        fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
        let running = Self::start(mirror.access(Access::Reviewed).tls(certificate, key));
        Self { certificate: Some(certified.cert.der().clone()), _files: Some(folder), ..running }
    }

    /// Asks the mirror to end.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub async fn stopped(self) {
        self.served.await.unwrap().unwrap();
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub async fn connect_tls(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone().unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(listwatch::internal::crypto_provider().unwrap())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await.unwrap()
    }

    /// Sends these bytes, with `PORT` replaced, and returns all that the mirror sends until it closes the connection.
    pub async fn raw(&self, request: &str) -> String {
        let request = request.replace("PORT", &self.address.port().to_string());
        if self.certificate.is_some() {
            exchange(self.connect_tls().await, &request).await
        } else {
            exchange(self.connect().await, &request).await
        }
    }

    /// Sends a GET with these header lines, each of which ends in `\r\n`.
    pub async fn get(&self, path: &str, headers: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: close\r\n{headers}\r\n")).await
    }
}

async fn exchange(mut io: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    // The mirror may close the connection before it has read everything.
    _ = io.write_all(request.as_bytes()).await;
    read_all(&mut io).await
}

/// Reads until the mirror closes the connection. A reset ends the text too.
pub async fn read_all(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    while let Ok(1..) = io.read_buf(&mut answer).await {}
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status code of a response.
pub fn code(response: &str) -> &str {
    response.strip_prefix("HTTP/1.1 ").or(response.strip_prefix("HTTP/1.0 ")).map_or("none", |rest| &rest[..3])
}
