//! The objects that a read selects.

use listwatch::cache::Object;
use listwatch::{Encoding, FieldSelector, ItemError, ItemRef, LabelSelector};

use crate::mirrored::Mirrored;
use crate::params::Params;
use crate::request::Read;
use crate::status::Refusal;

/// The namespace and the selectors of a read.
pub(super) struct Selector {
    pub(super) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Path and value, if the field selector is a single equation.
    equation: Option<(String, String)>,
}

impl Selector {
    pub(super) fn parse(mirrored: &Mirrored, read: &Read) -> Result<Self, Refusal> {
        let Params { labels, fields, field_selector, .. } = &read.params;
        let selector = Self {
            namespace: read.namespace.clone(),
            labels: labels.clone(),
            fields: fields.clone(),
            equation: equation(field_selector),
        };
        // The API server knows more fields, and which fields no object can be selected by.
        if !selector.fields.is_empty() && selector.matches_fields(mirrored, &empty_object(mirrored.encoding())).is_err()
        {
            return Err(Refusal::Forward);
        }
        Ok(selector)
    }

    /// Returns true if it selects all objects of its namespace.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns path and value, if the selector is a single equation of a field.
    pub(super) fn equation(&self) -> Option<(&str, &str)> {
        let (path, value) = self.equation.as_ref()?;
        Some((path, value))
    }

    /// Returns true if it selects the object.
    pub(super) fn selects(&self, mirrored: &Mirrored, object: &Object<[u8]>) -> Result<bool, ItemError> {
        if !self.has_namespace(object.namespace()) {
            return Ok(false);
        }
        // The name needs no bytes.
        let has_name = match self.equation() {
            Some(("metadata.name", name)) => object.name() == name,
            _ => true,
        };
        if !has_name || self.is_empty() {
            return Ok(has_name);
        }
        self.selects_item(mirrored, &object.item()?)
    }

    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }

    fn selects_item(&self, mirrored: &Mirrored, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        Ok(self.labels.matches(&item.meta()?)? && self.matches_fields(mirrored, item)?)
    }

    fn matches_fields(&self, mirrored: &Mirrored, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        if self.fields.is_empty() {
            return Ok(true);
        }
        self.fields.matches(&item.with_type_meta(&mirrored.type_meta))
    }
}

/// Returns path and value of a selector `path=value`.
fn equation(selector: &str) -> Option<(String, String)> {
    let (path, value) = selector.split_once('=')?;
    let value = value.strip_prefix('=').unwrap_or(value);
    let is_single = !path.ends_with('!') && !value.contains(['=', ',', '\\', '!']);
    is_single.then(|| (path.to_owned(), value.to_owned()))
}

/// Returns an object without fields, to find out which fields can be selected.
fn empty_object(encoding: Encoding) -> ItemRef<'static> {
    ItemRef::new(encoding, if encoding == Encoding::Json { b"{}" } else { b"" })
}
