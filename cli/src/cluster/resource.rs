//! Finds the resource of a name that the user typed.

use listwatch::client::{Client, Resource};
use listwatch::client::{DiscoveredResource, resolve};

use crate::failure::{Failure, chain};

/// The resources of every API server since 1.23, in the order of its groups, with their short names.
const EVERYWHERE: &[(Resource, &[&str])] = &[
    (Resource::CONFIG_MAPS, &["cm"]),
    (Resource::ENDPOINTS, &["ep"]),
    (Resource::EVENTS, &["ev"]),
    (Resource::LIMIT_RANGES, &["limits"]),
    (Resource::NAMESPACES, &["ns"]),
    (Resource::NODES, &["no"]),
    (Resource::PERSISTENT_VOLUME_CLAIMS, &["pvc"]),
    (Resource::PERSISTENT_VOLUMES, &["pv"]),
    (Resource::PODS, &["po"]),
    (Resource::REPLICATION_CONTROLLERS, &["rc"]),
    (Resource::RESOURCE_QUOTAS, &["quota"]),
    (Resource::SECRETS, &[]),
    (Resource::SERVICE_ACCOUNTS, &["sa"]),
    (Resource::SERVICES, &["svc"]),
    (Resource::DAEMON_SETS, &["ds"]),
    (Resource::DEPLOYMENTS, &["deploy"]),
    (Resource::REPLICA_SETS, &["rs"]),
    (Resource::STATEFUL_SETS, &["sts"]),
    (Resource::EVENTS_K8S_IO, &["ev"]),
    (Resource::HORIZONTAL_POD_AUTOSCALERS, &["hpa"]),
    (Resource::CRON_JOBS, &["cj"]),
    (Resource::JOBS, &[]),
    (Resource::INGRESSES, &["ing"]),
    (Resource::NETWORK_POLICIES, &["netpol"]),
    (Resource::POD_DISRUPTION_BUDGETS, &["pdb"]),
    (Resource::CLUSTER_ROLE_BINDINGS, &[]),
    (Resource::CLUSTER_ROLES, &[]),
    (Resource::ROLE_BINDINGS, &[]),
    (Resource::ROLES, &[]),
    (Resource::STORAGE_CLASSES, &["sc"]),
    (Resource::CUSTOM_RESOURCE_DEFINITIONS, &["crd", "crds"]),
    (Resource::LEASES, &[]),
    (Resource::ENDPOINT_SLICES, &[]),
];

/// Returns the names of the resources that every API server has, to complete what is typed.
pub fn names() -> impl Iterator<Item = &'static str> {
    // The core group's events come first, and have the same plural.
    let is_first = |resource: &&Resource| **resource != Resource::EVENTS_K8S_IO;
    EVERYWHERE.iter().map(|(resource, _)| resource).filter(is_first).map(Resource::plural)
}

/// Returns the resource of a name. Sends requests to the server only if the name is not built in.
pub async fn find(client: &Client, typed: &str) -> Result<Resource, Failure> {
    if let Some(resource) = everywhere(typed) {
        return Ok(resource);
    }
    let discovered = client.discover().await.map_err(|error| Failure::Error(chain(&error)))?;
    resolve(typed, &discovered).map_err(|error| Failure::Error(chain(&error)))
}

fn everywhere(typed: &str) -> Option<Resource> {
    let discovered = |(resource, short_names): &(Resource, &[&str])| {
        let mut discovered = DiscoveredResource::from(resource);
        discovered.short_names = short_names.iter().map(ToString::to_string).collect();
        discovered.verbs = vec!["list".to_owned()];
        discovered
    };
    let found = resolve(typed, &EVERYWHERE.iter().map(discovered).collect::<Vec<_>>()).ok()?;
    // The prefix of a group may be the prefix of another group too.
    let (_, rest) = typed.split_once('.').unwrap_or((typed, ""));
    let (_, group) = rest.split_once('.').unwrap_or(("", rest));
    [rest, group].iter().any(|group| group.is_empty() || *group == found.group()).then_some(found)
}
