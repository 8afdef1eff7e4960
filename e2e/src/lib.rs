//! Runs the kube-apiserver that apiserver/build.sh builds.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "only the tests of this package use it")]

#[cfg(not(target_os = "linux"))]
compile_error!("the end-to-end tests read /proc: they need Linux");

mod changes;
mod view;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub use changes::{CHANGED, Changes, annotate, pod};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use listwatch::client::{Client, Config};
use listwatch_kube::KubeTransport;
use tempfile::TempDir;
pub use view::{View, agree, listed, of_kube, seen};

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Returns the number in an environment variable (`PODS`, `CHANGES`), which .ci/nightly sets, or `default`.
///
/// # Panics
///
/// If the variable is not a number.
#[must_use]
pub fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

/// A kube-apiserver with its own directory and port; etcd has the next two ports. Dropping it kills the process with
/// SIGKILL, and removes the directory.
pub struct Server {
    child: Child,
    port: u16,
    pub url: String,
    dir: TempDir,
}

impl Server {
    pub fn start(port: u16, flags: &[&str]) -> Result<Self> {
        Self::start_in(TempDir::with_prefix("listwatch-")?, port, flags)
    }

    /// Starts a server with the data and certificates of another one, if the directory has them.
    pub fn start_in(dir: TempDir, port: u16, flags: &[&str]) -> Result<Self> {
        let (child, url) = spawn_with_etcd(dir.path(), port, flags)?;
        Ok(Self { child, port, url, dir })
    }

    /// Kills the process if it runs, and starts the server again, with its data and certificates.
    pub fn restart(&mut self, flags: &[&str]) -> Result<()> {
        self.kill();
        (self.child, self.url) = spawn_with_etcd(self.dir(), self.port, flags)?;
        Ok(())
    }

    /// Starts a second server of this cluster, which has the same credentials, and whose etcd is at this port.
    pub fn start_second(&self, port: u16, etcd: u16) -> Result<SecondServer> {
        let mut command = Command::new(bin("server"));
        command.args(["-etcd", &format!("http://127.0.0.1:{etcd}")]);
        let (child, url) = spawn(command, self.dir(), port, &[])?;
        Ok(SecondServer { child, url })
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the exit status and the last lines of the log, if the server has ended by itself.
    pub fn last_words(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let log = fs::read_to_string(log_of(self.dir(), self.port)).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(20).collect();
        Some(format!("{status}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }

    pub fn load(&self, pods: u64) -> Result<()> {
        let status = Command::new(bin("load"))
            .args(["-host", &self.url, "-etcd", &format!("http://127.0.0.1:{}", self.port + 1)])
            .args(["-base", "400", "-n", &pods.to_string()])
            .stdout(Stdio::null())
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("load: {status}").into()) }
    }

    /// Runs the kubectl of the same release as the server, never an installed one.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output =
            Command::new(bin("kubectl")).arg("--kubeconfig").arg(self.dir().join("kubeconfig")).args(args).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns `namespace/name` of each object that `kubectl get` finds.
    pub fn names(&self, args: &[&str]) -> Result<BTreeSet<String>> {
        let columns = "custom-columns=NS:.metadata.namespace,N:.metadata.name";
        let output = self.kubectl(&[&["get", "--chunk-size=0", "--no-headers", "-o", columns], args].concat())?;
        Ok(output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join("/")).collect())
    }

    /// Applies YAML or JSON documents.
    pub fn apply(&self, documents: &str) -> Result<()> {
        let path = self.dir().join("applied");
        fs::write(&path, documents)?;
        self.kubectl(&["apply", "-f", path.to_str().ok_or("no path")?]).map(drop)
    }

    /// Applies the definition of `widgets.example.com`, and these widgets.
    pub fn apply_widgets(&self, widgets: &str) -> Result<()> {
        for documents in [WIDGETS, widgets] {
            self.apply(documents)?;
            self.kubectl(&["wait", "--for=condition=Established", "crd/widgets.example.com"])?;
        }
        Ok(())
    }

    pub fn ca(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.dir().join("ca.crt"))?)
    }

    pub fn http(&self, token: &str) -> Result<Config> {
        Ok(Config::new(&self.url).bearer_token(token).ca_pem(self.ca()?))
    }

    /// Returns a client that may do anything.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(self.http("admin")?.build()?))
    }

    /// Returns a client of kube that may do anything.
    pub async fn kube_client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.kube(|_| {}).await?)?)
    }

    /// Returns kubectl's configuration, with `change` applied to its user.
    pub async fn kube(&self, change: impl FnOnce(&mut AuthInfo)) -> Result<kube::Config> {
        // With two providers in the process, kube panics unless one is installed. The call fails if there is one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut kubeconfig = Kubeconfig::read_from(self.dir().join("kubeconfig"))?;
        let user = kubeconfig.auth_infos.first_mut().and_then(|user| user.auth_info.as_mut()).ok_or("no user")?;
        change(user);
        Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }
}

/// Returns a transport over a client of kube, without kube's retries and timeouts.
pub fn over_kube(mut config: kube::Config) -> Result<KubeTransport> {
    config.default_retry = false;
    config.read_timeout = None;
    Ok(KubeTransport::new(kube::Client::try_from(config)?))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Another API server of the cluster of a [`Server`]. Dropping it kills the process with SIGKILL.
pub struct SecondServer {
    child: Child,
    pub url: String,
}

impl Drop for SecondServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process with an etcd of its own at the next port, and returns its URL once it is ready.
fn spawn_with_etcd(dir: &Path, port: u16, flags: &[&str]) -> Result<(Child, String)> {
    let mut command = Command::new(bin("server"));
    command.args(["-etcd-port", &(port + 1).to_string()]);
    spawn(command, dir, port, flags)
}

fn spawn(mut command: Command, dir: &Path, port: u16, flags: &[&str]) -> Result<(Child, String)> {
    let mut child = command
        .args(["-port", &port.to_string(), "-dir"])
        .arg(dir)
        .arg("--")
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(File::create(log_of(dir, port))?)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let ready = BufReader::new(stdout).lines().next().ok_or("the server ended before it was ready")??;
    let url = ready.strip_prefix("ready ").ok_or(ready.clone())?.to_owned();
    Ok((child, url))
}

fn log_of(dir: &Path, port: u16) -> PathBuf {
    dir.join(format!("server-{port}.log"))
}

/// Returns the path of a program that apiserver/build.sh builds.
#[must_use]
pub fn bin(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apiserver/bin").join(name)
}

const WIDGETS: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "widgets.example.com"},
 "spec": {"group": "example.com", "scope": "Namespaced",
 "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
 "versions": [{"name": "v1", "served": true, "storage": true,
 "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
 "x-kubernetes-preserve-unknown-fields": true, "properties": {"n": {"type": "integer"}, "on": {"type": "boolean"}}}}}},
 "selectableFields": [{"jsonPath": ".spec.n"}, {"jsonPath": ".spec.on"}]}]}}"#;
