//! Writes Tables in JSON, as the API server does.

use jiff::Timestamp;
use listwatch::encode::Encoder;
use listwatch::{Encoding, EventType, ItemRef, ListMeta, TypeMeta};
use listwatch_tables::write_go_json;
use serde::Serialize;

use crate::request::IncludeObject;
use crate::resource::TablePrinter;
use crate::response::BodyError;

/// Writes Tables of the objects of one kind.
pub(super) struct TableEncoder {
    printer: TablePrinter,
    /// Writes the object of a row; `None` if rows have none.
    objects: Option<Encoder>,
    /// Writes the metadata of bookmarks, whatever rows have.
    metadata: Encoder,
    /// Writes whole objects.
    whole: Encoder,
    /// True once a frame has had the columns. The API server sends them in the first frame only.
    has_sent_columns: bool,
}

/// The list meta of a Table.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TableMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    continue_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_item_count: Option<i64>,
}

impl TableEncoder {
    pub(super) fn new(printer: TablePrinter, type_meta: TypeMeta, included: IncludeObject) -> Self {
        let whole = Encoder::new(Encoding::Json, type_meta, "");
        let metadata = whole.clone().metadata_only();
        let objects = match included {
            IncludeObject::Object => Some(whole.clone()),
            IncludeObject::None => None,
            IncludeObject::Metadata | IncludeObject::Invalid => Some(metadata.clone()),
        };
        Self { printer, objects, metadata, whole, has_sent_columns: false }
    }

    /// Appends the beginning of a list, up to its rows.
    pub(super) fn list_head(&self, list_meta: &ListMeta, out: &mut Vec<u8>) -> Result<(), BodyError> {
        self.write_head(&TableMeta::of_list(list_meta), true, out)
    }

    /// Appends a row of a list. Returns the number of fields that its object lacks.
    pub(super) fn list_row(&self, is_first: bool, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, BodyError> {
        out.push(if is_first { b'[' } else { b',' });
        self.write_row(item, None, self.objects.as_ref(), out)
    }

    /// Appends the end of a list.
    pub(super) fn list_tail(is_empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if is_empty { b"[]}\n" } else { b"]}\n" });
    }

    /// Appends the Table of one object. Returns the number of fields that its object lacks.
    pub(super) fn object(&self, item: &ItemRef<'_>, out: &mut Vec<u8>) -> Result<u64, BodyError> {
        let unknown = self.write_table(item, None, true, self.objects.as_ref(), out)?;
        out.push(b'\n');
        Ok(unknown)
    }

    /// Appends the frame of a change. With a version, the object has this version instead of its own. Returns the
    /// number of fields that the object lacks.
    pub(super) fn event(
        &mut self,
        kind: EventType,
        item: &ItemRef<'_>,
        version: Option<&str>,
        out: &mut Vec<u8>,
    ) -> Result<u64, BodyError> {
        write_frame_head(kind.name(), out);
        let unknown = self.write_table(item, version, !self.has_sent_columns, self.objects.as_ref(), out)?;
        out.extend_from_slice(FRAME_TAIL);
        self.has_sent_columns = true;
        Ok(unknown)
    }

    /// Appends the frame of a bookmark: a row of an object that has only a version.
    pub(super) fn bookmark(
        &mut self,
        version: &str,
        ends_initial_events: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        let mut frame = Vec::new();
        self.whole.bookmark(version, ends_initial_events, &mut frame);
        let bookmark = ItemRef::new(Encoding::Json, object_of_frame("BOOKMARK", &frame)?);
        // The reader finds the annotation in the metadata.
        let objects =
            if ends_initial_events && self.objects.is_none() { Some(&self.metadata) } else { self.objects.as_ref() };
        write_frame_head("BOOKMARK", out);
        self.write_table(&bookmark, None, !self.has_sent_columns, objects, out)?;
        out.extend_from_slice(FRAME_TAIL);
        self.has_sent_columns = true;
        Ok(())
    }

    /// Appends a Table of one row, without a newline.
    fn write_table(
        &self,
        item: &ItemRef<'_>,
        version: Option<&str>,
        has_columns: bool,
        objects: Option<&Encoder>,
        out: &mut Vec<u8>,
    ) -> Result<u64, BodyError> {
        let own_version = item.meta()?.resource_version();
        let table_meta = TableMeta {
            resource_version: version.unwrap_or(&own_version),
            continue_token: "",
            remaining_item_count: None,
        };
        self.write_head(&table_meta, has_columns, out)?;
        out.push(b'[');
        let unknown = self.write_row(item, version, objects, out)?;
        out.extend_from_slice(b"]}");
        Ok(unknown)
    }

    /// Appends the beginning of a Table, up to its rows.
    fn write_head(&self, meta: &TableMeta<'_>, has_columns: bool, out: &mut Vec<u8>) -> Result<(), BodyError> {
        out.extend_from_slice(br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":"#);
        write_go_json(meta, out)?;
        out.extend_from_slice(br#","columnDefinitions":"#);
        write_go_json(&has_columns.then(|| self.printer.columns()), out)?;
        out.extend_from_slice(br#","rows":"#);
        Ok(())
    }

    /// Appends a row: cells, and the object at this version, or at its own.
    fn write_row(
        &self,
        item: &ItemRef<'_>,
        version: Option<&str>,
        objects: Option<&Encoder>,
        out: &mut Vec<u8>,
    ) -> Result<u64, BodyError> {
        // Ages are of the moment in which a row is written, as on the API server.
        self.printer.write_cells(item, Timestamp::now(), out)?;
        out.extend_from_slice(br#","object":"#);
        let unknown = if let Some(encoder) = objects {
            write_object(encoder, item, version, out)?
        } else {
            out.extend_from_slice(b"null");
            0
        };
        out.push(b'}');
        Ok(unknown)
    }
}

impl<'a> TableMeta<'a> {
    fn of_list(list_meta: &'a ListMeta) -> Self {
        Self {
            resource_version: &list_meta.resource_version,
            continue_token: &list_meta.continue_token,
            remaining_item_count: list_meta.remaining_item_count,
        }
    }
}

/// The end of a frame, after its object.
const FRAME_TAIL: &[u8] = b"}\n";

/// Appends the beginning of a frame, up to its object.
fn write_frame_head(event: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(br#"","object":"#);
}

/// Returns the object of a frame of this event.
fn object_of_frame<'a>(event: &str, frame: &'a [u8]) -> Result<&'a [u8], BodyError> {
    let mut head = Vec::new();
    write_frame_head(event, &mut head);
    let object = frame.strip_prefix(&*head).and_then(|rest| rest.strip_suffix(FRAME_TAIL));
    object.ok_or_else(|| "a frame has another form".into())
}

/// Appends an object without a newline. Returns the number of fields that it lacks.
fn write_object(
    encoder: &Encoder,
    item: &ItemRef<'_>,
    version: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<u64, BodyError> {
    if version.is_none() {
        let unknown = encoder.object(item, out)?;
        out.pop_if(|last| *last == b'\n');
        return Ok(unknown);
    }
    // Only frames have objects at other versions than their own.
    let mut frame = Vec::new();
    let unknown = encoder.event(EventType::Deleted, item, version, &mut frame)?;
    out.extend_from_slice(object_of_frame(EventType::Deleted.name(), &frame)?);
    Ok(unknown)
}
