//! The cluster in which this process runs (`InClusterConfig` in `rest/config.go` of client-go).

use std::path::Path;
use std::{env, fs};

use crate::client::http_transport::Config;
use crate::client::transport::{TransportError, TransportErrorKind};

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Config {
    /// Returns the configuration of the cluster in which this process runs, with its Pod's service account.
    ///
    /// [`Client::try_default`](crate::client::Client::try_default) does the same if there is no kubeconfig.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup) outside of a cluster.
    pub fn in_cluster() -> Result<Self, TransportError> {
        service_account_config().ok_or_else(|| {
            let error =
                "not in a cluster: KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT or the service account is missing";
            TransportError::new(TransportErrorKind::Setup, error)
        })
    }
}

/// Returns the configuration of the service account; `None` outside of a cluster.
pub(super) fn service_account_config() -> Option<Config> {
    config_of_account(Path::new(ACCOUNT), |name| env::var(name).ok())
}

/// Returns the namespace of this process; `None` outside of a cluster.
pub(super) fn pod_namespace() -> Option<String> {
    namespace_of_account(Path::new(ACCOUNT), |name| env::var(name).ok())
}

fn server_address(account: &Path, variable: &impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let found = (set("KUBERNETES_SERVICE_HOST")?, set("KUBERNETES_SERVICE_PORT")?);
    account.join("token").is_file().then_some(found)
}

fn config_of_account(account: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<Config> {
    let (host, port) = server_address(account, &variable)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let mut config = Config::new(format!("https://{host}:{port}")).token_file(account.join("token"));
    let authority = account.join("ca.crt");
    if authority.is_file() {
        config = config.ca_file(authority);
    }
    config.is_own_cluster = true;
    config.namespace = namespace_of_account(account, variable);
    Some(config)
}

fn namespace_of_account(account: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    server_address(account, &variable)?;
    let of_file = || fs::read_to_string(account.join("namespace")).ok().map(|text| text.trim().to_owned());
    variable("POD_NAMESPACE").filter(|name| !name.is_empty()).or_else(of_file).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use listwatch_testserver::{Answer, Body, Server, recorded_pods};

    use super::*;
    use crate::client::http_transport::{Authority, Login};
    use crate::client::transport::Transport as _;
    use crate::client::{Client, ListParams, Resource};

    #[test]
    fn reads_the_service_account_of_a_pod() {
        let folder = tempfile::tempdir().unwrap();
        let in_pod = |name: &str| match name {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            _ => None,
        };
        let load = || config_of_account(folder.path(), in_pod);
        assert!(load().is_none(), "no token");
        fs::write(folder.path().join("token"), "t0ken").unwrap();
        assert!(config_of_account(folder.path(), |_| None).is_none(), "no variables");
        let config = load().unwrap();
        assert_eq!((config.server(), config.default_namespace()), ("https://[fd00::1]:443", "default"));
        assert!(matches!(config.connection.authority, Authority::Platform));
        fs::write(folder.path().join("ca.crt"), "").unwrap();
        fs::write(folder.path().join("namespace"), "web\n").unwrap();
        let config = load().unwrap();
        assert!(matches!(&config.connection.authority, Authority::File(file) if *file == folder.path().join("ca.crt")));
        assert_eq!(config.default_namespace(), "web");
        assert!(matches!(&config.login, Login::TokenFile { path, .. } if *path == folder.path().join("token")));
    }

    #[tokio::test]
    async fn lists_with_the_service_account() {
        let server = Server::start_tls(Answer::ok(Body::replay(recorded_pods())).always()).await.unwrap();
        let account = tempfile::tempdir().unwrap();
        fs::write(account.path().join("ca.crt"), server.ca_pem().unwrap()).unwrap();
        fs::write(account.path().join("token"), "t0ken\n").unwrap();
        let port = server.addr().port().to_string();
        let config = config_of_account(account.path(), |name| match name {
            "KUBERNETES_SERVICE_HOST" => Some("127.0.0.1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some(port.clone()),
            _ => None,
        });
        let transport = config.unwrap().build().unwrap();
        assert!(transport.is_near());
        let list = Client::new(transport).list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap().0.len(), 120);
        assert_eq!(server.requests()[0].headers["authorization"], "Bearer t0ken");
    }
}
