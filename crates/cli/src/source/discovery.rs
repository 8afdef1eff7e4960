//! The documents of discovery, in the aggregated form and in the older one.

use listwatch::client::Resource;
use serde_json::{Value, json};

use super::objects::ListedResource;
use super::request::ResourcePath;

/// A group with its versions, and the resources of each.
type Group<'a> = (&'a str, Vec<(&'a str, Vec<&'a ListedResource>)>);

/// Returns the document of `/api` or `/apis`: the aggregated one, or for older readers the names of the versions.
pub fn root_document(resources: &[ListedResource], is_core: bool, is_aggregated: bool) -> Value {
    let is_of = |listed: &&ListedResource| listed.resource.group().is_empty() == is_core;
    let mut groups: Vec<Group<'_>> = Vec::new();
    for listed in resources.iter().filter(is_of) {
        let (group, version) = (listed.resource.group(), listed.resource.version());
        let at = groups.iter().position(|(name, _)| *name == group).unwrap_or_else(|| {
            groups.push((group, Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        match versions.iter_mut().find(|(name, _)| *name == version) {
            Some((_, listed_before)) => listed_before.push(listed),
            None => versions.push((version, vec![listed])),
        }
    }
    if is_aggregated {
        return aggregated(&groups);
    }
    if is_core {
        return json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
    }
    let group = |(name, versions): &Group<'_>| {
        let version = |version: &str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
        let versions: Vec<_> = versions.iter().map(|(name, _)| version(name)).collect();
        json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
    };
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.iter().map(group).collect::<Vec<_>>()})
}

fn aggregated(groups: &[Group<'_>]) -> Value {
    let resource = |listed: &&ListedResource| {
        let ListedResource { resource, singular, short_names, categories, .. } = *listed;
        let scope = if resource.is_namespaced() { "Namespaced" } else { "Cluster" };
        json!({
            "resource": resource.plural(),
            "responseKind": {"group": resource.group(), "version": resource.version(), "kind": resource.kind()},
            "scope": scope,
            "singularResource": singular,
            "verbs": ["get", "list", "watch"],
            "shortNames": short_names,
            "categories": categories,
        })
    };
    let version = |(name, resources): &(&str, Vec<&ListedResource>)| {
        let resources: Vec<_> = resources.iter().map(resource).collect();
        json!({"version": name, "resources": resources, "freshness": "Current"})
    };
    let items: Vec<_> = groups
        .iter()
        .map(|(name, versions)| {
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions.iter().map(version).collect::<Vec<_>>()})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// Returns the document of one version, for older readers; nothing if the source does not have it.
pub fn version_document(resources: &[ListedResource], api_version: &str) -> Option<Value> {
    let of_version: Vec<_> = resources
        .iter()
        .filter(|listed| listed.resource.api_version() == api_version)
        .map(|ListedResource { resource, singular, short_names, categories, .. }| {
            json!({
                "name": resource.plural(), "singularName": singular, "namespaced": resource.is_namespaced(),
                "kind": resource.kind(), "verbs": ["get", "list", "watch"], "shortNames": short_names,
                "categories": categories,
            })
        })
        .collect();
    (!of_version.is_empty()).then(
        || json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": of_version}),
    )
}

/// Returns the resource of a path.
pub fn find<'a>(resources: &'a [ListedResource], path: &ResourcePath) -> Option<&'a ListedResource> {
    let is_path = |resource: &Resource| {
        let parts = [(resource.group(), &path.group), (resource.version(), &path.version)];
        resource.plural() == path.plural && parts.iter().all(|(own, requested)| own == requested)
    };
    resources.iter().find(|listed| is_path(&listed.resource))
}
