//! Paths to single fields of an object: how they are built and parsed, and how fields are read by them.
//!
//! - A read returns what decoding would return: the last of several values counts, and messages in pieces are merged.
//!   `tests/core/inspect.rs` compares the two.
//! - Therefore `str` walks to the last value instead of stopping at the first, and malformed bytes after it are errors.
//! - Only the messages on the path are walked. Bytes elsewhere are skipped by their lengths and not checked.
//! - The numbers of a path bound the stack of messages in protobuf, and its names bound the recursion in JSON.
//! - In JSON, all values are found before the first is returned, so a fault after them is returned last.
//! - A path without numbers leads nowhere in protobuf, and is refused only if it has names. Never return "absent"
//!   instead.
//! - JSON inlines some messages into their parents, so a path may have more numbers than names, and `parse` checks that
//!   names and numbers lead to the same field.

use std::borrow::Cow;
use std::fmt;

use crate::encoding::codec::{Value as _, Values as _};
use crate::encoding::item_ref::ItemRef;
use crate::encoding::paths::Steps;
use crate::encoding::{AnyValue, map_codec, with_codec};
use crate::error::{Fault, InvalidInput, ItemError};
use crate::meta::TypeMeta;
use crate::schema::{Field, Message};
use crate::wire::Encoding;

/// A path to a field of an object, which reads the field without decoding the rest.
///
/// A path consists of field numbers for protobuf, of names for JSON, or of both, and an item is read in its own
/// encoding. [`ItemRef::new`] makes an item from bytes that you keep.
///
/// A read walks only the messages on the path, borrows what it finds, and allocates a few words. It returns what
/// decoding would return: the last of several values of a single field counts, messages in pieces are merged, and
/// malformed bytes on the path are errors.
///
/// In JSON, a read also scans what it skips. To read several fields of a large object,
/// [project](crate::Projection::keep) the object to their paths first, and read them from the copy.
///
/// A path may lead through repeated fields. [`strs`](Self::strs), [`all_bytes`](Self::all_bytes) and
/// [`ints`](Self::ints) then return the values of all elements, while `str`, `bytes` and `int` return the last one. If
/// the last field is a map, [`key`](Self::key) selects one of its entries. A path without names and numbers leads
/// nowhere.
///
/// ```
/// use listwatch::path::pod;
/// use listwatch::{Event, FieldPath, ListDecoder};
///
/// const CONTAINER_PORTS: FieldPath = FieldPath::new("spec.containers.ports.containerPort", &[2, 2, 6, 3]);
///
/// # let mut body = &include_bytes!("../../fixtures/pods-page-3.pb")[..];
/// # let mut decoder = ListDecoder::new();
/// # let mut seen = 0;
/// while let Some(event) = decoder.decode(&mut body)? {
///     if let Event::Item(item) = event {
///         let node = pod::NODE_NAME.str(item)?.unwrap_or_else(|| "no node yet".into());
///         let ports = CONTAINER_PORTS.ints(item).collect::<Result<Vec<_>, _>>()?;
///         println!("{node} {ports:?}");
/// #       seen += ports.len();
///     }
/// }
/// # assert!(seen >= 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath {
    /// Separated by dots; empty if unknown.
    pub(super) names: Cow<'static, str>,
    /// Empty if unknown.
    pub(super) numbers: Cow<'static, [u32]>,
    pub(super) key: Option<Cow<'static, str>>,
}

impl FieldPath {
    /// Creates a path from these JSON names and field numbers, either of which may be empty.
    ///
    /// The numbers are in the `generated.proto` of the kind's package in `k8s.io/api`. Reading an item in the encoding
    /// whose half of the path is empty is [`ItemError::WrongEncoding`].
    #[must_use]
    pub const fn new(names: &'static str, numbers: &'static [u32]) -> Self {
        Self { names: Cow::Borrowed(names), numbers: Cow::Borrowed(numbers), key: None }
    }

    /// Returns the path to one entry of the map to which this path leads.
    ///
    /// ```
    /// use listwatch::path::meta;
    /// use listwatch::{Encoding, ItemRef};
    ///
    /// let app = meta::LABELS.key("app");
    /// assert_eq!(app.to_string(), r#"metadata.labels["app"]"#);
    /// let object = ItemRef::new(Encoding::Protobuf, b"\x0a\x0c\x5a\x0a\x0a\x03app\x12\x03web");
    /// assert_eq!(app.str(object)?.as_deref(), Some("web"));
    /// # Ok::<(), listwatch::ItemError>(())
    /// ```
    #[must_use]
    pub fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Parses a path for objects with this type meta, which may also be the type meta of their list.
    ///
    /// The text consists of the names of JSON, such as `spec.containers.image`, or of field numbers, such as `2.10` for
    /// `spec.nodeName` of a Pod. The [table of fields](crate::schema) translates between the two for built-in kinds and
    /// for the `metadata` of every kind. Other names of a custom resource are used as they are and read only JSON, and
    /// numbers that are not in the table read only protobuf. A path to a map may end in a key:
    /// `metadata.annotations["example.com/note"]`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] when the text is not a path, or names a field that the kind does not have.
    ///
    /// ```
    /// use listwatch::path::pod;
    /// use listwatch::{FieldPath, TypeMeta};
    ///
    /// let pods = TypeMeta::new("v1", "PodList");
    /// assert_eq!(FieldPath::parse("spec.nodeName", &pods)?, pod::NODE_NAME);
    /// assert_eq!(FieldPath::parse("2.10", &pods)?, pod::NODE_NAME);
    /// # Ok::<(), listwatch::InvalidInput>(())
    /// ```
    pub fn parse(text: &str, of: &TypeMeta) -> Result<Self, InvalidInput> {
        let error = |reason: &'static str| InvalidInput::of("field path", text, reason);
        let (path, key) = match text.split_once('[') {
            None => (text, None),
            Some((path, key)) => {
                let key = key.strip_prefix('"').and_then(|key| key.strip_suffix("\"]"));
                (path, Some(key.ok_or(error("expected a key as [\"KEY\"] at the end"))?))
            }
        };
        let known = Message::of(&of.api_version, of.item_kind());
        let kind = known.or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata"));
        let (names, numbers) = if path.starts_with(|c: char| c.is_ascii_digit()) {
            let numbers = numbers(path).ok_or(error("expected 1 to 100 field numbers separated by dots"))?;
            // JSON inlines some messages into their parents, so the names may lead to other fields.
            let names = kind.and_then(|kind| kind.names(&numbers)).filter(|names| {
                let fields = kind.and_then(|kind| kind.path(names)).unwrap_or_default();
                let is_map = fields.last().is_some_and(|field| field.is_map());
                (is_map || key.is_none()) && fields.into_iter().map(Field::number).eq(numbers.iter().copied())
            });
            (names.unwrap_or_default(), numbers)
        } else if let Some(fields) = kind.and_then(|kind| kind.path(path)) {
            if key.is_some() && !fields.last().is_some_and(|field| field.is_map()) {
                return Err(error("not a map, so it has no keys"));
            }
            (path.to_owned(), fields.into_iter().map(Field::number).collect())
        } else if known.is_some() || path.split('.').next() == Some("metadata") {
            let kind = Some(of.item_kind()).filter(|kind| !kind.is_empty()).unwrap_or("the object");
            return Err(InvalidInput::of("field path", text, format!("{kind} has no such field")));
        } else if path.split('.').any(str::is_empty) || path.split('.').count() > 100 {
            return Err(error("expected 1 to 100 names separated by dots"));
        } else {
            (path.to_owned(), Vec::new())
        };
        Ok(Self { names: names.into(), numbers: numbers.into(), key: key.map(|key| key.to_owned().into()) })
    }

    /// Returns the field numbers, which are empty if unknown.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.numbers.is_empty()
    }

    pub(super) fn steps(&self) -> Steps<'_> {
        Steps { names: &self.names, numbers: &self.numbers, key: self.key.as_deref() }
    }

    /// Checks that the path leads through objects in this encoding, or nowhere at all.
    pub(super) fn leads_through(&self, encoding: Encoding) -> Result<(), ItemError> {
        if with_codec!(encoding, C => C::can_follow(self.steps())) {
            return Ok(());
        }
        let expected = if self.names.is_empty() { Encoding::Protobuf } else { Encoding::Json };
        Err(ItemError::WrongEncoding { found: encoding, expected })
    }

    /// Returns the string at the end of the path, or `None` if it is absent.
    ///
    /// The string is borrowed unless JSON escapes a part of it.
    ///
    /// # Errors
    ///
    /// [`ItemError::Field`] when the value is not a string, or a message on the path is malformed;
    /// [`ItemError::WrongEncoding`] when the path does not lead through objects in this encoding.
    pub fn str<'a>(&self, item: ItemRef<'a>) -> Result<Option<Cow<'a, str>>, ItemError> {
        self.strs(item).try_fold(None, |_, value| value.map(Some))
    }

    /// Returns the encoded value at the end of the path, or `None` if it is absent.
    ///
    /// In protobuf, these are the bytes of a bytes field, string or message; of a message in pieces, which no API
    /// server writes, they are the last piece. In JSON, they are the text of the value.
    ///
    /// # Errors
    ///
    /// The same as [`str`](Self::str).
    pub fn bytes<'a>(&self, item: ItemRef<'a>) -> Result<Option<&'a [u8]>, ItemError> {
        self.all_bytes(item).try_fold(None, |_, value| value.map(Some))
    }

    /// Returns the integer at the end of the path, 0 or 1 for a boolean, or `None` if it is absent.
    ///
    /// # Errors
    ///
    /// The same as [`str`](Self::str).
    pub fn int(&self, item: ItemRef<'_>) -> Result<Option<i64>, ItemError> {
        self.ints(item).try_fold(None, |_, value| value.map(Some))
    }

    /// Returns all strings at the end of the path.
    ///
    /// They include strings that a later one in the same message replaces, although no API server writes those. The
    /// iterator ends after an error, which is the same as for [`str`](Self::str).
    pub fn strs<'a>(&self, item: ItemRef<'a>) -> impl Iterator<Item = Result<Cow<'a, str>, ItemError>> {
        self.values(item, AnyValue::to_str)
    }

    /// Returns all encoded values at the end of the path, as [`strs`](Self::strs) does.
    ///
    /// A map without a key yields its entries one by one in protobuf, but a single value in JSON.
    pub fn all_bytes<'a>(&self, item: ItemRef<'a>) -> impl Iterator<Item = Result<&'a [u8], ItemError>> {
        self.values(item, AnyValue::to_bytes)
    }

    /// Returns all integers at the end of the path, as [`strs`](Self::strs) does.
    pub fn ints(&self, item: ItemRef<'_>) -> impl Iterator<Item = Result<i64, ItemError>> {
        self.values(item, AnyValue::to_int)
    }

    /// Returns the text of the last value at the end of the path, as a field selector compares it.
    pub(super) fn text<'a>(&self, item: ItemRef<'a>, is_bool: bool) -> Result<Option<Cow<'a, str>>, ItemError> {
        let last = self.values(item, Ok).try_fold(None, |_, value| value.map(Some))?;
        let text = last.map(|value| value.to_text(is_bool)).transpose();
        text.map_err(|fault| ItemError::Field { path: self.to_string().into(), fault })
    }

    fn values<'a, T>(
        &self,
        item: ItemRef<'a>,
        read: impl Fn(AnyValue<'a>) -> Result<T, Fault>,
    ) -> impl Iterator<Item = Result<T, ItemError>> {
        let mut refused = self.leads_through(item.encoding).err();
        let mut values = refused.is_none().then(|| map_codec!(item.encoding, C => C::values(&item, self.steps())));
        std::iter::from_fn(move || {
            if let Some(refused) = refused.take() {
                return Some(Err(refused));
            }
            let next = values.as_mut()?.next()?.and_then(&read);
            if next.is_err() {
                values = None;
            }
            Some(next.map_err(|fault| ItemError::Field { path: self.to_string().into(), fault }))
        })
    }
}

/// Writes the names, or else the numbers, in the form that [`FieldPath::parse`] reads.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            let mut dot = "";
            for number in &*self.numbers {
                write!(f, "{dot}{number}")?;
                dot = ".";
            }
        } else {
            write!(f, "{}", self.names)?;
        }
        match &self.key {
            Some(key) => write!(f, "[\"{key}\"]"),
            None => Ok(()),
        }
    }
}

fn numbers(path: &str) -> Option<Vec<u32>> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..1 << 29).contains(number));
    let numbers = path.split('.').map(number).collect::<Option<Vec<_>>>()?;
    (numbers.len() <= 100).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::path::{meta, pod};
    use super::*;

    fn protobuf(object: &[u8]) -> ItemRef<'_> {
        ItemRef::new(Encoding::Protobuf, object)
    }

    fn json(object: &[u8]) -> ItemRef<'_> {
        ItemRef::new(Encoding::Json, object)
    }

    #[test]
    fn finds_the_values_of_a_path() {
        let path = |numbers: &'static [u32]| FieldPath::new("", numbers);
        for (path, object, expected) in [
            (path(&[]), &b"\x0a\x01a"[..], Ok(vec![])),
            (path(&[1]), b"", Ok(vec![])),
            (path(&[1]), b"\x0a\x01a\x12\x01b\x0a\x01c", Ok(vec!["a", "c"])),
            // The message in two pieces, another field of the same number elsewhere.
            (path(&[1, 2]), b"\x0a\x03\x12\x01a\x12\x01b\x0a\x03\x12\x01c", Ok(vec!["a", "c"])),
            (path(&[1, 2, 3]), b"\x0a\x05\x12\x03\x1a\x01a\x0a\x00", Ok(vec!["a"])),
            // Fields that are not on the path are not walked.
            (path(&[1]), b"\x12\x01\xff\x0a\x01a", Ok(vec!["a"])),
            (path(&[1]), b"\x0a\x02a\xff", Ok(vec!["a\u{fffd}"])),
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
            let object = protobuf(object);
            let strs = path.strs(object).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string());
            assert_eq!(strs, to_cows(expected.clone()).map_err(error), "{path} in {:x?}", object.bytes());
            let last = path.str(object).map_err(|error| error.to_string());
            assert_eq!(
                last,
                to_cows(expected).map(|mut all| all.pop()).map_err(error),
                "{path} in {:x?}",
                object.bytes()
            );
        }
    }

    fn to_cows(expected: Result<Vec<&str>, Fault>) -> Result<Vec<Cow<'_, str>>, Fault> {
        expected.map(|all| all.into_iter().map(Cow::from).collect())
    }

    #[test]
    fn finds_the_values_of_a_path_in_json() -> Result<(), ItemError> {
        let path = |names: &'static str| FieldPath::new(names, &[]);
        for (path, object, expected) in [
            (path(""), r#"{"a":"b"}"#, Ok(vec![])),
            (path("a"), "{}", Ok(vec![])),
            (path("a"), r#"{"a":"b","c":"d","a":"e"}"#, Ok(vec!["b", "e"])),
            (path("a.b"), r#"{"b":"x","a":{"b":"\u0079","c":{"b":"x"}}}"#, Ok(vec!["y"])),
            (path("a.b"), r#"{"a":[{"b":"x"},null,{"c":1},{"b":["y","z"]}],"a":null}"#, Ok(vec!["x", "y", "z"])),
            (path("a").key("b.c/d"), r#"{"a":{"b.c/d":"x","b":"y"}}"#, Ok(vec!["x"])),
            (path("a"), r#"{ "b" : [{"a":"x"}], "a" : null }"#, Ok(vec![])),
            (path("a.b"), "null", Ok(vec![])),
            // Values that are not on the path are not walked.
            (path("a"), r#"{"b":{]},"a":"x"}"#, Err(Fault::Syntax)),
            (path("a"), r#"{"b":[{tru}],"a":"x"}"#, Ok(vec!["x"])),
            (path("a"), r#"{"a":7}"#, Err(Fault::Type)),
            (path("a.b"), r#"{"a":"b"}"#, Ok(vec![])),
            (path("a.b"), r#"{"a":[[{"b":"x"}]]}"#, Err(Fault::Type)),
            (path("a"), r#"{"a":"x""#, Err(Fault::Syntax)),
        ] {
            let error = |fault| ItemError::Field { path: path.to_string().into(), fault }.to_string();
            let strs = path.strs(json(object.as_bytes())).collect::<Result<Vec<_>, _>>();
            let strs = strs.map_err(|error| error.to_string());
            assert_eq!(strs, to_cows(expected).map_err(error), "{path} in {object}");
        }
        let object = json(br#"{"n":-7,"t":true,"f":false,"x":1.5,"o":{"a": [1]}}"#);
        assert_eq!(
            (path("n").int(object)?, path("t").int(object)?, path("f").int(object)?),
            (Some(-7), Some(1), Some(0))
        );
        assert!(path("x").int(object).is_err() && path("o").int(object).is_err() && path("n").str(object).is_err());
        assert_eq!(path("o").bytes(object)?, Some(&br#"{"a": [1]}"#[..]));
        // The same path reads both encodings, unless it has only names or only numbers.
        let object = json(br#"{"spec":{"nodeName":"n"}}"#);
        assert_eq!(pod::NODE_NAME.str(object)?.as_deref(), Some("n"));
        let error = FieldPath::new("", &[2, 10]).str(object).unwrap_err().to_string();
        assert_eq!(error, "unexpected encoding: the item is in JSON, expected protobuf");
        let error = path("spec.nodeName").str(protobuf(b"\x12\x00")).unwrap_err().to_string();
        assert_eq!(error, "unexpected encoding: the item is in protobuf, expected JSON");
        Ok(())
    }

    #[test]
    fn finds_integers_and_bytes() -> Result<(), ItemError> {
        let object = protobuf(b"\x08\x01\x08\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02\xff\x00");
        let (ints, bytes) = (FieldPath::new("", &[1]), FieldPath::new("", &[2]));
        assert_eq!(ints.ints(object).collect::<Result<Vec<_>, _>>()?, [1, -3]);
        assert_eq!((ints.int(object)?, bytes.bytes(object)?), (Some(-3), Some(&b"\xff\x00"[..])));
        assert_eq!((ints.int(protobuf(b""))?, bytes.bytes(protobuf(b""))?), (None, None));
        assert!(ints.bytes(object).is_err() && bytes.int(object).is_err());
        // The iterator ends after an error.
        assert_eq!(ints.all_bytes(object).count(), 1);
        Ok(())
    }

    #[test]
    fn parses_names_numbers_and_keys() {
        for (text, kind, expected) in [
            ("metadata", "ConfigMap", Some(("metadata", &[1][..]))),
            ("metadata.managedFields", "ConfigMap", Some(("metadata.managedFields", &[1, 17]))),
            ("metadata.labels[\"a.b/c\"]", "Pod", Some(("metadata.labels[\"a.b/c\"]", &[1, 11]))),
            ("data[\"a\"]", "ConfigMap", Some(("data[\"a\"]", &[2]))),
            ("spec", "Pod", Some(("spec", &[2]))),
            ("status", "PodList", Some(("status", &[3]))),
            ("spec.containers.image", "Pod", Some(("spec.containers.image", &[2, 2, 2]))),
            // JSON inlines the source of a volume into the volume.
            ("spec.volumes.hostPath.path", "Pod", Some(("spec.volumes.hostPath.path", &[2, 1, 2, 1, 1]))),
            ("metadata.labels", "Widget", Some(("metadata.labels", &[1, 11]))),
            // Of custom resources, only the fields of the metadata are known.
            ("spec.size", "Widget", Some(("spec.size", &[]))),
            ("spec.parts[\"a.b\"]", "Widget", Some(("spec.parts[\"a.b\"]", &[]))),
            ("metadata.labelz", "Widget", None),
            ("spec..size", "Widget", None),
            ("1.11", "Widget", Some(("metadata.labels", &[1, 11]))),
            ("3.10", "ConfigMap", Some(("3.10", &[3, 10]))),
            ("2.10", "Pod", Some(("spec.nodeName", &[2, 10]))),
            ("1.12[\"\"]", "Pod", Some(("metadata.annotations[\"\"]", &[1, 12]))),
            ("2.1.2", "Pod", Some(("2.1.2", &[2, 1, 2]))),
            ("1[\"a\"]", "Pod", Some(("1[\"a\"]", &[1]))),
            ("2.536870911", "Pod", Some(("2.536870911", &[2, 536_870_911]))),
            ("status", "ConfigMap", None),
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
            let found = path.as_ref().map(|path| (path.to_string(), path.numbers()));
            assert_eq!(found.as_ref().map(|(text, numbers)| (&**text, *numbers)), expected, "{text}");
            if let Some(path) = path {
                assert_eq!(FieldPath::parse(&path.to_string(), &v1(kind)), Ok(path));
            }
        }
        let error = FieldPath::parse("status", &v1("ConfigMap")).unwrap_err().to_string();
        assert_eq!(error, "invalid field path \"status\": ConfigMap has no such field");
    }

    fn v1(kind: &str) -> TypeMeta {
        TypeMeta::new("v1", kind)
    }

    /// The constants have the documented names and the numbers of the table of fields.
    #[test]
    fn constants_match_the_table() {
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
