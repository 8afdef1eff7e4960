//! The extension module of the Python package `listwatch`: lists, watches and caches of the crates `listwatch` and
//! `listwatch-cache`, and objects that are read from their encoded bytes.
//!
//! Read this before a change.
//!
//! | file | holds |
//! |---|---|
//! | `process` | the runtime, and handles that the child of a fork must not touch |
//! | `wake`, `queue` | how a task of the runtime passes values to Python: batches in a bounded queue, a byte in a socket |
//! | `errors`, `options` | exceptions and arguments |
//! | `convert`, `raw`, `fields` | values of the JSON form as Python's, objects as bytes, paths to fields |
//! | `object`, `rows`, `event`, `change` | what lists, watches and caches deliver |
//! | `columns` | the rows of a list in Arrow's layout |
//! | `stream`, `cache`, `client` | what Python calls |
//! | `logs` | warnings for `logging` |
//!
//! - No thread of the runtime ever takes the GIL. Whoever waits for one of them has released the GIL.
//! - No lock of this crate is held while Python code runs.
//! - The classes of users are in the folder `python`: they document and check arguments, and call this module.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cache;
mod change;
mod client;
mod columns;
mod convert;
mod errors;
mod event;
mod fields;
mod logs;
mod object;
mod options;
mod process;
mod queue;
mod raw;
mod rows;
mod stream;
mod wake;

/// The extension module.
#[pyo3::pymodule(gil_used = false)]
mod _listwatch {
    #[pymodule_export]
    use crate::cache::Cache;
    #[pymodule_export]
    use crate::change::Change;
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::columns::Columns;
    #[pymodule_export]
    use crate::convert::drop_keys;
    #[pymodule_export]
    use crate::event::PyEvent;
    #[pymodule_export]
    use crate::logs::{close_log, next_log_lines};
    #[pymodule_export]
    use crate::object::{Mapping, Object, Sequence, restore_object, restore_part};
    #[pymodule_export]
    use crate::process::after_fork;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::wake::LoopWaker;

    #[pymodule_init]
    fn init() {
        crate::logs::subscribe();
    }
}
