//! What an output format is: its header, its rows, its changes and its end.

use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use console::Color;
use listwatch::{ItemError, ItemRef, ListMeta};
use serde_json::Value;

/// A format, made for one list or watch.
pub trait Format {
    fn info(&self) -> &'static FormatInfo;

    /// Returns the row of an item; `None` if nothing is printed for it.
    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError>;

    /// Returns the row of a change: the row of the object, with what the format says about a change.
    fn event_row(&self, row: Row, _event: &Event<'_>) -> Result<Row, ItemError> {
        Ok(row)
    }

    /// Returns the text before the first row, which is also printed without rows.
    fn header(&self) -> &[u8] {
        b""
    }

    /// Returns the text between two rows of text.
    fn separator(&self) -> &[u8] {
        b""
    }

    /// Writes what comes after the last row. `part` is the metadata of a list that lacks objects.
    fn write_end(&self, _out: &mut dyn Write, _part: Option<&ListMeta>) -> io::Result<()> {
        Ok(())
    }

    /// Writes what waits for later rows, when the rows so far are printed before a change.
    fn flush(&self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Returns the error of an option that only the first item has shown to be wrong.
    fn usage_error(&self) -> Option<String> {
        None
    }

    /// Returns the number of unknown fields that the rows since the last call lack.
    fn take_unknown_fields(&self) -> u64 {
        0
    }
}

/// What is printed for one item: text that ends in a line break, except of formats that print none.
pub type Row = Vec<u8>;

/// The name of a format, and what the commands must know before an object arrives.
pub struct FormatInfo {
    /// Ends in `=` if an argument follows.
    pub name: &'static str,
    pub help: &'static str,
    pub needs: Needs,
    pub constructor: Constructor,
}

/// What a format reads of the objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// It prints no items.
    Nothing,
    Metadata,
    /// All fields: from a server, as JSON.
    Fields,
}

pub enum Constructor {
    /// `-o NAME`
    Plain(fn(&FormatContext) -> Rc<dyn Format>),
    /// `-o NAME=TEXT`, or `-o NAME-file=FILE` for the text of a file.
    Argument(fn(&str, ArgumentSource) -> Result<FormatBuilder, String>),
}

/// Makes the format of a parsed argument.
pub type FormatBuilder = Arc<dyn Fn(&FormatContext) -> Rc<dyn Format> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ArgumentSource {
    CommandLine,
    File,
}

/// What a format is made for.
pub struct FormatContext {
    pub options: OutputOptions,
    /// False for one object, which was requested by its name, and for changes.
    pub is_list: bool,
}

/// The options of the output that belong to some formats only.
#[derive(Clone, Default, clap::Args)]
pub struct OutputOptions {
    /// With -o json and yaml, print metadata.managedFields, which are hidden by default
    #[arg(long, help_heading = "Output")]
    pub show_managed_fields: bool,

    /// With -o json and yaml, leave out this field; repeat for several fields.
    ///
    /// Examples: `status`, `metadata.annotations["KEY"]`.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub drop: Vec<String>,

    /// True if a table has no header.
    #[arg(skip)]
    pub no_headers: bool,

    /// True if objects are printed without what the server sets, so that they can be applied again.
    #[arg(skip)]
    pub is_clean: bool,
}

/// A change of a watch.
pub struct Event<'a> {
    pub kind: EventKind,
    /// The resource version of the object.
    pub version: &'a str,
    pub comparison: Comparison,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// What is known about the previous state of an object.
pub enum Comparison {
    /// Objects are not compared.
    Off,
    /// There is no previous state to compare with.
    Unknown,
    Changed {
        /// A line for each changed value.
        lines: Vec<String>,
        /// The changes as a JSON patch.
        patch: Value,
    },
}

impl EventKind {
    pub fn sign(self) -> &'static str {
        match self {
            Self::Added => "+",
            Self::Modified => "~",
            Self::Deleted => "-",
        }
    }

    pub fn color(self) -> Color {
        match self {
            Self::Added => Color::Green,
            Self::Modified => Color::Yellow,
            Self::Deleted => Color::Red,
        }
    }

    /// Returns the type of the event in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}
