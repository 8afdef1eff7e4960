//! The operator on kube.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Client, Config, ResourceExt};
use serde_json::json;

use super::{FINALIZER, MANAGED_BY, MANAGER, WebApp};

struct Context {
    client: Client,
}

type Error = finalizer::Error<kube::Error>;

/// Reconciles all apps.
///
/// # Errors
/// If the configuration is wrong.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let client = Client::try_from(config)?;
    let (label, value) = MANAGED_BY;
    let owned = watcher::Config::default().labels(&format!("{label}={value}"));
    Controller::new(Api::<WebApp>::all(client.clone()), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(64))
        .owns(Api::<Deployment>::all(client.clone()), owned.clone())
        .owns(Api::<Service>::all(client.clone()), owned)
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

fn retry(_: Arc<WebApp>, _: &Error, _: Arc<Context>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

async fn reconcile(app: Arc<WebApp>, context: Arc<Context>) -> Result<Action, Error> {
    let apps = Api::<WebApp>::namespaced(context.client.clone(), &app.namespace().unwrap_or_default());
    finalizer(&apps, FINALIZER, app, async |event| match event {
        Event::Apply(app) => apply(&app, &context).await,
        Event::Cleanup(app) => clean_up(&app, &context).await,
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
