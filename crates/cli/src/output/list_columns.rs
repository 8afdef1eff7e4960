//! `-o custom-columns=` of `get`: kubectl's table of paths, whose columns are as wide as the whole list needs.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use listwatch::{ItemError, ItemRef, ListMeta};
use listwatch_tables::json_path::ObjectReader;

use super::custom_columns::{CustomColumn, parse, parse_file};
use super::format::{ArgumentSource, Constructor, Format, FormatInfo, Needs, Row};
use super::json::add;
use super::tab_writer::TabWriter;

pub const LIST_COLUMNS: FormatInfo = FormatInfo {
    name: "custom-columns=",
    help: "A table of paths: NAME:.metadata.name,NODE:.spec.nodeName; custom-columns-file= reads them from a file with \
           a line of headers and a line of paths",
    needs: Needs::Fields,
    constructor: Constructor::Argument(|text, source| {
        let columns: Arc<[CustomColumn]> = match source {
            ArgumentSource::CommandLine => parse(text)?.into(),
            ArgumentSource::File => parse_file(text)?.into(),
        };
        Ok(Arc::new(move |context| {
            let columns = Arc::clone(&columns);
            // kubectl ignores --no-headers with a file.
            let is_header_due = source == ArgumentSource::File || !context.options.no_headers;
            Rc::new(ListColumnsFormat {
                reader: ObjectReader::of_paths(columns.iter().map(|column| &column.path)).into(),
                columns,
                is_header_due: Cell::new(is_header_due),
                tabs: RefCell::default(),
                unknown_fields: Cell::default(),
            })
        }))
    }),
};

struct ListColumnsFormat {
    columns: Arc<[CustomColumn]>,
    /// Of what the columns find.
    reader: RefCell<ObjectReader>,
    is_header_due: Cell<bool>,
    tabs: RefCell<TabWriter>,
    unknown_fields: Cell<u64>,
}

impl ListColumnsFormat {
    /// Adds a line, and appends the lines whose widths are known.
    fn add_line(&self, out: &mut impl Write, line: &str) -> io::Result<()> {
        let tabs = &mut *self.tabs.borrow_mut();
        if self.is_header_due.take() {
            let headers: Vec<_> = self.columns.iter().map(|column| &*column.header).collect();
            tabs.add_line(out, &headers.join("\t"))?;
        }
        tabs.add_line(out, line)
    }
}

impl Format for ListColumnsFormat {
    fn info(&self) -> &'static FormatInfo {
        &LIST_COLUMNS
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (object, unknown_fields) = self.reader.borrow_mut().read(item)?;
        add(&self.unknown_fields, unknown_fields);
        let cell =
            |column: &CustomColumn| column.cell(&object, |text| text.replace('\u{1b}', "^[").replace('\r', "\\r"));
        let cells = self.columns.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
        let mut text = Vec::new();
        self.add_line(&mut text, &cells.join("\t")).map_err(ItemError::other)?;
        Ok(Some(text))
    }

    fn write_end(&self, mut out: &mut dyn Write, _: Option<&ListMeta>) -> io::Result<()> {
        if self.is_header_due.get() {
            let headers: Vec<_> = self.columns.iter().map(|column| &*column.header).collect();
            self.is_header_due.set(false);
            self.tabs.borrow_mut().add_line(&mut out, &headers.join("\t"))?;
        }
        self.tabs.borrow_mut().flush(&mut out)
    }

    fn flush(&self, mut out: &mut dyn Write) -> io::Result<()> {
        self.tabs.borrow_mut().flush(&mut out)
    }

    fn take_unknown_fields(&self) -> u64 {
        self.unknown_fields.take()
    }
}
