//! Lists through both transports, compared with kubectl; with expired page tokens, request timeouts and a killed
//! server.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use listwatch::FromRef;
use listwatch::client::{
    Client, Compression, Config, ErrorKind, Kubeconfig, List, ListParams, ListSummary, Resource, ResourceVersion,
    Restart, Retry, Selection, TransportErrorKind,
};
use listwatch::{Encoding, ItemError, ItemRef, Json};
use listwatch::{FieldSelector, LabelSelector, Shard};
use listwatch_e2e::{Result, Server, over_kube};

const PODS: usize = 6000;
/// The page size of lists of one namespace: all its pages take a fraction of a second.
const PAGE: u32 = 80;
const PORT: u16 = 16643;

/// Returns clients of both transports.
async fn clients(server: &Server, token: &str) -> Result<[Client; 2]> {
    let config = server.kube(|user| user.token = Some(token.into())).await?;
    Ok([Client::new(server.http(token)?.build()?), Client::new(over_kube(config)?)])
}

fn defaults() -> ListParams {
    ListParams::default()
}

fn all_objects() -> Selection {
    Selection::all()
}

type Bytes = FromRef<[u8]>;
type Name = fn(ItemRef<'_>) -> std::result::Result<String, ItemError>;

fn name(item: ItemRef<'_>) -> std::result::Result<String, ItemError> {
    let meta = item.meta()?;
    Ok(format!("{}/{}", meta.namespace(), meta.name()))
}

fn named(client: &Client, params: &ListParams) -> List<Name> {
    client.list_with(&Resource::PODS, params, name as Name)
}

async fn names(list: List<Name>) -> Result<(BTreeSet<String>, ListSummary)> {
    let (names, summary) = list.into_vec().await?;
    assert_eq!(names.len() as u64, summary.items);
    let set: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(set.len() as u64, summary.items, "names are unique");
    Ok((set, summary))
}

#[tokio::test]
async fn lists_equal_kubectl_and_report_interruptions() -> Result<()> {
    let mut server = Server::start(PORT, &["--feature-gates=ShardedListAndWatch=true"])?;
    server.load(PODS as u64)?;
    let all = all_names(&server).await?;
    server.apply_widgets(WIDGET)?;
    for client in clients(&server, "admin").await? {
        parts(&server, &client, &all).await?;
        versions(&client, &all).await?;
        custom_resources(&server, &client).await?;
    }
    selected_here(&clients(&server, "admin").await?[0]).await?;
    credentials(&server, &all).await?;
    trust(&server).await?;

    server.restart(&["--etcd-compaction-interval=3s"])?;
    expired_pages(&server, &all).await?;

    server.restart(&["--request-timeout=3s"])?;
    request_timeout(&server, &all).await?;

    killed(&mut server).await?;
    server.restart(&[])?;
    for client in clients(&server, "admin").await? {
        assert!(names(named(&client, &defaults())).await?.0 == all, "after the restart");
    }
    Ok(())
}

fn pods(client: &Client, options: &ListParams) -> List<Bytes> {
    client.list::<[u8]>(&Resource::PODS, options)
}

/// Returns the names of all Pods. The loader writes directly into etcd, so the server's watch cache needs a moment.
async fn all_names(server: &Server) -> Result<BTreeSet<String>> {
    let [client, _] = clients(server, "admin").await?;
    for _ in 0..100 {
        let (all, summary) = names(named(&client, &defaults())).await?;
        if all.len() == PODS {
            assert_eq!(all, server.names(&["pods", "-A"])?);
            assert_eq!((summary.pages, summary.attempts, summary.consistent), (1, 1, true));
            assert!(summary.audit_id.is_some());
            return Ok(all);
        }
    }
    Err("the list does not have all Pods".into())
}

/// Lists in pages, by namespace, by selectors, metadata only and by shards, and gets a single Pod.
async fn parts(server: &Server, client: &Client, all: &BTreeSet<String>) -> Result<()> {
    let (paged, summary) = names(named(client, &defaults().page_size(900))).await?;
    assert_eq!((&paged == all, summary.pages), (true, 7));

    let (some, summary) = names(named(client, &defaults()).namespaces(["team-01", "team-02"])).await?;
    let mut expected = server.names(&["pods", "-n", "team-01"])?;
    expected.extend(server.names(&["pods", "-n", "team-02"])?);
    assert_eq!((some, summary.namespaces.len()), (expected, 2));

    let (labels, fields) = ("app.kubernetes.io/name in (ledger, feed)", "status.phase=Running");
    let selection = all_objects().labels(labels.parse::<LabelSelector>()?).fields(fields.parse::<FieldSelector>()?);
    let (selected, _) = names(named(client, &ListParams::new(selection))).await?;
    assert_eq!(selected, server.names(&["pods", "-A", "-l", labels, "--field-selector", fields])?);
    assert!(selected.len() > PODS / 20 && selected.len() < PODS);

    let compressed = client.clone().compression(Compression::Gzip);
    let (found, summary) = names(named(&compressed, &defaults())).await?;
    assert!(&found == all && summary.wire_bytes < summary.bytes / 3, "{} bytes", summary.wire_bytes);

    let (metadata, summary) = names(named(client, &ListParams::new(all_objects().metadata_only()))).await?;
    assert_eq!((&metadata == all, &*summary.type_meta.kind), (true, "PartialObjectMetadataList"));

    let mut shards = BTreeSet::new();
    for index in 0..3 {
        let (shard, _) = names(named(client, &ListParams::new(all_objects().shard(Shard::new(index, 3)?)))).await?;
        assert!(shard.len() > PODS / 4);
        let before = shards.len();
        shards.extend(shard.iter().cloned());
        assert_eq!(shards.len(), before + shard.len(), "each Pod is in one shard");
    }
    assert!(&shards == all);

    let (namespace, name) = all.first().and_then(|pod| pod.split_once('/')).ok_or("no pod")?;
    let pod = client.get::<[u8]>(&Resource::PODS, Some(namespace), name).await?;
    assert_eq!(ItemRef::new(Encoding::Protobuf, &pod).meta()?.name(), name);
    let missing = client.get::<[u8]>(&Resource::PODS, Some(namespace), "no-such-pod").await;
    assert_eq!(missing.unwrap_err().code(), Some(404));
    Ok(())
}

/// Checks that the client selects the same objects from the whole list as the server.
async fn selected_here(client: &Client) -> Result<()> {
    let pods = Resource::PODS;
    let namespaces = &["team-01", "team-03", "team-05"];
    for (labels, fields) in [
        ("app.kubernetes.io/name=ledger", ""),
        ("app.kubernetes.io/name==ledger,topology.example.com/cell", ""),
        ("app.kubernetes.io/name!=ledger", ""),
        ("app.kubernetes.io/name notin (ledger,feed),!no.such/label", ""),
        ("app.kubernetes.io/name in (ledger,feed)", "status.phase=Running"),
        ("no.such/label!=x", "metadata.namespace=team-03"),
        ("no.such/label in (x)", ""),
        ("pod-template-hash>5", ""),
        ("pod-template-hash<500000000", ""),
        ("", "metadata.namespace!=team-03"),
        ("", "spec.restartPolicy=Always,spec.schedulerName=default-scheduler,spec.hostNetwork=false"),
        ("", "spec.nodeName=,status.nominatedNodeName="),
        ("", "spec.nodeName!=,spec.serviceAccountName!=default,status.podIP!=10.0.0.1"),
    ] {
        selects_alike(client, &pods, namespaces, &all_objects(), labels, fields).await?;
    }
    for fields in ["spec.nodeName=,status.phase=Pending", "spec.hostNetwork=false,spec.nodeName!="] {
        selects_alike(client, &pods, namespaces, &all_objects().json(), "", fields).await?;
    }
    Ok(())
}

async fn selects_alike(
    client: &Client,
    resource: &Resource,
    namespaces: &[&'static str],
    selection: &Selection,
    labels: &str,
    fields: &str,
) -> Result<()> {
    let (labels, fields) = (labels.parse::<LabelSelector>()?, fields.parse::<FieldSelector>()?);
    let selected = ListParams::new(selection.clone().labels(labels.clone()).fields(fields.clone()));
    let by_server = client.list_with(resource, &selected, name as Name);
    let by_client = client.list_with(resource, &ListParams::new(selection.clone()), |item| {
        let is_selected = labels.matches(&item.meta()?)? && fields.matches(&item)?;
        let meta = item.meta()?;
        Ok::<_, ItemError>(is_selected.then(|| format!("{}/{}", meta.namespace(), meta.name())))
    });
    let (by_server, by_client) = match namespaces {
        [] => (by_server, by_client),
        _ => (by_server.namespaces(namespaces.iter().copied()), by_client.namespaces(namespaces.iter().copied())),
    };
    let (by_server, _) = names(by_server).await?;
    let here: BTreeSet<_> = by_client.into_vec().await?.0.into_iter().flatten().collect();
    assert!(here == by_server, "{labels} {fields}: {} by the client, {} by the server", here.len(), by_server.len());
    Ok(())
}

async fn versions(client: &Client, all: &BTreeSet<String>) -> Result<()> {
    let (_, summary) = client.list::<[u8]>(&Resource::NAMESPACES, &defaults()).into_vec().await?;
    let version = summary.list_meta.resource_version;
    for resource_version in
        [ResourceVersion::Any, ResourceVersion::AtLeast(version.clone()), ResourceVersion::Exact(version.clone())]
    {
        let is_exact = resource_version == ResourceVersion::Exact(version.clone());
        let (found, summary) = names(named(client, &defaults().resource_version(resource_version))).await?;
        assert!(&found == all);
        assert!(!is_exact || summary.list_meta.resource_version == version);
    }
    let future = defaults().resource_version(ResourceVersion::AtLeast("99999999".to_owned()));
    let impatient = client.clone().retry(Retry::never());
    let error = pods(&impatient, &future).into_vec().await.unwrap_err();
    assert!(error.is_too_large_version() && error.code() == Some(504), "{error}");
    Ok(())
}

/// Lists custom resources in JSON, and their metadata in protobuf.
async fn custom_resources(server: &Server, client: &Client) -> Result<()> {
    let widgets = client.resolve("wd").await?;
    assert_eq!(widgets, Resource::new("example.com", "v1", "widgets", "Widget"));
    let expected = server.names(&["widgets", "-A"])?;
    assert_eq!(expected.len(), 3);
    for params in [defaults(), defaults().page_size(2), ListParams::new(all_objects().metadata_only())] {
        let (found, summary) = names(client.list_with(&widgets, &params, name as Name)).await?;
        assert_eq!(found, expected);
        assert_eq!((summary.consistent, summary.list_meta.resource_version.is_empty()), (true, false));
    }
    let specs = client.list::<Json<serde_json::Value>>(&widgets, &defaults()).into_vec().await?.0;
    assert!(specs.iter().any(|widget| widget["spec"]["n"] == 1));
    for fields in
        ["spec.n=1", "spec.n!=1", "spec.n=", "spec.on=true,metadata.namespace=default", "spec.on=false", "spec.on="]
    {
        selects_alike(client, &widgets, &[], &all_objects(), "", fields).await?;
    }
    json(server, client).await
}

/// Checks that JSON from the server and JSON made of protobuf equal the output of kubectl.
async fn json(server: &Server, client: &Client) -> Result<()> {
    for resource in ["namespaces", "clusterroles", "customresourcedefinitions", "pods"] {
        let found = client.resolve(resource).await?;
        let of_kubectl = server.kubectl(&["get", resource, "-n", "team-01", "-o", "json", "--show-managed-fields"])?;
        let of_kubectl: serde_json::Value = serde_json::from_str(&of_kubectl)?;
        for params in [defaults(), ListParams::new(all_objects().json())] {
            let list = client.list_with(&found, &params, |item| {
                let mut json = Vec::new();
                item.to_json(&mut json)?;
                serde_json::from_slice::<serde_json::Value>(&json).map_err(ItemError::other)
            });
            let list = if found.is_namespaced() { list.namespace("team-01") } else { list };
            let items = list.into_vec().await?.0;
            assert!(!items.is_empty());
            assert!(Some(&items) == of_kubectl["items"].as_array(), "{resource} {params:?}");
        }
    }
    Ok(())
}

/// Checks users that are forbidden or unknown, and a credential plugin whose first token is stale.
async fn credentials(server: &Server, all: &BTreeSet<String>) -> Result<()> {
    for (token, code) in [("nobody", 403), ("wrong-token-9", 401)] {
        for client in clients(server, token).await? {
            let error = pods(&client, &defaults()).into_vec().await.unwrap_err();
            assert_eq!(error.code(), Some(code), "{error}");
            assert!(!format!("{error} {error:?}").contains("wrong-token-9"));
        }
    }
    let of_kube = server.kube(|user| user.impersonate = Some("nobody".to_owned())).await?;
    let ours = server.http("admin")?.impersonate("nobody", None, [""; 0]);
    for client in [Client::new(over_kube(of_kube)?), Client::try_from(ours)?] {
        let error = pods(&client, &defaults()).into_vec().await.unwrap_err();
        assert!(error.code() == Some(403) && error.to_string().contains("\"nobody\""), "{error}");
    }

    let plugin = server.dir().join("plugin");
    fs::write(&plugin, PLUGIN)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o700))?;
    let kubeconfig = serde_json::json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "a", "user": {
            "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"},
        }}],
    });
    let file = server.dir().join("by-plugin");
    fs::write(&file, kubeconfig.to_string())?;
    let client = Client::try_from(Kubeconfig { file: Some(file), ..Kubeconfig::default() }.load()?)?;
    let (found, summary) = names(named(&client, &defaults())).await?;
    assert_eq!((&found == all, summary.attempts), (true, 2));
    Ok(())
}

/// Checks that a server with an untrusted certificate is an error that is not retried.
async fn trust(server: &Server) -> Result<()> {
    let http = Config::new(&server.url).bearer_token("admin").build()?;
    let mut config = server.kube(|_| {}).await?;
    config.root_cert = None;
    for client in [Client::new(http), Client::new(over_kube(config)?)] {
        let error = pods(&client, &defaults()).into_vec().await.unwrap_err();
        let ErrorKind::Transport(transport) = error.kind() else { return Err(error.into()) };
        assert_eq!((transport.kind(), error.is_retryable()), (TransportErrorKind::Tls, false), "{error}");
    }
    Ok(())
}

/// Lists with page tokens that etcd has compacted: with an error, with a restart, and inconsistently. They list one
/// namespace, so that the remaining pages arrive before the next compaction.
async fn expired_pages(server: &Server, all: &BTreeSet<String>) -> Result<()> {
    let mut lists = Vec::new();
    for client in clients(server, "admin").await? {
        let discarded = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&discarded);
        let list = || pods(&client, &defaults().page_size(PAGE)).namespace("team-01");
        lists.push((Expect::Failure, list()));
        let on_restart = move |restart: Restart| {
            counter.fetch_add(restart.items, Ordering::Relaxed);
        };
        lists.push((Expect::Restarts(discarded), list().on_restart(on_restart)));
        lists.push((Expect::Inconsistency, list().allow_inconsistent()));
    }
    for (_, items) in &mut lists {
        for _ in 0..PAGE {
            items.try_next().await?.ok_or("a short page")?;
        }
    }
    compact(server).await?;
    let (all, page) = (all.iter().filter(|name| name.starts_with("team-01/")).count() as u64, u64::from(PAGE));
    assert!(all > 3 * page, "{all}");
    for (expected, mut items) in lists {
        let (rest, end) = drain(&mut items).await;
        if let Expect::Failure = expected {
            let error = end.unwrap_err();
            assert!(error.is_expired() && error.items() == page && rest == 0, "{error}");
            continue;
        }
        end?;
        let summary = items.summary().ok_or("not complete")?;
        assert_eq!(summary.items, all);
        match expected {
            // On a slow machine the second snapshot expires too.
            Expect::Restarts(discarded) => {
                assert!(summary.consistent && summary.restarts > 0);
                assert_eq!(page + rest, all + discarded.load(Ordering::Relaxed));
            }
            _ => assert_eq!((summary.consistent, page + rest), (false, all)),
        }
    }
    Ok(())
}

enum Expect {
    Failure,
    /// With the number of items that the restarts discarded.
    Restarts(Arc<AtomicU64>),
    Inconsistency,
}

/// Returns how many items were delivered, and how the list ended.
async fn drain(items: &mut List<Bytes>) -> (u64, std::result::Result<(), listwatch::client::Error>) {
    let mut count = 0;
    loop {
        match items.try_next().await {
            Ok(Some(_)) => count += 1,
            end => return (count, end.map(drop)),
        }
    }
}

/// A list that outlives the server's request timeout is incomplete; in pages it is complete.
async fn request_timeout(server: &Server, all: &BTreeSet<String>) -> Result<()> {
    for client in clients(server, "admin").await? {
        let options = defaults().timeout(Duration::from_secs(3));
        let mut items = pods(&client, &options);
        assert!(items.try_next().await?.is_some());
        // The sockets hold some megabytes, the list has 50 MB.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        let (rest, end) = drain(&mut items).await;
        let error = end.unwrap_err();
        assert!(error.is_incomplete() && error.items() == rest + 1, "{error}");
        let ErrorKind::Incomplete { request_timeout, .. } = error.kind() else { return Err(error.into()) };
        assert_eq!(*request_timeout, Some(Duration::from_secs(3)), "{error}");
        assert!(items.try_next().await?.is_none() && items.summary().is_none());
        assert!(&names(named(&client, &defaults().page_size(1000))).await?.0 == all);
    }
    Ok(())
}

/// Kills the server in the middle of a list.
async fn killed(server: &mut Server) -> Result<()> {
    let clients = clients(server, "admin").await?;
    let mut lists = clients.each_ref().map(|client| pods(client, &defaults()));
    for items in &mut lists {
        assert!(items.try_next().await?.is_some());
    }
    server.kill();
    for (mut items, client) in lists.into_iter().zip(clients) {
        let (rest, end) = drain(&mut items).await;
        let error = end.unwrap_err();
        assert!(error.is_incomplete() && error.items() == rest + 1, "{error}");
        let refused = pods(&client.retry(Retry::never()), &defaults()).into_vec().await;
        assert!(refused.unwrap_err().is_retryable());
    }
    Ok(())
}

/// Writes, and waits until the server has compacted the earlier versions: every 3 s it compacts the version of 3 s ago.
async fn compact(server: &Server) -> Result<()> {
    for round in 0..4 {
        server.kubectl(&["annotate", "--overwrite", "namespace", "default", &format!("round={round}")])?;
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    Ok(())
}

const WIDGET: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
 {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "default"},
 "spec": {"n": 1, "on": true}},
 {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b", "namespace": "default"},
 "spec": {"n": 0, "on": false}},
 {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "kube-system"}}]}"#;

/// A credential plugin whose first token is stale.
const PLUGIN: &str = r#"#!/bin/sh
token=admin
[ -e "$0.ran" ] || token=stale
touch "$0.ran"
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "'$token'"}}'
"#;
