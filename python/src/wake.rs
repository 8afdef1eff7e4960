//! How threads of the runtime wake Python, without the GIL: a byte in a socket.
//!
//! A thread that waits reads from the socket of its own, so that a signal interrupts it. An event loop of asyncio
//! watches the socket of its own, and then learns which of its tasks have news.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::process::generation;

/// The longest time after which a waiting thread asks whether a signal arrived just before it began to wait.
const SIGNAL_CHECK: Duration = Duration::from_secs(1);

/// A waiter: a thread, or a task of an event loop.
#[derive(Clone)]
pub struct Waiter {
    socket: Arc<Socket>,
    token: u64,
}

struct Socket {
    reader: UnixStream,
    writer: UnixStream,
    /// The tasks with news. The socket has a byte unless it is empty.
    news: Mutex<Vec<u64>>,
}

impl Socket {
    fn new() -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, writer, news: Mutex::default() })
    }
}

impl Waiter {
    /// Wakes it.
    pub fn wake(&self) {
        let mut news = self.socket.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.push(self.token);
        if news.len() == 1 {
            _ = (&self.socket.writer).write(&[1]);
        }
    }
}

thread_local! {
    /// The socket of this thread, and the generation of the process that made it.
    static OWN: std::cell::RefCell<Option<(u32, Arc<Socket>)>> = const { std::cell::RefCell::new(None) };
}

/// Returns the waiter of this thread.
///
/// # Errors
///
/// `OSError` if the process has too many open files.
pub fn this_thread() -> PyResult<Waiter> {
    OWN.with_borrow_mut(|own| {
        if let Some((of, socket)) = own
            && *of == generation()
        {
            return Ok(Waiter { socket: Arc::clone(socket), token: 0 });
        }
        let socket = Arc::new(Socket::new()?);
        *own = Some((generation(), Arc::clone(&socket)));
        Ok(Waiter { socket, token: 0 })
    })
}

/// Waits, without the GIL, until [`this_thread`] may have been woken, or until `deadline`. It may return earlier.
///
/// # Errors
///
/// What the handler of a signal raises: `KeyboardInterrupt`.
pub fn wait(py: Python<'_>, waiter: &Waiter, deadline: Option<Instant>) -> PyResult<()> {
    let left = deadline.map_or(SIGNAL_CHECK, |deadline| deadline.saturating_duration_since(Instant::now()));
    let time = left.clamp(Duration::from_micros(1), SIGNAL_CHECK);
    py.detach(|| {
        let socket = &waiter.socket;
        socket.reader.set_read_timeout(Some(time))?;
        match (&socket.reader).read(&mut [0]) {
            Ok(_) => {
                socket.news.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    })?;
    py.check_signals()
}

/// The socket of an event loop.
#[pyclass(frozen, module = "listwatch._listwatch")]
pub struct LoopWaker {
    socket: Arc<Socket>,
}

#[pymethods]
impl LoopWaker {
    #[new]
    fn new() -> PyResult<Self> {
        let socket = Socket::new()?;
        socket.reader.set_nonblocking(true)?;
        Ok(Self { socket: Arc::new(socket) })
    }

    /// Returns the file descriptor that becomes readable.
    fn fileno(&self) -> i32 {
        self.socket.reader.as_raw_fd()
    }

    /// Returns the tokens of the tasks with news.
    fn drain(&self) -> Vec<u64> {
        let mut news = self.socket.news.lock().unwrap_or_else(PoisonError::into_inner);
        _ = (&self.socket.reader).read(&mut [0; 16]);
        std::mem::take(&mut news)
    }
}

impl LoopWaker {
    pub fn waiter(&self, token: u64) -> Waiter {
        Waiter { socket: Arc::clone(&self.socket), token }
    }
}
