//! Labels each ConfigMap with the number of its keys, in one of several replicas: `cargo run -p listwatch-kube
//! --features controller --example controller` uses the kubeconfig that kubectl uses; run it in several terminals.
//!
//! Each replica keeps its cache synced. The replica that holds the Lease `listwatch-controller` reconciles; when it
//! ends, another one starts with a synced cache. Two replicas may reconcile at once for a short time, because
//! kube-lease-manager acquires an expired Lease unconditionally; the labels are the same then.
//!
//! It needs permission to list, watch and patch ConfigMaps, and to get, create and patch Leases in the namespace
//! `default`.

use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as api;
use k8s_pb::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube_lease_manager::LeaseManagerBuilder;
use listwatch_cache::{Cache, Object, Reflector};
use listwatch_kube::listwatch_controller::{self as controller, Action, Controller};
use serde_json::json;

type Error = Box<dyn StdError + Send + Sync>;

const KEYS: &str = "example.com/keys";

struct Context {
    client: kube::Client,
    config_maps: Cache<ConfigMap>,
}

async fn reconcile(config_map: Object<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let keys = config_map.decode()?.data.len().to_string();
    if config_map.meta()?.label(KEYS)?.as_deref() != Some(&keys) {
        let api = Api::<api::ConfigMap>::namespaced(context.client.clone(), config_map.namespace());
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEYS: keys}}}));
        let written = api.patch(config_map.name(), &PatchParams::default(), &patch).await?;
        println!("{} has {keys}", config_map.key());
        // The next reconcile sees the label.
        if let Some(version) = written.resource_version() {
            context.config_maps.wait_for_resource_version(&version).await?;
        }
    }
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let (reads, client) = (listwatch::client::Client::try_default()?, kube::Client::try_default().await?);
    let config_maps = Reflector::<ConfigMap>::of(&reads).spawn();

    let lease =
        LeaseManagerBuilder::new(client.clone(), "listwatch-controller").with_namespace("default").build().await?;
    while !lease.changed().await? {}

    println!("reconciling {} ConfigMaps", config_maps.len());
    let controller = Controller::new(config_maps.clone()).shutdown_on_signal();
    let items = controller.run(reconcile, |_, _, _| Action::backoff(), Arc::new(Context { client, config_maps }));
    let reconciling = async {
        let mut items = pin!(items);
        while let Some(item) = items.next().await {
            match item {
                // The stream ends with this error.
                Err(controller::Error::Cache(error)) => return Err(error),
                Err(error) => eprintln!("error: {error}"),
                Ok(_) => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = reconciling => {
            lease.release().await?;
            Ok(ended?)
        }
        // The stream is dropped, which aborts its reconciles. `changed` also renews the Lease.
        lost = lease.changed() => Err(lost.map_or_else(Error::from, |_| "lost the Lease".into())),
    }
}
