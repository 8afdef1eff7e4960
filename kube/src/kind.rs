//! Types of k8s-openapi, and types that derive `kube::CustomResource`, as items of a list.

use std::marker::PhantomData;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use listwatch::client::{Kind, Resource};
use listwatch::{Encoding, InvalidInput, Item, ItemError, ItemRef, Json, LabelSelector};
#[cfg(feature = "cache")]
use listwatch_cache::StoreType;
use serde::de::DeserializeOwned;

/// Decodes each item of a list as a `Box<K>`, for a type of k8s-openapi or a type that derives `kube::CustomResource`.
///
/// The list requests JSON, because these types are decoded from JSON. The types of k8s-pb for built-in kinds are decoded from
/// protobuf, which is smaller and faster.
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

    fn from_ref(item: ItemRef<'_>) -> Result<Box<K>, ItemError> {
        Json::<K>::from_ref(item)
    }
}

/// A type of a cache, whose readers share one decoded `K`.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Pod;
/// use listwatch::client::Client;
/// use listwatch_cache::Reflector;
/// use listwatch_kube::Kube;
///
/// # fn run(client: &Client) {
/// let reflector = Reflector::<Kube<Pod>>::of(client);
/// # }
/// ```
#[cfg(feature = "cache")]
impl<K: DeserializeOwned + serde::Serialize + Send + Sync + 'static> StoreType for Kube<K> {
    type Decoded = K;

    fn decode(encoding: Encoding, bytes: &[u8]) -> Result<K, ItemError> {
        <Json<K> as StoreType>::decode(encoding, bytes)
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

/// Converts selectors of k8s-openapi.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
/// use listwatch_kube::ToLabelSelector as _;
///
/// let web = LabelSelector { match_labels: Some([("app".into(), "web".into())].into()), ..LabelSelector::default() };
/// assert_eq!(web.to_label_selector()?.to_string(), "app=web");
/// # Ok::<(), listwatch::InvalidInput>(())
/// ```
pub trait ToLabelSelector {
    /// Converts the selector of a Deployment, a Service or another object.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] for an operator other than `In`, `NotIn`, `Exists` and `DoesNotExist`, and for an expression
    /// whose key or values an API server refuses.
    fn to_label_selector(&self) -> Result<LabelSelector, InvalidInput>;
}

impl ToLabelSelector for k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
    fn to_label_selector(&self) -> Result<LabelSelector, InvalidInput> {
        let labels = self.match_labels.iter().flatten();
        let equal = labels.fold(LabelSelector::new(), |all, (key, value)| all.equal(key, value));
        self.match_expressions.iter().flatten().try_fold(equal, |all, expression| {
            all.requirement(&expression.key, &expression.operator, expression.values.iter().flatten())
        })
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

    use super::*;

    #[test]
    fn converts_label_selectors_and_rejects_other_operators() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

        let of = |operator: &str, values: &[&str]| {
            let requirement = meta::LabelSelectorRequirement {
                key: "k".to_owned(),
                operator: operator.to_owned(),
                values: Some(values.iter().map(ToString::to_string).collect()),
            };
            let match_labels = Some([("app".to_owned(), "web".to_owned())].into());
            meta::LabelSelector { match_labels, match_expressions: Some(vec![requirement]) }.to_label_selector()
        };
        assert_eq!(of("In", &["a", "b"]).unwrap().to_string(), "app=web,k in (a,b)");
        assert_eq!(of("DoesNotExist", &[]).unwrap().to_string(), "app=web,!k");
        assert!(of("Gt", &["1"]).is_err());
    }

    #[test]
    fn kube_types_map_to_their_resources() {
        assert_eq!(Resource::of::<Kube<Pod>>(), Resource::PODS);
        assert_eq!(Resource::of::<Kube<Node>>(), Resource::NODES);
        assert_eq!(Resource::of::<Kube<k8s_openapi::api::apps::v1::Deployment>>(), Resource::DEPLOYMENTS);
    }
}
