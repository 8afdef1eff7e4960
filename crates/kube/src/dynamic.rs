//! Resources as kube names them: `ApiResource` and `GroupVersionKind`.

use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, ApiResource, Scope, verbs};
use listwatch::client::Resource;

/// Converts kube's resources, for kinds that are known only at run time.
///
/// kube's `ApiResource` has no scope, which kube's discovery returns next to it.
///
/// ```no_run
/// use kube::api::DynamicObject;
/// use kube::core::GroupVersionKind;
/// use kube::discovery::pinned_kind;
/// use listwatch::client::Client;
/// use listwatch_cache::Reflector;
/// use listwatch_kube::{Kube, ToResource as _};
///
/// # async fn run(kube: kube::Client, client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
/// let certificates = pinned_kind(&kube, &gvk).await?.to_resource();
/// let bytes = Reflector::<[u8]>::new(&client, &certificates);
/// let objects = Reflector::<Kube<DynamicObject>>::new(&client, &certificates);
/// // The same without kube's discovery.
/// let resolved = client.resolve(&format!("{}/{}", gvk.api_version(), gvk.kind)).await?;
/// assert_eq!(resolved, certificates);
/// # drop((bytes, objects));
/// # Ok(())
/// # }
/// ```
///
/// A type with another `DynamicType` converts by `ApiResource::erase`:
/// `(ApiResource::erase::<K>(&dyntype), Scope::Namespaced).to_resource()`. A type without one implements
/// [`Kind`](listwatch::client::Kind) in the wrapper [`Kube`](crate::Kube).
pub trait ToResource {
    /// Returns the resource. It is [without watch](Resource::without_watch) if the server is known not to watch it.
    fn to_resource(&self) -> Resource;
}

/// The result of kube's discovery.
impl ToResource for (ApiResource, ApiCapabilities) {
    fn to_resource(&self) -> Resource {
        let (resource, capabilities) = self;
        let resource = of_scope(resource, &capabilities.scope);
        if capabilities.supports_operation(verbs::WATCH) { resource } else { resource.without_watch() }
    }
}

/// A resource that the server watches.
impl ToResource for (ApiResource, Scope) {
    fn to_resource(&self) -> Resource {
        of_scope(&self.0, &self.1)
    }
}

fn of_scope(resource: &ApiResource, scope: &Scope) -> Resource {
    let ApiResource { group, version, kind, plural, .. } = resource.clone();
    let resource = Resource::new(group, version, plural, kind);
    match scope {
        Scope::Namespaced => resource,
        Scope::Cluster => resource.cluster_scoped(),
    }
}

/// Creates kube's names of a [`Resource`], for kube's dynamic `Api` for example.
///
/// ```
/// use kube::discovery::ApiResource;
/// use listwatch::client::Resource;
/// use listwatch_kube::FromResource as _;
///
/// let deployments = ApiResource::from_resource(&Resource::DEPLOYMENTS);
/// assert_eq!(deployments, ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&()));
/// ```
pub trait FromResource {
    /// Creates it. The scope of the resource is lost.
    fn from_resource(resource: &Resource) -> Self;
}

impl FromResource for GroupVersionKind {
    fn from_resource(resource: &Resource) -> Self {
        Self::gvk(resource.group(), resource.version(), resource.kind())
    }
}

impl FromResource for ApiResource {
    fn from_resource(resource: &Resource) -> Self {
        Self::from_gvk_with_plural(&GroupVersionKind::from_resource(resource), resource.plural())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use listwatch::client::Kind;

    use super::*;
    use crate::Kube;

    fn widgets() -> Resource {
        Resource::new("example.com", "v1beta1", "widgets", "Widget")
    }

    #[test]
    fn resources_survive_a_round_trip() {
        for resource in [Resource::PODS, Resource::NODES, Resource::DEPLOYMENTS, Resource::ENDPOINTS, widgets()] {
            let scope = if resource.is_namespaced() { Scope::Namespaced } else { Scope::Cluster };
            let api = ApiResource::from_resource(&resource);
            assert_eq!((api.api_version.clone(), &*api.plural), (resource.api_version(), resource.plural()));
            let gvk = GroupVersionKind::from_resource(&resource);
            assert_eq!((gvk.api_version(), &*gvk.kind), (resource.api_version(), resource.kind()));
            assert_eq!((api.clone(), scope.clone()).to_resource(), resource);
            for (operations, expected) in
                [(vec!["list", "watch"], resource.clone()), (vec!["list"], resource.clone().without_watch())]
            {
                let operations = operations.into_iter().map(str::to_owned).collect();
                let capabilities = ApiCapabilities { scope: scope.clone(), subresources: Vec::new(), operations };
                assert_eq!((api.clone(), capabilities).to_resource(), expected);
            }
        }
    }

    #[test]
    fn static_types_and_dynamic_types_have_the_same_resource() {
        let erased = |resource, scope| (resource, scope).to_resource();
        assert_eq!(erased(ApiResource::erase::<Pod>(&()), Scope::Namespaced), Kube::<Pod>::resource());
        assert_eq!(erased(ApiResource::erase::<Node>(&()), Scope::Cluster), Kube::<Node>::resource());
        let dynamic = ApiResource::from_resource(&widgets());
        let again = ApiResource::erase::<kube::api::DynamicObject>(&dynamic);
        assert_eq!(erased(again, Scope::Namespaced), widgets());
    }
}
