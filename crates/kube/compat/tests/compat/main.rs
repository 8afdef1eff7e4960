//! `ServiceTransport` over the clients of older versions of kube: their configuration, credentials, bodies and errors.
//! `Controller` with reconcilers that write by these clients.

use std::error::Error as StdError;
use std::fs;
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use listwatch::FromRef;
use listwatch::client::{
    Client, Compression, Error, ErrorKind, List, ListParams, Resource, Retry, ServiceTransport, TransportErrorKind,
    WatchEvent, WatchParams,
};
use listwatch_cache::ObjectKey;
use listwatch_controller::Action;
use listwatch_testserver::{Answer, Body, RecordedRequest, Server, TOKEN, recorded_pods};
use serde_json::{Value, json};

type BoxError = Box<dyn StdError + Send + Sync>;

/// The item of a controller's stream.
type Reconciled = Result<(ObjectKey, Action), listwatch_controller::Error<BoxError>>;

/// A version of kube.
struct Version {
    name: &'static str,
    /// Opens a transport with the kubeconfig in a file, which kube reads.
    open: fn(String) -> BoxFuture<'static, Result<ServiceTransport, BoxError>>,
    /// Runs the guide's reconciler, and returns the results of the first two reconciles.
    reconcile: fn(String) -> BoxFuture<'static, Result<Vec<Reconciled>, BoxError>>,
    /// Runs kube's own controller on a cache, and returns the names of the first two objects that it reconciles.
    keep_controller: fn(String) -> BoxFuture<'static, Result<Vec<String>, BoxError>>,
    /// True if kube has its feature `gzip`.
    decompresses: bool,
}

macro_rules! version {
    ($module:ident, $kube:ident, $k8s_openapi:ident, $set:expr) => {
        mod $module {
            use futures::StreamExt as _;
            use listwatch::client::{Client, Resource};
            use listwatch_cache::{Reflector, Strategy};
            use {::$k8s_openapi as k8s_openapi, ::$kube as kube};

            // The lines of the guide, which are the same for each version.
            include!("operator.rs");
            include!("transport.rs");

            pub async fn open(path: String) -> Result<ServiceTransport, Error> {
                Ok(transport(client(path).await?))
            }

            pub async fn reconcile_two(path: String) -> Result<Vec<super::Reconciled>, Error> {
                let client = client(path).await?;
                let config_maps = Reflector::new(&Client::new(transport(client.clone())), &Resource::CONFIG_MAPS)
                    .strategy(Strategy::ListThenWatch)
                    .spawn();
                Ok(Controller::new(config_maps)
                    .run(reconcile, |_, _, _| Action::backoff(), Arc::new(client))
                    .take(2)
                    .collect()
                    .await)
            }

            /// kube's own controller on a cache, by the lines of the guide.
            mod kept {
                use kube::runtime::{WatchStreamExt as _, reflector};
                use {::$k8s_openapi as k8s_openapi, ::$kube as kube};

                include!("store.rs");

                pub async fn reconcile_two<T>(cache: Cache<T>) -> Result<Vec<String>, super::Error>
                where
                    T: StoreType<Decoded = k8s_openapi::api::core::v1::ConfigMap>,
                {
                    let (store, writer) = reflector::store();
                    let applied = watcher_events(cache).await?.reflect(writer).applied_objects();
                    let controller = kube::runtime::Controller::for_stream(applied, store);
                    let reconcile =
                        |_, _| async { Ok::<_, std::convert::Infallible>(super::KubeAction::await_change()) };
                    let items = controller.run(reconcile, |_, _, _| super::KubeAction::await_change(), Arc::new(()));
                    let names = items.take(2).map(|done| done.map(|(config_map, _)| config_map.name));
                    Ok(names.collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?)
                }
            }

            pub async fn keep_controller(path: String) -> Result<Vec<String>, Error> {
                let client = Client::new(transport(client(path).await?));
                let config_maps = Reflector::<listwatch::Json<ConfigMap>>::new(&client, &Resource::CONFIG_MAPS);
                kept::reconcile_two(config_maps.strategy(Strategy::ListThenWatch).spawn()).await
            }

            async fn client(path: String) -> Result<kube::Client, Error> {
                let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
                let set: fn(&mut kube::Config) = $set;
                let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
                set(&mut config);
                Ok(kube::Client::try_from(config)?)
            }
        }
    };
}

// The settings of the guide.
version!(with_kube3, kube3, k8s_openapi_of_kube3, |config| config.read_timeout = None);
version!(with_kube4, kube4, k8s_openapi_of_kube4, |config| config.default_retry = false);

const VERSIONS: [Version; 2] = [
    Version {
        name: "3.1",
        open: |path| Box::pin(with_kube3::open(path)),
        reconcile: |path| Box::pin(with_kube3::reconcile_two(path)),
        keep_controller: |path| Box::pin(with_kube3::keep_controller(path)),
        decompresses: true,
    },
    Version {
        name: "4",
        open: |path| Box::pin(with_kube4::open(path)),
        reconcile: |path| Box::pin(with_kube4::reconcile_two(path)),
        keep_controller: |path| Box::pin(with_kube4::keep_controller(path)),
        decompresses: false,
    },
];

impl Version {
    /// Writes a kubeconfig.
    fn kubeconfig(&self, url: &str, user: Value) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "test", "user": user}],
        });
        fs::write(file.path(), kubeconfig.to_string()).unwrap();
        file
    }

    /// Returns a client of the server at this URL, with the user's fields in its kubeconfig. kube reads the file.
    async fn client_of_user(&self, url: &str, user: Value) -> Client {
        let file = self.kubeconfig(url, user);
        let transport = (self.open)(file.path().to_str().unwrap().to_owned()).await.expect(self.name);
        Client::new(transport).retry(Retry::never())
    }

    async fn client(&self, url: &str) -> Client {
        self.client_of_user(url, json!({"token": TOKEN})).await
    }
}

async fn serve(answer: Answer) -> Server {
    Server::start(answer.always()).await.unwrap()
}

/// Returns the URL of a port that refuses connections.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn pods(client: &Client) -> List<FromRef<[u8]>> {
    client.list::<[u8]>(&Resource::PODS, &ListParams::default())
}

async fn error_of(client: &Client) -> Error {
    pods(client).into_vec().await.unwrap_err()
}

#[test]
fn the_guide_has_the_lines_that_are_tested_here() {
    for lines in [include_str!("operator.rs"), include_str!("transport.rs"), include_str!("store.rs")] {
        assert!(include_str!("../../../guide.md").contains(lines));
    }
}

#[tokio::test]
async fn lists_and_watches() {
    let added = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "resourceVersion": "7"},
    }});
    let server = Server::start(move |request: &RecordedRequest, _| match request.path.contains("watch=") {
        true => Answer::ok(Body::replay(format!("{added}\n")).stall_at(u64::MAX)).content_type("application/json"),
        false => Answer::ok(Body::replay(recorded_pods())),
    });
    let server = server.await.unwrap();
    for version in VERSIONS {
        let client = version.client(&format!("{}/base/", server.url())).await;
        assert_eq!(pods(&client).into_vec().await.expect(version.name).0.len(), 120);
        let mut watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::from_version("5"));
        let event = watch.try_next().await.expect(version.name);
        assert!(matches!(event, Some(WatchEvent::Added(_))), "{}", version.name);
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2 * VERSIONS.len());
    // kube adds the base path and the credentials, of a kubeconfig that kube has read.
    assert!(requests.iter().all(|request| request.path.starts_with("/base/api/v1/pods")));
    assert!(requests.iter().all(|request| request.headers["authorization"] == format!("Bearer {TOKEN}")));
    assert!(requests.iter().all(|request| request.headers["accept-encoding"] == "identity"));
}

#[tokio::test]
async fn a_controller_writes_with_the_older_kube() {
    let config_map = |name: &str, finalizers: &[&str]| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "namespace": "shop", "name": name, "uid": name, "resourceVersion": "4", "finalizers": finalizers,
        }})
    };
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "5"}, "items": [
        config_map("new", &[]), config_map("old", &["example.com/cleanup"]),
    ]});
    let patched = config_map("new", &["example.com/cleanup"]);
    let bookmark = json!({"type": "BOOKMARK", "object": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "6"},
    }});
    let server = Server::start(move |request: &RecordedRequest, _| {
        let body = match (request.method.as_str(), request.path.contains("watch=")) {
            ("PATCH", _) => Body::replay(patched.to_string()),
            (_, true) => Body::replay(format!("{bookmark}\n")).stall_at(u64::MAX),
            (_, false) => Body::replay(list.to_string()),
        };
        Answer::ok(body).content_type("application/json")
    });
    let server = server.await.unwrap();
    for version in VERSIONS {
        let kubeconfig = version.kubeconfig(&server.url(), json!({"token": TOKEN}));
        let reconciled = (version.reconcile)(kubeconfig.path().to_str().unwrap().to_owned()).await.unwrap();
        let mut actions: Vec<_> = reconciled.into_iter().map(|item| item.expect(version.name)).collect();
        actions.sort_by(|(one, _), (other, _)| one.cmp(other));
        let [(new, added), (old, applied)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((&*new.name, &*old.name), ("new", "old"));
        // kube's finalizer was added, and the other object was applied.
        assert_eq!((*added, *applied), (Action::await_change(), Action::requeue(Duration::from_secs(300))));
        let kept = (version.keep_controller)(kubeconfig.path().to_str().unwrap().to_owned()).await.unwrap();
        assert_eq!(
            kept.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
            ["new", "old"]
        );
    }
    let requests = server.requests();
    let patches: Vec<_> = requests.iter().filter(|request| request.method == "PATCH").collect();
    assert_eq!(patches.len(), VERSIONS.len());
    assert!(patches.iter().all(|request| request.path.starts_with("/api/v1/namespaces/shop/configmaps/new?")));
}

#[tokio::test]
async fn posts_a_review_once() {
    use listwatch::client::{Request, Transport as _};

    for version in VERSIONS {
        let server = serve(Answer::ok(Body::replay("{}")).status(201)).await;
        let kubeconfig = version.kubeconfig(&server.url(), json!({"token": TOKEN}));
        let transport = (version.open)(kubeconfig.path().to_str().unwrap().to_owned()).await.unwrap();
        let request = Request::new("/apis/authentication.k8s.io/v1/tokenreviews".to_owned(), http::HeaderMap::new());
        assert_eq!(transport.post(request, "{}".into()).await.unwrap().status, 201);
        let requests = server.requests();
        assert_eq!((requests.len(), requests[0].method.as_str()), (1, "POST"), "{}", version.name);
        assert_eq!(requests[0].headers["content-length"], "2");
    }
}

#[tokio::test]
async fn bodies_stream_and_a_dropped_list_closes_its_connection() {
    for version in VERSIONS {
        let server = serve(Answer::ok(Body::replay(recorded_pods()).stall_at(200_000))).await;
        let mut items = pods(&version.client(&server.url()).await);
        assert!(items.try_next().await.expect(version.name).is_some());
        drop(items);
        server.no_connections().await;
        assert!(server.bytes_sent() < 300_000);

        let server = serve(Answer::ok(Body::replay(recorded_pods()).reset_at(200_000))).await;
        let error = error_of(&version.client(&server.url()).await).await;
        let ErrorKind::Incomplete { cause: Some(cause), .. } = error.kind() else { panic!("{error}") };
        assert_eq!(cause.kind(), TransportErrorKind::Broken, "{}: {error}", version.name);
        assert!(error.items() > 0);
    }
}

#[tokio::test]
async fn errors_keep_their_kind() {
    for version in VERSIONS {
        let expect = |error: Error, expected| match error.kind() {
            ErrorKind::Transport(found) => assert_eq!(found.kind(), expected, "{}: {error}", version.name),
            _ => panic!("{}: {error}", version.name),
        };
        expect(error_of(&version.client(&closed_port()).await).await, TransportErrorKind::Connect);
        // The kubeconfig has no certificate authority.
        let tls = Server::start_tls(Answer::ok(Body::replay(recorded_pods())).always()).await.unwrap();
        expect(error_of(&version.client(&tls.url()).await).await, TransportErrorKind::Tls);
        // The plugin's credentials have expired when the request begins, and the plugin has failed by then.
        let folder = tempfile::tempdir().unwrap();
        let exec = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never",
            "command": "sh",
            "args": ["-c", r#"mkdir "$RAN" && echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "status": {"token": "t0ken", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'"#],
            "env": [{"name": "RAN", "value": folder.path().join("ran")}],
        }});
        let server = serve(Answer::ok(Body::replay(recorded_pods()))).await;
        let client = version.client_of_user(&server.url(), exec).await;
        expect(error_of(&client).await, TransportErrorKind::Credentials);
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn statuses_and_redirects_are_of_the_server() {
    let elsewhere = serve(Answer::ok(Body::replay(recorded_pods()))).await;
    for version in VERSIONS {
        for code in [401, 403, 410, 429, 500] {
            let text = format!("not with Bearer {TOKEN}");
            let server = serve(Answer::ok(Body::replay(text)).status(code)).await;
            let error = error_of(&version.client(&server.url()).await).await;
            assert_eq!(error.code(), Some(code), "{}: {error}", version.name);
            assert!(error.to_string().contains("[redacted]") && !error.to_string().contains(TOKEN), "{error}");
            assert_eq!(server.requests().len(), 1);
        }
        let server = serve(Answer::ok(Body::replay("")).status(307).header("location", &elsewhere.url())).await;
        let error = error_of(&version.client(&server.url()).await).await;
        assert!(matches!(error.kind(), ErrorKind::Redirect { .. }), "{}: {error}", version.name);
    }
    assert!(elsewhere.requests().is_empty());
}

/// Of several members kube's feature `gzip` reads the first one.
#[tokio::test]
async fn a_body_is_decompressed_once() {
    let members = Body::replay(recorded_pods()).chunk_size(10_000).gzip_members();
    for version in VERSIONS {
        let server = serve(Answer::ok(Body::replay(recorded_pods()).gzip())).await;
        let client = version.client(&server.url()).await.compression(Compression::Gzip);
        assert_eq!(pods(&client).into_vec().await.expect(version.name).0.len(), 120);
        assert_eq!(server.requests()[0].headers["accept-encoding"], "gzip");

        let server = serve(Answer::ok(members.clone())).await;
        let client = version.client(&server.url()).await.compression(Compression::Gzip);
        match pods(&client).into_vec().await {
            Ok((items, _)) => assert!(items.len() == 120 && !version.decompresses, "{}", version.name),
            Err(error) => assert!(error.is_incomplete() && version.decompresses, "{}: {error}", version.name),
        }
    }
}
