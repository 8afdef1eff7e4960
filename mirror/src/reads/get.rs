//! One object.

use listwatch::encode::Encoder;

use super::Request;
use super::freshness;
use crate::body::{Body, BodyError};
use crate::shared::Shared;
use crate::status::{Refusal, Status};

pub(super) async fn answer(shared: &Shared, request: &Request) -> Result<Body, Refusal> {
    let Request { mirrored, encoder, read, .. } = request;
    freshness::wait(shared, mirrored, &read.params.resource_version).await?;
    let name = read.name.as_deref().unwrap_or_default();
    let object = mirrored.cache.get((read.namespace.as_deref().unwrap_or_default(), name));
    let resource = &mirrored.resource;
    let object = object.ok_or_else(|| Status::not_found(resource.group(), resource.plural(), name))?;
    let encoded = object.item().map_err(BodyError::from).and_then(|item| {
        let mut body = Vec::new();
        whole(encoder.object(&item, &mut body)?)?;
        Ok(body)
    });
    // The object has fields that the mirror cannot write.
    encoded.map(Body::from).map_err(|_| Refusal::Forward)
}

/// Refuses an object that was written without some of its fields.
pub(super) fn whole(unknown_fields: u64) -> Result<(), BodyError> {
    if unknown_fields == 0 { Ok(()) } else { Err("an object has fields that the mirror does not know".into()) }
}

/// The number of the form of a frame in the change log.
pub(super) fn form_of(encoder: &Encoder, metadata_only: bool) -> usize {
    let encoding = match encoder.encoding() {
        listwatch::Encoding::Json => 1,
        _ => 0,
    };
    encoding + 2 * usize::from(metadata_only)
}
