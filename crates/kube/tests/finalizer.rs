//! [`finalizer()`] against a server that applies JSON patches as the API server does.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::client::Body;
use listwatch_cache::{CacheWriter, Object};
use listwatch_kube::Kube;
use listwatch_kube::finalizer::{Error, Event, finalizer};
use listwatch_kube::listwatch_controller::Action;
use serde_json::{Value, json};

type BoxError = Box<dyn StdError + Send + Sync>;

const REQUEUE: Action = Action::requeue(Duration::from_secs(1));

/// The object of a server, which patches change.
type Served = Arc<Mutex<Value>>;

fn with(finalizers: &[&str], is_deleting: bool) -> Value {
    let mut object = json!({"metadata": {"namespace": "ns", "name": "a", "uid": "a", "resourceVersion": "1"}});
    if !finalizers.is_empty() {
        object["metadata"]["finalizers"] = finalizers.into();
    }
    if is_deleting {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    object
}

fn cached(object: Value) -> Object<Kube<ConfigMap>> {
    let writer = CacheWriter::<Kube<ConfigMap>>::of();
    writer.apply_decoded(&serde_json::from_value(object).unwrap()).unwrap();
    writer.cache().get(("ns", "a")).unwrap()
}

/// Applies a patch, or answers 422 if one of its tests fails.
async fn patch(served: Served, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("PATCH", "/api/v1/namespaces/ns/configmaps/a"));
    assert_eq!(request.headers()["content-type"], "application/json-patch+json");
    assert!(request.headers()["accept"].to_str()?.contains("as=PartialObjectMetadata"));
    let mut patch: json_patch::Patch = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
    let mut served = served.lock().unwrap();
    // The API server compares a missing field as null.
    patch.0.retain(|operation| match operation {
        PatchOperation::Test(test) => !(test.value.is_null() && served.pointer(test.path.as_str()).is_none()),
        _ => true,
    });
    let (code, body) = match json_patch::patch(&mut served, &patch) {
        Ok(()) => (StatusCode::OK, json!({"metadata": served["metadata"]})),
        Err(error) => {
            let status = json!({"kind": "Status", "status": "Failure", "code": 422, "message": error.to_string()});
            (StatusCode::UNPROCESSABLE_ENTITY, status)
        }
    };
    Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
}

fn api(served: &Served) -> Api<ConfigMap> {
    let served = Arc::clone(served);
    let service = tower::service_fn(move |request| patch(Arc::clone(&served), request));
    Api::namespaced(kube::Client::new(service, "default"), "ns")
}

/// Reconciles the cached state, and returns the calls, the result, and the finalizers that the server then has.
async fn reconcile<E: From<Error> + ToString>(cached_state: Value, served: Value, error: Option<E>) -> String {
    let served = Arc::new(Mutex::new(served));
    let mut calls = String::new();
    let api = api(&served);
    let result = finalizer(&api, "mine", cached(cached_state), async |event| {
        let (name, object) = match event {
            Event::Apply(object) => ("apply", object),
            Event::Cleanup(object) => ("cleanup", object),
        };
        assert_eq!((object.name(), object.resource_version()), ("a", "1"));
        calls = format!("{name}, ");
        error.map_or(Ok(REQUEUE), Err)
    });
    let result = match result.await {
        Ok(action) if action == REQUEUE => "requeue".to_owned(),
        Ok(action) if action == Action::await_change() => "await".to_owned(),
        Ok(action) => panic!("{action:?}"),
        Err(error) => error.to_string(),
    };
    let finalizers = served.lock().unwrap()["metadata"]["finalizers"].to_string();
    format!("{calls}{result}, {finalizers}")
}

#[tokio::test]
async fn a_finalizer_is_added_before_and_removed_after_the_reconciler() {
    for (finalizers, is_deleting, fails, expected) in [
        (&[][..], false, false, r#"await, ["mine"]"#),
        (&["other"], false, false, r#"await, ["other","mine"]"#),
        (&["other", "mine"], false, false, r#"apply, requeue, ["other","mine"]"#),
        (&["mine"], false, true, r#"apply, no such luck, ["mine"]"#),
        (&["other", "mine"], true, false, r#"cleanup, requeue, ["other"]"#),
        (&["mine"], true, true, r#"cleanup, no such luck, ["mine"]"#),
        (&["other"], true, false, r#"await, ["other"]"#),
    ] {
        let state = with(finalizers, is_deleting);
        let error = fails.then(|| BoxError::from("no such luck"));
        assert_eq!(reconcile(state.clone(), state, error).await, expected);
    }
}

#[tokio::test]
async fn a_patch_of_another_state_or_another_object_fails() {
    let another = |mut object: Value| {
        object["metadata"]["uid"] = "another".into();
        object
    };
    for (cached, served, expected) in [
        // Another writer was first.
        (with(&[], false), with(&["other"], false), "cannot add the finalizer: "),
        (with(&["other"], false), with(&["mine", "other"], false), "cannot add the finalizer: "),
        (with(&["other", "mine"], true), with(&["mine"], true), "cleanup, cannot remove the finalizer: "),
        (with(&["mine"], true), with(&["other", "mine"], true), "cleanup, cannot remove the finalizer: "),
        // The object was created again, and its finalizer is in use.
        (with(&[], false), another(with(&[], false)), "cannot add the finalizer: "),
        (with(&["mine"], true), another(with(&["mine"], false)), "cleanup, cannot remove the finalizer: "),
    ] {
        let finalizers = served["metadata"]["finalizers"].to_string();
        let result = reconcile::<BoxError>(cached, served, None).await;
        assert!(result.starts_with(expected) && result.contains("422"), "{result}");
        assert!(result.ends_with(&finalizers), "{result}");
    }
}

/// The error of a program that converts no other errors.
#[derive(Debug)]
struct OwnError(Error);

impl From<Error> for OwnError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[tokio::test]
async fn the_reconciler_chooses_the_type_of_error() {
    let (cached_state, served) = (with(&["other"], false), Arc::new(Mutex::new(with(&[], false))));
    let api = api(&served);
    let object = cached(cached_state);
    let of_kube = finalizer(&api, "mine", object.clone(), async |_| Err(kube::Error::TlsRequired)).await;
    assert!(matches!(of_kube, Err(kube::Error::Api(status)) if status.code == 422));
    let own = finalizer(&api, "mine", object.clone(), async |_| Ok::<_, OwnError>(Action::await_change())).await;
    assert!(matches!(own, Err(OwnError(Error::AddFinalizer(kube::Error::Api(status)))) if status.code == 422));
}
