//! Ends single responses of an HTTP/2 connection.
//!
//! hyper polls a body only while the window of its stream is open, so a body cannot end itself when its reader pauses.
//! hyper spawns a task for each response, though, and a stream whose task is dropped is reset. The other
//! responses of the connection continue, because client-go sends the requests of all its informers over one connection.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, sleep_until};

use super::open_responses::BodyProgress;

tokio::task_local! {
    /// The response of this task, once it has started.
    static RESPONSE: Arc<OnceLock<Arc<BodyProgress>>>;
}

/// Spawns the responses of HTTP/2 connections, and ends those that are paused or overdue.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    pub(super) stall_timeout: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let response = Arc::<OnceLock<_>>::default();
        let ended = wait_ended(Arc::clone(&response), self.stall_timeout);
        tokio::spawn(RESPONSE.scope(response, async move {
            tokio::select! {
                biased;
                _ = future => {}
                () = ended => {}
            }
        }));
    }
}

/// Names the response of the current task. Outside of an HTTP/2 stream it does nothing.
pub(super) fn set_response(progress: &Arc<BodyProgress>) {
    // It is set once: a task has one response.
    _ = RESPONSE.try_with(|response| _ = response.set(Arc::clone(progress)));
}

/// Waits until the response must end.
async fn wait_ended(response: Arc<OnceLock<Arc<BodyProgress>>>, stall_timeout: Duration) {
    loop {
        let now = Instant::now();
        let end = response.get().and_then(|progress| progress.ends_at(stall_timeout));
        if end.is_some_and(|end| end <= now) {
            return;
        }
        // A response that pauses in the meantime ends later.
        sleep_until(end.unwrap_or(now + stall_timeout).min(now + stall_timeout)).await;
    }
}
