//! A parsed template.

use serde_json::Value;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Text outside of braces.
    Text(String),
    /// `{.a.b}` or `{"text"}`.
    Print(Vec<Step>),
    /// `{range .a[*]}`, the nodes before its `{end}`.
    Range(Vec<Step>, Vec<Node>),
}

/// One step of a path: maps each value that the step before has found to any number of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// A quoted string: one value, whatever came before.
    Text(Value),
    /// A number or bool: one for each value.
    Literal(Value),
    Field(String),
    Slice(Slice),
    Filter(Box<Filter>),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Step>>),
}

/// `[start:end:step]`. `[n]` is a slice of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: SliceEnd,
    pub(super) step: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// `[n]`
    AfterStart,
    /// `[n:]`
    Length,
    /// `[n:m]`
    At(i64),
}

/// `[?(…)]`
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Filter {
    pub(super) left: Vec<Step>,
    /// Absent: the left side exists.
    pub(super) comparison: Option<(Operator, Vec<Step>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}
