//! The history of a mirror, which a thread writes.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use listwatch_history::{Recorder, SteadyClock, WriterOptions};

use super::start::CollectionAndReflector;
use crate::failure::Failure;
use crate::notices;

/// How often changes are written.
const INTERVAL: Duration = Duration::from_millis(500);

/// A thread that records the caches of a mirror.
pub struct MirrorRecording {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl MirrorRecording {
    /// Opens the history, and records the collections until the end.
    pub fn start(dir: &Path, all: &[CollectionAndReflector]) -> Result<Self, Failure> {
        let opened = Recorder::open(dir, WriterOptions::default());
        let mut recorder = opened.map_err(|error| Failure::Error(error.to_string()))?;
        for (collection, _) in all {
            recorder.attach(collection.cache.clone());
        }
        let (end, ended) = mpsc::channel();
        let record = move || {
            let mut clock = SteadyClock::default();
            loop {
                let is_last = !matches!(ended.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
                if let Err(error) = recorder.tick(clock.now()) {
                    notices::warn(&format!("the history ends: {error}"));
                    return;
                }
                if is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("history".to_owned()).spawn(record);
        let thread = thread.map_err(|error| Failure::Error(format!("cannot start a thread: {error}")))?;
        Ok(Self { end, thread })
    }

    /// Writes the last changes.
    pub fn end(self) {
        // The thread has ended if the history has.
        _ = self.end.send(());
        _ = self.thread.join();
    }
}
