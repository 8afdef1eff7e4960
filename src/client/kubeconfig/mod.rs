//! Kubeconfigs as kubectl reads them.
//!
//! # Advice
//!
//! client-go defines the rules (`tools/clientcmd`, `rest/config.go`), so look a rule up there before a change.
//!
//! | step | file |
//! |---|---|
//! | read the files, merge them: the first file's entry of a name is used whole | `read.rs` |
//! | choose the files, context, cluster and user | this file |
//! | convert fields, with their types | `fields.rs`, `convert.rs` |
//! | without a server: the service account of this Pod | `in_cluster.rs` |
//!
//! Invariants:
//!
//! - An entry is checked when it is used. Others may lack what they need, as long as their types are readable.
//! - Null and the empty string mean unset, everywhere.
//! - No error and no log quotes a value, because it may be a credential. Names of entries, `kind`, `apiVersion` and
//!   `interactiveMode` are quoted. The YAML parser's own text is dropped for the same reason.
//! - Paths are relative to their own file, so each entry keeps its folder.
//! - A server with `http` receives no credentials (`ClientConfig` in `client_config.go`), and a warning says so.
//!
//! What differs from client-go:
//!
//! - All YAML documents of a file are read, as in kube, and a later document counts as a later file.
//! - UTF-16 with a byte order mark is read, because Windows tools write it.
//! - For exec plugins of the API version v1, a missing `interactiveMode` means `IfAvailable`. client-go refuses it.
//! - A name that occurs twice in one document is an error only if the entry is used.
//!
//! Odd parts: `y` and `on` are strings, so that a context may have such a name, and `flag` itself reads the booleans of
//! YAML 1.1. JSON is tried first, because unlike YAML it may be indented by tabs.
//!
//! Not done: `serde` types for the file, because one field of a wrong type in an unused entry would refuse the file.
//! Kubeconfigs are not written either, so a token that the auth provider `oidc` refreshes stays in memory.

mod convert;
mod fields;
mod in_cluster;
mod read;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use self::convert::{add_user, cluster_config};
use self::fields::{KubeconfigFields, Result, invalid};
use self::read::MergedFiles;
use crate::client::api_client::Client;
use crate::client::http_transport::Config;
use crate::client::transport::{TransportError, TransportErrorKind};

impl Client {
    /// Creates a client for the server that kubectl would use, or for the cluster of the Pod in which it runs.
    ///
    /// The kubeconfig's current context names the server. A Pod without a kubeconfig uses its service account.
    ///
    /// [`Kubeconfig`] chooses another file or context, and [`Config`] changes parts of what was found. Only files are
    /// read; an exec plugin runs when the first request needs it.
    ///
    /// ```no_run
    /// use listwatch::client::{Client, ListParams, Resource};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::try_default()?;
    /// let mut names = client.list_with(&Resource::PODS, &ListParams::default(), |pod| {
    ///     pod.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))
    /// });
    /// while let Some(name) = names.next().await {
    ///     println!("{}", name?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Kubeconfig::load`] and [`Config::build`].
    pub fn try_default() -> std::result::Result<Self, TransportError> {
        Self::try_from(Kubeconfig::default().load()?)
    }
}

/// Chooses the file, context, cluster, user and server of a kubeconfig.
///
/// `None` and empty strings mean the defaults.
///
/// ```no_run
/// use listwatch::client::{Client, Kubeconfig};
///
/// # fn run() -> Result<(), listwatch::client::TransportError> {
/// let config = Kubeconfig { context: Some("staging".to_owned()), ..Kubeconfig::default() }.load()?;
/// let client = Client::try_from(config)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    /// The file; by default the files in `KUBECONFIG`, or else `~/.kube/config`.
    ///
    /// Only a file that is set here must exist.
    pub file: Option<PathBuf>,
    /// The context; by default the current context.
    pub context: Option<String>,
    /// The cluster; by default the context's.
    pub cluster: Option<String>,
    /// The user; by default the context's.
    pub user: Option<String>,
    /// The URL of the server; by default the cluster's.
    ///
    /// As in kubectl, it also replaces the cluster's `tls-server-name`.
    pub server: Option<String>,
}

impl Kubeconfig {
    /// Reads the files, and returns the configuration of the chosen context as kubectl would use it.
    ///
    /// If the files name no server, the result is the cluster in which this process runs, with its service account.
    ///
    /// Files that do not exist are skipped, except [`file`](Self::file). If several files contain an entry of one name,
    /// the first file's is used. Paths are relative to their own file. If the context's user does not exist, or the URL
    /// of the server is `http`, the configuration has no credentials; the latter is logged as a warning.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup), without the value of a field, for:
    /// - a file that cannot be read or is no kubeconfig;
    /// - a context, a cluster or a chosen [`user`](Self::user) that does not exist;
    /// - a value that kubectl refuses too;
    /// - no server, outside of a cluster.
    pub fn load(&self) -> std::result::Result<Config, TransportError> {
        let config = MergedFiles::read(&self.file_paths(), self.file.is_some());
        let config = config.and_then(|merged| self.select_config(&merged)).and_then(|config| {
            config.or_else(in_cluster::service_account_config).ok_or_else(|| {
                "none names a server, and this process does not run in a cluster: set KUBECONFIG, or create \
                 ~/.kube/config"
                    .to_owned()
            })
        });
        config.map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("kubeconfig: {error}")))
    }

    /// Returns the files to read.
    fn file_paths(&self) -> Vec<PathBuf> {
        if let Some(file) = &self.file {
            return vec![file.clone()];
        }
        match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
            None if cfg!(windows) => file_of_windows(|name| env::var_os(name)).into_iter().collect(),
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
            // As in client-go, requests then carry no credentials.
            None => KubeconfigFields::default(),
        };
        let mut config = cluster_config(&address, &cluster, server.is_some())?;
        config.namespace = context.text("namespace")?.or_else(in_cluster::pod_namespace);
        add_user(&mut config, &user, &cluster, &address)?;
        // client-go reads credentials only for `https` (`ClientConfig` in `client_config.go`).
        if config.server().starts_with("http:") && (config.has_login() || config.identity.is_some()) {
            let server = config.server();
            tracing::warn!(name: "listwatch.plain_http", %server, "the kubeconfig's credentials are not sent over http");
            config = config.without_credentials();
        }
        Ok(Some(config))
    }
}

/// Returns the file in the home folder of a Windows user (`util/homedir` of client-go): the first that exists.
fn file_of_windows(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let drive_and_path = set("HOMEDRIVE").zip(set("HOMEPATH")).map(|(mut drive, path)| {
        drive.push(path);
        drive
    });
    let homes = [set("HOME"), drive_and_path, set("USERPROFILE")];
    let files = homes.into_iter().flatten().map(|home| PathBuf::from(home).join(".kube").join("config"));
    files.into_iter().find(|file| file.exists())
}

/// Returns the error of an entry that does not exist.
fn missing<T>(what: &str, name: &str) -> Result<T> {
    invalid(format!("{what} {name:?} does not exist"))
}
