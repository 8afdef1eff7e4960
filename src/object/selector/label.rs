//! Selectors of objects by their labels.

use std::collections::BTreeSet;

use crate::error::ItemError;
use crate::object::meta_view::MetaView;

/// Selects objects by their labels. All requirements must hold, so an empty selector selects everything.
///
/// ```
/// use listwatch::LabelSelector;
///
/// let built = LabelSelector::new().equal("app", "web").is_in("tier", ["front", "back"]).does_not_exist("canary");
/// assert_eq!("app=web, tier in (front,back), !canary".parse(), Ok(built));
/// ```
///
/// Parsing checks a text as an API server does (apimachinery `labels.Parse`), and returns the server's error. A
/// selector that was built is checked by the client before it is sent. Requirements are sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector(pub(super) Vec<(String, LabelRequirement)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LabelRequirement {
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
        self.require(key, LabelRequirement::Equal(value.into()))
    }

    /// Requires that the label does not exist or has another value.
    #[must_use]
    pub fn not_equal(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(key, LabelRequirement::NotEqual(value.into()))
    }

    /// Requires that the label exists and has one of these values. A client refuses to send an empty set.
    #[must_use]
    pub fn is_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelRequirement::In(values.into_iter().map(Into::into).collect()))
    }

    /// Requires that the label does not exist or has none of these values. A client refuses to send an empty set.
    #[must_use]
    pub fn not_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelRequirement::NotIn(values.into_iter().map(Into::into).collect()))
    }

    /// Requires that the label exists.
    #[must_use]
    pub fn exists(self, key: impl Into<String>) -> Self {
        self.require(key, LabelRequirement::Exists)
    }

    /// Requires that the label does not exist.
    #[must_use]
    pub fn does_not_exist(self, key: impl Into<String>) -> Self {
        self.require(key, LabelRequirement::DoesNotExist)
    }

    /// Requires that the label exists and is an integer above the bound.
    ///
    /// Like the server, a client refuses a negative bound.
    #[must_use]
    pub fn greater_than(self, key: impl Into<String>, bound: i64) -> Self {
        self.require(key, LabelRequirement::GreaterThan(bound.to_string()))
    }

    /// Requires that the label exists and is an integer below the bound.
    ///
    /// Like the server, a client refuses a negative bound.
    #[must_use]
    pub fn less_than(self, key: impl Into<String>, bound: i64) -> Self {
        self.require(key, LabelRequirement::LessThan(bound.to_string()))
    }

    /// Returns true if the selector selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the server would select an object with this metadata.
    ///
    /// Source: apimachinery `labels.Requirement.Matches`.
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

    /// Returns the labels that must have one value, each with this value.
    #[doc(hidden)]
    pub fn equations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(key, label)| match label {
            LabelRequirement::Equal(value) => Some((&**key, &**value)),
            LabelRequirement::In(values) if values.len() == 1 => Some((&**key, &**values.first()?)),
            _ => None,
        })
    }

    pub(super) fn require(mut self, key: impl Into<String>, label: LabelRequirement) -> Self {
        let key = key.into();
        let at = self.0.partition_point(|(known, _)| *known <= key);
        self.0.insert(at, (key, label));
        self
    }
}

impl LabelRequirement {
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

/// Compares two integers, which `i64` parses like Go's `strconv.ParseInt`.
fn compares(value: &str, bound: &str, compare: impl Fn(i64, i64) -> bool) -> bool {
    matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if compare(value, bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::item_ref::ItemRef;
    use crate::wire::Encoding;

    /// The table of apimachinery `labels.TestSelectorMatches` and more.
    #[test]
    fn label_selectors_match_as_on_the_server() {
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
        }
    }
}
