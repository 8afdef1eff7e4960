//! The tasks of a server, which end with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

/// Spawns tasks until it is stopped. Clones are the same set.
#[derive(Clone)]
pub(crate) struct Tasks(Arc<Mutex<Option<JoinSet<()>>>>);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(JoinSet::new()))))
    }

    /// Drops the task instead when the set is stopped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = &mut *self.lock() {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }

    /// Aborts all tasks.
    pub(crate) fn stop(&self) {
        let tasks = self.lock().take();
        drop(tasks);
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hyper spawns a task for the body of each HTTP/2 stream.
impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
