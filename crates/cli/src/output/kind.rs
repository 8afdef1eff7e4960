//! The kind of the objects in a table.

use jiff::Timestamp;
use listwatch::{ItemError, ItemRef, TypeMeta};
use listwatch_tables::{Column, Printer};

use crate::escape::escape_controls;

/// A kind with columns of its own, which are kubectl's.
#[derive(Clone)]
pub struct TableKind {
    type_meta: TypeMeta,
    printer: Printer,
}

impl TableKind {
    pub fn new(type_meta: TypeMeta, printer: Printer) -> Self {
        Self { type_meta, printer }
    }

    /// Returns the kind of a built-in resource, if its columns are known.
    pub fn built_in(type_meta: TypeMeta) -> Option<Self> {
        let printer = Printer::for_kind(&type_meta)?;
        Some(Self { type_meta, printer })
    }

    /// Returns the kind of an item, if its columns are known without its definition.
    pub fn of_item(item: &ItemRef<'_>) -> Result<Option<Self>, ItemError> {
        type_of(item).map(Self::built_in)
    }

    pub fn columns(&self) -> &[Column] {
        self.printer.columns()
    }

    /// Returns the cells of an item; `None` for an item of another kind.
    pub fn cells(&self, item: &ItemRef<'_>) -> Result<Option<Vec<String>>, ItemError> {
        if type_of(item)? != self.type_meta {
            return Ok(None);
        }
        let row = self.printer.row(item, Timestamp::now())?;
        Ok(Some(row.cells.iter().map(|cell| escape_controls(&cell.to_string()).into_owned()).collect()))
    }
}

/// Returns the type of an item: of its list, or its own if the list does not name it.
fn type_of(item: &ItemRef<'_>) -> Result<TypeMeta, ItemError> {
    let of_list = TypeMeta::new(&*item.type_meta().api_version, item.type_meta().item_kind());
    if !(of_list.api_version.is_empty() || of_list.kind.is_empty()) {
        return Ok(of_list);
    }
    Ok(item.own_type_meta()?.unwrap_or(of_list))
}
