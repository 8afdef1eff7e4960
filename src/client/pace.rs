//! When a thread that reads connections rests.
//!
//! Waking a thread costs more than decoding a small change. So a thread that is woken often for few bytes rests before
//! it waits again. One wake-up then delivers all changes that have arrived meanwhile.
//!
//! - Only a busy thread rests: [`FREE`] wake-ups cost nothing, and one more in each [`REST`]. So a change after silence
//!   is not delayed, and no change by more than [`REST`].
//! - It rests only if few bytes arrive, which fit into the receive buffer of a connection. Otherwise the server may
//!   have to wait for the client, and a list would take longer.
//! - While a request waits for the head of its response, it does not rest. A new request ends a rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, lock};

/// The time between two wake-ups of a busy thread.
pub(super) const REST: Duration = Duration::from_millis(10);

/// The wake-ups without a rest, after a silence.
const FREE: u32 = 20;

/// The KiB that may arrive in a rest. If there are more, the buffer may be full: Linux begins with a receive window of
/// 64 KiB (`tcp_rmem` in `ip-sysctl.rst`).
const KIB: u32 = 48;

/// How busy a thread is.
pub(super) struct Pace {
    /// [`REST`], but for tests.
    rest: Duration,
    /// The requests that wait for the head of their response.
    requests: AtomicUsize,
    /// The bytes that were read since the thread waited last.
    bytes: AtomicUsize,
    load: Mutex<Load>,
}

/// Keeps a thread from resting until it is dropped.
pub(super) struct Awake(Arc<Pace>);

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    pub(super) fn new(rest: Duration) -> Self {
        let load = Mutex::new(Load::new(Instant::now()));
        Self { rest, requests: AtomicUsize::new(0), bytes: AtomicUsize::new(0), load }
    }

    /// Ends the rest of the thread.
    pub(super) fn keep_awake(self: &Arc<Self>, thread: &Thread) -> Awake {
        self.requests.fetch_add(1, Ordering::Relaxed);
        // If the thread has not seen the number yet, this ends the rest that it begins.
        thread.unpark();
        Awake(Arc::clone(self))
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Rests, if the thread is busy. The thread calls it before it waits.
    pub(super) fn rest(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let rest = lock(&self.load).rest(Instant::now(), bytes, self.rest);
        if self.requests.load(Ordering::Relaxed) == 0
            && let Some(rest) = rest
        {
            thread::park_timeout(rest);
        }
    }
}

/// The debts of wake-ups and of bytes, each as the time at which it is paid off.
struct Load {
    wakes: Instant,
    bytes: Instant,
}

impl Load {
    fn new(now: Instant) -> Self {
        Self { wakes: now, bytes: now }
    }

    /// Adds a wake-up that brought `bytes`. Returns the time to rest, of at most `rest`.
    fn rest(&mut self, now: Instant, bytes: usize, rest: Duration) -> Option<Duration> {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        // Debts are limited: however busy the thread was, it may rest soon.
        self.bytes = (self.bytes.max(now) + rest.saturating_mul(kib) / KIB).min(now + 10 * rest);
        self.wakes = (self.wakes.max(now) + rest).min(now + (FREE + 1) * rest);
        let free = now + FREE * rest;
        (self.wakes > free && self.bytes <= now + rest).then(|| self.wakes - free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The receive window of the connection.
    const WINDOW: usize = 64 << 10;

    /// What a thread did in a second.
    #[derive(Debug, PartialEq)]
    struct Second {
        wakes: u32,
        rested: Duration,
        read: usize,
    }

    /// Runs a thread for a second from `start`. The server sends `bytes` after each `every`, and waits while the window
    /// is full.
    fn run(load: &mut Load, start: Instant, bytes: usize, every: Duration) -> Second {
        let mut second = Second { wakes: 0, rested: Duration::ZERO, read: 0 };
        let (mut now, mut next) = (start, start);
        while now < start + Duration::from_secs(1) {
            let mut read = 0;
            while next <= now && read + bytes <= WINDOW {
                (next, read) = (next + every, read + bytes);
            }
            // If the window was full, the server continues now.
            next = next.max(now);
            let rest = load.rest(now, read, REST).unwrap_or_default();
            assert!(rest <= REST, "{rest:?}");
            second = Second { wakes: second.wakes + 1, rested: second.rested + rest, read: second.read + read };
            now = (now + rest).max(next);
        }
        second
    }

    #[test]
    fn rests_while_it_is_woken_often_for_few_bytes() {
        let start = Instant::now();
        let micros = Duration::from_micros;
        // The number of wake-ups, and the rests in milliseconds.
        for (bytes, every, wakes, rested) in [
            // Few changes.
            (2 << 10, micros(50_000), 20, 0),
            (2 << 10, micros(10_000), 100, 0),
            // Many changes: after the free wake-ups, one in each rest.
            (2 << 10, micros(2_000), 120, 952),
            (200, micros(100), 120, 998),
            // More than the buffer may hold.
            (20 << 10, micros(2_000), 500, 0),
        ] {
            let mut load = Load::new(start);
            let first = run(&mut load, start, bytes, every);
            assert_eq!((first.wakes, first.rested.as_millis()), (wakes, rested), "{bytes} bytes each {every:?}");
            // The same after a silence.
            assert_eq!(run(&mut load, start + Duration::from_secs(2), bytes, every), first);
        }
    }

    #[test]
    fn lists_are_not_slower_on_a_busy_thread() {
        let start = Instant::now();
        let micros = Duration::from_micros;
        for (bytes, every) in [(4 << 10, micros(40)), (4 << 10, micros(200)), (64 << 10, micros(625))] {
            let mut load = Load::new(start);
            run(&mut load, start, 100, micros(1_000));
            let start = start + Duration::from_secs(1);
            let list = run(&mut load, start, bytes, every);
            let sent = bytes * usize::try_from(1_000_000 / every.as_micros()).unwrap();
            assert!(list.rested < 2 * REST && list.read > sent / 100 * 97, "{bytes} bytes each {every:?}: {list:?}");
            // Changes after the list.
            let changes = run(&mut load, start + Duration::from_secs(1), 100, micros(1_000));
            assert!(changes.rested > Duration::from_millis(800), "{changes:?}");
        }
    }
}
