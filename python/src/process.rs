//! What belongs to one process: the runtime, and handles that a fork leaves behind.
//!
//! Threads do not survive a fork, and a lock that one of them held stays locked. So what threads share has one value
//! for each generation of forks: the child begins with new ones, and never touches the parent's. Python calls
//! [`after_fork`] in the child (`os.register_at_fork`), before any other code runs there.

use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::errors;

/// The number of forks between the process that imported the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Begins a new generation, in the child of a fork.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Relaxed);
}

pub fn generation() -> u32 {
    FORKS.load(Relaxed)
}

/// A value for each generation.
pub struct PerProcess<T> {
    value: OnceLock<T>,
    next: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), next: OnceLock::new() }
    }

    /// Returns the value of this process, which `make` makes for the first call.
    ///
    /// # Errors
    ///
    /// That of `make`.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let mut own = self;
        for _ in 0..generation() {
            own = own.next.get_or_init(|| Box::new(Self::new()));
        }
        if let Some(value) = own.value.get() {
            return Ok(value);
        }
        let made = make()?;
        Ok(own.value.get_or_init(|| made))
    }
}

/// A handle whose threads do not exist in the child of a fork. There it is neither used nor dropped.
pub struct OfProcess<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> Self {
        Self { generation: generation(), value: Some(value) }
    }

    /// Returns the handle.
    ///
    /// # Errors
    ///
    /// `listwatch.Error` in the child of a fork.
    pub fn get(&self, what: &str) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.generation == generation() => Ok(value),
            _ => Err(errors::forked(what)),
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            mem::forget(self.value.take());
        }
    }
}

/// Returns the runtime of this process. It runs until the process ends, and none of its threads runs Python code.
///
/// # Errors
///
/// `OSError` if no thread can be started.
pub fn runtime() -> PyResult<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8);
    RUNTIME
        .get_or_try_init(|| {
            Builder::new_multi_thread().worker_threads(threads).thread_name("listwatch").enable_all().build()
        })
        .map_err(Into::into)
}
