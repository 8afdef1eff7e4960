//! The parts of a Table.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// A column of a Table, with the fields of `TableColumnDefinition` in `meta.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Column {
    /// The header, as the server writes it: `Nominated Node`. kubectl prints it in upper case.
    pub name: Cow<'static, str>,
    /// The type of the cells in OpenAPI: `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: Cow<'static, str>,
    /// The format in OpenAPI. `name` marks the column of the object's name; else mostly empty.
    pub format: Cow<'static, str>,
    /// The description of the column.
    pub description: Cow<'static, str>,
    /// The priority. kubectl prints columns of priority 0 always, and the others only with `-o wide`.
    pub priority: i32,
}

impl Column {
    pub(crate) const fn built_in(
        name: &'static str,
        r#type: &'static str,
        format: &'static str,
        description: &'static str,
        priority: i32,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            r#type: Cow::Borrowed(r#type),
            format: Cow::Borrowed(format),
            description: Cow::Borrowed(description),
            priority,
        }
    }
}

/// The cells of one object, and its condition, with the names of `TableRow` in `meta.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// One cell for each column.
    pub cells: Vec<Cell>,
    /// The conditions of the row, at most one.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: &'static [RowCondition],
}

impl Row {
    /// Returns a row of texts.
    pub(crate) fn texts(cells: impl IntoIterator<Item = String>) -> Self {
        Self { cells: cells.into_iter().map(Cell::Text).collect(), conditions: &[] }
    }
}

/// Why a row needs no more attention: the Pod is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowCondition {
    /// `Completed`.
    pub r#type: &'static str,
    /// `True`.
    pub status: &'static str,
    /// `Succeeded` or `Failed`.
    pub reason: &'static str,
    /// The reason, for people.
    pub message: &'static str,
}

/// The value of a cell. Serialized, it is the JSON that the API server writes.
///
/// `Display` is what kubectl prints in a terminal: nothing for [`Null`](Self::Null), and the first line of a text,
/// followed by `...` if there are more. It does not escape control characters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A text.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A boolean of a custom resource.
    Boolean(bool),
    /// No value, in a column of a custom resource.
    Null,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => match text.split_once(['\u{c}', '\n', '\r']) {
                Some((line, _)) => write!(f, "{line}..."),
                None => f.write_str(text),
            },
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::Null => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_kubectl() {
        for (cell, expected) in [
            (Cell::text("a b"), "a b"),
            (Cell::text("a\nb\nc"), "a..."),
            (Cell::text("a\r"), "a..."),
            (Cell::Integer(-3), "-3"),
            (Cell::Number(1.5), "1.5"),
            (Cell::Number(2.0), "2"),
            (Cell::Boolean(true), "true"),
            (Cell::Null, ""),
        ] {
            assert_eq!(cell.to_string(), expected);
        }
    }
}
