//! Both clients of a program: listwatch's for reads, and kube's for writes.

use kube::Config;
use listwatch::client::{Client, TransportError, TransportErrorKind};

use crate::transport::KubeTransport;

/// Creates a client of listwatch for lists, watches and caches, and a client of kube for all other requests.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kube::Api;
/// use listwatch_kube::listwatch_cache::Reflector;
/// use listwatch_kube::{Kube, Kubeconfig};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Kubeconfig::default().load()?.ok_or("no kubeconfig, and not in a cluster")?;
/// let (reads, writes) = listwatch_kube::clients(config)?;
/// let pods = Reflector::<Kube<Pod>>::of(&reads).spawn();
/// let config_maps = Api::<ConfigMap>::default_namespaced(writes);
/// # Ok(())
/// # }
/// ```
///
/// | client | created by | connections |
/// |---|---|---|
/// | listwatch's | [`KubeTransport::from_config`] | for long responses: no retries and no read timeout of kube |
/// | kube's | `kube::Client::try_from` | with kube's retries and timeouts, as before a migration |
///
/// They share no connections, and an exec plugin runs once for each. A program that has only a `kube::Client` makes its
/// reads from it by [`KubeTransport::new`]. A program that does not write needs only [`KubeTransport`].
///
/// # Errors
///
/// Those of [`KubeTransport::from_config`] and of `kube::Client::try_from`, which also runs an exec plugin.
pub fn clients(config: Config) -> Result<(Client, kube::Client), TransportError> {
    // First, because it installs a crypto provider if the process has none.
    let reads = Client::new(KubeTransport::from_config(config.clone())?);
    let writes = kube::Client::try_from(config).map_err(|error| match &error {
        kube::Error::Auth(_) => TransportError::from_error(TransportErrorKind::Credentials, &error),
        error => TransportError::from_error(TransportErrorKind::Setup, error),
    })?;
    Ok((reads, writes))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, DeleteParams};
    use listwatch::client::{ListParams, Resource};
    use listwatch_testserver::{Answer, Body, RecordedRequest, Server, recorded_pods};

    use super::*;

    #[tokio::test]
    async fn both_clients_send_the_credentials() {
        let server = Server::start(|request: &RecordedRequest, _| match request.method.as_str() {
            "GET" => Answer::ok(Body::replay(recorded_pods())),
            _ => Answer::ok(Body::replay(r#"{"kind":"Status","status":"Success"}"#)).content_type("application/json"),
        });
        let server = server.await.unwrap();
        let mut config = Config::new(server.url().parse().unwrap());
        config.auth_info.token = Some("s3cret".into());
        let (reads, writes) = clients(config).unwrap();
        let pods = reads.list::<[u8]>(&Resource::PODS, &ListParams::default()).into_vec().await.unwrap().0;
        assert_eq!(pods.len(), 120);
        Api::<Pod>::namespaced(writes, "web").delete("a", &DeleteParams::default()).await.unwrap();
        let requests = server.requests();
        let paths: Vec<_> = requests.iter().map(|request| request.path.split('?').next().unwrap()).collect();
        assert_eq!(paths, ["/api/v1/pods", "/api/v1/namespaces/web/pods/a"]);
        assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer s3cret"));
    }

    #[tokio::test]
    async fn a_file_that_does_not_exist_is_an_error() {
        let config = || Config::new("https://10.0.0.1".parse().unwrap());
        let (mut token, mut authority) = (config(), config());
        token.auth_info.token_file = Some("/none/token".to_owned());
        authority.root_cert_file = Some("/none/ca.pem".into());
        for (config, kind) in [(token, TransportErrorKind::Credentials), (authority, TransportErrorKind::Setup)] {
            let error = clients(config).map(drop).unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains("/none/"), "{error}");
        }
    }
}
