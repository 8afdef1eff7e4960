//! The signals that end a command: SIGINT (Ctrl-C), SIGTERM, and SIGHUP of a terminal that is closed.
//!
//! # Advice
//!
//! | signal | result |
//! |---|---|
//! | the first | the command ends itself: it flushes its output, deletes partial files, and prints its progress |
//! | none for [`GRACE_PERIOD`] after it | the process exits, because a write to stdout or stderr is blocked |
//! | none, after [`end_slowly`] | the command takes as long as it needs |
//! | the second | the process exits at once |
//!
//! Invariants:
//!
//! - A thread of its own receives the signals, because a blocked write blocks the thread of the command.
//! - The first signal changes one token, [`interrupted`]. Commands wait for it in the `select!` of their loops. For
//!   code without a loop, `main` waits for [`interrupted_early`] while the command runs.
//! - A forced exit deletes the partial file first, because no destructor runs then.
//! - The exit code after the first signal is fixed at the start. It is 0 for commands that only a signal ends.
//! - The last notice has a thread and a deadline of its own, because stderr may be blocked as well.
//!
//! Odd parts, and their reasons:
//!
//! - Signals that are ignored at the start stay ignored, as in programs in Go. `nohup` and background jobs rely on it.
//! - Ctrl-C ends the reader of a pipe as well. `main` therefore waits for a signal before it reports a closed stdout.
//! - `main` ends by `exit`: dropping the runtime would wait for a blocked read of stdin.
//! - The state is static, because a process has one command and one set of signals.
//!
//! Not done: a handler per command, which would repeat the table. SIGPIPE: Rust ignores it, and a closed pipe is an
//! error of the write.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio_util::sync::CancellationToken;

use crate::notices;

/// The longest time that a command has to end itself.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The longest time that a notice may block the exit.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(100);

/// The exit code of an interrupted command.
pub const EXIT_INTERRUPTED: i32 = 130;

/// Cancelled by the first signal.
static FIRST_SIGNAL: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);

/// The exit code after the first signal.
static EXIT_CODE: AtomicI32 = AtomicI32::new(EXIT_INTERRUPTED);

/// True if the command may take longer than [`GRACE_PERIOD`] to end itself.
static ENDS_SLOWLY: AtomicBool = AtomicBool::new(false);

/// The partial file of this process.
static PARTIAL_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Handles signals from now on. `exit_code` is the exit code of the command after the first signal.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn start_handling(exit_code: i32) -> io::Result<()> {
    EXIT_CODE.store(exit_code, Ordering::Relaxed);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _context = runtime.enter();
        SignalStreams::new()?
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(receive_signals(signals)))?;
    Ok(())
}

/// Receives signals, and ends the process if the command does not end itself.
async fn receive_signals(mut signals: SignalStreams) {
    signals.next().await;
    FIRST_SIGNAL.cancel();
    tokio::select! {
        () = signals.next() => force_exit(EXIT_INTERRUPTED),
        () = tokio::time::sleep(GRACE_PERIOD) => {}
    }
    if !ENDS_SLOWLY.load(Ordering::Relaxed) {
        report_blocked_output();
        // Whatever the command does at an interrupt: some of its output is lost.
        force_exit(EXIT_INTERRUPTED);
    }
    signals.next().await;
    force_exit(EXIT_INTERRUPTED);
}

/// Returns after the first signal.
pub async fn interrupted() {
    FIRST_SIGNAL.cancelled().await;
}

/// As [`interrupted`], but never returns after [`end_slowly`].
pub async fn interrupted_early() {
    interrupted().await;
    if ENDS_SLOWLY.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

/// Lets the command end itself in its own time after the first signal.
pub fn end_slowly() {
    ENDS_SLOWLY.store(true, Ordering::Relaxed);
}

/// Returns the exit code of the command after the first signal.
pub fn exit_code() -> i32 {
    EXIT_CODE.load(Ordering::Relaxed)
}

/// Deletes this file before a signal ends the process. A later call replaces the path.
pub fn delete_at_exit(partial_file: &Path) {
    *PARTIAL_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(partial_file.to_owned());
}

/// Deletes the partial file, and exits.
fn force_exit(code: i32) -> ! {
    if let Some(file) = &*PARTIAL_FILE.lock().unwrap_or_else(PoisonError::into_inner) {
        // Fails if the file is complete, and so has another name.
        let _ = std::fs::remove_file(file);
    }
    std::process::exit(code)
}

/// Prints that rows may be lost. Gives up if stderr is blocked too.
fn report_blocked_output() {
    let (done, printed) = mpsc::channel();
    let print = move || {
        notices::print_interrupted("the output is blocked, so its end is missing");
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(print).is_ok() {
        let _ = printed.recv_timeout(NOTICE_TIMEOUT);
    }
}

/// The streams of all signals that end a command.
#[cfg(unix)]
struct SignalStreams(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl SignalStreams {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let ignored = ignored_signals();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let handled = kinds.into_iter().filter(|kind| ignored & (1 << (kind.as_raw_value() - 1)) == 0);
        Ok(Self(handled.map(signal).collect::<io::Result<_>>()?))
    }

    async fn next(&mut self) {
        if self.0.is_empty() {
            return pending().await;
        }
        futures::future::select_all(self.0.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }
}

/// Returns the set of ignored signals. They stay ignored, as in programs in Go: `nohup` ignores SIGHUP, and a shell
/// without job control ignores SIGINT in background jobs.
#[cfg(target_os = "linux")]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

/// Where the set of ignored signals is unknown, SIGHUP (1) counts as ignored, so that `nohup` has its effect.
#[cfg(all(unix, not(target_os = "linux")))]
fn ignored_signals() -> u64 {
    1
}

#[cfg(not(unix))]
struct SignalStreams;

#[cfg(not(unix))]
impl SignalStreams {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    }
}
