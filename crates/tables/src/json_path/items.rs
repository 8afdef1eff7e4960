//! A template for a list whose items arrive one by one.

use serde_json::Value;

use super::ast::{Filter, Node, Slice, SliceEnd, Step};
use super::eval::Evaluation;
use super::needs::{Needs, Places};
use super::template::{JsonPathTemplate, print_all, write};
use super::{JsonPathError, text};

/// A template that kubectl would apply to a whole list, applied to its items as they arrive, in constant memory.
///
/// | template | prints |
/// |---|---|
/// | `…{range .items[*]}…{end}…` | the body for each item, between the texts around it |
/// | `…{range .items[*].a[*]}…{end}…` | the body for each value of each item |
/// | `…{.items[*].a.b}…` | the values of all items, separated by a space |
/// | `.items[?(@.a=="b")]` in place of `.items[*]` | likewise, of the items that the filter finds |
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
    Range(ItemPath, Vec<Node>),
    Values(ItemPath),
}

/// A path from `.items` on.
#[derive(Debug, Clone, PartialEq)]
struct ItemPath {
    /// The filter of items; `None` finds all.
    filter: Option<Filter>,
    /// The steps inside an item.
    steps: Vec<Step>,
}

impl JsonPathTemplate {
    /// Converts the template into one for items that arrive one by one.
    ///
    /// # Errors
    ///
    /// The template needs the whole list: it has `.items` more than once, in another form than `.items[*]` and
    /// `.items[?()]`, or with other paths around it.
    pub fn for_items(self) -> Result<ItemsTemplate, JsonPathError> {
        let Some(at) = self.nodes.iter().position(names_items) else {
            return Ok(ItemsTemplate { before: Vec::new(), part: Part::Lines(self.nodes), after: Vec::new() });
        };
        let mut nodes = self.nodes.into_iter();
        let before = texts(nodes.by_ref().take(at))?;
        let part = match nodes.next() {
            Some(Node::Print(steps)) => Part::Values(item_path(steps)?),
            Some(Node::Range(steps, body)) => Part::Range(item_path(steps)?, body),
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
            Part::Range(path, body) => {
                for value in path.find(item, &mut evaluation)? {
                    write(body, value, &mut evaluation, out)?;
                }
            }
            Part::Values(path) => {
                let values = path.find(item, &mut evaluation)?;
                print_all(&values, out);
                return Ok(!values.is_empty());
            }
        }
        Ok(true)
    }

    /// Adds what the template needs of an item.
    pub(super) fn add_needs(&self, needs: &mut Needs) {
        let from = Places::root();
        match &self.part {
            Part::Lines(nodes) => needs.add_nodes(nodes, &from),
            Part::Range(path, body) => {
                let found = path.add_needs(needs, from);
                needs.add_nodes(body, &found);
            }
            Part::Values(path) => {
                let found = path.add_needs(needs, from);
                needs.add_values(&[], found);
            }
        }
    }
}

fn names_items(node: &Node) -> bool {
    let (Node::Print(steps) | Node::Range(steps, _)) = node else { return false };
    matches!(steps.first(), Some(Step::Field(name)) if name == "items")
}

impl ItemPath {
    fn find<'a>(&'a self, item: &'a Value, evaluation: &mut Evaluation) -> Result<Vec<&'a Value>, JsonPathError> {
        match &self.filter {
            Some(filter) if !evaluation.passes(filter, item)? => Ok(Vec::new()),
            _ => evaluation.path(&self.steps, &[item]),
        }
    }

    /// Adds what it needs on the way, and returns the places at which it ends.
    fn add_needs(&self, needs: &mut Needs, from: Places) -> Places {
        if let Some(filter) = &self.filter {
            needs.add_filter(filter, &from);
        }
        needs.add_steps(&self.steps, from)
    }
}

/// Converts a path that begins with `.items`.
fn item_path(steps: Vec<Step>) -> Result<ItemPath, JsonPathError> {
    // These apply to all items at once: a union of two fields is the first of all items, then the second.
    let is_of_list = |step: &Step| matches!(step, Step::Union(_) | Step::Text(_));
    let mut steps = steps.into_iter().skip(1);
    let filter = match steps.next() {
        Some(Step::Slice(Slice { start: None, end: SliceEnd::Length, step: None })) => None,
        Some(Step::Filter(filter)) => Some(*filter),
        _ => return Err(needs_list()),
    };
    let steps: Vec<_> = steps.collect();
    if steps.iter().any(is_of_list) { Err(needs_list()) } else { Ok(ItemPath { filter, steps }) }
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
         {.items[*].field}, .items[?()] in place of .items[*], or a template of one object"
            .to_owned(),
    )
}
