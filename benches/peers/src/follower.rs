//! A process that keeps Pods in a cache, up to date.
//!
//! Its handler receives every Pod decoded, including the initial ones, and reads an annotation. The handlers of some
//! ways read it from the bytes instead; they also read connections on the runtime of the program. A controller's
//! reconciler reads five more fields and an index.

use std::convert::Infallible;
use std::fs;
use std::hash::Hash;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use futures::{Stream, StreamExt};
use hdrhistogram::Histogram;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_pb::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use listwatch::client::{Client, Config, Resource};
use listwatch::path::pod;
use listwatch::{ItemError, MetaView};
use listwatch_cache::{
    Cache, Change, Index, Object, PreparedReflector, Reflector, StorageFormat, Store, StoreType, Strategy,
};
use listwatch_controller::{Action, Controller};
use tokio::sync::{Notify, oneshot};

use crate::{Latency, State, add_key, custom_follower, tell, wait};

/// When a Pod was changed, in nanoseconds since 1970: see e2e/apiserver/load.
pub const CHANGED_AT: &str = "example.com/changed-at";

/// The longest recorded latency, in microseconds: an hour.
const LONGEST: u64 = 3_600_000_000;

/// Follows Pods; the arguments are `WAY URL`, and the directory of the API server if it is a real one.
///
/// # Errors
/// If the cache does not sync.
///
/// # Panics
/// If the system cannot start a thread.
#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_default();
    let kind = if way.starts_with("custom-") { args.next() } else { None };
    let Some(url) = args.next() else { bail!("usage: follower WAY URL [DIRECTORY], or follower custom-WAY KIND URL") };
    let directory = args.next();
    let server = Server { url: &url, directory: directory.as_deref().map(Path::new) };
    let handler = Handler::new()?;
    tell(&"ready")?;
    wait()?;
    let followed = match kind {
        Some(kind) => custom_follower::follow(&way, &kind, &server, handler.clone()).await?,
        None => follow(&way, &server, &handler).await?,
    };
    tell(&"synced")?;
    loop {
        wait()?;
        let mut state = State { version: followed.version(), ..handler.state() };
        followed.each(&mut |namespace, name, version| {
            state.items += 1;
            add_key(&mut state.hash, namespace, name, version);
        });
        tell(&state)?;
    }
}

/// A synced cache.
pub(crate) trait Followed {
    fn version(&self) -> String;
    /// Calls back with the namespace, name and version of each Pod.
    fn each(&self, see: &mut dyn FnMut(&str, &str, &str));
}

async fn follow(way: &str, server: &Server<'_>, handler: &Handler) -> anyhow::Result<Box<dyn Followed>> {
    let (default, handler) = (watcher::Config::default(), handler.clone());
    Ok(match way {
        "compressed" => {
            Box::new(listwatch(server, StorageFormat::Compressed, Strategy::WatchList, false, handler).await?)
        }
        "compressed-bytes" => {
            Box::new(listwatch(server, StorageFormat::Compressed, Strategy::WatchList, true, handler).await?)
        }
        "compressed-list" => {
            Box::new(listwatch(server, StorageFormat::Compressed, Strategy::ListThenWatch, false, handler).await?)
        }
        "encoded" => Box::new(listwatch(server, StorageFormat::Encoded, Strategy::WatchList, false, handler).await?),
        "encoded-bytes" => {
            Box::new(listwatch(server, StorageFormat::Encoded, Strategy::WatchList, true, handler).await?)
        }
        "controller" => Box::new(controller(server, handler).await?),
        "kube-controller" => Box::new(kube_controller(server.kube().await?, default.streaming_lists(), handler).await?),
        "kube" => Box::new(kube(watcher(server.kube().await?, default), (), handler).await?),
        "kube-streaming" => {
            Box::new(kube(watcher(server.kube().await?, default.streaming_lists()), (), handler).await?)
        }
        _ => bail!("unknown way {way:?}"),
    })
}

async fn listwatch(
    server: &Server<'_>,
    format: StorageFormat,
    strategy: Strategy,
    reads_bytes: bool,
    handler: Handler,
) -> anyhow::Result<Cache<Pod>> {
    let reflector = Reflector::<Pod>::new(&server.listwatch(reads_bytes)?, &Resource::PODS);
    let reflector = reflector.strategy(strategy).store(Store::new(format)).prepare();
    if reads_bytes {
        return handle(reflector, handler, |pod, handler| handler.record_bytes(&pod.meta()?)).await;
    }
    let decode = |pod: &Object<Pod>, handler: &Handler| {
        let pod = pod.decode()?;
        let annotations = pod.metadata.as_ref().map(|metadata| &metadata.annotations);
        handler.record(annotations.and_then(|annotations| annotations.get(CHANGED_AT)));
        Ok(())
    };
    handle(reflector, handler, decode).await
}

/// Runs a reflector whose handler receives each object. Returns its cache once the handler has received all.
pub(crate) async fn handle<T: StoreType + ?Sized>(
    reflector: PreparedReflector<T>,
    handler: Handler,
    handle: impl Fn(&Object<T>, &Handler) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Cache<T>> {
    let cache = reflector.cache();
    let mut changes = cache.subscribe().start();
    let (synced, is_synced) = oneshot::channel();
    // As kube's handler, in the task of the watch.
    let handling = async move {
        let mut synced = Some(synced);
        while let Some(change) = changes.next().await {
            match change {
                Change::Applied { new, .. } => handle(&new, &handler)?,
                Change::Synced => drop(synced.take().map(|synced| synced.send(()))),
                _ => {}
            }
        }
        anyhow::Ok(())
    };
    let running = Box::pin(reflector.run());
    let running = tokio::spawn(async move {
        tokio::select! {
            ended = running => Ok(ended?),
            handled = handling => handled,
        }
    });
    if cache.synced().await.is_err() {
        running.await??;
    }
    is_synced.await?;
    Ok(cache)
}

/// As [`controller`], without the index, which kube does not have.
async fn kube_controller(
    pods: Api<KubePod>,
    config: watcher::Config,
    handler: Handler,
) -> anyhow::Result<reflector::Store<KubePod>> {
    async fn reconcile(
        pod: Arc<KubePod>,
        context: Arc<(Handler, Arc<Reconciles>)>,
    ) -> Result<kube::runtime::controller::Action, Infallible> {
        let status = pod.status.as_ref();
        black_box(status.map(|status| (&status.phase, &status.pod_ip, &status.qos_class)));
        black_box(pod.spec.as_ref().map(|spec| (&spec.service_account_name, &spec.node_name)));
        let (handler, reconciles) = &*context;
        handler.record(pod.annotations().get(CHANGED_AT));
        reconciles.add();
        Ok(kube::runtime::controller::Action::await_change())
    }
    let controller = kube::runtime::Controller::new(pods, config);
    let store = controller.store();
    let reconciles = Arc::<Reconciles>::default();
    let context = Arc::new((handler, Arc::clone(&reconciles)));
    let retry = |_, _: &Infallible, _| kube::runtime::controller::Action::await_change();
    tokio::spawn(controller.run(reconcile, retry, context).for_each(async |_| {}));
    // `wait_until_ready` wakes only one of several waiters, and the controller is one. The store gets all Pods at once,
    // before the first reconcile.
    reconciles.wait_for(1).await;
    reconciles.wait_for(store.len()).await;
    Ok(store)
}

/// Counts reconciles, and waits for a number of them.
#[derive(Default)]
struct Reconciles {
    count: AtomicUsize,
    changed: Notify,
}

impl Reconciles {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    async fn wait_for(&self, count: usize) {
        while self.count.load(Ordering::Relaxed) < count {
            self.changed.notified().await;
        }
    }
}

async fn controller(server: &Server<'_>, handler: Handler) -> anyhow::Result<Cache<Pod>> {
    struct Context {
        by_node: Index<Pod, String>,
        handler: Handler,
        reconciles: Arc<Reconciles>,
    }
    async fn reconcile(pod: Object<Pod>, context: Arc<Context>) -> Result<Action, ItemError> {
        let item = pod.item()?;
        for field in [pod::PHASE, pod::POD_IP, pod::QOS_CLASS, pod::SERVICE_ACCOUNT_NAME] {
            black_box(field.str(item)?);
        }
        if let Some(node) = pod::NODE_NAME.str(item)? {
            black_box(context.by_node.count(&*node));
        }
        let changed_at = pod.meta()?.annotation(CHANGED_AT)?.map(String::from);
        context.handler.record(changed_at.as_ref());
        context.reconciles.add();
        Ok(Action::await_change())
    }
    let reflector = Reflector::<Pod>::new(&server.listwatch(true)?, &Resource::PODS);
    let reflector = reflector.store(Store::new(StorageFormat::Compressed)).prepare();
    let cache = reflector.cache();
    let by_node = cache.index("node", |pod| Ok::<_, ItemError>(pod::NODE_NAME.str(pod.item()?)?.map(String::from)));
    let running = tokio::spawn(reflector.run());
    let reconciles = Arc::<Reconciles>::default();
    let context = Context { by_node, handler, reconciles: Arc::clone(&reconciles) };
    let controller = Controller::new(cache.clone());
    let items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(context));
    tokio::spawn(items.for_each(async |_| {}));
    if cache.synced().await.is_err() {
        running.await??;
    }
    reconciles.wait_for(cache.len()).await;
    Ok(cache)
}

impl<T: StoreType + ?Sized> Followed for Cache<T> {
    fn version(&self) -> String {
        self.status().resource_version.unwrap_or_default()
    }

    fn each(&self, see: &mut dyn FnMut(&str, &str, &str)) {
        for object in self.snapshot().iter() {
            see(object.namespace(), object.name(), object.resource_version());
        }
    }
}

/// Fills kube's store from the events of kube's watcher, or of a replacement.
pub(crate) async fn kube<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    types: K::DynamicType,
    handler: Handler,
) -> anyhow::Result<reflector::Store<K>>
where
    K: kube::Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let writer = reflector::store::Writer::<K>::new(types.clone());
    let store = writer.as_reader();
    let known = store.clone();
    let mut events = events.default_backoff().reflect(writer).boxed();
    let (synced, is_synced) = oneshot::channel();
    tokio::spawn(async move {
        let mut synced = Some(synced);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object)) => handler.record(object.annotations().get(CHANGED_AT)),
                // Until a list is complete, the store has the state before it.
                Ok(watcher::Event::InitApply(object)) => {
                    let known = known.get(&ObjectRef::from_obj_with(&object, types.clone()));
                    if known.is_none_or(|known| known.resource_version() != object.resource_version()) {
                        handler.record(object.annotations().get(CHANGED_AT));
                    }
                }
                Ok(watcher::Event::InitDone) => drop(synced.take().map(|synced| synced.send(()))),
                // The watcher retries by itself.
                Ok(watcher::Event::Init | watcher::Event::Delete(_)) | Err(_) => {}
            }
        }
    });
    is_synced.await?;
    Ok(store)
}

impl<K> Followed for reflector::Store<K>
where
    K: kube::Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn version(&self) -> String {
        String::new()
    }

    fn each(&self, see: &mut dyn FnMut(&str, &str, &str)) {
        for object in self.state() {
            let [namespace, version] = [object.namespace(), object.resource_version()].map(Option::unwrap_or_default);
            see(&namespace, &object.name_any(), &version);
        }
    }
}

pub(crate) struct Server<'a> {
    url: &'a str,
    /// The directory of a real API server, which has its CA and a kubeconfig.
    directory: Option<&'a Path>,
}

impl Server<'_> {
    pub(crate) fn listwatch(&self, on_caller_runtime: bool) -> anyhow::Result<Client> {
        let mut transport = Config::new(self.url);
        if on_caller_runtime {
            transport = transport.on_caller_runtime();
        }
        if let Some(directory) = self.directory {
            transport = transport.bearer_token("admin").ca_pem(fs::read(directory.join("ca.crt"))?);
        }
        Ok(Client::new(transport.build()?))
    }

    async fn kube(&self) -> anyhow::Result<Api<KubePod>> {
        Ok(Api::all(self.kube_client().await?))
    }

    pub(crate) async fn kube_client(&self) -> anyhow::Result<kube::Client> {
        let config = match self.directory {
            Some(directory) => {
                let kubeconfig = Kubeconfig::read_from(directory.join("kubeconfig"))?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            None => kube::Config::new(self.url.parse()?),
        };
        Ok(kube::Client::try_from(config)?)
    }
}

/// Records the latency of changes.
#[derive(Clone)]
pub(crate) struct Handler {
    /// The start of this process. Earlier changes do not count.
    began: u64,
    latency: Arc<Mutex<Histogram<u64>>>,
}

impl Handler {
    fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_max(LONGEST, 3)?;
        Ok(Self { began: now(), latency: Arc::new(Mutex::new(latency)) })
    }

    /// Records the latency of an object's new state, from its bytes.
    pub(crate) fn record_bytes(&self, meta: &MetaView<'_>) -> anyhow::Result<()> {
        self.record(meta.annotation(CHANGED_AT)?.map(String::from).as_ref());
        Ok(())
    }

    /// Records the latency of an object's new state, which has this annotation.
    pub(crate) fn record(&self, changed_at: Option<&String>) {
        let changed_at = changed_at.and_then(|changed_at| changed_at.parse().ok()).filter(|at| *at >= self.began);
        if let Some(changed_at) = changed_at {
            let latency = now().saturating_sub(changed_at) / 1000;
            self.latency.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(latency);
        }
    }

    fn state(&self) -> State {
        let latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        let [p50, p99] = [0.5, 0.99].map(|quantile| latency.value_at_quantile(quantile));
        let latency_of_all = Latency { p50, p99, max: latency.max() };
        State { changes: latency.len(), latency: latency_of_all, ..State::default() }
    }
}

/// Returns the time in nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}
