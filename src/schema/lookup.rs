//! Look-ups in the table of fields.

use super::table::{FIELDS, KINDS, MESSAGES, NAMES};
use super::types::{Field, Form, Kind, Message, Name, Shape, Type};
use crate::error::ItemError;

impl Message {
    pub(crate) fn all() -> &'static [Self] {
        &MESSAGES
    }

    /// Returns the message of a kind such as `Pod` (not `PodList`), or `None` if the table does not contain the kind.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        Self::numbered(api_version, kind).map(|(_, message)| message)
    }

    /// Like [`of`](Self::of), but returns an error for a kind that the table does not contain.
    pub(crate) fn of_item(api_version: &str, kind: &str) -> Result<&'static Self, ItemError> {
        Self::of(api_version, kind)
            .ok_or_else(|| ItemError::UnknownKind { api_version: api_version.into(), kind: kind.into() })
    }

    /// Like [`of`](Self::of), together with a number of the kind in this version that is never 0.
    pub(crate) fn numbered(api_version: &str, kind: &str) -> Option<(u16, &'static Self)> {
        let found = KINDS
            .binary_search_by(|entry| (entry.message().name(), entry.api_version.get()).cmp(&(kind, api_version)))
            .ok()?;
        Some((u16::try_from(found + 1).ok()?, KINDS.get(found)?.message()))
    }

    /// Returns the name in Kubernetes, such as `Pod` or `PodSpec`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name.get()
    }

    pub(crate) fn is_time(&self) -> bool {
        matches!(self.form, Form::Time | Form::MicroTime)
    }

    #[expect(clippy::indexing_slicing, reason = "a test reads every entry of the table")]
    pub(crate) fn fields(&self) -> &'static [Field] {
        &FIELDS[usize::from(self.first)..][..usize::from(self.fields)]
    }

    /// Returns true if JSON shows the message as an object of its fields.
    ///
    /// A time or a quantity, for example, is a single value in JSON.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.form == Form::Object
    }

    /// Returns the field with this number, or `None` if the table does not know it, because a newer release added it.
    #[must_use]
    pub fn field(&self, number: u32) -> Option<&'static Field> {
        self.fields().iter().find(|field| field.number() == number)
    }

    /// Returns the fields on a path of JSON names, such as `spec.containers.image`.
    ///
    /// The path may lead through repeated fields but not through a map. The result may contain more fields than names,
    /// because JSON inlines some messages into their parents.
    #[must_use]
    pub fn path(&self, names: &str) -> Option<Vec<&'static Field>> {
        let mut path = Vec::new();
        let mut message = Some(self);
        for name in names.split('.') {
            message = message?.find(name, &mut path)?.message();
        }
        Some(path)
    }

    fn find(&self, name: &str, path: &mut Vec<&'static Field>) -> Option<&'static Field> {
        for field in self.fields() {
            path.push(field);
            if field.name() == name {
                return Some(field);
            }
            if field.name().is_empty()
                && let Some(found) = field.message()?.find(name, path)
            {
                return Some(found);
            }
            path.pop();
        }
        None
    }

    /// Returns the path of names for these numbers; `None` if a number is not in the table or follows a map.
    #[must_use]
    pub fn names(&self, numbers: &[u32]) -> Option<String> {
        let mut names = Vec::new();
        let mut message = Some(self);
        for &number in numbers {
            let field = message?.field(number)?;
            if !field.name().is_empty() {
                names.push(field.name());
            }
            message = field.message();
        }
        Some(names.join("."))
    }
}

impl Field {
    /// Returns the number in protobuf.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.into()
    }

    /// Returns the name in JSON, which is empty for a message that JSON inlines into its parent.
    ///
    /// In a message whose JSON form is not an object, such as a time, the name is the one in protobuf.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name.get()
    }

    /// Returns true for a map, which protobuf encodes as repeated entries of a key (1) and a value (2).
    #[must_use]
    pub fn is_map(&self) -> bool {
        self.shape == Shape::Map
    }

    /// Returns the type of a field that is a message; `None` for other types and for a map.
    #[must_use]
    pub fn message(&self) -> Option<&'static Message> {
        if self.is_map() { None } else { self.of.message() }
    }
}

impl Type {
    #[expect(clippy::indexing_slicing, reason = "a test reads every entry of the table")]
    pub(crate) fn message(self) -> Option<&'static Message> {
        match self {
            Self::Message(place) => Some(&MESSAGES[usize::from(place)]),
            _ => None,
        }
    }
}

impl Kind {
    #[expect(clippy::indexing_slicing, reason = "a test reads every entry of the table")]
    pub(crate) fn message(&self) -> &'static Message {
        &MESSAGES[usize::from(self.message)]
    }
}

impl Name {
    #[expect(clippy::string_slice, reason = "a test reads every entry of the table")]
    pub(crate) fn get(self) -> &'static str {
        &NAMES[usize::from(self.at)..][..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_entry_of_the_table_can_be_read() {
        let mut fields = 0;
        for message in &MESSAGES {
            assert!(!message.name().is_empty());
            assert_eq!(usize::from(message.first), fields, "{}", message.name());
            fields += message.fields().len();
            let mut numbers = HashSet::new();
            for field in message.fields() {
                assert!(numbers.insert(field.number()), "{} of {}", field.number(), message.name());
                assert!(!field.name().is_empty() || field.message().is_some());
            }
        }
        assert_eq!(fields, FIELDS.len());
        assert!(fields > 2000, "{fields}");
        let mut kinds = HashSet::from([0]);
        for kind in &KINDS {
            let (name, api_version) = (kind.message().name(), kind.api_version.get());
            let (number, message) = Message::numbered(api_version, name).unwrap();
            assert!(std::ptr::eq(message, kind.message()));
            assert!(kinds.insert(number), "versions of {name} with the same message have numbers of their own");
        }
    }

    #[test]
    fn converts_between_names_and_numbers() {
        for (api_version, kind, path, numbers) in [
            ("v1", "Pod", "spec.nodeName", &[2, 10][..]),
            ("v1", "Pod", "metadata.managedFields.fieldsV1", &[1, 17, 7]),
            ("v1", "Pod", "metadata.labels", &[1, 11]),
            // JSON inlines the message of a volume's sources.
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
    fn every_path_round_trips() {
        fn visit(kind: &'static Message, message: &'static Message, numbers: &mut Vec<u32>) {
            for field in message.fields() {
                numbers.push(field.number());
                let path = kind.names(numbers).unwrap();
                if !field.name().is_empty() {
                    assert_eq!(kind.path(&path).map(numbers_of).as_ref(), Some(&*numbers), "{path} of {}", kind.name());
                }
                // Schemas contain schemas, so the depth is limited.
                if let Some(message) = field.message()
                    && numbers.len() < 6
                {
                    visit(kind, message, numbers);
                }
                numbers.pop();
            }
        }
        for kind in &KINDS {
            visit(kind.message(), kind.message(), &mut Vec::new());
        }
    }
}
