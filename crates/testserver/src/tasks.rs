//! The tasks of a server, which end with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

/// A set of tasks, which its clones share. It spawns tasks until it is stopped.
#[derive(Clone)]
pub(crate) struct Tasks(Arc<Mutex<Option<JoinSet<()>>>>);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(JoinSet::new()))))
    }

    /// Spawns a task, or drops it if the set is stopped.
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
