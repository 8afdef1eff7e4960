//! Errors, as the exceptions of `listwatch._errors`.

use listwatch::client::{Error, ErrorKind, TransportErrorKind};
use listwatch::{Fault, ItemError, StatusDetails};
use listwatch_cache::{EndReason, FileError, SyncError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// An error on its way to Python.
#[derive(Clone, Debug)]
pub enum Failure {
    Client(Error),
    Sync(SyncError),
    File(String),
    Input(String),
    TimedOut(String),
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Self {
        Self::Sync(error)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::File(error.to_string())
    }
}

impl Failure {
    pub fn into_py(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Client(error) => client(py, &error),
            Self::Sync(error) => sync(py, &error),
            Self::File(text) => raise(py, "FileError", text, None),
            Self::Input(text) => invalid(py, text),
            Self::TimedOut(text) => timed_out(py, text),
            Self::Other(text) => raise(py, "Error", text, None),
        }
    }
}

/// Returns the error of a handle that is used in the child of a fork.
pub fn forked(what: &str) -> PyErr {
    Python::attach(|py| {
        let text = format!("the {what} belongs to the process before a fork: create a new one in this process");
        raise(py, "ForkError", text, None)
    })
}

/// Returns the error of a handle that was closed.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "ClosedError", format!("the {what} is closed"), None)
}

pub fn timed_out(py: Python<'_>, text: impl Into<String>) -> PyErr {
    raise(py, "TimeoutError", text.into(), None)
}

/// Returns the error of an invalid argument.
pub fn invalid(py: Python<'_>, text: impl Into<String>) -> PyErr {
    raise(py, "InputError", text.into(), None)
}

/// Returns the error of an object that cannot be read.
pub fn unreadable(py: Python<'_>, error: &ItemError) -> PyErr {
    raise(py, "ObjectError", error.to_string(), None)
}

/// As [`unreadable`], for a part of an object.
pub fn fault(py: Python<'_>, fault: Fault) -> PyErr {
    raise(py, "ObjectError", format!("the object cannot be read: {fault}"), None)
}

/// Returns the error of a cache that has ended.
pub fn ended(py: Python<'_>, reason: &EndReason) -> PyErr {
    match reason {
        EndReason::Failed(error) => client(py, error),
        reason => raise(py, "ClosedError", format!("the cache has ended: {reason}"), None),
    }
}

fn sync(py: Python<'_>, error: &SyncError) -> PyErr {
    match error {
        SyncError::Ended(reason) => ended(py, reason),
        SyncError::Incomplete { .. } => raise(py, "IncompleteError", error.to_string(), None),
        error => raise(py, "InputError", error.to_string(), None),
    }
}

fn client(py: Python<'_>, error: &Error) -> PyErr {
    let class = class(error);
    let details = PyDict::new(py);
    let filled = (|| {
        details.set_item("items", error.items())?;
        if let Some(namespace) = error.namespace() {
            details.set_item("namespace", namespace)?;
        }
        if let ErrorKind::Api { code, status, .. } = error.kind() {
            details.set_item("status", code)?;
            details.set_item("reason", &status.reason)?;
            details.set_item("message", &status.message)?;
            details.set_item("details", status.details.as_ref().map(|found| status_details(py, found)).transpose()?)?;
        }
        Ok(())
    })();
    match filled {
        Ok(()) => raise(py, class, text(error), Some(&details)),
        Err(error) => error,
    }
}

/// Returns the text, as on the command line.
fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Unresolved(reason) => {
            reason.strip_prefix("no resource ").and_then(|rest| rest.split_once(" on this server")).map_or_else(
                || reason.clone(),
                |(name, rest)| format!("the server doesn't have a resource type {name}{rest}"),
            )
        }
        _ => error.to_string(),
    }
}

fn class(error: &Error) -> &'static str {
    match error.kind() {
        _ if error.is_expired() => "ExpiredError",
        ErrorKind::Params(_) => "InputError",
        ErrorKind::Unresolved(_) => "UnknownResourceError",
        ErrorKind::Api { .. } => "ApiError",
        ErrorKind::Transport(error) if matches!(error.kind(), TransportErrorKind::Deadline) => "TimeoutError",
        _ if error.is_incomplete() || error.items() > 0 => "IncompleteError",
        ErrorKind::Transport(error) => match error.kind() {
            TransportErrorKind::ReadIdle => "TimeoutError",
            TransportErrorKind::Setup | TransportErrorKind::Credentials => "ConfigError",
            _ => "ConnectionError",
        },
        _ => "Error",
    }
}

fn status_details<'py>(py: Python<'py>, details: &StatusDetails) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &details.name)?;
    dict.set_item("group", &details.group)?;
    dict.set_item("kind", &details.kind)?;
    dict.set_item("uid", &details.uid)?;
    dict.set_item("retryAfterSeconds", details.retry_after_seconds)?;
    let mut causes = Vec::new();
    for cause in &details.causes {
        let found = PyDict::new(py);
        found.set_item("reason", &cause.reason)?;
        found.set_item("message", &cause.message)?;
        found.set_item("field", &cause.field)?;
        causes.push(found);
    }
    dict.set_item("causes", causes)?;
    Ok(dict)
}

/// Returns an exception of a class of `listwatch._errors`, or the error of creating it.
pub fn raise(py: Python<'_>, class: &str, text: String, attributes: Option<&Bound<'_, PyDict>>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = (|| {
        let module =
            MODULE.get_or_try_init(py, || py.import("listwatch._errors").map(|module| module.into_any().unbind()))?;
        let class = module.bind(py).getattr(class)?.cast_into::<PyType>()?;
        class.call(PyTuple::new(py, [text])?, attributes)
    })();
    made.map_or_else(|error| error, PyErr::from_value)
}
