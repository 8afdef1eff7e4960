//! The changes of a cache.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use crate::object::Object;
use crate::raw::Root;

/// A change of a cache: its `type`, the `object`, and the `old` state of `MODIFIED` and `DELETED`.
///
/// `SYNCED` follows the initial state and each relist. A change unpacks into its type and its object.
#[pyclass(frozen, module = "listwatch")]
pub struct Change {
    kind: &'static str,
    object: Option<Arc<Root>>,
    old: Option<Arc<Root>>,
    final_state_unknown: bool,
}

impl Change {
    pub fn new(kind: &'static str, object: Option<Root>, old: Option<Root>) -> Self {
        Self { kind, object: object.map(Arc::new), old: old.map(Arc::new), final_state_unknown: false }
    }

    /// The deletion itself was missed, if `final_state_unknown`.
    pub fn missed(self, final_state_unknown: bool) -> Self {
        Self { final_state_unknown, ..self }
    }
}

#[pymethods]
impl Change {
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::intern(py, self.kind)
    }

    #[getter]
    fn object(&self) -> Option<Object> {
        self.object.clone().map(Object::shared)
    }

    /// The state before; of a deletion, the state that was delivered last.
    #[getter]
    fn old(&self) -> Option<Object> {
        self.old.clone().map(Object::shared)
    }

    /// True if the deletion itself was missed, so that the object may have changed before it.
    #[getter]
    fn final_state_unknown(&self) -> bool {
        self.final_state_unknown
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        (self.r#type(py), self.object()).into_pyobject(py)?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let object = self.object().map(|object| object.into_pyobject(py)?.repr()?.extract::<String>()).transpose()?;
        Ok(format!("<{} {}>", self.kind, object.unwrap_or_default()))
    }
}
