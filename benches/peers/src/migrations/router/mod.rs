//! A router finds its workers: the endpoints of the Pods with a label, as the gateway of `SGLang` does.

pub mod with_kube;
pub mod with_listwatch;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The Pods that are workers.
#[derive(Clone)]
pub struct Discovery {
    pub label: (String, String),
    /// All namespaces if `None`.
    pub namespace: Option<String>,
    pub port: u16,
    /// The period of the lists that repair the set, if it needs them.
    pub repair_every: std::time::Duration,
}

/// The endpoints of the workers, by the names of their Pods.
#[derive(Default)]
pub struct Workers(Mutex<BTreeMap<(String, String), String>>);

impl Workers {
    pub fn endpoints(&self) -> MutexGuard<'_, BTreeMap<(String, String), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the Pod, or removes it while it is not ready.
    pub fn update(&self, pod: &Pod, port: u16) {
        match endpoint(pod, port) {
            Some(endpoint) => drop(self.endpoints().insert(key(pod), endpoint)),
            None => drop(self.endpoints().remove(&key(pod))),
        }
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        self.endpoints().remove(&(namespace.to_owned(), name.to_owned()));
    }
}

fn key(pod: &Pod) -> (String, String) {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Returns the endpoint of a Pod that is ready.
fn endpoint(pod: &Pod, port: u16) -> Option<String> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let is_running = status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
    let ip = status.pod_ip.as_ref().filter(|_| is_ready && is_running)?;
    Some(format!("http://{ip}:{port}"))
}
