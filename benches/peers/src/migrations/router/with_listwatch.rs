//! The router on listwatch.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Config;
use listwatch::Projection;
use listwatch::client::{Client, Selection};
use listwatch::path::{meta, pod};
use listwatch_cache::{Change, Reflector, StorageFormat};
use listwatch_kube::{Kube, KubeTransport};

use super::{Discovery, Workers};

/// Keeps the workers up to date.
///
/// # Errors
/// If the configuration is wrong.
pub async fn discover(config: Config, discovery: Discovery, workers: Arc<Workers>) -> anyhow::Result<()> {
    let client = Client::new(KubeTransport::new(kube::Client::try_from(config)?));
    let (label, value) = &discovery.label;
    let selector = format!("{label}={value}").parse()?;
    let pods = Reflector::<Kube<Pod>>::of(&client)
        .selection(Selection::all().labels(selector))
        .projection(fields())
        .store(StorageFormat::Compressed);
    let pods = match &discovery.namespace {
        Some(namespace) => pods.namespace(namespace),
        None => pods,
    };
    let mut changes = pods.spawn().subscribe().with_initial_state().start();
    while let Some(change) = changes.next().await {
        match change {
            Change::Applied { new, .. } => match new.decode() {
                Ok(pod) => workers.update(&pod, discovery.port),
                Err(error) => eprintln!("decode {}: {error}", new.key()),
            },
            Change::Deleted { last, .. } => workers.remove(last.namespace(), last.name()),
            Change::Ended(reason) => anyhow::bail!("watch Pods: {reason}"),
            _ => {}
        }
    }
    Ok(())
}

/// Leaves out the fields that no worker needs.
fn fields() -> Projection {
    Projection::new().drop(&pod::SPEC).drop(&meta::ANNOTATIONS).drop(&meta::MANAGED_FIELDS)
}
