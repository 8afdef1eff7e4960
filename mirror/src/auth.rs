//! Who may read what.

use std::time::Duration;

/// A granted request. A watch keeps it, to notice when the right is withdrawn.
#[derive(Clone)]
pub(crate) struct Granted;

impl Granted {
    /// The time between two checks of a long watch.
    pub(crate) const RECHECK_EVERY: Duration = Duration::from_secs(60);

    /// Grants a request of a reader on this host.
    pub(crate) fn local() -> Self {
        Self
    }

    /// Repeats the review. Returns false if the reader may not read any more: its watch must end.
    #[expect(clippy::unused_async, reason = "reviews are requests")]
    pub(crate) async fn recheck(&self) -> bool {
        true
    }
}
