//! Warm starts: caches start from files and resume their watch without a list. `PODS=50000` sets the size; times are
//! worth reading with `--release` and `--nocapture`.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, iter};

use k8s_pb::api::core::v1::Pod;
use listwatch::client::{Client, HttpTransport, Resource, Transport};
use listwatch::client::{Request, ResponseFuture};
use listwatch_cache::{Cache, Change, FileError, PreparedReflector, Reflector, StorageFormat, Store, Strategy};
use listwatch_e2e::{Result, Server, agree, listed, seen, size};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const PORT: u16 = 17953;

/// Records the requests.
#[derive(Clone)]
struct Recording(Arc<HttpTransport>, Arc<Mutex<Vec<String>>>);

impl Transport for Recording {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.1.lock().unwrap().push(request.path_and_query.clone());
        self.0.get(request)
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }
}

impl Recording {
    fn new(server: &Server) -> Result<Self> {
        Ok(Self(Arc::new(server.http("admin")?.build()?), Arc::default()))
    }

    /// Returns how often the collection was requested, by a list or with initial events.
    fn collections(&self) -> usize {
        let requests = self.1.lock().unwrap();
        let whole = requests.iter().filter(|path| {
            path.starts_with("/api/v1/pods") && (!path.contains("watch=1") || path.contains("sendInitialEvents"))
        });
        whole.count()
    }
}

struct Running {
    cache: Cache<Pod>,
    run: JoinHandle<()>,
    transport: Recording,
}

impl Running {
    fn begin(reflector: PreparedReflector<Pod>, transport: Recording) -> Self {
        let cache = reflector.cache();
        let run = tokio::spawn(async move { drop(reflector.run().await) });
        Self { cache, run, transport }
    }

    async fn is_synced(&self, server: &Server) -> Result<()> {
        timeout(Duration::from_secs(120), self.cache.synced()).await??;
        let expected = listed(&server.client()?, "").await?;
        agree("the cache", &expected, || Ok(seen(&self.cache))).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.run.abort();
    }
}

fn reflector(transport: &Recording, format: StorageFormat) -> Reflector<Pod> {
    Reflector::new(&Client::new(transport.clone()), &Resource::PODS).store(Store::new(format))
}

async fn warm(server: &Server, format: StorageFormat, path: &Path) -> Result<Running> {
    let transport = Recording::new(server)?;
    let mut reflector = reflector(&transport, format).prepare();
    reflector.load(path).await?;
    Ok(Running::begin(reflector, transport))
}

async fn refused(server: &Server, path: &Path) -> Result<FileError> {
    let transport = Recording::new(server)?;
    let mut reflector = reflector(&transport, StorageFormat::Encoded).prepare();
    let error = reflector.load(path).await.err().ok_or("the file was loaded")?;
    let running = Running::begin(reflector, transport);
    running.is_synced(server).await?;
    Ok(error)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_starts_resume_without_a_list() -> Result<()> {
    let pods = size("PODS", 2000);
    let mut server = Server::start(PORT, &[])?;
    server.load(pods)?;
    let first_pods = listed(&server.client()?, "").await?;
    let name = |at: usize| first_pods.keys().nth(at).map_or("", |key| key.split_once('/').unwrap_or_default().1);

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pods");
    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        for strategy in [Strategy::WatchList, Strategy::ListThenWatch] {
            let transport = Recording::new(&server)?;
            let started = Instant::now();
            let cold = Running::begin(reflector(&transport, format).strategy(strategy).prepare(), transport);
            timeout(Duration::from_secs(300), cold.cache.synced()).await??;
            let cold_time = started.elapsed();
            cold.is_synced(&server).await?;
            assert!(cold.transport.collections() > 0, "a cold start requests the collection");
            let started = Instant::now();
            let cache = cold.cache.clone();
            let path = file.clone();
            tokio::task::spawn_blocking(move || cache.save(path)).await??;
            let (save_time, len) = (started.elapsed(), fs::metadata(&file)?.len());
            drop(cold);

            let started = Instant::now();
            let warm = warm(&server, format, &file).await?;
            let load_time = started.elapsed();
            timeout(Duration::from_secs(60), warm.cache.synced()).await??;
            let warm_time = started.elapsed();
            let ratio = warm_time.as_secs_f64() / cold_time.as_secs_f64();
            println!(
                "{format:?}: {} Pods, {strategy} {cold_time:?}, saved in {save_time:?} as {len} bytes, \
                 loaded in {load_time:?} and synced in {warm_time:?}: {ratio:.3} of the cold time",
                warm.cache.len()
            );
            warm.is_synced(&server).await?;
            assert_eq!(warm.transport.collections(), 0, "{:?}", warm.transport.1);
            assert_eq!(warm.cache.status().syncs, 0);
        }
    }

    // Changes while no watch runs.
    let namespace = |at: usize| first_pods.keys().nth(at).map_or("", |key| key.split_once('/').unwrap_or_default().0);
    server.kubectl(&["-n", namespace(1), "annotate", "pod", name(1), "warm=1"])?;
    server.kubectl(&["-n", namespace(2), "delete", "pod", name(2), "--wait=false", "--grace-period=0", "--force"])?;
    let running = warm(&server, StorageFormat::Compressed, &file).await?;
    running.is_synced(&server).await?;
    assert_eq!(running.transport.collections(), 0);
    assert_eq!(running.cache.status().resource_version.is_some(), running.cache.is_synced());
    drop(running);

    // A restarted server has no history: the reflector relists, and keeps the entries of unchanged objects.
    server.kill();
    let backup = copy(server.dir())?;
    server.restart(&[])?;
    let running = warm(&server, StorageFormat::Compressed, &file).await?;
    let mut changes = running.cache.subscribe().with_initial_state().namespace(namespace(0)).start();
    running.is_synced(&server).await?;
    let status = running.cache.status();
    println!("after a restart: {} collections, last error {:?}", running.transport.collections(), status.last_error);
    assert!(status.syncs == 1 && status.last_error.is_some_and(|error| error.is_expired()));
    let is_untouched = |change: &Change<Pod>| matches!(change, Change::Applied { new, .. } if new.name() == name(0));
    let delivered = iter::from_fn(|| changes.try_next()).filter(is_untouched).count();
    assert_eq!(delivered, 1, "a relist that finds a Pod as it was loaded is no change of it");

    // The collection changes, the cache is saved, and the backup is restored.
    for value in 2..10 {
        server.kubectl(&["-n", namespace(3), "annotate", "--overwrite", "pod", name(3), &format!("warm={value}")])?;
    }
    running.is_synced(&server).await?;
    running.cache.save(&file)?;
    drop(running);
    drop(server);
    let server = Server::start_in(backup, PORT, &[])?;
    println!("restored from a backup: {}", refused(&server, &file).await?);
    // The restored server gets other changes, past the saved version.
    for value in 20..60 {
        server.kubectl(&["-n", namespace(4), "annotate", "--overwrite", "pod", name(4), &format!("warm={value}")])?;
    }
    let error = refused(&server, &file).await?;
    println!("past the saved version: {error}");
    assert!(matches!(error, FileError::OtherHistory { .. }), "{error}");
    drop(server);

    let server = Server::start(PORT, &[])?;
    server.load(500)?;
    println!("another cluster: {}", refused(&server, &file).await?);
    Ok(())
}

/// Copies the data directory of a server that does not run.
fn copy(from: &Path) -> Result<TempDir> {
    let to = tempfile::tempdir()?;
    let status = Command::new("cp").arg("-a").args([&from.join("."), to.path()]).status()?;
    if status.success() { Ok(to) } else { Err(format!("cp: {status}").into()) }
}
