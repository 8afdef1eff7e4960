//! [`finalizer()`] of kube, for objects of a cache.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, ObjectMeta, PartialObjectMeta};
use kube::runtime::controller::Action as KubeAction;
use kube::runtime::finalizer as kube_finalizer;
pub use kube::runtime::finalizer::{Error, Event};
use listwatch::ItemError;
use listwatch_cache::{Object, StoreType};

use super::action::Action;

/// Reconciles an object with kube's [`finalizer()`](fn@kube_finalizer::finalizer).
///
/// kube's function guarantees that a cleanup succeeds before the object is deleted: see there. This one
/// reads only the metadata, so the `Api` is one of [`PartialObjectMeta`], for any type of the cache:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1 as api;
/// use k8s_pb::api::core::v1::ConfigMap;
/// use kube::api::{Api, PartialObjectMeta};
/// use listwatch_cache::Object;
/// use listwatch_kube::controller::Action;
/// use listwatch_kube::controller::finalizer::{Error, Event, finalizer};
///
/// async fn reconcile(
///     config_map: Object<ConfigMap>,
///     client: Arc<kube::Client>,
/// ) -> Result<Action, Error<std::io::Error>> {
///     type Metadata = PartialObjectMeta<api::ConfigMap>;
///     let api = Api::<Metadata>::namespaced(kube::Client::clone(&client), config_map.namespace());
///     finalizer(&api, "example.com/cleanup", config_map, async |event| {
///         match event {
///             Event::Apply(config_map) => println!("apply {}", config_map.name()),
///             Event::Cleanup(config_map) => println!("clean up {}", config_map.name()),
///         }
///         Ok(Action::await_change())
///     })
///     .await
/// }
/// ```
///
/// # Errors
///
/// As kube's; also [`Error::InvalidFinalizer`] when the metadata cannot be read.
pub async fn finalizer<T, K, Reconcile, E>(
    api: &Api<PartialObjectMeta<K>>,
    finalizer_name: &str,
    object: Object<T>,
    reconcile: impl FnOnce(Event<Object<T>>) -> Reconcile,
) -> Result<Action, Error<E>>
where
    T: StoreType + ?Sized,
    K: Resource + Clone + Debug,
    Reconcile: Future<Output = Result<Action, E>>,
    E: StdError + 'static,
{
    let metadata = metadata(&object).map_err(|_| Error::InvalidFinalizer)?;
    let partial = PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData };
    // kube's `Action` cannot be read.
    let action = OnceLock::new();
    kube_finalizer::finalizer(api, finalizer_name, Arc::new(partial), |event| {
        let reconcile = reconcile(match event {
            Event::Apply(_) => Event::Apply(Arc::new(object)),
            Event::Cleanup(_) => Event::Cleanup(Arc::new(object)),
        });
        let action = &action;
        Box::pin(async move {
            _ = action.set(reconcile.await?);
            Ok(KubeAction::await_change())
        })
    })
    .await?;
    // None after the finalizer was added, which is a change.
    Ok(action.into_inner().unwrap_or(Action::await_change()))
}

/// Returns the metadata that kube's function reads.
fn metadata<T: StoreType + ?Sized>(object: &Object<T>) -> Result<ObjectMeta, ItemError> {
    let meta = object.meta()?;
    Ok(ObjectMeta {
        name: Some(object.name().to_owned()),
        finalizers: Some(meta.finalizers()?.map(String::from).collect()),
        // Only its presence matters.
        deletion_timestamp: meta.deletion_timestamp()?.map(|_| Time(Timestamp::UNIX_EPOCH)),
        ..ObjectMeta::default()
    })
}
