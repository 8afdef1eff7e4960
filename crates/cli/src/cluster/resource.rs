//! Finds the resource of a name that the user typed.

use listwatch::client::{Client, Error, ErrorKind, Resource};
use listwatch::internal::chain;

use crate::failure::Failure;

/// The resources of every API server since 1.23, in the order of its groups, with their short names.
const COMMON_RESOURCES: &[(Resource, &[&str])] = &[
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
pub fn common_names() -> impl Iterator<Item = &'static str> {
    // The core group's events come first, and have the same plural.
    let is_first = |resource: &&Resource| **resource != Resource::EVENTS_K8S_IO;
    COMMON_RESOURCES.iter().map(|(resource, _)| resource).filter(is_first).map(Resource::plural)
}

/// Returns the resource of a name. Sends requests to the server only if the name is not one of every API server.
pub async fn find_resource(client: &Client, typed: &str) -> Result<Resource, Failure> {
    match find_common(typed) {
        Some(resource) => Ok(resource.clone()),
        None => client.resolve(typed).await.map_err(|error| Failure::Error(lookup_error(typed, &error))),
    }
}

/// Returns the resources of a name, which may also be a category such as `all`.
pub async fn find_resources(client: &Client, typed: &str) -> Result<Vec<Resource>, Failure> {
    match find_common(typed) {
        Some(resource) => Ok(vec![resource.clone()]),
        None => client.resolve_all(typed).await.map_err(|error| Failure::Error(lookup_error(typed, &error))),
    }
}

/// Returns the text of an error, with the name unless the error names it, or is not about it.
fn lookup_error(typed: &str, error: &Error) -> String {
    let text = chain(error);
    match error.kind() {
        ErrorKind::Unresolved(_) | ErrorKind::Transport(_) => text,
        _ => format!("cannot look up {typed:?} on this server: {text}"),
    }
}

/// Finds a name without a group, or with a whole group.
///
/// The beginning of a group does not count, because another group may begin with it too.
pub fn find_common(typed: &str) -> Option<&'static Resource> {
    let (name, rest) = typed.split_once('.').unwrap_or((typed, ""));
    let found = COMMON_RESOURCES.iter().find(|(resource, short_names)| {
        let [kind, plural] = [resource.kind(), resource.plural()].map(|text| text.eq_ignore_ascii_case(name));
        let short_name = || short_names.iter().any(|short| short.eq_ignore_ascii_case(name));
        let versioned = format!("{}.{}", resource.version(), resource.group());
        (kind || plural || short_name()) && ["", resource.group(), &versioned].contains(&rest)
    });
    found.map(|(resource, _)| resource)
}

#[cfg(test)]
mod tests {
    use listwatch::client::{TransportError, TransportErrorKind};

    use super::*;

    #[test]
    fn names_no_resource_when_no_server_was_reached() {
        let refused = TransportError::new(TransportErrorKind::Connect, "connection refused");
        for (error, expected) in [
            (ErrorKind::Transport(refused), "cannot connect to the server: connection refused"),
            (
                ErrorKind::Unresolved("no resource \"widgets\" on this server".to_owned()),
                "no resource \"widgets\" on this server",
            ),
            (
                ErrorKind::Discovery("/apis: it ends early".to_owned()),
                "cannot look up \"widgets\" on this server: cannot read the discovery document /apis: it ends early",
            ),
        ] {
            assert_eq!(lookup_error("widgets", &error.into()), expected);
        }
    }

    #[test]
    fn finds_names_of_every_server_without_a_request() {
        for (typed, expected) in [
            ("pods", Some(Resource::PODS)),
            ("Pod", Some(Resource::PODS)),
            ("po", Some(Resource::PODS)),
            ("PO.v1.", Some(Resource::PODS)),
            ("pods.", Some(Resource::PODS)),
            ("endpoints", Some(Resource::ENDPOINTS)),
            ("ev", Some(Resource::EVENTS)),
            ("events.events.k8s.io", Some(Resource::EVENTS_K8S_IO)),
            ("deploy.apps", Some(Resource::DEPLOYMENTS)),
            ("Deployment.v1.apps", Some(Resource::DEPLOYMENTS)),
            // Another group, version or resource, which the server may have.
            ("pods.metrics.k8s.io", None),
            ("deployments.ap", None),
            ("deployments.v1beta1.apps", None),
            ("pods.v1", None),
            ("componentstatuses", None),
            ("", None),
        ] {
            assert_eq!(find_common(typed), expected.as_ref(), "{typed}");
        }
    }

    #[test]
    fn each_resource_is_built_in_and_watched() {
        for (resource, _) in COMMON_RESOURCES {
            assert!(resource.is_watchable() && Resource::BUILT_IN.contains(resource), "{resource}");
        }
    }
}
