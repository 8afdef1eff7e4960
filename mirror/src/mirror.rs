//! The settings of a mirror.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use listwatch::client::Transport;

use crate::mirrored::Mirrored;
use crate::server;
use crate::shared::Shared;
use crate::tls::{Files, Tls};

/// A read-only Kubernetes API server over caches.
///
/// By default it listens on loopback only, and its readers need no credentials.
#[must_use]
pub struct Mirror {
    transport: Arc<dyn Transport>,
    resources: Vec<Arc<Mirrored>>,
    access: Access,
    tls: Option<Files>,
    stale_reads: bool,
    limits: Limits,
}

/// Who may read from a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every process of this host. The mirror listens on loopback addresses only, and refuses requests that a web page sends.
    ///
    /// Readers share the rights of the mirror, but for Secrets: those are refused unless they are a mirrored resource.
    #[default]
    Loopback,
    /// The users of the cluster, with their own rights: needs TLS.
    ///
    /// The mirror authenticates each request by its bearer token (TokenReview), and authorizes it (SubjectAccessReview). It repeats
    /// both every minute while a watch is open.
    Reviewed,
}

/// The limits of a mirror on its readers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Open connections. Further connections wait in the backlog of the listener. Default: 10,000.
    pub connections: usize,
    /// The time for a TLS handshake, and for the headers of the first request of a connection. Default: 10 s.
    pub header_timeout: Duration,
    /// The largest headers of a request, in bytes. Default: 64 KiB.
    pub header_bytes: usize,
    /// HTTP/2 streams per connection. Default: 250, as the API server's.
    pub streams_per_connection: u32,
    /// A reader that accepts no byte for this time is disconnected, also in the middle of a list. Default: 30 s.
    pub stall_timeout: Duration,
    /// The time in which a reader must have accepted all of a list, an object, another response that is not a watch, or
    /// the initial state of a watch. Then its connection is closed, so that a slow reader does not keep a list in
    /// memory for hours. Default: 5 min; an API server has 60 s.
    pub list_timeout: Duration,
    /// A connection without requests is closed after this time, which includes the headers of its next request.
    /// Default: 2 min.
    pub idle_timeout: Duration,
    /// Lists and initial states of watches that are written at the same time. Default: 100.
    pub lists: usize,
    /// Lists and initial states that wait for others; further ones get 429. Default: 1,000.
    pub waiting_lists: usize,
    /// The time that open requests have to end at shutdown. Default: 10 s.
    pub drain_timeout: Duration,
}

impl Limits {
    /// Limits all times to a century: an `Instant` cannot hold the end of much longer times.
    fn bounded(mut self) -> Self {
        let times = [
            &mut self.header_timeout,
            &mut self.stall_timeout,
            &mut self.list_timeout,
            &mut self.idle_timeout,
            &mut self.drain_timeout,
        ];
        for time in times {
            *time = (*time).min(Duration::from_secs(100 * 365 * 24 * 3600));
        }
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            header_timeout: Duration::from_secs(10),
            header_bytes: 64 << 10,
            streams_per_connection: 250,
            stall_timeout: Duration::from_secs(30),
            list_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(120),
            lists: 100,
            waiting_lists: 1000,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Mirror {
    /// Creates a mirror that forwards to the API server of this transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            resources: Vec::new(),
            access: Access::default(),
            tls: None,
            stale_reads: false,
            limits: Limits::default(),
        }
    }

    /// Answers requests for this resource from its cache.
    pub fn resource(mut self, resource: Mirrored) -> Self {
        self.resources.push(Arc::new(resource));
        self
    }

    /// Sets how readers are authorized. The default is [`Access::Loopback`].
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Serves TLS with the certificate and the key of these files, both in PEM. Intermediate certificates follow the certificate.
    ///
    /// The mirror reads the files again each minute, so that a renewed certificate needs no restart. While they cannot be used, it
    /// keeps the certificate that it has, and logs a warning. Open connections are not affected.
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls = Some(Files { certificates: certificates.into(), key: key.into() });
        self
    }

    /// Answers GETs, lists and watches without a version at the version of the cache. Otherwise the mirror first
    /// requests the version of the API server.
    pub fn stale_reads(mut self, stale_reads: bool) -> Self {
        self.stale_reads = stale_reads;
        self
    }

    /// Sets the limits on readers.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.bounded();
        self
    }

    /// Serves until `shutdown` completes. Then it accepts no more connections, ends watches, and waits for open requests
    /// for [`Limits::drain_timeout`].
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a certificate or key that cannot be read or used, for [`Access::Loopback`] on another
    /// address, and for [`Access::Reviewed`] without TLS; errors of the listener.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let address = listener.local_addr()?;
        match self.access {
            Access::Loopback if !address.ip().is_loopback() => {
                return Err(invalid(format!("{address} is not a loopback address: readers must be reviewed")));
            }
            Access::Reviewed if self.tls.is_none() => return Err(invalid("readers are reviewed only over TLS")),
            Access::Loopback | Access::Reviewed => {}
        }
        let Self { transport, resources, access, stale_reads, limits, tls } = self;
        let tls = tls.map(Tls::open).transpose()?;
        let shared = Shared::new(transport, resources, access, stale_reads, limits, address.port(), tls.is_some());
        server::serve(Arc::new(shared), listener, tls, shutdown).await
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.into())
}
