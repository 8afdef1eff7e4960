//! Finalizers of the objects in a cache: [`finalizer()`].

use std::error::Error as StdError;
use std::fmt::{self, Debug};

use kube::api::{Api, Patch, PatchParams};
use listwatch::ItemError;
use listwatch_cache::{Object, StoreType};
use listwatch_controller::Action;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Value, json};

/// What a reconciler with a [finalizer](finalizer()) does with the object. Each must be idempotent.
#[derive(Debug)]
pub enum Event<T: StoreType + ?Sized> {
    /// Makes the actual state match the object.
    Apply(Object<T>),
    /// Cleans up before the object is deleted. It tolerates that `Apply` has never succeeded.
    Cleanup(Object<T>),
}

/// An error of the finalizer itself, not of the reconciler.
///
/// It converts to `kube::Error`, to `anyhow::Error` and to `Box<dyn Error>`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server refused to add the finalizer: it may have a newer state than the cache.
    AddFinalizer(kube::Error),
    /// The server refused to remove the finalizer: it may have a newer state than the cache.
    RemoveFinalizer(kube::Error),
    /// The metadata of the object cannot be read.
    Metadata(ItemError),
}

/// The text includes the cause, as in errors of kube.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer(error) => write!(f, "cannot add the finalizer: {error}"),
            Self::RemoveFinalizer(error) => write!(f, "cannot remove the finalizer: {error}"),
            Self::Metadata(error) => write!(f, "cannot read the finalizers: {error}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::AddFinalizer(error) | Self::RemoveFinalizer(error) => error.source(),
            Self::Metadata(error) => error.source(),
        }
    }
}

/// The error of the request; `SerdeError` for metadata that cannot be read.
impl From<Error> for kube::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::AddFinalizer(error) | Error::RemoveFinalizer(error) => error,
            Error::Metadata(error) => Self::SerdeError(serde_json::Error::custom(error)),
        }
    }
}

/// Reconciles an object so that its cleanup succeeds before it is deleted.
///
/// It does what [kube's](fn@kube::runtime::finalizer::finalizer) does, for an object of a cache: it adds the finalizer
/// first. Then each call is [`Event::Apply`], until the object is to be deleted. Then it is [`Event::Cleanup`], and the
/// finalizer is removed after its success.
///
/// `api` is the `Api` of the object's namespace that the program writes with; its type need not be the cache's. The
/// reconciler's error is returned as it is. It has any type that an [`Error`] converts to: `anyhow::Error`,
/// `kube::Error`, `Box<dyn Error + Send + Sync>`, or an own type with `From<Error>`.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::Api;
/// use listwatch_cache::Object;
/// use listwatch_kube::Kube;
/// use listwatch_kube::finalizer::{Event, finalizer};
/// use listwatch_kube::listwatch_controller::Action;
///
/// async fn reconcile(
///     config_map: Object<Kube<ConfigMap>>,
///     client: Arc<kube::Client>,
/// ) -> Result<Action, Box<dyn std::error::Error + Send + Sync>> {
///     let api = Api::<ConfigMap>::namespaced(kube::Client::clone(&client), config_map.namespace());
///     finalizer(&api, "example.com/cleanup", config_map, async |event| {
///         match event {
///             Event::Apply(config_map) => println!("apply {:?}", config_map.decode()?.data),
///             Event::Cleanup(config_map) => println!("clean up {}", config_map.name()),
///         }
///         Ok(Action::await_change())
///     })
///     .await
/// }
/// ```
///
/// # Requests
///
/// The finalizer is added and removed by a JSON patch, for which the server returns the metadata only. The finalizer
/// does not wait for the watch to deliver its own patch, so the reconciler may be called again with the state before
/// the patch. The server then refuses a second patch, and the error policy decides when to retry. As kube's, the
/// patch fails if another writer has changed the finalizers meanwhile. Here it also fails for another object: an object
/// that was created again with the same name, or an `Api` of another resource.
///
/// # Errors
///
/// The reconciler's error, or an [`Error`].
pub async fn finalizer<K, T, Reconcile, E>(
    api: &Api<K>,
    finalizer_name: &str,
    object: Object<T>,
    reconcile: impl FnOnce(Event<T>) -> Reconcile,
) -> Result<Action, E>
where
    K: Clone + DeserializeOwned + Debug,
    T: StoreType + ?Sized,
    Reconcile: Future<Output = Result<Action, E>>,
    E: From<Error>,
{
    let (finalizers, is_deleting) = read_finalizers(&object).map_err(Error::Metadata)?;
    match (finalizers.iter().position(|name| name == finalizer_name), is_deleting) {
        (Some(_), false) => reconcile(Event::Apply(object)).await,
        (Some(index), true) => {
            let path = format!("/metadata/finalizers/{index}");
            let removal =
                [json!({"op": "test", "path": path, "value": finalizer_name}), json!({"op": "remove", "path": path})];
            let action = reconcile(Event::Cleanup(object.clone())).await?;
            patch_object(api, &object, removal).await.map_err(Error::RemoveFinalizer)?;
            Ok(action)
        }
        // The patch is a change, which requests the next reconcile.
        (None, false) => {
            patch_object(api, &object, addition(&finalizers, finalizer_name)).await.map_err(Error::AddFinalizer)?;
            Ok(Action::await_change())
        }
        (None, true) => Ok(Action::await_change()),
    }
}

/// Returns the finalizers, and true if the object is to be deleted.
fn read_finalizers<T: StoreType + ?Sized>(object: &Object<T>) -> Result<(Vec<String>, bool), ItemError> {
    let meta = object.meta()?;
    Ok((meta.finalizers()?.map(String::from).collect(), meta.deletion_timestamp()?.is_some()))
}

/// Returns the operations that add a finalizer. The server does not deduplicate finalizers, so they test all.
fn addition(finalizers: &[String], name: &str) -> [Value; 2] {
    const PATH: &str = "/metadata/finalizers";
    if finalizers.is_empty() {
        // The server compares a missing field as null.
        [json!({"op": "test", "path": PATH, "value": null}), json!({"op": "add", "path": PATH, "value": [name]})]
    } else {
        [
            json!({"op": "test", "path": PATH, "value": finalizers}),
            json!({"op": "add", "path": format!("{PATH}/-"), "value": name}),
        ]
    }
}

/// Patches exactly this object: not one that was created again with the same name.
async fn patch_object<K, T>(api: &Api<K>, object: &Object<T>, operations: [Value; 2]) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug,
    T: StoreType + ?Sized,
{
    let same =
        (!object.uid().is_empty()).then(|| json!({"op": "test", "path": "/metadata/uid", "value": object.uid()}));
    let patch = serde_json::from_value(same.into_iter().chain(operations).collect());
    let patch = Patch::Json::<()>(patch.map_err(kube::Error::SerdeError)?);
    api.patch_metadata(object.name(), &PatchParams::default(), &patch).await.map(drop)
}
