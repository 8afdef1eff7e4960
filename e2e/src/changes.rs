//! Writers that change objects while the server is restarted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

/// The annotation that [`annotate`] sets.
pub const CHANGED: &str = "example.com/changed";

/// The number of changes that concurrent writers have written.
#[derive(Default)]
pub struct Changes(AtomicU64);

impl Changes {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Waits until there are this many changes.
    pub async fn reach(&self, count: u64) {
        while self.count() < count {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Writes until there are this many changes. Pauses after an error while the server is down.
    pub async fn write_until(&self, count: u64, mut write: impl AsyncFnMut() -> kube::Result<()>) {
        while self.count() < count {
            match write().await {
                Ok(()) => drop(self.0.fetch_add(1, Relaxed)),
                // The object was deleted before. A write that a restart interrupted may have been applied or not.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// Splits `namespace/name` of a Pod, and returns the Pods of the namespace and the name.
#[must_use]
pub fn pod<'k>(client: &Client, key: &'k str) -> (Api<Pod>, &'k str) {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    (Api::namespaced(client.clone(), namespace), name)
}

/// Changes an annotation of a Pod.
pub async fn annotate(pods: &Api<Pod>, name: &str, value: &str) -> kube::Result<Pod> {
    let patch = json!({"metadata": {"annotations": {CHANGED: value}}});
    pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}
