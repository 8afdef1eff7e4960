//! [`Selection`]: which objects of a collection, and in which form.

use super::query::Query;
use crate::client::resource::Resource;
use crate::error::{InvalidInput, ItemError};
use crate::meta::TypeMeta;
use crate::object::shard::Shard;
use crate::object::{FieldSelector, ItemRef, LabelSelector};
use crate::wire::Encoding;

/// Which objects of a collection a list, a watch or a reflector requests, and in which form.
///
/// The default is all objects as a whole. An object must match every selector that is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    shard: Option<Shard>,
    metadata_only: bool,
    json: bool,
    table: bool,
}

impl Selection {
    /// Selects all objects, which is the default.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects objects by their labels.
    #[must_use]
    pub fn labels(mut self, selector: LabelSelector) -> Self {
        self.labels = selector;
        self
    }

    /// Selects objects by their fields. For a field that the resource cannot be selected by, the server returns 400.
    #[must_use]
    pub fn fields(mut self, selector: FieldSelector) -> Self {
        self.fields = selector;
        self
    }

    /// Selects the objects of one shard (KEP-5866, alpha in 1.36).
    ///
    /// A server without shards sends all objects, and the client then leaves out objects of other shards. A list counts
    /// them in [`ListSummary::other_shards`](crate::client::ListSummary::other_shards). In a watch, no server reports
    /// whether it supports shards, so the client checks each object.
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Requests only the metadata of each object, as a `PartialObjectMetadata`.
    ///
    /// For custom resources too, it may arrive in protobuf. From a server that returns 406, the client requests it in
    /// JSON; it never requests whole objects instead.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Requests JSON even where the server could send protobuf, which is smaller and faster.
    ///
    /// A list of [`Json`](crate::Json) requests JSON without this call.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    /// Requests each change of a watch as a Table with one row, as kubectl prints it, for the command.
    ///
    /// A list cannot be requested so: see `Client::table_page`.
    #[doc(hidden)]
    #[must_use]
    pub fn table(mut self) -> Self {
        (self.table, self.json) = (true, true);
        self
    }

    /// Requests only the encoding from which a type is [decoded](crate::Item::ENCODING).
    #[doc(hidden)]
    #[must_use]
    pub fn encoded_as(self, encoding: Option<Encoding>) -> Self {
        match encoding {
            // Built-in kinds arrive in protobuf, and an item in JSON is then an error of the type.
            None | Some(Encoding::Protobuf) => self,
            Some(Encoding::Json) => self.json(),
        }
    }

    pub(in crate::client) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shard.is_none()
    }

    pub(in crate::client) fn shard_of(&self) -> Option<Shard> {
        self.shard
    }

    /// Returns the type meta of the objects that a server sends for this selection.
    ///
    /// It is the resource's, or with [`metadata_only`](Self::metadata_only) the `PartialObjectMetadata` of
    /// `meta.k8s.io/v1`.
    #[must_use]
    pub fn type_meta(&self, resource: &Resource) -> TypeMeta {
        if self.table {
            TypeMeta::new("meta.k8s.io/v1", "Table")
        } else if self.metadata_only {
            TypeMeta::new("meta.k8s.io/v1", "PartialObjectMetadata")
        } else {
            TypeMeta::new(resource.api_version(), resource.kind())
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// Returns true if the server would send the object. `item` must be the whole object.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object is malformed, or a field selector names an unsupported field.
    #[doc(hidden)]
    pub fn selects(&self, item: &ItemRef<'_>) -> Result<bool, ItemError> {
        let meta = item.meta()?;
        Ok(self.labels.matches(&meta)?
            && self.fields.matches(item)?
            && self.shard.is_none_or(|shard| shard.contains(&meta.uid())))
    }

    /// Refuses selectors that the server would refuse, or would parse as other selectors.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let of = |selector| {
            move |error: InvalidInput| InvalidInput::new(format!("{selector} selector: {error}"), error.text())
        };
        self.labels.validate().map_err(of("label"))?;
        self.fields.validate().map_err(of("field"))
    }

    pub(super) fn query(&self) -> Query {
        let mut query = Query::default();
        if let Some(labels) = self.label_text() {
            query.add("labelSelector", &labels);
        }
        if let Some(fields) = self.field_text() {
            query.add("fieldSelector", &fields);
        }
        if let Some(shard) = self.shard {
            query.add("shardSelector", &shard.selector());
        }
        query
    }

    pub(in crate::client) fn label_text(&self) -> Option<String> {
        (!self.labels.is_empty()).then(|| self.labels.to_string())
    }

    pub(in crate::client) fn field_text(&self) -> Option<String> {
        (!self.fields.is_empty()).then(|| self.fields.to_string())
    }

    /// Returns a text that identifies the selection in a saved file. A cache that was saved with another selection is
    /// not loaded.
    #[doc(hidden)]
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("{} as {}", self.query().0, self.accept_list())
    }

    /// Returns the `Accept` header of a list: protobuf if the server has it, otherwise JSON, as for whole custom
    /// resources.
    pub(in crate::client) fn accept_list(&self) -> String {
        self.accept("PartialObjectMetadataList")
    }

    /// Accepts only JSON, of whole objects or of metadata, as every server can send it.
    pub(in crate::client) fn plain_json(self) -> Self {
        Self { json: true, ..self }
    }

    /// Returns the `Accept` header of a watch, which sends single objects.
    pub(in crate::client) fn accept_watch(&self) -> String {
        self.accept("PartialObjectMetadata")
    }

    fn accept(&self, metadata_kind: &str) -> String {
        if self.table {
            return "application/json;as=Table;g=meta.k8s.io;v=v1".to_owned();
        }
        let form = if self.metadata_only { format!(";as={metadata_kind};g=meta.k8s.io;v=v1") } else { String::new() };
        let json = format!("application/json{form}");
        if self.json { json } else { format!("application/vnd.kubernetes.protobuf{form},{json}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers_name_the_requested_form() {
        let lists = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let objects = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        for (selection, list, watch) in [
            (Selection::all(), String::new(), String::new()),
            (Selection::all().metadata_only(), lists.to_owned(), objects.to_owned()),
        ] {
            let both = |form: &str| format!("application/vnd.kubernetes.protobuf{form},application/json{form}");
            assert_eq!((selection.accept_list(), selection.accept_watch()), (both(&list), both(&watch)));
            assert_eq!(selection.json().accept_list(), format!("application/json{list}"));
        }
    }
}
