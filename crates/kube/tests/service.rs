//! `ServiceTransport` over kube 5: the lines of the guide, and a tower service. `crates/kube/compat` has the older versions.

use futures::TryStreamExt as _;
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use listwatch::client::{Client, ListParams, Resource, Retry, WatchEvent, WatchParams};
use listwatch_testserver::{Answer, RecordedRequest, Server, TOKEN, recorded_pods};
use tower::util::ServiceExt as _;
use tower::{BoxError, ServiceBuilder};

include!("../compat/tests/compat/transport.rs");

/// Lists and watches with the base path and the credentials of the configuration.
async fn lists_and_watches(open: impl Fn(Config) -> ServiceTransport) {
    let added = serde_json::json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "resourceVersion": "7"},
    }});
    let server = Server::start(move |request: &RecordedRequest, _| {
        if request.path.contains("watch=") {
            let body = listwatch_testserver::Body::replay(format!("{added}\n")).stall_at(u64::MAX);
            Answer::ok(body).content_type("application/json")
        } else {
            Answer::ok(listwatch_testserver::Body::replay(recorded_pods()))
        }
    });
    let server = server.await.unwrap();
    let mut config = Config::new(format!("{}/base/", server.url()).parse().unwrap());
    config.default_retry = false;
    config.auth_info.token = Some(TOKEN.into());
    let client = Client::new(open(config)).retry(Retry::never());
    let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
    assert_eq!(list.into_vec().await.unwrap().0.len(), 120);
    let mut watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::from_version("5"));
    assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    drop((watch, client));
    server.no_connections().await;
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.path.starts_with("/base/api/v1/pods")));
    assert!(requests.iter().all(|request| request.headers["authorization"] == format!("Bearer {TOKEN}")));
    assert!(requests.iter().all(|request| request.headers["accept-encoding"] == "identity"));
}

#[tokio::test]
async fn lists_and_watches_through_a_client_of_kube() {
    lists_and_watches(|config| transport(kube::Client::try_from(config).unwrap())).await;
}

#[tokio::test]
async fn lists_and_watches_through_a_tower_service() {
    lists_and_watches(|config| {
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let executor = hyper_util::rt::TokioExecutor::new();
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().unwrap())
            .map_err(BoxError::from)
            .service(hyper_util::client::legacy::Client::builder(executor).build::<_, Body>(connector));
        ServiceTransport::new(move |request| service.clone().oneshot(request)).on_own_thread()
    })
    .await;
}
