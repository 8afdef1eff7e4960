//! `-o yaml`: documents as kubectl prints them.

use std::rc::Rc;

use listwatch::{ItemError, ItemRef};
use listwatch_tables::write_go_yaml;

use super::format::{Constructor, Event, Format, FormatInfo, Needs, Row};
use super::json::{JsonLines, event_line};

pub const YAML: FormatInfo = FormatInfo {
    name: "yaml",
    help: "One YAML document per change",
    needs: Needs::Fields,
    constructor: Constructor::Plain(|context| Rc::new(YamlFormat { lines: JsonLines::new(context) })),
};

struct YamlFormat {
    lines: JsonLines,
}

impl Format for YamlFormat {
    fn info(&self) -> &'static FormatInfo {
        &YAML
    }

    /// The row of an object, which becomes a part of a change, is still JSON.
    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        self.lines.object(item).map(Some)
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        to_yaml(&event_line(&row, event))
    }

    fn usage_error(&self) -> Option<String> {
        self.lines.usage_error()
    }

    fn take_unknown_fields(&self) -> u64 {
        self.lines.unknown_fields.take()
    }
}

/// Returns an object in JSON as a YAML document.
pub fn to_yaml(json: &[u8]) -> Result<Vec<u8>, ItemError> {
    let mut document = b"---\n".to_vec();
    write_go_yaml(&serde_json::from_slice(json).map_err(ItemError::other)?, &mut document);
    Ok(document)
}
