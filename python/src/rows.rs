//! What a list or a watch delivers for an object: the object, or some fields.

use std::sync::Arc;

use listwatch::{ItemError, ItemRef, TypeMeta};
use listwatch_tables::json_path::ObjectReader;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::Converter;
use crate::fields::FieldSelection;
use crate::object::Object;
use crate::queue::Queued;
use crate::raw::{Root, Tree};

/// What a list or a watch delivers for an object.
pub enum Row {
    Object(Root),
    Fields(Vec<Tree>),
}

impl Row {
    pub fn into_py(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Object(root) => Ok(Object::new(root).into_pyobject(py)?.into_any()),
            Self::Fields(fields) => {
                let mut converter = Converter::new(py);
                let fields =
                    fields.into_iter().map(|field| field.into_py(py, &mut converter)).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, fields)?.into_any())
            }
        }
    }
}

impl Queued for Row {
    fn size(&self) -> usize {
        match self {
            Self::Object(Root::Own { bytes, .. }) => bytes.len(),
            Self::Object(Root::Cached { .. }) => 512,
            Self::Fields(fields) => fields.iter().map(Tree::size).sum(),
        }
    }
}

/// Makes rows of items.
pub struct RowMaker {
    fields: Option<Arc<FieldSelection>>,
    reader: Option<ObjectReader>,
    last: Arc<TypeMeta>,
}

impl RowMaker {
    pub fn new(fields: Option<Arc<FieldSelection>>, type_meta: TypeMeta) -> Self {
        let reader = fields.as_ref().and_then(|fields| fields.reader());
        Self { fields, reader, last: Arc::new(type_meta) }
    }

    pub fn row(&mut self, item: ItemRef<'_>) -> Result<Row, ItemError> {
        match &self.fields {
            None => Root::of(item, &mut self.last).map(Row::Object),
            Some(fields) => fields.read(&item, self.reader.as_mut()).map(Row::Fields),
        }
    }
}
