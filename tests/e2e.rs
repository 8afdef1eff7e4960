//! The client against a real kube-apiserver: `cargo test --test e2e`, with the binaries of tests/apiserver in
//! `tests/apiserver/bin`. It is no part of a plain `cargo test`: building them takes Go and minutes.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::TryStreamExt as _;
use listwatch::ItemError;
use listwatch::client::{
    Client, ErrorKind, FieldSelector, HttpTransport, LabelSelector, List, ListOptions, ListSummary, Resource,
    ResourceVersion, Retry, Shard,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PODS: usize = 20_000;
const PORT: u16 = 16643;
const ETCD_PORT: u16 = 23990;

/// A kube-apiserver on a directory of its own. Stopped when dropped, as hard as SIGKILL does.
struct Server {
    child: Child,
    dir: PathBuf,
    url: String,
}

impl Server {
    fn start(dir: &Path, flags: &[&str]) -> Result<Self> {
        let mut child = Command::new(bin("server"))
            .args(["-port", &PORT.to_string(), "-etcd-port", &ETCD_PORT.to_string(), "-dir"])
            .arg(dir)
            .arg("--")
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let ready = BufReader::new(stdout).lines().next().ok_or("the server ended before it was ready")??;
        let url = ready.strip_prefix("ready ").ok_or(ready.clone())?.to_owned();
        Ok(Self { child, dir: dir.to_owned(), url })
    }

    fn load(&self, pods: usize) -> Result<()> {
        let status = Command::new(bin("load"))
            .args(["-host", &self.url, "-etcd", &format!("http://127.0.0.1:{ETCD_PORT}")])
            .args(["-base", "400", "-n", &pods.to_string()])
            .stdout(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("load: {status}").into()) }
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output =
            Command::new("kubectl").arg("--kubeconfig").arg(self.dir.join("kubeconfig")).args(args).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn client(&self, token: &str) -> Result<Client> {
        let ca = std::fs::read(self.dir.join("ca.crt"))?;
        Ok(Client::new(HttpTransport::builder(&self.url).bearer_token(token).ca_pem(ca).build()?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bin(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apiserver/bin").join(name)
}

fn defaults() -> ListOptions {
    ListOptions::default()
}

async fn names(list: List<[u8]>) -> Result<(BTreeSet<String>, ListSummary)> {
    let list = list.map_item(|item| {
        let meta = item.meta()?;
        Ok::<_, ItemError>(format!("{}/{}", meta.namespace(), meta.name()))
    });
    let (names, summary) = list.into_vec().await?;
    assert_eq!(names.len() as u64, summary.items);
    let set: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(set.len() as u64, summary.items, "no name twice");
    Ok((set, summary))
}

fn of_kubectl(server: &Server, args: &[&str]) -> Result<BTreeSet<String>> {
    let columns = "custom-columns=NS:.metadata.namespace,N:.metadata.name";
    let output = server.kubectl(&[&["get", "--chunk-size=0", "--no-headers", "-o", columns], args].concat())?;
    Ok(output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join("/")).collect())
}

#[tokio::test]
async fn a_real_api_server() -> Result<()> {
    let state = std::env::temp_dir().join(format!("listwatch-e2e-{}", std::process::id()));
    let done = run(&state).await;
    std::fs::remove_dir_all(&state)?;
    done
}

#[expect(clippy::too_many_lines, clippy::similar_names, reason = "one story of one server")]
async fn run(state: &Path) -> Result<()> {
    let server = Server::start(state, &["--feature-gates=ShardedListAndWatch=true"])?;
    server.load(PODS)?;
    let client = server.client("admin")?;
    let pods = || client.list::<[u8]>(&Resource::PODS, &defaults());
    let with = |options: ListOptions| client.list::<[u8]>(&Resource::PODS, &options);

    // The loader writes into etcd behind the server's back; its watch cache follows a little later.
    let mut all = BTreeSet::new();
    let mut summary = ListSummary::default();
    for _ in 0..100 {
        (all, summary) = names(pods()).await?;
        if all.len() == PODS {
            break;
        }
    }
    assert_eq!(all, of_kubectl(&server, &["pods", "-A"])?);
    assert_eq!((summary.pages, summary.attempts, summary.consistent), (1, 1, true));
    assert!(summary.audit_id.is_some());
    let version = summary.list_meta.resource_version.clone();

    // Paged, by namespace, by selectors.
    let (paged, summary) = names(pods().pages(3000)).await?;
    assert_eq!((paged == all, summary.pages), (true, 7));
    let (some, summary) = names(pods().namespaces(["team-01", "team-02"])).await?;
    let expected: BTreeSet<_> =
        all.iter().filter(|name| name.starts_with("team-01/") || name.starts_with("team-02/")).cloned().collect();
    assert_eq!((some, summary.namespaces.len()), (expected, 2));
    let selected = defaults()
        .labels("app.kubernetes.io/name in (ledger, feed)".parse::<LabelSelector>()?)
        .fields("status.phase=Running".parse::<FieldSelector>()?);
    let (selected, _) = names(with(selected)).await?;
    let same =
        ["pods", "-A", "-l", "app.kubernetes.io/name in (ledger, feed)", "--field-selector=status.phase=Running"];
    assert_eq!(selected, of_kubectl(&server, &same)?);
    assert!(selected.len() > 1000 && selected.len() < PODS);

    // Metadata only, and shards that make up the whole.
    let (metadata, summary) = names(with(defaults().metadata_only())).await?;
    assert_eq!((metadata == all, summary.type_meta.kind.as_str()), (true, "PartialObjectMetadataList"));
    let mut shards = BTreeSet::new();
    for index in 0..3 {
        let (shard, _) = names(with(defaults().shard(Shard::new(index, 3)?))).await?;
        assert!(shard.len() > PODS / 4);
        shards.extend(shard);
    }
    assert!(shards == all);

    // Versions.
    for resource_version in
        [ResourceVersion::Any, ResourceVersion::AtLeast(version.clone()), ResourceVersion::Exact(version.clone())]
    {
        let (found, summary) = names(with(defaults().resource_version(resource_version.clone()))).await?;
        assert!(found == all, "{resource_version:?}");
        if resource_version == ResourceVersion::Exact(version.clone()) {
            assert_eq!(summary.list_meta.resource_version, version);
        }
    }
    let future = defaults().resource_version(ResourceVersion::AtLeast("99999999".to_owned()));
    let error =
        client.clone().retry(Retry::never()).list::<[u8]>(&Resource::PODS, &future).into_vec().await.unwrap_err();
    assert!(error.is_too_large_version() && error.code() == 504, "{error}");

    // A custom resource: JSON, which is said; its metadata comes in protobuf.
    let definition = state.join("widgets.json");
    std::fs::write(&definition, WIDGETS)?;
    server.kubectl(&["apply", "-f", definition.to_str().ok_or("no path")?])?;
    server.kubectl(&["wait", "--for=condition=Established", "crd/widgets.example.com"])?;
    let widget = state.join("widget.json");
    std::fs::write(&widget, WIDGET)?;
    server.kubectl(&["apply", "-f", widget.to_str().ok_or("no path")?])?;
    let widgets = Resource::new("example.com", "v1", "widgets", "Widget");
    let error = client.list::<[u8]>(&widgets, &defaults()).into_vec().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Json), "{error}");
    let (metadata, _) = names(client.list(&widgets, &defaults().metadata_only())).await?;
    assert_eq!(metadata, BTreeSet::from(["default/a".to_owned()]));

    // Who may not, and whom we do not trust.
    for (token, code) in [("nobody", 403), ("wrong-token-9", 401)] {
        let error = server.client(token)?.list::<[u8]>(&Resource::PODS, &defaults()).into_vec().await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(!format!("{error} {error:?}").contains("wrong-token-9"));
    }
    let stranger = Client::new(HttpTransport::builder(&server.url).bearer_token("admin").build()?);
    let error = stranger.list::<[u8]>(&Resource::PODS, &defaults()).into_vec().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Transport(_)) && !error.is_retryable(), "{error}");

    // A page token that etcd has compacted away, and the three answers to it.
    drop(server);
    let server = Server::start(state, &["--etcd-compaction-interval=3s"])?;
    expired(&server, &server.client("admin")?, &all).await?;

    // A list that outlives the server's request timeout is incomplete, and pages get through.
    drop(server);
    let server = Server::start(state, &["--request-timeout=3s"])?;
    let client = server.client("admin")?;
    let mut items = client.list::<[u8]>(&Resource::PODS, &defaults()).stream();
    let mut delivered = 0;
    let error = loop {
        match items.try_next().await {
            Ok(Some(_)) => delivered += 1,
            Ok(None) => return Err("the list was not cut".into()),
            Err(error) => break error,
        }
        if delivered == 10 {
            // The sockets hold megabytes, the list has 170 of them.
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    assert!(error.is_incomplete() && error.items() == delivered, "{error}");
    assert!(items.try_next().await?.is_none() && items.summary().is_none());
    let (paged, _) = names(client.list(&Resource::PODS, &defaults()).pages(1000)).await?;
    assert!(paged == all);

    // The server is killed in mid-list, and comes back.
    let mut items = client.list::<[u8]>(&Resource::PODS, &defaults()).stream();
    assert!(items.try_next().await?.is_some());
    drop(server);
    let error = loop {
        match items.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Err("a list of a killed server was complete".into()),
            Err(error) => break error,
        }
    };
    assert!(error.is_incomplete() && error.items() > 0, "{error}");
    let refused = client.clone().retry(Retry::never()).list::<[u8]>(&Resource::PODS, &defaults()).into_vec().await;
    assert!(refused.unwrap_err().is_retryable());
    // Each start makes a certificate authority of its own.
    let server = Server::start(state, &[])?;
    let (again, _) = names(server.client("admin")?.list(&Resource::PODS, &defaults())).await?;
    assert!(again == all);
    Ok(())
}

async fn expired(server: &Server, client: &Client, all: &BTreeSet<String>) -> Result<()> {
    let list = || client.list::<[u8]>(&Resource::PODS, &defaults()).pages(5000);
    for choice in ["fail", "start over", "go on"] {
        let restarts = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let told = std::sync::Arc::clone(&restarts);
        let list = match choice {
            "fail" => list(),
            "start over" => list().start_over(move |restart| {
                told.fetch_add(restart.items, std::sync::atomic::Ordering::Relaxed);
            }),
            _ => list().go_on_inconsistently(),
        };
        let mut items = list.stream();
        for _ in 0..5000 {
            items.try_next().await?.ok_or("a short page")?;
        }
        compact(server).await?;
        let mut rest = 0_u64;
        let end = loop {
            match items.try_next().await {
                Ok(Some(_)) => rest += 1,
                end => break end,
            }
        };
        let restarted = restarts.load(std::sync::atomic::Ordering::Relaxed);
        let all = all.len() as u64;
        match choice {
            "fail" => {
                let error = end.unwrap_err();
                assert!(error.is_expired() && error.items() == 5000 && rest == 0, "{error}");
            }
            "start over" => {
                end?;
                let summary = items.summary().ok_or("not complete")?;
                assert_eq!((rest, restarted, summary.restarts, summary.consistent), (all, 5000, 1, true));
            }
            _ => {
                end?;
                let summary = items.summary().ok_or("not complete")?;
                assert_eq!((rest, summary.items, summary.consistent), (all - 5000, all, false));
            }
        }
    }
    Ok(())
}

/// Writes, and waits until the server has compacted what was before: it does every 3 s what it saw 3 s ago.
async fn compact(server: &Server) -> Result<()> {
    for round in 0..4 {
        server.kubectl(&["annotate", "--overwrite", "namespace", "default", &format!("round={round}")])?;
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    Ok(())
}

const WIDGETS: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "widgets.example.com"},
 "spec": {"group": "example.com", "scope": "Namespaced",
 "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
 "versions": [{"name": "v1", "served": true, "storage": true,
 "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;

const WIDGET: &str =
    r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "default"}}"#;
