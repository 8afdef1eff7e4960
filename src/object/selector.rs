//! Label and field selectors, and their evaluation.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::error::ItemError;
use crate::object::path::{FieldPath, pod};
use crate::object::{ItemRef, MetaView};
use crate::schema::Message;
use crate::wire::Encoding;
use crate::wire::json;

/// Selects objects by their labels; an empty selector selects everything. All requirements must hold.
///
/// ```
/// use listwatch::LabelSelector;
///
/// let built = LabelSelector::new().equal("app", "web").is_in("tier", ["front", "back"]).does_not_exist("canary");
/// assert_eq!("app=web, tier in (front,back), !canary".parse(), Ok(built));
/// ```
///
/// The feature `client` adds parsing and printing. A text is parsed and checked as an API server does (apimachinery
/// `labels.Parse`), and its error is the server's. A selector that was built is checked before it is sent. Requirements
/// are sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector(pub(crate) Vec<(String, Label)>);

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Label {
    Equal(String),
    NotEqual(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    /// The bound is an i64 in digits.
    GreaterThan(String),
    /// The bound is an i64 in digits.
    LessThan(String),
}

impl LabelSelector {
    /// Creates a selector that selects everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the label exists and has this value.
    #[must_use]
    pub fn equal(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(key, Label::Equal(value.into()))
    }

    /// Requires that the label does not exist or has another value.
    #[must_use]
    pub fn not_equal(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(key, Label::NotEqual(value.into()))
    }

    /// Requires that the label exists and has one of these values. A client refuses to send an empty set.
    #[must_use]
    pub fn is_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, Label::In(values.into_iter().map(Into::into).collect()))
    }

    /// Requires that the label does not exist or has none of these values. A client refuses to send an empty set.
    #[must_use]
    pub fn not_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, Label::NotIn(values.into_iter().map(Into::into).collect()))
    }

    /// Requires that the label exists.
    #[must_use]
    pub fn exists(self, key: impl Into<String>) -> Self {
        self.require(key, Label::Exists)
    }

    /// Requires that the label does not exist.
    #[must_use]
    pub fn does_not_exist(self, key: impl Into<String>) -> Self {
        self.require(key, Label::DoesNotExist)
    }

    /// Requires that the label exists and is an integer above the bound. A client refuses to send a negative bound, as
    /// the server does.
    #[must_use]
    pub fn greater_than(self, key: impl Into<String>, bound: i64) -> Self {
        self.require(key, Label::GreaterThan(bound.to_string()))
    }

    /// Requires that the label exists and is an integer below the bound. A client refuses to send a negative bound, as
    /// the server does.
    #[must_use]
    pub fn less_than(self, key: impl Into<String>, bound: i64) -> Self {
        self.require(key, Label::LessThan(bound.to_string()))
    }

    /// Returns true if the selector selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the server would select the object with this metadata (apimachinery `labels.Requirement.Matches`).
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

    pub(crate) fn require(mut self, key: impl Into<String>, label: Label) -> Self {
        let key = key.into();
        let at = self.0.partition_point(|(known, _)| *known <= key);
        self.0.insert(at, (key, label));
        self
    }
}

impl Label {
    fn matches(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::NotEqual(_) | Self::NotIn(_), None) => true,
            (Self::Exists, value) => value.is_some(),
            (Self::DoesNotExist, value) => value.is_none(),
            (_, None) => false,
            (Self::Equal(wanted), Some(value)) => value == wanted,
            (Self::NotEqual(unwanted), Some(value)) => value != unwanted,
            (Self::In(wanted), Some(value)) => wanted.contains(value),
            (Self::NotIn(unwanted), Some(value)) => !unwanted.contains(value),
            (Self::GreaterThan(bound), Some(value)) => compares(value, bound, |value, bound| value > bound),
            (Self::LessThan(bound), Some(value)) => compares(value, bound, |value, bound| value < bound),
        }
    }
}

/// Compares two integers. Like Go's `strconv.ParseInt`, `i64` parses a sign and digits.
fn compares(value: &str, bound: &str, compare: impl Fn(i64, i64) -> bool) -> bool {
    matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if compare(value, bound))
}

/// Selects objects by their fields; an empty selector selects everything. All requirements must hold.
///
/// ```
/// use listwatch::FieldSelector;
///
/// let built = FieldSelector::new().equal("status.phase", "Running").not_equal("spec.nodeName", "node-1");
/// assert_eq!("status.phase=Running,spec.nodeName!=node-1".parse(), Ok(built));
/// ```
///
/// The feature `client` adds parsing and printing, as an API server parses them (apimachinery `fields.ParseSelector`).
/// The resource decides by which fields its objects can be selected; the server returns 400 for others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector(pub(crate) Vec<FieldRequirement>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FieldRequirement {
    pub(crate) path: String,
    pub(crate) is_equal: bool,
    pub(crate) value: String,
}

impl FieldSelector {
    /// Creates a selector that selects everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the field at `path`, like `metadata.name`, has this value.
    #[must_use]
    pub fn equal(self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(path, true, value)
    }

    /// Requires that the field at `path` has another value.
    #[must_use]
    pub fn not_equal(self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(path, false, value)
    }

    /// Returns true if the selector selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the server would select the item.
    ///
    /// All kinds can be selected by `metadata.name` and `metadata.namespace`. Pods can be selected by `spec.nodeName`,
    /// `spec.restartPolicy`, `spec.schedulerName`, `spec.serviceAccountName`, `spec.hostNetwork`, `status.phase`,
    /// `status.podIP` and `status.nominatedNodeName` too (kubernetes `pkg/registry/core/pod.ToSelectableFields`). Custom
    /// resources can be selected by every field that is a string, an integer or a boolean, because only the server knows
    /// which fields their definition names (`selectableFields` in apiextensions-apiserver `pkg/registry/customresource`).
    ///
    /// # Errors
    ///
    /// [`ItemError::FieldSelector`] for any other field, whatever the rest of the selector requires;
    /// [`ItemError::Metadata`] or [`ItemError::Field`] for a malformed item.
    pub fn matches(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let meta = item.meta()?;
        let mut all = true;
        for FieldRequirement { path, is_equal, value } in &self.0 {
            let has_value = match path.as_str() {
                "metadata.name" => meta.name() == *value,
                "metadata.namespace" => meta.namespace() == *value,
                path => text_of(item, path)? == *value,
            };
            all &= has_value == *is_equal;
        }
        Ok(all)
    }

    pub(crate) fn require(mut self, path: impl Into<String>, is_equal: bool, value: impl Into<String>) -> Self {
        let (path, value) = (path.into(), value.into());
        let at = self.0.partition_point(|known| known.path <= path);
        self.0.insert(at, FieldRequirement { path, is_equal, value });
        self
    }
}

/// Returns a field's text, as the server compares it: an absent field is the empty text, or false.
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
