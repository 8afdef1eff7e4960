//! A mirror answers reads without a version never from an older state than the server had when they arrived, also if
//! one of several API servers lags behind the others.
//!
//! In one test, a transport holds back the bodies of some watches. In the other, a second kube-apiserver uses the same
//! etcd, whose answers reach it late.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::unbounded;
use futures::{FutureExt as _, StreamExt as _};
use http::header::ACCEPT;
use listwatch::client::{Client, Config, Request, Resource, Response, ResponseFuture, Transport};
use listwatch::{Event, ListDecoder};
use listwatch_cache::StorageFormat;
use listwatch_e2e::{CHANGED, Result, Server, annotate, listed, pod};
use listwatch_mirror::Mirror;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until};

use crate::mirror::{Informer, Running, collection};

const PORT: u16 = 17193;
const TWO_SERVERS_PORT: u16 = 17203;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Delays the bodies of watches by this many milliseconds.
struct Lagging {
    server: Arc<dyn Transport>,
    /// The watch of the cache.
    main: AtomicU64,
    /// The watches that request a bookmark.
    requested: AtomicU64,
}

impl Lagging {
    fn set(&self, main: u64, requested: u64) {
        self.main.store(main, Relaxed);
        self.requested.store(requested, Relaxed);
    }

    fn delay(self: &Arc<Self>, response: Response, is_requested: bool) -> Response {
        let (sender, receiver) = unbounded();
        let mut body = response.body;
        tokio::spawn(async move {
            while let Some(chunk) = body.next().await {
                if sender.unbounded_send((Instant::now(), chunk)).is_err() {
                    return;
                }
            }
        });
        let lagging = Arc::clone(self);
        let delayed = receiver.then(move |(at, chunk)| {
            let lag = if is_requested { &lagging.requested } else { &lagging.main };
            sleep_until(at + Duration::from_millis(lag.load(Relaxed))).map(move |()| chunk)
        });
        Response::new(response.status, response.headers, delayed.boxed())
    }
}

/// The transport of a mirror.
struct LaggingTransport(Arc<Lagging>);

impl Transport for LaggingTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let path = request.path_and_query.clone();
        let answer = self.0.server.get(request);
        async move {
            let response = answer.await?;
            let is_watch = path.contains("watch=1");
            Ok(if is_watch {
                self.0.delay(response, path.contains("timeoutSeconds=3&") || path.ends_with("timeoutSeconds=3"))
            } else {
                response
            })
        }
        .boxed()
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.0.server.post(request, body)
    }
}

/// A server, and a mirror of its Pods.
struct Tested {
    server: Server,
    lagging: Arc<Lagging>,
    mirror: Running,
    http: reqwest::Client,
    writer: kube::Client,
    /// A Pod.
    key: String,
    writes: u64,
}

impl Tested {
    async fn start() -> Result<Self> {
        let server = Server::start(PORT, &[])?;
        server.load(300)?;
        let transport: Arc<dyn Transport> = Arc::new(server.http("admin")?.build()?);
        let lagging =
            Arc::new(Lagging { server: transport, main: AtomicU64::default(), requested: AtomicU64::default() });
        let transport: Arc<dyn Transport> = Arc::new(LaggingTransport(Arc::clone(&lagging)));
        let client = Client::new(Arc::clone(&transport));
        let pods = collection(&client, Resource::PODS, StorageFormat::Compressed);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mirror = Running::start(Mirror::new(transport), vec![pods], listener, "http").await?;
        let writer = server.kube_client().await?;
        let key = listed(&server.client()?, "").await?.into_keys().next().ok_or("no Pod")?;
        server.kubectl(&["create", "configmap", "-n", "default", "other"])?;
        Ok(Self { server, lagging, mirror, http: reqwest::Client::new(), writer, key, writes: 0 })
    }

    /// Writes to the Pod, and returns what it wrote.
    async fn change_pod(&mut self) -> Result<String> {
        self.writes += 1;
        let (pods, name) = pod(&self.writer, &self.key);
        let value = self.writes.to_string();
        annotate(&pods, name, &value).await?;
        Ok(value)
    }

    /// Advances the version of the server, and no Pod.
    fn change_other(&mut self) -> Result<()> {
        self.writes += 1;
        let at = format!("at={}", self.writes);
        self.server.kubectl(&["annotate", "--overwrite", "configmap", "-n", "default", "other", &at]).map(drop)
    }

    async fn list(&self, query: &str) -> Result<(String, bool)> {
        list(&self.http, &self.mirror.url, query, &self.key).await
    }

    /// Starts a watch without a version, and returns its status.
    async fn watch_list(&self) -> Result<u16> {
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let url = format!("{}/api/v1/pods?{query}", self.mirror.url);
        Ok(self.http.get(url).send().await?.status().as_u16())
    }
}

/// Lists all Pods. Returns the annotation of the Pod with this key, and whether the answer is from memory.
async fn list(http: &reqwest::Client, mirror: &str, query: &str, key: &str) -> Result<(String, bool)> {
    let url = format!("{mirror}/api/v1/pods{query}");
    let response = http.get(url).header(ACCEPT, PROTOBUF).send().await?.error_for_status()?;
    let is_cached = response.headers().contains_key("listwatch-lag-seconds");
    let body = response.bytes().await?;
    let (mut decoder, mut rest) = (ListDecoder::new(), &body[..]);
    let mut found = None;
    while let Some(event) = decoder.decode(&mut rest)? {
        if let Event::Item(item) = event {
            let meta = item.meta()?;
            if format!("{}/{}", meta.namespace(), meta.name()) == key {
                found = Some(meta.annotation(CHANGED)?.unwrap_or_default().into_owned());
            }
        }
    }
    decoder.finish()?;
    Ok((found.ok_or("no Pod")?, is_cached))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_without_a_version_are_not_older_than_their_request() -> Result<()> {
    let mut tested = Tested::start().await?;

    // Quiet Pods, while another collection changes.
    let mut from_memory = 0;
    for _ in 0..20 {
        block_in_place(|| tested.change_other())?;
        from_memory += u32::from(tested.list("").await?.1);
    }
    println!("{from_memory} of 20 lists of a quiet collection from memory");
    assert!(from_memory >= 19, "{from_memory}");

    for (main, requested) in [(0, 0), (700, 0), (0, 700), (400, 1500)] {
        tested.lagging.set(main, requested);
        let mut from_memory = 0;
        for _ in 0..10 {
            let written = tested.change_pod().await?;
            let (found, is_cached) = tested.list("").await?;
            assert_eq!(found, written, "{main} {requested}: an older state");
            from_memory += u32::from(is_cached);
        }
        println!("lag {main} ms and {requested} ms: {from_memory} of 10 from memory");
    }

    // The watch of the mirror stalls.
    tested.lagging.set(0, 0);
    sleep(Duration::from_secs(2)).await;
    let known = tested.list("?resourceVersion=0").await?.0;
    tested.lagging.set(3_600_000, 0);
    let written = tested.change_pod().await?;
    assert_eq!(tested.watch_list().await?, 504);
    for _ in 0..3 {
        assert_eq!(tested.list("").await?, (written.clone(), false));
    }
    assert_eq!(tested.list("?resourceVersion=0").await?, (known, true));
    // client-go lists after the 504.
    let informer = block_in_place(|| Informer::start(&tested.mirror.url, true, false))?;
    drop(informer);
    tested.mirror.stop().await
}

/// Forwards connections to etcd, and holds back what etcd sends by this many milliseconds.
async fn slow_etcd(etcd: u16, lag: Arc<AtomicU64>) -> Result<u16> {
    let listener = net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((server, _)) = listener.accept().await {
            let Ok(etcd) = net::TcpStream::connect(("127.0.0.1", etcd)).await else { return };
            let ((mut from_server, mut to_server), (mut from_etcd, mut to_etcd)) =
                (server.into_split(), etcd.into_split());
            tokio::spawn(async move { drop(copy(&mut from_server, &mut to_etcd).await) });
            let (sender, mut receiver) = unbounded();
            tokio::spawn(async move {
                let mut chunk = vec![0; 1 << 16];
                while let Ok(len @ 1..) = from_etcd.read(&mut chunk).await {
                    drop(sender.unbounded_send((Instant::now(), chunk[..len].to_vec())));
                }
            });
            let lag = Arc::clone(&lag);
            tokio::spawn(async move {
                while let Some((at, chunk)) = receiver.next().await {
                    sleep_until(at + Duration::from_millis(lag.load(Relaxed))).await;
                    if to_server.write_all(&chunk).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(port)
}

/// Where the requests of a mirror go, as a balancer of connections or of requests distributes them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    To(usize),
    /// To both servers in turn.
    InTurn,
}

/// Sends the watch of the cache to one server, and everything else to the other one or to both.
struct TwoServers {
    servers: [Arc<dyn Transport>; 2],
    watch: usize,
    others: Others,
    requests: AtomicUsize,
}

impl Transport for TwoServers {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let path = &request.path_and_query;
        let is_of_cache = path.contains("watch=1") && !path.contains("timeoutSeconds=3");
        let at = match self.others {
            _ if is_of_cache => self.watch,
            Others::To(server) => server,
            Others::InTurn => self.requests.fetch_add(1, Relaxed) % 2,
        };
        self.servers[at].get(request)
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.servers[0].post(request, body)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_not_older_than_their_request_with_a_second_server_that_lags() -> Result<()> {
    let server = Server::start(TWO_SERVERS_PORT, &[])?;
    server.load(300)?;
    server.kubectl(&["create", "configmap", "-n", "default", "other"])?;
    let lag = Arc::new(AtomicU64::default());
    let etcd = slow_etcd(TWO_SERVERS_PORT + 1, Arc::clone(&lag)).await?;
    let second = block_in_place(|| server.start_second(TWO_SERVERS_PORT + 3, etcd))?;
    let behind = Config::new(&second.url).bearer_token("admin").ca_pem(server.ca()?);
    let servers: [Arc<dyn Transport>; 2] = [Arc::new(server.http("admin")?.build()?), Arc::new(behind.build()?)];
    let (key, _) = listed(&server.client()?, "").await?.pop_first().ok_or("no Pod")?;
    let mut tested = Vec::new();
    for (watch, others) in [(0, Others::To(1)), (1, Others::To(0)), (0, Others::InTurn), (1, Others::InTurn)] {
        let two = TwoServers { servers: servers.clone(), watch, others, requests: AtomicUsize::default() };
        let transport: Arc<dyn Transport> = Arc::new(two);
        let pods = collection(&Client::new(Arc::clone(&transport)), Resource::PODS, StorageFormat::Compressed);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mirror = Running::start(Mirror::new(transport), vec![pods], listener, "http").await?;
        tested.push((MirrorOfTwo { mirror, http: reqwest::Client::new(), key: key.clone() }, watch, others));
    }
    let writer = server.kube_client().await?;
    let (pods, name) = pod(&writer, &key);
    let mut writes = 0;
    for milliseconds in [0, 700] {
        lag.store(milliseconds, Relaxed);
        for (of_two, watch, others) in &tested {
            let mut from_memory = [0, 0];
            for _ in 0..5 {
                writes += 1;
                annotate(&pods, name, &writes.to_string()).await?;
                let at = format!("at={writes}");
                let other = ["annotate", "--overwrite", "configmap", "-n", "default", "other", &at];
                for (is_quiet, count) in from_memory.iter_mut().enumerate() {
                    if is_quiet == 1 {
                        block_in_place(|| server.kubectl(&other))?;
                    }
                    let (found, is_cached) = of_two.list().await?;
                    assert_eq!(found, writes.to_string(), "{watch} {others:?}, lag {milliseconds} ms: an older state");
                    *count += u32::from(is_cached);
                }
            }
            let [changed, quiet] = from_memory;
            println!(
                "watch at server {watch}, others {others:?}, server 1 lags {milliseconds} ms: from memory {changed} of 5 \
                 lists after a change, and {quiet} of 5 without one"
            );
            let has_confirmed = *others == Others::InTurn || milliseconds > 0 || changed + quiet >= 9;
            assert!(has_confirmed, "a server confirms what the watch of the other one has delivered");
        }
    }
    for (of_two, ..) in &mut tested {
        of_two.mirror.stop().await?;
    }
    Ok(())
}

/// A mirror that reads from two servers.
struct MirrorOfTwo {
    mirror: Running,
    http: reqwest::Client,
    key: String,
}

impl MirrorOfTwo {
    async fn list(&self) -> Result<(String, bool)> {
        list(&self.http, &self.mirror.url, "", &self.key).await
    }
}
