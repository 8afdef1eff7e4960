//! Types of k8s-openapi, and types that derive `kube::CustomResource`, as items of lists and objects of caches.

use std::any::Any;
use std::marker::PhantomData;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use listwatch::client::{Kind, Resource};
use listwatch::internal::check_kind;
use listwatch::{Encoding, Item, ItemError, ItemRef, Json, TypeMeta};
use listwatch_cache::StoreType;
use serde::de::DeserializeOwned;

/// The item type of a list whose items are decoded as `Box<K>`.
///
/// `K` is a type of k8s-openapi, or a type that derives `kube::CustomResource`. The list requests JSON, because these
/// types are decoded from JSON. The types of k8s-pb for built-in kinds are decoded from protobuf, which is smaller and
/// faster.
///
/// A list, a watch, a get or a cache of another kind than `K` is an error before any request
/// ([`ItemError::WrongKind`](listwatch::ItemError)), and so is a body with objects of another kind. A type whose kind
/// is known only at run time, such as `DynamicObject`, accepts every kind.
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

impl<K: kube::Resource + DeserializeOwned + Send + 'static> Item for Kube<K> {
    type Owned = Box<K>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        let none: &dyn Any = &();
        match none.downcast_ref::<K::DynamicType>() {
            Some(none) => check_kind(&K::api_version(none), &K::kind(none), type_meta),
            None => Ok(()),
        }
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Box<K>, ItemError> {
        Json::<K>::from_ref(item)
    }
}

/// The object type of a cache whose objects are decoded as `K`.
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
impl<K: kube::Resource + DeserializeOwned + serde::Serialize + Send + Sync + 'static> StoreType for Kube<K> {
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
    use kube::api::DynamicObject;
    use kube::core::PartialObjectMeta;
    use listwatch::Tolerant;
    use listwatch::client::{Client, ListParams, Request, ResponseFuture, Transport, WatchParams};
    use listwatch_cache::Reflector;

    use super::*;

    #[derive(kube::CustomResource, serde::Deserialize, serde::Serialize, Clone, Debug)]
    #[kube(group = "example.com", version = "v1", kind = "Widget", namespaced, schema = "disabled")]
    struct WidgetSpec {}

    #[test]
    fn types_read_their_own_kind() {
        type Check = fn(&TypeMeta) -> Result<(), ItemError>;
        let a_pod = Some("the type reads a Pod of v1");
        let a_widget = Some("the type reads a Widget of example.com/v1");
        for (name, check, api_version, kind, expected) in [
            ("Pod", Kube::<Pod>::check_kind as Check, "v1", "PodList", None),
            ("Pod", Kube::<Pod>::check_kind, "v1", "ConfigMap", a_pod),
            ("Json<Pod>", Json::<Pod>::check_kind, "v1", "PodList", None),
            ("Json<Pod>", Json::<Pod>::check_kind, "v1", "ConfigMap", a_pod),
            ("Json<Widget>", Json::<Widget>::check_kind, "v1", "ConfigMap", None),
            ("Widget", Kube::<Widget>::check_kind, "example.com/v1", "WidgetList", None),
            ("Widget", Kube::<Widget>::check_kind, "example.com/v1", "Widget", None),
            ("Widget", Kube::<Widget>::check_kind, "", "", None),
            ("Widget", Kube::<Widget>::check_kind, "meta.k8s.io/v1", "PartialObjectMetadataList", None),
            ("Widget", Kube::<Widget>::check_kind, "example.com/v1beta1", "Widget", a_widget),
            ("Widget", Kube::<Widget>::check_kind, "example.org/v1", "WidgetList", a_widget),
            ("Widget", Kube::<Widget>::check_kind, "example.com/v1", "GadgetList", a_widget),
            ("Widget", Kube::<Widget>::check_kind, "v1", "ConfigMapList", a_widget),
            ("metadata", Kube::<PartialObjectMeta<Widget>>::check_kind, "example.com/v1", "Widget", None),
            ("metadata", Kube::<PartialObjectMeta<Widget>>::check_kind, "v1", "ConfigMap", a_widget),
            ("tolerant", Tolerant::<Kube<Widget>>::check_kind, "v1", "ConfigMap", a_widget),
            ("dynamic", Kube::<DynamicObject>::check_kind, "v1", "ConfigMap", None),
        ] {
            let error = check(&TypeMeta::new(api_version, kind)).err().map(|error| error.to_string());
            match (&error, expected) {
                (Some(error), Some(expected)) => assert!(error.contains(expected), "{name} of {kind}: {error}"),
                (error, expected) => assert_eq!(error.as_deref(), expected, "{name} of {kind}"),
            }
        }
    }

    /// A transport that no request reaches.
    struct Unreachable;

    impl Transport for Unreachable {
        fn get(&self, request: Request) -> ResponseFuture<'_> {
            panic!("{request:?}")
        }
    }

    #[tokio::test]
    async fn a_derived_type_of_another_kind_is_an_error_before_any_request() {
        let (client, resource) = (Client::new(Unreachable), Resource::CONFIG_MAPS);
        let listed = client.list::<Kube<Widget>>(&resource, &ListParams::default()).into_vec().await.unwrap_err();
        let watched = client.watch::<Kube<Widget>>(&resource, &WatchParams::from_now()).next().await.unwrap();
        let got = client.get::<Kube<Widget>>(&resource, Some("a"), "b").await.unwrap_err();
        let cache = Reflector::<Kube<Widget>>::new(&client, &resource).spawn();
        let cached = cache.synced().await.unwrap_err();
        for error in [listed.to_string(), watched.unwrap_err().to_string(), got.to_string(), cached.to_string()] {
            let expected = "the object is a ConfigMap of v1, the type reads a Widget of example.com/v1";
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn kube_types_map_to_their_resources() {
        assert_eq!(Resource::of::<Kube<Pod>>(), Resource::PODS);
        assert_eq!(Resource::of::<Kube<Node>>(), Resource::NODES);
        assert_eq!(Resource::of::<Tolerant<Kube<Pod>>>(), Resource::PODS);
        assert_eq!(Resource::of::<Kube<k8s_openapi::api::apps::v1::Deployment>>(), Resource::DEPLOYMENTS);
    }
}
