//! From keys of etcd to resources and back.
//!
//! Kubernetes stores an object of a built-in resource at `/registry/RESOURCE/[NAMESPACE/]NAME`, without the group, and
//! a custom resource, a definition or an `APIService` at `/registry/GROUP/RESOURCE/…`. A few built-in resources have
//! older names: `SpecialDefaultResourcePrefixes` in `pkg/kubeapiserver/default_storage_factory_builder.go` of
//! Kubernetes 1.37.

/// The folder of Kubernetes in etcd by default, and those of `OpenShift`. Another one can be set by `--etcd-prefix`.
pub const ROOTS: [&str; 3] = ["/registry", "/kubernetes.io", "/openshift.io"];

/// The resources that are not stored under their name, and the folders in which they are.
const SPECIAL: [(&str, &str); 5] = [
    ("replicationcontrollers", "controllers"),
    ("endpoints", "services/endpoints"),
    ("nodes", "minions"),
    ("services", "services/specs"),
    ("ingresses", "ingress"),
];

/// Folders of the API server's own bookkeeping, which no request returns: allocated addresses and ports, and the leases
/// by which API servers find each other.
const INTERNAL: [&str; 3] = ["ranges", "masterleases", "peerserverleases"];

/// The resource, namespace and name of a stored object, from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageKey<'a> {
    /// The group of a custom resource, a definition or an `APIService`. Keys of other built-in resources do not have
    /// it.
    pub group: Option<&'a str>,
    /// The plural name, such as `pods`.
    pub resource: &'a str,
    /// The namespace, unless the object is cluster-scoped.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
}

impl<'a> StorageKey<'a> {
    /// Reads a key under the folder `root`, such as `/registry`. Returns nothing for keys that are not of an object:
    /// those outside of the folder, and the API server's own.
    #[must_use]
    pub fn parse(key: &'a [u8], root: &str) -> Option<Self> {
        let path = std::str::from_utf8(key).ok()?.strip_prefix(root)?.strip_prefix('/')?;
        let (first, rest) = path.split_once('/')?;
        let (group, resource, rest) = match first {
            internal if INTERNAL.contains(&internal) => return None,
            group if group.contains('.') => {
                let (resource, rest) = rest.split_once('/')?;
                (Some(group), resource, rest)
            }
            "services" => {
                let (kind, rest) = rest.split_once('/')?;
                let folder = ["services/specs", "services/endpoints"].into_iter().find(|at| at.ends_with(kind))?;
                (None, resource_of(folder), rest)
            }
            folder => (None, resource_of(folder), rest),
        };
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, rest),
        };
        let is_whole = |part: &str| !part.is_empty() && !part.contains('/');
        (namespace.is_none_or(is_whole) && is_whole(name)).then_some(Self { group, resource, namespace, name })
    }
}

fn resource_of(folder: &str) -> &str {
    SPECIAL.iter().find(|(_, special)| *special == folder).map_or(folder, |(resource, _)| resource)
}

/// The built-in groups whose keys contain the group. Keys of the other built-in groups do not.
const GROUPS_IN_KEYS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The groups of built-in resources whose names have a dot, today and in earlier releases. A group without a dot is
/// built in, because a definition needs one.
const BUILT_IN_GROUPS: [&str; 19] = [
    "admissionregistration.k8s.io",
    "auditregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "lifecycle.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "settings.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns the beginning of all keys of a resource, in one namespace or in all: `/registry/minions/` for `nodes`.
///
/// `group` is the API group, such as `""` or `apps`.
#[must_use]
pub fn storage_prefix(root: &str, group: &str, resource: &str, namespace: Option<&str>) -> String {
    let mut prefix = format!("{root}/");
    if group.contains('.') && !BUILT_IN_GROUPS.contains(&group) || GROUPS_IN_KEYS.contains(&group) {
        prefix.push_str(group);
        prefix.push('/');
        prefix.push_str(resource);
    } else {
        let special = SPECIAL.iter().find(|(special, _)| *special == resource);
        prefix.push_str(special.map_or(resource, |(_, at)| at));
    }
    prefix.push('/');
    if let Some(namespace) = namespace {
        prefix.push_str(namespace);
        prefix.push('/');
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_keys_and_finds_them_again() {
        for (key, group, resource, namespace, name) in [
            ("/registry/pods/default/web-1", None, "pods", Some("default"), "web-1"),
            ("/registry/minions/node-1", None, "nodes", None, "node-1"),
            ("/registry/controllers/default/old", None, "replicationcontrollers", Some("default"), "old"),
            ("/registry/services/specs/default/kubernetes", None, "services", Some("default"), "kubernetes"),
            ("/registry/services/endpoints/default/kubernetes", None, "endpoints", Some("default"), "kubernetes"),
            ("/registry/ingress/shop/web", None, "ingresses", Some("shop"), "web"),
            ("/registry/clusterroles/system:node", None, "clusterroles", None, "system:node"),
            (
                "/registry/apiregistration.k8s.io/apiservices/v1.apps",
                Some("apiregistration.k8s.io"),
                "apiservices",
                None,
                "v1.apps",
            ),
            ("/registry/example.com/widgets/shop/a", Some("example.com"), "widgets", Some("shop"), "a"),
            ("/registry/example.com/planets/mars", Some("example.com"), "planets", None, "mars"),
        ] {
            let parsed = StorageKey { group, resource, namespace, name };
            assert_eq!(StorageKey::parse(key.as_bytes(), "/registry"), Some(parsed), "{key}");
            assert_eq!(storage_prefix("/registry", group.unwrap_or_default(), resource, namespace) + name, key);
        }
        for (group, resource, prefix) in [
            ("apps", "deployments", "/registry/deployments/"),
            ("events.k8s.io", "events", "/registry/events/"),
            ("networking.k8s.io", "ingresses", "/registry/ingress/"),
            ("gateway.networking.k8s.io", "gateways", "/registry/gateway.networking.k8s.io/gateways/"),
        ] {
            assert_eq!(storage_prefix("/registry", group, resource, None), prefix);
        }
        for other in [
            "compact_rev_key",
            "/registry",
            "/registry/",
            "/registry/pods",
            "/registry/pods/",
            "/registry/pods//web",
            "/registry/pods/a/b/c",
            "/registry/services/other/default/a",
            "/registry/ranges/serviceips",
            "/registry/masterleases/10.0.0.1",
            "/registry/peerserverleases/apiserver-1",
            "/kubernetes.io/pods/default/web",
            "/registrypods/default/web",
        ] {
            assert_eq!(StorageKey::parse(other.as_bytes(), "/registry"), None, "{other}");
        }
        assert_eq!(StorageKey::parse(b"/registry/pods/a/\xff", "/registry"), None);
    }
}
