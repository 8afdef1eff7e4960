//! Selectors of objects by their fields.

use std::borrow::Cow;

use crate::encoding::item_ref::ItemRef;
use crate::error::ItemError;
use crate::object::field_path::FieldPath;
use crate::object::path::pod;
use crate::schema::Message;

/// Selects objects by their fields. All requirements must hold, so an empty selector selects everything.
///
/// ```
/// use listwatch::FieldSelector;
///
/// let built = FieldSelector::new().equal("status.phase", "Running").not_equal("spec.nodeName", "node-1");
/// assert_eq!("status.phase=Running,spec.nodeName!=node-1".parse(), Ok(built));
/// ```
///
/// A text is parsed as by an API server (apimachinery `fields.ParseSelector`). Each resource decides which fields its
/// selectors may name, and the server answers 400 for others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FieldSelector(pub(super) Vec<FieldRequirement>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FieldRequirement {
    pub(super) path: String,
    pub(super) is_equal: bool,
    pub(super) value: String,
}

impl FieldSelector {
    /// Creates a selector that selects everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that the field at `path`, such as `metadata.name`, has this value.
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
    /// All kinds can be selected by `metadata.name` and `metadata.namespace`. Pods can also be selected by
    /// `spec.nodeName`, `spec.restartPolicy`, `spec.schedulerName`, `spec.serviceAccountName`, `spec.hostNetwork`,
    /// `status.phase`, `status.podIP` and `status.nominatedNodeName` (kubernetes
    /// `pkg/registry/core/pod.ToSelectableFields`). The definition of a custom resource names its fields
    /// (`selectableFields` in apiextensions-apiserver `pkg/registry/customresource`), but only the server knows the
    /// definition, so every field that is a string, an integer or a boolean is accepted.
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

    /// Returns the paths that must have one value, each with this value.
    #[doc(hidden)]
    pub fn equations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(|field| field.is_equal).map(|field| (&*field.path, &*field.value))
    }

    /// Returns the text of a field, as [`matches`](Self::matches) compares it.
    ///
    /// # Errors
    ///
    /// As [`matches`](Self::matches).
    #[doc(hidden)]
    pub fn text<'a>(item: &ItemRef<'a>, path: &str) -> Result<Cow<'a, str>, ItemError> {
        text_of(item, path)
    }

    pub(super) fn require(mut self, path: impl Into<String>, is_equal: bool, value: impl Into<String>) -> Self {
        let (path, value) = (path.into(), value.into());
        let at = self.0.partition_point(|known| known.path <= path);
        self.0.insert(at, FieldRequirement { path, is_equal, value });
        self
    }
}

/// Returns a field's text as the server compares it: an absent field is the empty text, or `false`.
fn text_of<'a>(item: &ItemRef<'a>, path: &str) -> Result<Cow<'a, str>, ItemError> {
    let (type_meta, kind) = (item.type_meta(), item.type_meta().item_kind());
    let message = Message::of(&type_meta.api_version, kind);
    let field = message.filter(|message| message.name() == "Pod").and_then(|_| pod_field(path));
    let unsupported = || ItemError::FieldSelector { path: path.into(), kind: kind.into() };
    let (path, is_bool) = match field {
        Some(PodField::Text(path)) => (path, false),
        Some(PodField::Bool(path)) => (path, true),
        // The fields of a custom resource are known only to its definition, and present only in a self-describing
        // encoding.
        None if message.is_none() && item.encoding.is_self_describing() => {
            (FieldPath::parse(path, type_meta).map_err(|_| unsupported())?, false)
        }
        None => return Err(unsupported()),
    };
    let absent = if is_bool { "false" } else { "" };
    Ok(path.text(*item, is_bool)?.unwrap_or(Cow::Borrowed(absent)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Encoding;

    #[test]
    fn field_selectors_match_as_on_the_server() {
        let metadata = b"\x0a\x06\x0a\x01n\x1a\x01s";
        let spec = b"\x12\x12\x1a\x02Al\x42\x01a\x52\x03n-1\x58\x01\x9a\x01\x01d";
        let object = [metadata, &spec[..], b"\x1a\x09\x0a\x07Running"].concat();
        let json = br#"{"metadata":{"name":"n","namespace":"s"},"spec":{"nodeName":"n-1","hostNetwork":true,
            "restartPolicy":"Al","serviceAccountName":"a","schedulerName":"d"},"status":{"phase":"Running"}}"#;
        let pod = crate::TypeMeta { api_version: "v1".to_owned(), kind: "PodList".to_owned() };
        let node = crate::TypeMeta { api_version: "v1".to_owned(), kind: "NodeList".to_owned() };
        for (selector, type_meta, expected) in [
            ("", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace=s", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace!=s", &node, Ok(false)),
            ("spec.nodeName=n-1,status.phase=Running", &pod, Ok(true)),
            ("spec.nodeName=n-1,status.phase!=Running", &pod, Ok(false)),
            ("status.podIP=,status.nominatedNodeName!=x", &pod, Ok(true)),
            ("spec.restartPolicy=Al,spec.serviceAccountName=a,spec.schedulerName=d", &pod, Ok(true)),
            ("spec.restartPolicy!=Al", &pod, Ok(false)),
            ("spec.serviceAccountName!=a", &pod, Ok(false)),
            ("spec.schedulerName!=d", &pod, Ok(false)),
            ("spec.hostNetwork=true", &pod, Ok(true)),
            ("spec.hostNetwork=false", &pod, Ok(false)),
            ("spec.hostNetwork=1", &pod, Ok(false)),
            ("spec.nodeName=n-1", &node, Err("unsupported field selector: \"spec.nodeName\" of \"Node\"")),
            ("metadata.name=x,spec.x=", &pod, Err("unsupported field selector: \"spec.x\" of \"Pod\"")),
        ] {
            let parsed: FieldSelector = selector.parse().unwrap();
            let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(type_meta);
            let matched = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(matched, expected.map_err(str::to_owned), "{selector}");
            let item = ItemRef::new(Encoding::Json, json).with_type_meta(type_meta);
            let of_json = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(of_json, matched, "{selector}, of JSON");
        }
        let built = FieldSelector::new().not_equal("metadata.name", "n").equal("metadata.namespace", "s");
        assert_eq!(built, "metadata.name!=n,metadata.namespace=s".parse().unwrap());
        let empty = FieldSelector::new().equal("spec.hostNetwork", "false");
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Protobuf, b"").with_type_meta(&pod)).ok(), Some(true));
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Json, b"{}").with_type_meta(&pod)).ok(), Some(true));
    }

    #[test]
    fn selects_custom_resources_by_any_field() {
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
        // A custom resource in protobuf, and a field of a built-in kind that the server does not select by.
        let by_color: FieldSelector = "spec.color=red".parse().unwrap();
        let node = crate::TypeMeta { api_version: "v1".to_owned(), kind: "NodeList".to_owned() };
        for (encoding, object, type_meta) in [
            (Encoding::Protobuf, &b""[..], &type_meta),
            (Encoding::Json, widget, &node),
            (Encoding::Protobuf, b"", &node),
        ] {
            let error = by_color.matches(&ItemRef::new(encoding, object).with_type_meta(type_meta)).unwrap_err();
            assert!(matches!(error, ItemError::FieldSelector { .. }), "{error}");
        }
    }
}
