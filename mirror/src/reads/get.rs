//! One object.

use super::{Request, freshness, whole};
use crate::body::{Body, BodyError};
use crate::shared::Shared;
use crate::status::{self, Refusal};

pub(super) async fn answer(shared: &Shared, request: &Request) -> Result<Body, Refusal> {
    let Request { mirrored, encoder, read, .. } = request;
    freshness::wait(shared, mirrored, &read.params.resource_version).await?;
    let name = read.name.as_deref().unwrap_or_default();
    let object = mirrored.cache.get((read.namespace.as_deref().unwrap_or_default(), name));
    let resource = &mirrored.resource;
    let object = object.ok_or_else(|| status::not_found(resource.group(), resource.plural(), name))?;
    let encoded = object.item().map_err(BodyError::from).and_then(|item| {
        let mut body = Vec::new();
        whole(encoder.object(&item, &mut body)?)?;
        Ok(body)
    });
    // The object has fields that the mirror cannot write.
    encoded.map(Body::from).map_err(|_| Refusal::Forward)
}
