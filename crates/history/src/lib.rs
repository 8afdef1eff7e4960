//! Records every state of Kubernetes collections on disk, and reads them at any past version or time.
//!
//! A [`Recorder`] follows the change logs of caches and writes each change as the delta to the state before. A
//! [`History`] reads a collection [at a point](History::at), as a cache is read, or its [changes](History::changes).
//!
//! - **Exact.** A state at a version is byte for byte what a list at exactly this version returned. Nothing is
//!   coalesced.
//! - **Gaps are known.** A restart of the recorder resumes the watch. Where that is impossible, the time between is
//!   [unknown](HistoryError::Unknown), and what has changed meanwhile is [marked](PastChange::is_between).
//! - **Crash-safe.** Each commit is flushed to disk. A damaged row is an error with its object; the rest stays
//!   readable.
//! - **Bounded.** A history consists of parts, which are dropped by age and size. Each part begins with the state of
//!   every object, so dropping an old part never makes a newer one unreadable.
//!
//! `docs/history-format.md` of the repository describes the files.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod base;
mod changes;
mod check;
mod clock;
mod commit;
mod compare;
mod cut;
mod error;
mod history;
mod open_part;
mod part;
mod past;
mod reader;
mod record;
mod recorder;
mod writer;

pub use self::changes::{ChangeQuery, Changes, Gap, PastChange, PastEvent};
pub use self::check::CheckReport;
pub use self::clock::SteadyClock;
pub use self::cut::{Point, Span, Unknown};
pub use self::error::HistoryError;
pub use self::history::History;
pub use self::past::{PastCollection, PastObject, PastObjects};
pub use self::record::ChangeKind;
pub use self::recorder::{Recorder, RecorderStatus};
pub use self::writer::WriterOptions;
