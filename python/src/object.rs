//! Objects, and the objects and lists in them, as read-only mappings and sequences over encoded bytes.

use std::sync::Arc;

use listwatch::value::{Array, Object as ObjectValue, Place, Value};
use listwatch::{Encoding, Fault, ItemError, ItemRef, TypeMeta};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PySlice, PyString, PyTuple};

use crate::convert::Converter;
use crate::errors;
use crate::raw::Root;

const READ_ONLY: &str = "listwatch objects are read-only: change the dict that to_dict() returns";
const READ_ONLY_LIST: &str = "listwatch lists are read-only: change the list that to_list() returns";

/// A Kubernetes object: a read-only mapping that reads from the bytes that the server sent.
///
/// Nothing is decoded before it is read, and reading one field does not decode the others::
///
///     pod["spec"]["containers"][0]["image"]
///     pod.name, pod.namespace, pod.labels
///     pod.to_dict()                           # a copy, as json.loads returns it
#[pyclass(frozen, mapping, module = "listwatch")]
pub struct Object {
    root: Arc<Root>,
}

/// An object within an object: a read-only mapping.
#[pyclass(frozen, mapping, module = "listwatch")]
pub struct Mapping {
    root: Arc<Root>,
    place: Place,
}

/// A list within an object: a read-only sequence.
#[pyclass(frozen, sequence, module = "listwatch")]
pub struct Sequence {
    root: Arc<Root>,
    place: Place,
}

/// What the two kinds of mappings have in common.
trait Members {
    fn root(&self) -> &Arc<Root>;

    fn read<R>(&self, read: impl FnOnce(ObjectValue<'_>) -> Result<R, Fault>) -> PyResult<R>;

    fn value<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Ok(key) = key.cast::<PyString>() else { return Ok(None) };
        // A text that is not Unicode is no key.
        let Ok(name) = key.to_str() else { return Ok(None) };
        let root = self.root();
        self.read(|object| Ok(object.get(name)?.map(|value| wrap(py, root, value))))?.transpose()
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut keys = Vec::new();
        self.read(|object| {
            object.try_for_each(|key, _| {
                keys.push(PyString::new(py, key.as_str()));
                Ok(())
            })
        })?;
        PyList::new(py, keys)
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>> {
        let mut items = Vec::new();
        let root = self.root();
        self.read(|object| {
            object.try_for_each(|key, value| {
                items.push((PyString::new(py, key.as_str()), wrap(py, root, value)));
                Ok(())
            })
        })?;
        items.into_iter().map(|(key, value)| Ok((key, value?))).collect()
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;

    fn compare(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let other = match dict_of(other)? {
            Some(other) => other.into_any(),
            None if other.is_instance_of::<PyDict>() => other.clone(),
            None => return Ok(py.NotImplemented()),
        };
        match op {
            CompareOp::Eq | CompareOp::Ne => Ok(self.dict(py)?.rich_compare(other, op)?.unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }
}

/// Returns a copy of an object or a mapping as a dict; `None` for anything else.
fn dict_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(object) = value.cast::<Object>() {
        return object.get().dict(value.py()).map(Some);
    }
    if let Ok(mapping) = value.cast::<Mapping>() {
        return mapping.get().dict(value.py()).map(Some);
    }
    Ok(None)
}

/// Returns a value as Python's, with a place instead of a copy of an object or a list.
fn wrap<'py>(py: Python<'py>, root: &Arc<Root>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Object(object) => {
            let mapping = Mapping { root: Arc::clone(root), place: object.place().clone() };
            Ok(mapping.into_pyobject(py)?.into_any())
        }
        Value::Array(array) => {
            let sequence = Sequence { root: Arc::clone(root), place: array.place().clone() };
            Ok(sequence.into_pyobject(py)?.into_any())
        }
        value => Converter::new(py).value(&value, 0),
    }
}

impl Object {
    pub fn new(root: Root) -> Self {
        Self { root: Arc::new(root) }
    }

    pub fn shared(root: Arc<Root>) -> Self {
        Self { root }
    }

    fn meta<R>(&self, read: impl FnOnce(listwatch::MetaView<'_>) -> Result<R, ItemError>) -> PyResult<R> {
        self.root.with_item(|item| read(item.meta()?))
    }

    fn json_bytes(&self) -> PyResult<Vec<u8>> {
        self.root.with_item(|item| {
            let mut json = Vec::with_capacity(item.bytes().len() * 2);
            item.to_json(&mut json)?;
            Ok(json)
        })
    }
}

impl Members for Object {
    fn root(&self) -> &Arc<Root> {
        &self.root
    }

    fn read<R>(&self, read: impl FnOnce(ObjectValue<'_>) -> Result<R, Fault>) -> PyResult<R> {
        let object = |fault| ItemError::Metadata { field: "the object", fault };
        self.root.with_item(|item| read(item.json_form()?).map_err(object))
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.read(|object| {
            let dict = Converter::new(py).object(&object, 0);
            if object.as_json().is_none() {
                return Ok(dict);
            }
            // An item of a list may not have them in its own JSON.
            let (api_version, kind) = (object.get("apiVersion")?, object.get("kind")?);
            Ok(dict.and_then(|dict| {
                for (name, value) in [("apiVersion", api_version), ("kind", kind)] {
                    if let Some(value @ Value::String(_)) = value {
                        dict.set_item(name, Converter::new(py).value(&value, 0)?)?;
                    }
                }
                Ok(dict)
            }))
        })?
    }
}

#[pymethods]
impl Object {
    /// The name in the metadata.
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.meta(|meta| Ok(meta.name().into_owned()))
    }

    /// The namespace; empty for a cluster-scoped object.
    #[getter]
    fn namespace(&self) -> PyResult<String> {
        self.meta(|meta| Ok(meta.namespace().into_owned()))
    }

    /// The uid, which no other object ever has.
    #[getter]
    fn uid(&self) -> PyResult<String> {
        self.meta(|meta| Ok(meta.uid().into_owned()))
    }

    /// The resource version, which identifies this state of the object.
    #[getter]
    fn resource_version(&self) -> PyResult<String> {
        self.meta(|meta| Ok(meta.resource_version().into_owned()))
    }

    /// A copy of the labels, as a dict.
    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = self.meta(|meta| {
            Ok(meta.labels()?.map(|(key, value)| (key.into_owned(), value.into_owned())).collect::<Vec<_>>())
        })?;
        dict_of_texts(py, labels)
    }

    /// A copy of the annotations, as a dict.
    #[getter]
    fn annotations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let annotations = self.meta(|meta| {
            Ok(meta.annotations()?.map(|(key, value)| (key.into_owned(), value.into_owned())).collect::<Vec<_>>())
        })?;
        dict_of_texts(py, annotations)
    }

    /// The kind, such as `Pod`.
    #[getter]
    fn kind(&self) -> PyResult<String> {
        self.root.with_item(|item| Ok(item.type_meta().item_kind().to_owned()))
    }

    /// The group and version, such as `apps/v1`.
    #[getter]
    fn api_version(&self) -> PyResult<String> {
        self.root.with_item(|item| Ok(item.type_meta().api_version.clone()))
    }

    /// The number of bytes of the object, in the encoding in which it arrived.
    #[getter]
    fn encoded_size(&self) -> PyResult<usize> {
        self.root.with_item(|item| Ok(item.bytes().len()))
    }

    /// Returns a copy with everything in it, as `json.loads` returns the JSON of the API server.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py)
    }

    /// Returns the JSON of the object on one line.
    fn to_json(&self) -> PyResult<String> {
        Ok(String::from_utf8(self.json_bytes()?)?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (bytes, number, api_version, kind) = self.root.with_item(|item| {
            let meta = item.type_meta();
            let kind = meta.item_kind().to_owned();
            Ok((PyBytes::new(py, item.bytes()), item.encoding().number(), meta.api_version.clone(), kind))
        })?;
        let restore = py.import("listwatch._listwatch")?.getattr("restore_object")?;
        Ok((restore, (bytes, number, api_version, kind).into_pyobject(py)?))
    }

    fn __repr__(&self) -> PyResult<String> {
        let (api_version, kind) = (self.api_version()?, self.kind()?);
        let (namespace, name) = (self.namespace()?, self.name()?);
        let slash = if namespace.is_empty() { "" } else { "/" };
        Ok(format!("<{api_version} {kind} {namespace}{slash}{name}>"))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.read(|object| object.len())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.value(py, key)?.is_some())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.value(py, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, _key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY))
    }

    fn __delitem__(&self, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        self.compare(py, other, op)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns the member of this name, or the default.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, key)?.or(default))
    }

    /// Returns the names of the members.
    #[pyo3(name = "keys")]
    fn py_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view(py, self.keys(py)?, "keys")
    }

    /// Returns the values of the members.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view_items(py, self.items(py)?, "values")
    }

    /// Returns the names and values of the members.
    #[pyo3(name = "items")]
    fn py_items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view_items(py, self.items(py)?, "items")
    }
}

impl Members for Mapping {
    fn root(&self) -> &Arc<Root> {
        &self.root
    }

    fn read<R>(&self, read: impl FnOnce(ObjectValue<'_>) -> Result<R, Fault>) -> PyResult<R> {
        let part = |fault| ItemError::Metadata { field: "a part of the object", fault };
        self.root.with_item(|item| read(ObjectValue::at(item.bytes(), self.place.clone())).map_err(part))
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.read(|object| Ok(Converter::new(py).object(&object, 0)))?
    }
}

#[pymethods]
impl Mapping {
    /// Returns a copy with everything in it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py)
    }

    /// Returns the JSON of the mapping on one line.
    fn to_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dumps(self.dict(py)?.into_any())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        restore(py, self.to_json(py)?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Mapping {}>", self.dict(py)?.repr()?.to_cow()?))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.read(|object| object.len())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.value(py, key)?.is_some())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.value(py, key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, _key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY))
    }

    fn __delitem__(&self, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        self.compare(py, other, op)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns the member of this name, or the default.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, key)?.or(default))
    }

    /// Returns the names of the members.
    #[pyo3(name = "keys")]
    fn py_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view(py, self.keys(py)?, "keys")
    }

    /// Returns the values of the members.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view_items(py, self.items(py)?, "values")
    }

    /// Returns the names and values of the members.
    #[pyo3(name = "items")]
    fn py_items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        view_items(py, self.items(py)?, "items")
    }
}

impl Sequence {
    fn read<R>(&self, read: impl FnOnce(Array<'_>) -> Result<R, Fault>) -> PyResult<R> {
        let part = |fault| ItemError::Metadata { field: "a list of the object", fault };
        self.root.with_item(|item| read(Array::at(item.bytes(), self.place.clone())).map_err(part))
    }

    fn elements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut elements = Vec::new();
        self.read(|array| {
            array.try_for_each(|value| {
                elements.push(wrap(py, &self.root, value));
                Ok(())
            })
        })?;
        PyList::new(py, elements.into_iter().collect::<PyResult<Vec<_>>>()?)
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.read(|array| Ok(Converter::new(py).array(&array, 0)))?
    }
}

#[pymethods]
impl Sequence {
    /// Returns a copy with everything in it.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py)
    }

    /// Returns the JSON of the list on one line.
    fn to_json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dumps(self.list(py)?.into_any())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        restore(py, self.to_json(py)?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Sequence {}>", self.list(py)?.repr()?.to_cow()?))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.read(|array| array.len())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if index.is_instance_of::<PySlice>() {
            return self.elements(py)?.get_item_any(index);
        }
        let index: isize =
            index.extract().map_err(|_| PyTypeError::new_err("list indices must be integers or slices"))?;
        let place = match usize::try_from(index) {
            Ok(place) => Some(place),
            Err(_) => self.__len__()?.checked_sub(index.unsigned_abs()),
        };
        let Some(place) = place else { return Err(PyIndexError::new_err("list index out of range")) };
        let found = self.read(|array| Ok(array.get(place)?.map(|value| wrap(py, &self.root, value))))?;
        found.ok_or_else(|| PyIndexError::new_err("list index out of range"))?
    }

    fn __setitem__(&self, _key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY_LIST))
    }

    fn __delitem__(&self, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(READ_ONLY_LIST))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.elements(py)?.try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let elements = self.elements(py)?;
        elements.reverse()?;
        elements.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.elements(py)?.contains(value)
    }

    /// Returns the first index of the value.
    #[pyo3(signature = (value, start = None, stop = None))]
    fn index(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        start: Option<isize>,
        stop: Option<isize>,
    ) -> PyResult<usize> {
        let arguments = (value, start.unwrap_or(0), stop.unwrap_or(isize::MAX));
        self.elements(py)?.call_method1("index", arguments)?.extract()
    }

    /// Returns the number of occurrences of the value.
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.elements(py)?.call_method1("count", (value,))?.extract()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().list(py)?.into_any(),
            Err(_) if other.is_instance_of::<PyList>() => other.clone(),
            Err(_) => return Ok(py.NotImplemented()),
        };
        match op {
            CompareOp::Eq | CompareOp::Ne => Ok(self.list(py)?.rich_compare(other, op)?.unbind()),
            _ => Ok(py.NotImplemented()),
        }
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
}

trait AnyIndex<'py> {
    fn get_item_any(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>;
}

impl<'py> AnyIndex<'py> for Bound<'py, PyList> {
    fn get_item_any(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.as_any().get_item(index)
    }
}

fn dict_of_texts(py: Python<'_>, texts: Vec<(String, String)>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in texts {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

/// Returns a view of a dict with these keys.
fn view<'py>(py: Python<'py>, keys: Bound<'py, PyList>, method: &str) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    for key in keys {
        dict.set_item(key, py.None())?;
    }
    dict.call_method0(method)
}

fn view_items<'py>(
    py: Python<'py>,
    items: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>,
    method: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    for (key, value) in items {
        dict.set_item(key, value)?;
    }
    dict.call_method0(method)
}

fn dumps(value: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let options = PyDict::new(value.py());
    options.set_item("separators", (",", ":"))?;
    options.set_item("ensure_ascii", false)?;
    value.py().import("json")?.getattr("dumps")?.call((value,), Some(&options))
}

fn restore<'py>(py: Python<'py>, json: Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
    Ok((py.import("listwatch._listwatch")?.getattr("restore_part")?, PyTuple::new(py, [json])?))
}

/// Restores an object that was pickled.
#[pyfunction]
pub fn restore_object(
    py: Python<'_>,
    bytes: Vec<u8>,
    encoding: u8,
    api_version: String,
    kind: String,
) -> PyResult<Object> {
    let encoding = Encoding::from_number(encoding)
        .ok_or_else(|| errors::invalid(py, format!("the encoding {encoding} is of a newer version")))?;
    let type_meta = Arc::new(TypeMeta::new(api_version, kind));
    Ok(Object::new(Root::Own { bytes: bytes.into(), encoding, type_meta }))
}

/// Restores a part of an object that was pickled.
#[pyfunction]
pub fn restore_part<'py>(py: Python<'py>, json: String) -> PyResult<Bound<'py, PyAny>> {
    // A part of an object with one member.
    let bytes = format!("{{\"part\":{json}}}").into_bytes();
    let found = match ItemRef::new(Encoding::Json, &bytes)
        .json_form()
        .map(|object| object.get("part").map(|part| part.and_then(place)))
    {
        Ok(Ok(Some(place))) => place,
        _ => return Err(errors::invalid(py, "neither an object nor a list in JSON")),
    };
    let root = Arc::new(Root::Own { bytes: bytes.into(), encoding: Encoding::Json, type_meta: Arc::default() });
    match found {
        (place, true) => Ok(Sequence { root, place }.into_pyobject(py)?.into_any()),
        (place, false) => Ok(Mapping { root, place }.into_pyobject(py)?.into_any()),
    }
}

/// Returns a place, and whether it is of a list.
fn place(value: Value<'_>) -> Option<(Place, bool)> {
    match value {
        Value::Object(object) => Some((object.place().clone(), false)),
        Value::Array(array) => Some((array.place().clone(), true)),
        _ => None,
    }
}
