//! The objects that a read selects.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use listwatch::{FieldSelector, ItemError, ItemRef, LabelSelector};
use listwatch_cache::{Object, ObjectKey, Snapshot};

use crate::request::{ListOptions, ReadRequest};
use crate::resource::Mirrored;
use crate::response::{ForwardReason, Refusal};

/// The namespace and the selectors of a read.
#[derive(Clone)]
pub(super) struct ReadSelector {
    /// Of the path, or else of a field selector `metadata.namespace=NAMESPACE`.
    pub(super) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Path and value, if the field selector is a single equation.
    equation: Option<(String, String)>,
}

impl ReadSelector {
    pub(super) fn parse(mirrored: &Mirrored, read: &ReadRequest) -> Result<Self, Refusal> {
        let ListOptions { labels, fields, field_selector, .. } = &read.options;
        let equation = parse_equation(field_selector);
        let of_field = equation.as_ref().filter(|(path, _)| path == "metadata.namespace").map(|(_, value)| value);
        let selector = Self {
            namespace: read.namespace.as_ref().or(of_field).cloned(),
            labels: labels.clone(),
            fields: fields.clone(),
            equation,
        };
        // The API server knows more fields, and which fields no object can be selected by.
        if !selector.fields.is_empty()
            && selector.matches_fields(mirrored, &ItemRef::empty(mirrored.encoding())).is_err()
        {
            return Err(Refusal::Forward(ForwardReason::Selector));
        }
        Ok(selector)
    }

    /// Returns true if it selects all objects of its namespace.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if it selects all objects of the collection.
    pub(super) fn selects_all(&self) -> bool {
        self.is_empty() && self.namespace.is_none()
    }

    /// Returns the labels that must have one value.
    pub(super) fn label_equations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.equations()
    }

    /// Returns the fields that must have one value.
    pub(super) fn field_equations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.equations()
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

/// The objects of one version among which a read selects, in key order.
pub(super) struct Candidates {
    pub(super) snapshot: Arc<Snapshot<[u8]>>,
    /// Those that a look-up has found, by the text of their key; `None` for all.
    found: Option<BTreeMap<String, Object<[u8]>>>,
}

impl Candidates {
    pub(super) fn new(mirrored: &Mirrored, selector: &ReadSelector, snapshot: Arc<Snapshot<[u8]>>) -> Self {
        let found = look_up_objects(mirrored, selector, &snapshot);
        let found = found.map(|objects| objects.into_iter().map(|object| (object.key().to_string(), object)).collect());
        Self { snapshot, found }
    }

    /// Iterates over the objects after this key. Some of them may be of other namespaces.
    pub(super) fn iter_after<'s>(
        &'s self,
        namespace: Option<&'s str>,
        after: Option<&'s ObjectKey>,
    ) -> Box<dyn Iterator<Item = Object<[u8]>> + 's> {
        let Some(found) = &self.found else {
            return Box::new(self.snapshot.range(namespace, after.map(Into::into)));
        };
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_string()));
        Box::new(found.range((start, Bound::Unbounded)).map(|(_, object)| object.clone()))
    }
}

/// Returns the objects that a name or an index has for the field selector, if they are of the same version as the
/// snapshot.
fn look_up_objects(
    mirrored: &Mirrored,
    selector: &ReadSelector,
    snapshot: &Snapshot<[u8]>,
) -> Option<Vec<Object<[u8]>>> {
    let (path, value) = selector.equation()?;
    let has_key = selector.namespace.is_some() || !mirrored.resource.is_namespaced();
    let objects = if path == "metadata.name" && has_key {
        let namespace = selector.namespace.as_deref().unwrap_or_default();
        mirrored.cache.get((namespace, value)).into_iter().collect()
    } else {
        let (_, index) = mirrored.indexes.iter().find(|(own, _)| own == path)?;
        // The index lacks objects whose field is not text, such as a number of a custom resource.
        if !index.errors().is_empty() {
            return None;
        }
        index.get(value)
    };
    let is_current = mirrored.cache.exact_snapshot()?.resource_version() == snapshot.resource_version();
    is_current.then_some(objects)
}

/// Returns path and value of a selector `path=value`.
fn parse_equation(selector: &str) -> Option<(String, String)> {
    let (path, value) = selector.split_once('=')?;
    let value = value.strip_prefix('=').unwrap_or(value);
    let is_single = !path.ends_with('!') && !value.contains(['=', ',', '\\', '!']);
    is_single.then(|| (path.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use listwatch::{FieldPath, TypeMeta};
    use listwatch_cache::ChangeLogLimits;

    use super::*;
    use crate::request::{RequestInfo, RequestRoute};
    use crate::settings::{Limits, MirrorSettings};
    use crate::testing::FakeApiServer;

    #[tokio::test]
    async fn looks_up_names_and_indexed_fields() {
        const ALL: &str = "/api/v1/configmaps?fieldSelector=metadata.";
        const OF_WEB: &str = "/api/v1/namespaces/web/configmaps?fieldSelector=metadata.";

        let indexed = |mirrored: Mirrored| {
            let name = FieldPath::parse("metadata.name", &TypeMeta::new("v1", "ConfigMap")).unwrap();
            mirrored.index("metadata.name", name)
        };
        let api = FakeApiServer::new(5, 100);
        let plain = api.mirror(Limits::default()).await;
        let settings = MirrorSettings { stale_reads: true, ..MirrorSettings::default() };
        let indexed = api.mirror_with(settings, ChangeLogLimits::default(), indexed).await;
        for (mirror, prefix, selector, candidates, selected) in [
            (&plain, ALL, "name%3D000001", 5, 1),
            (&indexed, ALL, "name%3D000001", 1, 1),
            (&indexed, ALL, "name%3D%3D000001&labelSelector=!a", 1, 1),
            (&indexed, ALL, "name%3D000001&labelSelector=a", 1, 0),
            (&indexed, ALL, "name!%3D000001", 5, 4),
            (&indexed, ALL, "name%3D000001,metadata.namespace%3Dweb", 5, 1),
            (&plain, OF_WEB, "name%3D000001", 1, 1),
            (&plain, OF_WEB, "name%3Dmissing", 0, 0),
            (&plain, ALL, "namespace%3Dweb", 5, 5),
            (&plain, ALL, "namespace%3Dother", 0, 0),
            (&plain, OF_WEB, "namespace%3Dother", 5, 0),
        ] {
            let (path, query) = prefix.split_once('?').unwrap();
            let info = RequestInfo::parse(&Method::GET, path, Some(&format!("{query}{selector}"))).unwrap();
            let RequestRoute::Read(read) = info.route else { panic!("{selector}") };
            let mirrored = &mirror.first_resource();
            let own = ReadSelector::parse(mirrored, &read).unwrap();
            let of = Candidates::new(mirrored, &own, Arc::new(mirrored.cache.exact_snapshot().unwrap()));
            let objects: Vec<_> = of.iter_after(own.namespace.as_deref(), None).collect();
            let count = objects.iter().filter(|object| own.selects(mirrored, object).unwrap()).count();
            assert_eq!((objects.len(), count), (candidates, selected), "{prefix}{selector}");
            if let Some(last) = objects.last() {
                assert_eq!(of.iter_after(own.namespace.as_deref(), Some(&last.key())).count(), 0);
            }
        }
    }
}
