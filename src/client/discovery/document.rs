//! The documents of discovery, and the parts of the catalog of resources, each of which has its own document.
//!
//! Go writes an empty list as `null` unless the type omits it, and reads a missing field like `null`. API servers in Go
//! forward both, so every field may be missing or null here.

use serde::{Deserialize, Deserializer};

use crate::client::error::Error;
use crate::client::resolve::DiscoveredResource;
use crate::client::resource::segment;

/// A version of a group, or a root that could not be read.
pub(super) struct Part {
    /// The path of its own document.
    pub(super) path: String,
    /// `""` for core.
    pub(super) group: String,
    pub(super) version: String,
    /// True if the API server could not reach the server of the group.
    pub(super) is_stale: bool,
    pub(super) state: PartState,
}

/// ```text
/// Unread ──> Read, Failed
/// ```
pub(super) enum PartState {
    Unread,
    Read(Vec<DiscoveredResource>),
    Failed(Error),
}

impl Part {
    pub(super) fn unread(path: String, group: &str, version: &str) -> Self {
        Self { path, group: group.to_owned(), version: version.to_owned(), is_stale: false, state: PartState::Unread }
    }

    pub(super) fn resources(&self) -> &[DiscoveredResource] {
        if let PartState::Read(resources) = &self.state { resources } else { &[] }
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.state, PartState::Read(_))
    }

    pub(super) fn error(&self) -> Option<&Error> {
        if let PartState::Failed(error) = &self.state { Some(error) } else { None }
    }
}

/// A document of any kind. The lists of the other kinds are empty.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct DiscoveryDocument {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    /// Of an `APIGroupDiscoveryList`.
    #[serde(deserialize_with = "list")]
    items: Vec<GroupDiscovery>,
    /// Of `APIVersions`.
    #[serde(deserialize_with = "list")]
    versions: Vec<String>,
    /// Of an `APIGroupList`.
    #[serde(deserialize_with = "list")]
    groups: Vec<Group>,
    /// Of an `APIResourceList`.
    #[serde(deserialize_with = "list")]
    resources: Vec<ApiResource>,
}

/// `APIGroupDiscovery` of apidiscovery.k8s.io, `v2` and `v2beta1`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct GroupDiscovery {
    #[serde(deserialize_with = "or_default")]
    metadata: Named,
    #[serde(deserialize_with = "list")]
    versions: Vec<VersionDiscovery>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    /// Empty for the core group.
    #[serde(deserialize_with = "or_default")]
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct VersionDiscovery {
    #[serde(deserialize_with = "or_default")]
    version: String,
    #[serde(deserialize_with = "or_default")]
    freshness: String,
    #[serde(deserialize_with = "list")]
    resources: Vec<ResourceDiscovery>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ResourceDiscovery {
    #[serde(deserialize_with = "or_default")]
    resource: String,
    #[serde(deserialize_with = "or_default")]
    response_kind: ResponseKind,
    #[serde(deserialize_with = "or_default")]
    scope: String,
    #[serde(deserialize_with = "or_default")]
    singular_resource: String,
    #[serde(deserialize_with = "list")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "list")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "list")]
    categories: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseKind {
    #[serde(deserialize_with = "or_default")]
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Group {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "list")]
    versions: Vec<GroupVersion>,
    #[serde(deserialize_with = "or_default")]
    preferred_version: GroupVersion,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(default)]
struct GroupVersion {
    #[serde(deserialize_with = "or_default")]
    version: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ApiResource {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    singular_name: String,
    #[serde(deserialize_with = "or_default")]
    namespaced: bool,
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "list")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "list")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "list")]
    categories: Vec<String>,
}

impl DiscoveryDocument {
    /// Returns the document if it is of one of these kinds. Some test servers omit the kind, but not the list.
    pub(super) fn checked(self, kinds: &[&str]) -> Result<Self, String> {
        let is_empty =
            self.items.is_empty() && self.versions.is_empty() && self.groups.is_empty() && self.resources.is_empty();
        match &*self.kind {
            "" if !is_empty => Ok(self),
            kind if kinds.contains(&kind) => Ok(self),
            kind => Err(format!("expected {}, got kind {kind:?}", kinds.join(" or "))),
        }
    }

    /// Returns the versions of the groups below a root, in the server's order of preference.
    pub(super) fn parts(self, root: &str) -> Vec<Part> {
        let discovered = self.items.into_iter().flat_map(|group| group.parts(root));
        let core = self.versions.iter().filter_map(|version| part(root, "", version));
        let groups = self.groups.into_iter().flat_map(|group| group.parts(root));
        discovered.chain(core).chain(groups).collect()
    }

    pub(super) fn resources(self, group: &str, version: &str) -> Vec<DiscoveredResource> {
        self.resources.into_iter().map(|resource| resource.of(group, version)).collect()
    }
}

/// Returns a version of a group; `None` if the names cannot be part of a path, so that nothing can be requested. Only
/// the core group has no name.
fn part(root: &str, group: &str, version: &str) -> Option<Part> {
    let name = segment("version", version).ok()?;
    let path = match (root, group) {
        ("/api", "") => format!("{root}/{name}"),
        ("/api", _) | (_, "") => return None,
        _ => format!("{root}/{}/{name}", segment("group", group).ok()?),
    };
    Some(Part::unread(path, group, version))
}

impl GroupDiscovery {
    /// Returns the versions, with the stale ones last, because client-go never prefers them
    /// (`aggregated_discovery.go`).
    fn parts(self, root: &str) -> Vec<Part> {
        let group = self.metadata.name;
        let mut parts: Vec<_> = self.versions.into_iter().filter_map(|version| version.part(root, &group)).collect();
        parts.sort_by_key(|part| part.is_stale);
        parts
    }
}

impl VersionDiscovery {
    fn part(self, root: &str, group: &str) -> Option<Part> {
        let part = part(root, group, &self.version)?;
        let is_stale = self.freshness == "Stale";
        if is_stale && self.resources.is_empty() {
            // The API server knows nothing about this version. Its own document contains the resources or the error.
            return Some(part);
        }
        let resources = self.resources.into_iter().map(|resource| resource.of(group, &self.version));
        Some(Part { is_stale, state: PartState::Read(resources.collect()), ..part })
    }
}

impl ResourceDiscovery {
    fn of(self, group: &str, version: &str) -> DiscoveredResource {
        DiscoveredResource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: self.resource,
            singular: self.singular_resource,
            kind: self.response_kind.kind,
            short_names: self.short_names,
            categories: self.categories,
            is_namespaced: self.scope == "Namespaced",
            verbs: self.verbs,
        }
    }
}

impl Group {
    /// Returns the versions, with the preferred one first.
    fn parts(self, root: &str) -> Vec<Part> {
        let Self { name, mut versions, preferred_version } = self;
        versions.sort_by_key(|version| *version != preferred_version);
        versions.iter().filter_map(|GroupVersion { version }| part(root, &name, version)).collect()
    }
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
            categories: self.categories,
            is_namespaced: self.namespaced,
            verbs: self.verbs,
        }
    }
}

/// Reads null as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Reads a list, where null is an empty list and a null element is the default.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<Vec<T>, D::Error> {
    let list: Option<Vec<Option<T>>> = Option::deserialize(value)?;
    Ok(list.into_iter().flatten().map(Option::unwrap_or_default).collect())
}
