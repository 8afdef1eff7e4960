//! Reports in the log that requests for a collection fail, and that they succeed again.
//!
//! A watch or a reflector retries without a limit, so nobody would learn of an outage otherwise. Until the first
//! success each failure is a warning. Later a watch breaks now and then, so only a failure that needs a repair is one
//! at once; any other must last for a few retries. Then there is a warning each minute, and one when the outage ends.

use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;
use super::transport::chain;
use crate::sync::{Mutex, lock};

/// The number of failures in a row after which requests that once succeeded are worth a warning.
const FEW: u32 = 3;

/// The time between two warnings of an outage, approximately: each is at a failure.
const BETWEEN: Duration = Duration::from_secs(60);

/// A success that is followed by a failure within this time did not end the outage: a failing server may accept
/// connections.
const RELAPSE: Duration = Duration::from_secs(10);

/// The failures of the requests for one collection. A reflector shares it with its watches.
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
    /// True while only a complete collection is a success.
    is_syncing: bool,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
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

    /// Until [`end_sync`](Self::end_sync), a connection that the server accepts is no success.
    pub fn begin_sync(&self) {
        lock(&self.state).is_syncing = true;
    }

    /// Records that the whole collection has arrived.
    pub fn end_sync(&self) {
        lock(&self.state).is_syncing = false;
        self.succeed();
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
        failing.failures = failing.failures.saturating_add(1);
        failing.last.clone_from(&error);
        // The failure that is nearest to a minute after the last warning.
        let is_due = failing.warned_at.is_none_or(|at| now.duration_since(at) + wait / 2 >= BETWEEN);
        let warns = !has_succeeded || is_due && (needs_repair || failing.failures >= FEW);
        if !warns {
            return;
        }
        failing.warned_at = Some(now);
        failing.is_reported = true;
        let (failures, lasted) = (failing.failures, now.duration_since(failing.since));
        drop(state);
        let Self { resource, server, .. } = self;
        let (server, seconds, wait) = (server.as_deref(), lasted.as_secs_f64(), wait.as_secs_f64());
        let to = self.destination();
        tracing::warn!(
            name: "listwatch.outage",
            target: "listwatch",
            resource,
            server,
            error,
            failures,
            seconds,
            "requests{to} have failed for {seconds:.0} s: retrying in {wait:.1} s"
        );
    }

    /// Records that the server sends what was requested.
    pub fn succeed(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if state.is_syncing {
            return;
        }
        state.has_succeeded = true;
        let Some(failing) = state.failing.as_mut().filter(|failing| failing.succeeded_at.is_none()) else { return };
        failing.succeeded_at = Some(now);
        if !std::mem::take(&mut failing.is_reported) {
            return;
        }
        let (failures, error) = (failing.failures, failing.last.clone());
        let seconds = now.duration_since(failing.since).as_secs_f64();
        drop(state);
        let Self { resource, server, .. } = self;
        let (server, to) = (server.as_deref(), self.destination());
        // A warning as well: who reads of the outage must read of its end.
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

    fn destination(&self) -> String {
        self.server.as_ref().map(|server| format!(" to {server}")).unwrap_or_default()
    }
}
