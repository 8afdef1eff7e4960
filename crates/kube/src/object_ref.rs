//! Keys of objects as kube names them: `ObjectRef`.

use kube::runtime::reflector::{Lookup, ObjectRef};
use listwatch_cache::{Object, ObjectKey, StoreType};

/// Converts kube's [`ObjectRef`] to the key of an object in a cache.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::reflector::ObjectRef;
/// use listwatch_cache::{StorageFormat, Store};
/// use listwatch_kube::{Kube, ToObjectKey as _};
///
/// let pods = Store::<Kube<Pod>>::new(StorageFormat::Encoded);
/// let web = ObjectRef::<Pod>::new("web").within("shop");
/// assert!(pods.get(web.as_key()).is_none());
/// ```
///
/// kube's `Store::get` tries a key with a namespace without it, too, in case the kind is cluster-scoped. A cache does
/// not: create the key of a cluster-scoped object without `within`.
pub trait ToObjectKey {
    /// Returns namespace and name, for [`StoreReader::get`](listwatch_cache::StoreReader::get).
    fn as_key(&self) -> (&str, &str);

    /// Returns a copy of namespace and name.
    fn to_object_key(&self) -> ObjectKey {
        let (namespace, name) = self.as_key();
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl<K: Lookup + ?Sized> ToObjectKey for ObjectRef<K> {
    fn as_key(&self) -> (&str, &str) {
        (self.namespace.as_deref().unwrap_or_default(), &self.name)
    }
}

/// Creates kube's [`ObjectRef`].
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::api::DynamicObject;
/// use kube::discovery::ApiResource;
/// use kube::runtime::reflector::ObjectRef;
/// use listwatch::client::Resource;
/// use listwatch_cache::ObjectKey;
/// use listwatch_kube::{FromResource as _, ToObjectRef as _};
///
/// let key = ObjectKey { namespace: "shop".to_owned(), name: "web".to_owned() };
/// assert_eq!(key.to_object_ref::<Pod>(()), ObjectRef::new("web").within("shop"));
/// let pods = ApiResource::from_resource(&Resource::PODS);
/// assert_eq!(key.to_object_ref::<DynamicObject>(pods).to_string(), "Pod.v1./web.shop");
/// ```
pub trait ToObjectRef {
    /// Creates a reference to an object of this type, which is `()` if `K` names its resource.
    fn to_object_ref<K: Lookup>(&self, dyntype: K::DynamicType) -> ObjectRef<K>;
}

impl ToObjectRef for ObjectKey {
    fn to_object_ref<K: Lookup>(&self, dyntype: K::DynamicType) -> ObjectRef<K> {
        object_ref(&self.namespace, &self.name, dyntype)
    }
}

/// The reference also has uid and resource version, for owner references and events.
impl<T: StoreType + ?Sized> ToObjectRef for Object<T> {
    fn to_object_ref<K: Lookup>(&self, dyntype: K::DynamicType) -> ObjectRef<K> {
        let mut reference = object_ref(self.namespace(), self.name(), dyntype);
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        reference.extra.uid = given(self.uid());
        reference.extra.resource_version = given(self.resource_version());
        reference
    }
}

fn object_ref<K: Lookup>(namespace: &str, name: &str, dyntype: K::DynamicType) -> ObjectRef<K> {
    let reference = ObjectRef::new_with(name, dyntype);
    if namespace.is_empty() { reference } else { reference.within(namespace) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::DynamicObject;
    use kube::discovery::ApiResource;
    use listwatch::Encoding;
    use listwatch::client::Resource;
    use listwatch_cache::{StorageFormat, Store};

    use super::*;
    use crate::{FromResource as _, Kube};

    #[test]
    fn keys_and_references_of_static_and_dynamic_types_find_the_same_object() {
        let widgets = Resource::new("example.com", "v1beta1", "widgets", "Widget");
        let store = Store::<Kube<DynamicObject>>::new(StorageFormat::Encoded);
        for (namespace, name) in [("shop", "web"), ("", "node-1")] {
            let within = if namespace.is_empty() { String::new() } else { format!(r#""namespace":"{namespace}","#) };
            let json = format!(
                r#"{{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{{{within}"name":"{name}","uid":"u-{name}",
                "resourceVersion":"7"}}}}"#
            );
            drop(store.apply(Encoding::Json, json.as_bytes()).unwrap());
            let object = store.get((namespace, name)).unwrap();
            let dyntype = ApiResource::from_resource(&widgets);
            // As kube creates it, from the decoded object.
            let of_kube = ObjectRef::from_obj_with(&*object.decode().unwrap(), dyntype.clone());
            let reference = object.to_object_ref::<DynamicObject>(dyntype.clone());
            assert_eq!(reference, of_kube);
            assert_eq!(reference.extra.uid, Some(format!("u-{name}")));
            assert_eq!(reference.extra.resource_version.as_deref(), Some("7"));
            assert_eq!(object.key().to_object_ref::<DynamicObject>(dyntype), of_kube);
            let key = of_kube.to_object_key();
            assert_eq!(key, object.key());
            assert_eq!(key.to_object_ref::<Pod>(()).to_object_key(), key);
            for found in [store.get(of_kube.as_key()), store.get(&key)] {
                assert_eq!(found.unwrap().uid(), object.uid());
            }
        }
    }
}
