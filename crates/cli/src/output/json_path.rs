//! `-o jsonpath=`: kubectl's template, item by item.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::json_path::{ItemsTemplate, JsonPathTemplate, ObjectReader};

use super::format::{Constructor, Event, Format, FormatInfo, Needs, Row, SummaryObject};
use super::json::add;

pub const JSON_PATH: FormatInfo = FormatInfo {
    name: "jsonpath=",
    help: "kubectl's JSONPath: `{range .items[*]}…{end}` or `{.items[*].a.b}` prints items as they arrive, a template \
           without .items prints a line for each object; jsonpath-file= reads it from a file",
    needs: Needs::Fields,
    options: &[],
    constructor: Constructor::Argument(|template, _| {
        let parsed = JsonPathTemplate::parse(template).and_then(JsonPathTemplate::for_items);
        let template = parsed.map_err(|error| error.to_string())?;
        Ok(Arc::new(move |_| {
            let reader = ObjectReader::of_items(&template).into();
            Rc::new(JsonPathFormat { template: template.clone(), reader, unknown_fields: Cell::default() })
        }))
    }),
};

struct JsonPathFormat {
    template: ItemsTemplate,
    /// Of what the template finds.
    reader: RefCell<ObjectReader>,
    unknown_fields: Cell<u64>,
}

impl Format for JsonPathFormat {
    fn info(&self) -> &'static FormatInfo {
        &JSON_PATH
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (object, unknown_fields) = self.reader.borrow_mut().read(item)?;
        add(&self.unknown_fields, unknown_fields);
        let mut text = Vec::new();
        let has_value = self.template.write_item(&object, &mut text).map_err(ItemError::other)?;
        Ok(has_value.then_some(Row::Text(text)))
    }

    /// The template has all that is printed.
    fn event_row(&self, row: Row, _: &Event<'_>) -> Result<Row, ItemError> {
        Ok(row)
    }

    fn header(&self) -> &[u8] {
        self.template.before()
    }

    fn separator(&self) -> &[u8] {
        self.template.separator()
    }

    fn write_end(&self, out: &mut dyn Write, _: Option<&SummaryObject<'_>>) -> io::Result<()> {
        out.write_all(self.template.after())
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}
