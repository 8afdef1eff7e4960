//! The mirror as a program sees it: its settings, and how it starts.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use listwatch::client::{Client, Transport};
use tokio::task::JoinSet;

use crate::accept::{CertificateFiles, HttpServer, ServingCertificate, serve_listener};
use crate::pipeline::Pipeline;
use crate::request::ListenerPort;
use crate::resource::Mirrored;
use crate::settings::{Access, Limits, MirrorSettings, invalid_input};

/// A read-only Kubernetes API server over caches.
///
/// By default it listens on loopback only, and its readers need no credentials.
#[must_use]
pub struct Mirror {
    transport: Arc<dyn Transport>,
    resources: Vec<Mirrored>,
    client: Option<Client>,
    certificate: Option<CertificateFiles>,
    settings: MirrorSettings,
}

impl Mirror {
    /// Creates a mirror that forwards to the API server of this transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, resources: Vec::new(), client: None, certificate: None, settings: MirrorSettings::default() }
    }

    /// Answers requests for this resource from its cache.
    pub fn resource(mut self, resource: Mirrored) -> Self {
        self.resources.push(resource);
        self
    }

    /// Shows the counters of the client of the reflectors in `/metrics`.
    pub fn client(mut self, client: &Client) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// Sets how readers are authorized. The default is [`Access::Loopback`].
    pub fn access(mut self, access: Access) -> Self {
        self.settings.access = access;
        self
    }

    /// Serves TLS with the certificate and the key of these files, both in PEM. Intermediate certificates follow the
    /// certificate.
    ///
    /// The mirror reads the files again each minute, so that a renewed certificate needs no restart. While they cannot
    /// be used, it keeps the certificate that it has, and logs a warning. Open connections are not affected.
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some(CertificateFiles { certificates: certificates.into(), key: key.into() });
        self
    }

    /// Answers GETs, lists and watches without a version at the version of the cache. Otherwise the mirror first
    /// confirms that nothing is newer, and forwards small reads and those that it cannot confirm.
    pub fn stale_reads(mut self, stale_reads: bool) -> Self {
        self.settings.stale_reads = stale_reads;
        self
    }

    /// Sets the limits on readers.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits.bounded();
        self
    }

    /// Serves until `shutdown` completes. Then it accepts no more connections, ends watches, and waits for open
    /// requests for [`Limits::drain_timeout`].
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a certificate or key that cannot be read or used, for
    /// [`Access::Loopback`] on another address, and for [`Access::Reviewed`] without TLS; errors of the listener.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let address = listener.local_addr()?;
        match self.settings.access {
            Access::Loopback if !address.ip().is_loopback() => {
                return Err(invalid_input(format!("{address} is not a loopback address: readers must be reviewed")));
            }
            Access::Reviewed if self.certificate.is_none() => {
                return Err(invalid_input("readers are reviewed only over TLS"));
            }
            Access::Loopback | Access::Reviewed => {}
        }
        let Self { transport, resources, client, certificate, settings } = self;
        let certificate = certificate.map(ServingCertificate::open).transpose()?;
        let port = ListenerPort { port: address.port(), is_tls: certificate.is_some() };
        let pipeline = Arc::new(Pipeline::new(&transport, resources.into(), &settings, port).client(client));
        let (metrics, shutting_down) = (pipeline.metrics.clone(), pipeline.shutdown.clone());
        // Dropping it ends them.
        let mut columns = JoinSet::new();
        let definitions = Client::new(transport);
        for mirrored in pipeline.resources.iter() {
            let (mirrored, definitions) = (Arc::clone(mirrored), definitions.clone());
            columns.spawn(async move { mirrored.follow_columns(&definitions).await });
        }
        let server = HttpServer::new(settings.limits, pipeline.connections.clone(), metrics, shutting_down, pipeline);
        serve_listener(server, listener, certificate, shutdown).await
    }
}
