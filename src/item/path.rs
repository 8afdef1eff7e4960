//! Single fields of an object, found by their numbers.

use std::borrow::Cow;
use std::fmt;

use super::TypeMeta;
use crate::decode::wire::{Fields, Value};
use crate::error::{Fault, ItemError};
use crate::fields::{Field, Message};

/// The way to a field of an object by field numbers, to read it off the object's protobuf bytes without decoding the rest.
///
/// Lookups descend only into the messages on the path and borrow what they find; each allocates a few words. They give
/// what decoding would: the last one counts of values that come twice, messages in pieces are merged, and malformed bytes
/// on the way are errors.
///
/// A path may lead through repeated fields; [`strs`](Self::strs) and its like then give the values of all of them, `str`
/// that of the last. Its last field may be a map of which one [`key`](Self::key) is meant. A path without numbers
/// leads nowhere.
///
/// ```
/// use listwatch::item::{FieldPath, path::pod};
/// use listwatch::{Event, ListDecoder};
///
/// const CONTAINER_PORTS: FieldPath = FieldPath::new(&[2, 2, 6, 3]); // spec.containers.ports.containerPort
///
/// # let mut body = &include_bytes!("../../fixtures/pods-page-3.pb")[..];
/// # let mut decoder = ListDecoder::new();
/// # let mut seen = 0;
/// while let Some(event) = decoder.decode(&mut body)? {
///     if let Event::Item(item) = event {
///         let node = pod::NODE_NAME.str(item.bytes())?.unwrap_or("no node yet");
///         let ports = CONTAINER_PORTS.ints(item.bytes()).collect::<Result<Vec<_>, _>>()?;
///         println!("{node} {ports:?}");
/// #       seen += ports.len();
///     }
/// }
/// # assert!(seen >= 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath {
    numbers: Cow<'static, [u32]>,
    key: Option<Cow<'static, str>>,
}

impl FieldPath {
    /// The path of these field numbers: see the `generated.proto` of the kind's package in `k8s.io/api`.
    #[must_use]
    pub const fn new(numbers: &'static [u32]) -> Self {
        Self { numbers: Cow::Borrowed(numbers), key: None }
    }

    /// The value of this key, of the map that the path leads to.
    ///
    /// ```
    /// use listwatch::item::{FieldPath, path::meta};
    ///
    /// let app = meta::LABELS.key("app");
    /// assert_eq!(app.to_string(), r#"1.11["app"]"#);
    /// assert_eq!(app.str(b"\x0a\x0c\x5a\x0a\x0a\x03app\x12\x03web")?, Some("web"));
    /// # Ok::<(), listwatch::ItemError>(())
    /// ```
    #[must_use]
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Reads a path of the objects of a list, or of an object, of this type.
    ///
    /// Names are those of JSON: `spec.containers.image`, known from the [table of fields](crate::fields) of built-in kinds.
    /// Of any other kind only `metadata` and what is in it are known. Without names it is numbers: `2.10` is
    /// `spec.nodeName` of a Pod. A path to a map may end in a key: `metadata.annotations["example.com/note"]`,
    /// `1.12["example.com/note"]`.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] when the text is no path, or names a field that is not known.
    ///
    /// ```
    /// use listwatch::{FieldPath, TypeMeta, item::path::pod};
    ///
    /// let pods = TypeMeta { api_version: "v1".to_owned(), kind: "PodList".to_owned() };
    /// assert_eq!(FieldPath::parse("spec.nodeName", &pods)?, pod::NODE_NAME);
    /// # Ok::<(), listwatch::item::InvalidPath>(())
    /// ```
    pub fn parse(text: &str, of: &TypeMeta) -> Result<Self, InvalidPath> {
        let error = |reason: &'static str| InvalidPath { text: text.to_owned(), reason: reason.into() };
        let (path, key) = match text.split_once('[') {
            None => (text, None),
            Some((path, key)) => {
                let key = key.strip_prefix('"').and_then(|key| key.strip_suffix("\"]"));
                (path, Some(key.ok_or(error("a key is written [\"KEY\"]"))?))
            }
        };
        let numbers = if path.starts_with(|c: char| c.is_ascii_digit()) {
            numbers(path).ok_or(error("a path in numbers is 1 to 100 field numbers with dots between"))?
        } else {
            let kind = Message::of(&of.api_version, of.item_kind())
                .or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata"));
            let path = kind.and_then(|kind| kind.path(path)).ok_or_else(|| InvalidPath {
                reason: format!("{} has no such field", of.item_kind()).into(),
                ..error("")
            })?;
            if key.is_some() && !path.last().is_some_and(|field| field.is_map()) {
                return Err(error("not a map, so it has no keys"));
            }
            path.into_iter().map(Field::number).collect()
        };
        Ok(Self { numbers: numbers.into(), key: key.map(|key| key.to_owned().into()) })
    }

    pub(super) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    pub(super) fn map_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The string there; `None` when it is absent.
    ///
    /// # Errors
    ///
    /// [`ItemError::Field`] when it is no string, or a message on the way is malformed.
    pub fn str<'a>(&self, object: &'a [u8]) -> Result<Option<&'a str>, ItemError> {
        self.strs(object).try_fold(None, |_, value| value.map(Some))
    }

    /// The bytes there, or those of a string or a message; `None` when they are absent. Of a message in pieces, which no
    /// API server writes, it is the last piece.
    ///
    /// # Errors
    ///
    /// As [`str`](Self::str).
    pub fn bytes<'a>(&self, object: &'a [u8]) -> Result<Option<&'a [u8]>, ItemError> {
        self.all_bytes(object).try_fold(None, |_, value| value.map(Some))
    }

    /// The integer there, or 0 or 1 for a boolean; `None` when it is absent.
    ///
    /// # Errors
    ///
    /// As [`str`](Self::str).
    pub fn int(&self, object: &[u8]) -> Result<Option<i64>, ItemError> {
        self.ints(object).try_fold(None, |_, value| value.map(Some))
    }

    /// All strings there, also those that a later one in the same message replaces, which no API server writes.
    ///
    /// The iterator ends after an error: those of [`str`](Self::str).
    pub fn strs<'a>(&self, object: &'a [u8]) -> impl Iterator<Item = Result<&'a str, ItemError>> {
        self.values(object, Value::str)
    }

    /// All bytes there, as [`strs`](Self::strs).
    pub fn all_bytes<'a>(&self, object: &'a [u8]) -> impl Iterator<Item = Result<&'a [u8], ItemError>> {
        self.values(object, Value::bytes)
    }

    /// All integers there, as [`strs`](Self::strs).
    pub fn ints(&self, object: &[u8]) -> impl Iterator<Item = Result<i64, ItemError>> {
        self.values(object, Value::int)
    }

    fn values<'a, T>(
        &self,
        object: &'a [u8],
        read: impl Fn(Value<'a>) -> Result<T, Fault>,
    ) -> impl Iterator<Item = Result<T, ItemError>> {
        let mut walk = Some(Walk { path: self, messages: vec![Fields::new(object)] });
        std::iter::from_fn(move || {
            let next = walk.as_mut()?.next()?.and_then(&read);
            if next.is_err() {
                walk = None;
            }
            Some(next.map_err(|fault| ItemError::Field { path: self.to_string().into(), fault }))
        })
    }
}

impl From<Vec<u32>> for FieldPath {
    fn from(numbers: Vec<u32>) -> Self {
        Self { numbers: numbers.into(), key: None }
    }
}

/// In numbers, as [`FieldPath::parse`] reads it for every kind.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut dot = "";
        for number in &*self.numbers {
            write!(f, "{dot}{number}")?;
            dot = ".";
        }
        match &self.key {
            Some(key) => write!(f, "[\"{key}\"]"),
            None => Ok(()),
        }
    }
}

/// Not a path to a field, or not one that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid field path {text:?}: {reason}")]
pub struct InvalidPath {
    text: String,
    reason: Cow<'static, str>,
}

/// Fields of the metadata of every object (`ObjectMeta` in `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`).
pub mod meta {
    use super::{Cow, FieldPath};

    /// `metadata.labels`
    pub const LABELS: FieldPath = FieldPath::new(&[1, 11]);
    /// `metadata.annotations`
    pub const ANNOTATIONS: FieldPath = FieldPath::new(&[1, 12]);
    /// `metadata.managedFields`
    pub const MANAGED_FIELDS: FieldPath = FieldPath::new(&[1, 17]);
    /// `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`
    pub const LAST_APPLIED: FieldPath = FieldPath {
        numbers: Cow::Borrowed(&[1, 12]),
        key: Some(Cow::Borrowed("kubectl.kubernetes.io/last-applied-configuration")),
    };
}

/// Fields of Pods (`k8s.io/api/core/v1/generated.proto`).
pub mod pod {
    use super::FieldPath;

    /// `spec`
    pub const SPEC: FieldPath = FieldPath::new(&[2]);
    /// `spec.containers.name`: several
    pub const CONTAINER_NAMES: FieldPath = FieldPath::new(&[2, 2, 1]);
    /// `spec.containers.image`: several
    pub const IMAGES: FieldPath = FieldPath::new(&[2, 2, 2]);
    /// `spec.restartPolicy`
    pub const RESTART_POLICY: FieldPath = FieldPath::new(&[2, 3]);
    /// `spec.serviceAccountName`
    pub const SERVICE_ACCOUNT_NAME: FieldPath = FieldPath::new(&[2, 8]);
    /// `spec.nodeName`
    pub const NODE_NAME: FieldPath = FieldPath::new(&[2, 10]);
    /// `spec.hostNetwork`: 0 or 1
    pub const HOST_NETWORK: FieldPath = FieldPath::new(&[2, 11]);
    /// `spec.schedulerName`
    pub const SCHEDULER_NAME: FieldPath = FieldPath::new(&[2, 19]);
    /// `spec.priorityClassName`
    pub const PRIORITY_CLASS_NAME: FieldPath = FieldPath::new(&[2, 24]);
    /// `status`
    pub const STATUS: FieldPath = FieldPath::new(&[3]);
    /// `status.phase`
    pub const PHASE: FieldPath = FieldPath::new(&[3, 1]);
    /// `status.reason`
    pub const REASON: FieldPath = FieldPath::new(&[3, 4]);
    /// `status.hostIP`
    pub const HOST_IP: FieldPath = FieldPath::new(&[3, 5]);
    /// `status.podIP`
    pub const POD_IP: FieldPath = FieldPath::new(&[3, 6]);
    /// `status.containerStatuses.restartCount`: several
    pub const RESTART_COUNTS: FieldPath = FieldPath::new(&[3, 8, 5]);
    /// `status.qosClass`
    pub const QOS_CLASS: FieldPath = FieldPath::new(&[3, 9]);
    /// `status.nominatedNodeName`
    pub const NOMINATED_NODE_NAME: FieldPath = FieldPath::new(&[3, 11]);
    /// `status.podIPs.ip`: several
    pub const POD_IPS: FieldPath = FieldPath::new(&[3, 12, 1]);
}

/// Goes to all values at the end of a path, in their order.
struct Walk<'a, 'p> {
    path: &'p FieldPath,
    /// The message under way, and those it is in. Invariant: no more than numbers, but for the first.
    messages: Vec<Fields<'a>>,
}

impl<'a> Walk<'a, '_> {
    fn next(&mut self) -> Option<Result<Value<'a>, Fault>> {
        loop {
            let depth = self.messages.len();
            let Some(field) = self.messages.last_mut()?.next() else {
                self.messages.pop();
                continue;
            };
            let step = field.and_then(|field| {
                if self.path.numbers.get(depth - 1) != Some(&field.number) {
                    return Ok(None);
                }
                if depth < self.path.numbers.len() {
                    self.messages.push(Fields::new(field.value.bytes()?));
                    return Ok(None);
                }
                match &self.path.key {
                    None => Ok(Some(field.value)),
                    Some(key) => value_of(key, field.value.bytes()?),
                }
            });
            if let Some(found) = step.transpose() {
                return Some(found);
            }
        }
    }
}

/// The value of an entry of a map, if it is the one of this key.
fn value_of<'a>(key: &str, entry: &'a [u8]) -> Result<Option<Value<'a>>, Fault> {
    let mut found = Value::Len(&[]);
    for field in Fields::new(entry) {
        let field = field?;
        if field.number == 2 {
            found = field.value;
        }
    }
    Ok((key_of(entry)? == key.as_bytes()).then_some(found))
}

/// The key of an entry of a map.
pub(super) fn key_of(entry: &[u8]) -> Result<&[u8], Fault> {
    let mut key = &[][..];
    for field in Fields::new(entry) {
        let field = field?;
        if field.number == 1 {
            key = field.value.bytes()?;
        }
    }
    Ok(key)
}

fn numbers(path: &str) -> Option<Vec<u32>> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..1 << 29).contains(number));
    let numbers = path.split('.').map(number).collect::<Option<Vec<_>>>()?;
    (numbers.len() <= 100).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups() {
        let path = |numbers: &'static [u32]| FieldPath::new(numbers);
        for (path, object, expected) in [
            (path(&[]), &b"\x0a\x01a"[..], Ok(vec![])),
            (path(&[1]), b"", Ok(vec![])),
            (path(&[1]), b"\x0a\x01a\x12\x01b\x0a\x01c", Ok(vec!["a", "c"])),
            // The message in two pieces, another field of the same number elsewhere.
            (path(&[1, 2]), b"\x0a\x03\x12\x01a\x12\x01b\x0a\x03\x12\x01c", Ok(vec!["a", "c"])),
            (path(&[1, 2, 3]), b"\x0a\x05\x12\x03\x1a\x01a\x0a\x00", Ok(vec!["a"])),
            // What the path does not lead through is not walked inside.
            (path(&[1]), b"\x12\x01\xff\x0a\x01a", Ok(vec!["a"])),
            (path(&[1]), b"\x0a\x01\xff", Err(Fault::Utf8)),
            (path(&[1]), b"\x08\x01", Err(Fault::WireType)),
            (path(&[1, 1]), b"\x08\x01", Err(Fault::WireType)),
            (path(&[1, 1]), b"\x0a\x01\x0a", Err(Fault::PastParent)),
            (path(&[1]), b"\x0a\x01a\x0b", Err(Fault::PastParent)),
            // Maps: an entry without key, without value, with the value first; a key twice.
            (path(&[1]).key("k"), b"\x0a\x06\x0a\x01k\x12\x01a\x0a\x03\x12\x01b", Ok(vec!["a"])),
            (path(&[1]).key(""), b"\x0a\x06\x0a\x01k\x12\x01a\x0a\x03\x12\x01b", Ok(vec!["b"])),
            (path(&[1]).key("k"), b"\x0a\x03\x0a\x01k\x0a\x06\x12\x01b\x0a\x01k", Ok(vec!["", "b"])),
            (path(&[1]).key("k"), b"\x0a\x06\x0a\x01k\x0a\x01l", Ok(vec![])),
            (path(&[1]).key("k"), b"\x0a\x02\x08\x01", Err(Fault::WireType)),
            (path(&[1]).key("k"), b"\x0a\x03\x0a\x02k", Err(Fault::PastParent)),
        ] {
            let error = |fault| ItemError::Field { path: path.to_string().into(), fault }.to_string();
            let strs = path.strs(object).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string());
            assert_eq!(strs, expected.clone().map_err(error), "{path} in {object:x?}");
            let last = path.str(object).map_err(|error| error.to_string());
            assert_eq!(last, expected.map(|all| all.last().copied()).map_err(error), "{path} in {object:x?}");
        }
    }

    #[test]
    fn integers_and_bytes() -> Result<(), ItemError> {
        let object = b"\x08\x01\x08\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02\xff\x00";
        let (ints, bytes) = (FieldPath::new(&[1]), FieldPath::from(vec![2]));
        assert_eq!(ints.ints(object).collect::<Result<Vec<_>, _>>()?, [1, -3]);
        assert_eq!((ints.int(object)?, bytes.bytes(object)?), (Some(-3), Some(&b"\xff\x00"[..])));
        assert_eq!((ints.int(b"")?, bytes.bytes(b"")?), (None, None));
        assert!(ints.bytes(object).is_err() && bytes.int(object).is_err());
        // After an error nothing more comes.
        assert_eq!(ints.all_bytes(object).count(), 1);
        Ok(())
    }

    #[test]
    fn parsed() {
        for (text, kind, expected) in [
            ("metadata", "ConfigMap", Some("1")),
            ("metadata.managedFields", "ConfigMap", Some("1.17")),
            ("metadata.labels[\"a.b/c\"]", "Pod", Some("1.11[\"a.b/c\"]")),
            ("data[\"a\"]", "ConfigMap", Some("2[\"a\"]")),
            ("spec", "Pod", Some("2")),
            ("status", "PodList", Some("3")),
            ("spec.containers.image", "Pod", Some("2.2.2")),
            // JSON has the source of a volume among the fields of the volume.
            ("spec.volumes.hostPath.path", "Pod", Some("2.1.2.1.1")),
            ("metadata.labels", "Widget", Some("1.11")),
            ("3.10", "ConfigMap", Some("3.10")),
            ("1.12[\"\"]", "Pod", Some("1.12[\"\"]")),
            ("2.536870911", "Pod", Some("2.536870911")),
            ("status", "ConfigMap", None),
            ("spec", "Widget", None),
            ("spec.nodename", "Pod", None),
            ("metadata.managedfields", "Pod", None),
            ("metadata.name[\"a\"]", "Pod", None),
            ("metadata.labels[a]", "Pod", None),
            ("metadata.labels[\"a\"", "Pod", None),
            ("metadata.labels[\"a\"].b", "Pod", None),
            ("metadata.labels.a", "Pod", None),
            ("", "Pod", None),
            ("0", "Pod", None),
            ("1.", "Pod", None),
            ("1..2", "Pod", None),
            ("1.-2", "Pod", None),
            ("536870912", "Pod", None),
            (&"1.".repeat(100), "Pod", None),
        ] {
            let path = FieldPath::parse(text, &v1(kind)).ok();
            assert_eq!(path.as_ref().map(ToString::to_string).as_deref(), expected, "{text}");
            if let Some(path) = path {
                assert_eq!(FieldPath::parse(&path.to_string(), &v1("Any")), Ok(path));
            }
        }
        let error = FieldPath::parse("status", &v1("ConfigMap")).unwrap_err().to_string();
        assert_eq!(error, "invalid field path \"status\": ConfigMap has no such field");
    }

    fn v1(kind: &str) -> TypeMeta {
        TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() }
    }

    /// The constants are what the table of fields has under their documented names.
    #[test]
    fn constants() {
        for (path, name) in [
            (meta::LABELS, "metadata.labels"),
            (meta::ANNOTATIONS, "metadata.annotations"),
            (meta::MANAGED_FIELDS, "metadata.managedFields"),
            (meta::LAST_APPLIED, "metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]"),
            (pod::SPEC, "spec"),
            (pod::CONTAINER_NAMES, "spec.containers.name"),
            (pod::IMAGES, "spec.containers.image"),
            (pod::RESTART_POLICY, "spec.restartPolicy"),
            (pod::SERVICE_ACCOUNT_NAME, "spec.serviceAccountName"),
            (pod::NODE_NAME, "spec.nodeName"),
            (pod::HOST_NETWORK, "spec.hostNetwork"),
            (pod::SCHEDULER_NAME, "spec.schedulerName"),
            (pod::PRIORITY_CLASS_NAME, "spec.priorityClassName"),
            (pod::STATUS, "status"),
            (pod::PHASE, "status.phase"),
            (pod::REASON, "status.reason"),
            (pod::HOST_IP, "status.hostIP"),
            (pod::POD_IP, "status.podIP"),
            (pod::RESTART_COUNTS, "status.containerStatuses.restartCount"),
            (pod::QOS_CLASS, "status.qosClass"),
            (pod::NOMINATED_NODE_NAME, "status.nominatedNodeName"),
            (pod::POD_IPS, "status.podIPs.ip"),
        ] {
            assert_eq!(FieldPath::parse(name, &v1("Pod")), Ok(path));
        }
    }
}
