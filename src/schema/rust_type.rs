//! The kinds that Rust types read, derived from the names of the types.
//!
//! Neither prost's `Message` nor serde's `Deserialize` names the kind of a type, and k8s-pb has no trait that does. But
//! the paths of the types in k8s-pb and k8s-openapi contain group, version and kind. The compiler does not guarantee
//! the text of these paths; if it changed, a type would not be checked.

use super::table::KINDS;
use crate::error::ItemError;
use crate::meta::TypeMeta;

const METADATA: &str = "PartialObjectMetadata";

/// Checks that objects with this type meta, or the items of a list with it, can be decoded as a type with this name.
///
/// It accepts all objects for a type that is no kind of k8s-pb or k8s-openapi, and an empty type meta, which is
/// unknown.
///
/// # Errors
///
/// [`ItemError::WrongKind`].
pub(crate) fn check_type(type_name: &str, found: &TypeMeta) -> Result<(), ItemError> {
    let path = type_name.strip_prefix("k8s_pb::").or_else(|| type_name.strip_prefix("k8s_openapi::"));
    let mut parts = path.unwrap_or_default().rsplit("::");
    // k8s-openapi has a module for each type.
    let mut version =
        |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let (Some(name), Some(version), Some(group)) = (parts.next(), parts.find(&mut version), parts.next()) else {
        return Ok(());
    };
    let kind = found.item_kind();
    // The metadata of any kind.
    if kind.is_empty() || name == METADATA {
        return Ok(());
    }
    let is_of = |api_version: &str| {
        let (found, found_version) = api_version.rsplit_once('/').unwrap_or(("core", api_version));
        // `networking.k8s.io` is the module `networking`.
        found_version == version && (found.split('.').next() == Some(group) || group == "apiserverinternal")
    };
    if name == kind && (is_of(&found.api_version) || found.api_version.is_empty()) {
        return Ok(());
    }
    // Other types, such as `PodSpec`, are parts of objects.
    let expected = KINDS.iter().find(|known| known.message().name() == name && is_of(known.api_version.get()));
    expected.map_or(Ok(()), |expected| check_kind(expected.api_version.get(), name, found))
}

/// Checks that objects with this type meta, or the items of a list with it, are of the expected kind.
///
/// It accepts `PartialObjectMetadata`, as which any kind can be requested, and an empty kind or version, which is
/// unknown.
///
/// # Errors
///
/// [`ItemError::WrongKind`].
pub fn check_kind(api_version: &str, kind: &str, found: &TypeMeta) -> Result<(), ItemError> {
    let is_version = found.api_version.is_empty() || found.api_version == api_version;
    match found.item_kind() {
        "" | METADATA => Ok(()),
        of_item if of_item == kind && is_version => Ok(()),
        of_item => Err(ItemError::WrongKind {
            found: format!("{of_item} of {}", found.api_version).into(),
            expected: format!("{kind} of {api_version}").into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use k8s_pb::api;
    use k8s_pb::apimachinery::pkg::apis::meta::v1::PartialObjectMetadata;

    use super::*;

    #[test]
    fn types_of_k8s_pb_read_their_own_kind() {
        let pod = type_name::<api::core::v1::Pod>();
        for (name, api_version, kind, expected) in [
            (pod, "v1", "PodList", None),
            (pod, "v1", "Pod", None),
            (pod, "", "", None),
            (pod, "", "PodList", None),
            (pod, "meta.k8s.io/v1", "PartialObjectMetadataList", None),
            (pod, "v1", "ConfigMapList", Some("the object is a ConfigMap of v1, the type reads a Pod of v1")),
            (pod, "", "Secret", Some("the object is a Secret of , the type reads a Pod of v1")),
            (
                pod,
                "metrics.k8s.io/v1beta1",
                "PodMetrics",
                Some("a PodMetrics of metrics.k8s.io/v1beta1, the type reads a Pod"),
            ),
            (type_name::<api::apps::v1::Deployment>(), "apps/v1", "DeploymentList", None),
            (
                type_name::<api::apps::v1::Deployment>(),
                "apps/v1beta1",
                "Deployment",
                Some("reads a Deployment of apps/v1"),
            ),
            (type_name::<api::events::v1::Event>(), "events.k8s.io/v1", "EventList", None),
            (type_name::<api::events::v1::Event>(), "v1", "EventList", Some("a Event of events.k8s.io/v1")),
            (type_name::<api::networking::v1::Ingress>(), "networking.k8s.io/v1", "Ingress", None),
            (type_name::<PartialObjectMetadata>(), "v1", "PodList", None),
            // A part of an object, and types that are not of Kubernetes.
            (type_name::<api::core::v1::PodSpec>(), "v1", "PodList", None),
            (type_name::<Vec<u8>>(), "v1", "PodList", None),
            ("k8s_openapi::v1_36::api::core::v1::secret::Secret", "v1", "ConfigMap", Some("reads a Secret of v1")),
            ("my::k8s_pb::api::core::v1::Secret", "v1", "ConfigMap", None),
        ] {
            let error = check_type(name, &TypeMeta::new(api_version, kind)).err().map(|error| error.to_string());
            let is_expected = match (&error, expected) {
                (Some(error), Some(expected)) => error.contains(expected),
                (error, expected) => error.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{name} of {kind}: {error:?}");
        }
    }
}
