//! The operator on listwatch.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Config, ResourceExt};
use listwatch::client::Selection;
use listwatch_cache::{Object, Reflector, StorageFormat};
use listwatch_controller::{Action, Controller};
use listwatch_kube::finalizer::{Event, finalizer};
use listwatch_kube::{Kube, KubeTransport};
use serde_json::json;

use super::{FINALIZER, MANAGED_BY, MANAGER, WebApp};

struct Context {
    client: Client,
}

type Error = anyhow::Error;

/// Reconciles all apps.
///
/// # Errors
/// If the configuration is wrong.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let client = Client::try_from(config)?;
    let caches = listwatch::client::Client::new(KubeTransport::new(client.clone()));
    let (label, value) = MANAGED_BY;
    let owned = Selection::all().labels(format!("{label}={value}").parse()?).metadata_only();
    Controller::new(Reflector::<Kube<WebApp>>::of(&caches).store(StorageFormat::Compressed).spawn())
        .owns(Reflector::<Kube<Deployment>>::of(&caches).selection(owned.clone()).spawn())
        .owns(Reflector::<Kube<Service>>::of(&caches).selection(owned).spawn())
        .shutdown_on_signal()
        .run(reconcile, retry, Arc::new(Context { client }))
        .for_each(async |reconciled| {
            if let Err(error) = reconciled {
                eprintln!("{error}");
            }
        })
        .await;
    Ok(())
}

fn retry(_: Object<Kube<WebApp>>, _: &Error, _: Arc<Context>) -> Action {
    Action::backoff()
}

async fn reconcile(app: Object<Kube<WebApp>>, context: Arc<Context>) -> Result<Action, Error> {
    let apps = Api::<WebApp>::namespaced(context.client.clone(), app.namespace());
    finalizer(&apps, FINALIZER, app, async |event| match event {
        Event::Apply(app) => Ok(apply(&*app.decode()?, &context).await?),
        Event::Cleanup(app) => Ok(clean_up(&*app.decode()?, &context).await?),
    })
    .await
}

/// Creates or repairs what the app owns, and reports its state.
async fn apply(app: &WebApp, context: &Context) -> kube::Result<Action> {
    let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
    let apply = PatchParams::apply(MANAGER).force();
    let deployments = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    let deployment = deployments.patch(&name, &apply, &Patch::Apply(app.deployment())).await?;
    let services = Api::<Service>::namespaced(context.client.clone(), &namespace);
    services.patch(&name, &apply, &Patch::Apply(app.service())).await?;

    let status = Some(app.status_with(&deployment));
    if app.status != status {
        let apps = Api::<WebApp>::namespaced(context.client.clone(), &namespace);
        apps.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    Ok(Action::requeue(Duration::from_mins(5)))
}

/// Deletes what the app owns.
async fn clean_up(app: &WebApp, context: &Context) -> kube::Result<Action> {
    let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
    let delete = DeleteParams::default();
    let deployments = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    if deployments.get_opt(&name).await?.is_some() {
        deployments.delete(&name, &delete).await?;
    }
    let services = Api::<Service>::namespaced(context.client.clone(), &namespace);
    if services.get_opt(&name).await?.is_some() {
        services.delete(&name, &delete).await?;
    }
    Ok(Action::await_change())
}
