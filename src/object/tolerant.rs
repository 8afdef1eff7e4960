//! Items that may not fit their type.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use super::item::Item;
use super::meta_view::MetaView;
use crate::encoding::item_ref::ItemRef;
use crate::error::ItemError;
use crate::meta::{OneLine, TypeMeta};
use crate::wire::Encoding;

/// Decodes items as `T`, and returns an object that does not fit as an [`UndecodableObject`] instead of an error.
///
/// One such object therefore ends neither a list nor a watch. kube's `DeserializeGuard` does the same for types of
/// serde, but copies each object before it decodes it, while this type costs nothing until an object does not fit. An
/// object over a limit of the body still ends the list or watch.
///
/// ```
/// use listwatch::{Json, ListReader, Tolerant};
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
/// # let body = &br#"{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[
/// #     {"metadata":{"namespace":"shop","name":"a","resourceVersion":"7"},"spec":{"size":3}},
/// #     {"metadata":{"namespace":"shop","name":"b","resourceVersion":"8"},"spec":{"size":"large"}}]}"#[..];
/// # let mut seen = Vec::new();
/// for widget in ListReader::new::<Tolerant<Json<Widget>>>(body) {
///     match widget? {
///         Ok(widget) => println!("{}", widget.spec.size),
///         Err(undecodable) => {
///             eprintln!("{undecodable}"); // cannot decode shop/b at version 8: …: invalid type: string "large", …
/// #           seen.push(undecodable.to_string());
///         }
///     }
/// }
/// # assert!(seen.len() == 1 && seen[0].starts_with("cannot decode shop/b at version 8: "), "{seen:?}");
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
pub struct Tolerant<T: ?Sized>(PhantomData<fn() -> T>);

impl<T: Item + ?Sized> Item for Tolerant<T> {
    type Owned = Result<T::Owned, UndecodableObject>;

    const ENCODING: Option<Encoding> = T::ENCODING;

    fn check_kind(type_meta: &TypeMeta) -> Result<(), ItemError> {
        T::check_kind(type_meta)
    }

    fn from_ref(item: ItemRef<'_>) -> Result<Self::Owned, ItemError> {
        Ok(T::from_ref(item).map_err(|error| UndecodableObject::new(&item, error)))
    }
}

/// An object that does not fit its type, and why.
///
/// It is displayed on one line, with the error of the decoder. serde's error contains the column of the fault, which is
/// the offset in the object if the server sends JSON on one line, as API servers do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndecodableObject {
    /// The namespace; empty for a cluster-scoped object, or if the metadata cannot be read.
    pub namespace: String,
    /// The name; empty if the metadata cannot be read.
    pub name: String,
    /// The resource version; empty if the metadata cannot be read.
    pub resource_version: String,
    /// The error of the decoder.
    pub error: ItemError,
}

impl UndecodableObject {
    /// Creates the error of an item, whose identity it reads from the metadata.
    #[must_use]
    pub fn new(item: &ItemRef<'_>, error: ItemError) -> Self {
        let [namespace, name, _, resource_version] = item.meta().map(MetaView::into_identity).unwrap_or_default();
        Self::with_identity([&namespace, &name, &resource_version], error)
    }

    /// Creates the error from namespace, name and resource version.
    #[doc(hidden)]
    #[must_use]
    pub fn with_identity(identity: [&str; 3], error: ItemError) -> Self {
        let [namespace, name, resource_version] = identity.map(str::to_owned);
        Self { namespace, name, resource_version, error }
    }
}

impl fmt::Display for UndecodableObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, resource_version, error } = self;
        match (&**namespace, &**name) {
            (_, "") => f.write_str("cannot decode an object")?,
            ("", name) => write!(f, "cannot decode {}", OneLine(name))?,
            (namespace, name) => write!(f, "cannot decode {}/{}", OneLine(namespace), OneLine(name))?,
        }
        if !resource_version.is_empty() {
            write!(f, " at version {}", OneLine(resource_version))?;
        }
        write!(f, ": {error}")
    }
}

impl Error for UndecodableObject {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undecodable_object_is_displayed_with_what_is_known_of_it() {
        for (identity, expected) in [
            (["ns", "a", "7"], "cannot decode ns/a at version 7: no"),
            (["", "a", "7"], "cannot decode a at version 7: no"),
            (["ns", "a\n", ""], "cannot decode ns/a\\n: no"),
            (["ns", "", "7"], "cannot decode an object at version 7: no"),
            (["", "", ""], "cannot decode an object: no"),
        ] {
            assert_eq!(UndecodableObject::with_identity(identity, ItemError::other("no")).to_string(), expected);
        }
    }

    #[test]
    fn its_source_is_that_of_the_error() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] fmt::Error);

        let object = UndecodableObject::with_identity([""; 3], ItemError::other(Outer(fmt::Error)));
        assert_eq!(object.source().map(ToString::to_string), Some(fmt::Error.to_string()));
    }
}
