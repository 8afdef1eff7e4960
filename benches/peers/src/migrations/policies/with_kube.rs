//! The policy server's caches on kube.

use std::collections::HashMap;

use anyhow::Context;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::pinned_kind;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config, ResourceExt};
use tokio::sync::Mutex;

use super::Lookup;

/// A kind, and the store of its objects.
type Reflected = (ApiResource, Store<DynamicObject>);

/// Caches of the kinds that were looked up.
pub struct Caches {
    client: Client,
    reflectors: Mutex<HashMap<String, Reflected>>,
}

impl Caches {
    /// Creates caches of no kind.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn new(config: Config) -> anyhow::Result<Self> {
        Ok(Self { client: Client::try_from(config)?, reflectors: Mutex::default() })
    }

    /// Returns the store of a kind, which is filled for the first look-up.
    async fn store(&self, api_version: &str, kind: &str) -> anyhow::Result<Reflected> {
        let mut reflectors = self.reflectors.lock().await;
        if let Some(cached) = reflectors.get(&format!("{api_version}/{kind}")) {
            return Ok(cached.clone());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = pinned_kind(&self.client, &GroupVersionKind::gvk(group, version, kind)).await;
        let (resource, _) = resource.with_context(|| format!("no kind {kind}"))?;
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let writer = Writer::new(resource.clone());
        let store = writer.as_reader();
        let changes = watcher(api, watcher::Config::default())
            .default_backoff()
            .modify(|object| object.metadata.managed_fields = None)
            .reflect(writer)
            .touched_objects();
        tokio::spawn(changes.for_each(async |change| {
            if let Err(error) = change {
                eprintln!("{error}");
            }
        }));
        store.wait_until_ready().await?;
        reflectors.insert(format!("{api_version}/{kind}"), (resource.clone(), store.clone()));
        Ok((resource, store))
    }
}

impl Lookup for Caches {
    async fn get(&self, api_version: &str, kind: &str, key: (&str, &str)) -> anyhow::Result<Option<Vec<u8>>> {
        let (resource, store) = self.store(api_version, kind).await?;
        let (namespace, name) = key;
        let key = ObjectRef::<DynamicObject>::new_with(name, resource);
        let found = store.get(&if namespace.is_empty() { key } else { key.within(namespace) });
        Ok(found.map(|object| serde_json::to_vec(&*object)).transpose()?)
    }

    async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        label: Option<(&str, &str)>,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let (_, store) = self.store(api_version, kind).await?;
        let mut objects = store.state();
        objects.retain(|object| {
            let is_in_namespace = namespace.is_none_or(|namespace| object.namespace().as_deref() == Some(namespace));
            is_in_namespace && label.is_none_or(|(key, value)| object.labels().get(key).is_some_and(|has| has == value))
        });
        // The store has no order.
        objects.sort_by_key(|object| (object.namespace(), object.name_any()));
        Ok(objects.iter().map(|object| serde_json::to_vec(&**object)).collect::<Result<_, _>>()?)
    }
}
