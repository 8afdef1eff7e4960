//! `-o name` of `get`: KIND/NAME or KIND.GROUP/NAME, as kubectl prints it.

use std::rc::Rc;

use listwatch::{ItemError, ItemRef};

use super::format::{Constructor, Format, FormatInfo, Needs, Row};
use crate::escape::escape_controls;

pub const KIND_NAME: FormatInfo = FormatInfo {
    name: "name",
    help: "One line per object: pod/NAME, deployment.apps/NAME",
    needs: Needs::Metadata,
    constructor: Constructor::Plain(|_| Rc::new(KindNameFormat)),
};

struct KindNameFormat;

impl Format for KindNameFormat {
    fn info(&self) -> &'static FormatInfo {
        &KIND_NAME
    }

    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let (of, meta) = (item.type_meta(), item.meta()?);
        let kind = of.item_kind().to_lowercase();
        let group = of.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        Ok(Some(format!("{kind}{group}/{}\n", escape_controls(&meta.name())).into()))
    }
}
