//! Checks whether a watch is silent although its server went back in time, or has newer versions.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use listwatch::client::Error;
use tokio::time::{Instant, Sleep, sleep};

/// Servers send a bookmark about once a minute (`bookmarkFrequency` in kubernetes apiserver/pkg/storage/cacher).
const SILENCE: Duration = Duration::from_secs(120);

/// When the server was asked, and the version that it had then or later.
pub(super) type Probe = (Instant, Result<String, Error>);

type VersionRequest = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// Requests the server's version when a watch is silent. A server that was restored from a backup, and is at an older
/// version, sends nothing: its changes are older than the start of the watch.
pub(super) struct SilenceCheck {
    deadline: Pin<Box<Sleep>>,
    /// The time of the request, and the request.
    request: Option<(Instant, VersionRequest)>,
}

impl SilenceCheck {
    pub(super) fn new() -> Self {
        Self { deadline: Box::pin(sleep(SILENCE)), request: None }
    }

    /// Resolves to the server's version, after the watch was silent for [`SILENCE`].
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, send: impl FnOnce() -> VersionRequest) -> Poll<Probe> {
        if self.request.is_none() {
            ready!(self.deadline.as_mut().poll(cx));
        }
        let (at, request) = self.request.get_or_insert_with(|| (Instant::now(), send()));
        request.as_mut().poll(cx).map(|version| (*at, version))
    }

    /// Restarts the clock, because the watch delivered an event.
    pub(super) fn restart_clock(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + SILENCE);
        self.request = None;
    }
}
