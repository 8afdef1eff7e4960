//! The cluster in which this process runs (`InClusterConfig` in `rest/config.go` of client-go).

use std::path::{Path, PathBuf};
use std::{env, fs};

use kube::Config;

use super::error::{KubeconfigError, Result};

/// The folder of the service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the configuration of the service account; `None` outside of a cluster.
pub(super) fn service_account_config() -> Result<Option<Config>> {
    config_of_account(Path::new(ACCOUNT), |name| env::var(name).ok())
}

/// Returns the namespace of this process; `None` outside of a cluster.
pub(super) fn pod_namespace() -> Option<String> {
    namespace_of_account(Path::new(ACCOUNT), |name| env::var(name).ok())
}

/// Returns host and port of the server.
fn server_address(account: &Path, variable: &impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let found = (set("KUBERNETES_SERVICE_HOST")?, set("KUBERNETES_SERVICE_PORT")?);
    account.join("token").is_file().then_some(found)
}

fn config_of_account(account: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Config>> {
    let Some((host, port)) = server_address(account, &variable) else { return Ok(None) };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url = format!("https://{host}:{port}").parse();
    let mut config = Config::new(
        url.map_err(|_| KubeconfigError::new("KUBERNETES_SERVICE_HOST and _PORT are not the address of a server"))?,
    );
    let authority = account.join("ca.crt");
    config.root_cert_file = authority.is_file().then(|| PathBuf::from(&authority));
    config.auth_info.token_file = Some(account.join("token").to_string_lossy().into_owned());
    config.default_namespace = namespace_of_account(account, variable).unwrap_or_else(|| "default".to_owned());
    Ok(Some(config))
}

fn namespace_of_account(account: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    server_address(account, &variable)?;
    let of_file = || fs::read_to_string(account.join("namespace")).ok().map(|text| text.trim().to_owned());
    variable("POD_NAMESPACE").filter(|name| !name.is_empty()).or_else(of_file).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_service_account_of_a_pod() {
        let folder = tempfile::tempdir().unwrap();
        let in_pod = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            _ => None,
        };
        let load = || config_of_account(folder.path(), in_pod).unwrap();
        assert!(load().is_none(), "no token");
        fs::write(folder.path().join("token"), "t0ken").unwrap();
        assert!(config_of_account(folder.path(), |_| None).unwrap().is_none(), "no variables");
        let config = load().unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://[fd00::1]:443/");
        assert_eq!((config.root_cert_file, config.default_namespace.as_str()), (None, "default"));
        fs::write(folder.path().join("ca.crt"), "").unwrap();
        fs::write(folder.path().join("namespace"), "web\n").unwrap();
        let config = load().unwrap();
        assert_eq!(config.root_cert_file, Some(folder.path().join("ca.crt")));
        assert_eq!(config.default_namespace, "web");
        assert_eq!(config.auth_info.token_file.as_deref(), folder.path().join("token").to_str());
    }
}
