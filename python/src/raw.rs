//! One object as the library received it, and values of its fields: without Python, for the threads of the runtime.

use std::sync::Arc;

use listwatch::value::Value;
use listwatch::{Encoding, Fault, Item, ItemError, ItemRef, TypeMeta};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::convert::Converter;
use crate::process::OfProcess;

/// An object's bytes, and what is needed to read them.
pub enum Root {
    Own { bytes: Box<[u8]>, encoding: Encoding, type_meta: Arc<TypeMeta> },
    Cached { object: OfProcess<listwatch_cache::Object<[u8]>>, type_meta: Arc<TypeMeta> },
}

impl Root {
    /// Copies an item. `last` is the type meta of the item before, which mostly is the same.
    pub fn of(item: ItemRef<'_>, last: &mut Arc<TypeMeta>) -> Result<Self, ItemError> {
        let type_meta = type_meta(&item, last)?;
        Ok(Self::Own { bytes: item.to_box(), encoding: item.encoding(), type_meta })
    }

    /// Calls `read` with the object.
    ///
    /// # Errors
    ///
    /// That of `read`, and `Error` for the object of a cache in the child of a fork.
    pub fn with_item<R>(&self, read: impl FnOnce(ItemRef<'_>) -> Result<R, ItemError>) -> PyResult<R> {
        let result = match self {
            Self::Own { bytes, encoding, type_meta } => read(ItemRef::new(*encoding, bytes).with_type_meta(type_meta)),
            Self::Cached { object, type_meta } => {
                object.get("object of a cache")?.item().and_then(|item| read(item.with_type_meta(type_meta)))
            }
        };
        result.map_err(|error| Python::attach(|py| crate::errors::unreadable(py, &error)))
    }
}

/// Returns the type meta of an item: its own, or that of its list.
fn type_meta(item: &ItemRef<'_>, last: &mut Arc<TypeMeta>) -> Result<Arc<TypeMeta>, ItemError> {
    let found = match item.own_type_meta()? {
        Some(TypeMeta { api_version, kind, .. }) if !kind.is_empty() && !api_version.is_empty() => {
            if last.kind == kind && last.api_version == api_version {
                return Ok(Arc::clone(last));
            }
            TypeMeta::new(api_version, kind)
        }
        _ => {
            let of_list = item.type_meta();
            if last.kind == of_list.item_kind() && last.api_version == of_list.api_version {
                return Ok(Arc::clone(last));
            }
            TypeMeta::new(of_list.api_version.clone(), of_list.item_kind())
        }
    };
    *last = Arc::new(found);
    Ok(Arc::clone(last))
}

/// An object of a `get`.
pub struct GotObject;

impl Item for GotObject {
    type Owned = Root;

    fn from_ref(item: ItemRef<'_>) -> Result<Root, ItemError> {
        Root::of(item, &mut Arc::default())
    }
}

/// A value, with all that it contains.
pub enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// A number in JSON.
    Number(Box<str>),
    String(Box<str>),
    List(Vec<Tree>),
    Dict(Vec<(Box<str>, Tree)>),
}

impl Tree {
    /// Reads a value, and all that it contains.
    ///
    /// # Errors
    ///
    /// [`Fault`] if it is malformed, or nested too deep.
    pub fn of(value: Value<'_>, depth: usize) -> Result<Self, Fault> {
        if depth == 128 {
            return Err(Fault::Depth);
        }
        Ok(match value {
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Double(value) => Self::Double(value),
            Value::Number(text) => Self::Number(text.into()),
            Value::String(text) => Self::String(text.into()),
            Value::Array(array) => {
                let mut list = Vec::new();
                array.try_for_each(|value| Self::of(value, depth + 1).map(|value| list.push(value)))?;
                Self::List(list)
            }
            Value::Object(object) => {
                let mut dict = Vec::new();
                object.try_for_each(|key, value| {
                    dict.push((key.as_str().into(), Self::of(value, depth + 1)?));
                    Ok::<_, Fault>(())
                })?;
                Self::Dict(dict)
            }
            _ => Self::Null,
        })
    }

    /// Copies a value of JSON.
    pub fn of_json(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Number(number.to_string().into()),
            Json::String(text) => Self::String(text.as_str().into()),
            Json::Array(list) => Self::List(list.iter().map(Self::of_json).collect()),
            Json::Object(members) => {
                Self::Dict(members.iter().map(|(key, value)| (key.as_str().into(), Self::of_json(value))).collect())
            }
        }
    }

    pub fn size(&self) -> usize {
        24 + match self {
            Self::Number(text) | Self::String(text) => text.len(),
            Self::List(list) => list.iter().map(Self::size).sum(),
            Self::Dict(dict) => dict.iter().map(|(key, value)| key.len() + value.size()).sum(),
            _ => 0,
        }
    }

    pub fn into_py<'py>(self, py: Python<'py>, converter: &mut Converter<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Double(value) => Value::Double(value),
            Self::Number(text) => return converter.json(text.as_bytes()),
            Self::String(text) => return Ok(PyString::new(py, &text).into_any()),
            Self::List(list) => {
                let list = list.into_iter().map(|value| value.into_py(py, converter)).collect::<PyResult<Vec<_>>>()?;
                return Ok(PyList::new(py, list)?.into_any());
            }
            Self::Dict(members) => {
                let dict = PyDict::new(py);
                for (key, value) in members {
                    dict.set_item(&*key, value.into_py(py, converter)?)?;
                }
                return Ok(dict.into_any());
            }
        };
        converter.value(&value, 0)
    }
}

impl From<&Tree> for serde_json::Value {
    fn from(tree: &Tree) -> Self {
        match tree {
            Tree::Null => Self::Null,
            Tree::Bool(value) => Self::Bool(*value),
            Tree::Int(value) => Self::from(*value),
            Tree::Double(value) => Self::from(*value),
            Tree::Number(text) => serde_json::from_str(text).unwrap_or_default(),
            Tree::String(text) => Self::String(text.to_string()),
            Tree::List(list) => Self::Array(list.iter().map(Self::from).collect()),
            Tree::Dict(members) => {
                Self::Object(members.iter().map(|(key, value)| (key.to_string(), Self::from(value))).collect())
            }
        }
    }
}
