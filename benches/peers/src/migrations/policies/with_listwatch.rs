//! The policy server's caches on listwatch.

use std::collections::HashMap;

use anyhow::Context;
use kube::Config;
use listwatch::client::Client;
use listwatch::path::meta;
use listwatch::{LabelSelector, Projection};
use listwatch_cache::{Cache, Object, Reflector, StorageFormat};
use listwatch_kube::KubeTransport;
use tokio::sync::Mutex;

use super::Lookup;

/// Caches of the kinds that were looked up.
pub struct Caches {
    client: Client,
    reflectors: Mutex<HashMap<String, Cache<[u8]>>>,
}

impl Caches {
    /// Creates caches of no kind.
    ///
    /// # Errors
    /// If the configuration is wrong.
    pub fn new(config: Config) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::new(KubeTransport::new(kube::Client::try_from(config)?)),
            reflectors: Mutex::default(),
        })
    }

    /// Returns the cache of a kind, which is filled for the first look-up.
    async fn store(&self, api_version: &str, kind: &str) -> anyhow::Result<Cache<[u8]>> {
        let mut reflectors = self.reflectors.lock().await;
        if let Some(cache) = reflectors.get(&format!("{api_version}/{kind}")) {
            return Ok(cache.clone());
        }
        let resource = self.client.resolve(&format!("{api_version}/{kind}")).await;
        let resource = resource.with_context(|| format!("no kind {kind}"))?;
        let cache = Reflector::<[u8]>::new(&self.client, &resource)
            .projection(Projection::new().drop(&meta::MANAGED_FIELDS))
            .store(StorageFormat::Compressed)
            .spawn();
        cache.synced().await?;
        reflectors.insert(format!("{api_version}/{kind}"), cache.clone());
        Ok(cache)
    }
}

impl Lookup for Caches {
    async fn get(&self, api_version: &str, kind: &str, key: (&str, &str)) -> anyhow::Result<Option<Vec<u8>>> {
        let cache = self.store(api_version, kind).await?;
        Ok(cache.get(key).map(|object| object.to_json()).transpose()?)
    }

    async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        label: Option<(&str, &str)>,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let cache = self.store(api_version, kind).await?;
        let labels = label.into_iter().fold(LabelSelector::new(), |labels, (key, value)| labels.equal(key, value));
        Ok(cache.list_labels(namespace, &labels).iter().map(Object::to_json).collect::<Result<_, _>>()?)
    }
}
