//! Paths to fields, for `fields=` and indexes.

use listwatch::schema::Message;
use listwatch::value::{Object, Value};
use listwatch::{Fault, ItemError, ItemRef};
use listwatch_tables::json_path::{JsonPath, ObjectReader};

use crate::raw::Tree;

/// The paths of `fields=`.
pub struct FieldSelection(Vec<Field>);

/// One of them.
enum Field {
    Plain(Path),
    /// With filters, slices, unions or recursion: the values that kubectl's JSONPath finds.
    JsonPath(JsonPath),
}

/// The names and places that lead to a value.
pub struct Path {
    steps: Vec<Step>,
    /// True if the path may lead to several values, which are a list.
    is_many: bool,
}

#[derive(Debug, PartialEq)]
enum Step {
    Name(Box<str>),
    Index(i64),
    All,
}

impl FieldSelection {
    pub fn parse(paths: &[String]) -> Result<Self, String> {
        let parse = |path: &String| match is_json_path(path) {
            false => Path::parse(path).map(Field::Plain),
            true => {
                let error = |error| format!("invalid field path {path:?}: {error}");
                JsonPath::parse(path).map(Field::JsonPath).map_err(error)
            }
        };
        paths.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns a reader of what the JSONPaths need; `None` without any.
    pub fn reader(&self) -> Option<ObjectReader> {
        let mut paths = self.json_paths().peekable();
        paths.peek().is_some().then(|| ObjectReader::of_paths(self.json_paths()))
    }

    fn json_paths(&self) -> impl Iterator<Item = &JsonPath> {
        self.0.iter().filter_map(|field| match field {
            Field::Plain(_) => None,
            Field::JsonPath(path) => Some(path),
        })
    }

    /// Checks the names of fields of a built-in kind.
    pub fn check(&self, api_version: &str, kind: &str) -> Result<(), String> {
        let Some(message) = Message::of(api_version, kind) else { return Ok(()) };
        self.0.iter().try_for_each(|field| match field {
            Field::Plain(path) => path.check(message),
            Field::JsonPath(_) => Ok(()),
        })
    }

    /// Reads the values of an item. The reader is that of [`reader`](Self::reader).
    pub fn read(&self, item: &ItemRef<'_>, reader: Option<&mut ObjectReader>) -> Result<Vec<Tree>, ItemError> {
        let object = item.json_form()?;
        let needed = reader.map(|reader| reader.read(item)).transpose()?.map(|(value, _)| value).unwrap_or_default();
        let read = |field: &Field| match field {
            Field::Plain(path) => path.read(&object).map_err(unreadable),
            Field::JsonPath(path) => {
                let found = path.find(&needed).map_err(|error| ItemError::Other(std::sync::Arc::new(error)))?;
                Ok(Tree::List(found.into_iter().map(Tree::of_json).collect()))
            }
        };
        self.0.iter().map(read).collect()
    }
}

/// Returns true for a path with a filter, a slice, a union or a recursive descent.
fn is_json_path(path: &str) -> bool {
    let mut quote = None;
    let mut in_brackets = false;
    let mut last = ' ';
    for c in path.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => in_brackets = true,
            (None, ']') => in_brackets = false,
            (None, '?' | ':' | ',') if in_brackets => return true,
            (None, '.') if last == '.' => return true,
            _ => {}
        }
        last = c;
    }
    false
}

fn unreadable(fault: Fault) -> ItemError {
    ItemError::Metadata { field: "a selected field", fault }
}

impl Path {
    /// Parses `spec.nodeName`, `{.spec.nodeName}`, `$.spec['nodeName']`, `spec.containers[*].image` and
    /// `spec.containers[0].image`. A dot in a name is `\.`, or the name is in brackets.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = |reason: &str| format!("invalid field path {text:?}: {reason}");
        let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'));
        let mut rest = inner.ok_or_else(|| error("expected }"))?.trim();
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        let mut is_first = true;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let quote = inner.chars().next().filter(|first| matches!(first, '"' | '\''));
                let (content, after) = match quote {
                    Some(quote) => {
                        let quoted = inner.get(1..).and_then(|inner| inner.split_once(&format!("{quote}]")));
                        quoted.ok_or_else(|| error("a quoted name that does not end"))?
                    }
                    None => inner.split_once(']').ok_or_else(|| error("expected ]"))?,
                };
                steps.push(match (quote, content) {
                    (Some(_), name) => Step::Name(name.into()),
                    (None, "*") => Step::All,
                    (None, index) => {
                        let index = index.parse().map_err(|_| error("expected [*], [INDEX] or ['NAME']"))?;
                        Step::Index(index)
                    }
                });
                rest = after;
            } else {
                let from =
                    rest.strip_prefix('.').or(is_first.then_some(rest)).ok_or_else(|| error("expected a dot"))?;
                let (name, after) = name(from);
                if name.is_empty() {
                    return Err(error("an empty name"));
                }
                steps.push(if name == "*" { Step::All } else { Step::Name(name.into()) });
                rest = after;
            }
            is_first = false;
        }
        if steps.is_empty() || steps.len() > 100 {
            return Err(error("expected 1 to 100 names"));
        }
        let is_many = steps.contains(&Step::All);
        Ok(Self { steps, is_many })
    }

    /// Checks the names as far as they are fields of messages.
    fn check(&self, message: &'static Message) -> Result<(), String> {
        let mut names = String::new();
        for step in &self.steps {
            let Step::Name(name) = step else { continue };
            if names.is_empty() && matches!(&**name, "kind" | "apiVersion") {
                return Ok(());
            }
            if !names.is_empty() {
                names.push('.');
            }
            names.push_str(name);
            let Some(last) = message.path(&names).and_then(|path| path.last().copied()) else {
                return Err(format!("invalid field path: {} has no field {names:?}", message.name()));
            };
            if !last.message().is_some_and(Message::is_object) {
                return Ok(());
            }
        }
        Ok(())
    }

    pub fn read(&self, object: &Object<'_>) -> Result<Tree, Fault> {
        let mut found = Vec::new();
        let is_many = walk(Value::Object(object.clone()), &self.steps, &mut |value| {
            found.push(Tree::of(value, 0)?);
            Ok(())
        })? || self.is_many;
        Ok(if is_many { Tree::List(found) } else { found.pop().unwrap_or(Tree::Null) })
    }

    /// Returns the texts of the values, for an index.
    pub fn texts(&self, item: &ItemRef<'_>) -> Result<Vec<String>, ItemError> {
        let mut texts = Vec::new();
        let walked = walk(Value::Object(item.json_form()?), &self.steps, &mut |value| {
            texts.push(match value {
                Value::String(text) => text.into_owned(),
                Value::Number(text) => text.to_owned(),
                Value::Int(value) => value.to_string(),
                Value::Double(value) => value.to_string(),
                Value::Bool(value) => value.to_string(),
                _ => return Ok(()),
            });
            Ok(())
        });
        walked.map_err(unreadable)?;
        Ok(texts)
    }
}

/// Reads a name, in which a backslash escapes a dot, and returns what follows.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            c => name.push(c),
        }
    }
    (name, "")
}

/// Calls `each` with all values at the end of the steps. A name leads through all elements of a list. Returns true if
/// it did.
fn walk(
    value: Value<'_>,
    steps: &[Step],
    each: &mut impl FnMut(Value<'_>) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let mut is_many = false;
    match (steps.split_first(), value) {
        (None, value) => each(value)?,
        (Some((Step::Name(name), rest)), Value::Object(object)) => {
            if let Some(value) = object.get(name)? {
                is_many = walk(value, rest, each)?;
            }
        }
        (Some((Step::Name(_), _)), Value::Array(array)) => {
            is_many = true;
            array.try_for_each(|value| match value {
                Value::Object(_) => walk(value, steps, each).map(drop),
                _ => Ok::<_, Fault>(()),
            })?;
        }
        (Some((Step::Index(index), rest)), Value::Array(array)) => {
            let index = if *index < 0 {
                array.len()?.checked_sub(usize_of(index.unsigned_abs()))
            } else {
                Some(usize_of(index.unsigned_abs()))
            };
            if let Some(value) = index.map(|index| array.get(index)).transpose()?.flatten() {
                is_many = walk(value, rest, each)?;
            }
        }
        (Some((Step::All, rest)), Value::Array(array)) => {
            array.try_for_each(|value| walk(value, rest, each).map(drop))?;
        }
        (Some((Step::All, rest)), Value::Object(object)) => {
            object.try_for_each(|_, value| walk(value, rest, each).map(drop))?;
        }
        _ => {}
    }
    Ok(is_many)
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
