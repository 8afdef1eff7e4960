//! The controllers of listwatch-kube and of kube keep equal ConfigMaps, one for each Pod. `PODS=2000` and
//! `CHANGES=4000` set the largest size.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_pb::api::core::v1 as pb;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action as KubeAction, Controller as KubeController};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use listwatch::client::{Resource, Selection};
use listwatch::compare_resource_versions;
use listwatch_cache::{Cache, Object, Reflector, StorageFormat, Store};
use listwatch_controller::{Action, Controller};
use listwatch_e2e::{CHANGED, Changes, Result, Server, annotate, of_kube, over_kube, pod, size};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep, timeout};

const PORT: u16 = 16943;
const WRITERS: u64 = 8;
/// The label that names the controller of a ConfigMap.
const BY: &str = "example.com/by";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A Pod, as both reconcilers see it.
struct Seen<'p> {
    namespace: &'p str,
    name: &'p str,
    uid: &'p str,
    changed: &'p str,
}

/// Creates or changes the ConfigMap of a Pod, unless it has the value of the Pod's annotation.
async fn keep(client: &Client, by: &str, pod: &Seen<'_>, found: Option<&str>) -> kube::Result<Option<ConfigMap>> {
    if found == Some(pod.changed) {
        return Ok(None);
    }
    let api = Api::<ConfigMap>::namespaced(client.clone(), pod.namespace);
    let name = format!("{by}-{}", pod.name);
    let data = json!({"changed": pod.changed});
    let written = if found.is_some() {
        api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await?
    } else {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": true});
        let metadata = json!({"name": name, "labels": {BY: by}, "ownerReferences": [owner]});
        let config_map = serde_json::from_value(json!({"metadata": metadata, "data": data}));
        api.create(&PostParams::default(), &config_map.map_err(kube::Error::SerdeError)?).await?
    };
    Ok(Some(written))
}

struct Context {
    client: Client,
    config_maps: Cache<pb::ConfigMap>,
    /// The versions of the last writes.
    written: Mutex<HashMap<String, String>>,
    reconciles: Arc<AtomicU64>,
}

async fn reconcile(pod: Object<pb::Pod>, context: Arc<Context>) -> std::result::Result<Action, Error> {
    context.reconciles.fetch_add(1, Relaxed);
    let meta = pod.meta()?;
    let changed = meta.annotation(CHANGED)?.unwrap_or_default();
    let seen = Seen { namespace: pod.namespace(), name: pod.name(), uid: pod.uid(), changed: &changed };
    let key = format!("ours-{}", pod.name());
    let found = context.config_maps.get((pod.namespace(), &*key));
    if let (Some(found), Some(written)) = (&found, context.written.lock().unwrap().get(&key)) {
        let order = compare_resource_versions(found.resource_version(), written);
        assert!(order.is_some_and(std::cmp::Ordering::is_ge), "{key} is older than the own write");
    }
    let found = found.map(|found| found.decode()).transpose()?;
    let found = found.as_ref().map(|found| found.data.get("changed").map_or("", String::as_str));
    if let Some(written) = keep(&context.client, "ours", &seen, found).await? {
        let version = written.resource_version().unwrap_or_default();
        context.config_maps.wait_for_resource_version(&version).await?;
        context.written.lock().unwrap().insert(key, version);
    }
    Ok(Action::await_change())
}

async fn reconcile_by_kube(pod: Arc<Pod>, context: Arc<(Client, Arc<AtomicU64>)>) -> kube::Result<KubeAction> {
    let (client, reconciles) = &*context;
    reconciles.fetch_add(1, Relaxed);
    let [namespace, uid] = [pod.namespace(), pod.uid()].map(Option::unwrap_or_default);
    let (name, changed) = (pod.name_any(), pod.annotations().get(CHANGED).map_or("", String::as_str));
    let seen = Seen { namespace: &namespace, name: &name, uid: &uid, changed };
    let found = Api::<ConfigMap>::namespaced(client.clone(), &namespace).get_opt(&format!("kube-{name}")).await?;
    let found = found.as_ref().map(|found| found.data.as_ref().and_then(|data| data.get("changed")));
    keep(client, "kube", &seen, found.map(|found| found.map_or("", String::as_str))).await?;
    // A relist of kube's watcher does not show which ConfigMaps were deleted since, so no change requests their
    // reconcile.
    Ok(KubeAction::requeue(Duration::from_secs(10)))
}

/// Both controllers.
struct Running {
    stops: Vec<oneshot::Sender<()>>,
    ends: Vec<JoinHandle<()>>,
    reflectors: Vec<JoinHandle<()>>,
}

/// The number of reconciles by kube, and by listwatch.
type Reconciles = [Arc<AtomicU64>; 2];

fn start(config: &kube::Config, reconciles: &Reconciles) -> Result<Running> {
    let client = Client::try_from(config.clone())?;
    let [by_kube, by_ours] = reconciles.each_ref().map(Arc::clone);
    let (stop, stopped) = oneshot::channel();
    let owned = Config::default().labels(&format!("{BY}=kube"));
    let kubes = KubeController::new(Api::<Pod>::all(client.clone()), Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), owned)
        .graceful_shutdown_on(async { drop(stopped.await) })
        .run(
            reconcile_by_kube,
            |_, _, _| KubeAction::requeue(Duration::from_millis(500)),
            Arc::new((client.clone(), by_kube)),
        )
        .for_each(async |_| {});
    let (stop_ours, stopped) = oneshot::channel();

    let transport = listwatch::client::Client::new(over_kube(config.clone())?);
    let pods =
        Reflector::<pb::Pod>::new(&transport, &Resource::PODS).store(Store::new(StorageFormat::Compressed)).prepare();
    let ours = Selection::all().labels(format!("{BY}=ours").parse()?);
    let config_maps = Reflector::<pb::ConfigMap>::new(&transport, &Resource::CONFIG_MAPS).selection(ours).prepare();
    let context = Context { client, config_maps: config_maps.cache(), written: Mutex::default(), reconciles: by_ours };
    let ours = Controller::new(pods.cache())
        .owns(config_maps.cache())
        .graceful_shutdown_on(async { drop(stopped.await) })
        .run(reconcile, |_, _, _| Action::backoff(), Arc::new(context))
        .for_each(async |_| {});
    let reflectors =
        vec![tokio::spawn(async { drop(pods.run().await) }), tokio::spawn(async { drop(config_maps.run().await) })];
    let ends = vec![tokio::spawn(kubes), tokio::spawn(ours)];
    Ok(Running { stops: vec![stop, stop_ours], ends, reflectors })
}

impl Running {
    async fn stop(self) -> Result<()> {
        drop(self.stops);
        for end in self.ends {
            timeout(Duration::from_secs(60), end).await??;
        }
        self.reflectors.iter().for_each(JoinHandle::abort);
        Ok(())
    }
}

/// Waits until each Pod has both ConfigMaps with the value of its annotation.
async fn settled(client: &Client, running: &Running) -> Result<String> {
    let started = Instant::now();
    let mut ours = None;
    loop {
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
        let labelled = ListParams::default().labels(BY);
        let config_maps = Api::<ConfigMap>::all(client.clone()).list(&labelled).await?.items;
        let found: BTreeMap<_, _> = config_maps
            .iter()
            .map(|found| {
                ((found.namespace(), found.name_any()), found.data.as_ref().and_then(|data| data.get("changed")))
            })
            .collect();
        let none = String::new();
        let missing: Vec<_> = pods
            .iter()
            .flat_map(|pod| ["kube", "ours"].map(|by| (pod, (pod.namespace(), format!("{by}-{}", pod.name_any())))))
            .filter(|(pod, key)| found.get(key) != Some(&Some(pod.annotations().get(CHANGED).unwrap_or(&none))))
            .map(|(_, (_, name))| name)
            .collect();
        let since = started.elapsed();
        if ours.is_none() && missing.iter().all(|name| name.starts_with("kube-")) {
            ours = Some(since);
        }
        if missing.is_empty() {
            return Ok(format!(
                "{} Pods settled in {since:.1?}, by listwatch in {:.1?}",
                pods.len(),
                ours.unwrap_or(since)
            ));
        }
        assert!(running.ends.iter().all(|end| !end.is_finished()), "a controller has ended");
        if started.elapsed() > Duration::from_secs(120) {
            return Err(format!("{} ConfigMaps are missing or old: {:?}", missing.len(), &missing[..1]).into());
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Changes and deletes Pods, and deletes ConfigMaps, until there were enough writes.
async fn write(client: &Client, names: &[String], writer: u64, done: &Changes, changes: u64) {
    let mut random = fastrand::Rng::with_seed(writer ^ changes);
    let delete = DeleteParams::default().grace_period(0);
    let write = async || {
        let (pods, name) = pod(client, &names[random.usize(..names.len())]);
        let config_maps = Api::<ConfigMap>::namespaced(client.clone(), pods.namespace().unwrap_or_default());
        match random.u8(..20) {
            0 => pods.delete(name, &delete).await.map(drop),
            1..4 => config_maps.delete(&format!("kube-{name}"), &delete).await.map(drop),
            4..7 => config_maps.delete(&format!("ours-{name}"), &delete).await.map(drop),
            _ => annotate(&pods, name, &random.u64(..).to_string()).await.map(drop),
        }
    };
    done.write_until(changes, write).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_controllers_keep_equal_objects_through_restarts() -> Result<()> {
    // The two controllers together write a few hundred objects a second.
    let (pods, changes) = (size("PODS", 500).min(2000), size("CHANGES", 1000).min(4000));
    let mut server = Server::start(PORT, &[])?;
    server.load(pods)?;
    let config = server.kube(|_| {}).await?;
    let client = Client::try_from(config.clone())?;
    let listed = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?;
    let names: Vec<_> = listed.iter().map(|pod| of_kube(pod).0).collect();

    let reconciles = Reconciles::default();
    let report = |what: &str, settled: String| {
        let [kube, ours] = reconciles.each_ref().map(|reconciles| reconciles.swap(0, Relaxed));
        println!("{what}: {settled}; {kube} reconciles by kube, {ours} by listwatch");
    };
    let mut running = start(&config, &reconciles)?;
    report("start", settled(&client, &running).await?);
    let done = Changes::default();
    let writing =
        |until| join_all((0..WRITERS).map(|writer| write(&client, &names, writer, &done, until))).boxed_local();
    writing(changes / 2).await;
    report("changes", settled(&client, &running).await?);

    let restarting = async {
        done.reach(changes * 3 / 4).await;
        block_in_place(|| server.restart(&[]))
    };
    tokio::join!(writing(changes), restarting).1?;
    report("a restart of the server", settled(&client, &running).await?);

    running.stop().await?;
    writing(changes * 5 / 4).await;
    running = start(&config, &reconciles)?;
    report("a restart of the controllers", settled(&client, &running).await?);
    running.stop().await
}
