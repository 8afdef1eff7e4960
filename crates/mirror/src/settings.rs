//! What a program sets: who may read from a mirror, and the limits on readers.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use listwatch::internal::without_os_numbers;

/// The settings of a mirror that the steps of a request need.
#[derive(Clone, Debug)]
pub(crate) struct MirrorSettings {
    pub(crate) access: Access,
    /// The accepted audiences of readers' tokens. If there are none, the API server's own audiences apply.
    pub(crate) audiences: Vec<String>,
    /// How long the last review of a reader is used while the API server answers none.
    pub(crate) stale_reviews: Duration,
    /// True if reads without a version are answered at the version of the cache.
    pub(crate) stale_reads: bool,
    /// The lag of all resources at which `/readyz` fails.
    pub(crate) unready_after: Option<Duration>,
    pub(crate) limits: Limits,
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self {
            access: Access::default(),
            audiences: Vec::new(),
            stale_reviews: STALE_REVIEWS,
            stale_reads: false,
            unready_after: None,
            limits: Limits::default(),
        }
    }
}

/// As long as kube-apiserver and the kubelet keep the right that a webhook has granted.
const STALE_REVIEWS: Duration = Duration::from_secs(300);

/// Who may read from a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every process of this host. The mirror listens on loopback addresses only, and refuses requests that a web page
    /// sends.
    ///
    /// Readers share the rights of the mirror, but for Secrets: those are refused unless they are a mirrored resource.
    #[default]
    Loopback,
    /// The users of the cluster, with their own rights: needs TLS.
    ///
    /// The mirror authenticates each request by its bearer token (TokenReview), and authorizes it
    /// (SubjectAccessReview). It repeats both every minute while a watch is open.
    Reviewed,
}

/// The limits of a mirror on its readers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Open connections. At the limit, an idle connection of the address or user with the most makes room; if all are
    /// busy, 100 further connections wait. Default: 10,000.
    pub connections: usize,
    /// The time for a TLS handshake, and for the headers of the first request of a connection. Default: 10 s.
    pub header_timeout: Duration,
    /// The largest headers of a request, in bytes. Default: 64 KiB.
    pub header_bytes: usize,
    /// The bytes of the headers of all requests that are not complete, without the first 8 KiB of each. At the limit, a
    /// connection is closed. Default: 16 MiB.
    pub unfinished_header_bytes: usize,
    /// HTTP/2 streams per connection. Default: 250, as the API server's.
    pub streams_per_connection: u32,
    /// A response whose reader accepts no byte for this time ends, also in the middle of a list: over HTTP/2 its stream
    /// is reset, over HTTP/1.1 the connection is closed. Default: 5 s.
    pub stall_timeout: Duration,
    /// The time in which a reader must have accepted all of a list, an object, another response that is not a watch, or
    /// the initial state of a watch. Then its connection is closed, so that a slow reader does not keep a list in
    /// memory for hours. Default: 5 min; an API server has 60 s.
    pub list_timeout: Duration,
    /// A connection without requests is closed after this time, which includes the headers of its next request.
    /// Default: 2 min.
    pub idle_timeout: Duration,
    /// Objects, lists and initial states of watches that are written from memory at the same time. Default: 200.
    ///
    /// Of each of these pools, and of connections, a user gets no more than what is left free: half of it while nobody
    /// else needs it. On loopback, each connection counts as a user.
    pub reads: usize,
    /// Requests that are forwarded at the same time, until the reader has the response. Default: 100.
    pub forwards: usize,
    /// Forwarded watches and followed logs that are open at the same time. Default: 1,000.
    pub forwarded_watches: usize,
    /// Reviews that are sent at the same time. Default: 64.
    pub reviews: usize,
    /// Requests that wait for each of these pools; further ones get 429, and so does a request that waits for 15 s.
    /// Default: 1,000.
    pub waiting: usize,
    /// The time that open requests have to end at shutdown. Default: 10 s.
    pub drain_timeout: Duration,
}

impl Limits {
    /// Limits all times to a century: an `Instant` cannot hold the end of much longer times.
    pub(crate) fn bounded(mut self) -> Self {
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
            unfinished_header_bytes: 16 << 20,
            streams_per_connection: 250,
            stall_timeout: Duration::from_secs(5),
            list_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(120),
            reads: 200,
            forwards: 100,
            forwarded_watches: 1000,
            reviews: 64,
            waiting: 1000,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Returns the error of a setting that cannot be used.
pub(crate) fn invalid_input(message: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, without_os_numbers(message))
}
