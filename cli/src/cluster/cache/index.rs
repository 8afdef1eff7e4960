//! Indexes by the values of a field.

use std::str::FromStr;
use std::sync::Arc;

use listwatch::cache::{Index, Object};
use listwatch::reflector::Cache;
use listwatch::schema::{self, Message};
use listwatch::{Encoding, FieldPath, ItemError, ItemRef, Projection, TypeMeta};
use serde_json::Value;

use crate::failure::Failure;
use crate::paths;

/// An index of objects by the values of a field, as text.
pub type ByText = Index<[u8], Arc<str>>;

/// The name of an index, and the path of its field.
#[derive(Clone)]
pub struct IndexBy {
    pub name: String,
    pub path: String,
}

impl FromStr for IndexBy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
        if name.is_empty() || name.contains('/') || path.is_empty() {
            return Err("expected NAME=PATH, without a slash in NAME");
        }
        Ok(Self { name: name.to_owned(), path: path.to_owned() })
    }
}

impl IndexBy {
    pub fn add_to(&self, cache: &Cache<[u8]>, of: &TypeMeta) -> Result<ByText, Failure> {
        let field = Field::parse(&self.path, of)
            .map_err(|reason| Failure::Usage(format!("--index {}: {reason}", self.name)))?;
        Ok(cache.index(&self.name, move |object| field.values(object)))
    }
}

/// A field, read from JSON, where a time or a quantity is a single value.
struct Field {
    in_json: FieldPath,
    /// Projects an object in protobuf to the field; `None` for kinds that the server sends as JSON.
    only: Option<Projection>,
}

impl Field {
    fn parse(path: &str, of: &TypeMeta) -> Result<Self, String> {
        if path.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("{path}: expected names of fields, not numbers"));
        }
        let in_json = paths::parse(path, of)?;
        let only = match Message::of(&of.api_version, &of.kind) {
            Some(message) => {
                let field = path.split('[').next().and_then(|path| message.path(path)?.pop());
                let is_whole_map = field.is_some_and(schema::Field::is_map) && !path.contains('[');
                if is_whole_map || field.and_then(schema::Field::message).is_some_and(Message::is_object) {
                    return Err(format!("{path} is not a single value"));
                }
                Some(Projection::new().keep(&in_json))
            }
            None => None,
        };
        Ok(Self { in_json, only })
    }

    fn values(&self, object: &Object<[u8]>) -> Result<Vec<Arc<str>>, ItemError> {
        let mut projected = Vec::new();
        let json = match (object.encoding(), &self.only) {
            (Encoding::Json, _) => object.item()?,
            (found, Some(only)) => {
                let item = object.item()?;
                let kept = item.project(only)?;
                ItemRef::new(found, &kept).with_type_meta(item.type_meta()).to_json(&mut projected)?;
                ItemRef::new(Encoding::Json, &projected)
            }
            (found, None) => return Err(ItemError::WrongEncoding { found, expected: Encoding::Json }),
        };
        let mut values = Vec::new();
        for value in self.in_json.all_bytes(json) {
            match serde_json::from_slice(value?).map_err(ItemError::other)? {
                Value::String(text) => values.push(text),
                Value::Object(_) => return Err(ItemError::other("the value is an object, not a single value")),
                value => values.push(value.to_string()),
            }
        }
        if values.is_empty() {
            values.push(String::new());
        }
        Ok(values.into_iter().map(Arc::from).collect())
    }
}
