//! The signals that end a command: SIGINT (Ctrl-C), SIGTERM, and SIGHUP of a terminal that is closed.
//!
//! | signal | result |
//! |---|---|
//! | the first | the command ends itself: it flushes its output, deletes partial files, and prints its progress |
//! | none for [`GRACE`] after it | the process exits, unless the command [takes its time](end_slowly): a write to stdout or stderr is blocked |
//! | the second | the process exits at once |
//!
//! A thread of its own receives the signals, because a blocked write blocks the thread of the command.

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
const GRACE: Duration = Duration::from_secs(1);

/// The longest time that a notice may block the exit.
const LAST_NOTICE: Duration = Duration::from_millis(100);

/// The exit code of an interrupted command.
pub const INTERRUPTED: i32 = 130;

/// Cancelled by the first signal.
static SIGNAL: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);

/// The exit code after the first signal.
static EXIT_CODE: AtomicI32 = AtomicI32::new(INTERRUPTED);

/// True if the command may take longer than [`GRACE`] to end itself.
static ENDS_SLOWLY: AtomicBool = AtomicBool::new(false);

/// The partial file of this process.
static PARTIAL_FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Handles signals from now on. `exit_code` is the exit code of the command after the first signal.
///
/// # Errors
///
/// If the thread cannot be started.
pub fn handle(exit_code: i32) -> io::Result<()> {
    EXIT_CODE.store(exit_code, Ordering::Relaxed);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(receive(signals)))?;
    Ok(())
}

async fn receive(mut signals: Signals) {
    signals.next().await;
    SIGNAL.cancel();
    tokio::select! {
        () = signals.next() => exit(INTERRUPTED),
        () = tokio::time::sleep(GRACE) => {}
    }
    if !ENDS_SLOWLY.load(Ordering::Relaxed) {
        report_blocked_output();
        // Whatever the command does at an interrupt: some of its output is lost.
        exit(INTERRUPTED);
    }
    signals.next().await;
    exit(INTERRUPTED);
}

/// Returns after the first signal.
pub async fn interrupted() {
    SIGNAL.cancelled().await;
}

/// As [`interrupted`], but never returns after [`end_slowly`].
pub async fn interrupted_early() {
    interrupted().await;
    if ENDS_SLOWLY.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

/// Lets the command end itself in its own time after the first signal.
#[cfg(feature = "cluster")]
pub fn end_slowly() {
    ENDS_SLOWLY.store(true, Ordering::Relaxed);
}

/// Returns the exit code of the command after the first signal.
pub fn exit_code() -> i32 {
    EXIT_CODE.load(Ordering::Relaxed)
}

/// Deletes this file before a signal ends the process. A later call replaces the path.
pub fn delete_on_exit(partial_file: &Path) {
    *PARTIAL_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(partial_file.to_owned());
}

fn exit(code: i32) -> ! {
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
        notices::interrupted("the output is blocked, so its end is missing");
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(print).is_ok() {
        let _ = printed.recv_timeout(LAST_NOTICE);
    }
}

/// The streams of all signals that end a command.
#[cfg(unix)]
struct Signals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let ignored = ignored();
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
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

/// Where the set of ignored signals is unknown, SIGHUP (1) counts as ignored, so that `nohup` has its effect.
#[cfg(all(unix, not(target_os = "linux")))]
fn ignored() -> u64 {
    1
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    }
}
