//! What a source is: resources, and their objects one after the other.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use listwatch::client::Resource;
use listwatch::{Encoding, ItemRef, TypeMeta};

/// Objects that come from a file in place of a server.
pub trait ObjectSource: Send + Sync + 'static {
    /// Returns the version of its lists: in etcd, the revision.
    fn version(&self) -> String;

    /// Returns the time to which ages are relative.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Begins to read the objects of a resource, in one namespace or in all. A name only says what is wanted: other
    /// objects may come too.
    fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Box<dyn Cursor>, String>;

    /// Returns the custom resources whose definitions are in the source.
    fn custom_resources(&self) -> Result<Vec<ListedResource>, String>;

    /// Returns the names of the resources whose objects the source contains.
    fn found(&self) -> Result<Vec<String>, String>;

    /// Returns what else may explain that the source has no objects of a resource.
    fn hint(&self, _resource: &Resource) -> Option<&'static str> {
        None
    }
}

/// The objects of a resource, while they are read.
pub trait Cursor: Send {
    /// Returns the next object. After an error it may continue.
    fn next(&mut self) -> Result<Option<Object>, String>;
}

/// An object of a source.
pub struct Object {
    pub encoding: Encoding,
    /// The version and kind of the object itself.
    pub type_meta: TypeMeta,
    pub bytes: Vec<u8>,
}

impl Object {
    pub fn item(&self) -> ItemRef<'_> {
        ItemRef::new(self.encoding, &self.bytes).with_type_meta(&self.type_meta)
    }

    /// Returns the object as JSON with its version and kind.
    pub fn json(&self) -> Result<Cow<'_, [u8]>, String> {
        if self.encoding == Encoding::Json {
            return Ok(Cow::Borrowed(&self.bytes));
        }
        let mut json = Vec::new();
        self.item().to_json(&mut json).map_err(|error| error.to_string())?;
        Ok(Cow::Owned(json))
    }
}

/// A resource as discovery lists it.
#[derive(Clone, Debug)]
pub struct ListedResource {
    pub resource: Resource,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// The definition of a custom resource, as JSON.
    pub definition: Option<Arc<[u8]>>,
}

/// Returns the group of an API version: `apps` of `apps/v1`, and nothing of `v1`.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
