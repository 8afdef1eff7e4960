//! A read that is answered from a cache, and what GETs, lists and watches share.

use std::sync::Arc;

use listwatch::encode::Encoder;
use listwatch_cache::Snapshot;

use super::read_encoder::ReadEncoder;
use super::select::ReadSelector;
use super::table_encoder::TableEncoder;
use crate::negotiate::{Form, Representation};
use crate::request::{IncludeObject, ReadRequest};
use crate::resource::{IncompleteObjects, Mirrored};
use crate::response::{ForwardReason, Refusal, status};

/// A body is written in chunks of about this size.
pub(super) const CHUNK: usize = 64 << 10;

/// A read that is answered from the cache of its resource.
pub(super) struct CacheRead {
    pub(super) mirrored: Arc<Mirrored>,
    pub(super) encoder: ReadEncoder,
    pub(super) selector: ReadSelector,
    pub(super) representation: Representation,
    pub(super) request: ReadRequest,
}

impl CacheRead {
    /// # Errors
    ///
    /// [`Refusal::Forward`] for a Table of a kind whose columns the mirror does not know, and errors of selectors.
    pub(super) fn new(
        mirrored: &Arc<Mirrored>,
        request: ReadRequest,
        representation: Representation,
    ) -> Result<Self, Refusal> {
        let type_meta = &mirrored.type_meta;
        let encoder = Encoder::new(representation.encoding, type_meta.clone(), format!("{}List", type_meta.kind));
        let encoder = match representation.form {
            Form::Whole => ReadEncoder::new(encoder, None),
            Form::Metadata => ReadEncoder::new(encoder.metadata_only(), None),
            Form::Row => {
                let printer = mirrored.table_printer().ok_or(Refusal::Forward(ForwardReason::Form))?;
                let table = TableEncoder::new(printer, type_meta.clone(), request.options.include_object);
                ReadEncoder::new(encoder, Some(table))
            }
        };
        let selector = ReadSelector::parse(mirrored, &request)?;
        Ok(Self { mirrored: Arc::clone(mirrored), encoder, selector, representation, request })
    }

    /// Returns the objects that this read cannot show, because they would lack fields; `None` if there are none.
    pub(super) fn incomplete_objects(&self) -> Option<IncompleteObjects> {
        let Representation { encoding, form } = self.representation;
        let has_whole_objects = match form {
            Form::Whole => true,
            Form::Metadata => false,
            Form::Row => self.request.options.include_object == IncludeObject::Object,
        };
        self.mirrored.incomplete_objects(encoding, has_whole_objects)
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
