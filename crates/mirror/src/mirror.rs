//! The mirror as a program sees it: its settings, and how it starts.

use std::future::{Future, pending};
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use listwatch::client::{Client, Transport};
use tokio::task::JoinSet;

use crate::accept::{CertificateFiles, Connections, HttpServer, ServingCertificate, serve_listener};
use crate::access_log::AccessLog;
use crate::metrics::MirrorMetrics;
use crate::own_pages::{Detail, OwnPages, ProbeHandler};
use crate::pipeline::Pipeline;
use crate::request::ListenerPort;
use crate::resource::{Mirrored, MirroredSet};
use crate::settings::{Access, Limits, MirrorSettings, invalid_input};
use crate::shutdown::Shutdown;

/// The connections of probes and scrapes.
const PROBE_CONNECTIONS: usize = 100;

/// A read-only Kubernetes API server over caches.
///
/// By default it listens on loopback only, and its readers need no credentials.
#[must_use]
pub struct Mirror {
    transport: Arc<dyn Transport>,
    resources: MirroredSet,
    probes: Option<(TcpListener, Detail)>,
    leaving: BoxFuture<'static, ()>,
    access_log: AccessLog,
    client: Option<Client>,
    certificate: Option<CertificateFiles>,
    settings: MirrorSettings,
}

impl Mirror {
    /// Creates a mirror that forwards to the API server of this transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            resources: MirroredSet::default(),
            probes: None,
            leaving: pending().boxed(),
            access_log: AccessLog::default(),
            client: None,
            certificate: None,
            settings: MirrorSettings::default(),
        }
    }

    /// Answers requests for this resource from its cache.
    pub fn resource(self, resource: Mirrored) -> Self {
        self.resources.add(resource);
        self
    }

    /// Returns the resources, to which a program may add some while the mirror serves.
    #[must_use]
    pub fn resources(&self) -> MirroredSet {
        self.resources.clone()
    }

    /// Answers `/livez`, `/readyz` and `/metrics` on this listener too: to everybody, without TLS, and with limits of
    /// its own, so that readers do not keep probes out.
    ///
    /// This listener leaves out the metrics of single resources, unless `full_metrics` is set, because only readers with
    /// rights may know the names of resources and the numbers of their objects.
    pub fn probes(mut self, listener: TcpListener, full_metrics: bool) -> Self {
        self.probes = Some((listener, if full_metrics { Detail::Full } else { Detail::Public }));
        self
    }

    /// Passes a line of JSON about each request to `write`, once its response begins: the user, the verb, the resource
    /// or the path, the code, the seconds until then, and whether the answer came from `memory`, was `forwarded`, is
    /// `own` (probes and metrics) or was `refused`. Texts of readers are escaped, and cut to 256 bytes. Credentials and
    /// queries are left out.
    ///
    /// `write` must not block: it runs on the threads of the readers.
    pub fn access_log(mut self, write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.access_log = AccessLog::new(write);
        self
    }

    /// Lets `/readyz` fail once this completes, so that no new readers come. The mirror answers until the `shutdown` of
    /// [`serve`](Self::serve).
    pub fn leaving(mut self, leaving: impl Future<Output = ()> + Send + 'static) -> Self {
        self.leaving = leaving.boxed();
        self
    }

    /// Lets `/readyz` fail while all resources have been out of date for this long. By default an outage of the API
    /// server changes nothing.
    ///
    /// A cache learns only once a minute that nothing has changed, so use at least three minutes.
    pub fn unready_after(mut self, lag: Option<Duration>) -> Self {
        self.settings.unready_after = lag;
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

    /// Accepts only tokens of readers for one of these audiences. By default, their tokens must be for the API server.
    ///
    /// A token for an audience of its own cannot be used at the API server by whoever gets hold of it.
    pub fn token_audiences(mut self, audiences: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.settings.audiences = audiences.into_iter().map(Into::into).collect();
        self
    }

    /// Sets for how long the mirror uses the last review of a reader while the API server cannot be reached, answers
    /// with 429 or 5xx, or does not answer within 2 s. Default: 5 min, as long as kube-apiserver keeps the right that a
    /// webhook has granted. [`Duration::ZERO`] turns it off.
    ///
    /// Only a token that was valid and a request that was allowed count for longer. Other readers get 503.
    pub fn stale_reviews(mut self, max_age: Duration) -> Self {
        self.settings.stale_reviews = max_age;
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
        let Self { transport, resources, probes, leaving, access_log, client, certificate, settings } = self;
        let certificate = certificate.map(ServingCertificate::open).transpose()?;
        let port = ListenerPort { port: address.port(), is_tls: certificate.is_some() };
        let mut pipeline = Pipeline::new(&transport, resources.clone(), &settings, port, client);
        pipeline.access_log = access_log;
        let pipeline = Arc::new(pipeline);
        let (metrics, shutting_down, pages) =
            (pipeline.metrics.clone(), pipeline.shutdown.clone(), Arc::clone(&pipeline.pages));
        let beside = async {
            let leave = async {
                leaving.await;
                pages.leaving.start();
                pending::<()>().await;
            };
            let columns = follow_columns(&resources, Client::new(transport));
            let probes = serve_probes(probes, Arc::clone(&pages));
            let ((), (), ended) = tokio::join!(leave, columns, probes);
            ended
        };
        let server = HttpServer::new(settings.limits, pipeline.connections.clone(), metrics, shutting_down, pipeline);
        tokio::select! {
            ended = serve_listener(server, listener, certificate, shutdown) => ended,
            ended = beside => ended,
        }
    }
}

/// Keeps the columns of all resources up to date, also of those that are added later. It does not complete.
async fn follow_columns(resources: &MirroredSet, definitions: Client) {
    // Dropping it ends them.
    let mut columns = JoinSet::new();
    let mut known = 0;
    loop {
        for mirrored in resources.wait_for_more(known).await {
            known += 1;
            let definitions = definitions.clone();
            columns.spawn(async move { mirrored.follow_columns(&definitions).await });
        }
    }
}

/// Serves the pages of the mirror about itself. It completes only with an error of the listener.
async fn serve_probes(probes: Option<(TcpListener, Detail)>, pages: Arc<OwnPages>) -> io::Result<()> {
    let Some((listener, detail)) = probes else { return pending().await };
    let limits = Limits { connections: PROBE_CONNECTIONS, ..Limits::default() };
    // Readers are not counted here.
    let (metrics, shutdown) = (MirrorMetrics::default(), Shutdown::default());
    let connections = Connections::new(limits.connections, &metrics);
    let server = HttpServer::new(limits, connections, metrics, shutdown, Arc::new(ProbeHandler { pages, detail }));
    serve_listener(server, listener, None, pending()).await
}
