//! Reflectors that run in parallel with the lists, with their own faults, while their objects change; readers of a
//! mirror; and checks of their stores.

use std::collections::BTreeMap;
use std::future::pending;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap as KubeConfigMap;
use k8s_pb::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, ResourceExt as _};
use listwatch::ItemError;
use listwatch::client::{Client, Config, ListParams, Resource, Transport};
use listwatch_cache::{Cache, Change, ChangeLogLimits, Object, Reflector, StorageFormat, Store, Strategy, Subscriber};
use listwatch_e2e::{Result, over_kube};
use listwatch_mirror::{Mirror, Mirrored};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::trouble::{Fault, Trouble, Troubled, proxy};
use crate::worker::World;

/// Only the soak writes to this namespace.
const NAMESPACE: &str = "soak";
const CONFIG_MAPS: usize = 300;
const MOST_LINES: usize = 40;
/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a cache may take to be synced: after a long outage, a reflector retries after up to a minute.
const SYNC_WITHIN: Duration = Duration::from_secs(90);

/// By name: the version of the object, and a hash of its bytes.
type View = BTreeMap<String, (String, u64)>;

/// The reflectors, one for each strategy, the readers of a mirror, and the tasks that change their objects.
pub struct Caches {
    caches: Vec<Followed>,
    /// The cache of the mirror.
    mirrored: Cache<[u8]>,
    /// kube's reflector, which reads from the mirror.
    kube: reflector::Store<KubeConfigMap>,
    /// The tasks that write objects or inject faults hold it for reading.
    gate: Arc<RwLock<()>>,
    direct: Client,
    /// How often each fault happened.
    faults: Arc<Mutex<BTreeMap<String, u64>>>,
}

struct Followed {
    name: String,
    cache: Cache<ConfigMap>,
    /// The objects according to a subscriber.
    received: Arc<Mutex<View>>,
    reflector: JoinHandle<()>,
}

impl Caches {
    /// Starts the tasks on the current runtime.
    pub async fn start(world: Arc<World>, mut rng: Rng) -> Result<Self> {
        let transport =
            |to: SocketAddr| Config::new(format!("https://{to}")).bearer_token("admin").ca_pem(world.ca.clone());
        let direct = Client::new(transport(world.server).build()?);
        let gate = Arc::new(RwLock::new(()));
        let writer = kube::Client::try_from(world.kube.clone())?;
        for number in 0..CONFIG_MAPS {
            put(&writer, "POST", number, &mut rng).await?;
        }
        let (mut caches, faults) = (Vec::new(), Arc::default());
        for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
            let trouble = Arc::new(Trouble::default());
            let proxy = proxy(world.server, Arc::clone(&trouble)).await?;
            let client = match strategy {
                Strategy::WatchList | Strategy::ListThenWatch => troubled(transport(proxy).build()?, &trouble),
                _ => {
                    let mut config = world.kube.clone();
                    config.cluster_url = format!("https://{proxy}").parse()?;
                    troubled(over_kube(config)?, &trouble)
                }
            };
            caches.push(Followed::start(strategy.to_string(), &client, strategy).await?);
            tokio::spawn(make_trouble(trouble, rng.fork(), Arc::clone(&gate), Arc::clone(&faults)));
        }
        let trouble = Arc::new(Trouble::default());
        let upstream = transport(proxy(world.server, Arc::clone(&trouble)).await?).build()?;
        let (mirrored, url) = mirror(Troubled { inner: upstream, trouble: Arc::clone(&trouble) }).await?;
        tokio::spawn(make_trouble(trouble, rng.fork(), Arc::clone(&gate), Arc::clone(&faults)));
        for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
            let client = Client::new(Config::new(&url).build()?);
            caches.push(Followed::start(format!("{strategy} of the mirror"), &client, strategy).await?);
        }
        let kube = read_by_kube(&url)?;
        tokio::spawn(write(writer, rng.fork(), Arc::clone(&gate)));
        Ok(Self { caches, mirrored, kube, gate, direct, faults })
    }

    /// Stops the writes and the faults until the guard is dropped.
    pub async fn quiet(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Waits until each cache and its subscriber have the server's objects, and returns the differences that remain.
    /// The server must be up, and the caller must hold the guard of `quiet`.
    pub async fn divergences(&self) -> Vec<String> {
        let listed = match self.listed().await {
            Ok(listed) => listed,
            Err(error) => return vec![format!("no list to compare caches with: {error}")],
        };
        let mut wrong = Vec::new();
        for followed in &self.caches {
            let Followed { name, cache, received, reflector } = followed;
            let start = Instant::now();
            loop {
                let differs = differs("the cache", &seen(cache), &listed)
                    .or_else(|| differs("the subscriber", &received.lock().unwrap(), &listed));
                let Some(differs) = differs else { break };
                if start.elapsed() > SYNC_WITHIN || reflector.is_finished() {
                    wrong.push(format!("{name}: {differs}; {:?}", cache.status()));
                    break;
                }
                sleep(Duration::from_millis(10)).await;
            }
        }
        let start = Instant::now();
        while let Some(differs) = differs("the store", &seen_by_kube(&self.kube, &listed), &listed) {
            if start.elapsed() > SYNC_WITHIN {
                wrong.push(format!("kube's reflector of the mirror: {differs}"));
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        wrong
    }

    /// Returns how much of the memory that Rust has allocated the stores report as theirs.
    pub fn memory(&self) -> usize {
        let memory = self.caches.iter().map(|followed| followed.cache.memory()).chain([self.mirrored.memory()]);
        memory.map(|memory| memory.total() - memory.zstd).sum()
    }

    pub fn summary(&self) -> String {
        let of = |Followed { name, cache, .. }: &Followed| {
            let (status, objects) = (cache.status(), cache.len());
            format!(
                "{name}: {objects} objects, {} kB, {} events, {} syncs, {} errors\n",
                cache.memory().total() >> 10,
                status.events,
                status.syncs,
                status.errors
            )
        };
        let faults: Vec<_> =
            self.faults.lock().unwrap().iter().map(|(fault, count)| format!("{count} {fault}")).collect();
        let caches: String = self.caches.iter().map(of).collect();
        format!("{caches}faults of their watches: {}\n", faults.join(", "))
    }

    async fn listed(&self) -> Result<View> {
        let list = self.direct.list_with(&Resource::CONFIG_MAPS, &ListParams::default(), |item| {
            let meta = item.meta()?;
            Ok::<_, ItemError>((meta.name().into_owned(), (meta.resource_version().into_owned(), hash(item.bytes()))))
        });
        Ok(list.namespace(NAMESPACE).into_vec().await?.0.into_iter().collect())
    }
}

impl Followed {
    /// Starts a reflector, and waits until it is synced.
    async fn start(name: String, client: &Client, strategy: Strategy) -> Result<Self> {
        let reflector = Reflector::<ConfigMap>::new(client, &Resource::CONFIG_MAPS).namespace(NAMESPACE);
        let reflector = reflector.strategy(strategy).store(Store::new(StorageFormat::Compressed)).prepare();
        let cache = reflector.cache();
        let received = Arc::new(Mutex::new(View::new()));
        tokio::spawn(follow(cache.subscribe().with_initial_state().start(), Arc::clone(&received)));
        let reflector = tokio::spawn(async { drop(reflector.run().await) });
        cache.synced().await?;
        Ok(Self { name, cache, received, reflector })
    }
}

/// Starts a mirror. Returns its cache and its URL.
async fn mirror(upstream: impl Transport) -> Result<(Cache<[u8]>, String)> {
    let upstream: Arc<dyn Transport> = Arc::new(upstream);
    let reflector = Reflector::<[u8]>::new(&Client::new(Arc::clone(&upstream)), &Resource::CONFIG_MAPS);
    let reflector =
        reflector.store(Store::new(StorageFormat::Compressed)).change_log(ChangeLogLimits::default()).prepare();
    let cache = reflector.cache();
    tokio::spawn(async { drop(reflector.run().await) });
    cache.synced().await?;
    let mirrored = Mirrored::new(cache.clone(), Resource::CONFIG_MAPS, None);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(Mirror::new(upstream).resource(mirrored).serve(listener, pending::<()>()));
    Ok((cache, url))
}

/// Starts kube's reflector.
fn read_by_kube(url: &str) -> Result<reflector::Store<KubeConfigMap>> {
    let config_maps = Api::namespaced(kube::Client::try_from(kube::Config::new(url.parse()?))?, NAMESPACE);
    let (store, writer) = reflector::store();
    let events = watcher(config_maps, watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(events.for_each(async |_| {}));
    Ok(store)
}

/// Returns the objects of kube's store, which has no bytes: their hashes are those of the list.
fn seen_by_kube(store: &reflector::Store<KubeConfigMap>, listed: &View) -> View {
    let see = |object: Arc<KubeConfigMap>| {
        let (name, version) = (object.name_any(), object.resource_version().unwrap_or_default());
        let hash = listed.get(&name).map_or(0, |(_, hash)| *hash);
        (name, (version, hash))
    };
    store.state().into_iter().map(see).collect()
}

fn troubled(inner: impl Transport, trouble: &Arc<Trouble>) -> Client {
    Client::new(Troubled { inner, trouble: Arc::clone(trouble) })
}

fn see(object: &Object<ConfigMap>) -> (String, (String, u64)) {
    let bytes = object.encoded().expect("the bytes as they arrived");
    (object.name().into(), (object.resource_version().into(), hash(bytes)))
}

fn seen(cache: &Cache<ConfigMap>) -> View {
    cache.snapshot().iter().map(|object| see(&object)).collect()
}

/// Describes one of the differences.
fn differs(what: &str, view: &View, listed: &View) -> Option<String> {
    let names = view.keys().chain(listed.keys());
    let name = names.into_iter().find(|name| view.get(*name) != listed.get(*name))?;
    let (is, listed_as) = (view.get(name), listed.get(name));
    Some(format!("{what} has {} of {} objects, and {is:?} for {name}, not {listed_as:?}", view.len(), listed.len()))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

async fn follow(mut subscriber: Subscriber<ConfigMap>, received: Arc<Mutex<View>>) {
    while let Some(change) = subscriber.next().await {
        match change {
            Change::Applied { new, .. } => {
                let (name, state) = see(&new);
                received.lock().unwrap().insert(name, state);
            }
            Change::Deleted { last, .. } => drop(received.lock().unwrap().remove(last.name())),
            _ => {}
        }
    }
}

/// Injects one fault after another. The only fault that changes bytes is one that TLS detects.
async fn make_trouble(
    trouble: Arc<Trouble>,
    mut rng: Rng,
    gate: Arc<RwLock<()>>,
    faults: Arc<Mutex<BTreeMap<String, u64>>>,
) {
    loop {
        let open = gate.read().await;
        let fault = Fault::OF_WATCHES[rng.usize(..Fault::OF_WATCHES.len())];
        trouble.arm(fault, rng.u64(..20_000));
        sleep(Duration::from_millis(rng.u64(1000..4000))).await;
        if trouble.disarm() {
            *faults.lock().unwrap().entry(format!("{fault:?}")).or_default() += 1;
        }
        drop(open);
        sleep(Duration::from_millis(rng.u64(1000..4000))).await;
    }
}

/// Changes, deletes and creates objects, and ignores errors while the server is down.
async fn write(client: kube::Client, mut rng: Rng, gate: Arc<RwLock<()>>) {
    loop {
        {
            let _open = gate.read().await;
            let number = rng.usize(..CONFIG_MAPS);
            let method = if rng.u8(..10) == 0 { "DELETE" } else { "PUT" };
            if put(&client, method, number, &mut rng).await.is_err() {
                // The object may not exist, and then it cannot be changed.
                let _ = put(&client, "POST", number, &mut rng).await;
            }
        }
        sleep(PAUSE).await;
    }
}

async fn put(client: &kube::Client, method: &str, number: usize, rng: &mut Rng) -> Result<()> {
    let all = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let path = if method == "POST" { all } else { format!("{all}/c-{number}") };
    let lines: Vec<_> =
        (0..rng.usize(..MOST_LINES)).map(|line| format!("setting-{line} = {:x}", rng.u64(..))).collect();
    let body = if method == "DELETE" {
        String::new()
    } else {
        let data = serde_json::json!({ "settings": lines.join("\n") });
        let metadata = serde_json::json!({ "name": format!("c-{number}"), "labels": { "app": "soak" } });
        serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }).to_string()
    };
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.request_text(request.body(body.into_bytes())?).await?;
    Ok(())
}
