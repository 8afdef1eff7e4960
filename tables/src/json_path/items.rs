//! A template for a list whose items arrive one by one.

use serde_json::Value;

use super::ast::{Node, Slice, SliceEnd, Step};
use super::eval::Evaluation;
use super::template::{JsonPathTemplate, print_all, write};
use super::{JsonPathError, text};

/// A template that kubectl would apply to a whole list, applied to its items as they arrive, in constant memory.
///
/// | template | prints |
/// |---|---|
/// | `…{range .items[*]}…{end}…` | the body for each item, between the texts around it |
/// | `…{.items[*].a.b}…` | the values of all items, separated by a space |
/// | without `.items` | a line for each item |
#[derive(Debug, Clone, PartialEq)]
pub struct ItemsTemplate {
    before: Vec<u8>,
    part: Part,
    after: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Lines(Vec<Node>),
    Range(Vec<Node>),
    Values(Vec<Step>),
}

impl JsonPathTemplate {
    /// Converts the template into one for items that arrive one by one.
    ///
    /// # Errors
    ///
    /// The template needs the whole list: it has `.items` more than once, in another form than `.items[*]`, or with
    /// other paths around it.
    pub fn for_items(self) -> Result<ItemsTemplate, JsonPathError> {
        let Some(at) = self.nodes.iter().position(names_items) else {
            return Ok(ItemsTemplate { before: Vec::new(), part: Part::Lines(self.nodes), after: Vec::new() });
        };
        let mut nodes = self.nodes.into_iter();
        let before = texts(nodes.by_ref().take(at))?;
        let part = match nodes.next() {
            Some(Node::Print(steps)) => Part::Values(after_items(steps)?),
            Some(Node::Range(steps, body)) => match &*after_items(steps)? {
                [] => Part::Range(body),
                _ => return Err(needs_list()),
            },
            _ => return Err(needs_list()),
        };
        Ok(ItemsTemplate { before, part, after: texts(nodes)? })
    }
}

impl ItemsTemplate {
    /// Returns the text before the first item.
    #[must_use]
    pub fn before(&self) -> &[u8] {
        &self.before
    }

    /// Returns the text after the last item.
    #[must_use]
    pub fn after(&self) -> &[u8] {
        &self.after
    }

    /// Returns the text between the values of two items.
    #[must_use]
    pub fn separator(&self) -> &[u8] {
        if matches!(self.part, Part::Values(_)) { b" " } else { b"" }
    }

    /// Appends what the template prints of an item. Returns false if the item has no value, and so needs no separator.
    ///
    /// # Errors
    ///
    /// As of [`JsonPathTemplate::write`].
    pub fn write_item(&self, item: &Value, out: &mut Vec<u8>) -> Result<bool, JsonPathError> {
        let mut evaluation = Evaluation::new(true);
        match &self.part {
            Part::Lines(nodes) => {
                write(nodes, item, &mut evaluation, out)?;
                out.push(b'\n');
            }
            Part::Range(body) => write(body, item, &mut evaluation, out)?,
            Part::Values(steps) => {
                let values = evaluation.path(steps, &[item])?;
                print_all(&values, out);
                return Ok(!values.is_empty());
            }
        }
        Ok(true)
    }
}

fn names_items(node: &Node) -> bool {
    let (Node::Print(steps) | Node::Range(steps, _)) = node else { return false };
    matches!(steps.first(), Some(Step::Field(name)) if name == "items")
}

/// Returns the steps after `.items[*]`.
fn after_items(steps: Vec<Step>) -> Result<Vec<Step>, JsonPathError> {
    // These apply to all items at once: a union of two fields is the first of all items, then the second.
    let is_of_list = |step: &Step| matches!(step, Step::Union(_) | Step::Text(_));
    let mut steps = steps.into_iter().skip(1);
    match steps.next() {
        Some(Step::Slice(Slice { start: None, end: SliceEnd::Length, step: None })) => {
            let steps: Vec<_> = steps.collect();
            if steps.iter().any(is_of_list) { Err(needs_list()) } else { Ok(steps) }
        }
        _ => Err(needs_list()),
    }
}

/// Returns the text of nodes that depend on no value.
fn texts(nodes: impl Iterator<Item = Node>) -> Result<Vec<u8>, JsonPathError> {
    let mut out = Vec::new();
    for node in nodes {
        match node {
            Node::Text(text) => out.extend_from_slice(text.as_bytes()),
            Node::Print(steps) => match &*steps {
                [Step::Text(value)] => text::template(value, &mut out),
                _ => return Err(needs_list()),
            },
            Node::Range(..) => return Err(needs_list()),
        }
    }
    Ok(out)
}

fn needs_list() -> JsonPathError {
    JsonPathError::value(
        "the template needs the whole list, but items are printed as they arrive: use {range .items[*]}…{end}, \
         {.items[*].field}, or a template of one object"
            .to_owned(),
    )
}
