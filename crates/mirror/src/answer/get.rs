//! A GET of one object.

use super::cache_read::CacheRead;
use super::freshness::{FreshnessGate, IfOlder};
use super::read_pool::ReadShare;
use crate::fairness::PoolPermit;
use crate::response::{BodyError, ForwardReason, Refusal, ResponseBody, status};

/// Returns an object, and the permit to write it, which the connection keeps until the reader has the object.
pub(super) async fn answer_get(
    freshness: &FreshnessGate,
    share: &ReadShare<'_>,
    read: &CacheRead,
) -> Result<(ResponseBody, PoolPermit), Refusal> {
    let CacheRead { mirrored, encoder, request, .. } = read;
    freshness.wait_for_read(mirrored, &request.options.resource_version, IfOlder::Forward).await?;
    let permit = share.acquire_permit().await?;
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
    let body = encoded.map(ResponseBody::from).map_err(|_| Refusal::Forward(ForwardReason::UnknownFields))?;
    Ok((body, permit))
}
