//! The JSON form of objects as Python's dicts, lists, strings and numbers, built directly from the encoded bytes.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use listwatch::value::{Array, Key, Object, Value};
use listwatch::{Encoding, Fault, ItemRef};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use crate::errors;

/// The deepest nesting that is converted, as in `serde_json`.
const DEEPEST: usize = 128;

/// The number of kept keys of each kind, a power of two.
const KEYS: usize = 1024;

/// The longest kept text, so that a [`TextKey`] fits in a cache line.
const LONGEST_KEY: usize = 55;

/// Strings of keys, which most objects share. A key replaces another one with the same hash.
struct Keys {
    fields: Vec<Option<FieldKey>>,
    texts: Vec<Option<TextKey>>,
}

/// The name of a field of the schema, which is known by its address.
struct FieldKey {
    name: &'static str,
    key: Py<PyString>,
}

/// A key of a map, or a name in JSON.
struct TextKey {
    key: Py<PyString>,
    len: u8,
    text: [u8; LONGEST_KEY],
}

impl Keys {
    fn new() -> Self {
        Self { fields: (0..KEYS).map(|_| None).collect(), texts: (0..KEYS).map(|_| None).collect() }
    }
}

impl TextKey {
    fn new(py: Python<'_>, text: &str) -> Option<Self> {
        let mut kept = [0; LONGEST_KEY];
        kept.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { key: PyString::new(py, text).unbind(), len: u8::try_from(text.len()).ok()?, text: kept })
    }

    fn is(&self, text: &str) -> bool {
        self.text.get(..usize::from(self.len)) == Some(text.as_bytes())
    }
}

/// Keys that no conversion uses at the moment. The lock is not held while Python runs.
static UNUSED: Mutex<Vec<Keys>> = Mutex::new(Vec::new());

/// Converts values, with keys of its own.
pub struct Converter<'py> {
    py: Python<'py>,
    keys: Option<Keys>,
}

impl<'py> Converter<'py> {
    pub fn new(py: Python<'py>) -> Self {
        // A lock that is taken is rather not waited for: the process may have forked while another thread had it.
        let unused = UNUSED.try_lock().ok().and_then(|mut unused| unused.pop());
        Self { py, keys: Some(unused.unwrap_or_else(Keys::new)) }
    }

    /// Sets a member, whose key most objects share.
    fn set(&mut self, dict: &Bound<'py, PyDict>, key: &Key<'_>, value: Bound<'py, PyAny>) -> PyResult<()> {
        let py = self.py;
        if let Key::Field(name) = *key
            && let Some(slot) = self.keys.as_mut().and_then(|keys| keys.fields.get_mut(hash_of_address(name)))
        {
            let known = match slot {
                Some(known) if std::ptr::eq(known.name, name) => known,
                slot => slot.insert(FieldKey { name, key: PyString::new(py, name).unbind() }),
            };
            return dict.set_item(known.key.bind(py), value);
        }
        dict.set_item(self.text_key(key.as_str()), value)
    }

    fn text_key(&mut self, text: &str) -> Bound<'py, PyString> {
        let keys = self.keys.as_mut().filter(|_| text.len() <= LONGEST_KEY);
        let Some(slot) = keys.and_then(|keys| keys.texts.get_mut(hash(text))) else {
            return PyString::new(self.py, text);
        };
        if slot.as_ref().is_none_or(|known| !known.is(text)) {
            *slot = TextKey::new(self.py, text);
        }
        slot.as_ref().map_or_else(|| PyString::new(self.py, text), |known| known.key.bind(self.py).clone())
    }

    /// Converts a value.
    ///
    /// # Errors
    ///
    /// `ObjectError` if it is malformed or nested too deep.
    pub fn value(&mut self, value: &Value<'_>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match value {
            Value::Null => py.None().into_bound(py),
            Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
            Value::Int(value) => value.into_pyobject(py)?.into_any(),
            Value::Double(value) => double(py, *value)?,
            Value::Number(text) => self.json(text.as_bytes())?,
            Value::String(text) => PyString::new(py, text).into_any(),
            Value::Array(array) => self.array(array, depth)?.into_any(),
            Value::Object(object) => self.object(object, depth)?.into_any(),
            _ => return Err(errors::fault(py, Fault::Value)),
        })
    }

    /// Converts an object and all that it contains.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn object(&mut self, object: &Object<'_>, depth: usize) -> PyResult<Bound<'py, PyDict>> {
        self.check(depth)?;
        if let Some(json) = object.as_json() {
            return Ok(self.json(json)?.cast_into()?);
        }
        let dict = PyDict::new(self.py);
        object
            .try_for_each(|key, value| {
                let value = self.value(&value, depth + 1)?;
                self.set(&dict, &key, value).map_err(Stop)
            })
            .map_err(|Stop(error)| error)?;
        Ok(dict)
    }

    /// Converts a list and all that it contains.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn array(&mut self, array: &Array<'_>, depth: usize) -> PyResult<Bound<'py, PyList>> {
        self.check(depth)?;
        if let Some(json) = array.as_json() {
            return Ok(self.json(json)?.cast_into()?);
        }
        let mut elements = Vec::new();
        array
            .try_for_each(|value| {
                elements.push(self.value(&value, depth + 1)?);
                Ok(())
            })
            .map_err(|Stop(error)| error)?;
        PyList::new(self.py, elements)
    }

    fn check(&self, depth: usize) -> PyResult<()> {
        if depth < DEEPEST { Ok(()) } else { Err(errors::fault(self.py, Fault::Depth)) }
    }

    /// Converts JSON in one pass.
    ///
    /// # Errors
    ///
    /// `ObjectError` if it is malformed or nested too deep.
    pub fn json(&mut self, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(text) = str::from_utf8(json)
            && let Ok(value) = self.parse(text)
        {
            return Ok(value);
        }
        // Text that is not Unicode is read as Go reads it.
        let repaired = ItemRef::new(Encoding::Json, json).decode_json::<serde_json::Value>();
        let repaired = repaired.map_err(|error| errors::unreadable(self.py, &error))?;
        self.parse(&repaired.to_string())
            .map_err(|error| errors::raise(self.py, "ObjectError", format!("the object cannot be read: {error}"), None))
    }

    fn parse(&mut self, text: &str) -> Result<Bound<'py, PyAny>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Seed(self).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

impl Drop for Converter<'_> {
    fn drop(&mut self) {
        if let Some(keys) = self.keys.take()
            && let Ok(mut unused) = UNUSED.try_lock()
        {
            unused.push(keys);
        }
    }
}

/// Converts a number as `json.loads` does its text in Go's JSON, where a whole number has no fraction.
fn double(py: Python<'_>, value: f64) -> PyResult<Bound<'_, PyAny>> {
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number below 2⁵³")]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Ok((value as i64).into_pyobject(py)?.into_any());
    }
    Ok(PyFloat::new(py, value).into_any())
}

/// The error that ends a walk.
struct Stop(PyErr);

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self(Python::attach(|py| errors::fault(py, fault)))
    }
}

fn hash_of_address(name: &'static str) -> usize {
    let address = name.as_ptr().addr() as u64 ^ (name.len() as u64) << 48;
    usize::try_from(address.wrapping_mul(0x517c_c1b7_2722_0a95) >> 40).unwrap_or_default() & (KEYS - 1)
}

/// The hash of FxHash, which rustc uses.
fn hash(text: &str) -> usize {
    let mut hash = text.len() as u64;
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    for word in words.iter().chain([&last]) {
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    usize::try_from(hash >> 40).unwrap_or_default() & (KEYS - 1)
}

/// Deserializes JSON into Python's objects.
struct Seed<'c, 'py>(&'c mut Converter<'py>);

impl<'de, 'py> DeserializeSeed<'de> for Seed<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Seed<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(self.0.py.None().into_bound(self.0.py))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.0.py, value).to_owned().into_any())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(value.into_pyobject(self.0.py).map_err(E::custom)?.into_any())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(value.into_pyobject(self.0.py).map_err(E::custom)?.into_any())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(PyFloat::new(self.0.py, value).into_any())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.0.py, text).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(Seed(self.0))? {
            list.push(element);
        }
        Ok(PyList::new(self.0.py, list).map_err(A::Error::custom)?.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.0.py);
        while let Some(key) = members.next_key_seed(KeySeed(self.0))? {
            let value = members.next_value_seed(Seed(self.0))?;
            dict.set_item(key, value).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// Deserializes the name of a member.
struct KeySeed<'c, 'py>(&'c mut Converter<'py>);

impl<'de, 'py> DeserializeSeed<'de> for KeySeed<'_, 'py> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for KeySeed<'_, 'py> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.text_key(text))
    }
}

/// Empties the kept keys, before the interpreter ends.
#[pyfunction]
pub fn drop_keys() {
    let kept = std::mem::take(&mut *UNUSED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(kept);
}
