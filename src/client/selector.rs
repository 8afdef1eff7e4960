//! Label and field selectors: built or parsed, checked here as the server would, and written back in one form.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::error::ItemError;
use crate::object::ItemRef;
use crate::object::path::{FieldPath, pod};
use crate::object::{MetaView, Prefilter};
use crate::schema::Message;
use crate::wire::Encoding;
use crate::wire::json;

/// Which labels an object must have; an empty one selects everything.
///
/// ```text
/// app=web, tier in (front,back), !canary, replicas>3
/// ```
///
/// The grammar is that of apimachinery `labels.Parse`. All requirements must hold; they are kept sorted by key, and
/// [`Display`](fmt::Display) writes them without spaces around commas, `==` as `=`, values sorted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector(Vec<(String, Label)>);

/// What is required of one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Label {
    Eq(String),
    NotEq(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    NotExists,
    /// The value is an i64 in digits.
    Greater(String),
    /// The value is an i64 in digits.
    Less(String),
}

impl LabelSelector {
    /// The label is there and has this value.
    ///
    /// # Errors
    ///
    /// A key or a value that no label can have (apimachinery `content.IsLabelKey` and `IsLabelValue`).
    pub fn eq(self, key: &str, value: &str) -> Result<Self, SelectorError> {
        self.require(key, Label::Eq(checked_value(value)?))
    }

    /// The label is not there, or has another value.
    ///
    /// # Errors
    ///
    /// As for [`LabelSelector::eq`].
    pub fn not_eq(self, key: &str, value: &str) -> Result<Self, SelectorError> {
        self.require(key, Label::NotEq(checked_value(value)?))
    }

    /// The label is there and has one of these values.
    ///
    /// # Errors
    ///
    /// As for [`LabelSelector::eq`], and no values at all.
    pub fn is_in<'v>(self, key: &str, values: impl IntoIterator<Item = &'v str>) -> Result<Self, SelectorError> {
        self.require(key, Label::In(checked_values(values)?))
    }

    /// The label is not there, or has none of these values.
    ///
    /// # Errors
    ///
    /// As for [`LabelSelector::is_in`].
    pub fn not_in<'v>(self, key: &str, values: impl IntoIterator<Item = &'v str>) -> Result<Self, SelectorError> {
        self.require(key, Label::NotIn(checked_values(values)?))
    }

    /// The label is there.
    ///
    /// # Errors
    ///
    /// A key that no label can have.
    pub fn exists(self, key: &str) -> Result<Self, SelectorError> {
        self.require(key, Label::Exists)
    }

    /// The label is not there.
    ///
    /// # Errors
    ///
    /// A key that no label can have.
    pub fn not_exists(self, key: &str) -> Result<Self, SelectorError> {
        self.require(key, Label::NotExists)
    }

    /// The label is there and is an integer above this one.
    ///
    /// # Errors
    ///
    /// A key that no label can have, or a negative bound (its `-` cannot begin a label value).
    pub fn greater(self, key: &str, bound: i64) -> Result<Self, SelectorError> {
        self.require(key, Label::Greater(checked_value(&bound.to_string())?))
    }

    /// The label is there and is an integer below this one.
    ///
    /// # Errors
    ///
    /// As for [`LabelSelector::greater`].
    pub fn less(self, key: &str, bound: i64) -> Result<Self, SelectorError> {
        self.require(key, Label::Less(checked_value(&bound.to_string())?))
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the server would select the object with this metadata (apimachinery `labels.Requirement.Matches`).
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when a label is malformed.
    pub fn matches(&self, meta: &MetaView<'_>) -> Result<bool, ItemError> {
        for (key, label) in &self.0 {
            if !label.matches(meta.label(key)?.as_deref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What every item that [`matches`](Self::matches) contains. Only worth it where reading the metadata is not: it searches
    /// whole items.
    #[must_use]
    pub fn prefilter(&self) -> Prefilter {
        let mut prefilter = Prefilter::default();
        for (key, label) in &self.0 {
            prefilter = match label {
                Label::Eq(value) => prefilter.any_of([key]).any_of([value]),
                Label::In(values) => prefilter.any_of([key]).any_of(values),
                Label::Exists | Label::Greater(_) | Label::Less(_) => prefilter.any_of([key]),
                Label::NotEq(_) | Label::NotIn(_) | Label::NotExists => prefilter,
            };
        }
        prefilter
    }

    fn require(mut self, key: &str, label: Label) -> Result<Self, SelectorError> {
        check_key(key).map_err(|fault| fault.of(key, 0))?;
        self.push(key, label);
        Ok(self)
    }

    fn push(&mut self, key: &str, label: Label) {
        let at = self.0.partition_point(|(known, _)| known.as_str() <= key);
        self.0.insert(at, (key.to_owned(), label));
    }
}

impl Label {
    fn matches(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::NotEq(_) | Self::NotIn(_), None) => true,
            (Self::Exists, value) => value.is_some(),
            (Self::NotExists, value) => value.is_none(),
            (_, None) => false,
            (Self::Eq(wanted), Some(value)) => value == wanted,
            (Self::NotEq(unwanted), Some(value)) => value != unwanted,
            (Self::In(wanted), Some(value)) => wanted.contains(value),
            (Self::NotIn(unwanted), Some(value)) => !unwanted.contains(value),
            (Self::Greater(bound), Some(value)) => compares(value, bound, |value, bound| value > bound),
            (Self::Less(bound), Some(value)) => compares(value, bound, |value, bound| value < bound),
        }
    }
}

/// Go's `strconv.ParseInt` reads what `i64` does: a sign and digits.
fn compares(value: &str, bound: &str, compare: impl Fn(i64, i64) -> bool) -> bool {
    matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if compare(value, bound))
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (key, label) in &self.0 {
            f.write_str(comma)?;
            comma = ",";
            match label {
                Label::Eq(value) => write!(f, "{key}={value}")?,
                Label::NotEq(value) => write!(f, "{key}!={value}")?,
                Label::In(values) => write!(f, "{key} in ({})", joined(values))?,
                Label::NotIn(values) => write!(f, "{key} notin ({})", joined(values))?,
                Label::Exists => write!(f, "{key}")?,
                Label::NotExists => write!(f, "!{key}")?,
                Label::Greater(bound) => write!(f, "{key}>{bound}")?,
                Label::Less(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(input: &str) -> Result<Self, SelectorError> {
        let mut selector = Self::default();
        let mut tokens = Tokens { input, at: 0 };
        if tokens.peek().text.is_empty() {
            return Ok(selector);
        }
        loop {
            let (key, label) = requirement(&mut tokens)?;
            selector.push(key, label);
            let token = tokens.next();
            match token.text {
                "" => return Ok(selector),
                "," => {}
                _ => return Err(token.error(input, "expected ',' or the end")),
            }
        }
    }
}

/// Which fields an object must have; an empty one selects everything.
///
/// ```text
/// status.phase=Running,spec.nodeName!=node-1
/// ```
///
/// The grammar is that of apimachinery `fields.ParseSelector`: `=`, `==`, `!=`, and in values `\\`, `\,` and `\=` for
/// the characters themselves. Which fields can be selected depends on the resource; the server answers others with 400.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector(Vec<Field>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Field {
    path: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// The field at `path`, like `metadata.name`, has this value.
    ///
    /// # Errors
    ///
    /// A path that is empty or has a space, `=`, `!`, `,` or `\` in it: paths know no escapes.
    pub fn eq(self, path: &str, value: &str) -> Result<Self, SelectorError> {
        self.require(path, true, value)
    }

    /// The field at `path` has another value.
    ///
    /// # Errors
    ///
    /// As for [`FieldSelector::eq`].
    pub fn not_eq(self, path: &str, value: &str) -> Result<Self, SelectorError> {
        self.require(path, false, value)
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the server would select the item.
    ///
    /// Of all kinds `metadata.name` and `metadata.namespace` can be selected by; of Pods also `spec.nodeName`,
    /// `spec.restartPolicy`, `spec.schedulerName`, `spec.serviceAccountName`, `spec.hostNetwork`, `status.phase`,
    /// `status.podIP` and `status.nominatedNodeName` (kubernetes `pkg/registry/core/pod.ToSelectableFields`); of custom
    /// resources every field that is a string, an integer or a boolean, because only the server knows which of them their
    /// definition names (`selectableFields` in apiextensions-apiserver `pkg/registry/customresource`).
    ///
    /// # Errors
    ///
    /// [`ItemError::FieldSelector`] for any other field, whatever the rest of the selector says, and
    /// [`ItemError::Metadata`] or [`ItemError::Field`] for an item that is malformed.
    pub fn matches(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let meta = item.meta()?;
        let mut all = true;
        for Field { path, equal, value } in &self.0 {
            let is_there = match path.as_str() {
                "metadata.name" => meta.name() == *value,
                "metadata.namespace" => meta.namespace() == *value,
                path => text_of(item, path)? == *value,
            };
            all &= is_there == *equal;
        }
        Ok(all)
    }

    /// What every item that [`matches`](Self::matches) contains.
    #[must_use]
    pub fn prefilter(&self) -> Prefilter {
        // A boolean stands there as a number.
        let texts = self.0.iter().filter(|field| field.equal && field.path != "spec.hostNetwork");
        Prefilter::new(texts.map(|field| &field.value))
    }

    fn require(mut self, path: &str, equal: bool, value: &str) -> Result<Self, SelectorError> {
        check_path(path).map_err(|fault| fault.of(path, 0))?;
        self.push(path, equal, value.to_owned());
        Ok(self)
    }

    fn push(&mut self, path: &str, equal: bool, value: String) {
        let at = self.0.partition_point(|known| known.path.as_str() <= path);
        let path = path.to_owned();
        self.0.insert(at, Field { path, equal, value });
    }
}

/// A field as the server selects by it: one that is absent is the empty text, or false.
fn text_of<'a>(item: &ItemRef<'a>, path: &str) -> Result<Cow<'a, str>, ItemError> {
    let (type_meta, kind) = (item.type_meta(), item.type_meta().item_kind());
    let message = Message::of(&type_meta.api_version, kind);
    let field = message.filter(|message| message.name() == "Pod").and_then(|_| pod_field(path));
    let unsupported = || ItemError::FieldSelector { path: path.into(), kind: kind.into() };
    match (item.encoding(), field) {
        (Encoding::Protobuf, Some(PodField::Text(path))) => Ok(path.str(*item)?.unwrap_or_default()),
        (Encoding::Protobuf, Some(PodField::Bool(path))) => {
            Ok((path.int(*item)?.unwrap_or_default() != 0).to_string().into())
        }
        (Encoding::Json, field) if field.is_some() || message.is_none() => {
            let parsed = FieldPath::parse(path, type_meta).map_err(|_| unsupported())?;
            match (parsed.bytes(*item)?, field) {
                (Some(value), _) => json::scalar(value).map_err(|fault| ItemError::Field { path: path.into(), fault }),
                (None, Some(PodField::Bool(_))) => Ok("false".into()),
                (None, _) => Ok("".into()),
            }
        }
        _ => Err(unsupported()),
    }
}

enum PodField {
    Text(FieldPath),
    Bool(FieldPath),
}

fn pod_field(path: &str) -> Option<PodField> {
    Some(PodField::Text(match path {
        "spec.nodeName" => pod::NODE_NAME,
        "spec.restartPolicy" => pod::RESTART_POLICY,
        "spec.schedulerName" => pod::SCHEDULER_NAME,
        "spec.serviceAccountName" => pod::SERVICE_ACCOUNT_NAME,
        "spec.hostNetwork" => return Some(PodField::Bool(pod::HOST_NETWORK)),
        "status.phase" => pod::PHASE,
        "status.podIP" => pod::POD_IP,
        "status.nominatedNodeName" => pod::NOMINATED_NODE_NAME,
        _ => return None,
    }))
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for Field { path, equal, value } in &self.0 {
            write!(f, "{comma}{path}{}", if *equal { "=" } else { "!=" })?;
            comma = ",";
            for c in value.chars() {
                match c {
                    '\\' | ',' | '=' => write!(f, "\\{c}")?,
                    _ => write!(f, "{c}")?,
                }
            }
        }
        Ok(())
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(input: &str) -> Result<Self, SelectorError> {
        let mut selector = Self::default();
        for (start, term) in terms(input).filter(|(_, term)| !term.is_empty()) {
            let expected = "expected '=', '==' or '!=' after the field";
            let (path, rest) = term.split_at(term.find(['=', '!']).unwrap_or(term.len()));
            let (equal, raw) = match rest.strip_prefix("!=") {
                Some(raw) => (false, raw),
                None => match rest.strip_prefix("==").or(rest.strip_prefix('=')) {
                    Some(raw) => (true, raw),
                    None => return Err(Fault(path.len(), expected).of(input, start)),
                },
            };
            check_path(path).map_err(|fault| fault.of(input, start))?;
            let value_start = start + term.len() - raw.len();
            let value = unescape(raw).map_err(|fault| fault.of(input, value_start))?;
            selector.push(path, equal, value);
        }
        Ok(selector)
    }
}

/// Where and why a selector, or a key, value or path given to a builder, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid selector {input:?}: {} at byte {offset}: {reason}", self.found())]
pub struct SelectorError {
    input: String,
    offset: usize,
    reason: &'static str,
}

impl SelectorError {
    /// What was parsed: the whole selector, or for a builder the key, value or path.
    #[must_use]
    pub fn input(&self) -> &str {
        &self.input
    }

    /// Byte offset in [`SelectorError::input`] of the faulty character; its length when something is missing.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn found(&self) -> String {
        let rest = self.input.get(self.offset..).unwrap_or_default();
        let character = rest.chars().next();
        character.map_or("the end".to_owned(), |c| format!("{c:?}"))
    }
}

/// A fault at a byte offset of a part of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault(usize, &'static str);

impl Fault {
    /// The error for the part that starts at `start` of `input`.
    fn of(self, input: &str, start: usize) -> SelectorError {
        SelectorError { input: input.to_owned(), offset: start + self.0, reason: self.1 }
    }
}

// ---- parsing of label selectors ----

/// A word, one of the symbols `= == != ! < > ( ) ,`, or at the end the empty text.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    offset: usize,
    text: &'a str,
}

impl Token<'_> {
    fn is_word(self) -> bool {
        !self.text.is_empty() && !self.text.starts_with(is_symbol)
    }

    fn error(self, input: &str, reason: &'static str) -> SelectorError {
        Fault(self.offset, reason).of(input, 0)
    }
}

/// The lexer of apimachinery `labels.Lexer`. What is a key, an operator or a value, the place decides: `in in (in)`.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(self) -> Token<'a> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let text = rest.trim_start_matches(is_space);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(is_symbol) {
            1
        } else {
            let end = |c| is_symbol(c) || is_space(c);
            text.find(end).unwrap_or(text.len())
        };
        Token { offset: self.input.len() - text.len(), text: text.get(..length).unwrap_or_default() }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = token.offset + token.text.len();
        token
    }
}

fn is_symbol(c: char) -> bool {
    "=!(),<>".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

fn requirement<'a>(tokens: &mut Tokens<'a>) -> Result<(&'a str, Label), SelectorError> {
    let input = tokens.input;
    let mut key = tokens.next();
    let negated = key.text == "!";
    if negated {
        key = tokens.next();
    }
    if !key.is_word() {
        return Err(key.error(input, "expected a label key"));
    }
    check_key(key.text).map_err(|fault| fault.of(input, key.offset))?;
    if negated {
        return Ok((key.text, Label::NotExists));
    }
    if matches!(tokens.peek().text, "" | ",") {
        return Ok((key.text, Label::Exists));
    }
    let operator = tokens.next();
    let label = match operator.text {
        "=" | "==" => Label::Eq(value(tokens)?),
        "!=" => Label::NotEq(value(tokens)?),
        "in" => Label::In(values(tokens)?),
        "notin" => Label::NotIn(values(tokens)?),
        ">" => Label::Greater(integer(tokens)?),
        "<" => Label::Less(integer(tokens)?),
        _ => {
            let expected = "expected ',', '=', '==', '!=', 'in', 'notin', '>' or '<'";
            return Err(operator.error(input, expected));
        }
    };
    Ok((key.text, label))
}

/// A value, which may be empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, SelectorError> {
    let token = tokens.peek();
    match token.text {
        "" | "," | ")" => Ok(String::new()),
        text if token.is_word() => {
            tokens.next();
            check_value(text).map_err(|fault| fault.of(tokens.input, token.offset))?;
            Ok(text.to_owned())
        }
        _ => Err(token.error(tokens.input, "expected a label value")),
    }
}

fn integer(tokens: &mut Tokens<'_>) -> Result<String, SelectorError> {
    let token = tokens.peek();
    let text = value(tokens)?;
    match text.parse::<i64>() {
        Ok(_) => Ok(text),
        Err(_) => Err(token.error(tokens.input, "expected an integer of 64 bits")),
    }
}

/// `(a,b)`; an element may be empty, as in `(a,)` and `()`.
fn values(tokens: &mut Tokens<'_>) -> Result<BTreeSet<String>, SelectorError> {
    let open = tokens.next();
    if open.text != "(" {
        return Err(open.error(tokens.input, "expected '('"));
    }
    let mut set = BTreeSet::new();
    loop {
        set.insert(value(tokens)?);
        let token = tokens.next();
        match token.text {
            "," => {}
            ")" => return Ok(set),
            _ => return Err(token.error(tokens.input, "expected ',' or ')'")),
        }
    }
}

// ---- keys and values ----

fn checked_value(value: &str) -> Result<String, SelectorError> {
    check_value(value).map_err(|fault| fault.of(value, 0))?;
    Ok(value.to_owned())
}

fn checked_values<'v>(values: impl IntoIterator<Item = &'v str>) -> Result<BTreeSet<String>, SelectorError> {
    let set: BTreeSet<String> = values.into_iter().map(checked_value).collect::<Result<_, _>>()?;
    if set.is_empty() {
        return Err(Fault(0, "a set needs at least one value").of("", 0));
    }
    Ok(set)
}

/// Apimachinery `content.IsLabelKey`: `[DNS subdomain/]name`.
fn check_key(key: &str) -> Result<(), Fault> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let name_start = key.len() - name.len();
    if let Some(prefix) = prefix {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let mut start = 0;
        for label in prefix.split('.') {
            check(label, inner, usize::MAX, "is not allowed in a DNS prefix")
                .map_err(|Fault(at, reason)| Fault(start + at, reason))?;
            start += label.len() + 1;
        }
        if prefix.len() > 253 {
            return Err(Fault(253, "a DNS prefix has at most 253 bytes"));
        }
    }
    check(name, is_name, 63, "is not allowed in a label key")
        .map_err(|Fault(at, reason)| Fault(name_start + at, reason))
}

/// Apimachinery `content.IsLabelValue`.
fn check_value(value: &str) -> Result<(), Fault> {
    if value.is_empty() {
        return Ok(());
    }
    check(value, is_name, 63, "is not allowed in a label value")
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Not empty, at most `max` bytes of `inner`, the first and the last of them letters or digits.
fn check(text: &str, inner: impl Fn(char) -> bool, max: usize, reason: &'static str) -> Result<(), Fault> {
    if let Some((at, _)) = text.char_indices().find(|(_, c)| !inner(*c)) {
        return Err(Fault(at, reason));
    }
    let ends = "must start and end with a letter or digit";
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(Fault(0, ends));
    }
    if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(Fault(text.len() - 1, ends));
    }
    if text.len() > max {
        return Err(Fault(max, "has at most 63 bytes"));
    }
    Ok(())
}

fn joined(values: &BTreeSet<String>) -> String {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    values.join(",")
}

// ---- parsing of field selectors ----

/// The parts between commas that no backslash escapes, each with its offset.
fn terms(input: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut escaped = false;
    let mut start = 0;
    let split = move |c: char| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    };
    input.split(split).map(move |term| {
        let at = start;
        start += term.len() + 1;
        (at, term)
    })
}

/// Apimachinery checks no paths, but knows no escapes in them either.
fn check_path(path: &str) -> Result<(), Fault> {
    if path.is_empty() {
        return Err(Fault(0, "expected a field"));
    }
    let bad = |c: char| c.is_whitespace() || c.is_control() || "=!,\\".contains(c);
    match path.find(bad) {
        Some(at) => Err(Fault(at, "is not allowed in a field")),
        None => Ok(()),
    }
}

/// Apimachinery `fields.UnescapeValue`.
fn unescape(raw: &str) -> Result<String, Fault> {
    let mut value = String::with_capacity(raw.len());
    let mut chars = raw.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | ',' | '='))) => value.push(c),
                _ => return Err(Fault(at, r"must stand before '\', ',' or '='")),
            },
            ',' | '=' => return Err(Fault(at, r"needs a '\' before it in a value")),
            _ => value.push(c),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parsing, and the canonical form of what was parsed.
    #[test]
    fn label_selectors() {
        for (input, canonical) in [
            ("", ""),
            ("  \t\r\n ", ""),
            ("app=web", "app=web"),
            (" app == web ", "app=web"),
            ("app!=web", "app!=web"),
            ("app", "app"),
            ("!app", "!app"),
            ("! app", "!app"),
            ("b=1,a=2,b=0", "a=2,b=1,b=0"),
            ("x in (b,a,b)", "x in (a,b)"),
            ("x notin(a)", "x notin (a)"),
            ("x in ()", "x in ()"),
            ("x in (,)", "x in ()"),
            ("x in (a,)", "x in (,a)"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("x in (foo,,baz),y,z notin ()", "x in (,baz,foo),y,z notin ()"),
            ("x=", "x="),
            ("x!=,y", "x!=,y"),
            ("x>1", "x>1"),
            ("x < 007", "x<007"),
            ("x>9223372036854775807", "x>9223372036854775807"),
            // Words that are operators elsewhere.
            ("in", "in"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("notin=in", "notin=in"),
            ("example.com/App_1.x=A-b_c.d", "example.com/App_1.x=A-b_c.d"),
        ] {
            let parsed: Result<LabelSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    #[test]
    fn label_selectors_refused() {
        let long = "k".repeat(64);
        let prefix = format!("{}aa/x", "a.".repeat(126));
        for (input, offset, expected) in [
            (",", 0, "',' at byte 0: expected a label key"),
            ("a,", 2, "the end at byte 2: expected a label key"),
            ("a,,b", 2, "',' at byte 2: expected a label key"),
            ("!", 1, "the end at byte 1: expected a label key"),
            ("!!a", 1, "'!' at byte 1: expected a label key"),
            ("=a", 0, "'=' at byte 0: expected a label key"),
            ("!a=b", 2, "'=' at byte 2: expected ',' or the end"),
            ("a b", 2, "'b' at byte 2: expected ',', '=', '==', '!=', 'in', 'notin', '>' or '<'"),
            ("a=b c", 4, "'c' at byte 4: expected ',' or the end"),
            ("a=!b", 2, "'!' at byte 2: expected a label value"),
            ("a===b", 3, "'=' at byte 3: expected a label value"),
            ("a=)", 2, "')' at byte 2: expected ',' or the end"),
            ("a in b", 5, "'b' at byte 5: expected '('"),
            ("a in", 4, "the end at byte 4: expected '('"),
            ("a in (", 6, "the end at byte 6: expected ',' or ')'"),
            ("a in (b c)", 8, "'c' at byte 8: expected ',' or ')'"),
            ("a in (b=", 7, "'=' at byte 7: expected ',' or ')'"),
            ("a in (()", 6, "'(' at byte 6: expected a label value"),
            ("a>b", 2, "'b' at byte 2: expected an integer of 64 bits"),
            ("a>", 2, "the end at byte 2: expected an integer of 64 bits"),
            ("a>-1", 2, "'-' at byte 2: must start and end with a letter or digit"),
            ("a<9223372036854775808", 2, "'9' at byte 2: expected an integer of 64 bits"),
            ("app=we*b", 6, "'*' at byte 6: is not allowed in a label value"),
            ("app=é", 4, "'é' at byte 4: is not allowed in a label value"),
            ("app=-web", 4, "'-' at byte 4: must start and end with a letter or digit"),
            ("app=web.", 7, "'.' at byte 7: must start and end with a letter or digit"),
            ("a\0", 1, "'\\0' at byte 1: is not allowed in a label key"),
            ("a/b/c", 3, "'/' at byte 3: is not allowed in a label key"),
            ("/b", 0, "'/' at byte 0: must start and end with a letter or digit"),
            ("b/", 2, "the end at byte 2: must start and end with a letter or digit"),
            ("x, Ex.com/b", 3, "'E' at byte 3: is not allowed in a DNS prefix"),
            ("a..b/c", 2, "'.' at byte 2: must start and end with a letter or digit"),
            ("a.b-/c", 3, "'-' at byte 3: must start and end with a letter or digit"),
            (&long, 63, "'k' at byte 63: has at most 63 bytes"),
            (&prefix, 253, "'a' at byte 253: a DNS prefix has at most 253 bytes"),
        ] {
            let error = input.parse::<LabelSelector>().expect_err(input);
            assert_eq!((error.input(), error.offset()), (input, offset));
            let text = format!("invalid selector {input:?}: {expected}");
            assert_eq!(error.to_string(), text);
        }
        assert!(long[1..].parse::<LabelSelector>().is_ok());
        assert!(format!("a={}", &long[1..]).parse::<LabelSelector>().is_ok());
        assert!(format!("a={long}").parse::<LabelSelector>().is_err());
        assert!(prefix.replace("aa/", "a/").parse::<LabelSelector>().is_ok());
    }

    #[test]
    fn label_selectors_built() -> Result<(), SelectorError> {
        let built = LabelSelector::default()
            .less("z", 5)?
            .greater("z", 1)?
            .eq("app", "web")?
            .not_eq("tier", "")?
            .is_in("x", ["b", "a"])?
            .not_in("y", ["c"])?
            .exists("e")?
            .not_exists("f")?;
        let text = "app=web,e,!f,tier!=,x in (a,b),y notin (c),z<5,z>1";
        assert_eq!(built.to_string(), text);
        assert_eq!(text.parse(), Ok(built));
        for refused in [
            LabelSelector::default().eq("a=b", "c"),
            LabelSelector::default().not_eq("a", "b,c"),
            LabelSelector::default().is_in("a", []),
            LabelSelector::default().not_in("a", ["b", "(c"]),
            LabelSelector::default().exists(""),
            LabelSelector::default().not_exists("!a"),
            LabelSelector::default().greater("a", -1),
            LabelSelector::default().less("a b", 1),
        ] {
            assert!(refused.is_err(), "{refused:?}");
        }
        Ok(())
    }

    #[test]
    fn field_selectors() {
        for (input, canonical) in [
            ("", ""),
            (",,", ""),
            ("status.phase=Running", "status.phase=Running"),
            ("b==2,a!=1,", "a!=1,b=2"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=", "a="),
            ("a=b!c d", "a=b!c d"),
            ("a!=é", "a!=é"),
        ] {
            let parsed: Result<FieldSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    #[test]
    fn field_selectors_refused() {
        for (input, offset, expected) in [
            ("metadata.name", 13, "the end at byte 13: expected '=', '==' or '!=' after the field"),
            ("a=b, c", 6, "the end at byte 6: expected '=', '==' or '!=' after the field"),
            ("a!b=c", 1, "'!' at byte 1: expected '=', '==' or '!=' after the field"),
            ("=b", 0, "'=' at byte 0: expected a field"),
            ("a=b, c=d", 4, "' ' at byte 4: is not allowed in a field"),
            ("a =b", 1, "' ' at byte 1: is not allowed in a field"),
            (r"a\,b=c", 1, r"'\\' at byte 1: is not allowed in a field"),
            ("a===b", 3, r"'=' at byte 3: needs a '\' before it in a value"),
            ("x=1,a=b=c", 7, r"'=' at byte 7: needs a '\' before it in a value"),
            (r"a=\b", 2, r"'\\' at byte 2: must stand before '\', ',' or '='"),
            (r"a=b\", 3, r"'\\' at byte 3: must stand before '\', ',' or '='"),
        ] {
            let error = input.parse::<FieldSelector>().expect_err(input);
            assert_eq!((error.input(), error.offset()), (input, offset));
            let text = format!("invalid selector {input:?}: {expected}");
            assert_eq!(error.to_string(), text);
        }
        assert!(FieldSelector::default().eq("a,b", "c").is_err());
        assert!(FieldSelector::default().not_eq("", "c").is_err());
    }

    /// The table of apimachinery `labels.TestSelectorMatches` and more.
    #[test]
    fn label_selectors_match() {
        // metadata.labels {app: web, n: "5", plus: "+7", empty: ""}, sorted as servers do.
        let labels =
            b"\x5a\x0a\x0a\x03app\x12\x03web\x5a\x09\x0a\x05empty\x12\x00\x5a\x06\x0a\x01n\x12\x015\x5a\x0a\x0a\x04plus\x12\x02+7";
        let object = [&[0x0a, u8::try_from(labels.len()).unwrap()], &labels[..]].concat();
        let meta = ItemRef::new(Encoding::Protobuf, &object).meta().unwrap();
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==db", false),
            ("x=", false),
            ("empty=", true),
            ("app!=web", false),
            ("app!=db", true),
            ("x!=web", true),
            ("app in (db,web)", true),
            ("app in (db)", false),
            ("x in (web)", false),
            ("empty in ()", true),
            ("app notin (db)", true),
            ("app notin (db,web)", false),
            ("x notin (web)", true),
            ("app", true),
            ("x", false),
            ("!app", false),
            ("!x", true),
            ("n>4", true),
            ("n>5", false),
            ("n<6", true),
            ("n<5", false),
            ("n>004", true),
            ("plus>6", true),
            ("app>1", false),
            ("app<1", false),
            ("empty<1", false),
            ("x<1", false),
            ("app=web,n>4,!x", true),
            ("app=web,n>5,!x", false),
        ] {
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!(parsed.matches(&meta).unwrap(), expected, "{selector}");
            let may_match = parsed.prefilter().matches(&ItemRef::new(Encoding::Protobuf, &object));
            assert!(may_match || !expected, "{selector} has a false negative");
        }
    }

    #[test]
    fn field_selectors_match() {
        let metadata = b"\x0a\x06\x0a\x01n\x1a\x01s";
        let object = [metadata, &b"\x12\x07\x52\x03n-1\x58\x01\x1a\x09\x0a\x07Running"[..]].concat();
        let json = br#"{"metadata":{"name":"n","namespace":"s"},"spec":{"nodeName":"n-1","hostNetwork":true},
            "status":{"phase":"Running"}}"#;
        let pod = crate::TypeMeta { api_version: "v1".to_owned(), kind: "PodList".to_owned() };
        let node = crate::TypeMeta { api_version: "v1".to_owned(), kind: "NodeList".to_owned() };
        for (selector, type_meta, expected) in [
            ("", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace=s", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace!=s", &node, Ok(false)),
            ("spec.nodeName=n-1,status.phase=Running", &pod, Ok(true)),
            ("spec.nodeName=n-1,status.phase!=Running", &pod, Ok(false)),
            ("status.podIP=,status.nominatedNodeName!=x", &pod, Ok(true)),
            ("spec.hostNetwork=true", &pod, Ok(true)),
            ("spec.hostNetwork=false", &pod, Ok(false)),
            ("spec.hostNetwork=1", &pod, Ok(false)),
            ("spec.nodeName=n-1", &node, Err(r#"unsupported field selector: "spec.nodeName" of "Node""#)),
            ("metadata.name=x,spec.x=", &pod, Err(r#"unsupported field selector: "spec.x" of "Pod""#)),
        ] {
            let parsed: FieldSelector = selector.parse().unwrap();
            let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(type_meta);
            let matched = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(matched, expected.map_err(str::to_owned), "{selector}");
            assert!(parsed.prefilter().matches(&item) || matched != Ok(true), "{selector} has a false negative");
            let item = ItemRef::new(Encoding::Json, json).with_type_meta(type_meta);
            let of_json = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(of_json, matched, "{selector}, of JSON");
        }
        let empty = FieldSelector::default().eq("spec.hostNetwork", "false").unwrap();
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Protobuf, b"").with_type_meta(&pod)).ok(), Some(true));
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Json, b"{}").with_type_meta(&pod)).ok(), Some(true));
    }

    #[test]
    fn custom_resources_are_selected_by_any_field() {
        let widget = br#"{"metadata":{"name":"n"},"spec":{"color":"r\u0065d","size":0,"size":-7,"on":false,"none":null,"of":{}}}"#;
        let type_meta = crate::TypeMeta { api_version: "example.com/v1".to_owned(), kind: "WidgetList".to_owned() };
        for (selector, expected) in [
            ("spec.color=red,spec.size=-7,spec.on=false", Ok(true)),
            ("spec.color!=red", Ok(false)),
            ("spec.none=,spec.more=,spec.on.more=,more.color=", Ok(true)),
            ("spec.size=7", Ok(false)),
            ("spec.of=x", Err("a value of the wrong type in field spec.of")),
        ] {
            let selector: FieldSelector = selector.parse().unwrap();
            let matched = selector.matches(&ItemRef::new(Encoding::Json, widget).with_type_meta(&type_meta));
            assert_eq!(matched.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{selector}");
        }
    }

    fn key() -> impl Strategy<Value = String> {
        "([a-z0-9]([-a-z0-9]{0,3}[a-z0-9])?(\\.[a-z]){0,2}/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?|in|notin"
    }

    fn label_value() -> impl Strategy<Value = String> {
        "([A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?)?|in|notin"
    }

    fn label() -> impl Strategy<Value = Label> {
        let set = || proptest::collection::btree_set(label_value(), 1..4);
        prop_oneof![
            label_value().prop_map(Label::Eq),
            label_value().prop_map(Label::NotEq),
            set().prop_map(Label::In),
            set().prop_map(Label::NotIn),
            Just(Label::Exists),
            Just(Label::NotExists),
            "[0-9]{1,18}".prop_map(Label::Greater),
            "[0-9]{1,18}".prop_map(Label::Less),
        ]
    }

    proptest! {
        #[test]
        fn label_selectors_come_back(labels in proptest::collection::vec((key(), label()), 0..5)) {
            let mut selector = LabelSelector::default();
            for (key, label) in labels {
                selector = selector.require(&key, label).unwrap();
            }
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }

        #[test]
        fn field_selectors_come_back(
            fields in proptest::collection::vec(("[^\\s\\pC=!,\\\\]{1,8}", any::<bool>(), "\\PC*|[\\\\,=!]*"), 0..5),
        ) {
            let mut selector = FieldSelector::default();
            for (path, equal, value) in fields {
                selector = selector.require(&path, equal, &value).unwrap();
            }
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }

        /// Whatever was accepted is accepted again; an error points into the input.
        #[test]
        fn any_text(text in "[a-b1 .,=!<>()/\\\\é-]{0,16}|(a|in|notin|[ ,()=!]){0,12}|.*") {
            match text.parse::<LabelSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.offset())),
            }
            match text.parse::<FieldSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.offset())),
            }
        }
    }
}
