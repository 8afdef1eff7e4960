//! Resources: group, version, plural and kind, and their paths.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::error::InvalidInput;
use crate::meta::{OneLine, TypeMeta};
use crate::object::{Item, Json, Tolerant};

/// A kind of object that an API server lists, with its group, version, plural name and scope.
///
/// Built-in kinds are constants, such as `Resource::PODS`. [`Resource::of`] returns the resource of a type that
/// implements [`Kind`], [`Resource::new`] creates any other, and [`Client::resolve`](super::Client::resolve) finds one
/// by a name that a user typed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    plural: Cow<'static, str>,
    kind: Cow<'static, str>,
    namespaced: bool,
    watchable: bool,
}

impl Resource {
    /// Returns the resource of a type.
    ///
    /// ```
    /// # #[cfg(feature = "k8s-pb")] {
    /// use k8s_pb::api::core::v1::Pod;
    /// use listwatch::client::Resource;
    ///
    /// assert_eq!(Resource::of::<Pod>(), Resource::PODS);
    /// # }
    /// ```
    #[must_use]
    pub fn of<K: Kind + ?Sized>() -> Self {
        K::resource()
    }

    /// Creates a namespaced resource. The core group is `""`.
    ///
    /// [`cluster_scoped`](Self::cluster_scoped) makes it cluster-scoped. Names are checked when a request is sent. If
    /// the kind is empty, objects of any kind are accepted.
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
            watchable: true,
        }
    }

    /// Creates a namespaced resource in a constant, as [`Resource::new`] does elsewhere.
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
            watchable: true,
        }
    }

    /// Makes the resource cluster-scoped.
    #[must_use]
    pub const fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Marks a resource that the server lists but does not watch, as in `metrics.k8s.io`.
    ///
    /// Watches and reflectors of the resource then end at once in an error.
    #[must_use]
    pub const fn without_watch(mut self) -> Self {
        self.watchable = false;
        self
    }

    /// Returns the API group; `""` for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the version within the group, such as `v1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the plural name in lower case, as in paths, such as `pods`.
    #[must_use]
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Returns the kind of one object, such as `Pod`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns true if objects are in namespaces.
    #[must_use]
    pub const fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Returns true unless the server is known not to watch the resource.
    #[must_use]
    pub const fn is_watchable(&self) -> bool {
        self.watchable
    }

    #[doc(hidden)]
    pub fn check_watchable(&self) -> Result<(), InvalidInput> {
        if self.watchable {
            return Ok(());
        }
        Err(InvalidInput::new(format!("{self} cannot be watched: the server only lists it"), ""))
    }

    /// Returns `group/version`, or only the version in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Checks that objects of the resource can be decoded as `T`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] when `T` is known to read another kind.
    #[doc(hidden)]
    pub fn check_type<T: Item + ?Sized>(&self) -> Result<(), InvalidInput> {
        let kind = TypeMeta::new(self.api_version(), self.kind());
        T::check_kind(&kind).map_err(|error| InvalidInput::new(error.to_string(), self.kind()))
    }

    /// Returns the path of the collection in one namespace, or with `None` in all namespaces or in the cluster.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] for a namespace of a cluster-scoped resource; for a namespace that is not a DNS label, because
    /// the server would return an empty list; and for a group, version or plural that cannot be part of a path.
    pub fn list_path(&self, namespace: Option<&str>) -> Result<String, InvalidInput> {
        let mut path = if self.group.is_empty() {
            String::from("/api")
        } else {
            format!("/apis/{}", segment("group", &self.group)?)
        };
        path.push('/');
        path.extend(segment("version", &self.version)?);
        if let Some(namespace) = namespace {
            if !self.namespaced {
                let message = format!("{self} is not namespaced, but a namespace was given");
                return Err(InvalidInput::new(message, namespace));
            }
            if !is_dns_label(namespace) {
                let rule = "must be 1 to 63 of a-z, 0-9 and '-', and start and end with a letter or digit";
                return Err(InvalidInput::new(format!("namespace {namespace:?} {rule}"), namespace));
            }
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.extend(segment("plural", &self.plural)?);
        Ok(path)
    }

    /// Returns the path of one object.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] as for [`Resource::list_path`], for a missing namespace, and for a name that the server
    /// refuses: one that is empty, `.` or `..`, or contains `/` or `%` (apimachinery `content.IsPathSegmentName`).
    pub fn get_path(&self, namespace: Option<&str>, name: &str) -> Result<String, InvalidInput> {
        if self.namespaced && namespace.is_none() {
            return Err(InvalidInput::new(format!("{self} is namespaced, but no namespace was given"), ""));
        }
        let mut path = self.list_path(namespace)?;
        path.push('/');
        path.extend(segment("name", name)?);
        Ok(path)
    }
}

/// Writes the name that users type and [`Client::resolve`](super::Client::resolve) finds, such as `deployments.apps`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", OneLine(&typed_name(&self.plural, &self.group)))
    }
}

/// A type whose values are the objects of one resource.
///
/// [`Client::list_of`](super::Client::list_of), [`Client::watch_of`](super::Client::watch_of) and [`Resource::of`] need
/// the trait. The feature `k8s-pb` implements it for the types of k8s-pb, and `listwatch-kube` has a wrapper for the
/// types of k8s-openapi and for types that derive `kube::CustomResource`. Your own type implements one function:
///
/// ```
/// use listwatch::client::{Kind, Resource};
///
/// struct Widget;
///
/// impl Kind for Widget {
///     fn resource() -> Resource {
///         Resource::new("example.com", "v1", "widgets", "Widget")
///     }
/// }
///
/// assert_eq!(Resource::of::<Widget>().to_string(), "widgets.example.com");
/// ```
pub trait Kind {
    /// Returns the resource.
    fn resource() -> Resource;
}

impl<T: Kind> Kind for Json<T> {
    fn resource() -> Resource {
        T::resource()
    }
}

impl<T: Kind + ?Sized> Kind for Tolerant<T> {
    fn resource() -> Resource {
        T::resource()
    }
}

#[cfg(feature = "k8s-pb")]
impl<K: k8s_pb::Resource<Scope: scope::Scope>> Kind for K {
    fn resource() -> Resource {
        use scope::Scope as _;

        let resource = Resource::from_static(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT, K::KIND);
        if K::Scope::IS_NAMESPACED { resource } else { resource.cluster_scoped() }
    }
}

#[cfg(feature = "k8s-pb")]
mod scope {
    /// The scope of a collection. Scopes of subresources do not implement this trait.
    pub trait Scope {
        const IS_NAMESPACED: bool;
    }

    impl Scope for k8s_pb::NamespaceResourceScope {
        const IS_NAMESPACED: bool = true;
    }

    impl Scope for k8s_pb::ClusterResourceScope {
        const IS_NAMESPACED: bool = false;
    }
}

pub(super) fn typed_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// The characters that a path segment or a query value contains as they are. RBAC names are full of colons.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

pub(super) fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, PLAIN)
}

/// Encodes a path segment. Dots are refused rather than encoded, because URL parsers read `%2e%2e` as `..`.
pub(super) fn segment<'a>(what: &'static str, value: &'a str) -> Result<PercentEncode<'a>, InvalidInput> {
    let reason = match value {
        "" => "must not be empty",
        "." | ".." => "would change the path",
        _ if value.contains(['/', '%']) => "must not contain '/' or '%'",
        _ => return Ok(encode(value)),
    };
    Err(InvalidInput::new(format!("{what} {value:?} {reason}"), value))
}

/// Returns true for a DNS label, which a namespace must be (apimachinery `content.IsDNS1123Label`).
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
    fn derives_names_from_the_parts() {
        const GADGETS: Resource = Resource::from_static("example.com", "v2", "gadgets", "Gadget").cluster_scoped();
        assert_eq!(
            (GADGETS.group(), GADGETS.version(), GADGETS.plural(), GADGETS.kind()),
            ("example.com", "v2", "gadgets", "Gadget")
        );
        assert!(!GADGETS.is_namespaced() && widgets().is_namespaced());
        assert_eq!(Resource::PODS.api_version(), "v1");
        assert_eq!(Resource::DEPLOYMENTS.api_version(), "apps/v1");
        assert_eq!(Resource::PODS.to_string(), "pods");
        assert_eq!(widgets().to_string(), "widgets.example.com");
    }

    #[test]
    fn built_in_resources_are_distinct_and_have_paths() {
        assert_eq!(Resource::BUILT_IN.len(), 85);
        for (i, a) in Resource::BUILT_IN.iter().enumerate() {
            let same = |b: &Resource| (b.group(), b.version(), b.plural()) == (a.group(), a.version(), a.plural());
            assert!(!Resource::BUILT_IN[i + 1..].iter().any(same), "{a:?} occurs twice");
            assert!(a.list_path(None).is_ok());
        }
        // Spot checks of error-prone entries.
        assert!(!Resource::CLUSTER_TRUST_BUNDLES.is_namespaced());
        assert!(Resource::CSI_STORAGE_CAPACITIES.is_namespaced());
        assert_eq!(Resource::HORIZONTAL_POD_AUTOSCALERS.version(), "v2");
        assert_eq!(Resource::EVENTS_K8S_IO.group(), "events.k8s.io");
        assert_eq!(Resource::API_SERVICES.kind(), "APIService");
    }

    #[test]
    fn paths_are_encoded() {
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
        assert_eq!(Resource::new("g", "v1", "a\nb", "K").to_string(), "a\\nb.g");
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
        assert_eq!(pods.get_path(None, "a").unwrap_err().to_string(), "pods is namespaced, but no namespace was given");
        assert_eq!(
            pods.get_path(Some("a"), "b/c").unwrap_err().to_string(),
            "name \"b/c\" must not contain '/' or '%'"
        );
    }
}
