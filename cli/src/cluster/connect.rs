//! The options that name an API server and its credentials, and the transport to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use listwatch::client::{Client, Compression, HttpTransport, Request, ResponseFuture, Transport};
use listwatch_kube::KubeTransport;

use crate::failure::{Failure, chain};
use crate::notices;

/// As in kubectl, each option overrides its part of the kubeconfig.
#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the service account of this Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Cluster of the kubeconfig [default: the context's]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// User of the kubeconfig [default: the context's]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Address of the API server [default: the cluster's]. With an http:// address (`http://localhost:8001` while `kubectl proxy` runs),
    /// the kubeconfig is ignored unless --kubeconfig, --context, --cluster or --user is given
    #[arg(short, long, value_name = "URL", value_parser = url)]
    server: Option<String>,

    /// Bearer token. Other users of this machine can see it in the list of processes: prefer --token-file
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,

    /// File that contains the bearer token; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// File of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<PathBuf>,

    /// File of the client certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<PathBuf>,

    /// File of the certificate authorities (PEM) to trust, in place of the cluster's; reloaded when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    certificate_authority: Option<PathBuf>,

    /// Name that the server's certificate must have [default: the host of the address]
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,

    /// Accept any certificate of the server. This makes the connection insecure
    #[arg(long)]
    insecure_skip_tls_verify: bool,

    /// Request no gzip. By default, the command requests gzip unless the server is on this machine or in the same cluster
    #[arg(long)]
    disable_compression: bool,

    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,

    /// Group to impersonate; repeat for several groups
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    impersonate_groups: Vec<String>,

    /// UID to impersonate
    #[arg(long = "as-uid", value_name = "UID", requires = "impersonate")]
    impersonate_uid: Option<String>,
}

impl Connection {
    /// Returns a client of the server, and the default namespace.
    pub async fn client(self) -> Result<(Client, String), Failure> {
        let compression = self.compression();
        let (server, namespace) = self.open().await?;
        Ok((Client::new(server).compression(compression), namespace))
    }

    /// Returns a client of the server and its transport, and a client whose connections are read on the caller's runtime.
    pub async fn shared(self) -> Result<(Client, Arc<dyn Transport>, Client), Failure> {
        let config = self.config().await?;
        let transport: Arc<dyn Transport> = Arc::new(self.transport(config.clone(), Reads::OwnThread)?);
        let on_runtime = self.transport(config, Reads::CallerRuntime)?;
        let client = |transport| Client::new(transport).compression(self.compression());
        Ok((client(Arc::clone(&transport)), transport, client(Arc::new(on_runtime))))
    }

    fn compression(&self) -> Compression {
        if self.disable_compression { Compression::Identity } else { Compression::default() }
    }

    /// Returns the server and the default namespace.
    pub async fn open(self) -> Result<(Server, String), Failure> {
        let config = self.config().await?;
        let namespace = config.as_ref().map_or_else(|| "default".to_owned(), |config| config.default_namespace.clone());
        Ok((self.transport(config, Reads::OwnThread)?, namespace))
    }

    /// Returns the configuration of kube's client; `None` if no option needs it.
    async fn config(&self) -> Result<Option<Config>, Failure> {
        if self.insecure_skip_tls_verify {
            notices::warn("--insecure-skip-tls-verify: the server's certificate is not verified");
        }
        let config = match (self.kubeconfig().await?, &self.server) {
            (None, Some(_)) if !self.needs_kube() => return Ok(None),
            (Some(config), _) => config,
            (None, Some(url)) => Config::new(address(url)?),
            (None, None) => Config::incluster().map_err(|_| {
                let reason = "no kubeconfig, and not in a cluster: use --kubeconfig or --server";
                Failure::Error(reason.to_owned())
            })?,
        };
        self.overridden(config).map(Some)
    }

    fn transport(&self, config: Option<Config>, reads: Reads) -> Result<Server, Failure> {
        let Some(config) = config else {
            let url = self.server.as_deref().unwrap_or_default();
            return Ok(Server::Direct(Box::new(self.direct(url, reads)?)));
        };
        let transport = KubeTransport::from_config(config).map_err(|error| Failure::Error(chain(&error)))?;
        let transport = match reads {
            Reads::OwnThread => transport,
            Reads::CallerRuntime => transport.on_caller_runtime(),
        };
        Ok(Server::Kube(Box::new(transport)))
    }

    /// Returns true if an option is set that only kube's client supports.
    fn needs_kube(&self) -> bool {
        self.token.is_some()
            || self.client_certificate.is_some()
            || self.tls_server_name.is_some()
            || self.insecure_skip_tls_verify
            || self.impersonate.is_some()
    }

    fn direct(&self, url: &str, reads: Reads) -> Result<HttpTransport, Failure> {
        let mut builder = HttpTransport::builder(url);
        if reads == Reads::CallerRuntime {
            builder = builder.on_caller_runtime();
        }
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path);
        }
        if let Some(path) = &self.certificate_authority {
            builder = builder.ca_file(path);
        }
        builder.build().map_err(|error| Failure::Error(chain(&error)))
    }

    /// Returns the configuration from the kubeconfig; `None` if there is no kubeconfig, or `--server` makes it unnecessary.
    async fn kubeconfig(&self) -> Result<Option<Config>, Failure> {
        let Self { kubeconfig, context, cluster, user, server, .. } = self;
        let is_chosen = kubeconfig.is_some() || context.is_some() || cluster.is_some() || user.is_some();
        if !is_chosen && server.as_ref().is_some_and(|url| !url.starts_with("https://")) {
            return Ok(None);
        }
        let read = kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let kubeconfig = match read {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if !is_chosen && is_missing(&error) => return Ok(None),
            Err(error) => return Err(refused(&error)),
        };
        let has_context = context.is_some() || kubeconfig.current_context.as_ref().is_some_and(|name| !name.is_empty());
        if !is_chosen && server.is_some() && !has_context {
            return Ok(None);
        }
        let (context, cluster, user) = (context.clone(), cluster.clone(), user.clone());
        let options = KubeConfigOptions { context, cluster, user };
        // For an unknown user, kube would send requests without credentials.
        if let Some(user) = &options.user
            && !kubeconfig.auth_infos.iter().any(|known| known.name == *user)
        {
            return Err(Failure::Error(format!("kubeconfig: user {user:?} does not exist")));
        }
        let certificates = certificate_authority(&kubeconfig, &options);
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| refused(&error))?;
        // kube reloads this file, so that a renewed certificate authority is trusted. It does not reload what it read from the kubeconfig.
        config.root_cert_file = certificates;
        Ok(Some(config))
    }

    fn overridden(&self, mut config: Config) -> Result<Config, Failure> {
        if let Some(url) = &self.server {
            config.cluster_url = address(url)?;
        }
        if let Some(path) = &self.certificate_authority {
            check_readable(path)?;
            config.root_cert_file = Some(path.clone());
        }
        if self.insecure_skip_tls_verify {
            config.accept_invalid_certs = true;
            config.root_cert = None;
            config.root_cert_file = None;
        }
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
        }
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        if self.token.is_some() || self.token_file.is_some() || self.client_certificate.is_some() {
            for path in [&self.token_file, &self.client_certificate, &self.client_key].into_iter().flatten() {
                check_readable(path)?;
            }
            let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } =
                config.auth_info;
            config.auth_info = AuthInfo {
                token: self.token.clone().map(Into::into),
                token_file: self.token_file.as_ref().map(text),
                client_certificate: self.client_certificate.as_ref().map(text),
                client_key: self.client_key.as_ref().map(text),
                impersonate,
                impersonate_uid,
                impersonate_groups,
                impersonate_user_extra,
                ..AuthInfo::default()
            };
        }
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
            config.auth_info.impersonate_uid.clone_from(&self.impersonate_uid);
            config.auth_info.impersonate_groups =
                (!self.impersonate_groups.is_empty()).then(|| self.impersonate_groups.clone());
            config.auth_info.impersonate_user_extra = None;
        }
        Ok(config)
    }
}

/// Returns the file of the certificate authorities of the cluster that these options choose, if the kubeconfig names a file.
fn certificate_authority(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<PathBuf> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|known| Some(&known.name) == context);
    let named = options.cluster.as_ref().or(context?.context.as_ref().map(|context| &context.cluster))?;
    let cluster = kubeconfig.clusters.iter().find(|known| known.name == *named)?.cluster.as_ref()?;
    // The data in the kubeconfig overrides the file.
    let file = cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none());
    file.map(PathBuf::from)
}

fn url(text: &str) -> Result<String, &'static str> {
    match text.split_once("://") {
        Some(("http" | "https", _)) => Ok(text.to_owned()),
        _ => Err("the URL must begin with http:// or https://"),
    }
}

fn address(url: &str) -> Result<Uri, Failure> {
    url.parse().map_err(|error| Failure::Usage(format!("--server {url}: {error}")))
}

fn check_readable(path: &Path) -> Result<(), Failure> {
    let unreadable = |error| Failure::Error(format!("cannot read {}: {error}", path.to_string_lossy()));
    std::fs::File::open(path).map(drop).map_err(unreadable)
}

/// Where the connections of a transport are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    OwnThread,
    CallerRuntime,
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

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.inner().post(request, body)
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
    // A YAML error quotes the lines around it, which may contain a token.
    let reason = match error {
        KubeconfigError::Parse(_) => "the file is not a kubeconfig in YAML".to_owned(),
        error => error.to_string(),
    };
    Failure::Error(format!("kubeconfig: {reason}"))
}
