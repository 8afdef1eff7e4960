//! A mirror answers as the API server does: the same bytes, to kubectl, client-go, kube-rs and this library.
//! `PODS=5000` and `CHANGES=20000` set the size.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use listwatch::client::{Client, Config, Resource, Selection, Transport};
use listwatch::{FieldPath, ListDecoder, path};
use listwatch_cache::{Cache, ChangeLogLimits, PreparedReflector, Reflector, StorageFormat, Store, Strategy};
use listwatch_e2e::{Changes, Result, Server, View, agree, bin, listed, of_kube, pod, seen, size};
use listwatch_mirror::{Mirror, Mirrored};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet, block_in_place};
use tokio::time::timeout;

const PORT: u16 = 16953;
const SECOND_PORT: u16 = 16963;
const THIRD_PORT: u16 = 16983;
const WRITERS: u64 = 4;

fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget")
}

/// A mirror in this process.
pub struct Running {
    pub url: String,
    caches: Vec<Cache<[u8]>>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
    /// Dropping it ends the reflectors.
    _reflectors: JoinSet<()>,
}

impl Running {
    /// Starts a mirror of collections, with an index of Pods by node. It uses TLS if the scheme is `https`.
    pub async fn start(
        mut mirror: Mirror,
        collections: Vec<(Resource, PreparedReflector<[u8]>)>,
        listener: TcpListener,
        scheme: &str,
    ) -> Result<Self> {
        let (mut caches, mut reflectors) = (Vec::new(), JoinSet::new());
        for (resource, reflector) in collections {
            let cache = reflector.cache();
            reflectors.spawn(async { drop(reflector.run().await) });
            timeout(Duration::from_secs(120), cache.synced()).await??;
            let is_pods = resource == Resource::PODS;
            let mirrored = Mirrored::new(cache.clone(), resource, None);
            let node: FieldPath = path::pod::NODE_NAME.clone();
            mirror = mirror.resource(if is_pods { mirrored.index("spec.nodeName", node) } else { mirrored });
            caches.push(cache);
        }
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(mirror.serve(listener, async { drop(stopped.await) }));
        Ok(Self { url, caches, stop: Some(stop), serving, _reflectors: reflectors })
    }

    /// Ends the watches of readers, and serves no more. The caches stay up to date until the mirror is dropped, as in
    /// the command.
    pub async fn stop(&mut self) -> Result<()> {
        drop(self.stop.take());
        (&mut self.serving).await??;
        Ok(())
    }

    /// Runs kubectl without a kubeconfig.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output =
            Command::new("kubectl").args(["--server", &self.url]).args(args).env("KUBECONFIG", "/dev/null").output()?;
        let text = String::from_utf8(output.stdout)?;
        if output.status.success() { Ok(text) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
    }
}

/// Returns a collection for a mirror.
pub fn collection(client: &Client, resource: Resource, format: StorageFormat) -> (Resource, PreparedReflector<[u8]>) {
    let is_widget = resource.group() == "example.com";
    let selection = if is_widget { Selection::default().json() } else { Selection::default() };
    let reflector = Reflector::<[u8]>::new(client, &resource).selection(selection);
    let reflector = reflector.store(Store::new(format)).change_log(ChangeLogLimits::default());
    (resource, reflector.prepare())
}

/// Starts a mirror on loopback, with the rights of the administrator.
async fn on_loopback(server: &Server, stale_reads: bool, format: StorageFormat) -> Result<Running> {
    let transport: Arc<dyn Transport> = Arc::new(server.http("admin")?.build()?);
    let client = Client::new(Arc::clone(&transport));
    let resources = [Resource::PODS, Resource::CONFIG_MAPS, Resource::NODES, Resource::NAMESPACES, widgets()];
    let collections = resources.map(|resource| collection(&client, resource, format)).into();
    let mirror = Mirror::new(transport).stale_reads(stale_reads);
    Running::start(mirror, collections, TcpListener::bind("127.0.0.1:0")?, "http").await
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON: &str = "application/json";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

pub type Got = (u16, String, bool, Vec<u8>);

/// Requests both URLs. A Table has ages, which change each second, so the second answer must be the same before and
/// after the first.
pub async fn get_both(http: &reqwest::Client, [ours, theirs]: [String; 2], accept: &str) -> Result<[Got; 2]> {
    let mut before = get(http, &theirs, accept).await?;
    loop {
        let got = get(http, &ours, accept).await?;
        if !accept.contains("as=Table") {
            return Ok([got, before]);
        }
        let after = get(http, &theirs, accept).await?;
        if without_version(&after.3) == without_version(&before.3) {
            return Ok([got, after]);
        }
        before = after;
    }
}

/// Returns the status, the content type, whether the mirror answered from its cache, and the body.
async fn get(http: &reqwest::Client, url: &str, accept: &str) -> Result<Got> {
    let response = http.get(url).header(ACCEPT, accept).bearer_auth("admin").send().await?;
    let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.to_str().map(str::to_owned));
    let is_cached = response.headers().contains_key("listwatch-lag-seconds");
    let status = response.status().as_u16();
    Ok((status, content_type.transpose()?.unwrap_or_default(), is_cached, response.bytes().await?.to_vec()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_answers_with_the_bytes_of_the_server() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    server.load(300)?;
    let metadata = |number: u32| json!({"name": format!("w-{number}"), "namespace": "default", "labels": {"n": "x"}});
    let widgets: Vec<_> = (0..5)
        .map(|number| {
            let spec = json!({"n": number, "text": "<é>"});
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata(number), "spec": spec})
        })
        .collect();
    server.apply_widgets(&json!({"apiVersion": "v1", "kind": "List", "items": widgets}).to_string())?;
    let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
    let one = server.kubectl(&[
        "get",
        "pods",
        "-A",
        "--no-headers",
        "-o",
        "custom-columns=N:.metadata.namespace,M:.metadata.name,D:.spec.nodeName",
    ])?;
    let [namespace, name, node] = one.lines().nth(7).unwrap_or_default().split_whitespace().collect::<Vec<_>>()[..]
    else {
        return Err(one.into());
    };
    let app = server.kubectl(&["get", "pod", "-n", namespace, name, "-o", "jsonpath={.metadata.labels.app}"])?;

    // The loaded Pods took the server past version 1000, so that from here on all versions have as many digits.
    for object in [&["-n", namespace, "pod", name][..], &["-n", "default", "widget", "w-1"], &["namespace", "--all"]] {
        let at = format!("at={}", fastrand::u64(..));
        server.kubectl(&[&["annotate", "--overwrite"], object, &[&*at]].concat())?;
    }
    server.kubectl(&["create", "configmap", "-n", "default", "last"])?;

    for format in [StorageFormat::Encoded, StorageFormat::Compressed] {
        let mut mirror = on_loopback(&server, true, format).await?;
        // From here on the server's version differs from the mirror's.
        server.kubectl(&["create", "serviceaccount", "-n", "default", &format!("{format:?}").to_lowercase()])?;
        let partial = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let partial_one = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let mut cached = 0;
        for (path, accept, is_cached) in [
            ("api/v1/pods".to_owned(), PROTOBUF.to_owned(), true),
            ("api/v1/pods".to_owned(), JSON.to_owned(), true),
            ("api/v1/pods".to_owned(), format!("{PROTOBUF};{partial}"), true),
            ("api/v1/pods".to_owned(), format!("{JSON};{partial}"), true),
            ("api/v1/pods?limit=7".to_owned(), PROTOBUF.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods?limit=2"), JSON.to_owned(), true),
            ("api/v1/pods?limit=7&resourceVersion=0".to_owned(), PROTOBUF.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods"), PROTOBUF.to_owned(), true),
            (format!("api/v1/pods?labelSelector=app%3D{app}"), PROTOBUF.to_owned(), true),
            (format!("api/v1/pods?labelSelector=app%3D{app}"), format!("{PROTOBUF};{partial}"), true),
            (format!("api/v1/pods?labelSelector=app+in+({app}),app&limit=3"), JSON.to_owned(), true),
            (format!("api/v1/pods?fieldSelector=spec.nodeName%3D{node}"), PROTOBUF.to_owned(), true),
            (format!("api/v1/pods?fieldSelector=metadata.name%3D{name}"), PROTOBUF.to_owned(), true),
            ("api/v1/pods?fieldSelector=spec.nodeName%3Dnone".to_owned(), JSON.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods/{name}"), PROTOBUF.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods/{name}"), JSON.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods/{name}"), format!("{PROTOBUF};{partial_one}"), true),
            (format!("api/v1/pods?fieldSelector=metadata.namespace%3D{namespace}&limit=1"), JSON.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3D{name}"), JSON.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}/pods/{name}//"), JSON.to_owned(), true),
            ("api/v1/pods/?limit=7".to_owned(), JSON.to_owned(), true),
            ("api/v1/configmaps".to_owned(), PROTOBUF.to_owned(), true),
            ("api/v1/configmaps".to_owned(), JSON.to_owned(), true),
            ("api/v1/namespaces".to_owned(), JSON.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}"), JSON.to_owned(), true),
            ("api/v1/nodes".to_owned(), JSON.to_owned(), true),
            ("api/v1/configmaps".to_owned(), TABLE.to_owned(), true),
            ("api/v1/configmaps?limit=2".to_owned(), TABLE.to_owned(), true),
            ("api/v1/configmaps?includeObject=Object".to_owned(), TABLE.to_owned(), true),
            ("api/v1/configmaps?includeObject=None".to_owned(), TABLE.to_owned(), true),
            ("api/v1/configmaps?labelSelector=no%3Done".to_owned(), TABLE.to_owned(), true),
            ("api/v1/configmaps?includeObject=x".to_owned(), TABLE.to_owned(), false),
            ("api/v1/namespaces".to_owned(), TABLE.to_owned(), true),
            (format!("api/v1/namespaces/{namespace}"), TABLE.to_owned(), true),
            ("apis/example.com/v1/widgets".to_owned(), JSON.to_owned(), true),
            ("apis/example.com/v1/widgets".to_owned(), format!("{PROTOBUF},{JSON}"), true),
            ("apis/example.com/v1/widgets".to_owned(), format!("{JSON};{partial}"), true),
            ("apis/example.com/v1/namespaces/default/widgets/w-3".to_owned(), JSON.to_owned(), true),
            ("apis/example.com/v1/widgets?limit=2".to_owned(), JSON.to_owned(), true),
            // The API server answers.
            ("apis/example.com/v1/widgets".to_owned(), format!("{PROTOBUF};{partial}"), false),
            ("api/v1/pods?fieldSelector=spec.unknown%3Dx".to_owned(), JSON.to_owned(), false),
            ("api/v1/services".to_owned(), PROTOBUF.to_owned(), false),
            ("api/v1/pods?limit=3".to_owned(), TABLE.to_owned(), true),
            ("api/v1".to_owned(), JSON.to_owned(), false),
            ("apis".to_owned(), JSON.to_owned(), false),
            ("version".to_owned(), JSON.to_owned(), false),
            ("openapi/v2".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?resourceVersion=01".to_owned(), JSON.to_owned(), false),
            // Errors: of the mirror, but for the versions and the timeout.
            ("api/v1/pods?labelSelector=app%3D%22web%22".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?labelSelector=-a&resourceVersionMatch=Exact".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?watch=1&labelSelector=a%3Db/c".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?fieldSelector=metadata.name".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?limit=x&labelSelector=-a".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?watch=1&continue=x".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?resourceVersion=x".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?watch=1&resourceVersion=x".to_owned(), JSON.to_owned(), false),
            ("api/v1/pods?timeout=x".to_owned(), JSON.to_owned(), false),
        ] {
            let case = format!("{format:?} {path} {accept}");
            let urls = [&mirror.url, &server.url].map(|url| format!("{url}/{path}"));
            let [ours, theirs] = get_both(&http, urls, &accept).await?;
            assert_eq!(ours.2, is_cached, "{case}: {}", String::from_utf8_lossy(&ours.3[..ours.3.len().min(300)]));
            assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1), "{case}");
            assert_same(&case, &ours.3, &theirs.3);
            cached += u32::from(is_cached);
        }
        println!("{format:?}: {cached} answers from the cache have the bytes of the server");
        pages(&http, &server, &mirror).await?;
        kubectl(&server, &mirror)?;
        mirror.stop().await?;
    }
    Ok(())
}

/// Compares two bodies. The server's version advances with every write of any resource, and the mirror's with its own
/// resources.
pub fn assert_same(case: &str, ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (without_version(ours), without_version(theirs));
    let at = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs).unwrap_or(0);
    let near = |body: &[u8]| {
        let end = body.len().min(at + 200);
        String::from_utf8_lossy(&body[at.saturating_sub(100).min(end)..end]).into_owned()
    };
    let lengths = (ours.len(), theirs.len());
    assert!(ours == theirs, "{case}: {lengths:?} bytes, they differ at {at}\n{}\n{}", near(&ours), near(&theirs));
}

/// Replaces the version of a list, and the version in its continue token.
fn without_version(body: &[u8]) -> Vec<u8> {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
    let Some((version, token)) = list_meta(body) else { return body.to_vec() };
    let mut body = body.to_vec();
    // A custom resource's list has its metadata at the end.
    let is_last = body.starts_with(b"{\"apiVersion\"");
    let mut replace = |text: &str, with: &str| {
        let at = |window: &[u8]| window == text.as_bytes();
        let mut windows = body.windows(text.len());
        let found = if is_last { windows.rposition(at) } else { windows.position(at) };
        if let Some(found) = found {
            body.splice(found..found + text.len(), with.bytes());
        }
    };
    let zeros = "0".repeat(version.len());
    replace(&version, &zeros);
    if !token.is_empty() {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap_or_default();
        // A page from etcd, which the server sends when its cache is behind, has no slash before its key.
        let without = String::from_utf8_lossy(&decoded).replace(&version, &zeros).replace("\"/", "\"");
        replace(&token, &BASE64_URL_SAFE_NO_PAD.encode(without));
    }
    body
}

/// Returns the version and the continue token of a list or a Table.
fn list_meta(body: &[u8]) -> Option<(String, String)> {
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) {
        let meta = &json["metadata"];
        let version = meta["resourceVersion"].as_str().filter(|_| meta["name"].is_null())?;
        return Some((version.to_owned(), meta["continue"].as_str().unwrap_or_default().to_owned()));
    }
    let mut decoder = ListDecoder::new();
    let mut rest = body;
    while decoder.decode(&mut rest).ok()?.is_some() {}
    let meta = decoder.finish().ok()?.list_meta;
    Some((meta.resource_version, meta.continue_token))
}

/// Reads a list in pages from the mirror, while objects change: it stays at the version of its first page.
async fn pages(http: &reqwest::Client, server: &Server, mirror: &Running) -> Result<()> {
    let mut url = format!("{}/api/v1/pods?limit=50", mirror.url);
    let (mut names, mut versions) = (Vec::new(), Vec::new());
    let all = server.names(&["pods", "-A"])?;
    loop {
        let (status, _, _, body) = get(http, &url, PROTOBUF).await?;
        assert_eq!(status, 200);
        let mut decoder = ListDecoder::new();
        let mut rest = &body[..];
        while let Some(event) = decoder.decode(&mut rest)? {
            if let listwatch::Event::Item(item) = event {
                let meta = item.meta()?;
                names.push(format!("{}/{}", meta.namespace(), meta.name()));
            }
        }
        let meta = decoder.finish()?.list_meta;
        versions.push(meta.resource_version);
        if meta.continue_token.is_empty() {
            break;
        }
        url = format!("{}/api/v1/pods?limit=50&continue={}", mirror.url, meta.continue_token);
        let any = names.first().and_then(|name| name.split_once('/')).ok_or("no Pod")?;
        let at = format!("at={}", fastrand::u64(..));
        server.kubectl(&["annotate", "pod", "-n", any.0, any.1, "--overwrite", &at])?;
    }
    assert!(versions.len() > 3 && versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(sorted.into_iter().collect::<std::collections::BTreeSet<_>>(), all);
    Ok(())
}

/// kubectl reads from the mirror what it reads from the server.
fn kubectl(server: &Server, mirror: &Running) -> Result<()> {
    for args in [
        &["get", "pods", "-A", "-o", "name"][..],
        &["get", "pods", "-A", "--chunk-size=20", "-o", "jsonpath={.items[*].metadata.uid}"],
        &["get", "pods", "-A", "--sort-by=.metadata.name", "-o", "custom-columns=N:.metadata.name,P:.status.phase"],
        &["get", "namespaces", "default", "-o", "jsonpath={.metadata.uid}"],
        &["get", "widgets", "-o", "yaml"],
        &["get", "nodes", "-o", "wide"],
        &["api-resources", "-o", "name"],
    ] {
        assert_eq!(mirror.kubectl(args)?, server.kubectl(args)?, "{args:?}");
    }
    let denied = mirror.kubectl(&["delete", "namespace", "default"]).err().map(|error| error.to_string());
    assert!(denied.as_ref().is_some_and(|error| error.contains("MethodNotAllowed")), "{denied:?}");
    let secrets = mirror.kubectl(&["get", "secrets", "-A"]).err().map(|error| error.to_string());
    assert!(secrets.as_ref().is_some_and(|error| error.contains("Forbidden")), "{secrets:?}");
    Ok(())
}

/// An informer of client-go in its own process.
pub struct Informer {
    name: String,
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Informer {
    pub fn start(host: &str, watch_list: bool, metadata: bool) -> Result<Self> {
        let mut child = Command::new(bin("informer"))
            .args(["-host", host])
            .args(metadata.then_some("-metadata"))
            .env("KUBE_FEATURE_WatchListClient", watch_list.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let name = format!("informer, watch list: {watch_list}, metadata: {metadata}");
        let mut informer = Self { name, child, stdin, lines };
        assert_eq!(informer.line()?.trim(), "synced");
        Ok(informer)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    pub fn view(&mut self) -> Result<View> {
        self.stdin.write_all(b"\n")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Informer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_mirror_stay_equal_through_restarts() -> Result<()> {
    let (pods, changes) = (size("PODS", 300), size("CHANGES", 600));
    let mut server = Server::start(SECOND_PORT, &[])?;
    server.load(pods)?;
    let metadata = json!({"name": "w", "namespace": "default"});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"n": 1}});
    server.apply_widgets(&widget.to_string())?;
    let direct = server.client()?;
    let writer = server.kube_client().await?;
    let mut mirror = on_loopback(&server, false, StorageFormat::Compressed).await?;

    let mut informers = Vec::new();
    for (watch_list, metadata) in [(true, false), (false, false), (true, true), (false, true)] {
        informers.push(Informer::start(&mirror.url, watch_list, metadata)?);
    }
    let over_mirror = Client::new(Config::new(&mirror.url).build()?);
    let mut caches = Vec::new();
    for strategy in [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst] {
        let reflector = Reflector::<[u8]>::new(&over_mirror, &Resource::PODS).strategy(strategy).prepare();
        let selected = Reflector::<[u8]>::new(&over_mirror, &Resource::PODS)
            .strategy(strategy)
            .selection(Selection::default().labels("example.com/odd=yes".parse()?))
            .prepare();
        for (name, reflector) in [("all", reflector), ("selected", selected)] {
            caches.push((format!("{strategy}, {name}"), reflector.cache()));
            tokio::spawn(reflector.run());
        }
    }
    let mirrored = kube::Client::try_from(kube::Config::new(mirror.url.parse()?))?;
    let kube_writer = Writer::<Pod>::default();
    let kube_store = kube_writer.as_reader();
    let events =
        reflector(kube_writer, watcher(Api::<Pod>::all(mirrored), watcher::Config::default()).default_backoff());
    tokio::spawn(async move { events.for_each(|_| async {}).await });

    let names: Vec<String> = listed(&direct, "").await?.into_keys().collect();
    let done = Changes::default();
    for round in 1..=2 {
        let writing =
            join_all((0..WRITERS).map(|number| write(&writer, &names, number + 10 * round, &done, round * changes)));
        let restarting = async {
            if round == 2 {
                done.reach(changes * 3 / 2).await;
                block_in_place(|| server.restart(&[]))?;
            }
            Result::Ok(())
        };
        tokio::join!(writing, restarting).1?;
        let expected = listed(&direct, "").await?;
        let odd = listed(&direct, "example.com/odd=yes").await?;
        assert!(!odd.is_empty() && odd.len() < expected.len());
        agree("the mirror", &expected, || Ok(seen(&mirror.caches[0]))).await?;
        for (name, cache) in &caches {
            let expected = if name.ends_with("selected") { &odd } else { &expected };
            agree(name, expected, || Ok(seen(cache))).await?;
        }
        agree("kube-rs", &expected, || Ok(kube_store.state().iter().map(|pod| of_kube(&**pod)).collect())).await?;
        for informer in &mut informers {
            let name = informer.name.clone();
            agree(&name, &expected, || block_in_place(|| informer.view())).await?;
        }
        println!("round {round}: {} Pods, {} selected", expected.len(), odd.len());
    }
    mirror.stop().await
}

/// What happens around a restart of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    Nothing,
    /// Pods change while the mirror does not run.
    Changes,
    /// The file was saved long before, so the readers are ahead of the mirror.
    OldFile,
    /// Pods change after the watches have ended, and before the file is saved: it is ahead of the readers.
    ChangesBeforeSave,
    /// Pods change while the mirror does not run, and it has no file.
    NoFile,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_resume_from_the_file_of_a_mirror() -> Result<()> {
    let server = Server::start(THIRD_PORT, &[])?;
    server.load(300)?;
    let (direct, writer) = (server.client()?, server.kube_client().await?);
    let folder = tempfile::tempdir()?;
    let [file, old] = ["new", "old"].map(|name| folder.path().join(name));
    let start = async |listener: TcpListener, file: Option<&Path>| {
        let transport: Arc<dyn Transport> = Arc::new(server.http("admin")?.build()?);
        let client = Client::new(Arc::clone(&transport));
        let (pods, mut reflector) = collection(&client, Resource::PODS, StorageFormat::Compressed);
        if let Some(file) = file {
            reflector.load(file).await?;
        }
        Running::start(Mirror::new(transport), vec![(pods, reflector)], listener, "http").await
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut mirror = start(listener, None).await?;

    let over_mirror = Client::new(Config::new(&mirror.url).build()?);
    let caches = [Strategy::WatchList, Strategy::ListThenWatch, Strategy::WatchFirst].map(|strategy| {
        let reflector = Reflector::<[u8]>::new(&over_mirror, &Resource::PODS).strategy(strategy).prepare();
        let cache = reflector.cache();
        tokio::spawn(reflector.run());
        cache
    });
    let names: Vec<String> = listed(&direct, "").await?.into_keys().collect();
    let done = Changes::default();
    let change = async || write(&writer, &names, done.count(), &done, done.count() + 30).await;
    let agreed = async |informers: &mut [Informer]| {
        let expected = listed(&direct, "").await?;
        for cache in &caches {
            agree("a reflector", &expected, || Ok(seen(cache))).await?;
        }
        for informer in informers {
            agree(&informer.name.clone(), &expected, || block_in_place(|| informer.view())).await?;
        }
        Result::Ok(())
    };
    agreed(&mut []).await?;
    mirror.caches[0].save(&old)?;

    for (around, relists) in [
        (Around::Nothing, 0),
        (Around::Changes, 0),
        (Around::OldFile, 0),
        (Around::ChangesBeforeSave, 1),
        (Around::NoFile, 1),
    ] {
        // client-go waits longer before each reconnect, for up to a minute, so each restart has new informers.
        let mut informers = [Informer::start(&mirror.url, true, false)?, Informer::start(&mirror.url, false, true)?];
        change().await;
        agreed(&mut informers).await?;
        let before = caches.each_ref().map(|cache| cache.status().syncs);
        mirror.stop().await?;
        if around == Around::ChangesBeforeSave {
            change().await;
            let expected = listed(&direct, "").await?;
            agree("the mirror", &expected, || Ok(seen(&mirror.caches[0]))).await?;
        }
        mirror.caches[0].save(&file)?;
        drop(mirror);
        if matches!(around, Around::Changes | Around::NoFile) {
            change().await;
        }
        let file = match around {
            Around::OldFile => Some(&*old),
            Around::NoFile => None,
            _ => Some(&*file),
        };
        mirror = start(TcpListener::bind(address)?, file).await?;
        assert_eq!(mirror.caches[0].status().syncs, u64::from(file.is_none()), "{around:?}");
        change().await;
        agreed(&mut informers).await?;
        let metrics = reqwest::get(format!("{}/metrics", mirror.url)).await?.text().await?;
        let relisted = metrics.lines().any(|line| line.contains("expired_total{") || line.contains("kind=\"list\""));
        assert_eq!(relisted, relists > 0, "{around:?}: {metrics}");
        let after = caches.each_ref().map(|cache| cache.status().syncs);
        assert_eq!(after, before.map(|syncs| syncs + relists), "{around:?}");
        println!("{around:?}: {before:?} syncs before, {after:?} after");
    }
    mirror.stop().await
}

/// Changes, labels and deletes Pods until there were enough writes.
async fn write(client: &kube::Client, names: &[String], seed: u64, done: &Changes, changes: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let write = async || {
        let (pods, name) = pod(client, &names[rng.usize(..names.len())]);
        if rng.u8(..) < 20 {
            return pods.delete(name, &DeleteParams::default().grace_period(0)).await.map(drop);
        }
        let odd = if rng.bool() { json!("yes") } else { json!(null) };
        let annotations = json!({"at": rng.u64(..).to_string()});
        let patch = json!({"metadata": {"labels": {"example.com/odd": odd}, "annotations": annotations}});
        pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    done.write_until(changes, write).await;
}
