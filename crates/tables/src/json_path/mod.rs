//! kubectl's dialect of `JSONPath`: paths, and templates of text and paths.
//!
//! It is older than RFC 9535 and differs from it: `['a.b']` has two fields, an index out of bounds is an error, a
//! filter compares one value with one value, and a template has `{range}`. So no crate for the RFC evaluates it.
//!
//! This implementation differs from kubectl's in these points:
//!
//! - An object's values are in the order of its keys; kubectl's order is random.
//! - A slice of an empty array finds nothing, and the arrays after it are still searched. kubectl stops there.
//! - Integers and floats are compared as numbers. kubectl returns an error.
//! - A range without `{end}` and an unknown word or operator are syntax errors. kubectl notices some of them late.
//! - A wildcard finds nothing in a string. kubectl finds its bytes.

mod ast;
mod error;
mod eval;
mod items;
mod list;
mod needs;
mod parse;
mod quoted;
mod reader;
mod slice;
mod template;
mod text;

use serde_json::Value;

pub use error::JsonPathError;
pub use items::ItemsTemplate;
pub use list::{ListRun, ListTemplate};
pub use reader::ObjectReader;
pub(crate) use reader::needed_by;
pub use template::JsonPathTemplate;
pub(crate) use text::template as print_in_template;

use ast::Step;
use eval::Evaluation;

/// A path to values, as in the printer columns of custom resources: `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses `.a.b`, `a.b`, `{.a.b}` or `{a.b}`.
    ///
    /// # Errors
    ///
    /// The path is invalid.
    pub fn parse(path: &str) -> Result<Self, JsonPathError> {
        let inner = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
        if inner.is_empty() || inner.contains(['{', '}']) {
            let message = "expected a path like name1.name2, .name1.name2, {name1.name2} or {.name1.name2}";
            return Err(JsonPathError::syntax(0, message));
        }
        let steps = if inner.starts_with(['.', '[', '@', '$']) { parse::path(inner, 0) } else { parse::field(inner) };
        let steps = steps.map_err(|error| error.shifted(usize::from(inner.len() < path.len())))?;
        Ok(Self { steps })
    }

    /// Returns the values that the path finds. Missing keys are found nowhere.
    ///
    /// # Errors
    ///
    /// The path does not fit the value: an index is out of bounds, a filtered or indexed value is not an array, or
    /// values of different types are compared. A path that visits ten million values is an error too.
    pub fn find<'a>(&'a self, value: &'a Value) -> Result<Vec<&'a Value>, JsonPathError> {
        Evaluation::new(true).path(&self.steps, &[value])
    }
}

/// Prints a value like Go's `fmt.Print`, as `kubectl get -o custom-columns` does: `map[a:1]`, `[1 2]`, `<nil>`.
pub fn print(value: &Value, out: &mut Vec<u8>) {
    text::print(value, out);
}
