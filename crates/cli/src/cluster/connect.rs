//! The options that name an API server and its credentials, and the transport to it.
//!
//! # Advice
//!
//! The options have the names and the meaning of kubectl's (`kubectl options`). [`Kubeconfig`] of listwatch reads
//! the files. This file only chooses what to read, and overrides parts of the result:
//!
//! | options | effect |
//! |---|---|
//! | `--kubeconfig`, `--context`, `--cluster`, `--user`, `--server` | passed to the loader, which knows client-go's rules |
//! | `--token`, `--token-file`, `--client-certificate` | replace all credentials of the user, but not its impersonation |
//! | `--as`, `--as-group`, `--as-uid` | replace the impersonation of the user, with its extra fields |
//! | `--certificate-authority`, `--insecure-skip-tls-verify`, `--tls-server-name` | override the cluster |
//!
//! Invariants:
//!
//! - No error quotes a token, a password or the URL of a proxy.
//! - A token never goes over `http` to another machine. A warning says that it was left out.
//! - Certificates and keys are opened before the first request, so that a wrong path is an error and not a retry.
//! - An exec plugin runs before the first request, because it may ask the user to log in, and requests have timeouts.
//!
//! Odd part: `--server http://…` alone ignores the kubeconfig, which kubectl reads in this case too. Such a server is a
//! proxy with credentials of its own, so nothing of the kubeconfig applies. A broken kubeconfig must not matter.
//!
//! `mirror` needs two clients with the same credentials. Its reflectors run on the caller's runtime, so that a change
//! wakes no other thread. Forwarded requests have the thread of the transport.
//!
//! Not done: `--username` and `--password`, because no API server since 1.19 accepts basic authentication. The
//! environment variables of kubectl other than `KUBECONFIG` and the proxies'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use listwatch::client::{
    Client, Compression, Config, HttpTransport, Kubeconfig, Transport, TransportError, is_loopback,
};

use crate::failure::Failure;
use crate::notices;
use crate::source::{FromArgs, Readers, SourceTransport};

/// The server and the credentials. As in kubectl, each option overrides its part of the kubeconfig.
#[derive(Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    #[command(flatten)]
    from: FromArgs,

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

    /// Address of the API server [default: the cluster's].
    ///
    /// With an `http://` address, the kubeconfig is ignored, unless --kubeconfig, --context, --cluster or --user is
    /// given. Such an address is `http://localhost:8001` while `kubectl proxy` runs.
    #[arg(short, long, value_name = "URL", value_parser = parse_url)]
    server: Option<String>,

    /// Bearer token. Prefer --token-file: other users of this machine can see the token in the list of processes
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

    /// Accept any certificate of the server. The connection is then insecure
    #[arg(long)]
    insecure_skip_tls_verify: bool,

    /// Request no gzip.
    ///
    /// By default, the command requests gzip unless the server is on this machine or in the same cluster.
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

/// A client with the default namespace, and the address of its server or the name of its file.
pub struct NamedClient {
    pub client: Client,
    pub namespace: String,
    pub name: String,
}

impl ConnectionArgs {
    /// Returns a client of the server, and the default namespace.
    pub async fn client(self) -> Result<(Client, String), Failure> {
        let NamedClient { client, namespace, .. } = self.named_client().await?;
        Ok((client, namespace))
    }

    /// Returns a client of the server, with what a report calls the server.
    pub async fn named_client(self) -> Result<NamedClient, Failure> {
        if let Some(transport) = self.from.open(Readers::Own)? {
            let name = self.from().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            return Ok(NamedClient { client: Client::new(transport), namespace: "default".to_owned(), name });
        }
        let config = self.config()?;
        let (compression, namespace) = (self.compression(&config), config.default_namespace().to_owned());
        let name = config.server().split_once("://").map_or(config.server(), |(_, address)| address);
        let name = name.trim_end_matches('/').to_owned();
        Ok(NamedClient { client: Client::new(open_transport(config).await?).compression(compression), namespace, name })
    }

    /// Opens the file that is read in place of a server, if one is given.
    pub fn open_source(&self, readers: Readers) -> Result<Option<SourceTransport>, Failure> {
        self.from.open(readers)
    }

    /// Returns the file that is read in place of a server, if one is given.
    pub fn from(&self) -> Option<&Path> {
        self.from.path()
    }

    /// Returns a client of the server and its transport, and a client whose connections are read on the caller's
    /// runtime.
    pub async fn shared_transport(&self) -> Result<(Client, Arc<dyn Transport>, Client), Failure> {
        let config = self.config()?;
        let compression = self.compression(&config);
        let transport = open_transport(config).await?;
        let on_runtime = transport.with_own_connections().map_err(|error| refused(&error))?;
        let (transport, on_runtime) = (Arc::new(transport), on_runtime.on_caller_runtime());
        let client = Client::new(Arc::clone(&transport)).compression(compression);
        Ok((client, transport, Client::new(on_runtime).compression(compression)))
    }

    /// Returns the transport to the server, and the default namespace.
    pub async fn transport(self) -> Result<(HttpTransport, String), Failure> {
        let config = self.config()?;
        let namespace = config.default_namespace().to_owned();
        Ok((open_transport(config).await?, namespace))
    }

    /// Returns the compression of requests.
    fn compression(&self, config: &Config) -> Compression {
        let is_off = self.disable_compression || config.disables_compression();
        if is_off { Compression::Identity } else { Compression::default() }
    }

    /// Returns the configuration from the kubeconfig, with the parts that options override.
    fn config(&self) -> Result<Config, Failure> {
        if self.insecure_skip_tls_verify {
            notices::warn("--insecure-skip-tls-verify: the server's certificate is not verified");
        }
        let Self { kubeconfig, context, cluster, user, server, .. } = self;
        let is_chosen = kubeconfig.is_some() || context.is_some() || cluster.is_some() || user.is_some();
        if let Some(url) = server.as_ref().filter(|url| !is_chosen && url.starts_with("http://")) {
            // Such a server is a proxy with credentials of its own, such as `kubectl proxy`.
            return self.override_config(Config::new(url));
        }
        let (file, context, cluster) = (kubeconfig.clone(), context.clone(), cluster.clone());
        let loader = Kubeconfig { file, context, cluster, user: user.clone(), server: server.clone() };
        self.override_config(loader.load().map_err(|error| refused(&error))?)
    }

    /// Replaces the parts of a configuration that options override.
    fn override_config(&self, mut config: Config) -> Result<Config, Failure> {
        if let Some(path) = &self.certificate_authority {
            check_readable(path)?;
            config = config.ca_file(path);
        }
        if self.insecure_skip_tls_verify {
            config = config.insecure_skip_tls_verify();
        }
        if let Some(name) = &self.tls_server_name {
            config = config.tls_server_name(name);
        }
        if self.token.is_some() || self.token_file.is_some() || self.client_certificate.is_some() {
            config = self.override_credentials(config.without_credentials())?;
        }
        if let Some(user) = &self.impersonate {
            config = config.impersonate(user, self.impersonate_uid.clone(), &self.impersonate_groups);
        }
        Ok(config)
    }

    /// Adds the credentials of options to a configuration without any.
    fn override_credentials(&self, mut config: Config) -> Result<Config, Failure> {
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            check_readable(certificate)?;
            check_readable(key)?;
            config = config.client_certificate_files(certificate, key);
        }
        let host = config.server().parse::<http::Uri>().ok();
        let host = host.filter(|url| url.scheme_str() == Some("http"));
        if host.is_some_and(|url| !is_loopback(url.host().unwrap_or_default())) {
            notices::warn("the token is not sent over http");
            return Ok(config);
        }
        if let Some(file) = &self.token_file {
            config = config.token_file(file);
        }
        if let Some(token) = &self.token {
            config = config.bearer_token(token);
        }
        Ok(config)
    }
}

/// Returns the transport, after an exec plugin has issued credentials: it may ask the user to log in.
async fn open_transport(config: Config) -> Result<HttpTransport, Failure> {
    let transport = config.build().map_err(|error| refused(&error))?;
    transport.authenticate().await.map_err(|error| refused(&error))?;
    Ok(transport)
}

fn refused(error: &TransportError) -> Failure {
    Failure::Error(error.to_string())
}

fn parse_url(text: &str) -> Result<String, &'static str> {
    match text.split_once("://") {
        Some(("http" | "https", _)) => Ok(text.to_owned()),
        _ => Err("the URL must begin with http:// or https://"),
    }
}

fn check_readable(path: &Path) -> Result<(), Failure> {
    let unreadable = |error| Failure::Error(format!("cannot read {}: {error}", path.to_string_lossy()));
    std::fs::File::open(path).map(drop).map_err(unreadable)
}
