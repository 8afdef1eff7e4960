//! Converts the fields of a kubeconfig into a configuration of the client.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::Uri;
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::fields::{KubeconfigFields, Result, invalid};
use crate::client::http_transport::{
    Authority, Config, ExecConfig, Identity, Impersonation, InteractiveMode, Login, ProviderConfig,
};

/// Returns the configuration of a cluster: the server, its TLS and its proxy. As in Go, a user in the URL logs in.
pub(super) fn cluster_config(address: &str, cluster: &KubeconfigFields, is_overridden: bool) -> Result<Config> {
    // As in client-go, an address without a scheme is http.
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let parsed = url.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let Some(mut url) = parsed.filter(|url| url.host().is_some_and(|host| !host.is_empty())) else {
        return invalid(format!("{}: server is not the URL of a server", cluster.what("the cluster")));
    };
    let login = take_url_user(&mut url)?;
    let mut config = Config::new(url.to_string());
    config.login = login;
    config.disables_compression = cluster.flag("disable-compression")?;
    if !is_overridden {
        config.connection.server_name = cluster.text("tls-server-name")?;
    }
    // A file is read for each handshake, so that a renewed authority is trusted.
    let authority = match (cluster.certificates()?, cluster.path("certificate-authority")?) {
        (Some(pem), _) => Authority::Pem(pem),
        (None, Some(file)) => Authority::File(file),
        (None, None) => Authority::Platform,
    };
    config.connection.authority = match (cluster.flag("insecure-skip-tls-verify")?, authority) {
        (false, authority) => authority,
        (true, Authority::Platform) => Authority::Unverified,
        (true, _) => {
            let what = cluster.what("the cluster");
            return invalid(format!("{what}: insecure-skip-tls-verify and a certificate authority exclude each other"));
        }
    };
    if let Some(proxy) = cluster.text("proxy-url")? {
        let scheme = proxy.parse::<Uri>().ok().and_then(|url| url.scheme_str().map(str::to_owned));
        if !matches!(scheme.as_deref(), Some("http" | "https" | "socks5" | "socks5h")) {
            // The URL is not quoted, because it may contain a password.
            let what = cluster.what("the cluster");
            return invalid(format!("{what}: proxy-url is not the URL of an http, https or socks5 proxy"));
        }
        config.connection.proxy = Some(proxy.into());
    }
    Ok(config)
}

/// Removes the user's name and password from a URL, and returns them.
fn take_url_user(url: &mut Uri) -> Result<Login> {
    let Some((user, host)) = url.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok(Login::None);
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let login = Login::Password(decoded(name), decoded(password).into());
    let mut parts = url.clone().into_parts();
    parts.authority = host.parse().ok();
    match Uri::from_parts(parts) {
        Ok(without) => *url = without,
        Err(_) => return invalid("the server's URL has a user and no host"),
    }
    Ok(login)
}

/// Adds the credentials of a user.
///
/// The order is client-go's: `HTTPWrappersForConfig`, then exec's `UpdateTransportConfig`. A plugin does not run next
/// to other credentials.
pub(super) fn add_user(
    config: &mut Config,
    user: &KubeconfigFields,
    cluster: &KubeconfigFields,
    address: &str,
) -> Result<()> {
    let what = user.what("the user");
    let secret = |key| user.text(key).map(|text| text.map(SecretString::from));
    config.identity = identity(user)?;
    config.impersonation = impersonation(user)?;
    let (token, name, password) = (secret("token")?, user.text("username")?, secret("password")?);
    let has_password = name.is_some() || password.is_some();
    if has_password && token.is_some() {
        return invalid(format!("{what} has both a token and a password: only one of them is allowed"));
    }
    let exec = user.fields("exec")?.map(|exec| exec_config(&exec, cluster, address)).transpose()?;
    let provider = user.fields("auth-provider")?.map(|provider| provider_config(&provider)).transpose()?;
    let login = match (provider, exec) {
        (Some(_), Some(_)) => {
            return invalid(format!("{what} has both exec and auth-provider: only one of them is allowed"));
        }
        (Some(provider), None) => Login::Provider(provider),
        (None, exec) => match (user.path("tokenFile")?, token) {
            _ if has_password => Login::Password(name.unwrap_or_default(), password.unwrap_or_default()),
            (Some(path), initial) => Login::TokenFile { path, initial },
            (None, Some(token)) => Login::Token(token),
            (None, None) => exec.filter(|_| config.identity.is_none()).map_or(Login::None, Login::Exec),
        },
    };
    if !config.has_login() {
        config.login = login;
    }
    Ok(())
}

/// Returns the client certificate. As in client-go, a key without a certificate is ignored.
fn identity(user: &KubeconfigFields) -> Result<Option<Identity>> {
    let Some(certificate) = user.pem("client-certificate-data", "client-certificate")? else { return Ok(None) };
    match user.pem("client-key-data", "client-key")? {
        Some(key) => Ok(Some(Identity { certificate, key })),
        None => invalid(format!("{} has a client certificate and no client key", user.what("the user"))),
    }
}

fn impersonation(user: &KubeconfigFields) -> Result<Option<Impersonation>> {
    let (uid, groups, extra) = (user.text("as-uid")?, user.texts("as-groups")?, user.text_lists("as-user-extra")?);
    let Some(name) = user.text("as")? else {
        if uid.is_none() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let what = user.what("the user");
        return invalid(format!("{what} impersonates a UID, groups or extra fields without a user (as)"));
    };
    Ok(Some(Impersonation { user: name, uid, groups, extra }))
}

fn provider_config(provider: &KubeconfigFields) -> Result<ProviderConfig> {
    let settings = provider.fields("config")?.map(|config| config.all_texts()).transpose()?.unwrap_or_default();
    Ok(ProviderConfig { name: provider.text("name")?.unwrap_or_default(), settings })
}

fn exec_config(exec: &KubeconfigFields, cluster: &KubeconfigFields, address: &str) -> Result<ExecConfig> {
    let what = exec.what("exec");
    let Some(command) = exec.command("command")? else { return invalid(format!("{what} has no command")) };
    let Some(api_version) = exec.text("apiVersion")? else { return invalid(format!("{what} has no apiVersion")) };
    let interactive_mode = match exec.text("interactiveMode")?.as_deref() {
        // client-go's default, except that it refuses v1 without a mode.
        None | Some("IfAvailable") => InteractiveMode::IfAvailable,
        Some("Never") => InteractiveMode::Never,
        Some("Always") => InteractiveMode::Always,
        Some(mode) => return invalid(format!("{what}: interactiveMode is {mode:?}, not Never, IfAvailable or Always")),
    };
    Ok(ExecConfig {
        command,
        args: exec.texts("args")?,
        env: exec.variables("env")?,
        api_version,
        install_hint: exec.text("installHint")?,
        interactive_mode,
        cluster: exec.flag("provideClusterInfo")?.then(|| cluster_info(cluster, address)).transpose()?,
    })
}

/// Returns what `provideClusterInfo` passes to an exec plugin (`Cluster` of `client.authentication.k8s.io`).
fn cluster_info(cluster: &KubeconfigFields, address: &str) -> Result<Value> {
    let authority =
        match (cluster.decoded_base64("certificate-authority-data")?, cluster.path("certificate-authority")?) {
            (Some(pem), _) => Some(pem),
            (None, Some(path)) => match fs::read(&path) {
                Ok(pem) => Some(pem),
                Err(error) => return invalid(format!("{}: {error}", path.display())),
            },
            (None, None) => None,
        };
    let mut info = Map::new();
    let mut add = |key: &str, value: Option<Value>| info.extend(value.map(|value| (key.to_owned(), value)));
    add("server", Some(address.into()));
    add("tls-server-name", cluster.text("tls-server-name")?.map(Value::from));
    add("insecure-skip-tls-verify", cluster.flag("insecure-skip-tls-verify")?.then_some(true.into()));
    add("certificate-authority-data", authority.map(|pem| BASE64_STANDARD.encode(pem).into()));
    add("proxy-url", cluster.text("proxy-url")?.map(Value::from));
    add("disable-compression", cluster.flag("disable-compression")?.then_some(true.into()));
    add("config", cluster.extension("client.authentication.k8s.io/exec")?);
    Ok(info.into())
}
