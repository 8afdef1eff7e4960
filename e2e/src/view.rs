//! The objects of a server and of its readers, to compare them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use listwatch::ItemError;
use listwatch::client::{Client, ListParams, Resource, Selection};
use listwatch_cache::{Cache, StoreType};
use tokio::time::{sleep, timeout};

use crate::Result;

/// Versions by `namespace/name`.
pub type View = BTreeMap<String, String>;

/// Returns the Pods that the server lists for a label selector.
pub async fn listed(client: &Client, labels: &str) -> Result<View> {
    let params = ListParams::new(Selection::all().labels(labels.parse()?));
    let pods = client.list_with(&Resource::PODS, &params, |pod| {
        let meta = pod.meta()?;
        Ok::<_, ItemError>((format!("{}/{}", meta.namespace(), meta.name()), meta.resource_version().into_owned()))
    });
    Ok(pods.into_vec().await?.0.into_iter().collect())
}

#[must_use]
pub fn seen<T: StoreType + ?Sized>(cache: &Cache<T>) -> View {
    let pods = cache.snapshot();
    pods.iter().map(|pod| (pod.key().to_string(), pod.resource_version().to_owned())).collect()
}

/// Returns the key and the version of an object of kube.
pub fn of_kube(object: &impl kube::Resource) -> (String, String) {
    let key = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    (key, object.resource_version().unwrap_or_default())
}

/// Waits until a reader has the expected objects.
pub async fn agree(name: &str, expected: &View, mut see: impl FnMut() -> Result<View>) -> Result<()> {
    let agrees = async {
        while see()? != *expected {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    // Debug builds decode the Pods of many readers, on one machine with the server.
    let limit = Duration::from_secs(120) + Duration::from_millis(100) * u32::try_from(expected.len())?;
    if let Ok(result) = timeout(limit, agrees).await {
        return result;
    }
    let seen = see()?;
    let differing: Vec<_> = expected.iter().filter(|(key, version)| seen.get(*key) != Some(version)).take(3).collect();
    Err(format!("{name}: {} of {}, without {differing:?}", seen.len(), expected.len()).into())
}
