//! The settings of a `reqwest::Client`: TLS and proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Proxy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};

use super::errors::{setup, tls_setup};
use crate::client::authorities::Authorities;
use crate::client::tls::{crypto_provider, tls_config};
use crate::client::transport::{MAX_HEADERS, TransportError};

pub(super) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of a client, without the contents of files.
#[derive(Default)]
pub(super) struct ClientSettings {
    pub(super) authority: Option<Authority>,
    pub(super) identity: Option<ClientIdentity>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) proxy: Option<Proxy>,
    pub(super) resolver: Option<Arc<OneHost>>,
}

pub(super) enum Authority {
    Pem(Vec<u8>),
    File(PathBuf),
}

pub(super) enum ClientIdentity {
    /// The certificate, followed by the key.
    Pem(SecretString),
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

pub(super) fn identity(certificate_pem: &str, key_pem: &str) -> SecretString {
    format!("{certificate_pem}\n{key_pem}").into()
}

/// Resolves every name to the addresses of one host, because the URL contains the name in the certificate instead of
/// the host.
pub(super) struct OneHost(pub(super) String);

impl Resolve for OneHost {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<_> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl ClientSettings {
    /// Returns the client's certificate and key. Reads them if they are in files.
    pub(super) fn identity_pem(&self) -> Result<Option<SecretString>, TransportError> {
        let read =
            |path: &Path| fs::read_to_string(path).map_err(|error| setup(format!("{}: {error}", path.display())));
        match &self.identity {
            None => Ok(None),
            Some(ClientIdentity::Pem(pem)) => Ok(Some(pem.clone())),
            Some(ClientIdentity::Files { certificate, key }) => {
                let key = SecretString::from(read(key)?);
                Ok(Some(identity(&read(certificate)?, key.expose_secret())))
            }
        }
    }

    /// Returns the TLS settings.
    fn tls(&self, identity: Option<&SecretString>) -> Result<ClientConfig, TransportError> {
        let provider = crypto_provider()?;
        let authorities = match &self.authority {
            None => Authorities::of_platform(Arc::clone(&provider)),
            Some(Authority::Pem(pem)) => Authorities::from_pem(pem, Arc::clone(&provider))?,
            Some(Authority::File(path)) => Authorities::from_file(path, Arc::clone(&provider))?,
        };
        let mut config = tls_config(&provider, Arc::new(authorities), identity.map(SecretString::expose_secret))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    pub(super) fn client(&self, identity: Option<&SecretString>) -> Result<reqwest::Client, TransportError> {
        // HTTP/2 would queue all requests that exceed the streams of its one connection, and tell nobody.
        let mut builder = reqwest::Client::builder()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT));
        builder = match &self.proxy {
            Some(proxy) => builder.proxy(proxy.clone()),
            // reqwest has other rules for the proxies of the environment.
            None => builder.no_proxy(),
        };
        if let Some(resolver) = &self.resolver {
            builder = builder.dns_resolver(Arc::clone(resolver));
        }
        builder = builder.tls_backend_preconfigured(self.tls(identity)?).http1_max_headers(MAX_HEADERS);
        builder.build().map_err(|error| tls_setup("the HTTP client", error))
    }
}
