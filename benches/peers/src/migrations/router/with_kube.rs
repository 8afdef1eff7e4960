//! The router on kube.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config};
use tokio::time::{MissedTickBehavior, interval};

use super::{Discovery, Workers, key};

/// Keeps the workers up to date.
///
/// # Errors
/// If the configuration is wrong.
pub async fn discover(config: Config, discovery: Discovery, workers: Arc<Workers>) -> anyhow::Result<()> {
    let client = Client::try_from(config)?;
    let (label, value) = &discovery.label;
    let selector = format!("{label}={value}");
    let pods = match &discovery.namespace {
        Some(namespace) => Api::<Pod>::namespaced(client, namespace),
        None => Api::<Pod>::all(client),
    };
    // The stream below does not have the deletions.
    tokio::spawn(repair(pods.clone(), selector.clone(), discovery.clone(), Arc::clone(&workers)));
    let changes = watcher(pods, watcher::Config::default().labels(&selector)).default_backoff().applied_objects();
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(pod) => workers.update(&pod, discovery.port),
            Err(error) => eprintln!("watch Pods: {error}"),
        }
    }
    Ok(())
}

/// Lists the Pods again and again, and removes the workers that are gone.
async fn repair(pods: Api<Pod>, selector: String, discovery: Discovery, workers: Arc<Workers>) {
    let mut ticks = interval(discovery.repair_every);
    // A slow server gets no lists back to back.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match pods.list(&ListParams::default().labels(&selector)).await {
            Ok(listed) => {
                listed.items.iter().for_each(|pod| workers.update(pod, discovery.port));
                let names: BTreeSet<_> = listed.items.iter().map(key).collect();
                workers.endpoints().retain(|name, _| names.contains(name));
            }
            Err(error) => eprintln!("list Pods: {error}"),
        }
    }
}
