//! The resources of every API server, as its discovery lists them.

use listwatch::client::Resource;

use super::objects::ListedResource;

/// A line for each resource and version that an API server of Kubernetes 1.37 lists and watches, with all alpha and
/// beta versions enabled: group, version, plural, kind, singular, scope, short names, categories. A test of `e2e`
/// compares this file with the discovery of kube-apiserver.
const TABLE: &str = include_str!("built_in.txt");

/// Returns the built-in resources, in the order of discovery.
pub fn built_in() -> Vec<ListedResource> {
    TABLE.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &'static str) -> Option<ListedResource> {
    let parts: Vec<_> = line.split('|').collect();
    let &[group, version, plural, kind, singular, scope, short_names, categories] = &*parts else { return None };
    let names = |text: &str| text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let resource = Resource::new(group, version, plural, kind);
    Some(ListedResource {
        resource: if scope == "Cluster" { resource.cluster_scoped() } else { resource },
        singular: singular.to_owned(),
        short_names: names(short_names),
        categories: names(categories),
        definition: None,
    })
}
