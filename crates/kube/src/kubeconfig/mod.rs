//! Kubeconfigs as kubectl reads them.
//!
//! # Advice
//!
//! client-go defines the rules (`tools/clientcmd`, `rest/config.go`). Look a rule up there before a change.
//! kube's own loader is not used, because it refuses files that kubectl reads: a missing file in `KUBECONFIG`, empty
//! strings, wrapped base64. It also compares `NO_PROXY` with the proxy instead of the server.
//!
//! | step | file |
//! |---|---|
//! | read the files, merge them: the first file's entry of a name is used whole | `read.rs` |
//! | choose context, cluster and user | this file |
//! | convert fields, with their types | `fields.rs`, `convert.rs` |
//! | without a server: the service account of this Pod | `in_cluster.rs` |
//!
//! Invariants:
//!
//! - An entry is checked when it is used. Others may lack what they need, as long as they have a readable type.
//! - Null and the empty string mean unset, everywhere.
//! - No error and no log quotes a value, because it may be a credential. Names of entries, `kind`, `apiVersion` and
//!   `interactiveMode` are quoted. The YAML parser's own text is dropped for the same reason.
//! - Paths are relative to their own file, so each entry keeps its folder.
//! - A server with `http` gets no credentials (`ClientConfig` in `client_config.go`). A warning says so.
//!
//! What differs from client-go:
//!
//! - All YAML documents of a file are read, as by kube, and a later one counts as a later file.
//! - UTF-16 with a byte order mark is read, because Windows tools write it.
//! - The API version v1 of exec plugins without an `interactiveMode` means `IfAvailable`. client-go refuses it.
//! - A name that occurs twice in one document is an error only if the entry is used.
//!
//! Odd parts: `strict_booleans` keeps `y` and `on` strings, so that a context may have such a name. `flag` then reads
//! the booleans of YAML 1.1 itself. JSON is tried first, because JSON may be indented by tabs and YAML may not.
//!
//! Not done: `serde` types for the file, because one field of a wrong type in an unused entry would refuse the file.
//! Writing kubeconfigs, and refreshing the token of an auth provider in the file, are not done either.
//!
//! The order of the files, lowest first: `error`, `fields`, `read`, `convert`, `in_cluster`, this file.

mod convert;
mod error;
mod fields;
mod in_cluster;
mod read;
#[cfg(test)]
mod tests;

use std::env;
use std::path::PathBuf;

use kube::Config;
use listwatch::client::environment_proxy;

use self::convert::{auth_info, cluster_config, remove_credentials, take_url_user};
pub use self::error::KubeconfigError;
use self::error::{Result, invalid};
use self::fields::KubeconfigFields;
use self::read::MergedFiles;

/// The choice of a kubeconfig's file, context, cluster, user and server. Empty strings and `None` are the defaults.
///
/// ```no_run
/// use listwatch::client::Client;
/// use listwatch_kube::{KubeTransport, Kubeconfig};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Kubeconfig::default().load()?.ok_or("no kubeconfig, and not in a cluster")?;
/// let client = Client::new(KubeTransport::from_config(config)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    /// The file; by default the files in `KUBECONFIG`, else `~/.kube/config`. Only a file that is named here must
    /// exist.
    pub file: Option<PathBuf>,
    /// The context; by default the current context.
    pub context: Option<String>,
    /// The cluster; by default the context's.
    pub cluster: Option<String>,
    /// The user; by default the context's.
    pub user: Option<String>,
    /// The URL of the server; by default the cluster's. It replaces the cluster's `tls-server-name` too, as in kubectl.
    pub server: Option<String>,
}

impl Kubeconfig {
    /// Reads the files, and returns the configuration of the chosen context.
    ///
    /// If the files name no server, the process connects to the cluster in which it runs, with its service
    /// account. Outside of a cluster the result is `None`.
    ///
    /// Files that do not exist are skipped, except [`file`](Self::file). If several files have an entry of one name,
    /// the first file's is used. Paths are relative to their own file. Empty strings mean unset. A context whose user
    /// does not exist leads to a configuration without credentials.
    ///
    /// The configuration has the [proxy of the environment](environment_proxy), unless the cluster has a `proxy-url`.
    /// If the URL of the server is `http`, the configuration has no credentials, and a warning is logged.
    ///
    /// # Errors
    ///
    /// [`KubeconfigError`] for:
    /// - a file that cannot be read or is no kubeconfig;
    /// - a context, a cluster or a chosen [`user`](Self::user) that does not exist;
    /// - a value that kubectl refuses too.
    pub fn load(&self) -> Result<Option<Config>> {
        let merged = MergedFiles::read(&self.file_paths(), self.file.is_some())?;
        let config = match self.select_config(&merged)? {
            Some(config) => Some(config),
            None => in_cluster::service_account_config()?,
        };
        let Some(mut config) = config else { return Ok(None) };
        if config.proxy_url.is_none()
            && let Some(proxy) = environment_proxy(&config.cluster_url)
        {
            // Without its text, which may contain a password.
            let parsed = proxy.parse();
            config.proxy_url =
                Some(parsed.map_err(|_| KubeconfigError::new("the proxy of the environment is not a URL"))?);
        }
        Ok(Some(config))
    }

    /// Returns the files to read.
    fn file_paths(&self) -> Vec<PathBuf> {
        if let Some(file) = &self.file {
            return vec![file.clone()];
        }
        match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
        }
    }

    /// Returns the configuration of the context; `None` if the kubeconfig names no server.
    fn select_config(&self, merged: &MergedFiles) -> Result<Option<Config>> {
        let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let context_name = given(&self.context).or_else(|| merged.current_context.clone());
        let context = match &context_name {
            Some(name) => merged.contexts.get(name)?.map_or_else(|| missing("context", name), Ok)?,
            None => KubeconfigFields::default(),
        };
        let server = given(&self.server);
        let cluster_name = given(&self.cluster).or(context.text("cluster")?);
        let cluster = match merged.clusters.get(cluster_name.as_deref().unwrap_or_default())? {
            Some(cluster) => cluster,
            None if given(&self.cluster).is_some() || cluster_name.is_some() && server.is_none() => {
                return missing("cluster", cluster_name.as_deref().unwrap_or_default());
            }
            None => KubeconfigFields::default(),
        };
        let address = match (&server, cluster.text("server")?) {
            (Some(server), _) => server.clone(),
            (None, Some(server)) => server,
            (None, None) if context_name.is_none() && cluster_name.is_none() => return Ok(None),
            (None, None) => return invalid(format!("{} has no server", cluster.what("its cluster"))),
        };
        let user_name = given(&self.user).or(context.text("user")?);
        let user = match merged.users.get(user_name.as_deref().unwrap_or_default())? {
            Some(user) => user,
            None if given(&self.user).is_some() => return missing("user", user_name.as_deref().unwrap_or_default()),
            // As in client-go, requests then have no credentials.
            None => KubeconfigFields::default(),
        };
        let mut config = cluster_config(&address, &cluster, server.is_some())?;
        config.default_namespace =
            context.text("namespace")?.or_else(in_cluster::pod_namespace).unwrap_or_else(|| "default".to_owned());
        let url_user = take_url_user(&mut config.cluster_url)?;
        let is_secure = config.cluster_url.scheme_str() != Some("http");
        config.auth_info = auth_info(&user, &cluster, &address)?;
        if let Some((name, password)) = url_user {
            (config.auth_info.username, config.auth_info.password) = (Some(name), Some(password));
        }
        if !is_secure {
            remove_credentials(&mut config);
        }
        Ok(Some(config))
    }
}

/// Returns the error of an entry that does not exist.
fn missing<T>(what: &str, name: &str) -> Result<T> {
    invalid(format!("{what} {name:?} does not exist"))
}
