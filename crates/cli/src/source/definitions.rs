//! Custom resources, from their definitions.

use std::sync::Arc;

use listwatch::client::Resource;
use serde::Deserialize;

use super::objects::ListedResource;

#[derive(Deserialize)]
struct Definition {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
    /// Of `v1beta1` before several versions.
    version: Option<String>,
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    plural: String,
    singular: String,
    kind: String,
    short_names: Vec<String>,
    categories: Vec<String>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Version {
    name: String,
    served: bool,
    storage: bool,
}

/// Returns the resources of a `CustomResourceDefinition` in JSON, one for each served version, with the stored one
/// first; nothing if the definition is malformed.
pub fn resources_of(definition: &[u8]) -> Vec<ListedResource> {
    let Ok(Definition { spec }) = serde_json::from_slice(definition) else { return Vec::new() };
    let Names { plural, singular, kind, short_names, categories } = spec.names;
    let mut versions = spec.versions;
    if let (true, Some(name)) = (versions.is_empty(), spec.version) {
        versions.push(Version { name, served: true, storage: true });
    }
    versions.retain(|version| version.served || version.storage);
    versions.sort_by_key(|version| !version.storage);
    let resource = |Version { name, .. }| {
        let resource = Resource::new(spec.group.clone(), name, plural.clone(), kind.clone());
        ListedResource {
            resource: if spec.scope == "Cluster" { resource.cluster_scoped() } else { resource },
            singular: singular.clone(),
            short_names: short_names.clone(),
            categories: categories.clone(),
            definition: Some(Arc::from(definition)),
        }
    };
    versions.into_iter().map(resource).collect()
}
