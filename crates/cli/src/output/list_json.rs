//! `-o json` of `get`: the objects of all resources as one List, as kubectl prints it, or one object.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use listwatch::{ItemError, ItemRef, ListMeta};
use listwatch_tables::{indent_json, write_go_json};
use serde_json::{Value, json};

use super::format::{Constructor, Format, FormatInfo, Needs, OutputOptions, Row};
use super::json::{add, printed_value};

pub const LIST_JSON: FormatInfo = FormatInfo {
    name: "json",
    help: "kubectl's JSON: one object by its name, else a List of all objects, written while they arrive",
    needs: Needs::Fields,
    constructor: Constructor::Plain(|context| {
        Rc::new(ListJsonFormat {
            options: context.options.clone(),
            is_list: context.is_list,
            items: Cell::new(0),
            unknown_fields: Cell::default(),
        })
    }),
};

/// The indentation of an item.
const ITEM: usize = 2;

struct ListJsonFormat {
    options: OutputOptions,
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
        let object = printed_value(item, &self.options, &self.unknown_fields)?;
        add(&self.items, 1);
        let mut compact = Vec::new();
        write_go_json(&object, &mut compact).map_err(ItemError::other)?;
        let mut text = Vec::with_capacity(2 * compact.len());
        if self.is_list {
            text.push(b'\n');
            text.resize(text.len() + 4 * ITEM, b' ');
            indent_json(&compact, ITEM, &mut text);
        } else {
            indent_json(&compact, 0, &mut text);
            text.push(b'\n');
        }
        Ok(Some(text))
    }

    fn header(&self) -> &[u8] {
        if self.is_list { b"{\n    \"apiVersion\": \"v1\",\n    \"items\": [" } else { b"" }
    }

    fn separator(&self) -> &[u8] {
        if self.is_list { b"," } else { b"" }
    }

    fn write_end(&self, out: &mut dyn Write, part: Option<&ListMeta>) -> io::Result<()> {
        if !self.is_list {
            return Ok(());
        }
        if self.items.get() > 0 {
            out.write_all(b"\n    ")?;
        }
        let metadata = list_metadata(part);
        let (mut compact, mut text) = (Vec::new(), Vec::new());
        write_go_json(&metadata, &mut compact)?;
        indent_json(&compact, 1, &mut text);
        out.write_all(b"],\n    \"kind\": \"List\",\n    \"metadata\": ")?;
        out.write_all(&text)?;
        out.write_all(b"\n}\n")
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}

/// Returns the metadata of the List, which says what a part leaves out.
pub fn list_metadata(part: Option<&ListMeta>) -> Value {
    let mut metadata = json!({ "resourceVersion": "" });
    let Some(ListMeta { continue_token, remaining_item_count, .. }) = part else { return metadata };
    if !continue_token.is_empty() {
        metadata["continue"] = (&**continue_token).into();
    }
    if let Some(count) = *remaining_item_count {
        metadata["remainingItemCount"] = count.into();
    }
    metadata
}
