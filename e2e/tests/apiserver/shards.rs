//! The example `shards` of listwatch-kube, against a server that supports shards and a server that ignores them.

#[path = "../../../crates/kube/examples/shards/assignment.rs"]
mod assignment;
#[path = "../../../crates/kube/examples/shards/replica.rs"]
mod replica;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use listwatch::Shard;
use listwatch::client::{Client, ListParams, Resource, Selection};
use listwatch_cache::Cache;
use listwatch_e2e::{Result, Server, listed};
use replica::{Change, Replica};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const PORT: u16 = 16783;
const PODS: usize = 1000;
const SHARDS: u32 = 3;
const LEASE_SECONDS: u64 = 9;

/// Which replica serves which shard, as the replicas report.
#[derive(Default)]
struct Board {
    served: BTreeMap<String, (&'static str, Cache<[u8]>)>,
    /// Reports that contradict `served`.
    faults: Vec<String>,
}

/// A replica in its own runtime. Dropping it ends the runtime without a report, as when a process is killed.
struct Running {
    name: &'static str,
    runtime: Option<Runtime>,
    done: JoinHandle<std::result::Result<(), replica::Error>>,
    stop: oneshot::Sender<()>,
    is_killed: Arc<AtomicBool>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pod_is_in_one_replica() -> Result<()> {
    for (knows_shards, flags) in [(true, &["--feature-gates=ShardedListAndWatch=true"][..]), (false, &[])] {
        println!("a server that {} shards", if knows_shards { "supports" } else { "ignores" });
        run(knows_shards, flags).await?;
    }
    Ok(())
}

async fn run(knows_shards: bool, flags: &[&str]) -> Result<()> {
    let server = Server::start(PORT, flags)?;
    server.load(PODS as u64)?;
    let config = server.kube(|_| {}).await?;
    let client = server.client()?;
    let options = ListParams::new(Selection::all().shard(Shard::new(0, SHARDS)?));
    let (_, summary) = client.list::<[u8]>(&Resource::PODS, &options).into_vec().await?;
    assert_eq!(summary.other_shards == 0, knows_shards);

    let board = Arc::new(Mutex::new(Board::default()));
    let start = |name, config: &_| start(name, config, &board);
    let (cut, is_cut) = watch::channel(false);
    let mut far = config.clone();
    far.cluster_url = far_end(&server.url, is_cut).await?.parse()?;
    let a = start("a", &config)?;
    let b = start("b", &far)?;
    let c = start("c", &config)?;
    settled(&board, &client, &[("a", 1), ("b", 1), ("c", 1)]).await?;

    let writer = kube::Client::try_from(config.clone())?;
    let pods = listed(&client, "").await?;
    for (i, pod) in pods.keys().enumerate().take(60) {
        let (namespace, name) = pod.split_once('/').ok_or("no name")?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let (method, path, body) = if i % 3 == 0 {
            ("DELETE", format!("{path}?gracePeriodSeconds=0"), "")
        } else {
            ("PATCH", path, r#"{"metadata":{"annotations":{"example.com/changed":"yes"}}}"#)
        };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/merge-patch+json").body(body.into())?;
        writer.request_text(request).await?;
    }
    settled(&board, &client, &[("a", 1), ("b", 1), ("c", 1)]).await?;
    let changed = listed(&client, "").await?;
    assert!(
        changed.len() < pods.len()
            && changed.iter().filter(|(pod, version)| pods.get(*pod) != Some(version)).count() >= 40
    );

    // Replica b is killed, or cut off from the server: then it must stop serving before another replica takes its
    // shard.
    let b = if knows_shards {
        kill(b, &board);
        None
    } else {
        cut.send_replace(true);
        Some(b)
    };
    settled(&board, &client, &[("a", 2), ("c", 1)]).await?;
    drop(b);
    let d = start("d", &config)?;
    settled(&board, &client, &[("a", 1), ("c", 1), ("d", 1)]).await?;

    stop(a).await?;
    assert!(board.lock().unwrap().served.values().all(|(replica, _)| *replica != "a"), "replica a serves no shard");
    settled(&board, &client, &[("c", 2), ("d", 1)]).await?;
    stop(c).await?;
    settled(&board, &client, &[("d", 3)]).await?;
    stop(d).await?;
    assert_eq!(board.lock().unwrap().faults, [""; 0]);
    Ok(())
}

fn start(name: &'static str, config: &kube::Config, board: &Arc<Mutex<Board>>) -> Result<Running> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let is_killed = Arc::new(AtomicBool::new(false));
    let on_change = {
        let (board, is_killed) = (Arc::clone(board), Arc::clone(&is_killed));
        move |change| {
            let Board { served, faults } = &mut *board.lock().unwrap();
            if is_killed.load(Relaxed) {
                return;
            }
            match change {
                Change::Taken(shard, cache) => {
                    if let Some((other, _)) = served.insert(shard.to_string(), (name, cache)) {
                        faults.push(format!("{name} serves shard {shard}, which {other} serves"));
                    }
                }
                Change::Lost(shard) => {
                    if served.remove(&shard.to_string()).is_none_or(|(replica, _)| replica != name) {
                        faults.push(format!("{name} lost shard {shard}, which it did not serve"));
                    }
                }
            }
        }
    };
    let namespace = "default".to_owned();
    let (shards, lease_seconds) = (SHARDS, LEASE_SECONDS);
    let replica = Replica { name: name.to_owned(), resource: Resource::PODS, shards, namespace, lease_seconds };
    let stopped = async { drop(stopped.await) };
    let done = runtime.spawn(replica.run(config.clone(), on_change, stopped));
    Ok(Running { name, runtime: Some(runtime), done, stop, is_killed })
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn kill(replica: Running, board: &Mutex<Board>) {
    let (name, served) = (replica.name, &mut board.lock().unwrap().served);
    replica.is_killed.store(true, Relaxed);
    drop(replica);
    served.retain(|_, (replica, _)| *replica != name);
}

async fn stop(mut replica: Running) -> Result<()> {
    // The runtime must run until the replica is done.
    let (sender, _) = oneshot::channel();
    drop(std::mem::replace(&mut replica.stop, sender));
    timeout(Duration::from_secs(60), &mut replica.done).await??
}

/// Returns the URL of a proxy to the server. After a cut, its connections stay open, but carry nothing.
async fn far_end(server: &str, is_cut: watch::Receiver<bool>) -> Result<String> {
    let server = server.strip_prefix("https://").ok_or("no https")?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (server, mut is_cut) = (server.clone(), is_cut.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await?;
                select! {
                    biased;
                    () = async { drop(is_cut.wait_for(|is_cut| *is_cut).await) } => pending().await,
                    copied = copy_bidirectional(&mut near, &mut far) => copied,
                }
            });
        }
    });
    Ok(url)
}

/// Waits until each replica serves the expected number of shards, and their caches together have each Pod once.
async fn settled(board: &Mutex<Board>, client: &Client, expected: &[(&str, usize)]) -> Result<()> {
    let started = Instant::now();
    let is_settled = async {
        loop {
            sleep(Duration::from_millis(50)).await;
            let counts = {
                let mut counts = BTreeMap::new();
                for (replica, _) in board.lock().unwrap().served.values() {
                    *counts.entry(*replica).or_insert(0) += 1;
                }
                counts
            };
            if counts.into_iter().eq(expected.iter().copied())
                && listed(client, "").await?.into_iter().eq(cached(board))
            {
                return Ok(());
            }
        }
    };
    let is_settled = timeout(Duration::from_secs(120), is_settled).await;
    let Board { served, faults } = &*board.lock().unwrap();
    let replicas: Vec<_> =
        served.iter().map(|(shard, (name, cache))| format!("{shard}: {name} {}", cache.len())).collect();
    println!("{replicas:?} after {:?}, {faults:?}", started.elapsed());
    is_settled.map_err(|_| format!("the replicas do not reach {expected:?}"))?
}

/// Returns the sorted names and versions of the Pods in all caches; a Pod in two caches is returned twice.
fn cached(board: &Mutex<Board>) -> Vec<(String, String)> {
    let caches: Vec<_> = board.lock().unwrap().served.values().map(|(_, cache)| cache.clone()).collect();
    let mut pods = Vec::new();
    for cache in caches {
        pods.extend(cache.snapshot().iter().map(|pod| (pod.key().to_string(), pod.resource_version().to_owned())));
    }
    pods.sort();
    pods
}
