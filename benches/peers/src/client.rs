//! A process that lists Pods with a Rust client.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_pb::api::core::v1 as pb;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, PartialObjectMetadata};
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use kube::api::{self, ApiResource, ObjectList};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use listwatch::client::{Config, ListParams, Resource, Selection};
use listwatch::path::pod;
use listwatch::{Encoding, ItemError, ItemRef, Json};
use listwatch_cache::{Cache, Object, Reflector, StorageFormat, Store};
use listwatch_views::core_v1::PodView;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::{Done, StoreTimes, add_key, custom_client, tell, wait};

/// Lists Pods; the arguments are `WAY URL`. Keeps the result until the runner has measured memory.
///
/// # Errors
/// If the list is incomplete.
///
/// # Panics
/// If the system cannot start a thread.
#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_default();
    let kind = if way.starts_with("custom-") { args.next() } else { None };
    let Some(url) = args.next() else { bail!("usage: client WAY URL, or client custom-WAY KIND URL") };
    let mut seen = Seen { done: Done::default(), start: Instant::now() };
    let kept = match kind {
        Some(kind) => custom_client::list(&way, &kind, &url, &mut seen).await?,
        None => list(&way, &url, &mut seen).await?,
    };
    tell(&seen.done)?;
    wait()?;
    tell(&"idle")?;
    wait()?;
    tell(&kept.use_store()?)?;
    wait()?;
    Ok(())
}

/// The result of a list, kept until the runner has measured memory.
pub(crate) trait Kept {
    /// Measures the calls of a store; `None` if the result is not a store.
    fn use_store(&self) -> anyhow::Result<Option<StoreTimes>> {
        Ok(None)
    }
}

impl Kept for () {}
impl<T> Kept for Vec<T> {}
impl Kept for pb::PodList {}
impl<T: Clone> Kept for ObjectList<T> {}

async fn list(way: &str, url: &str, seen: &mut Seen) -> anyhow::Result<Box<dyn Kept>> {
    Ok(match way {
        "drop" => Box::new(decode_and_drop(url, seen).await?),
        "box" => Box::new(keep_decoded(url, seen).await?),
        "json" => Box::new(keep_json(url, seen).await?),
        "bytes" => Box::new(keep_bytes(url, seen).await?),
        "metadata" => Box::new(keep_metadata(url, seen).await?),
        "store-encoded" => Box::new(fill_store(url, StorageFormat::Encoded, seen).await?),
        "store-compressed" => Box::new(fill_store(url, StorageFormat::Compressed, seen).await?),
        "prost" => Box::new(full_buffer(url, seen).await?),
        "kube-list" => Box::new(kube_list(url, seen).await?),
        "kube-metadata" => Box::new(kube_metadata(url, seen).await?),
        "kube-reflector" => kube_reflector(url, |api| watcher(api, paged()), seen).await?,
        "kube-reflector-streaming" => kube_reflector(url, |api| watcher(api, streaming()), seen).await?,
        "kube-reflector-modify" => {
            let without = |pod: &mut KubePod| pod.metadata.managed_fields = None;
            kube_reflector(url, move |api| watcher(api, streaming()).modify(without), seen).await?
        }
        "kube-reflector-slim" => {
            let types = ApiResource::erase::<KubePod>(&());
            let without = |pod: &mut SlimPod| {
                (pod.metadata.managed_fields, pod.metadata.annotations) = (None, None);
            };
            let field = |pod: &SlimPod| pod.spec.node_name.as_deref().map_or(0, last);
            custom_client::kube(url, types, streaming(), without, field, seen).await?
        }
        "cache-encoded" => Box::new(cache(url, StorageFormat::Encoded, seen).await?),
        "cache-compressed" => Box::new(cache(url, StorageFormat::Compressed, seen).await?),
        _ => bail!("unknown way {way:?}"),
    })
}

pub(crate) struct Seen {
    done: Done,
    start: Instant,
}

impl Seen {
    /// Waits for the runner's signal. The client exists before it, the connection does not.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        tell(&"ready")?;
        wait()?;
        self.start = Instant::now();
        Ok(())
    }

    pub(crate) fn first(&mut self) {
        if self.done.first_item == 0 {
            self.done.first_item = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
    }

    pub(crate) fn item(&mut self, namespace: &str, name: &str, version: &str) {
        self.first();
        self.done.items += 1;
        add_key(&mut self.done.hash, namespace, name, version);
    }

    fn protobuf(&mut self, metadata: Option<&ObjectMeta>) -> anyhow::Result<()> {
        let metadata = metadata.context("no metadata")?;
        self.item(metadata.namespace(), metadata.name(), metadata.resource_version());
        Ok(())
    }

    pub(crate) fn kube(&mut self, object: &impl ResourceExt) {
        let namespace = object.namespace().unwrap_or_default();
        self.item(&namespace, &object.name_any(), &object.resource_version().unwrap_or_default());
    }
}

fn listwatch_client(url: &str) -> anyhow::Result<listwatch::client::Client> {
    Ok(listwatch::client::Client::new(Config::new(url).build()?))
}

async fn decode_and_drop(url: &str, seen: &mut Seen) -> anyhow::Result<()> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let mut pods = client.list::<pb::Pod>(&Resource::PODS, &ListParams::default());
    while let Some(pod) = pods.try_next().await? {
        seen.protobuf(pod.metadata.as_ref())?;
        drop(black_box(pod));
    }
    Ok(())
}

async fn keep_decoded(url: &str, seen: &mut Seen) -> anyhow::Result<Vec<Box<pb::Pod>>> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let mut pods = client.list::<pb::Pod>(&Resource::PODS, &ListParams::default());
    let mut kept = Vec::new();
    while let Some(pod) = pods.try_next().await? {
        seen.protobuf(pod.metadata.as_ref())?;
        kept.push(pod);
    }
    Ok(kept)
}

async fn keep_json(url: &str, seen: &mut Seen) -> anyhow::Result<Vec<Box<KubePod>>> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let mut pods = client.list::<Json<KubePod>>(&Resource::PODS, &ListParams::default());
    let mut kept = Vec::new();
    while let Some(pod) = pods.try_next().await? {
        seen.kube(&*pod);
        kept.push(pod);
    }
    Ok(kept)
}

async fn keep_bytes(url: &str, seen: &mut Seen) -> anyhow::Result<Vec<Box<[u8]>>> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let pods = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        let meta = item.meta()?;
        seen.item(&meta.namespace(), &meta.name(), &meta.resource_version());
        Ok::<_, ItemError>(item.to_box())
    });
    Ok(pods.into_vec().await?.0)
}

async fn keep_metadata(url: &str, seen: &mut Seen) -> anyhow::Result<Vec<Box<PartialObjectMetadata>>> {
    let options = ListParams::new(Selection::all().metadata_only());
    let client = listwatch_client(url)?;
    seen.begin()?;
    let mut pods = client.list::<PartialObjectMetadata>(&Resource::PODS, &options);
    let mut kept = Vec::new();
    while let Some(pod) = pods.try_next().await? {
        seen.protobuf(pod.metadata.as_ref())?;
        kept.push(pod);
    }
    Ok(kept)
}

async fn fill_store(
    url: &str,
    format: StorageFormat,
    seen: &mut Seen,
) -> anyhow::Result<(StorageFormat, Store<pb::Pod>)> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let store = Store::new(format);
    let mut relist = store.begin_relist();
    let pods = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        let meta = item.meta()?;
        seen.item(&meta.namespace(), &meta.name(), &meta.resource_version());
        drop(relist.apply(item.encoding(), item.bytes())?);
        Ok::<_, ItemError>(())
    });
    let (_, end) = pods.into_vec().await?;
    relist.commit(&end.list_meta.resource_version)?;
    Ok((format, store))
}

impl Kept for (StorageFormat, Store<pb::Pod>) {
    fn use_store(&self) -> anyhow::Result<Option<StoreTimes>> {
        let (format, ref store) = *self;
        let read = |object: &Object<pb::Pod>| -> anyhow::Result<usize> {
            Ok(match format {
                // Read from the bytes.
                StorageFormat::Encoded => touch([object.namespace(), object.name(), object.resource_version()]),
                _ => {
                    let pod = object.encoded()?;
                    let meta = ItemRef::new(Encoding::Protobuf, pod).meta()?;
                    touch([&meta.namespace(), &meta.name(), &meta.resource_version()])
                }
            })
        };
        let start = Instant::now();
        for pod in store.snapshot().iter() {
            black_box(read(&pod)?);
        }
        let iterate = per(store.len(), start);
        let start = Instant::now();
        let by_node =
            store.index("node", |object| Ok::<_, ItemError>(pod::NODE_NAME.str(object.item()?)?.map(Arc::<str>::from)));
        let add_index = Some(per(store.len(), start));
        let keys: Vec<_> = store.snapshot().iter().map(|pod| pod.key()).collect();
        let look_up_key = look_up(KEYS, &keys, |key| read(&store.get(key)?).ok())?;
        let look_up_decoded = look_up(KEYS, &keys, |key| {
            let pod = store.get(key)?.decode().ok()?;
            let metadata = pod.metadata.as_ref()?;
            Some(touch([metadata.namespace(), metadata.name(), metadata.resource_version()]))
        })?;
        let six = |object: &Object<pb::Pod>| -> anyhow::Result<usize> { Ok(six_of_view(object.view()?)) };
        // The store checks a Pod at its first view.
        for pod in store.snapshot().iter() {
            black_box(six(&pod)?);
        }
        let look_up_six = look_up(KEYS, &keys, |key| six(&store.get(key)?).ok())?;
        let look_up_node = look_up(NODES, &by_node.values(), |node| {
            by_node.get(node).iter().map(read).sum::<anyhow::Result<usize>>().ok()
        })?;
        Ok(Some(StoreTimes {
            look_up: look_up_key,
            look_up_decoded: Some(look_up_decoded),
            look_up_six: Some(look_up_six),
            iterate,
            add_index,
            look_up_node: Some(look_up_node),
        }))
    }
}

/// Fills a cache, whose reflector would keep it up to date.
async fn cache(url: &str, format: StorageFormat, seen: &mut Seen) -> anyhow::Result<Cache<pb::Pod>> {
    let client = listwatch_client(url)?;
    seen.begin()?;
    let cache = Reflector::<pb::Pod>::new(&client, &Resource::PODS).store(format).spawn();
    cache.synced().await?;
    for pod in cache.snapshot().iter() {
        seen.item(pod.namespace(), pod.name(), pod.resource_version());
    }
    Ok(cache)
}

impl Kept for Cache<pb::Pod> {}

/// Lists without a Kubernetes client: buffers the body and decodes it with prost.
async fn full_buffer(url: &str, seen: &mut Seen) -> anyhow::Result<pb::PodList> {
    // reqwest wants a provider of TLS, although the server has none. An error says that there is one already.
    _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    seen.begin()?;
    let request = http.get(format!("{url}/api/v1/pods")).header("accept", "application/vnd.kubernetes.protobuf");
    let body = request.send().await?.error_for_status()?.bytes().await?;
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").context("not protobuf")?)?;
    drop(body);
    let list = pb::PodList::decode(envelope.raw.context("no list")?.as_slice())?;
    for pod in &list.items {
        seen.protobuf(pod.metadata.as_ref())?;
    }
    Ok(list)
}

type KubePod = k8s_openapi::api::core::v1::Pod;

/// A Pod with the few fields that a program reads.
type SlimPod = kube::core::Object<SlimSpec, SlimStatus>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SlimStatus {
    phase: Option<String>,
}

fn kube_api(url: &str) -> anyhow::Result<Api<KubePod>> {
    Ok(Api::all(kube::Client::try_from(kube::Config::new(url.parse()?))?))
}

async fn kube_list(url: &str, seen: &mut Seen) -> anyhow::Result<ObjectList<KubePod>> {
    let api = kube_api(url)?;
    seen.begin()?;
    let list = api.list(&api::ListParams::default()).await?;
    list.items.iter().for_each(|pod| seen.kube(pod));
    Ok(list)
}

async fn kube_metadata(url: &str, seen: &mut Seen) -> anyhow::Result<ObjectList<PartialObjectMeta<KubePod>>> {
    let api = kube_api(url)?;
    seen.begin()?;
    let list = api.list_metadata(&api::ListParams::default()).await?;
    list.items.iter().for_each(|pod| seen.kube(pod));
    Ok(list)
}

fn paged() -> watcher::Config {
    watcher::Config::default()
}

fn streaming() -> watcher::Config {
    watcher::Config::default().streaming_lists()
}

/// Fills kube's store. The result includes the watch that would keep it up to date.
async fn kube_reflector<S>(
    url: &str,
    watcher: impl FnOnce(Api<KubePod>) -> S,
    seen: &mut Seen,
) -> anyhow::Result<Box<dyn Kept>>
where
    S: Stream<Item = watcher::Result<watcher::Event<KubePod>>> + Send + 'static,
{
    let api = kube_api(url)?;
    seen.begin()?;
    let (store, writer) = reflector::store::<KubePod>();
    let mut events = watcher(api).reflect(writer).boxed();
    loop {
        match events.try_next().await?.ok_or_else(|| anyhow!("the watch ended"))? {
            watcher::Event::InitApply(_) => seen.first(),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    store.state().iter().for_each(|pod| seen.kube(&**pod));
    Ok(Box::new((store, events)))
}

impl<Watch> Kept for (reflector::Store<KubePod>, Watch) {
    fn use_store(&self) -> anyhow::Result<Option<StoreTimes>> {
        let (store, _) = self;
        let read = |pod: &KubePod| {
            let metadata = &pod.metadata;
            let key = [&metadata.namespace, &metadata.name, &metadata.resource_version];
            touch(key.map(|text| text.as_deref().unwrap_or_default()))
        };
        let start = Instant::now();
        black_box(store.state().iter().map(|pod| read(pod)).sum::<usize>());
        let iterate = per(store.len(), start);
        let keys: Vec<_> = store.state().iter().map(|pod| ObjectRef::from_obj(&**pod)).collect();
        let look_up = look_up(KEYS, &keys, |key| Some(read(&*store.get(key)?)))?;
        let look_up_six = Some(self::look_up(KEYS, &keys, |key| six_of_kube(&*store.get(key)?))?);
        // The store keeps Pods decoded.
        let look_up_decoded = Some(look_up);
        Ok(Some(StoreTimes { look_up, look_up_decoded, look_up_six, iterate, add_index: None, look_up_node: None }))
    }
}

/// The number of look-ups by key.
const KEYS: usize = 200_000;
/// The number of look-ups by node.
const NODES: usize = 10_000;

/// Returns the mean time of looking up random keys. Clones the keys before it measures.
pub(crate) fn look_up<K: Clone>(
    times: usize,
    all: &[K],
    mut get: impl FnMut(&K) -> Option<usize>,
) -> anyhow::Result<f64> {
    let mut random = fastrand::Rng::with_seed(1);
    let keys: Vec<_> = (0..times).map(|_| all[random.usize(..all.len())].clone()).collect();
    let start = Instant::now();
    for key in &keys {
        black_box(get(key).context("the store does not find its own key")?);
    }
    let time = per(times, start);
    // The allocator would consolidate the freed keys during the next measurement.
    std::mem::forget(keys);
    Ok(time)
}

/// Returns the seconds since the start, divided by `times`.
#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^53")]
pub(crate) fn per(times: usize, start: Instant) -> f64 {
    start.elapsed().as_secs_f64() / times as f64
}

const LABEL: &str = "app.kubernetes.io/name";

/// Reads one byte each of a Pod's name, namespace, label, node, phase and images.
fn six_of_view(pod: PodView<'_>) -> usize {
    let (metadata, spec) = (pod.metadata(), pod.spec());
    let label = metadata.labels().get(LABEL).unwrap_or_default();
    let images = spec.containers().iter().map(|container| last(container.image())).sum::<usize>();
    let single = [metadata.name(), metadata.namespace(), label, spec.node_name(), pod.status().phase()];
    single.map(last).iter().sum::<usize>() + images
}

fn six_of_kube(pod: &KubePod) -> Option<usize> {
    let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref()?, pod.status.as_ref()?);
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(LABEL));
    let images = spec.containers.iter().map(|container| last(container.image.as_deref().unwrap_or_default()));
    let (name, namespace) = (metadata.name.as_ref(), metadata.namespace.as_ref());
    let single = [name, namespace, label, spec.node_name.as_ref(), status.phase.as_ref()];
    Some(single.map(|text| text.map_or(0, |text| last(text))).iter().sum::<usize>() + images.sum::<usize>())
}

fn last(text: &str) -> usize {
    text.bytes().last().map_or(0, usize::from)
}

/// Reads one byte each of a Pod's namespace, name and version.
pub(crate) fn touch(key: [&str; 3]) -> usize {
    key.into_iter().map(last).sum()
}
