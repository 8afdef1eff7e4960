//! The events of a watch.

use listwatch::client::WatchEvent;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString, PyTuple, PyType};

use crate::queue::Queued as _;
use crate::rows::Row;

/// An event on its way to Python.
pub struct Event {
    kind: &'static str,
    row: Option<Row>,
    resource_version: Option<String>,
}

impl Event {
    pub fn of(event: WatchEvent<Row>) -> Self {
        let with_row = |kind, row| Self { kind, row: Some(row), resource_version: None };
        match event {
            WatchEvent::Added(row) => with_row("ADDED", row),
            WatchEvent::Modified(row) => with_row("MODIFIED", row),
            WatchEvent::Deleted(row) => with_row("DELETED", row),
            WatchEvent::Synced { resource_version } => {
                Self { kind: "SYNCED", row: None, resource_version: Some(resource_version) }
            }
            WatchEvent::Bookmark { resource_version } => {
                Self { kind: "BOOKMARK", row: None, resource_version: Some(resource_version) }
            }
            _ => Self { kind: "RESET", row: None, resource_version: None },
        }
    }

    pub fn size(&self) -> usize {
        64 + self.row.as_ref().map_or(0, Row::size)
    }

    pub fn into_py(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let object = self.row.map(|row| row.into_py(py).map(Bound::unbind)).transpose()?;
        let event = PyEvent { kind: self.kind, object, resource_version: self.resource_version };
        Ok(event.into_pyobject(py)?.into_any())
    }
}

/// An event of a watch: its `type`, and the `object` of `ADDED`, `MODIFIED` and `DELETED`.
///
/// `SYNCED` follows the initial state, with the `resource_version` of the collection. At `RESET` discard what was
/// delivered: the whole collection follows. An event unpacks into its type and its object.
#[pyclass(frozen, name = "Event", module = "listwatch")]
pub struct PyEvent {
    kind: &'static str,
    object: Option<Py<PyAny>>,
    resource_version: Option<String>,
}

#[pymethods]
impl PyEvent {
    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, _item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        class.clone()
    }

    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, self.kind)
    }

    #[getter]
    fn object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.object.as_ref().map(|object| object.clone_ref(py))
    }

    #[getter]
    fn resource_version(&self) -> Option<&str> {
        self.resource_version.as_deref()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let object = self.object(py).unwrap_or_else(|| py.None());
        PyTuple::new(py, [self.r#type(py).into_any().unbind(), object])?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let object = self.object.as_ref().map(|object| object.bind(py).repr()).transpose()?;
        let object = object.as_ref().map(|text| text.to_cow()).transpose()?;
        Ok(format!("<{} {}>", self.kind, object.as_deref().or(self.resource_version.as_deref()).unwrap_or_default()))
    }
}
