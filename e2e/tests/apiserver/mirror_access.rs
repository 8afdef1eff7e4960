//! A mirror with the manifests of `deploy` reviews its readers over TLS: each has its own rights.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Version};
use listwatch::client::{Client, Config, Error, Resource, Transport};
use listwatch_cache::{Cache, Reflector, StorageFormat};
use listwatch_e2e::{Result, Server, View, agree, listed, seen};
use listwatch_mirror::{Access, Mirror};
use reqwest::Certificate;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::mirror::{Informer, JSON, Running, assert_same, collection};

const PORT: u16 = 16973;
const DEPLOYMENT: &str = include_str!("../../../deploy/manifests.yaml");
const DAEMON_SET: &str = include_str!("../../../deploy/daemonset.yaml");
/// The namespaces of the readers, and of others.
const TEAM: &str = "team-00";
const OTHER: &str = "team-01";

/// A server, a mirror with the manifests of `deploy`, and clients of both versions of HTTP.
struct Deployed {
    server: Server,
    mirror: Running,
    http: [(Version, reqwest::Client); 2],
}

/// The tokens of readers.
struct Tokens {
    /// May read the Pods of its namespace.
    reader: String,
    /// Likewise, but its account is deleted.
    gone: String,
    /// May read one Pod.
    named: String,
    /// Its role is missing.
    dangling: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_mirror_have_their_own_rights() -> Result<()> {
    let mut deployed = Deployed::start().await?;
    let Deployed { server, mirror, .. } = &deployed;
    let pods = listed(&server.client()?, "").await?;
    let names = |of: &str| pods.keys().find_map(|key| key.strip_prefix(of)?.strip_prefix('/')).ok_or("no Pod");
    let (ours, others) = (names(TEAM)?, names(OTHER)?);
    let tokens = deployed.accounts(ours)?;

    // These readers outlive their rights: the mirror reviews open watches each minute.
    let of_reader = deployed.follow(&tokens.reader, Some(TEAM))?;
    let of_gone = deployed.follow(&tokens.gone, Some(TEAM))?;
    let of_admin = deployed.follow("admin", None)?;
    let of_team = [("reader", &of_reader), ("gone", &of_gone)];
    let forwarded = deployed.forwarded_watch(&tokens.reader).await?;

    deployed.rights(&tokens, ours, others).await?;
    deployed.refuses_unknown_readers(&tokens).await?;
    deployed.refuses_requests(ours).await?;
    deployed.serves_kubectl(&tokens)?;

    let mut informer = Informer::start(&mirror.url, true, false)?;
    for (version, namespace, pod) in [("1", TEAM, ours), ("2", OTHER, others), ("3", TEAM, ours)] {
        server.kubectl(&["annotate", "--overwrite", "pod", "-n", namespace, pod, &format!("at={version}")])?;
        let pods = listed(&server.client()?, "").await?;
        agree("the informer", &pods, || block_in_place(|| informer.view())).await?;
        agree("the administrator", &pods, || Ok(seen(&of_admin))).await?;
        let pods = pods.into_iter().filter(|(key, _)| key.starts_with(TEAM)).collect::<View>();
        for (name, cache) in of_team {
            agree(name, &pods, || Ok(seen(cache))).await?;
        }
    }

    server.kubectl(&["delete", "rolebinding", "reader", "-n", TEAM])?;
    server.kubectl(&["delete", "serviceaccount", "gone", "-n", TEAM])?;
    for (token, code) in [(&tokens.reader, 403), (&tokens.gone, 401)] {
        let list = format!("api/v1/namespaces/{TEAM}/pods");
        until(12, async || Ok(deployed.get(&list, Some(token)).await?.status == code)).await?;
    }
    for ((_, cache), code) in of_team.into_iter().zip([403, 401]) {
        until(70, async || Ok(cache.status().last_error.as_ref().and_then(Error::code) == Some(code))).await?;
    }
    timeout(Duration::from_secs(10), forwarded.bytes()).await??;
    server.kubectl(&["annotate", "--overwrite", "pod", "-n", TEAM, ours, "at=4"])?;
    let pods = listed(&server.client()?, "").await?;
    agree("the administrator", &pods, || Ok(seen(&of_admin))).await?;
    assert_eq!((of_admin.status().errors, of_admin.status().syncs), (0, 1));

    deployed.refuses_all_readers_without_reviews().await?;
    deployed.mirror.stop().await
}

impl Deployed {
    /// Starts the mirror as its Deployment does: with the token of its account and the resources of its arguments.
    async fn start() -> Result<Self> {
        let server = Server::start(PORT, &[])?;
        server.load(200)?;
        server.kubectl(&["create", "namespace", "listwatch"])?;
        server.apply(DEPLOYMENT)?;
        server.apply(DAEMON_SET)?;
        let token = token(&server, "listwatch", "listwatch-mirror")?;
        let transport: Arc<dyn Transport> = Arc::new(server.http(&token)?.build()?);
        let client = Client::new(Arc::clone(&transport));
        let args = DEPLOYMENT.split("- mirror\n").nth(1).ok_or("no arguments")?;
        let args = args.lines().map_while(|line| line.trim().strip_prefix("- "));
        let mut collections = Vec::new();
        for resource in args.filter(|arg| !arg.starts_with("--")) {
            collections.push(collection(&client, client.resolve(resource).await?, StorageFormat::Compressed));
        }
        assert_eq!(collections.len(), 4);
        let [certificate, key] = ["server.crt", "server.key"].map(|file| server.dir().join(file));
        let mirror = Mirror::new(transport).tls(certificate, key).access(Access::Reviewed);
        let mirror = Running::start(mirror, collections, TcpListener::bind("127.0.0.1:0")?, "https").await?;
        let ca = Certificate::from_pem_bundle(&server.ca()?)?;
        let builder = || reqwest::Client::builder().tls_certs_only(ca.clone());
        let http = [(Version::HTTP_2, builder().build()?), (Version::HTTP_11, builder().http1_only().build()?)];
        Ok(Self { server, mirror, http })
    }

    /// Creates the accounts and roles of readers.
    fn accounts(&self, pod: &str) -> Result<Tokens> {
        let create = |args: &[&str]| self.server.kubectl(&[&["create", "-n", TEAM], args].concat());
        let read = ["--verb=get,list,watch", "--resource=pods"];
        create(&[&["role", "reader"], &read[..]].concat())?;
        create(&[&["role", "named", "--resource-name", pod], &read[..]].concat())?;
        let account = |account: &str, role: &str| {
            create(&["serviceaccount", account])?;
            create(&["rolebinding", account, "--role", role, "--serviceaccount", &format!("{TEAM}:{account}")])?;
            token(&self.server, TEAM, account)
        };
        Ok(Tokens {
            reader: account("reader", "reader")?,
            gone: account("gone", "reader")?,
            named: account("named", "named")?,
            dangling: account("dangling", "missing")?,
        })
    }

    /// Starts a reflector that reads Pods from the mirror.
    fn follow(&self, token: &str, namespace: Option<&str>) -> Result<Cache<[u8]>> {
        let transport = Config::new(&self.mirror.url).bearer_token(token).ca_pem(self.server.ca()?);
        let client = Client::new(transport.build()?);
        let reflector = Reflector::<[u8]>::new(&client, &Resource::PODS);
        let reflector = match namespace {
            Some(namespace) => reflector.namespace(namespace),
            None => reflector,
        }
        .prepare();
        let cache = reflector.cache();
        tokio::spawn(reflector.run());
        Ok(cache)
    }

    /// Starts a watch that the mirror forwards: it writes no Tables of `v1beta1`.
    async fn forwarded_watch(&self, token: &str) -> Result<reqwest::Response> {
        let url = format!("{}/api/v1/namespaces/{TEAM}/pods?watch=1&resourceVersion=0", self.mirror.url);
        let accept = format!("{JSON};as=Table;v=v1beta1;g=meta.k8s.io");
        let response = self.http[0].1.get(url).header(ACCEPT, accept).bearer_auth(token).send().await?;
        assert!(response.status().is_success() && !response.headers().contains_key(LAG), "{response:?}");
        Ok(response)
    }

    /// Each reader gets the status and the body that it gets from the API server.
    async fn rights(&self, tokens: &Tokens, ours: &str, others: &str) -> Result<()> {
        let list = format!("api/v1/namespaces/{TEAM}/pods");
        let Tokens { reader, named, dangling, .. } = tokens;
        let readers = ["nobody", reader, named, dangling, "admin"];
        for (path, codes) in [
            ("api/v1/pods?resourceVersion=0", [403, 403, 403, 403, 200]),
            ("api/v1/pods?resourceVersion=0&limit=3", [403, 403, 403, 403, 200]),
            (&format!("{list}?resourceVersion=0"), [403, 200, 403, 403, 200]),
            (&list, [403, 200, 403, 403, 200]),
            (&format!("{list}/{ours}"), [403, 200, 200, 403, 200]),
            (&format!("{list}/missing"), [403, 404, 403, 403, 404]),
            (&format!("{list}?resourceVersion=0&fieldSelector=metadata.name%3D{ours}"), [403, 200, 200, 403, 200]),
            (&format!("api/v1/namespaces/{OTHER}/pods?resourceVersion=0"), [403, 403, 403, 403, 200]),
            (&format!("api/v1/namespaces/{OTHER}/pods/{others}"), [403, 403, 403, 403, 200]),
            ("api/v1/nodes?resourceVersion=0", [403, 403, 403, 403, 200]),
            ("apis/apps/v1/namespaces/listwatch/deployments/listwatch-mirror", [403, 403, 403, 403, 200]),
            ("api/v1/services?resourceVersion=0", [403, 403, 403, 403, 200]),
            ("version", [200; 5]),
            ("apis/apps/v1", [200; 5]),
        ] {
            for (token, code) in readers.into_iter().zip(codes) {
                let theirs = self.get_from_server(path, token).await?;
                for (version, http) in &self.http {
                    let answer = send(http, Method::GET, &self.url(path), Some(token), None).await?;
                    let case = format!("{path} {version:?} {token}: {}", answer.text());
                    assert_eq!((theirs.status, answer.status, answer.version), (code, code, *version), "{case}");
                    assert_eq!(answer.content_type, theirs.content_type, "{case}");
                    assert!(!path.contains("resourceVersion=0") || answer.is_cached == (code == 200), "{case}");
                    if code == 200 {
                        assert_same(&case, &answer.body, &theirs.body);
                    } else {
                        assert_eq!(answer.json(), theirs.json());
                    }
                }
            }
        }
        Ok(())
    }

    /// Only probes need no token. Any other request without one, and with one of nobody, gets the 401 of the API
    /// server.
    async fn refuses_unknown_readers(&self, tokens: &Tokens) -> Result<()> {
        let theirs = self.get_from_server("api/v1/pods", "wrong").await?;
        let changed = format!("{}x", tokens.reader);
        for path in ["api/v1/pods", "api/v1/namespaces/team-00/pods/x", "api/v1/configmaps", "version", "metrics"] {
            for token in [None, Some("wrong"), Some(&*changed)] {
                let answer = self.get(path, token).await?;
                assert_eq!((answer.status, answer.json()), (401, theirs.json()), "{path} {token:?}");
            }
        }
        for path in ["livez", "healthz", "readyz", "readyz/deployments.apps"] {
            assert_eq!(self.get(path, None).await?.status, 200, "{path}");
        }
        Ok(())
    }

    /// The mirror refuses writes, other identities and requests with effects. Its own roles limit what it forwards.
    async fn refuses_requests(&self, pod: &str) -> Result<()> {
        let pod = format!("api/v1/namespaces/{TEAM}/pods/{pod}");
        let own = "you may list configmaps, but the mirror must ask the API server for it with its own account";
        for (method, path, header, code, message) in [
            (Method::POST, "api/v1/namespaces/default/pods", None, 405, "does not allow this method"),
            (Method::PUT, &pod, None, 405, "does not allow this method"),
            (Method::PATCH, &pod, None, 405, "does not allow this method"),
            (Method::DELETE, &pod, None, 405, "does not allow this method"),
            (Method::GET, "api/v1/pods", Some(("impersonate-user", "nobody")), 403, "does not impersonate"),
            (Method::GET, "api/v1/pods", Some(("impersonate-extra-x", "y")), 403, "does not impersonate"),
            (Method::GET, &format!("{pod}/exec?command=id"), None, 403, "may have effects"),
            (Method::GET, &format!("{pod}/proxy"), None, 403, "may have effects"),
            (Method::GET, &format!("{pod}/proxy/x"), None, 403, "may have effects"),
            (Method::GET, "api/v1/secrets", None, 403, "does not forward Secrets"),
            (Method::GET, "api/v1/namespaces/listwatch/secrets/x", None, 403, "does not forward Secrets"),
            (Method::GET, "api/v1/configmaps", None, 403, own),
            (Method::GET, "logs", None, 404, "could not find"),
            (Method::GET, "debug/pprof", None, 404, "could not find"),
        ] {
            for (_, http) in &self.http {
                let answer = send(http, method.clone(), &self.url(path), Some("admin"), header).await?;
                let case = format!("{method} {path} {header:?}: {}", answer.text());
                assert!(answer.status == code && answer.text().contains(message), "{case}");
            }
        }
        for path in ["metrics", "api/v1/configmaps"] {
            let theirs = self.get_from_server(path, "nobody").await?.json();
            let answer = self.get(path, Some("nobody")).await?;
            assert_eq!((answer.status, &answer.json()["message"]), (403, &theirs["message"]));
        }
        let metrics = String::from_utf8(self.get("metrics", Some("admin")).await?.body)?;
        for reason in ["no_token", "wrong_token", "forbidden", "secrets", "impersonation"] {
            assert!(metrics.contains(&format!("denied_total{{reason=\"{reason}\"}}")), "{metrics}");
        }
        Ok(())
    }

    /// kubectl has the rights of its token.
    fn serves_kubectl(&self, tokens: &Tokens) -> Result<()> {
        let ca = self.server.dir().join("ca.crt");
        let kubectl = |token: &str, args: &[&str]| {
            let options = ["--certificate-authority", ca.to_str().ok_or("no path")?, "--token", token];
            self.mirror.kubectl(&[&options, args].concat())
        };
        let (all, table) = (["get", "pods", "-A", "-o", "name"], ["get", "pods", "-n", TEAM]);
        assert_eq!(kubectl("admin", &all)?, self.server.kubectl(&all)?);
        // The last column is the age.
        let rows = |table: &str| -> Vec<_> {
            table.lines().map(|row| row.rsplit_once(' ').map(|(row, _)| row.trim().to_owned())).collect()
        };
        assert_eq!(rows(&kubectl(&tokens.reader, &table)?), rows(&self.server.kubectl(&table)?));
        assert_eq!(kubectl(&tokens.reader, &["auth", "can-i", "list", "pods", "-n", TEAM])?, "yes\n");
        for other in [["auth", "can-i", "delete", "pods", "-n", TEAM], ["auth", "can-i", "list", "pods", "-n", OTHER]] {
            // kubectl prints `no` to stdout, and exits with 1.
            assert_eq!(kubectl(&tokens.reader, &other).unwrap_err().to_string(), "", "{other:?}");
        }
        let error = kubectl(&tokens.reader, &all).unwrap_err().to_string();
        assert!(error.contains("(Forbidden)") && error.contains("at the cluster scope"), "{error}");
        Ok(())
    }

    /// Without its right to review, the mirror answers nobody.
    async fn refuses_all_readers_without_reviews(&self) -> Result<()> {
        self.server.kubectl(&["delete", "clusterrolebinding", "listwatch-mirror-listwatch-reviews"])?;
        let mut number = 0;
        until(12, async || {
            // A request that was not reviewed yet.
            number += 1;
            let answer = self.get(&format!("api/v1/namespaces/n-{number}/pods"), Some("admin")).await?;
            Ok(answer.status == 503 && answer.text().contains("cannot review"))
        })
        .await
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.mirror.url)
    }

    async fn get(&self, path: &str, token: Option<&str>) -> Result<Answer> {
        send(&self.http[0].1, Method::GET, &self.url(path), token, None).await
    }

    async fn get_from_server(&self, path: &str, token: &str) -> Result<Answer> {
        send(&self.http[0].1, Method::GET, &format!("{}/{path}", self.server.url), Some(token), None).await
    }
}

fn token(server: &Server, namespace: &str, account: &str) -> Result<String> {
    Ok(server.kubectl(&["create", "token", account, "-n", namespace])?.trim().to_owned())
}

/// Waits for a condition, for at most this many seconds.
async fn until(seconds: u64, mut is_met: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let is_met = async {
        while !is_met().await? {
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    };
    timeout(Duration::from_secs(seconds), is_met).await?
}

/// The header of answers from memory.
const LAG: &str = "listwatch-lag-seconds";

/// A response.
struct Answer {
    version: Version,
    status: u16,
    content_type: String,
    is_cached: bool,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the beginning of the body.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(1000)]).into_owned()
    }
}

async fn send(
    http: &reqwest::Client,
    method: Method,
    url: &str,
    token: Option<&str>,
    header: Option<(&str, &str)>,
) -> Result<Answer> {
    let mut request = http.request(method, url).header(ACCEPT, JSON);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await?;
    let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.to_str().map(str::to_owned));
    Ok(Answer {
        version: response.version(),
        status: response.status().as_u16(),
        content_type: content_type.transpose()?.unwrap_or_default(),
        is_cached: response.headers().contains_key(LAG),
        body: response.bytes().await?.to_vec(),
    })
}
