//! The fields of a kubeconfig as the configuration of kube.

use std::path::PathBuf;
use std::{fs, mem};

use http::Uri;
use kube::Config;
use kube::config::{AuthInfo, AuthProviderConfig, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use secrecy::SecretString;

use super::error::{Result, invalid};
use super::fields::KubeconfigFields;

/// Removes the credentials, except impersonation, and warns if there were any. client-go reads them only for `https`
/// (`ClientConfig` in `client_config.go`).
pub(super) fn remove_credentials(config: &mut Config) {
    let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } =
        config.auth_info.clone();
    let user = mem::replace(
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

/// Returns the configuration of a cluster: the server, its TLS and its proxy.
pub(super) fn cluster_config(address: &str, cluster: &KubeconfigFields, is_overridden: bool) -> Result<Config> {
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
    match cluster.decoded_base64("certificate-authority-data")? {
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
pub(super) fn take_url_user(url: &mut Uri) -> Result<Option<(String, SecretString)>> {
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

/// Returns the credentials of a user.
pub(super) fn auth_info(user: &KubeconfigFields, cluster: &KubeconfigFields, address: &str) -> Result<AuthInfo> {
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
        exec: user.fields("exec")?.map(|exec| exec_config(&exec, cluster, address)).transpose()?,
        auth_provider: user.fields("auth-provider")?.map(|provider| auth_provider_config(&provider)).transpose()?,
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
    info.client_certificate_data = user.base64_text("client-certificate-data")?;
    info.client_certificate = user.path("client-certificate")?;
    if info.client_certificate_data.is_some() || info.client_certificate.is_some() {
        info.client_key_data = secret(user.base64_text("client-key-data")?);
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

/// Returns an auth provider with its settings.
fn auth_provider_config(provider: &KubeconfigFields) -> Result<AuthProviderConfig> {
    let config = provider.fields("config")?.map(|config| config.all_texts()).transpose()?.unwrap_or_default();
    Ok(AuthProviderConfig { name: provider.text("name")?.unwrap_or_default(), config, ..AuthProviderConfig::default() })
}

/// Returns the command of an exec plugin.
fn exec_config(exec: &KubeconfigFields, cluster: &KubeconfigFields, address: &str) -> Result<ExecConfig> {
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
        cluster: provide_cluster_info.then(|| exec_cluster_info(cluster, address)).transpose()?,
        ..ExecConfig::default()
    })
}

/// Returns what `provideClusterInfo` passes to an exec plugin.
fn exec_cluster_info(cluster: &KubeconfigFields, address: &str) -> Result<ExecAuthCluster> {
    let authority =
        match (cluster.decoded_base64("certificate-authority-data")?, cluster.path("certificate-authority")?) {
            (Some(pem), _) => Some(pem),
            (None, Some(path)) => match fs::read(&path) {
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
