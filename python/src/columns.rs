//! The rows of a list as columns in Arrow's layout, which pandas, polars and pyarrow take without a copy.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::LargeStringBuilder;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, LargeListArray, LargeStringArray, NullArray, RecordBatch,
    RecordBatchIterator, RecordBatchOptions,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors;
use crate::raw::Tree;

/// The rows of a list as columns, which pandas, polars and pyarrow take by the Arrow PyCapsule interface.
#[pyclass(frozen, module = "listwatch")]
pub struct Columns {
    batch: RecordBatch,
}

impl Columns {
    /// Makes columns of the values of each name.
    ///
    /// # Errors
    ///
    /// `InputError` for a value that is no quantity in a column of quantities.
    pub fn new(
        py: Python<'_>,
        columns: Vec<(String, Vec<Tree>)>,
        quantities: &[String],
        quantity: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let mut quantity = Quantities { parse: quantity, known: HashMap::new() };
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for (name, mut values) in columns {
            if quantities.contains(&name) {
                values.iter_mut().try_for_each(|value| quantity.replace(&name, value))?;
            }
            let array = py.detach(|| {
                let kind = values.iter().fold(Kind::Null, |kind, value| kind.with(Kind::of(value)));
                array(&kind, &values.iter().map(Some).collect::<Vec<_>>())
            });
            let array = array.map_err(|error| errors::invalid(py, format!("column {name:?}: {error}")))?;
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
        Ok(Self { batch: batch.map_err(|error| errors::invalid(py, error.to_string()))? })
    }
}

#[pymethods]
impl Columns {
    /// Returns the number of rows.
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __repr__(&self) -> String {
        let columns = self.batch.schema_ref().fields();
        let columns = columns.iter().map(|field| format!("{}: {}", field.name(), field.data_type()));
        format!("<Columns of {} rows: {}>", self.batch.num_rows(), columns.collect::<Vec<_>>().join(", "))
    }

    /// Returns the stream of the Arrow PyCapsule interface. The types are always the columns' own.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the request.
        drop(requested_schema);
        let reader = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}

/// Parses quantities by the rules of `listwatch.quantity`, each text once.
struct Quantities<'a, 'py> {
    parse: &'a Bound<'py, PyAny>,
    known: HashMap<Box<str>, f64>,
}

impl Quantities<'_, '_> {
    fn replace(&mut self, name: &str, value: &mut Tree) -> PyResult<()> {
        match value {
            Tree::String(text) => {
                let found = match self.known.get(text) {
                    Some(&known) => known,
                    None => {
                        let parsed = self.parse.call1((&**text,))?.extract()?;
                        *self.known.entry(text.clone()).or_insert(parsed)
                    }
                };
                *value = Tree::Double(found);
                Ok(())
            }
            Tree::List(list) => list.iter_mut().try_for_each(|value| self.replace(name, value)),
            Tree::Bool(_) | Tree::Dict(_) => {
                Err(errors::invalid(self.parse.py(), format!("column {name:?} has a value that is no quantity")))
            }
            Tree::Null | Tree::Int(_) | Tree::Double(_) | Tree::Number(_) => Ok(()),
        }
    }
}

/// What the values of a column have in common.
#[derive(PartialEq)]
enum Kind {
    Null,
    Bool,
    Int,
    Double,
    Text,
    List(Box<Self>),
    /// Mappings, or values of several kinds: a column of JSON.
    Json,
}

impl Kind {
    fn of(value: &Tree) -> Self {
        match value {
            Tree::Null => Self::Null,
            Tree::Bool(_) => Self::Bool,
            Tree::Int(_) => Self::Int,
            Tree::Double(_) => Self::Double,
            Tree::Number(text) if text.parse::<i64>().is_ok() => Self::Int,
            Tree::Number(_) => Self::Double,
            Tree::String(_) => Self::Text,
            Tree::List(list) => {
                Self::List(Box::new(list.iter().fold(Self::Null, |kind, value| kind.with(Self::of(value)))))
            }
            Tree::Dict(_) => Self::Json,
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, kind) | (kind, Self::Null) => kind,
            (Self::Int, Self::Double) | (Self::Double, Self::Int) => Self::Double,
            (Self::List(own), Self::List(other)) => Self::List(Box::new(own.with(*other))),
            (own, other) if own == other => own,
            _ => Self::Json,
        }
    }
}

fn array(kind: &Kind, values: &[Option<&Tree>]) -> Result<ArrayRef, ArrowError> {
    let values_of = || values.iter().copied();
    Ok(match kind {
        Kind::Null => Arc::new(NullArray::new(values.len())),
        Kind::Bool => Arc::new(
            values_of()
                .map(|value| if let Some(Tree::Bool(value)) = value { Some(*value) } else { None })
                .collect::<BooleanArray>(),
        ),
        Kind::Int => Arc::new(values_of().map(|value| value.and_then(int)).collect::<Int64Array>()),
        Kind::Double => Arc::new(values_of().map(|value| value.and_then(double)).collect::<Float64Array>()),
        Kind::Text => Arc::new(
            values_of()
                .map(|value| if let Some(Tree::String(text)) = value { Some(&**text) } else { None })
                .collect::<LargeStringArray>(),
        ),
        Kind::Json => {
            let mut texts = LargeStringBuilder::new();
            for value in values_of() {
                let value = value.filter(|value| !matches!(value, Tree::Null));
                texts.append_option(value.map(|value| serde_json::Value::from(value).to_string()));
            }
            Arc::new(texts.finish())
        }
        Kind::List(kind) => {
            let lists = || values_of().map(|value| if let Some(Tree::List(list)) = value { Some(list) } else { None });
            let elements = lists().flatten().flatten().map(Some).collect::<Vec<_>>();
            let elements = array(kind, &elements)?;
            let offsets = OffsetBuffer::from_lengths(lists().map(|list| list.map_or(0, Vec::len)));
            let nulls = NullBuffer::from_iter(lists().map(|list| list.is_some()));
            let field = Arc::new(Field::new("item", elements.data_type().clone(), true));
            Arc::new(LargeListArray::try_new(field, offsets, elements, Some(nulls))?)
        }
    })
}

fn int(value: &Tree) -> Option<i64> {
    match value {
        Tree::Int(value) => Some(*value),
        Tree::Number(text) => text.parse().ok(),
        _ => None,
    }
}

fn double(value: &Tree) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "a column of doubles has the precision of doubles")]
        Tree::Int(value) => Some(*value as f64),
        Tree::Double(value) => Some(*value),
        Tree::Number(text) => text.parse().ok(),
        _ => None,
    }
}
