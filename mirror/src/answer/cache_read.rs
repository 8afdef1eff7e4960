//! A read that is answered from a cache, and what GETs, lists and watches share.

use std::sync::Arc;

use listwatch::encode::Encoder;
use listwatch_cache::Snapshot;

use super::select::ReadSelector;
use crate::negotiate::Representation;
use crate::request::ReadRequest;
use crate::resource::Mirrored;
use crate::response::{BodyError, Refusal, status};

/// A body is written in chunks of about this size.
pub(super) const CHUNK: usize = 64 << 10;

/// A read that is answered from the cache of its resource.
pub(super) struct CacheRead {
    pub(super) mirrored: Arc<Mirrored>,
    pub(super) encoder: Encoder,
    pub(super) selector: ReadSelector,
    pub(super) representation: Representation,
    pub(super) request: ReadRequest,
}

impl CacheRead {
    pub(super) fn new(
        mirrored: &Arc<Mirrored>,
        request: ReadRequest,
        representation: Representation,
    ) -> Result<Self, Refusal> {
        let list_kind = format!("{}List", mirrored.type_meta.kind);
        let encoder = Encoder::new(representation.encoding, mirrored.type_meta.clone(), list_kind);
        let encoder = if representation.metadata_only { encoder.metadata_only() } else { encoder };
        let selector = ReadSelector::parse(mirrored, &request)?;
        Ok(Self { mirrored: Arc::clone(mirrored), encoder, selector, representation, request })
    }

    /// Returns all objects of the version of the cache.
    ///
    /// # Errors
    ///
    /// 503 while there is no such version: during a relist.
    pub(super) fn exact_snapshot(&self) -> Result<Arc<Snapshot<[u8]>>, Refusal> {
        let snapshot = self.mirrored.cache.exact_snapshot();
        snapshot.map(Arc::new).ok_or_else(|| status::unavailable("the cache is being relisted", 1).into())
    }
}

/// Refuses an object that was written without some of its fields.
pub(super) fn refuse_unknown_fields(count: u64) -> Result<(), BodyError> {
    if count == 0 { Ok(()) } else { Err("an object has fields that the mirror does not know".into()) }
}
