//! Which collection: a resource's group, version, plural and kind, its paths, and the names people type for it.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

/// A kind of object that an API server can list: group, version, plural name, kind, namespaced or not.
///
/// Built-in kinds are constants (`Resource::PODS`); custom resources come from [`Resource::new`] or from [`resolve`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    plural: Cow<'static, str>,
    kind: Cow<'static, str>,
    namespaced: bool,
}

impl Resource {
    /// A namespaced resource; follow it with [`Resource::cluster_scoped`] for one that is not. The core group is `""`.
    ///
    /// Nothing is checked here: what cannot stand in a path is refused by [`Resource::list_path`]. A kind that is not known is
    /// left empty: objects of whatever kind the server sends are then taken.
    pub fn new(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        plural: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
        }
    }

    /// [`Resource::new`] for constants.
    #[must_use]
    pub const fn from_static(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            namespaced: true,
        }
    }

    /// The same resource, not namespaced.
    #[must_use]
    pub const fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The API group, `""` for core.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version within the group, like `v1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name in paths: plural and lower case, like `pods`.
    #[must_use]
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The kind of one object, like `Pod`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether objects live in namespaces.
    #[must_use]
    pub const fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The kind of the list, like `PodList`.
    ///
    /// Built-in kinds all follow this; a custom resource may name its list kind otherwise (`spec.names.listKind`). Empty where
    /// the kind is.
    #[must_use]
    pub fn list_kind(&self) -> String {
        if self.kind.is_empty() { String::new() } else { format!("{}List", self.kind) }
    }

    /// `v1` in the core group, else `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of the collection: of one namespace, or with `None` of all namespaces (or of the cluster).
    ///
    /// # Errors
    ///
    /// A namespace for a resource that has none, a namespace that is not a DNS label (the server would answer it with
    /// an empty list), or a group, version or plural that cannot stand in a path.
    pub fn list_path(&self, namespace: Option<&str>) -> Result<String, PathError> {
        let mut path = if self.group.is_empty() {
            String::from("/api")
        } else {
            format!("/apis/{}", segment("group", &self.group)?)
        };
        path.push('/');
        path.extend(segment("version", &self.version)?);
        if let Some(namespace) = namespace {
            if !self.namespaced {
                return Err(PathError::NotNamespaced { resource: self.to_string() });
            }
            if !is_dns_label(namespace) {
                return Err(PathError::Invalid {
                    what: "namespace",
                    value: namespace.to_owned(),
                    reason: "must be 1 to 63 of a-z, 0-9 and '-', and start and end with a letter or digit",
                });
            }
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.extend(segment("plural", &self.plural)?);
        Ok(path)
    }

    /// The path of one object.
    ///
    /// # Errors
    ///
    /// Those of [`Resource::list_path`], no namespace for a namespaced resource, or a name that the server refuses
    /// (apimachinery `content.IsPathSegmentName`: empty, `.`, `..`, or with `/` or `%` in it).
    pub fn get_path(&self, namespace: Option<&str>, name: &str) -> Result<String, PathError> {
        if self.namespaced && namespace.is_none() {
            return Err(PathError::NamespaceNeeded { resource: self.to_string() });
        }
        let mut path = self.list_path(namespace)?;
        path.push('/');
        path.extend(segment("name", name)?);
        Ok(path)
    }
}

/// As people type it and [`resolve`] takes it: `pods`, `deployments.apps`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&typed_name(&self.plural, &self.group))
    }
}

/// Why there is no path: the request was never sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A namespace was given for a resource that is not namespaced.
    #[error("{resource} is not namespaced, but a namespace was given")]
    NotNamespaced {
        /// The resource, as typed.
        resource: String,
    },
    /// One object of a namespaced resource was asked for without its namespace.
    #[error("{resource} is namespaced: one object has no path without its namespace")]
    NamespaceNeeded {
        /// The resource, as typed.
        resource: String,
    },
    /// A part of the path would not be that part: it is empty, or leads elsewhere.
    #[error("{what} {value:?} {reason}")]
    Invalid {
        /// Which part.
        what: &'static str,
        /// What it was.
        value: String,
        /// What it must be.
        reason: &'static str,
    },
}

/// One resource of a server's discovery documents.
///
/// A slice of these is in the server's order of preference: the core group first, then the groups as the server lists
/// them, in each the preferred version first. (Aggregated discovery comes in that order.)
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveredResource {
    /// The API group, `""` for core.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// `name` of the document. One with a `/` is a subresource and never found.
    pub plural: String,
    /// `singularName`. Where it is empty, the kind in lower case stands in, as in kubectl.
    pub singular: String,
    /// The kind of one object.
    pub kind: String,
    /// Like `po` for pods.
    pub short_names: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it: `list` is what counts here.
    pub verbs: Vec<String>,
}

/// Finds the resource that a person means by `typed`, as `kubectl get` would.
///
/// `typed` is a plural, a singular, a short name or a kind, alone or followed by `.group` or `.version.group`; the core
/// group's version is written with a dot at its end, `pods.v1.`. Case does not count. Plurals and singulars go before
/// short names, both before kinds; a group that matches whole goes before one that only begins so (`deployments.ap`).
/// Of several groups and versions the first in `discovered` is taken. The rules are those of cli-runtime
/// `Builder.mappingFor` and client-go's restmapper, with three differences: what cannot be listed is passed over, a
/// short name keeps the version that was typed with it (kubectl forgets it), and kubectl takes short names in lower
/// case and kinds outside the core group with their group only.
///
/// # Errors
///
/// [`ResolveError`]: nothing of that name, nothing that can be listed, or two resources of one group and version that
/// claim the same name.
pub fn resolve(typed: &str, discovered: &[DiscoveredResource]) -> Result<Resource, ResolveError> {
    let listable = || {
        let all = discovered.iter();
        all.filter(|r| r.verbs.iter().any(|verb| verb == "list"))
    };
    if let Some(found) = find(typed, &listable())? {
        return Ok(Resource {
            group: found.group.clone().into(),
            version: found.version.clone().into(),
            plural: found.plural.clone().into(),
            kind: found.kind.clone().into(),
            namespaced: found.namespaced,
        });
    }
    if let Some(found) = find(typed, &discovered.iter())? {
        return Err(ResolveError::NotListable { typed: typed.to_owned(), name: found.typed_name() });
    }
    Err(ResolveError::Unknown { typed: typed.to_owned(), suggestions: near(typed, listable()) })
}

/// Why a name as typed stands for no resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The server has nothing of that name.
    #[error("no resource {typed:?} on this server{}", did_you_mean(.suggestions))]
    Unknown {
        /// The name as typed.
        typed: String,
        /// At most three similar names, the nearest first.
        suggestions: Vec<String>,
    },
    /// The server has it, but it has no `list` verb.
    #[error("{typed:?} is {name}, which the server does not list")]
    NotListable {
        /// The name as typed.
        typed: String,
        /// What it stands for.
        name: String,
    },
    /// Two resources of the same group and version claim the name, one as its plural, one as its singular.
    #[error("{typed:?} may be {first} or {second}")]
    Ambiguous {
        /// The name as typed.
        typed: String,
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
}

/// One reading of a name as typed; `group` and `version` are `None` where any will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceName<'a> {
    /// A plural, singular or short name, or a kind.
    pub name: &'a str,
    /// The version, in the reading `name.version.group`.
    pub version: Option<&'a str>,
    /// The group, or how it begins.
    pub group: Option<&'a str>,
}

impl<'a> ResourceName<'a> {
    /// The one or two readings of a name, in the order in which kubectl tries them (apimachinery
    /// `schema.ParseResourceArg`): `a.b.c.d` is `a` in version `b` of group `c.d`, or else `a` of group `b.c.d`.
    pub fn readings(typed: &'a str) -> impl Iterator<Item = Self> {
        let (name, rest) = typed.split_once('.').unwrap_or((typed, ""));
        let given = |text: &'a str| (!text.is_empty()).then_some(text);
        let versioned =
            rest.split_once('.').map(|(version, group)| Self { name, version: given(version), group: given(group) });
        let unversioned = Self { name, version: None, group: given(rest) };
        versioned.into_iter().chain([unversioned])
    }
}

macro_rules! built_in {
    ($($name:ident: $group:literal $version:literal $plural:literal $kind:literal $scope:ident;)*) => {
        /// Every kind that Kubernetes 1.36 and 1.37 themselves list, alpha versions left out.
        ///
        /// A name without a version is the newest stable one. From `api/discovery` of kubernetes v1.36.3, and for what
        /// 1.37 adds from k8s.io/api v0.37.0.
        impl Resource {
            $(
                #[doc = concat!("`", $plural, ".", $version, ".", $group, "`, kind `", $kind, "`.")]
                pub const $name: Self = built_in!(@$scope $group $version $plural $kind);
            )*

            /// All of these constants.
            pub const BUILT_IN: &'static [Self] = &[$(Self::$name),*];
        }
    };
    (@namespaced $group:literal $version:literal $plural:literal $kind:literal) => {
        Self::from_static($group, $version, $plural, $kind)
    };
    (@cluster $group:literal $version:literal $plural:literal $kind:literal) => {
        Self::from_static($group, $version, $plural, $kind).cluster_scoped()
    };
}

built_in! {
    COMPONENT_STATUSES: "" "v1" "componentstatuses" "ComponentStatus" cluster;
    CONFIG_MAPS: "" "v1" "configmaps" "ConfigMap" namespaced;
    ENDPOINTS: "" "v1" "endpoints" "Endpoints" namespaced;
    EVENTS: "" "v1" "events" "Event" namespaced;
    LIMIT_RANGES: "" "v1" "limitranges" "LimitRange" namespaced;
    NAMESPACES: "" "v1" "namespaces" "Namespace" cluster;
    NODES: "" "v1" "nodes" "Node" cluster;
    PERSISTENT_VOLUME_CLAIMS: "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim" namespaced;
    PERSISTENT_VOLUMES: "" "v1" "persistentvolumes" "PersistentVolume" cluster;
    PODS: "" "v1" "pods" "Pod" namespaced;
    POD_TEMPLATES: "" "v1" "podtemplates" "PodTemplate" namespaced;
    REPLICATION_CONTROLLERS: "" "v1" "replicationcontrollers" "ReplicationController" namespaced;
    RESOURCE_QUOTAS: "" "v1" "resourcequotas" "ResourceQuota" namespaced;
    SECRETS: "" "v1" "secrets" "Secret" namespaced;
    SERVICE_ACCOUNTS: "" "v1" "serviceaccounts" "ServiceAccount" namespaced;
    SERVICES: "" "v1" "services" "Service" namespaced;
    MUTATING_ADMISSION_POLICIES: "admissionregistration.k8s.io" "v1" "mutatingadmissionpolicies" "MutatingAdmissionPolicy" cluster;
    MUTATING_ADMISSION_POLICY_BINDINGS: "admissionregistration.k8s.io" "v1" "mutatingadmissionpolicybindings" "MutatingAdmissionPolicyBinding" cluster;
    MUTATING_WEBHOOK_CONFIGURATIONS: "admissionregistration.k8s.io" "v1" "mutatingwebhookconfigurations" "MutatingWebhookConfiguration" cluster;
    VALIDATING_ADMISSION_POLICIES: "admissionregistration.k8s.io" "v1" "validatingadmissionpolicies" "ValidatingAdmissionPolicy" cluster;
    VALIDATING_ADMISSION_POLICY_BINDINGS: "admissionregistration.k8s.io" "v1" "validatingadmissionpolicybindings" "ValidatingAdmissionPolicyBinding" cluster;
    VALIDATING_WEBHOOK_CONFIGURATIONS: "admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "ValidatingWebhookConfiguration" cluster;
    MUTATING_ADMISSION_POLICIES_V1BETA1: "admissionregistration.k8s.io" "v1beta1" "mutatingadmissionpolicies" "MutatingAdmissionPolicy" cluster;
    MUTATING_ADMISSION_POLICY_BINDINGS_V1BETA1: "admissionregistration.k8s.io" "v1beta1" "mutatingadmissionpolicybindings" "MutatingAdmissionPolicyBinding" cluster;
    CUSTOM_RESOURCE_DEFINITIONS: "apiextensions.k8s.io" "v1" "customresourcedefinitions" "CustomResourceDefinition" cluster;
    API_SERVICES: "apiregistration.k8s.io" "v1" "apiservices" "APIService" cluster;
    CONTROLLER_REVISIONS: "apps" "v1" "controllerrevisions" "ControllerRevision" namespaced;
    DAEMON_SETS: "apps" "v1" "daemonsets" "DaemonSet" namespaced;
    DEPLOYMENTS: "apps" "v1" "deployments" "Deployment" namespaced;
    REPLICA_SETS: "apps" "v1" "replicasets" "ReplicaSet" namespaced;
    STATEFUL_SETS: "apps" "v1" "statefulsets" "StatefulSet" namespaced;
    HORIZONTAL_POD_AUTOSCALERS: "autoscaling" "v2" "horizontalpodautoscalers" "HorizontalPodAutoscaler" namespaced;
    HORIZONTAL_POD_AUTOSCALERS_V1: "autoscaling" "v1" "horizontalpodautoscalers" "HorizontalPodAutoscaler" namespaced;
    CRON_JOBS: "batch" "v1" "cronjobs" "CronJob" namespaced;
    JOBS: "batch" "v1" "jobs" "Job" namespaced;
    CERTIFICATE_SIGNING_REQUESTS: "certificates.k8s.io" "v1" "certificatesigningrequests" "CertificateSigningRequest" cluster;
    CLUSTER_TRUST_BUNDLES: "certificates.k8s.io" "v1" "clustertrustbundles" "ClusterTrustBundle" cluster;
    POD_CERTIFICATE_REQUESTS: "certificates.k8s.io" "v1" "podcertificaterequests" "PodCertificateRequest" namespaced;
    CLUSTER_TRUST_BUNDLES_V1BETA1: "certificates.k8s.io" "v1beta1" "clustertrustbundles" "ClusterTrustBundle" cluster;
    POD_CERTIFICATE_REQUESTS_V1BETA1: "certificates.k8s.io" "v1beta1" "podcertificaterequests" "PodCertificateRequest" namespaced;
    LEASES: "coordination.k8s.io" "v1" "leases" "Lease" namespaced;
    LEASE_CANDIDATES_V1BETA1: "coordination.k8s.io" "v1beta1" "leasecandidates" "LeaseCandidate" namespaced;
    ENDPOINT_SLICES: "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice" namespaced;
    EVENTS_K8S_IO: "events.k8s.io" "v1" "events" "Event" namespaced;
    FLOW_SCHEMAS: "flowcontrol.apiserver.k8s.io" "v1" "flowschemas" "FlowSchema" cluster;
    PRIORITY_LEVEL_CONFIGURATIONS: "flowcontrol.apiserver.k8s.io" "v1" "prioritylevelconfigurations" "PriorityLevelConfiguration" cluster;
    INGRESS_CLASSES: "networking.k8s.io" "v1" "ingressclasses" "IngressClass" cluster;
    INGRESSES: "networking.k8s.io" "v1" "ingresses" "Ingress" namespaced;
    IP_ADDRESSES: "networking.k8s.io" "v1" "ipaddresses" "IPAddress" cluster;
    NETWORK_POLICIES: "networking.k8s.io" "v1" "networkpolicies" "NetworkPolicy" namespaced;
    SERVICE_CIDRS: "networking.k8s.io" "v1" "servicecidrs" "ServiceCIDR" cluster;
    IP_ADDRESSES_V1BETA1: "networking.k8s.io" "v1beta1" "ipaddresses" "IPAddress" cluster;
    SERVICE_CIDRS_V1BETA1: "networking.k8s.io" "v1beta1" "servicecidrs" "ServiceCIDR" cluster;
    RUNTIME_CLASSES: "node.k8s.io" "v1" "runtimeclasses" "RuntimeClass" cluster;
    POD_DISRUPTION_BUDGETS: "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget" namespaced;
    CLUSTER_ROLE_BINDINGS: "rbac.authorization.k8s.io" "v1" "clusterrolebindings" "ClusterRoleBinding" cluster;
    CLUSTER_ROLES: "rbac.authorization.k8s.io" "v1" "clusterroles" "ClusterRole" cluster;
    ROLE_BINDINGS: "rbac.authorization.k8s.io" "v1" "rolebindings" "RoleBinding" namespaced;
    ROLES: "rbac.authorization.k8s.io" "v1" "roles" "Role" namespaced;
    DEVICE_CLASSES: "resource.k8s.io" "v1" "deviceclasses" "DeviceClass" cluster;
    DEVICE_TAINT_RULES: "resource.k8s.io" "v1" "devicetaintrules" "DeviceTaintRule" cluster;
    RESOURCE_CLAIMS: "resource.k8s.io" "v1" "resourceclaims" "ResourceClaim" namespaced;
    RESOURCE_CLAIM_TEMPLATES: "resource.k8s.io" "v1" "resourceclaimtemplates" "ResourceClaimTemplate" namespaced;
    RESOURCE_SLICES: "resource.k8s.io" "v1" "resourceslices" "ResourceSlice" cluster;
    DEVICE_CLASSES_V1BETA2: "resource.k8s.io" "v1beta2" "deviceclasses" "DeviceClass" cluster;
    DEVICE_TAINT_RULES_V1BETA2: "resource.k8s.io" "v1beta2" "devicetaintrules" "DeviceTaintRule" cluster;
    RESOURCE_CLAIMS_V1BETA2: "resource.k8s.io" "v1beta2" "resourceclaims" "ResourceClaim" namespaced;
    RESOURCE_CLAIM_TEMPLATES_V1BETA2: "resource.k8s.io" "v1beta2" "resourceclaimtemplates" "ResourceClaimTemplate" namespaced;
    RESOURCE_SLICES_V1BETA2: "resource.k8s.io" "v1beta2" "resourceslices" "ResourceSlice" cluster;
    DEVICE_CLASSES_V1BETA1: "resource.k8s.io" "v1beta1" "deviceclasses" "DeviceClass" cluster;
    RESOURCE_CLAIMS_V1BETA1: "resource.k8s.io" "v1beta1" "resourceclaims" "ResourceClaim" namespaced;
    RESOURCE_CLAIM_TEMPLATES_V1BETA1: "resource.k8s.io" "v1beta1" "resourceclaimtemplates" "ResourceClaimTemplate" namespaced;
    RESOURCE_SLICES_V1BETA1: "resource.k8s.io" "v1beta1" "resourceslices" "ResourceSlice" cluster;
    PRIORITY_CLASSES: "scheduling.k8s.io" "v1" "priorityclasses" "PriorityClass" cluster;
    POD_GROUPS_V1BETA1: "scheduling.k8s.io" "v1beta1" "podgroups" "PodGroup" namespaced;
    WORKLOADS_V1BETA1: "scheduling.k8s.io" "v1beta1" "workloads" "Workload" namespaced;
    CSI_DRIVERS: "storage.k8s.io" "v1" "csidrivers" "CSIDriver" cluster;
    CSI_NODES: "storage.k8s.io" "v1" "csinodes" "CSINode" cluster;
    CSI_STORAGE_CAPACITIES: "storage.k8s.io" "v1" "csistoragecapacities" "CSIStorageCapacity" namespaced;
    STORAGE_CLASSES: "storage.k8s.io" "v1" "storageclasses" "StorageClass" cluster;
    VOLUME_ATTACHMENTS: "storage.k8s.io" "v1" "volumeattachments" "VolumeAttachment" cluster;
    VOLUME_ATTRIBUTES_CLASSES: "storage.k8s.io" "v1" "volumeattributesclasses" "VolumeAttributesClass" cluster;
    VOLUME_ATTRIBUTES_CLASSES_V1BETA1: "storage.k8s.io" "v1beta1" "volumeattributesclasses" "VolumeAttributesClass" cluster;
    STORAGE_VERSION_MIGRATIONS: "storagemigration.k8s.io" "v1" "storageversionmigrations" "StorageVersionMigration" cluster;
    STORAGE_VERSION_MIGRATIONS_V1BETA1: "storagemigration.k8s.io" "v1beta1" "storageversionmigrations" "StorageVersionMigration" cluster;
}

/// The ways in which a name can match, from the strongest to the weakest.
#[derive(Clone, Copy)]
enum Way {
    Name,
    ShortName,
    ShortNameGroupPrefix,
    NameGroupPrefix,
    Kind,
}

impl DiscoveredResource {
    fn matches(&self, way: Way, wanted: ResourceName<'_>) -> bool {
        let is = |text: &str| text.eq_ignore_ascii_case(wanted.name);
        let name = || is(&self.plural) || is(self.singular());
        let short_name = || self.short_names.iter().any(|short| is(short));
        let version = wanted.version.is_none_or(|v| v == self.version);
        let group = wanted.group.is_none_or(|g| g == self.group);
        let group_prefix = wanted.group.is_some_and(|g| self.group.starts_with(g));
        match way {
            Way::Name => version && group && name(),
            Way::ShortName => version && group && short_name(),
            Way::ShortNameGroupPrefix => version && group_prefix && short_name(),
            Way::NameGroupPrefix => wanted.version.is_none() && group_prefix && name(),
            Way::Kind => version && group && is(&self.kind),
        }
    }

    fn singular(&self) -> &str {
        if self.singular.is_empty() { &self.kind } else { &self.singular }
    }

    fn typed_name(&self) -> String {
        typed_name(&self.plural, &self.group)
    }
}

/// The first match of the strongest way. Kinds come after every other way of every reading, as in `mappingFor`.
fn find<'a>(
    typed: &str,
    resources: &(impl Iterator<Item = &'a DiscoveredResource> + Clone),
) -> Result<Option<&'a DiscoveredResource>, ResolveError> {
    let names = [Way::Name, Way::ShortName, Way::ShortNameGroupPrefix, Way::NameGroupPrefix];
    let tries = ResourceName::readings(typed)
        .flat_map(|reading| names.map(|way| (way, reading)))
        .chain(ResourceName::readings(typed).map(|reading| (Way::Kind, reading)));
    for (way, reading) in tries {
        let mut hits = resources.clone().filter(|r| !r.plural.contains('/') && r.matches(way, reading));
        let Some(first) = hits.next() else { continue };
        let rival = hits.find(|r| (&r.group, &r.version) == (&first.group, &first.version) && r.plural != first.plural);
        if let (Way::Name | Way::NameGroupPrefix, Some(second)) = (way, rival) {
            return Err(ResolveError::Ambiguous {
                typed: typed.to_owned(),
                first: first.typed_name(),
                second: second.typed_name(),
            });
        }
        return Ok(Some(first));
    }
    Ok(None)
}

/// At most three names within a third of the typed letters, whatever group was typed.
fn near<'a>(typed: &str, resources: impl Iterator<Item = &'a DiscoveredResource>) -> Vec<String> {
    let name = typed.split('.').next().unwrap_or(typed).to_lowercase();
    let allowed = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, String)> = Vec::new();
    for resource in resources.filter(|r| !r.plural.contains('/')) {
        let short = resource.short_names.contains(&name);
        let far = distance(&name, &resource.plural).min(distance(&name, resource.singular()));
        let far = if short { 0 } else { far };
        let suggestion = resource.typed_name();
        if far <= allowed && !found.iter().any(|(_, known)| *known == suggestion) {
            found.push((far, suggestion));
        }
    }
    found.sort_by_key(|(far, _)| *far);
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many letters to insert, drop or change to make one of the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    // `row` holds the distances of what was read of `from` to each beginning of `to`.
    let mut row: Vec<usize> = (1..=to.chars().count()).collect();
    let mut result = row.len();
    for (read, a) in from.chars().enumerate() {
        let (mut diagonal, mut left) = (read, read + 1);
        for (cell, b) in row.iter_mut().zip(to.chars()) {
            let above = *cell;
            left = (diagonal + usize::from(a != b)).min(above.min(left) + 1);
            diagonal = above;
            *cell = left;
        }
        result = left;
    }
    result
}

fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean {}?", suggestions.join(" or ")) }
}

fn typed_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// What of a path segment or a query value stands for itself. RBAC names are full of colons.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Percent-encodes a path segment or a query value.
pub(super) fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, PLAIN)
}

/// One path segment, encoded. Dots are refused rather than encoded: URL parsers read `%2e%2e` as `..`.
fn segment<'a>(what: &'static str, value: &'a str) -> Result<PercentEncode<'a>, PathError> {
    let reason = match value {
        "" => "must not be empty",
        "." | ".." => "would lead elsewhere in the path",
        _ if value.contains(['/', '%']) => "must not contain '/' or '%'",
        _ => return Ok(encode(value)),
    };
    Err(PathError::Invalid { what, value: value.to_owned(), reason })
}

/// Apimachinery `content.IsDNS1123Label`, which namespaces must be.
fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets() -> Resource {
        Resource::new("example.com", "v1", "widgets", "Widget")
    }

    #[test]
    fn accessors_and_derived_names() {
        const GADGETS: Resource = Resource::from_static("example.com", "v2", "gadgets", "Gadget").cluster_scoped();
        assert_eq!(
            (GADGETS.group(), GADGETS.version(), GADGETS.plural(), GADGETS.kind()),
            ("example.com", "v2", "gadgets", "Gadget")
        );
        assert!(!GADGETS.is_namespaced() && widgets().is_namespaced());
        assert_eq!(Resource::PODS.api_version(), "v1");
        assert_eq!(Resource::DEPLOYMENTS.api_version(), "apps/v1");
        assert_eq!(Resource::PODS.list_kind(), "PodList");
        assert_eq!(Resource::ENDPOINTS.list_kind(), "EndpointsList");
        assert_eq!(Resource::PODS.to_string(), "pods");
        assert_eq!(widgets().to_string(), "widgets.example.com");
    }

    #[test]
    fn built_in_table() {
        assert_eq!(Resource::BUILT_IN.len(), 85);
        for (i, a) in Resource::BUILT_IN.iter().enumerate() {
            let same = |b: &Resource| (b.group(), b.version(), b.plural()) == (a.group(), a.version(), a.plural());
            assert!(!Resource::BUILT_IN[i + 1..].iter().any(same), "{a:?} is there twice");
            assert!(a.list_path(None).is_ok());
        }
        // Spot checks of what is easily wrong.
        assert!(!Resource::CLUSTER_TRUST_BUNDLES.is_namespaced());
        assert!(Resource::CSI_STORAGE_CAPACITIES.is_namespaced());
        assert_eq!(Resource::HORIZONTAL_POD_AUTOSCALERS.version(), "v2");
        assert_eq!(Resource::EVENTS_K8S_IO.group(), "events.k8s.io");
        assert_eq!(Resource::API_SERVICES.kind(), "APIService");
    }

    #[test]
    fn paths() {
        let nodes = Resource::NODES;
        let roles = Resource::CLUSTER_ROLES;
        for (path, expected) in [
            (Resource::PODS.list_path(None), "/api/v1/pods"),
            (Resource::PODS.list_path(Some("team-1")), "/api/v1/namespaces/team-1/pods"),
            (widgets().list_path(None), "/apis/example.com/v1/widgets"),
            (widgets().list_path(Some("a")), "/apis/example.com/v1/namespaces/a/widgets"),
            (Resource::PODS.get_path(Some("a"), "web-0"), "/api/v1/namespaces/a/pods/web-0"),
            (nodes.get_path(None, "n.1"), "/api/v1/nodes/n.1"),
            (roles.get_path(None, "system:node"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
            (
                roles.get_path(None, "a?b#c d\\é\t"),
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Fb%23c%20d%5C%C3%A9%09",
            ),
        ] {
            assert_eq!(path.as_deref(), Ok(expected));
        }
    }

    #[test]
    fn nothing_escapes_the_path() {
        let pods = Resource::PODS;
        for bad in ["", ".", "..", "a/b", "/", "../..", "a%2fb", "%2e%2e"] {
            assert!(pods.get_path(Some("ns"), bad).is_err(), "name {bad:?}");
            assert!(pods.list_path(Some(bad)).is_err(), "namespace {bad:?}");
            let plural = Resource::new("g", "v1", bad.to_owned(), "K");
            assert!(plural.list_path(None).is_err(), "plural {bad:?}");
            let version = Resource::new("g", bad.to_owned(), "p", "K");
            assert!(version.list_path(None).is_err(), "version {bad:?}");
            let group = Resource::new(bad.to_owned(), "v1", "p", "K");
            assert!(bad.is_empty() || group.list_path(None).is_err(), "group {bad:?}");
        }
        let long = "a".repeat(64);
        for bad in ["Team", "a.b", "-a", "a-", "a_b", "a?b", "a b", &long] {
            assert!(pods.list_path(Some(bad)).is_err(), "namespace {bad:?}");
        }
        assert!(pods.list_path(Some(&long[1..])).is_ok());
        assert_eq!(
            Resource::NODES.list_path(Some("a")).unwrap_err().to_string(),
            "nodes is not namespaced, but a namespace was given"
        );
        assert_eq!(
            pods.get_path(None, "a").unwrap_err().to_string(),
            "pods is namespaced: one object has no path without its namespace"
        );
        assert_eq!(
            pods.get_path(Some("a"), "b/c").unwrap_err().to_string(),
            "name \"b/c\" must not contain '/' or '%'"
        );
    }

    #[test]
    fn readings_of_a_name() {
        let read = |typed| -> Vec<_> { ResourceName::readings(typed).map(|r| (r.name, r.version, r.group)).collect() };
        assert_eq!(read("pods"), [("pods", None, None)]);
        assert_eq!(read("deployments.apps"), [("deployments", None, Some("apps"))]);
        assert_eq!(
            read("deployments.v1.apps"),
            [("deployments", Some("v1"), Some("apps")), ("deployments", None, Some("v1.apps"))]
        );
        assert_eq!(read("a.b.c.d"), [("a", Some("b"), Some("c.d")), ("a", None, Some("b.c.d"))]);
        assert_eq!(read("pods.v1."), [("pods", Some("v1"), None), ("pods", None, Some("v1."))]);
        assert_eq!(read("pods."), [("pods", None, None)]);
        assert_eq!(read(""), [("", None, None)]);
    }

    /// `group version plural singular kind short,names verbs`; `-` is empty.
    fn discovery() -> Vec<DiscoveredResource> {
        "- v1 pods pod Pod po get,list
         - v1 pods/log - Pod - get
         - v1 bindings binding Binding - create
         - v1 services service Service svc list
         - v1 events event Event ev list
         - v1 endpoints - Endpoints ep list
         events.k8s.io v1 events event Event ev list
         a.example v1 beacons beacon Beacon widgets,bcn list
         apps.example v1 deployments deployment Deployment - list
         apps v1 deployments deployment Deployment deploy list
         apps v1 statefulsets statefulset StatefulSet sts list
         autoscaling v2 horizontalpodautoscalers horizontalpodautoscaler HorizontalPodAutoscaler hpa list
         autoscaling v1 horizontalpodautoscalers horizontalpodautoscaler HorizontalPodAutoscaler hpa list
         storage.k8s.io v1 storageclasses storageclass StorageClass sc list
         storage.k8s.io v1beta1 onlybetas onlybeta OnlyBeta - list
         authentication.k8s.io v1 tokenreviews tokenreview TokenReview - create
         metrics.k8s.io v1beta1 pods pod PodMetrics - list
         example.com v2 widgets widg Widget wd,po list
         example.com v1 widgets widg Widget wd list
         v1.example.com v3 widgets widget Widget - list
         example.org v1 geese goose Goose - list
         example.org v1 gooses geese Geese - list"
            .lines()
            .map(|line| {
                let field: Vec<&str> = line.split_whitespace().collect();
                let text = |i: usize| field[i].trim_start_matches('-').to_owned();
                let list = |i: usize| {
                    let text = text(i);
                    let parts = text.split(',').filter(|part| !part.is_empty());
                    parts.map(str::to_owned).collect()
                };
                DiscoveredResource {
                    group: text(0),
                    version: text(1),
                    plural: text(2),
                    singular: text(3),
                    kind: text(4),
                    short_names: list(5),
                    namespaced: text(2) != "storageclasses",
                    verbs: list(6),
                }
            })
            .collect()
    }

    #[test]
    fn names_resolve_as_in_kubectl() {
        for (typed, expected) in [
            ("pods", "v1 pods"),
            ("pod", "v1 pods"),
            ("po", "v1 pods"),
            ("Pod", "v1 pods"),
            ("PODS", "v1 pods"),
            ("pods.v1.", "v1 pods"),
            ("pods.", "v1 pods"),
            ("pods.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods"),
            ("pods.v1beta1.metrics.k8s.io", "metrics.k8s.io/v1beta1 pods"),
            // A group may be cut short.
            ("pods.metrics", "metrics.k8s.io/v1beta1 pods"),
            ("events", "v1 events"),
            ("ev", "v1 events"),
            ("events.events.k8s.io", "events.k8s.io/v1 events"),
            ("ev.events", "events.k8s.io/v1 events"),
            ("endpoints", "v1 endpoints"),
            // A name goes before a short name, a whole group before one cut short.
            ("bcn", "a.example/v1 beacons"),
            ("widgets", "example.com/v2 widgets"),
            ("deployments.apps", "apps/v1 deployments"),
            ("deploy.apps", "apps/v1 deployments"),
            ("deploy.ap", "apps/v1 deployments"),
            ("deployments.ap", "apps.example/v1 deployments"),
            ("deployment.v1.apps", "apps/v1 deployments"),
            ("Deployment.v1.apps", "apps/v1 deployments"),
            ("hpa", "autoscaling/v2 horizontalpodautoscalers"),
            // kubectl drops the version beside a short name; we do not.
            ("hpa.v1.autoscaling", "autoscaling/v1 horizontalpodautoscalers"),
            ("horizontalpodautoscalers.v1.autoscaling", "autoscaling/v1 horizontalpodautoscalers"),
            ("storageclass.storage", "storage.k8s.io/v1 storageclasses"),
            ("onlybetas", "storage.k8s.io/v1beta1 onlybetas"),
            // Both readings exist: the version goes first.
            ("widgets.v1.example.com", "example.com/v1 widgets"),
            ("widgets.v3.v1.example.com", "v1.example.com/v3 widgets"),
            ("widgets.example.com", "example.com/v2 widgets"),
            ("widgets.v2.example.com", "example.com/v2 widgets"),
            // A name goes before a kind, whatever the order of groups.
            ("widget", "v1.example.com/v3 widgets"),
            ("widget.example.com", "example.com/v2 widgets"),
            ("widg", "example.com/v2 widgets"),
            ("goose", "example.org/v1 geese"),
        ] {
            let found = resolve(typed, &discovery()).unwrap_or_else(|e| panic!("{typed}: {e}"));
            assert_eq!(format!("{} {}", found.api_version(), found.plural()), expected, "{typed}");
        }
        let found = resolve("sc", &discovery()).unwrap();
        assert_eq!(found, Resource::STORAGE_CLASSES);
    }

    #[test]
    fn names_that_do_not_resolve() {
        for (typed, expected) in [
            ("pod s", r#"no resource "pod s" on this server; did you mean pods or pods.metrics.k8s.io?"#),
            ("pods.v1", r#"no resource "pods.v1" on this server; did you mean pods or pods.metrics.k8s.io?"#),
            (
                "deploymnets",
                r#"no resource "deploymnets" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            (
                "deployments.v9.apps",
                r#"no resource "deployments.v9.apps" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            // A group is not cut short where a version was typed.
            (
                "deployments.v1.ap",
                r#"no resource "deployments.v1.ap" on this server; did you mean deployments.apps.example or deployments.apps?"#,
            ),
            ("sts.v9.apps", r#"no resource "sts.v9.apps" on this server; did you mean statefulsets.apps?"#),
            ("pods/log", r#"no resource "pods/log" on this server"#),
            ("zebras", r#"no resource "zebras" on this server"#),
            ("", r#"no resource "" on this server"#),
            ("bindings", r#""bindings" is bindings, which the server does not list"#),
            ("tokenreview", r#""tokenreview" is tokenreviews.authentication.k8s.io, which the server does not list"#),
            ("geese", r#""geese" may be geese.example.org or gooses.example.org"#),
        ] {
            let error = resolve(typed, &discovery()).expect_err(typed);
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("pod s", "pods", 1),
            ("deploymnets", "deployments", 2),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
