//! Custom resources, from their definitions.

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
struct Version {
    name: String,
    #[serde(default)]
    storage: bool,
}

/// Returns the resource of a `CustomResourceDefinition` in JSON, in the version that is stored; nothing if the
/// definition is malformed.
pub fn resource_of(definition: Vec<u8>) -> Option<ListedResource> {
    let Definition { spec } = serde_json::from_slice(&definition).ok()?;
    let Names { plural, singular, kind, short_names, categories } = spec.names;
    let stored = spec.versions.iter().find(|version| version.storage).or(spec.versions.first());
    let version = stored.map(|version| version.name.clone()).or(spec.version)?;
    let resource = Resource::new(spec.group, version, plural, kind);
    Some(ListedResource {
        resource: if spec.scope == "Cluster" { resource.cluster_scoped() } else { resource },
        singular,
        short_names,
        categories,
        definition: Some(definition),
    })
}
