//! A cache with the methods of kube's `Store`.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::reflector::{Lookup, ObjectRef};
use listwatch_cache::{Cache, SyncError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kind::Kube;
use crate::object_ref::ToObjectKey as _;

/// A [`Cache`] with the methods of kube's [`Store`](kube::runtime::reflector::Store), so that a program moves by
/// replacing the type of a field.
///
/// The cache keeps objects encoded or compressed, and each call decodes what it returns. [`get`](Self::get) and
/// [`len`](Self::len) therefore cost about as much as in kube's store, but [`state`](Self::state) and the searches
/// decode all objects. In their place use an [index](listwatch_cache::StoreReader::index) of the [cache](Self::cache):
/// see the [guide](crate::guide#kubes-store).
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::reflector::ObjectRef;
/// use listwatch::client::Client;
/// use listwatch_cache::Reflector;
/// // In place of `kube::runtime::reflector::Store`.
/// use listwatch_kube::{Kube, Store};
///
/// struct Context {
///     pods: Store<Pod>,
/// }
///
/// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context { pods: Reflector::<Kube<Pod>>::of(&client).spawn().into() };
/// context.pods.wait_until_ready().await?;
/// let web = context.pods.get(&ObjectRef::new("web").within("shop"));
/// println!("{:?}, one of {} Pods", web.and_then(|pod| pod.status.clone()), context.pods.len());
/// # Ok(())
/// # }
/// ```
///
/// An object that cannot be decoded is left out, and [counted](listwatch_cache::StoreReader::decode_errors).
pub struct Store<K>(Cache<Kube<K>>)
where
    K: kube::Resource + DeserializeOwned + Serialize + Send + Sync + 'static;

impl<K> Store<K>
where
    K: kube::Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &Cache<Kube<K>> {
        &self.0
    }

    /// Waits until the cache has had the whole collection.
    ///
    /// # Errors
    ///
    /// As [`Cache::synced`], also when the reflector ends later. kube's method returns an error only if the writer was
    /// dropped before.
    pub async fn wait_until_ready(&self) -> Result<(), SyncError> {
        self.0.synced().await.map(drop)
    }

    /// Returns the object with this key, and decodes it. As in kube, a cluster-scoped object is found by a key with a
    /// namespace, too.
    #[must_use]
    pub fn get(&self, key: &ObjectRef<K>) -> Option<Arc<K>>
    where
        K: Lookup,
    {
        self.0.get(key.as_key()).or_else(|| self.0.get(("", &*key.name)))?.decode().ok()
    }

    /// Decodes and returns all objects, in key order.
    ///
    /// As long as the caller keeps the result, it takes the memory of kube's store in addition to the cache's: for
    /// 50,000 Pods of 8.5 kB several gigabytes, and seconds of CPU time for each call, since the next call decodes all
    /// objects again.
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.state_filter(|_| true)
    }

    /// Returns the first object, in key order, for which the predicate returns true. It decodes all objects before it,
    /// one at a time.
    #[must_use]
    pub fn find<P: Fn(&K) -> bool>(&self, predicate: P) -> Option<Arc<K>> {
        let snapshot = self.0.snapshot();
        snapshot.iter().filter_map(|object| object.decode().ok()).find(|object| predicate(object))
    }

    /// Returns the objects for which the predicate returns true, in key order. It decodes all objects, one at a time.
    #[must_use]
    pub fn state_filter<P: Fn(&K) -> bool>(&self, predicate: P) -> Vec<Arc<K>> {
        let snapshot = self.0.snapshot();
        snapshot.iter().filter_map(|object| object.decode().ok()).filter(|object| predicate(object)).collect()
    }

    /// Returns the objects whose labels match, in key order. It decodes all objects, one at a time;
    /// [`list_labels`](listwatch_cache::StoreReader::list_labels) of the [cache](Self::cache) reads only labels.
    #[must_use]
    pub fn state_filter_selector(&self, selector: &Selector) -> Vec<Arc<K>> {
        self.state_filter(|object| selector.matches(object.labels()))
    }

    /// Returns the number of objects, which includes those that cannot be decoded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the cache has no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K> From<Cache<Kube<K>>> for Store<K>
where
    K: kube::Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    fn from(cache: Cache<Kube<K>>) -> Self {
        Self(cache)
    }
}

impl<K> Clone for Store<K>
where
    K: kube::Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Store<K>
where
    K: kube::Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use kube::core::Expression;
    use kube::runtime::{reflector, watcher};
    use listwatch_cache::CacheWriter;
    use serde_json::{from_value, json};

    use super::*;

    /// A program that has a store of this type, and calls all its methods.
    macro_rules! program {
        ($name:ident, $store:ident) => {
            struct $name {
                config_maps: $store<ConfigMap>,
                nodes: $store<Node>,
            }

            impl $name {
                async fn run(&self) -> Result<String, Box<dyn Error>> {
                    self.config_maps.wait_until_ready().await?;
                    let names = |objects: Vec<Arc<ConfigMap>>| {
                        let mut names: Vec<_> = objects.iter().map(|object| object.name_any()).collect();
                        names.sort();
                        names.join(" ")
                    };
                    let web = self.config_maps.get(&ObjectRef::new("web").within("shop"));
                    let absent = self.config_maps.get(&ObjectRef::new("web").within("other"));
                    let node = self.nodes.get(&ObjectRef::new("node").within("ignored"));
                    let found = self.config_maps.find(|object| object.name_any() == "db");
                    let data = |object: Arc<ConfigMap>| object.data.clone();
                    let selector: Selector = Expression::Equal("app".into(), "web".into()).into();
                    Ok(format!(
                        "{:?} {:?} {:?} {:?} {} {} {} {} {} {}",
                        web.and_then(data),
                        absent.map(|object| object.name_any()),
                        node.map(|node| node.name_any()),
                        found.map(|object| object.metadata.namespace.clone()),
                        names(self.config_maps.clone().state()),
                        names(self.config_maps.state_filter(|object| object.name_any() != "db")),
                        names(self.config_maps.state_filter_selector(&selector)),
                        self.config_maps.len(),
                        self.config_maps.is_empty(),
                        self.nodes.len(),
                    ))
                }
            }
        };
    }

    use kube::runtime::reflector::Store as StoreOfKube;
    program!(BeforeMoving, StoreOfKube);
    program!(AfterMoving, Store);

    #[tokio::test]
    async fn a_program_compiles_with_another_type_of_its_field_and_gets_the_same_objects() {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let (nodes, mut writer_of_nodes) = reflector::store::<Node>();
        let (cache, cache_of_nodes) = (CacheWriter::<Kube<ConfigMap>>::of(), CacheWriter::<Kube<Node>>::of());
        writer.apply_watcher_event(&watcher::Event::Init);
        for (name, app) in [("web", "web"), ("api", "web"), ("db", "db")] {
            let object: ConfigMap = from_value(json!({
                "metadata": {"namespace": "shop", "name": name, "labels": {"app": app}, "resourceVersion": "2"},
                "data": {"key": name},
            }))
            .unwrap();
            cache.apply_decoded(&object).unwrap();
            writer.apply_watcher_event(&watcher::Event::InitApply(object));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let node: Node = from_value(json!({"metadata": {"name": "node", "resourceVersion": "3"}})).unwrap();
        cache_of_nodes.apply_decoded(&node).unwrap();
        writer_of_nodes.apply_watcher_event(&watcher::Event::Apply(node));
        let before = BeforeMoving { config_maps: store, nodes }.run().await.unwrap();
        let (config_maps, nodes) = (cache.cache().into(), cache_of_nodes.cache().into());
        assert_eq!(AfterMoving { config_maps, nodes }.run().await.unwrap(), before);
        assert!(before.contains(r#""key": "web""#) && before.contains(r#"Some("node")"#), "{before}");
    }

    #[test]
    fn objects_that_cannot_be_decoded_are_left_out_and_counted() {
        let writer = CacheWriter::<Kube<ConfigMap>>::of();
        for (name, data) in [("bad", json!(7)), ("good", json!({}))] {
            let object = json!({"metadata": {"namespace": "shop", "name": name, "resourceVersion": "2"}, "data": data});
            writer.apply(listwatch::Encoding::Json, object.to_string().as_bytes()).unwrap();
        }
        let store = Store::from(writer.cache());
        assert!(store.get(&ObjectRef::new("bad").within("shop")).is_none());
        let names: Vec<_> = store.state().iter().map(|object| object.name_any()).collect();
        assert_eq!((names, store.len(), store.cache().decode_errors().0), (vec!["good".to_owned()], 2, 1));
    }
}
