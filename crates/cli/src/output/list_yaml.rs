//! `-o yaml` of `get`: the objects of all resources as one List, as kubectl prints it, or one object.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use listwatch::{ItemError, ItemRef, ListMeta};
use listwatch_tables::{write_go_yaml, write_go_yaml_item};
use serde_json::json;

use super::format::{Constructor, Format, FormatInfo, Needs, OutputOptions, Row};
use super::json::{add, printed_value};
use super::list_json::list_metadata;

pub const LIST_YAML: FormatInfo = FormatInfo {
    name: "yaml",
    help: "kubectl's YAML: one object by its name, else a List of all objects, written while they arrive",
    needs: Needs::Fields,
    constructor: Constructor::Plain(|context| {
        Rc::new(ListYamlFormat {
            options: context.options.clone(),
            is_list: context.is_list,
            items: Cell::new(0),
            unknown_fields: Cell::default(),
        })
    }),
};

struct ListYamlFormat {
    options: OutputOptions,
    is_list: bool,
    /// The number of items so far.
    items: Cell<u64>,
    unknown_fields: Cell<u64>,
}

impl Format for ListYamlFormat {
    fn info(&self) -> &'static FormatInfo {
        &LIST_YAML
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let object = printed_value(item, &self.options, &self.unknown_fields)?;
        add(&self.items, 1);
        let mut text = Vec::new();
        if self.is_list {
            write_go_yaml_item(&object, &mut text);
        } else {
            write_go_yaml(&object, &mut text);
        }
        Ok(Some(text))
    }

    fn header(&self) -> &[u8] {
        match (self.is_list, self.items.get()) {
            (false, _) => b"",
            (true, 0) => b"apiVersion: v1\nitems: []\n",
            (true, _) => b"apiVersion: v1\nitems:\n",
        }
    }

    /// Objects that are no List are documents.
    fn separator(&self) -> &[u8] {
        if self.is_list { b"" } else { b"---\n" }
    }

    fn write_end(&self, out: &mut dyn Write, part: Option<&ListMeta>) -> io::Result<()> {
        if !self.is_list {
            return Ok(());
        }
        let mut text = Vec::new();
        write_go_yaml(&json!({ "kind": "List", "metadata": list_metadata(part) }), &mut text);
        out.write_all(&text)
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}
