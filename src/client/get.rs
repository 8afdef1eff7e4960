//! Gets one object.

use super::body;
use super::document::Document;
use super::error::{Error, ErrorKind};
use super::handle::Client;
use super::params::Selection;
use super::resource::{Resource, encode};
use super::send::accept_header;
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError};
use crate::meta;
use crate::meta::TypeMeta;
use crate::object::{Item, ItemRef};
use crate::wire::{Beginning, Encoding};

impl Client {
    /// Returns one object. `[u8]` is JSON for a custom resource, and protobuf for others.
    ///
    /// # Errors
    ///
    /// [`Error`]: it [is not found](Error::is_not_found) if there is no such object.
    pub async fn get<T: Item + ?Sized>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<T::Owned, Error> {
        self.get_by::<T>(resource, resource.get_path(namespace, name)?).await
    }

    /// Returns one object of this version or a newer one. A server that does not have that version yet returns 504.
    #[doc(hidden)]
    pub async fn get_at_least<T: Item + ?Sized>(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        version: &str,
    ) -> Result<T::Owned, Error> {
        let path = resource.get_path(namespace, name)?;
        self.get_by::<T>(resource, format!("{path}?resourceVersion={}", encode(version))).await
    }

    async fn get_by<T: Item + ?Sized>(&self, resource: &Resource, path: String) -> Result<T::Owned, Error> {
        resource.check_type::<T>()?;
        let whole = Selection::all().json_if(T::ENCODING == Some(Encoding::Json));
        loop {
            let requested = self.acceptable(resource, &whole)?;
            let accept = accept_header(requested.accept_watch())?;
            let object = |document: &Document| self.object::<T>(resource, document);
            let got = self.document(path.clone(), accept, |error| self.classify(error), object).await;
            match got {
                Err(error) if self.needs_plain_json(&error, resource, &requested)? => {}
                got => return got,
            }
        }
    }

    fn object<T: Item + ?Sized>(&self, resource: &Resource, document: &Document) -> Result<T::Owned, ErrorKind> {
        let Document { headers, body, .. } = document;
        let expected = TypeMeta { api_version: resource.api_version(), kind: resource.kind().to_owned() };
        let decode = |kind| ErrorKind::Decode(DecodeError::new(kind, 0, None, 0));
        let (encoding, found, object) = match Beginning::find(body) {
            None => return Err(decode(DecodeErrorKind::Incomplete)),
            Some((Beginning::Protobuf, body)) if body.starts_with(&meta::MAGIC) => {
                let fault = DecodeErrorKind::Malformed { field: "the envelope", fault: Fault::PastParent };
                let (found, object) = body::envelope(body).ok_or_else(|| decode(fault))?;
                (Encoding::Protobuf, found, object)
            }
            Some((Beginning::Json, body)) => {
                let found = meta::json::type_meta(body)
                    .map_err(|(field, fault)| decode(DecodeErrorKind::Item(ItemError::Metadata { field, fault })))?;
                (Encoding::Json, found, body)
            }
            Some(_) => return Err(self.unexpected(body, headers)),
        };
        if found.kind == "Status" {
            return Err(body::api_error(500, headers, body, &*self.transport));
        }
        if !found.is_expected(&expected) {
            return Err(ErrorKind::OtherKind { expected, found });
        }
        T::from_ref(ItemRef::new(encoding, object).with_type_meta(&found))
            .map_err(|error| decode(DecodeErrorKind::Item(error)))
    }
}
