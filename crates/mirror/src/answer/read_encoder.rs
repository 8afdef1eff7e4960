//! Writes bodies and frames in the representation of a read.

use listwatch::encode::{Encoder, ListBody};
use listwatch::{EventType, ItemError, ItemRef, ListMeta, Status};

use super::table_encoder::TableEncoder;
use crate::response::BodyError;

/// Writes bodies and frames in the representation of a read: objects, or rows of Tables.
///
/// Fields that the mirror does not know are an error: the API server answers instead.
pub(super) struct ReadEncoder {
    objects: Encoder,
    /// `None` unless the read asks for Tables.
    table: Option<Box<TableEncoder>>,
}

/// The state of a list that is being written.
pub(super) struct OpenList {
    objects: Option<ListBody>,
    is_empty: bool,
}

impl ReadEncoder {
    /// Creates an encoder of objects, or with a `TableEncoder` of Tables.
    pub(super) fn new(objects: Encoder, table: Option<TableEncoder>) -> Self {
        Self { objects, table: table.map(Box::new) }
    }

    /// As [`Encoder::needs_items_len`].
    pub(super) fn needs_items_len(&self) -> bool {
        self.objects.needs_items_len()
    }

    /// As [`Encoder::item_len`].
    pub(super) fn item_len(&self, item: &ItemRef<'_>) -> Result<u64, ItemError> {
        self.objects.item_len(item)
    }

    /// As [`Encoder::whole_item_len`].
    pub(super) fn whole_item_len(&self, len: usize) -> u64 {
        self.objects.whole_item_len(len)
    }

    /// Appends the beginning of a list.
    pub(super) fn list_head(
        &self,
        list_meta: &ListMeta,
        items_len: u64,
        out: &mut Vec<u8>,
    ) -> Result<OpenList, BodyError> {
        let objects = match &self.table {
            Some(table) => {
                table.list_head(list_meta, out)?;
                None
            }
            None => Some(self.objects.list_head(list_meta, items_len, out)),
        };
        Ok(OpenList { objects, is_empty: true })
    }

    /// Appends an item of a list.
    pub(super) fn item(&self, list: &mut OpenList, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let unknown = match (&self.table, &mut list.objects) {
            (Some(table), _) => table.list_row(list.is_empty, item, out)?,
            (None, Some(body)) => self.objects.item(body, item, out)?,
            (None, None) => return Err("the list is of another encoder".into()),
        };
        list.is_empty = false;
        refuse_unknown_fields(unknown)
    }

    /// Appends the end of a list.
    pub(super) fn list_tail(&self, list: OpenList, list_meta: &ListMeta, out: &mut Vec<u8>) {
        match list.objects {
            Some(body) => self.objects.list_tail(body, list_meta, out),
            None => TableEncoder::list_tail(list.is_empty, out),
        }
    }

    /// Appends the body of one object.
    pub(super) fn object(&self, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let unknown = match &self.table {
            Some(table) => table.object(item, out)?,
            None => self.objects.object(item, out)?,
        };
        refuse_unknown_fields(unknown)
    }

    /// Appends the frame of a change, as [`Encoder::event`].
    pub(super) fn event(
        &mut self,
        kind: EventType,
        item: &ItemRef<'_>,
        version: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        let unknown = match &mut self.table {
            Some(table) => table.event(kind, item, version, out)?,
            None => self.objects.event(kind, item, version, out)?,
        };
        refuse_unknown_fields(unknown)
    }

    /// Appends the frame of a bookmark, as [`Encoder::bookmark`].
    pub(super) fn bookmark(
        &mut self,
        version: &str,
        ends_initial_events: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        if let Some(table) = &mut self.table {
            return table.bookmark(version, ends_initial_events, out);
        }
        self.objects.bookmark(version, ends_initial_events, out);
        Ok(())
    }

    /// Appends the frame of an error.
    pub(super) fn error(&self, status: &Status, out: &mut Vec<u8>) {
        self.objects.error(status, out);
    }
}

/// Refuses an object that was written without some of its fields.
fn refuse_unknown_fields(count: u64) -> Result<(), BodyError> {
    if count == 0 { Ok(()) } else { Err("an object has fields that the mirror does not know".into()) }
}
