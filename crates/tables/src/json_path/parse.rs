//! Parses templates. Paths nest at most three deep, in filters, unions and quoted keys, which do not nest themselves.

use serde_json::Value;

use super::JsonPathError;
use super::ast::{Filter, Node, Operator, Step};
use super::quoted;
use super::slice;

/// A template of more nested ranges is an error: they are evaluated by recursion.
const MAX_RANGES: usize = 32;

type Result<T> = std::result::Result<T, JsonPathError>;

pub(super) fn template(text: &str) -> Result<Vec<Node>> {
    let mut parser = Parser { text, position: 0 };
    let mut open: Vec<(usize, Vec<Step>, Vec<Node>)> = Vec::new();
    let mut nodes = Vec::new();
    while !parser.rest().is_empty() {
        let start = parser.position;
        if !parser.consume("{") {
            let length = parser.rest().find('{').unwrap_or(parser.rest().len());
            nodes.push(Node::Text(parser.take(length).to_owned()));
            continue;
        }
        match parser.action()? {
            Action::Print(steps) => nodes.push(Node::Print(steps)),
            Action::Range(_) if open.len() == MAX_RANGES => {
                return Err(JsonPathError::syntax(start, format!("more than {MAX_RANGES} nested ranges")));
            }
            Action::Range(steps) => open.push((start, steps, std::mem::take(&mut nodes))),
            Action::End => {
                let (_, steps, outer) =
                    open.pop().ok_or_else(|| JsonPathError::syntax(start, "not in range, nothing to end"))?;
                let body = std::mem::replace(&mut nodes, outer);
                nodes.push(Node::Range(steps, body));
            }
        }
    }
    match open.pop() {
        Some((start, ..)) => Err(JsonPathError::syntax(start, "range without {end}")),
        None => Ok(nodes),
    }
}

/// Parses all of `text` from `position` as a path.
pub(super) fn path(text: &str, position: usize) -> Result<Vec<Step>> {
    Parser { text, position }.steps(None)
}

/// Parses a path without the dot before its first field.
pub(super) fn field(text: &str) -> Result<Vec<Step>> {
    let mut parser = Parser { text, position: 0 };
    let mut steps = vec![parser.field()];
    steps.append(&mut parser.steps(None)?);
    Ok(steps)
}

/// Parses what is inside of `[…]`, which is at `position`.
fn bracket(inner: &str, position: usize) -> Result<Vec<Step>> {
    let mut parts = Vec::new();
    let (mut rest, mut at) = (inner, position);
    while let Some(comma) = quoted::find_unquoted(rest, |next| next == ',') {
        parts.push((rest.get(..comma).unwrap_or_default(), at));
        rest = rest.get(comma + 1..).unwrap_or_default();
        at += comma + 1;
    }
    if parts.is_empty() {
        return element(inner, position);
    }
    parts.push((rest, at));
    let parts: Result<Vec<_>> = parts.into_iter().map(|(part, at)| element(part, at)).collect();
    Ok(vec![Step::Union(parts?)])
}

/// Parses one element of a union. A quoted key is as if it had a dot before it: `'a.b'` has two fields.
fn element(text: &str, position: usize) -> Result<Vec<Step>> {
    let (trimmed, position) = (text.trim_matches(' '), position + text.len() - text.trim_start_matches(' ').len());
    if !trimmed.starts_with(['\'', '"']) {
        return Ok(vec![Step::Slice(slice::parse(trimmed, position)?)]);
    }
    if quoted::length(trimmed) != Some(trimmed.len()) {
        return Err(JsonPathError::syntax(position, format!("invalid array index {trimmed}")));
    }
    let key = trimmed.get(1..trimmed.len() - 1).unwrap_or_default();
    field(key).map_err(|error| error.shifted(position + 1))
}

enum Action {
    Print(Vec<Step>),
    Range(Vec<Step>),
    End,
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = self.rest().get(..length).unwrap_or_default();
        self.position += taken.len();
        taken
    }

    fn consume(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.position += prefix.len();
        }
        found
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(JsonPathError::syntax(self.position, message))
    }

    /// Parses an action after its `{`, with its `}`.
    fn action(&mut self) -> Result<Action> {
        self.take(self.rest().len() - self.rest().trim_start_matches(' ').len());
        let start = self.position;
        match self.word() {
            "range" => Ok(Action::Range(self.steps(Some('}'))?)),
            "end" if self.steps(Some('}'))?.is_empty() => Ok(Action::End),
            "end" => Err(JsonPathError::syntax(start, "a path after end")),
            _ => {
                self.position = start;
                Ok(Action::Print(self.steps(Some('}'))?))
            }
        }
    }

    /// Parses steps until `end`, or the end of the text.
    fn steps(&mut self, end: Option<char>) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            let start = self.position;
            let Some(next) = self.rest().chars().next() else {
                return match end {
                    Some(_) => self.error("unclosed action"),
                    None => Ok(steps),
                };
            };
            if Some(next) == end {
                self.take(next.len_utf8());
                return Ok(steps);
            }
            match next {
                ' ' | '@' | '$' => self.position += 1,
                '[' if self.consume("[?(") => steps.push(self.filter(start)?),
                '[' => {
                    let inner = self.until(']', "unterminated array")?;
                    steps.append(&mut bracket(inner, start + 1)?);
                }
                '"' | '\'' => steps.push(Step::Text(Value::String(quoted::unquote(self.quoted()?, start)?))),
                '.' if self.consume("..") => self.recursive(&mut steps, start)?,
                '.' => {
                    self.position += 1;
                    steps.push(self.field());
                }
                '+' | '-' | '0'..='9' => steps.push(self.number()?),
                _ if next == '_' || next.is_alphanumeric() => steps.push(self.bool()?),
                '\r' | '\n' => return self.error("unclosed action"),
                _ => return self.error(format!("unrecognized character in action: {next:?}")),
            }
        }
    }

    fn recursive(&mut self, steps: &mut Vec<Step>, start: usize) -> Result<()> {
        if steps.last() == Some(&Step::Recursive) {
            return Err(JsonPathError::syntax(start, "invalid multiple recursive descent"));
        }
        steps.push(Step::Recursive);
        if self.rest().starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
            steps.push(self.field());
        }
        Ok(())
    }

    /// Parses a field after its dot. A backslash keeps the next character.
    fn field(&mut self) -> Step {
        let mut name = String::new();
        let start = self.position;
        while let Some(next) = self.rest().chars().next().filter(|next| !is_terminator(*next)) {
            self.position += next.len_utf8();
            let character = if next == '\\' { self.rest().chars().next() } else { Some(next) };
            if next == '\\' {
                self.position += character.map_or(0, char::len_utf8);
            }
            name.extend(character);
        }
        match self.text.get(start..self.position) {
            Some("*") => Step::Wildcard,
            _ => Step::Field(name),
        }
    }

    fn number(&mut self) -> Result<Step> {
        let start = self.position;
        let digits = self.rest().get(1..).unwrap_or_default();
        let length = digits.find(|next: char| next != '.' && !next.is_ascii_digit()).unwrap_or(digits.len());
        let text = self.take(1 + length);
        let integer = text.parse::<i64>().ok().map(Value::from);
        let number = integer.or_else(|| text.parse::<f64>().ok().map(Value::from)).filter(|number| !number.is_null());
        number.map(Step::Literal).ok_or_else(|| JsonPathError::syntax(start, format!("cannot parse number {text}")))
    }

    fn word(&mut self) -> &'a str {
        self.take(self.rest().find(is_terminator).unwrap_or(self.rest().len()))
    }

    fn bool(&mut self) -> Result<Step> {
        let start = self.position;
        match self.word() {
            "true" => Ok(Step::Literal(Value::Bool(true))),
            "false" => Ok(Step::Literal(Value::Bool(false))),
            other => Err(JsonPathError::syntax(start, format!("unrecognized identifier {other}"))),
        }
    }

    /// Consumes a quoted string, and returns it with its quotes.
    fn quoted(&mut self) -> Result<&'a str> {
        match quoted::length(self.rest()) {
            Some(length) => Ok(self.take(length)),
            None => self.error("unterminated quoted string"),
        }
    }

    /// Consumes `[…]`, or the part of a filter before `)`, and returns the text inside.
    fn until(&mut self, end: char, message: &str) -> Result<&'a str> {
        let skipped = usize::from(self.rest().starts_with('['));
        let inner = self.rest().get(skipped..).unwrap_or_default();
        let Some(length) = quoted::find_unquoted(inner, |next| next == end) else { return self.error(message) };
        self.position += skipped + length + end.len_utf8();
        Ok(inner.get(..length).unwrap_or_default())
    }

    /// Parses a filter after `[?(`.
    fn filter(&mut self, start: usize) -> Result<Step> {
        let from = self.position;
        let inner = self.until(')', "unterminated filter")?;
        if !self.consume("]") {
            return self.error("unclosed array expect ]");
        }
        let is_operator = |next: char| matches!(next, '!' | '<' | '>' | '=');
        let text = self.text.get(..from + inner.len()).unwrap_or_default();
        let split = quoted::find_unquoted(inner, is_operator).filter(|at| *at > 0);
        let Some(at) = split else {
            return Ok(Step::Filter(Box::new(Filter { left: path(text, from)?, comparison: None })));
        };
        let after = inner.get(at..).unwrap_or_default();
        let length = after.find(|next| !is_operator(next)).unwrap_or(after.len());
        let name = after.get(..length).unwrap_or_default();
        let operator = operator(name)
            .ok_or_else(|| JsonPathError::syntax(from + at, format!("unrecognized filter operator {name}")))?;
        let left = path(text.get(..from + at).unwrap_or_default(), from)?;
        let right = path(text, from + at + length)?;
        if right.is_empty() && !text.trim_end().ends_with(['@', '$']) {
            return Err(JsonPathError::syntax(start, format!("a filter with nothing after {name}")));
        }
        Ok(Step::Filter(Box::new(Filter { left, comparison: Some((operator, right)) })))
    }
}

fn operator(name: &str) -> Option<Operator> {
    Some(match name {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterEqual,
        _ => return None,
    })
}

fn is_terminator(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
