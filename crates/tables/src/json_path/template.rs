//! Templates, applied to one value.

use serde_json::Value;

use super::ast::Node;
use super::eval::Evaluation;
use super::needs::{Needs, Places};
use super::{JsonPathError, parse, text};

/// A template of text and paths, as of `kubectl get -o jsonpath`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPathTemplate {
    pub(super) nodes: Vec<Node>,
    missing_keys: bool,
}

impl JsonPathTemplate {
    /// Parses a template such as `{range .spec.containers[*]}{.name}{"\n"}{end}`.
    ///
    /// # Errors
    ///
    /// The template is invalid.
    pub fn parse(template: &str) -> Result<Self, JsonPathError> {
        Ok(Self { nodes: parse::template(template)?, missing_keys: true })
    }

    /// Makes missing keys errors of [`write`](Self::write). By default they print nothing.
    #[must_use]
    pub fn with_required_keys(self) -> Self {
        Self { missing_keys: false, ..self }
    }

    /// Appends what the template prints of a value.
    ///
    /// # Errors
    ///
    /// As of [`JsonPath::find`](super::JsonPath::find). Output before the error may have been appended.
    pub fn write(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), JsonPathError> {
        write(&self.nodes, value, &mut Evaluation::new(self.missing_keys), out)
    }

    /// Adds what the template needs of an object.
    pub(super) fn add_needs(&self, needs: &mut Needs) {
        if self.missing_keys {
            needs.add_nodes(&self.nodes, &Places::root());
        } else {
            // The error names the first key that is missing.
            needs.add_all();
        }
    }
}

pub(super) fn write(
    nodes: &[Node],
    value: &Value,
    evaluation: &mut Evaluation,
    out: &mut Vec<u8>,
) -> Result<(), JsonPathError> {
    for node in nodes {
        evaluation.visit(1)?;
        match node {
            Node::Text(text) => out.extend_from_slice(text.as_bytes()),
            Node::Print(steps) => print_all(&evaluation.path(steps, &[value])?, out),
            Node::Range(steps, body) => {
                for element in evaluation.path(steps, &[value])? {
                    write(body, element, evaluation, out)?;
                }
            }
        }
    }
    Ok(())
}

pub(super) fn print_all(values: &[&Value], out: &mut Vec<u8>) {
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        text::template(value, out);
    }
}
