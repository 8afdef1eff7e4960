//! `-o json` of `get`: the objects of all resources as one List, as kubectl prints it, or one object.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::write_go_json;
use serde_json::{Value, json};

use super::format::{Constructor, Event, Format, FormatInfo, Needs, OptionGroup, Purpose, Row, SummaryObject};
use super::json::{add, object_value};

pub const LIST_JSON: FormatInfo = FormatInfo {
    name: "json",
    help: "kubectl's JSON: one object by its name, else a List of all objects, written while they arrive",
    needs: Needs::Fields,
    options: &[OptionGroup::Fields],
    constructor: Constructor::Plain(|context| {
        Rc::new(ListJsonFormat {
            show_managed_fields: context.options.show_managed_fields,
            is_list: context.purpose != Purpose::Object,
            items: Cell::new(0),
            unknown_fields: Cell::default(),
        })
    }),
};

/// The indentation of an item.
const ITEM: usize = 2;

struct ListJsonFormat {
    show_managed_fields: bool,
    is_list: bool,
    /// The number of items so far.
    items: Cell<u64>,
    unknown_fields: Cell<u64>,
}

impl Format for ListJsonFormat {
    fn info(&self) -> &'static FormatInfo {
        &LIST_JSON
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (mut object, unknown_fields) = object_value(item)?;
        add(&self.unknown_fields, unknown_fields);
        if let (false, Some(Value::Object(metadata))) = (self.show_managed_fields, object.get_mut("metadata")) {
            metadata.remove("managedFields");
        }
        add(&self.items, 1);
        let mut compact = Vec::new();
        write_go_json(&object, &mut compact).map_err(ItemError::other)?;
        let mut text = Vec::with_capacity(2 * compact.len());
        if self.is_list {
            text.push(b'\n');
            indent(&mut text, ITEM);
            write_indented(&compact, ITEM, &mut text);
        } else {
            write_indented(&compact, 0, &mut text);
            text.push(b'\n');
        }
        Ok(Some(Row::Text(text)))
    }

    /// Changes are printed as objects.
    fn event_row(&self, row: Row, _: &Event<'_>) -> Result<Row, ItemError> {
        Ok(row)
    }

    fn header(&self) -> &[u8] {
        if self.is_list { b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [" } else { b"" }
    }

    fn separator(&self) -> &[u8] {
        if self.is_list { b"," } else { b"" }
    }

    /// The summary is of a list that is a part, whose metadata says so.
    fn write_end(&self, out: &mut dyn Write, summary: Option<&SummaryObject<'_>>) -> io::Result<()> {
        if !self.is_list {
            return Ok(());
        }
        if self.items.get() > 0 {
            out.write_all(b"\n    ")?;
        }
        let mut metadata = json!({ "resourceVersion": "" });
        if let Some(token) = summary.and_then(|summary| summary.r#continue) {
            metadata["continue"] = token.into();
        }
        if let Some(count) = summary.and_then(|summary| summary.remaining_item_count) {
            metadata["remainingItemCount"] = count.into();
        }
        let (mut compact, mut text) = (Vec::new(), Vec::new());
        write_go_json(&metadata, &mut compact)?;
        write_indented(&compact, 1, &mut text);
        out.write_all(b"],\n    \"kind\": \"List\",\n    \"metadata\": ")?;
        out.write_all(&text)?;
        out.write_all(b"\n}\n")
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}

/// Writes compact JSON on several lines, as Go's `json.Indent` with four spaces.
fn write_indented(compact: &[u8], mut depth: usize, out: &mut Vec<u8>) {
    let (mut in_text, mut is_escaped) = (false, false);
    for (at, &byte) in compact.iter().enumerate() {
        if in_text {
            out.push(byte);
            in_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                if !matches!(compact.get(at + 1), Some(b'}' | b']')) {
                    out.push(b'\n');
                    indent(out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(at.checked_sub(1).and_then(|before| compact.get(before)), Some(b'{' | b'[')) {
                    out.push(b'\n');
                    indent(out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.extend_from_slice(b",\n");
                indent(out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            byte => {
                in_text = byte == b'"';
                out.push(byte);
            }
        }
    }
}

fn indent(out: &mut Vec<u8>, depth: usize) {
    out.resize(out.len() + 4 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_as_a_pretty_printer() {
        for value in [
            json!({}),
            json!([]),
            json!("{[\"\\,:"),
            json!({"a": {"b": [1, {"c": []}, {}], "\\\"": "x\\"}, "d": [[], ["{"]], "e": null}),
        ] {
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
            serde::Serialize::serialize(&value, &mut serde_json::Serializer::with_formatter(&mut expected, formatter))
                .unwrap();
            write_indented(value.to_string().as_bytes(), 0, &mut out);
            assert_eq!(String::from_utf8(out), String::from_utf8(expected));
        }
    }
}
