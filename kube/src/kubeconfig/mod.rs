//! Kubeconfigs as kubectl reads them.
//!
//! The rules are those of client-go (`tools/clientcmd`). kube reads fewer files: it refuses a missing file in
//! `KUBECONFIG`, empty strings and wrapped base64, and compares `NO_PROXY` with the proxy. So this module makes the
//! [`Config`] itself.

mod in_cluster;
mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::{env, fmt};

use http::Uri;
use kube::Config;
use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use listwatch::client::environment_proxy;
use secrecy::{ExposeSecret, SecretString};

use self::read::{Fields, Merged};

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

/// The error of a kubeconfig that cannot be used. Its text shows no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigError(String);

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KubeconfigError {}

type Result<T> = std::result::Result<T, KubeconfigError>;

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(KubeconfigError(message.into()))
}

impl Kubeconfig {
    /// Reads the files, and returns the configuration of the chosen context. If they name no server, it is that of the
    /// cluster in which this process runs, with its service account; `None` outside of a cluster.
    ///
    /// Files that do not exist are skipped, except [`file`](Self::file). Of entries with one name, the first file's is
    /// used. Paths are relative to their own file. Empty strings mean unset. A context whose user does not exist gives
    /// a configuration without credentials.
    ///
    /// The configuration has the [proxy of the environment](environment_proxy), unless the cluster has a `proxy-url`.
    /// If the URL of the server is `http`, it has no credentials: a warning says so.
    ///
    /// # Errors
    ///
    /// [`KubeconfigError`] for a file that cannot be read or is no kubeconfig, for a context, a cluster or a chosen
    /// [`user`](Self::user) that does not exist, and for a value that kubectl refuses too.
    pub fn load(&self) -> Result<Option<Config>> {
        let merged = Merged::read(&self.files(), self.file.is_some())?;
        let config = match self.selected(&merged)? {
            Some(config) => Some(config),
            None => in_cluster::config()?,
        };
        let Some(mut config) = config else { return Ok(None) };
        if config.proxy_url.is_none()
            && let Some(proxy) = environment_proxy(&config.cluster_url)
        {
            // Without its text, which may contain a password.
            let parsed = proxy.expose_secret().parse();
            config.proxy_url =
                Some(parsed.map_err(|_| KubeconfigError("the proxy of the environment is not a URL".to_owned()))?);
        }
        Ok(Some(config))
    }

    fn files(&self) -> Vec<PathBuf> {
        if let Some(file) = &self.file {
            return vec![file.clone()];
        }
        match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
        }
    }

    /// Returns the configuration of the context; `None` if the kubeconfig names no server.
    fn selected(&self, merged: &Merged) -> Result<Option<Config>> {
        let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let context_name = given(&self.context).or_else(|| merged.current_context.clone());
        let context = match &context_name {
            Some(name) => merged.contexts.get(name)?.map_or_else(|| missing("context", name), Ok)?,
            None => Fields::default(),
        };
        let server = given(&self.server);
        let cluster_name = given(&self.cluster).or(context.text("cluster")?);
        let cluster = match merged.clusters.get(cluster_name.as_deref().unwrap_or_default())? {
            Some(cluster) => cluster,
            None if given(&self.cluster).is_some() || cluster_name.is_some() && server.is_none() => {
                return missing("cluster", cluster_name.as_deref().unwrap_or_default());
            }
            None => Fields::default(),
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
            None => Fields::default(),
        };
        let mut config = of_cluster(&address, &cluster, server.is_some())?;
        config.default_namespace =
            context.text("namespace")?.or_else(in_cluster::namespace).unwrap_or_else(|| "default".to_owned());
        let url_user = take_user(&mut config.cluster_url)?;
        let is_secure = config.cluster_url.scheme_str() != Some("http");
        config.auth_info = of_user(&user, &cluster, &address)?;
        if let Some((name, password)) = url_user {
            (config.auth_info.username, config.auth_info.password) = (Some(name), Some(password));
        }
        if !is_secure {
            without_credentials(&mut config);
        }
        Ok(Some(config))
    }
}

fn missing<T>(what: &str, name: &str) -> Result<T> {
    invalid(format!("{what} {name:?} does not exist"))
}

/// Removes the credentials, except impersonation, and warns if there were any. client-go reads them only for `https`
/// (`ClientConfig` in `client_config.go`).
fn without_credentials(config: &mut Config) {
    let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } =
        config.auth_info.clone();
    let user = std::mem::replace(
        &mut config.auth_info,
        AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, ..AuthInfo::default() },
    );
    let has_credentials = user.token.is_some()
        || user.token_file.is_some()
        || user.username.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some()
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some();
    if has_credentials {
        let server = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(name: "listwatch.plain_http", %server, "the kubeconfig's credentials are not sent over http");
    }
}

fn of_cluster(address: &str, cluster: &Fields, is_overridden: bool) -> Result<Config> {
    // As in client-go, an address without a scheme is http.
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let parsed = url.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let Some(url) = parsed.filter(|url| url.host().is_some_and(|host| !host.is_empty())) else {
        return invalid(format!("{}: server is not the URL of a server", cluster.what("the cluster")));
    };
    let mut config = Config::new(url);
    config.accept_invalid_certs = cluster.flag("insecure-skip-tls-verify")?;
    config.disable_compression = cluster.flag("disable-compression")?;
    if !is_overridden {
        config.tls_server_name = cluster.text("tls-server-name")?;
    }
    match cluster.base64("certificate-authority-data")? {
        Some(pem) => config.root_cert = Some(cluster.certificates(&pem)?),
        // Read for each handshake, so that a renewed authority is trusted.
        None => config.root_cert_file = cluster.path("certificate-authority")?.map(PathBuf::from),
    }
    if config.accept_invalid_certs && (config.root_cert.is_some() || config.root_cert_file.is_some()) {
        let what = cluster.what("the cluster");
        return invalid(format!("{what}: insecure-skip-tls-verify and a certificate authority exclude each other"));
    }
    if let Some(proxy) = cluster.text("proxy-url")? {
        let parsed = proxy.parse::<Uri>().ok();
        let is_known = |proxy: &Uri| matches!(proxy.scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
        config.proxy_url = parsed.filter(is_known);
        if config.proxy_url.is_none() {
            // The URL is not quoted: it may contain a password.
            let what = cluster.what("the cluster");
            return invalid(format!("{what}: proxy-url is not the URL of an http, https or socks5 proxy"));
        }
    }
    Ok(config)
}

/// Removes the user's name and password from a URL, and returns them. Go sends them as basic authentication.
fn take_user(url: &mut Uri) -> Result<Option<(String, SecretString)>> {
    let Some((user, host)) = url.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok(None);
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let found = (decoded(name), SecretString::from(decoded(password)));
    let mut parts = url.clone().into_parts();
    parts.authority = host.parse().ok();
    match Uri::from_parts(parts) {
        Ok(without) => *url = without,
        Err(_) => return invalid("the server's URL has a user and no host"),
    }
    Ok(Some(found))
}

fn of_user(user: &Fields, cluster: &Fields, address: &str) -> Result<AuthInfo> {
    let what = user.what("the user");
    let secret = |text: Option<String>| text.map(SecretString::from);
    let mut info = AuthInfo {
        token: secret(user.text("token")?),
        token_file: user.path("tokenFile")?,
        username: user.text("username")?,
        password: secret(user.text("password")?),
        impersonate: user.text("as")?,
        impersonate_uid: user.text("as-uid")?,
        impersonate_groups: Some(user.texts("as-groups")?).filter(|groups| !groups.is_empty()),
        impersonate_user_extra: user.text_lists("as-user-extra")?,
        exec: user.fields("exec")?.map(|exec| of_exec(&exec, cluster, address)).transpose()?,
        auth_provider: user.fields("auth-provider")?.map(|provider| of_provider(&provider)).transpose()?,
        ..AuthInfo::default()
    };
    if info.username.is_some() || info.password.is_some() {
        if info.token.is_some() {
            return invalid(format!("{what} has both a token and a password: only one of them is allowed"));
        }
        info.username.get_or_insert_default();
        info.password.get_or_insert_default();
    }
    // As in client-go, a key without a certificate is ignored.
    info.client_certificate_data = user.wrapped("client-certificate-data")?;
    info.client_certificate = user.path("client-certificate")?;
    if info.client_certificate_data.is_some() || info.client_certificate.is_some() {
        info.client_key_data = secret(user.wrapped("client-key-data")?);
        info.client_key = user.path("client-key")?;
        if info.client_key_data.is_none() && info.client_key.is_none() {
            return invalid(format!("{what} has a client certificate and no client key"));
        }
    }
    if info.exec.is_some() && info.auth_provider.is_some() {
        return invalid(format!("{what} has both exec and auth-provider: only one of them is allowed"));
    }
    let acts_as =
        info.impersonate_uid.is_some() || info.impersonate_groups.is_some() || info.impersonate_user_extra.is_some();
    if acts_as && info.impersonate.is_none() {
        return invalid(format!("{what} impersonates a UID, groups or extra fields without a user (as)"));
    }
    Ok(info)
}

fn of_provider(provider: &Fields) -> Result<AuthProviderConfig> {
    let config = provider.fields("config")?.map(|config| config.all_texts()).transpose()?.unwrap_or_default();
    Ok(AuthProviderConfig { name: provider.text("name")?.unwrap_or_default(), config, ..AuthProviderConfig::default() })
}

fn of_exec(exec: &Fields, cluster: &Fields, address: &str) -> Result<ExecConfig> {
    let what = exec.what("exec");
    let Some(command) = exec.command("command")? else { return invalid(format!("{what} has no command")) };
    let Some(api_version) = exec.text("apiVersion")? else { return invalid(format!("{what} has no apiVersion")) };
    let interactive_mode = match exec.text("interactiveMode")?.as_deref() {
        // client-go's default, except that it refuses v1 without a mode.
        None | Some("IfAvailable") => ExecInteractiveMode::IfAvailable,
        Some("Never") => ExecInteractiveMode::Never,
        Some("Always") => ExecInteractiveMode::Always,
        Some(mode) => return invalid(format!("{what}: interactiveMode is {mode:?}, not Never, IfAvailable or Always")),
    };
    let provide_cluster_info = exec.flag("provideClusterInfo")?;
    Ok(ExecConfig {
        command: Some(command),
        api_version: Some(api_version),
        args: Some(exec.texts("args")?),
        env: Some(exec.variables("env")?),
        install_hint: exec.text("installHint")?,
        interactive_mode: Some(interactive_mode),
        provide_cluster_info,
        cluster: provide_cluster_info.then(|| exec_cluster(cluster, address)).transpose()?,
        ..ExecConfig::default()
    })
}

fn exec_cluster(cluster: &Fields, address: &str) -> Result<ExecAuthCluster> {
    let authority = match (cluster.base64("certificate-authority-data")?, cluster.path("certificate-authority")?) {
        (Some(pem), _) => Some(pem),
        (None, Some(path)) => match std::fs::read(&path) {
            Ok(pem) => Some(pem),
            Err(error) => return invalid(format!("{path}: {error}")),
        },
        (None, None) => None,
    };
    Ok(ExecAuthCluster {
        server: Some(address.to_owned()),
        insecure_skip_tls_verify: Some(cluster.flag("insecure-skip-tls-verify")?).filter(|skip| *skip),
        certificate_authority_data: authority,
        proxy_url: cluster.text("proxy-url")?,
        tls_server_name: cluster.text("tls-server-name")?,
        config: cluster.extension("client.authentication.k8s.io/exec")?,
    })
}
