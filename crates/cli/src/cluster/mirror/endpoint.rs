//! Where readers find the mirror.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf, absolute};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::json;

use crate::failure::Failure;
use crate::notices;
use crate::output::to_yaml;
use crate::partial_file::{create_beside, replace};

/// Where readers find the mirror.
pub struct MirrorEndpoint {
    pub address: SocketAddr,
    /// The file of the certificate; `None` without TLS.
    pub certificate: Option<PathBuf>,
    /// A certificate that was generated for this run, as PEM.
    pub generated_certificate: Option<String>,
    /// The token that readers need, which only the kubeconfig shows.
    pub token: Option<String>,
    /// The namespace of kubectl's commands without `-n`.
    pub namespace: Option<String>,
}

impl MirrorEndpoint {
    /// Prints where the mirror serves, and how to use it.
    pub fn announce(&self) {
        notices::print_labelled("serving:", &self.url());
        if self.token.is_some() {
            notices::print_labelled(
                "try:",
                "kubectl --kubeconfig FILE get pods -A, with the file of --write-kubeconfig",
            );
            return;
        }
        let server = format!("kubectl --server {}", self.url());
        let hint = match &self.certificate {
            None => format!("{server} get pods -A"),
            Some(_) => format!("{server} --certificate-authority FILE --token TOKEN get pods -A"),
        };
        notices::print_labelled("try:", &hint);
    }

    fn url(&self) -> String {
        let is_tls = self.certificate.is_some() || self.generated_certificate.is_some();
        let scheme = if is_tls { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("{scheme}://{address}")
    }

    /// Writes a kubeconfig, without credentials unless the token was generated for this run. Only its owner can read a
    /// new file.
    pub fn write_kubeconfig(&self, file: &Path) -> Result<(), Failure> {
        let cannot_write =
            |error: io::Error| Failure::Error(format!("cannot write {}: {error}", file.to_string_lossy()));
        let document =
            self.kubeconfig().and_then(|json| to_yaml(json.to_string().as_bytes()).map_err(io::Error::other));
        let mut temporary = create_beside(file).map_err(cannot_write)?;
        temporary.write_all(&document.map_err(cannot_write)?).map_err(cannot_write)?;
        replace(file, temporary).map_err(cannot_write)
    }

    fn kubeconfig(&self) -> io::Result<serde_json::Value> {
        let mut cluster = json!({ "server": self.url() });
        if let Some(certificate) = &self.certificate {
            cluster["certificate-authority"] = absolute(certificate)?.to_string_lossy().into();
        }
        if let Some(pem) = &self.generated_certificate {
            cluster["certificate-authority-data"] = BASE64_STANDARD.encode(pem).into();
        }
        let mut context = json!({ "cluster": NAME, "user": "" });
        if let Some(namespace) = &self.namespace {
            context["namespace"] = namespace.as_str().into();
        }
        let mut users = json!([]);
        if let Some(token) = &self.token {
            context["user"] = NAME.into();
            users = json!([{ "name": NAME, "user": { "token": token } }]);
        }
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": NAME, "cluster": cluster }],
            "contexts": [{ "name": NAME, "context": context }],
            "current-context": NAME,
            "users": users,
        }))
    }
}

/// The name of the cluster and of the context.
const NAME: &str = "listwatch-mirror";
