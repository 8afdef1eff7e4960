//! Logs when requests for a collection fail or do not complete it, and when they succeed again.
//!
//! A watch or a reflector retries without a limit, so otherwise nobody would learn of an outage. Until the first
//! success, each failure is a warning. After that a watch breaks now and then, so only a failure that somebody must
//! repair is a warning at once; any other must last for a few retries. A warning follows each minute, and another one
//! when the outage ends.
//!
//! A server may also send a list too slowly to ever complete it, although no request fails.

use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;
use super::transport::chain;
use crate::sync::{Mutex, lock};

/// How many failures in a row are worth a warning once requests have succeeded.
const FEW: u32 = 3;

/// The approximate time between two warnings of an outage, which are logged at failures.
const BETWEEN: Duration = Duration::from_secs(60);

/// A success that a failure follows within this time did not end the outage, because a failing server may accept
/// connections.
const RELAPSE: Duration = Duration::from_secs(10);

/// After how long an incomplete collection is worth a warning.
const SLOW: Duration = Duration::from_secs(300);

/// The time between two such warnings.
const BETWEEN_SLOW: Duration = Duration::from_secs(600);

/// The failures of the requests for one collection, which a reflector shares with its watches.
#[derive(Debug)]
pub struct Outage {
    resource: String,
    /// The server's address, if the transport knows it.
    server: Option<String>,
    state: Mutex<OutageState>,
}

#[derive(Debug, Default)]
struct OutageState {
    has_succeeded: bool,
    /// Set while only a complete collection is a success.
    syncing: Option<Syncing>,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Syncing {
    since: Instant,
    /// When the next warning is due.
    warns_at: Instant,
    is_reported: bool,
}

#[derive(Debug)]
struct Failing {
    /// When the first failure was, since the outage began or a warning said that it ended.
    since: Instant,
    /// How many failures there were since then.
    failures: u32,
    last: String,
    /// True if a warning has reported the failures since the last success.
    is_reported: bool,
    warned_at: Option<Instant>,
    succeeded_at: Option<Instant>,
}

impl Outage {
    pub(super) fn new(resource: String, server: Option<String>) -> Self {
        Self { resource, server, state: Mutex::default() }
    }

    /// Marks the beginning of a sync. Until [`end_sync`](Self::end_sync), a connection that the server accepts is no
    /// success.
    pub fn begin_sync(&self) {
        let since = Instant::now();
        let syncing = Syncing { since, warns_at: since + SLOW, is_reported: false };
        lock(&self.state).syncing.get_or_insert(syncing);
    }

    /// Returns when the next [warning of a slow sync](Self::warn_of_slow_sync) is due; `None` once it has ended.
    #[must_use]
    pub fn warns_of_slow_sync_at(&self) -> Option<Instant> {
        lock(&self.state).syncing.as_ref().map(|syncing| syncing.warns_at)
    }

    /// Warns that the collection is not complete, with the objects and the bytes that the attempt has received.
    pub fn warn_of_slow_sync(&self, objects: u64, bytes: u64) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let Some(syncing) = &mut state.syncing else { return };
        syncing.warns_at = now + BETWEEN_SLOW;
        syncing.is_reported = true;
        let seconds = now.duration_since(syncing.since).as_secs_f64();
        drop(state);
        let Self { resource, server, .. } = self;
        let (server, from) = (server.as_deref(), self.named(" from "));
        tracing::warn!(
            name: "listwatch.slow_sync",
            target: "listwatch",
            resource,
            server,
            objects,
            bytes,
            seconds,
            "the collection{from} is not complete after {seconds:.0} s: {objects} objects and {bytes} bytes so far"
        );
    }

    /// Records that the whole collection has arrived.
    pub fn end_sync(&self) {
        let syncing = lock(&self.state).syncing.take();
        self.succeed();
        let Some(Syncing { since, is_reported: true, .. }) = syncing else { return };
        let Self { resource, server, .. } = self;
        let (server, from, seconds) = (server.as_deref(), self.named(" from "), since.elapsed().as_secs_f64());
        tracing::warn!(
            name: "listwatch.slow_sync_ended",
            target: "listwatch",
            resource,
            server,
            seconds,
            "the collection{from} is complete after {seconds:.0} s"
        );
    }

    /// Records an error after which the next request follows after `wait`.
    pub fn fail(&self, error: &Error, wait: Duration, needs_repair: bool) {
        let now = Instant::now();
        let error = chain(error);
        let mut state = lock(&self.state);
        let has_succeeded = state.has_succeeded;
        let is_over = |at: Instant| now.duration_since(at) >= RELAPSE;
        if state.failing.as_ref().is_some_and(|failing| failing.succeeded_at.is_some_and(is_over)) {
            state.failing = None;
        }
        let failing = state.failing.get_or_insert_with(|| Failing {
            since: now,
            failures: 0,
            last: String::new(),
            is_reported: false,
            warned_at: None,
            succeeded_at: None,
        });
        failing.succeeded_at = None;
        if failing.failures == 0 {
            failing.since = now;
        }
        failing.failures = failing.failures.saturating_add(1);
        failing.last.clone_from(&error);
        // The failure that is closest to a minute after the last warning.
        let is_due = failing.warned_at.is_none_or(|at| now.duration_since(at) + wait / 2 >= BETWEEN);
        let lasts = failing.failures >= FEW || failing.warned_at.is_some();
        let warns = !has_succeeded || is_due && (needs_repair || lasts);
        if !warns {
            return;
        }
        failing.warned_at = Some(now);
        failing.is_reported = true;
        let (failures, lasted) = (failing.failures, now.duration_since(failing.since));
        drop(state);
        let Self { resource, server, .. } = self;
        let (server, seconds, wait) = (server.as_deref(), lasted.as_secs_f64(), wait.as_secs_f64());
        let (to, for_long) = (self.named(" to "), lasted >= Duration::from_secs(1));
        let fail = if for_long { format!("have failed for {seconds:.0} s") } else { "fail".to_owned() };
        tracing::warn!(
            name: "listwatch.outage",
            target: "listwatch",
            resource,
            server,
            error,
            failures,
            seconds,
            "requests{to} {fail}: retrying in {wait:.1} s"
        );
    }

    /// Records that the server sends what was requested.
    pub fn succeed(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if state.syncing.is_some() {
            return;
        }
        state.has_succeeded = true;
        let Some(failing) = state.failing.as_mut().filter(|failing| failing.succeeded_at.is_none()) else { return };
        failing.succeeded_at = Some(now);
        if !std::mem::take(&mut failing.is_reported) {
            return;
        }
        // If requests soon fail again, that is another outage to whoever reads the log.
        let (failures, error) = (std::mem::take(&mut failing.failures), failing.last.clone());
        let seconds = now.duration_since(failing.since).as_secs_f64();
        drop(state);
        let Self { resource, server, .. } = self;
        let (server, to) = (server.as_deref(), self.named(" to "));
        // Also a warning, because whoever reads about the outage must read about its end.
        tracing::warn!(
            name: "listwatch.outage_ended",
            target: "listwatch",
            resource,
            server,
            error,
            failures,
            seconds,
            "requests{to} succeed again after {seconds:.0} s"
        );
    }

    /// Returns the server after a preposition, if it is known.
    fn named(&self, preposition: &str) -> String {
        self.server.as_ref().map(|server| format!("{preposition}{server}")).unwrap_or_default()
    }
}
