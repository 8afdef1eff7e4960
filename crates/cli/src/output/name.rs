//! `-o name`: NAMESPACE/NAME, or the name of an object without a namespace.

use std::rc::Rc;

use console::style;
use listwatch::{ItemError, ItemRef};

use super::format::{Comparison, Constructor, Event, EventKind, Format, FormatInfo, Needs, Row};
use crate::escape::escape_controls;

pub const NAME: FormatInfo = FormatInfo {
    name: "name",
    help: "One line per object: NAMESPACE/NAME, or NAME if it has no namespace",
    needs: Needs::Metadata,
    constructor: Constructor::Plain(|_| Rc::new(NameFormat)),
};

/// The name that `get` has for it, because its `-o name` is kubectl's.
pub const KEYS: FormatInfo = FormatInfo { name: "keys", ..NAME };

struct NameFormat;

impl Format for NameFormat {
    fn info(&self) -> &'static FormatInfo {
        &NAME
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let meta = item.meta()?;
        let (namespace, name) = (meta.namespace(), meta.name());
        let (namespace, name) = (escape_controls(&namespace), escape_controls(&name));
        let slash = if namespace.is_empty() { "" } else { "/" };
        Ok(Some([&*namespace, slash, &*name, "\n"].concat().into()))
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        let name = String::from_utf8_lossy(row.trim_ascii_end());
        let changes = match &event.comparison {
            Comparison::Unknown if event.kind == EventKind::Modified => " -".to_owned(),
            Comparison::Off | Comparison::Unknown => String::new(),
            Comparison::Changed { lines, .. } if lines.is_empty() => " none".to_owned(),
            Comparison::Changed { lines, .. } => lines.iter().flat_map(|line| ["\n    ", &**line]).collect(),
        };
        let (sign, version) = (style(event.kind.sign()).fg(event.kind.color()), escape_controls(event.version));
        Ok(format!("{sign} {name} {version}{changes}\n").into_bytes())
    }
}
