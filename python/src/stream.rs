//! Streams of values from tasks of the runtime, as iterators of Python and for event loops.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream as AsyncStream;
use listwatch::client::ListSummary;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tokio::task::AbortHandle;

use crate::change::Change;
use crate::columns::Columns;
use crate::errors::{self, Failure};
use crate::event::Event;
use crate::process::{OfProcess, runtime};
use crate::queue::{Queue, Queued, Taken};
use crate::rows::Row;
use crate::wake::{self, LoopWaker, Waiter};

/// A value on its way to Python.
pub enum Output {
    Row(Row),
    Event(Event),
    Change(Change),
    Result(MakeResult),
}

/// Makes the result of a call.
type MakeResult = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send + Sync>;

impl Queued for Output {
    fn size(&self) -> usize {
        match self {
            Self::Row(row) => row.size(),
            Self::Event(event) => event.size(),
            Self::Change(_) => 1024,
            Self::Result(_) => 0,
        }
    }
}

impl Output {
    /// Returns the result of a call.
    pub fn of(make: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>> + Send + Sync + 'static) -> Self {
        Self::Result(Box::new(make))
    }

    fn into_py(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Row(row) => row.into_py(py),
            Self::Event(event) => event.into_py(py),
            Self::Change(change) => Ok(change.into_pyobject(py)?.into_any()),
            Self::Result(make) => make(py),
        }
    }
}

/// How a stream ended.
#[derive(Clone)]
pub enum End {
    Complete(Option<Arc<ListSummary>>),
    Failed(Failure),
    Closed,
}

pub type OutputQueue = Queue<Output, End>;

/// The reading end of a stream. The task ends when it is dropped.
struct Reader {
    queue: Arc<OutputQueue>,
    task: AbortHandle,
    what: &'static str,
    /// Values that were taken from the queue.
    taken: Mutex<VecDeque<Output>>,
    end: Mutex<Option<End>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader {
    fn pop(&self) -> Option<Output> {
        lock(&self.taken).pop_front()
    }

    /// Takes what the queue has. Returns false if the waiter will be woken.
    fn take(&self, py: Python<'_>, waiter: &Waiter) -> PyResult<Progress> {
        match self.queue.take(waiter) {
            Taken::Batch(batch) => {
                lock(&self.taken).extend(batch);
                Ok(Progress::Taken)
            }
            Taken::Nothing => Ok(Progress::Waiting),
            Taken::End(end) => {
                *lock(&self.end) = Some(end.clone());
                match end {
                    End::Complete(_) => Ok(Progress::Ended),
                    End::Failed(failure) => Err(failure.into_py(py)),
                    End::Closed => Err(errors::closed(py, self.what)),
                }
            }
        }
    }

    fn close(&self) {
        self.task.abort();
        self.queue.close(End::Closed);
        lock(&self.taken).clear();
    }
}

enum Progress {
    Taken,
    Waiting,
    Ended,
}

/// An iterator over what a task of the runtime receives.
#[pyclass(frozen, subclass, module = "listwatch._listwatch")]
pub struct Stream {
    reader: Arc<OfProcess<Reader>>,
    what: &'static str,
}

/// Starts a task that fills a queue, and returns the stream of its values.
///
/// # Errors
///
/// `OSError` if the runtime cannot be started.
pub fn start<F>(what: &'static str, work: impl FnOnce(Arc<OutputQueue>) -> F) -> PyResult<Stream>
where
    F: Future<Output = Result<Option<Arc<ListSummary>>, Failure>> + Send + 'static,
{
    let queue = OutputQueue::new();
    let (work, guard) = (work(Arc::clone(&queue)), EndGuard(Arc::clone(&queue)));
    let task = runtime()?.spawn(async move {
        let end = work.await.map_or_else(End::Failed, End::Complete);
        guard.0.end(end);
    });
    let (taken, end) = (Mutex::default(), Mutex::default());
    let reader = Reader { queue, task: task.abort_handle(), what, taken, end };
    Ok(Stream { reader: Arc::new(OfProcess::new(reader)), what })
}

/// Starts a task with one result.
///
/// # Errors
///
/// As [`start`].
pub fn start_call<F>(what: &'static str, work: F) -> PyResult<Stream>
where
    F: Future<Output = Result<Output, Failure>> + Send + 'static,
{
    start(what, |queue| async move {
        let output = work.await?;
        queue.push(vec![output]).await;
        Ok(None)
    })
}

/// Ends the queue of a task that panicked or was aborted, so that nobody waits for it.
struct EndGuard(Arc<OutputQueue>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end(End::Failed(Failure::Other("the task ended without a result".to_owned())));
    }
}

/// A stream that ends after a number of values, or at the end of the values if there are not more.
pub struct Limited<S> {
    pub stream: S,
    pub left: u64,
}

impl<S: AsyncStream + Unpin> AsyncStream for Limited<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let next = Pin::new(&mut self.stream).poll_next(cx);
        match next {
            Poll::Ready(Some(_)) if self.left == 0 => Poll::Ready(None),
            Poll::Ready(Some(next)) => {
                self.left -= 1;
                Poll::Ready(Some(next))
            }
            // The end may follow, with what it says of the rest.
            next => next,
        }
    }
}

#[pymethods]
impl Stream {
    /// Creates another handle of the same stream, for subclasses.
    #[new]
    fn new(stream: PyRef<'_, Self>) -> Self {
        Self { reader: Arc::clone(&stream.reader), what: stream.what }
    }

    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, _item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        class.clone()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.reader.get(self.what)?;
        if let Some(output) = reader.pop() {
            return output.into_py(py).map(Some);
        }
        let waiter = wake::this_thread()?;
        loop {
            if let Some(output) = reader.pop() {
                return output.into_py(py).map(Some);
            }
            match reader.take(py, &waiter)? {
                Progress::Taken => {}
                Progress::Ended => return Ok(None),
                Progress::Waiting => wake::wait(py, &waiter, None)?,
            }
        }
    }

    /// Returns the values that are ready, for an event loop: none at the end, and `None` if the loop will be woken.
    fn poll<'py>(&self, py: Python<'py>, waker: &LoopWaker, token: u64) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let reader = self.reader.get(self.what)?;
        let mut ready = Vec::new();
        while let Some(output) = reader.pop() {
            ready.push(output.into_py(py)?);
        }
        if !ready.is_empty() {
            return Ok(Some(ready));
        }
        match reader.take(py, &waker.waiter(token))? {
            Progress::Waiting => return Ok(None),
            Progress::Ended => return Ok(Some(ready)),
            Progress::Taken => {}
        }
        while let Some(output) = reader.pop() {
            ready.push(output.into_py(py)?);
        }
        Ok(Some(ready))
    }

    /// Reads the rest of a list of fields, and returns its values as columns.
    fn _columns(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        quantities: Vec<String>,
        quantity: &Bound<'_, PyAny>,
    ) -> PyResult<Columns> {
        let reader = self.reader.get(self.what)?;
        let waiter = wake::this_thread()?;
        let mut columns: Vec<_> = names.into_iter().map(|name| (name, Vec::new())).collect();
        loop {
            while let Some(output) = reader.pop() {
                let Output::Row(Row::Fields(row)) = output else {
                    return Err(errors::invalid(py, "columns are made of a list with fields"));
                };
                columns.iter_mut().zip(row).for_each(|((_, values), value)| values.push(value));
            }
            match reader.take(py, &waiter)? {
                Progress::Taken => {}
                Progress::Ended => return Columns::new(py, columns, &quantities, quantity),
                Progress::Waiting => wake::wait(py, &waiter, None)?,
            }
        }
    }

    /// Ends the request, and what has arrived is dropped.
    fn close(&self) -> PyResult<()> {
        self.reader.get(self.what)?.close();
        Ok(())
    }

    /// Returns what is known at the end of a complete list; `None` before.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        match &*lock(&self.reader.get(self.what)?.end) {
            Some(End::Complete(Some(summary))) => summary_dict(py, summary).map(Some),
            _ => Ok(None),
        }
    }
}

fn summary_dict<'py>(py: Python<'py>, summary: &ListSummary) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let meta = &summary.list_meta;
    dict.set_item("resource_version", &meta.resource_version)?;
    dict.set_item("continue_token", Some(&meta.continue_token).filter(|token| !token.is_empty()))?;
    dict.set_item("remaining_item_count", meta.remaining_item_count)?;
    dict.set_item("items", summary.items)?;
    dict.set_item("pages", summary.pages)?;
    dict.set_item("attempts", summary.attempts)?;
    dict.set_item("wire_bytes", summary.wire_bytes)?;
    dict.set_item("bytes", summary.bytes)?;
    dict.set_item("elapsed", summary.elapsed.as_secs_f64())?;
    dict.set_item("audit_id", summary.audit_id.as_deref())?;
    dict.set_item("warnings", &summary.warnings)?;
    Ok(dict)
}
