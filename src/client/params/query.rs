//! The query string of a request, and the checks of timeouts.

use std::fmt::Write;
use std::time::Duration;

use crate::client::resource::encode;
use crate::error::InvalidInput;

/// kube-apiserver `--request-timeout`.
pub(in crate::client) const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A query string that is being written.
#[derive(Default)]
pub(super) struct Query(pub(super) String);

impl Query {
    pub(super) fn add(&mut self, key: &str, value: &str) {
        let and = if self.0.is_empty() { "" } else { "&" };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{and}{key}={}", encode(value));
    }
}

/// The largest timeout: the server parses it as Go's `time.Duration`.
pub(super) const MAX_TIMEOUT_SECONDS: u64 = 9_223_372_036;

/// The server uses its own timeout for 0, and returns 400 for a timeout that is too long. `timeoutSeconds` has no
/// fractions.
pub(super) fn check_timeout(timeout: Option<Duration>) -> Result<(), InvalidInput> {
    match timeout {
        Some(timeout) if timeout.subsec_nanos() != 0 || !(1..=MAX_TIMEOUT_SECONDS).contains(&timeout.as_secs()) => {
            let reason = format!("timeout {timeout:?}: it must be whole seconds, from 1 to {MAX_TIMEOUT_SECONDS}");
            Err(InvalidInput::new(reason, ""))
        }
        _ => Ok(()),
    }
}
