//! Decoding items of a JSON list with serde.

use std::any::type_name;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::item::Item;
use super::item_ref::ItemRef;
use crate::error::ItemError;
use crate::meta::TypeMeta;
use crate::schema::check_type;
use crate::wire::Encoding;

/// Decodes the items of a JSON list as `Box<T>`, for any `T` that serde deserializes.
///
/// Servers send lists of custom resources in JSON only. An item in protobuf is an error, and so is an item that is
/// nested deeper than the 128 levels that `serde_json` allows.
///
/// serde does not tell which kind a type reads. So only the types of k8s-openapi are [checked](Item::check_kind):
/// another type may read objects of any kind, if their fields fit. For types that derive `kube::CustomResource`, `Kube`
/// of `listwatch-kube` checks the kind, too.
///
/// ```
/// use listwatch::{Json, ListReader};
///
/// #[derive(serde::Deserialize)]
/// struct Widget {
///     spec: Spec,
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     size: u32,
/// }
///
/// # let body = &include_bytes!("../../fixtures/widgets-page-1.json")[..];
/// let mut size = 0;
/// for widget in ListReader::new::<Json<Widget>>(body) {
///     size += widget?.spec.size;
/// }
/// # assert_eq!(size, 336);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned + Send + 'static> Item for Json<T> {
    type Owned = Box<T>;

    const ENCODING: Option<Encoding> = Some(Encoding::Json);

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        check_type(type_name::<T>(), type_meta)
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Box<T>, ItemError> {
        item.decode_json()
    }
}
