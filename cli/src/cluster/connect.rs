//! The options that name an API server, and the transport to it.

use std::io;
use std::path::PathBuf;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use listwatch::client::{HttpTransport, Transport};
use listwatch::client::{Request, ResponseFuture};
use listwatch_kube::KubeTransport;

use super::warnings;
use crate::failure::Failure;

#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The kubeconfig [default: $KUBECONFIG, else ~/.kube/config, else the service account of this Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig, in place of its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The API server, in place of everything from a kubeconfig: https://host:port, or that of `kubectl proxy`
    #[arg(short, long, value_name = "URL", conflicts_with_all = ["kubeconfig", "context"])]
    server: Option<String>,

    /// The bearer token for --server, read again for each request
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,

    /// The certificate authorities (PEM) to trust for --server, in place of the platform's; read again when a request fails
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
}

impl Connection {
    /// Returns the server and the default namespace. From then on, warnings of its client are shown.
    pub async fn open(self) -> Result<(Server, String), Failure> {
        warnings::show();
        if let Some(url) = &self.server {
            return Ok((Server::Direct(Box::new(self.direct(url)?)), "default".to_owned()));
        }
        let config = self.config().await?;
        let namespace = config.default_namespace.clone();
        let transport = KubeTransport::from_config(config).map_err(|error| Failure::Error(error.to_string()))?;
        Ok((Server::Kube(Box::new(transport)), namespace))
    }

    fn direct(&self, url: &str) -> Result<HttpTransport, Failure> {
        let mut builder = HttpTransport::builder(url);
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path);
        }
        if let Some(path) = &self.certificate_authority {
            builder = builder.ca_file(path);
        }
        builder.build().map_err(|error| Failure::Error(error.to_string()))
    }

    async fn config(self) -> Result<Config, Failure> {
        let chosen = self.kubeconfig.is_some() || self.context.is_some();
        let kubeconfig = self.kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let kubeconfig = match kubeconfig {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if !chosen && is_missing(&error) => {
                return Config::incluster().map_err(|_| {
                    let reason = "no kubeconfig, and not in a cluster: name one with --kubeconfig, or a --server";
                    Failure::Error(reason.to_owned())
                });
            }
            Err(error) => return Err(refused(&error)),
        };
        let options = KubeConfigOptions { context: self.context, ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| refused(&error))
    }
}

/// A transport to the server.
pub enum Server {
    Direct(Box<HttpTransport>),
    Kube(Box<KubeTransport>),
}

impl Server {
    fn inner(&self) -> &dyn Transport {
        match self {
            Self::Direct(transport) => &**transport,
            Self::Kube(transport) => &**transport,
        }
    }
}

impl Transport for Server {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.inner().get(request)
    }

    fn is_near(&self) -> bool {
        self.inner().is_near()
    }

    fn renews_credentials(&self) -> bool {
        self.inner().renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        self.inner().redact(text)
    }
}

fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

fn refused(error: &KubeconfigError) -> Failure {
    // A YAML error quotes the lines around it, which may hold a token.
    let reason = match error {
        KubeconfigError::Parse(_) => "not a kubeconfig in YAML".to_owned(),
        error => error.to_string(),
    };
    Failure::Error(format!("kubeconfig: {reason}"))
}
