//! Labels each ConfigMap with the number of its keys: kube's `Controller` over the watcher of this crate. `cargo run -p
//! listwatch-kube --features runtime --example controller` uses the kubeconfig that kubectl uses. `Controller::for_stream`
//! needs kube's feature `unstable-runtime`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Client, ResourceExt as _};
use listwatch::Projection;
use listwatch::path::meta;
use listwatch_kube::runtime::watcher;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let (store, writer) = reflector::store();
    let events = watcher(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .projection(Projection::new().drop(&meta::MANAGED_FIELDS));
    let config_maps = events.default_backoff().reflect(writer).applied_objects();
    Controller::for_stream(config_maps, store)
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(10)), Arc::new(client))
        .for_each(async |done| {
            if let Err(error) = done {
                eprintln!("error: {error}");
            }
        })
        .await;
    Ok(())
}

async fn reconcile(config_map: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let keys = config_map.data.as_ref().map_or(0, BTreeMap::len).to_string();
    if config_map.labels().get("example.com/keys") != Some(&keys) {
        let (namespace, name) = (config_map.namespace().unwrap_or_default(), config_map.name_any());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"example.com/keys": keys}}}));
        let api = Api::<ConfigMap>::namespaced(Client::clone(&client), &namespace);
        api.patch(&name, &PatchParams::default(), &patch).await?;
        println!("{namespace}/{name} has {keys}");
    }
    Ok(Action::await_change())
}
