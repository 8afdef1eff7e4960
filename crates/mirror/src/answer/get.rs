//! A GET of one object.

use super::cache_read::CacheRead;
use super::freshness::FreshnessGate;
use crate::response::{BodyError, Refusal, ResponseBody, status};

pub(super) async fn answer_get(freshness: &FreshnessGate, read: &CacheRead) -> Result<ResponseBody, Refusal> {
    let CacheRead { mirrored, encoder, request, .. } = read;
    freshness.wait_for_read(mirrored, &request.options.resource_version).await?;
    let name = request.name.as_deref().unwrap_or_default();
    let object = mirrored.cache.get((request.namespace.as_deref().unwrap_or_default(), name));
    let resource = &mirrored.resource;
    let object = object.ok_or_else(|| status::not_found(resource.group(), resource.plural(), name))?;
    let encoded = object.item().map_err(BodyError::from).and_then(|item| {
        let mut body = Vec::new();
        encoder.object(&item, &mut body)?;
        Ok(body)
    });
    // The object has fields that the mirror cannot write.
    encoded.map(ResponseBody::from).map_err(|_| Refusal::Forward)
}
