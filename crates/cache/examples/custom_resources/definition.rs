//! The fields of a CustomResourceDefinition that name its resource. serde skips the others, such as its schemas.

use listwatch::client::Resource;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
pub struct Definition {
    spec: Spec,
}

#[derive(Deserialize, Serialize)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
    versions: Vec<Version>,
}

#[derive(Deserialize, Serialize)]
struct Names {
    plural: String,
    kind: String,
}

#[derive(Deserialize, Serialize)]
struct Version {
    name: String,
    served: bool,
    storage: bool,
}

impl Definition {
    /// Returns the resource in its storage version, which the server sends without conversion, or else in another
    /// version. Returns `None` if the server serves no version.
    pub fn resource(&self) -> Option<Resource> {
        let Spec { group, names: Names { plural, kind }, scope, versions } = &self.spec;
        let version = versions.iter().filter(|version| version.served).max_by_key(|version| version.storage)?;
        let resource = Resource::new(group.clone(), version.name.clone(), plural.clone(), kind.clone());
        Some(if scope == "Cluster" { resource.cluster_scoped() } else { resource })
    }
}
