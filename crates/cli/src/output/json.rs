//! `-o json`: a JSON object a line.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use listwatch::path::meta;
use listwatch::{Encoding, ItemError, ItemRef, Projection, TypeMeta};
use serde_json::Value;

use super::clean::clean;
use super::format::{Comparison, Constructor, Event, Format, FormatContext, FormatInfo, Needs, OutputOptions, Row};
use crate::field_paths::parse_drop_path;

pub const JSON: FormatInfo = FormatInfo {
    name: "json",
    help: "One JSON object per line, with kind and apiVersion",
    needs: Needs::Fields,
    constructor: Constructor::Plain(|context| Rc::new(JsonFormat { lines: JsonLines::new(context) })),
};

/// The name that `get` has for it, because its `-o json` is kubectl's.
pub const JSON_LINES: FormatInfo = FormatInfo { name: "jsonl", ..JSON };

struct JsonFormat {
    lines: JsonLines,
}

impl Format for JsonFormat {
    fn info(&self) -> &'static FormatInfo {
        &JSON
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let mut line = self.lines.object(item)?;
        line.push(b'\n');
        Ok(Some(line))
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        Ok(event_line(&row, event))
    }

    fn usage_error(&self) -> Option<String> {
        self.lines.usage_error()
    }

    fn take_unknown_fields(&self) -> u64 {
        self.lines.unknown_fields.take()
    }
}

/// Objects in JSON, without the fields that the options leave out.
pub struct JsonLines {
    options: OutputOptions,
    /// What is left out of objects of the first item's type, or the error of a path in `--drop` that they do not have.
    projection: OnceCell<Result<Projection, String>>,
    /// The number of unknown fields, which the JSON lacks.
    pub unknown_fields: Cell<u64>,
}

impl JsonLines {
    pub fn new(context: &FormatContext) -> Self {
        Self { options: context.options.clone(), projection: OnceCell::new(), unknown_fields: Cell::default() }
    }

    /// Returns the object, without a line break.
    pub fn object(&self, item: &ItemRef<'_>) -> Result<Vec<u8>, ItemError> {
        let mut line = Vec::new();
        add(&self.unknown_fields, item.to_json(&mut line)?);
        let OutputOptions { drop, show_managed_fields, .. } = &self.options;
        if *show_managed_fields && drop.is_empty() {
            return Ok(line);
        }
        let projection = self.projection.get_or_init(|| self.projection_of(item.type_meta()));
        let projection = projection.as_ref().map_err(|error| ItemError::other(error.clone()))?;
        Ok(ItemRef::new(Encoding::Json, &line).project(projection)?.into())
    }

    pub fn usage_error(&self) -> Option<String> {
        self.projection.get()?.as_ref().err().cloned()
    }

    /// Returns the projection for objects of this type.
    fn projection_of(&self, of: &TypeMeta) -> Result<Projection, String> {
        let paths: Vec<_> = self.options.drop.iter().map(|path| parse_drop_path(path, of)).collect::<Result<_, _>>()?;
        let projection = paths.iter().fold(Projection::new(), Projection::drop);
        Ok(if self.options.show_managed_fields { projection } else { projection.drop(&meta::MANAGED_FIELDS) })
    }
}

/// Returns the line of a change, of the line of its object.
pub fn event_line(object: &[u8], event: &Event<'_>) -> Vec<u8> {
    let mut text = format!("{{\"type\":\"{}\",", event.kind.name()).into_bytes();
    if let Comparison::Changed { patch, .. } = &event.comparison {
        text.extend_from_slice(format!("\"patch\":{patch},").as_bytes());
    }
    text.extend_from_slice(b"\"object\":");
    text.extend_from_slice(object.trim_ascii_end());
    text.extend_from_slice(b"}\n");
    text
}

/// Returns an object as a value of JSON, and the number of unknown fields that it lacks.
pub fn object_value(item: &ItemRef<'_>) -> Result<(Value, u64), ItemError> {
    let mut json = Vec::new();
    let unknown = item.to_json(&mut json)?;
    Ok((serde_json::from_slice(&json).map_err(ItemError::other)?, unknown))
}

/// Adds a number of unknown fields to a count.
pub fn add(count: &Cell<u64>, unknown_fields: u64) {
    count.set(count.get() + unknown_fields);
}

/// Returns an object as kubectl prints it: without `managedFields`, unless they are shown.
pub fn printed_value(item: &ItemRef<'_>, options: &OutputOptions, unknown: &Cell<u64>) -> Result<Value, ItemError> {
    let (mut object, unknown_fields) = object_value(item)?;
    add(unknown, unknown_fields);
    if let (false, Some(Value::Object(metadata))) = (options.show_managed_fields, object.get_mut("metadata")) {
        metadata.remove("managedFields");
    }
    if options.is_clean {
        clean(&mut object);
    }
    Ok(object)
}
