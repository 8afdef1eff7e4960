//! Discovery of a server's resources.

use http::HeaderValue;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, ErrorKind};
use super::resolve::DiscoveredResource;
use super::transport::chain;
use super::{Client, Document, body};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::meta::OneLine;

/// Requests aggregated discovery (1.26 and later), or else the older documents.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

impl Client {
    /// Returns all resources that the server has, in its order of preference.
    ///
    /// It sends two requests; to a server without aggregated discovery, one more for each group and version. It leaves out a
    /// group whose server does not respond, as kubectl does.
    ///
    /// # Errors
    ///
    /// [`Error`] as for [`Client::get`], and [`ErrorKind::Discovery`] for a document that cannot be read.
    pub async fn discover(&self) -> Result<Vec<DiscoveredResource>, Error> {
        let mut resources = Vec::new();
        for root in ["/api", "/apis"] {
            match self.json(root, AGGREGATED).await? {
                Root::Aggregated { items } => resources.extend(items.into_iter().flat_map(GroupDiscovery::resources)),
                Root::Versions { versions } => {
                    for version in versions {
                        resources.extend(self.resources_of("", &version).await?);
                    }
                }
                Root::Groups { groups } => {
                    for (group, version) in groups.into_iter().flat_map(Group::versions) {
                        match self.resources_of(&group, &version).await {
                            Ok(found) => resources.extend(found),
                            Err(error) if error.is_not_found() || error.code() >= Some(500) => {
                                tracing::warn!(
                                    name: "listwatch.discovery",
                                    group,
                                    version,
                                    error = %chain(&error),
                                    "the resources of this group are unknown"
                                );
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(resources)
    }

    async fn resources_of(&self, group: &str, version: &str) -> Result<Vec<DiscoveredResource>, Error> {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let list: ResourceList = self.json(&path, "application/json").await?;
        Ok(list.resources.into_iter().map(|resource| resource.of(group, version)).collect())
    }

    async fn json<T: DeserializeOwned>(&self, path: &str, accept: &'static str) -> Result<T, Error> {
        let read = |Document { headers, body, audit_id: _ }: &Document| {
            serde_json::from_slice(body).map_err(|error| match body.first() {
                None => ErrorKind::Decode(DecodeError::new(DecodeErrorKind::Incomplete, 0, None, 0)),
                Some(b'{') if body::json_status(body).is_none() => {
                    // The message of serde quotes the document.
                    ErrorKind::Discovery(format!("{path}: {}", OneLine(&error.to_string())))
                }
                Some(_) => self.unexpected(body, headers),
            })
        };
        self.document(path.to_owned(), HeaderValue::from_static(accept), read).await
    }
}

/// The documents at `/api` and `/apis`.
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Root {
    #[serde(rename = "APIGroupDiscoveryList")]
    Aggregated { items: Vec<GroupDiscovery> },
    #[serde(rename = "APIVersions")]
    Versions { versions: Vec<String> },
    #[serde(rename = "APIGroupList")]
    Groups { groups: Vec<Group> },
}

/// `APIGroupDiscovery` of apidiscovery.k8s.io.
#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<VersionDiscovery>,
}

#[derive(Deserialize, Default)]
struct Named {
    /// Empty for the core group.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<ResourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize, Default)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

impl GroupDiscovery {
    fn resources(self) -> impl Iterator<Item = DiscoveredResource> {
        let group = self.metadata.name;
        self.versions.into_iter().flat_map(move |VersionDiscovery { version, freshness, resources }| {
            if freshness == "Stale" {
                tracing::warn!(
                    name: "listwatch.discovery",
                    group,
                    version,
                    "the resources of this group may be outdated: its server does not respond"
                );
            }
            let group = group.clone();
            resources.into_iter().map(move |resource| DiscoveredResource {
                group: group.clone(),
                version: version.clone(),
                plural: resource.resource,
                singular: resource.singular_resource,
                kind: resource.response_kind.kind,
                short_names: resource.short_names,
                namespaced: resource.scope == "Namespaced",
                verbs: resource.verbs,
            })
        })
    }
}

/// `APIGroup` of meta/v1.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize, PartialEq)]
struct GroupVersion {
    version: String,
}

impl Group {
    /// Returns group and version of each version, the preferred version first.
    fn versions(self) -> impl Iterator<Item = (String, String)> {
        let Self { name, mut versions, preferred_version } = self;
        versions.sort_by_key(|version| Some(version) != preferred_version.as_ref());
        versions.into_iter().map(move |GroupVersion { version }| (name.clone(), version))
    }
}

/// `APIResourceList` of meta/v1.
#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

impl ApiResource {
    fn of(self, group: &str, version: &str) -> DiscoveredResource {
        DiscoveredResource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: self.name,
            singular: self.singular_name,
            kind: self.kind,
            short_names: self.short_names,
            namespaced: self.namespaced,
            verbs: self.verbs,
        }
    }
}
