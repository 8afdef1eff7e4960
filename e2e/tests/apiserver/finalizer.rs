//! A reconciler with a finalizer, on the objects of a built-in kind and of a custom resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event as RecordedEvent;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event as NewEvent, EventType, Recorder};
use kube::runtime::wait::{await_condition, conditions};
use listwatch::client::{Resource, Selection};
use listwatch_cache::{Object, Predicate, Reflector};
use listwatch_controller::{Action, Controller, Source};
use listwatch_e2e::{Result, Server};
use listwatch_kube::finalizer::{Event, finalizer};
use listwatch_kube::{FromResource as _, Kube, ToObjectRef as _};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

const PORT: u16 = 16663;
const MINE: &str = "example.com/mine";
const OTHER: &str = "example.com/other";
/// The label of the objects that the controller gets.
const LABEL: &str = "example.com/finalized";

struct Context {
    api: Api<DynamicObject>,
    resource: ApiResource,
    recorder: Recorder,
    /// True if the cleanup fails.
    fails: AtomicBool,
    calls: UnboundedSender<String>,
}

async fn reconcile(object: Object<Kube<DynamicObject>>, context: Arc<Context>) -> Result<Action> {
    let called = |name: &str, object: &Object<_>| context.calls.send(format!("{name} {}", object.name()));
    finalizer(&context.api, MINE, object, async |event| {
        match event {
            Event::Apply(object) => called("apply", &object)?,
            Event::Cleanup(object) => {
                called("clean up", &object)?;
                let note = NewEvent {
                    type_: EventType::Normal,
                    reason: "Deleting".to_owned(),
                    note: None,
                    action: "CleanUp".to_owned(),
                    secondary: None,
                };
                let reference = object.to_object_ref::<DynamicObject>(context.resource.clone());
                context.recorder.publish(&note, &reference.into()).await?;
                if context.fails.load(Relaxed) {
                    return Err("the cleanup fails".into());
                }
            }
        }
        Ok(Action::await_change())
    })
    .await
}

/// Returns the next call that is not a repetition of the last one.
async fn next(calls: &mut UnboundedReceiver<String>, last: &str) -> Result<String> {
    loop {
        let call = timeout(Duration::from_secs(60), calls.recv()).await?.ok_or("the controller has ended")?;
        if call != last {
            return Ok(call);
        }
    }
}

/// Returns the finalizers that the server has, and true if the object is to be deleted.
async fn served(api: &Api<DynamicObject>, name: &str) -> Result<(Vec<String>, bool)> {
    let object = api.get(name).await?;
    Ok((object.finalizers().to_vec(), object.metadata.deletion_timestamp.is_some()))
}

/// Waits until the server has no such object.
async fn gone(api: &Api<DynamicObject>, name: &str, uid: &str) -> Result<()> {
    let gone = await_condition(api.clone(), name, conditions::is_deleted(uid));
    timeout(Duration::from_secs(60), gone).await?.map(drop).map_err(Into::into)
}

async fn create(api: &Api<DynamicObject>, resource: &ApiResource, name: &str, finalizers: &[&str]) -> Result<String> {
    let mut object = DynamicObject::new(name, resource);
    object.labels_mut().insert(LABEL.to_owned(), "true".to_owned());
    object.finalizers_mut().extend(finalizers.iter().map(ToString::to_string));
    Ok(api.create(&PostParams::default(), &object).await?.uid().unwrap_or_default())
}

/// Creates, changes and deletes objects of a kind, whose reconciler has a finalizer.
async fn lives_and_dies(server: &Server, resource: &Resource, predicate: Predicate) -> Result<()> {
    let (reads, client) = (server.client()?, server.kube_client().await?);
    let api_resource = ApiResource::from_resource(resource);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &api_resource);
    let selected = Selection::all().labels(LABEL.parse()?);
    let cache = Reflector::<Kube<DynamicObject>>::new(&reads, resource).selection(selected).spawn();
    let (called, mut calls) = unbounded_channel();
    let context = Arc::new(Context {
        api: api.clone(),
        resource: api_resource.clone(),
        recorder: Recorder::new(client.clone(), "listwatch-e2e".into()),
        fails: AtomicBool::new(true),
        calls: called,
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let controller = Controller::new(Source::new(cache.clone()).predicate_filter(predicate))
        .graceful_shutdown_on(async { drop(stopped.await) })
        // A patch of the state before the last one is refused, and the next state is reconciled.
        .run(reconcile, |_, _, _| Action::backoff(), Arc::clone(&context))
        .for_each(async |_| {});
    let controller = tokio::spawn(controller);

    // The first call finds the finalizer on the server.
    let uid = create(&api, &api_resource, "a", &[]).await?;
    assert_eq!(next(&mut calls, "").await?, "apply a");
    assert_eq!(served(&api, "a").await?, (vec![MINE.to_owned()], false));

    // A cleanup that fails is repeated, and keeps the object.
    api.delete("a", &DeleteParams::default()).await?;
    assert_eq!(next(&mut calls, "apply a").await?, "clean up a");
    assert_eq!(timeout(Duration::from_secs(60), calls.recv()).await?.as_deref(), Some("clean up a"));
    assert_eq!(served(&api, "a").await?, (vec![MINE.to_owned()], true));
    assert!(cache.get(("default", "a")).is_some());
    context.fails.store(false, Relaxed);
    gone(&api, "a", &uid).await?;

    // Finalizers of others stay, in their order. The cleanup of this one is called before they are removed.
    let uid = create(&api, &api_resource, "b", &[OTHER]).await?;
    assert_eq!(next(&mut calls, "clean up a").await?, "apply b");
    assert_eq!(served(&api, "b").await?, (vec![OTHER.to_owned(), MINE.to_owned()], false));
    api.delete("b", &DeleteParams::default()).await?;
    assert_eq!(next(&mut calls, "apply b").await?, "clean up b");
    let is_removed = |object: Option<&DynamicObject>| object.is_some_and(|object| object.finalizers() == [OTHER]);
    timeout(Duration::from_secs(60), await_condition(api.clone(), "b", is_removed)).await??;
    let nobody = Patch::Merge(json!({"metadata": {"finalizers": Value::Null}}));
    api.patch("b", &PatchParams::default(), &nobody).await?;
    gone(&api, "b", &uid).await?;

    // kube's recorder accepts the reference of a cached object.
    let regarding = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = Api::<RecordedEvent>::namespaced(client, "default").list(&regarding).await?.items;
    let involved = events.first().map(|event| &event.involved_object).ok_or("no event")?;
    assert_eq!((involved.kind.as_deref(), involved.name.as_deref()), (Some(resource.kind()), Some("b")));

    drop(stop);
    timeout(Duration::from_secs(60), controller).await??;
    while let Ok(call) = calls.try_recv() {
        assert_eq!(call, "clean up b");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finalizer_keeps_an_object_until_its_cleanup_succeeds() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    // ConfigMaps have no generation.
    let changed = Predicate::generation().fallback(Predicate::resource_version());
    lives_and_dies(&server, &Resource::CONFIG_MAPS, changed).await?;
    // The controller does not get it.
    server
        .apply_widgets(r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "unlabelled"}}"#)?;
    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    lives_and_dies(&server, &widgets, Predicate::generation().or(Predicate::finalizers())).await
}
