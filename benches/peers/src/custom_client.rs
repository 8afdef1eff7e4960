//! Lists and caches custom resources in a process of its own, as `client.rs` does with Pods.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch::{Encoding, FieldPath, ItemError, ItemRef, Json};
use listwatch_cache::{Cache, Object, Reflector, StorageFormat, Store};
use listwatch_corpus::custom::CustomKind;

use crate::StoreTimes;
use crate::client::{Kept, Seen, look_up, per, touch};
use crate::custom_types::{Application, Certificate, Custom, Revision, SlimApplication, SlimCertificate, SlimRevision};

/// The number of look-ups by key: decoding a large object takes more than 100 µs.
const LOOK_UPS: usize = 20_000;
/// The number of look-ups by the indexed field.
const INDEX_LOOK_UPS: usize = 1_000;

/// Returns the resource of a kind for listwatch.
pub fn resource(kind: CustomKind) -> Resource {
    let [group, version, plural, kind] = kind.resource();
    Resource::new(group, version, plural, kind)
}

/// Returns the resource of a kind for kube.
pub fn api_resource(kind: CustomKind) -> ApiResource {
    let [group, version, plural, kind] = kind.resource();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Lists or caches all objects of a kind.
pub async fn list(way: &str, kind: &str, url: &str, seen: &mut Seen) -> anyhow::Result<Box<dyn Kept>> {
    let kind = CustomKind::by_name(kind).with_context(|| format!("unknown kind {kind:?}"))?;
    match kind {
        CustomKind::Certificate => list_of::<Certificate, SlimCertificate>(way, kind, url, seen).await,
        CustomKind::Revision => list_of::<Revision, SlimRevision>(way, kind, url, seen).await,
        CustomKind::Application => list_of::<Application, SlimApplication>(way, kind, url, seen).await,
    }
}

async fn list_of<T: Custom, Slim: Custom>(
    way: &str,
    kind: CustomKind,
    url: &str,
    seen: &mut Seen,
) -> anyhow::Result<Box<dyn Kept>> {
    let streaming = watcher::Config::default().streaming_lists();
    let drops = |object: &mut Slim| object.meta_mut().managed_fields = None;
    Ok(match way {
        "custom-encoded" => Box::new(cache::<T, Slim>(kind, url, StorageFormat::Encoded, seen).await?),
        "custom-compressed" => Box::new(cache::<T, Slim>(kind, url, StorageFormat::Compressed, seen).await?),
        "custom-list" => Box::new(list_json::<T>(kind, url, seen).await?),
        "custom-list-slim" => Box::new(list_json::<Slim>(kind, url, seen).await?),
        "custom-kube-list" => Box::new(kube_list::<T>(url, seen).await?),
        "custom-kube-dynamic" => {
            let field = |object: &DynamicObject| {
                let value = T::INDEXED.split('.').try_fold(&object.data, |value, key| value.get(key));
                value.and_then(|value| value.as_str()).map_or(0, str::len)
            };
            kube::<DynamicObject>(url, api_resource(kind), streaming, |_| {}, field, seen).await?
        }
        "custom-kube-typed" => kube::<T>(url, (), streaming, |_| {}, |object| object.indexed().len(), seen).await?,
        "custom-kube-typed-list" => {
            let paged = watcher::Config::default();
            kube::<T>(url, (), paged, |_| {}, |object| object.indexed().len(), seen).await?
        }
        "custom-kube-slim" => kube::<Slim>(url, (), streaming, drops, |object| object.indexed().len(), seen).await?,
        _ => bail!("unknown way {way:?}"),
    })
}

fn client(url: &str) -> anyhow::Result<Client> {
    Ok(Client::new(Config::new(url).build()?))
}

/// Keeps every object of a list decoded.
async fn list_json<T: Custom>(kind: CustomKind, url: &str, seen: &mut Seen) -> anyhow::Result<Vec<Box<T>>> {
    let client = client(url)?;
    seen.begin()?;
    let resource = resource(kind);
    let mut objects = client.list::<Json<T>>(&resource, &ListParams::default());
    let mut kept = Vec::new();
    while let Some(object) = objects.try_next().await? {
        seen.kube(&*object);
        kept.push(object);
    }
    Ok(kept)
}

async fn kube_list<T: Custom>(url: &str, seen: &mut Seen) -> anyhow::Result<kube::api::ObjectList<T>> {
    let api = Api::<T>::all(kube_client(url)?);
    seen.begin()?;
    let list = api.list(&kube::api::ListParams::default()).await?;
    list.items.iter().for_each(|object| seen.kube(object));
    Ok(list)
}

/// A cache of listwatch, with the structs into which readers decode its objects.
struct Cached<T: Custom, Slim> {
    cache: Cache<Json<T>>,
    format: StorageFormat,
    slim: std::marker::PhantomData<fn() -> Slim>,
}

async fn cache<T: Custom, Slim: Custom>(
    kind: CustomKind,
    url: &str,
    format: StorageFormat,
    seen: &mut Seen,
) -> anyhow::Result<Cached<T, Slim>> {
    let client = client(url)?;
    seen.begin()?;
    let reflector = Reflector::<Json<T>>::new(&client, &resource(kind)).store(Store::new(format)).prepare();
    let cache = reflector.cache();
    let running = tokio::spawn(reflector.run());
    if cache.synced().await.is_err() {
        running.await??;
    }
    for object in cache.snapshot().iter() {
        seen.item(object.namespace(), object.name(), object.resource_version());
    }
    Ok(Cached { cache, format, slim: std::marker::PhantomData })
}

impl<T: Custom, Slim: Custom> Kept for Cached<T, Slim> {
    fn use_store(&self) -> anyhow::Result<Option<StoreTimes>> {
        let Self { cache, format, .. } = self;
        let read = |object: &Object<Json<T>>| -> anyhow::Result<usize> {
            Ok(match format {
                StorageFormat::Encoded => touch([object.namespace(), object.name(), object.resource_version()]),
                // Read from the bytes.
                _ => {
                    let meta = ItemRef::new(Encoding::Json, object.encoded()?).meta()?;
                    touch([&meta.namespace(), &meta.name(), &meta.resource_version()])
                }
            })
        };
        let start = Instant::now();
        for object in cache.snapshot().iter() {
            black_box(read(&object)?);
        }
        let iterate = per(cache.len(), start);
        let start = Instant::now();
        let path = FieldPath::new(T::INDEXED, &[]);
        let by_field =
            cache.index("field", move |object| Ok::<_, ItemError>(path.str(object.item()?)?.map(String::from)));
        let add_index = Some(per(cache.len(), start));
        let keys: Vec<_> = cache.snapshot().iter().map(|object| object.key()).collect();
        let look_up_key = look_up(LOOK_UPS, &keys, |key| read(&cache.get(key)?).ok())?;
        let look_up_decoded = look_up(LOOK_UPS, &keys, |key| Some(touch_kube(&*cache.get(key)?.decode().ok()?)))?;
        let look_up_few = look_up(LOOK_UPS, &keys, |key| {
            let object = cache.get(key)?;
            let slim = serde_json::from_slice::<Slim>(object.encoded().ok()?).ok()?;
            Some(slim.indexed().len() + touch_kube(&slim))
        })?;
        let look_up_value = look_up(INDEX_LOOK_UPS, &by_field.values(), |value| {
            by_field.get(value).iter().map(read).sum::<anyhow::Result<usize>>().ok()
        })?;
        Ok(Some(StoreTimes {
            look_up: look_up_key,
            look_up_decoded: Some(look_up_decoded),
            look_up_six: Some(look_up_few),
            iterate,
            add_index,
            look_up_node: Some(look_up_value),
        }))
    }
}

pub fn kube_client(url: &str) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(kube::Config::new(url.parse()?))?)
}

/// A store of kube, the watch that keeps it up to date, and the indexed field of its objects.
struct Reflected<K: kube::Resource, Watch, Field>
where
    K::DynamicType: Eq + std::hash::Hash,
    K: 'static,
{
    store: reflector::Store<K>,
    types: K::DynamicType,
    field: Field,
    _watch: Watch,
}

pub(crate) async fn kube<K>(
    url: &str,
    types: K::DynamicType,
    config: watcher::Config,
    modify: impl FnMut(&mut K) + Send + 'static,
    field: impl Fn(&K) -> usize + 'static,
    seen: &mut Seen,
) -> anyhow::Result<Box<dyn Kept>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone + Send + Sync + Unpin + std::fmt::Debug,
{
    let api = Api::<K>::all_with(kube_client(url)?, &types);
    seen.begin()?;
    let writer = reflector::store::Writer::<K>::new(types.clone());
    let store = writer.as_reader();
    let mut events = watcher(api, config).modify(modify).reflect(writer).boxed();
    loop {
        match events.try_next().await?.ok_or_else(|| anyhow!("the watch ended"))? {
            watcher::Event::InitApply(_) => seen.first(),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    store.state().iter().for_each(|object| seen.kube(&**object));
    Ok(Box::new(Reflected { store, types, field, _watch: events }))
}

impl<K, Watch, Field: Fn(&K) -> usize> Kept for Reflected<K, Watch, Field>
where
    K: kube::Resource + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    fn use_store(&self) -> anyhow::Result<Option<StoreTimes>> {
        let Self { store, types, field, .. } = self;
        let start = Instant::now();
        black_box(store.state().iter().map(|object| touch_kube(&**object)).sum::<usize>());
        let iterate = per(store.len(), start);
        let keys: Vec<_> =
            store.state().iter().map(|object| ObjectRef::from_obj_with(&**object, types.clone())).collect();
        let key = look_up(LOOK_UPS, &keys, |key| Some(touch_kube(&*store.get(key)?)))?;
        let few = look_up(LOOK_UPS, &keys, |key| {
            let object = store.get(key)?;
            Some(field(&object) + touch_kube(&*object))
        })?;
        // The store keeps objects decoded.
        Ok(Some(StoreTimes {
            look_up: key,
            look_up_decoded: Some(key),
            look_up_six: Some(few),
            iterate,
            add_index: None,
            look_up_node: None,
        }))
    }
}

/// Reads one byte each of an object's namespace, name and version.
fn touch_kube(object: &impl kube::Resource) -> usize {
    let meta = object.meta();
    let key = [&meta.namespace, &meta.name, &meta.resource_version];
    touch(key.map(|text| text.as_deref().unwrap_or_default()))
}
