//! `-o summary`: one object about a complete list, without its items.

use std::io::{self, Write};
use std::rc::Rc;

use listwatch::{ItemError, ItemRef};

use super::format::{Constructor, Event, Format, FormatInfo, Needs, Row, SummaryObject};

pub const SUMMARY: FormatInfo = FormatInfo {
    name: "summary",
    help: "For lists: one JSON object that describes the whole list, once it is complete",
    needs: Needs::Nothing,
    options: &[],
    constructor: Constructor::Plain(|_| Rc::new(SummaryFormat)),
};

pub struct SummaryFormat;

impl Format for SummaryFormat {
    fn info(&self) -> &'static FormatInfo {
        &SUMMARY
    }

    fn row(&self, _: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        Ok(None)
    }

    fn event_row(&self, row: Row, _: &Event<'_>) -> Result<Row, ItemError> {
        Ok(row)
    }

    fn write_end(&self, out: &mut dyn Write, summary: Option<&SummaryObject<'_>>) -> io::Result<()> {
        let Some(summary) = summary else { return Ok(()) };
        serde_json::to_writer(&mut *out, summary)?;
        writeln!(out)
    }
}
