use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::controller::Action as KubeAction;
use kube::runtime::finalizer::{Event, finalizer};
use listwatch_cache::Object;
use listwatch_controller::{Action, Controller};

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn reconcile(config_map: Object<listwatch::Json<ConfigMap>>, client: Arc<kube::Client>) -> Result<Action, Error> {
    let api = Api::<ConfigMap>::namespaced(kube::Client::clone(&client), config_map.namespace());
    // kube's finalizer returns an action of kube, which does not return its time.
    let mut action = Action::await_change();
    finalizer(&api, "example.com/cleanup", config_map.decode()?, async |event| {
        match event {
            Event::Apply(_) => action = Action::requeue(Duration::from_secs(300)),
            Event::Cleanup(config_map) => println!("clean up {:?}", config_map.metadata.name),
        }
        Ok::<_, kube::Error>(KubeAction::await_change())
    })
    .await?;
    Ok(action)
}
