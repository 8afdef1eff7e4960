//! Applies paths to values.

use std::cmp::Ordering;

use serde_json::Value;

use super::JsonPathError;
use super::ast::{Filter, Operator, Slice, Step};

/// The values that one evaluation may visit. A short path with several `..` or unions visits exponentially many.
const MAX_VISITS: usize = 10_000_000;

type Result<T> = std::result::Result<T, JsonPathError>;

/// One evaluation of a template.
pub(super) struct Evaluation {
    missing_keys: bool,
    visits: usize,
}

impl Evaluation {
    /// Begins an evaluation, in which missing keys are found nowhere, or are errors.
    pub(super) fn new(missing_keys: bool) -> Self {
        Self { missing_keys, visits: 0 }
    }

    pub(super) fn visit(&mut self, values: usize) -> Result<()> {
        self.visits = self.visits.saturating_add(values);
        if self.visits > MAX_VISITS {
            return Err(JsonPathError::value(format!("the template visits more than {MAX_VISITS} values")));
        }
        Ok(())
    }

    /// Returns the values that a path finds in `input`.
    pub(super) fn path<'a>(&mut self, steps: &'a [Step], input: &[&'a Value]) -> Result<Vec<&'a Value>> {
        let mut values = input.to_vec();
        for step in steps {
            values = self.step(step, &values)?;
        }
        Ok(values)
    }

    fn step<'a>(&mut self, step: &'a Step, input: &[&'a Value]) -> Result<Vec<&'a Value>> {
        self.visit(input.len())?;
        let mut found = Vec::new();
        match step {
            Step::Text(text) => found.push(text),
            Step::Literal(literal) => found.resize(input.len(), literal),
            Step::Field(name) => {
                found.extend(input.iter().filter_map(|value| value.as_object()?.get(name)));
                if found.is_empty() && !input.is_empty() && !self.missing_keys {
                    return Err(JsonPathError::value(format!("{name} is not found")));
                }
            }
            Step::Slice(slice) => {
                for value in input.iter().filter(|value| !value.is_null()) {
                    self.slice(*slice, value, &mut found)?;
                }
            }
            Step::Filter(filter) => {
                for value in input {
                    self.filter(filter, value, &mut found)?;
                }
            }
            Step::Wildcard => {
                for value in input {
                    found.extend(children(value));
                }
            }
            Step::Recursive => self.recursive(input, &mut found)?,
            Step::Union(parts) => {
                for part in parts {
                    found.append(&mut self.path(part, input)?);
                }
            }
        }
        self.visit(found.len())?;
        Ok(found)
    }

    fn slice<'a>(&mut self, slice: Slice, value: &'a Value, found: &mut Vec<&'a Value>) -> Result<()> {
        let Value::Array(elements) = value else {
            return Err(JsonPathError::value(format!("{} is not an array", kind(value))));
        };
        let (start, end, step) = slice.bounds(elements.len())?;
        let elements = elements.get(start..end).unwrap_or_default();
        self.visit(elements.len())?;
        found.extend(elements.iter().step_by(step));
        Ok(())
    }

    fn filter<'a>(&mut self, filter: &'a Filter, value: &'a Value, found: &mut Vec<&'a Value>) -> Result<()> {
        let Value::Array(elements) = value else {
            return Err(JsonPathError::value(format!("{} is not an array and cannot be filtered", kind(value))));
        };
        for element in elements {
            if self.passes(filter, element)? {
                found.push(element);
            }
        }
        Ok(())
    }

    /// Returns true if a filter finds an element.
    pub(super) fn passes(&mut self, filter: &Filter, element: &Value) -> Result<bool> {
        self.visit(1)?;
        let left = self.path(&filter.left, &[element]);
        Ok(match &filter.comparison {
            // As in kubectl, what cannot be evaluated does not exist.
            None => left.is_ok_and(|left| !left.is_empty()),
            Some((operator, right)) => match (one(&left?)?, one(&self.path(right, &[element])?)?) {
                (Some(left), Some(right)) => operator.holds(left, right)?,
                _ => false,
            },
        })
    }

    /// Finds the values that have others in them, each before what is in it.
    fn recursive<'a>(&mut self, input: &[&'a Value], found: &mut Vec<&'a Value>) -> Result<()> {
        let mut stack: Vec<&Value> = input.iter().rev().copied().collect();
        while let Some(value) = stack.pop() {
            self.visit(1)?;
            let from = stack.len();
            stack.extend(children(value));
            stack.get_mut(from..).unwrap_or_default().reverse();
            // As in kubectl, where a string has bytes in it.
            if stack.len() > from || value.as_str().is_some_and(|text| !text.is_empty()) {
                found.push(value);
            }
        }
        Ok(())
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> Result<bool> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right)),
            },
            (Value::Bool(left), Value::Bool(right)) if matches!(self, Self::Equal | Self::NotEqual) => {
                Some(left.cmp(right))
            }
            _ => {
                let message = format!("cannot compare {} and {}", kind(left), kind(right));
                return Err(JsonPathError::value(message));
            }
        };
        Ok(match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        })
    }
}

fn one<'a>(values: &[&'a Value]) -> Result<Option<&'a Value>> {
    match values {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(JsonPathError::value("can only compare one element at a time")),
    }
}

/// Returns the elements of an array, or the values of an object in the order of its keys.
fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(elements) => Box::new(elements.iter()),
        Value::Object(object) => Box::new(object.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
