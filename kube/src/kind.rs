//! Types of k8s-openapi, and types that derive `kube::CustomResource`, as items of lists and objects of caches.

use std::marker::PhantomData;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use listwatch::client::{Kind, Resource};
use listwatch::{Encoding, Item, ItemError, ItemRef, Json, TypeMeta};
use listwatch_cache::StoreType;
use serde::de::DeserializeOwned;

/// The item type of a list whose items are decoded as `Box<K>`.
///
/// `K` is a type of k8s-openapi, or a type that derives `kube::CustomResource`. The list requests JSON, because these
/// types are decoded from JSON. The types of k8s-pb for built-in kinds are decoded from protobuf, which is smaller and
/// faster.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Pod;
/// use listwatch::client::{Client, ListParams};
/// use listwatch_kube::Kube;
///
/// # async fn run(client: Client) -> Result<(), listwatch::client::Error> {
/// let (pods, _) = client.list_of::<Kube<Pod>>(&ListParams::default()).into_vec().await?;
/// println!("{:?}", pods[0].metadata.name);
/// # Ok(())
/// # }
/// ```
pub struct Kube<K>(PhantomData<fn() -> K>);

impl<K: DeserializeOwned + Send + 'static> Item for Kube<K> {
    type Owned = Box<K>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        Json::<K>::check_kind(type_meta)
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Box<K>, ItemError> {
        Json::<K>::from_ref(item)
    }
}

/// The object type of a cache whose readers share one decoded `K`.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Pod;
/// use listwatch::client::Client;
/// use listwatch_cache::Reflector;
/// use listwatch_kube::Kube;
///
/// # fn run(client: &Client) {
/// let pods = Reflector::<Kube<Pod>>::of(client).spawn();
/// # }
/// ```
impl<K: DeserializeOwned + serde::Serialize + Send + Sync + 'static> StoreType for Kube<K> {
    type Decoded = K;

    fn decode(item: ItemRef<'_>) -> Result<K, ItemError> {
        <Json<K> as StoreType>::decode(item)
    }

    fn encode(decoded: &K) -> Result<Vec<u8>, ItemError> {
        <Json<K> as StoreType>::encode(decoded)
    }
}

impl<K: kube::Resource<DynamicType = (), Scope: Scope>> Kind for Kube<K> {
    fn resource() -> Resource {
        let text = |text: std::borrow::Cow<'_, str>| text.into_owned();
        let resource =
            Resource::new(text(K::group(&())), text(K::version(&())), text(K::plural(&())), text(K::kind(&())));
        if K::Scope::IS_NAMESPACED { resource } else { resource.cluster_scoped() }
    }
}

/// The scope of a collection: namespaces or the cluster. Subresources have neither.
pub trait Scope {
    /// True if objects are in namespaces.
    const IS_NAMESPACED: bool;
}

impl Scope for NamespaceResourceScope {
    const IS_NAMESPACED: bool = true;
}

impl Scope for ClusterResourceScope {
    const IS_NAMESPACED: bool = false;
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use listwatch::Tolerant;

    use super::*;

    #[test]
    fn types_of_k8s_openapi_read_their_own_kind() {
        assert!(Kube::<Pod>::check_kind(&TypeMeta::new("v1", "PodList")).is_ok());
        let error = Kube::<Pod>::check_kind(&TypeMeta::new("v1", "ConfigMap")).unwrap_err().to_string();
        assert_eq!(error, "unexpected kind: the object is a ConfigMap of v1, the type reads a Pod of v1");
    }

    #[test]
    fn kube_types_map_to_their_resources() {
        assert_eq!(Resource::of::<Kube<Pod>>(), Resource::PODS);
        assert_eq!(Resource::of::<Kube<Node>>(), Resource::NODES);
        assert_eq!(Resource::of::<Tolerant<Kube<Pod>>>(), Resource::PODS);
        assert_eq!(Resource::of::<Kube<k8s_openapi::api::apps::v1::Deployment>>(), Resource::DEPLOYMENTS);
    }
}
