//! What the fields of Kubernetes objects are called and what is in them, by their numbers in protobuf.
//!
//! Of every built-in kind, `CustomResourceDefinition`, `APIService` and the kinds of `metrics.k8s.io`; `table.txt` beside
//! this file says of which version, and how it is made.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

#[cfg(feature = "json")]
mod json;

use std::collections::HashMap;
use std::sync::LazyLock;

#[cfg(feature = "json")]
pub use self::json::to_json;
#[cfg(feature = "json")]
pub(crate) use self::json::to_line;

/// A message of protobuf: a kind of object, or a part of one.
///
/// The table of all is read when it is first used, in some milliseconds, and then takes about 300 KB.
///
/// ```
/// use listwatch::fields::Message;
///
/// let pod = Message::of("v1", "Pod").ok_or("no such kind")?;
/// let path = pod.path("spec.nodeName").ok_or("no such field")?;
/// assert_eq!(path.iter().map(|field| field.number()).collect::<Vec<_>>(), [2, 10]);
/// assert_eq!(pod.names(&[2, 10]).as_deref(), Some("spec.nodeName"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Message {
    name: &'static str,
    form: Form,
    /// In the order of JSON.
    fields: Vec<Field>,
}

/// A field of a [`Message`].
#[derive(Debug)]
pub struct Field {
    number: u32,
    /// Empty for a message whose fields JSON has among those of its parent.
    name: &'static str,
    #[cfg_attr(not(feature = "json"), expect(dead_code, reason = "for the JSON form"))]
    omit: Omit,
    shape: Shape,
    of: Type,
}

/// What the JSON of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// An object of its fields.
    Object,
    /// The first field alone: a list in a map, which protobuf needs a message for.
    Items,
    /// The second field, or the first where there is none.
    Or,
    /// The JSON text that its one field holds.
    Raw,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
}

/// When JSON leaves a field out, by the options of Go's struct tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omit {
    Never,
    /// `omitempty`
    Empty,
    /// `omitzero`, which the table has on times alone.
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Single,
    /// There or not, whatever its value.
    Optional,
    Repeated,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// Its place in the table.
    Message(usize),
}

impl Message {
    /// The message of a kind of object (`Pod`, not `PodList`); `None` when the table does not have it.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        TABLE.messages.get(*TABLE.kinds.get(kind)?.get(api_version)?)
    }

    /// What Kubernetes calls it: `Pod`, `PodSpec`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether JSON has an object of its fields. A time, a quantity and their like are a single value there.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.form == Form::Object
    }

    /// The field of this number; `None` when the table does not have it: the object is of a newer version.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    /// The fields on a path of names as they are in JSON, `spec.containers.image`. Repeated fields are passed through; a map
    /// may only be its end.
    ///
    /// There may be more fields than names: JSON has the fields of some messages among those of their parent.
    #[must_use]
    pub fn path(&self, names: &str) -> Option<Vec<&Field>> {
        let mut path = Vec::new();
        let mut message = Some(self);
        for name in names.split('.') {
            message = message?.find(name, &mut path)?.message();
        }
        Some(path)
    }

    /// Appends the way to the field of this name.
    fn find<'a>(&'a self, name: &str, path: &mut Vec<&'a Field>) -> Option<&'a Field> {
        for field in &self.fields {
            path.push(field);
            if field.name == name {
                return Some(field);
            }
            if field.name.is_empty()
                && let Some(found) = field.message()?.find(name, path)
            {
                return Some(found);
            }
            path.pop();
        }
        None
    }

    /// The path of names that these numbers lead along; `None` when one of them is not in the table, or lies behind a map.
    #[must_use]
    pub fn names(&self, numbers: &[u32]) -> Option<String> {
        let mut names = Vec::new();
        let mut message = Some(self);
        for &number in numbers {
            let field = message?.field(number)?;
            if !field.name.is_empty() {
                names.push(field.name);
            }
            message = field.message();
        }
        Some(names.join("."))
    }
}

impl Field {
    /// Its number in protobuf.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its name in JSON; empty for a message whose fields JSON has among those of its parent. In a message that JSON
    /// has no object for, as a time, it is its name in protobuf.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is a map: repeated entries of a key, 1, and a value, 2.
    #[must_use]
    pub fn is_map(&self) -> bool {
        self.shape == Shape::Map
    }

    /// What is in it, if that is a message, and not in a map.
    #[must_use]
    pub fn message(&self) -> Option<&'static Message> {
        if self.is_map() { None } else { self.of.message() }
    }
}

impl Type {
    fn message(self) -> Option<&'static Message> {
        match self {
            Self::Message(place) => TABLE.messages.get(place),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Table {
    messages: Vec<Message>,
    /// Places of messages, by kind and `apiVersion`.
    kinds: HashMap<&'static str, HashMap<&'static str, usize>>,
}

/// A test reads it, so that it is empty for nobody.
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(TEXT).unwrap_or_default());

const TEXT: &str = include_str!("table.txt");

impl Table {
    fn parse(text: &'static str) -> Option<Self> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let mut places = HashMap::new();
        let mut package = "";
        for line in lines() {
            match line.split_once(' ')? {
                ("package", name) => package = name,
                ("message", line) => {
                    places.insert((package, line.split(' ').next()?), places.len());
                }
                _ => {}
            }
        }

        let mut table = Self::default();
        for line in lines() {
            match line.split_once(' ')? {
                ("package", name) => package = name,
                ("message", line) => table.message(line)?,
                (number, line) => {
                    let field = Field::parse(number.parse().ok()?, line, |name| {
                        places.get(&name.rsplit_once('.').unwrap_or((package, name))).copied()
                    });
                    table.messages.last_mut()?.fields.push(field?);
                }
            }
        }
        Some(table)
    }

    fn message(&mut self, line: &'static str) -> Option<()> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut form = Form::Object;
        for word in words {
            if let Some(name) = word.strip_prefix('=') {
                form = Form::parse(name)?;
            } else {
                self.kinds.entry(name).or_default().insert(word, self.messages.len());
            }
        }
        self.messages.push(Message { name, form, fields: Vec::new() });
        Some(())
    }
}

impl Field {
    fn parse(number: u32, line: &'static str, place: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        let (name, of) = line.split_once(' ')?;
        let (name, omit) = if let Some(name) = name.strip_suffix('!') {
            (name.trim_end_matches('?'), Omit::Zero)
        } else if let Some(name) = name.strip_suffix('?') {
            (name, Omit::Empty)
        } else {
            (name, Omit::Never)
        };
        let shapes = [("*", Shape::Optional), ("[]", Shape::Repeated), ("{}", Shape::Map)];
        let prefixed = shapes.into_iter().find_map(|(prefix, shape)| Some((of.strip_prefix(prefix)?, shape)));
        let (of, shape) = prefixed.unwrap_or((of, Shape::Single));
        let of = match of {
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "double" => Type::Double,
            message => Type::Message(place(message)?),
        };
        Some(Self { number, name: if name == "." { "" } else { name }, omit, shape, of })
    }
}

impl Form {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "Items" => Self::Items,
            "Or" => Self::Or,
            "Raw" => Self::Raw,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Duration" => Self::Duration,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table_is_read() {
        let table = Table::parse(TEXT).unwrap();
        let count = |is: fn(&str) -> bool| TEXT.lines().filter(|line| is(line)).count();
        assert_eq!(table.messages.len(), count(|line| line.starts_with("message ")));
        let fields: usize = table.messages.iter().map(|message| message.fields.len()).sum();
        assert_eq!(fields, count(|line| line.starts_with(|c: char| c.is_ascii_digit())));
        assert!(fields > 3000, "{fields}");
    }

    #[test]
    fn paths_and_numbers() {
        for (api_version, kind, path, numbers) in [
            ("v1", "Pod", "spec.nodeName", &[2, 10][..]),
            ("v1", "Pod", "metadata.managedFields.fieldsV1", &[1, 17, 7]),
            ("v1", "Pod", "metadata.labels", &[1, 11]),
            // The sources of a volume are a message of their own, which JSON does not show.
            ("v1", "Pod", "spec.volumes.configMap.name", &[2, 1, 2, 19, 1, 1]),
            ("apps/v1", "Deployment", "spec.template.spec.containers.image", &[2, 3, 2, 2, 2]),
            ("meta.k8s.io/v1", "PartialObjectMetadata", "metadata.name", &[1, 1]),
        ] {
            let message = Message::of(api_version, kind).unwrap();
            assert_eq!(message.path(path).map(numbers_of).as_deref(), Some(numbers), "{path}");
            assert_eq!(message.names(numbers).as_deref(), Some(path));
        }
        let pod = Message::of("v1", "Pod").unwrap();
        for path in ["", "spec.", "spec.nodename", "metadata.labels.app", "spec.nodeName.x"] {
            assert!(pod.path(path).is_none(), "{path}");
        }
        for numbers in [&[9][..], &[1, 11, 1], &[2, 10, 1]] {
            assert_eq!(pod.names(numbers), None, "{numbers:?}");
        }
        assert!(Message::of("v2", "Pod").is_none());
        assert!(Message::of("v1", "PodList").is_none());
    }

    fn numbers_of(path: Vec<&Field>) -> Vec<u32> {
        path.into_iter().map(Field::number).collect()
    }

    #[test]
    fn every_path_leads_back() {
        fn visit(kind: &'static Message, message: &'static Message, numbers: &mut Vec<u32>) {
            for field in &message.fields {
                numbers.push(field.number);
                let path = kind.names(numbers).unwrap();
                if !field.name.is_empty() {
                    assert_eq!(kind.path(&path).map(numbers_of).as_ref(), Some(&*numbers), "{path} of {}", kind.name);
                }
                // Schemas hold schemas.
                if let Some(message) = field.message()
                    && numbers.len() < 6
                {
                    visit(kind, message, numbers);
                }
                numbers.pop();
            }
        }
        for (&kind, versions) in &TABLE.kinds {
            for &version in versions.keys() {
                let message = Message::of(version, kind).unwrap();
                visit(message, message, &mut Vec::new());
            }
        }
    }
}
