//! Columns and rows of Tables, of built-in kinds and of custom resources.
//!
//! The columns of a custom resource are in its CustomResourceDefinition. [`TablePrinters::follow_definition`] keeps the
//! definition in a store of one object, and a Table parses its columns again when its version has changed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use listwatch::client::{Client, Resource, Selection};
use listwatch::path::meta;
use listwatch::schema::Message;
use listwatch::{FieldPath, FieldSelector, ItemRef, Projection, TypeMeta};
use listwatch_cache::{Reflector, StorageFormat, Store};
use listwatch_tables::{Column, Printer, write_go_json};
use tokio::time::sleep;

use crate::response::BodyError;

/// The time after which a denied definition is requested again.
const DENIED_DELAY: Duration = Duration::from_secs(600);

/// The schemas of a definition.
static SCHEMA: FieldPath = FieldPath::new("spec.versions.schema", &[]);

/// Prints the rows of one kind.
#[derive(Clone, Debug)]
pub(crate) struct TablePrinter {
    printer: Printer,
    /// The type of the objects, which do not have it themselves.
    type_meta: TypeMeta,
}

impl TablePrinter {
    pub(crate) fn columns(&self) -> &[Column] {
        self.printer.columns()
    }

    /// Appends the beginning of a row, up to its object: the cells of an object, with ages at this time.
    ///
    /// # Errors
    ///
    /// An object that is malformed.
    pub(crate) fn write_cells(&self, item: &ItemRef<'_>, now: Timestamp, out: &mut Vec<u8>) -> Result<(), BodyError> {
        write_go_json(&self.printer.row(&item.with_type_meta(&self.type_meta), now)?, out)?;
        // The object follows.
        out.pop_if(|last| *last == b'}');
        Ok(())
    }
}

/// Where the printer of a resource is found.
pub(super) enum TablePrinters {
    BuiltIn(Option<TablePrinter>),
    Custom(CustomPrinters),
}

/// The printer of a custom resource, by its definition.
pub(super) struct CustomPrinters {
    type_meta: TypeMeta,
    /// The version of the objects.
    version: String,
    /// The name of the definition.
    name: String,
    definition: Store<[u8]>,
    /// The last printer, and the version of its definition.
    parsed: Mutex<Option<(String, Option<TablePrinter>)>>,
}

impl TablePrinters {
    pub(super) fn new(resource: &Resource, type_meta: &TypeMeta) -> Self {
        if Message::of(&type_meta.api_version, &type_meta.kind).is_some() {
            let printer = Printer::for_kind(type_meta);
            return Self::BuiltIn(printer.map(|printer| TablePrinter { printer, type_meta: type_meta.clone() }));
        }
        Self::Custom(CustomPrinters {
            type_meta: type_meta.clone(),
            version: resource.version().to_owned(),
            name: format!("{}.{}", resource.plural(), resource.group()),
            definition: Store::new(StorageFormat::Encoded),
            parsed: Mutex::default(),
        })
    }

    /// Returns the printer; `None` if the columns are not known.
    pub(super) fn printer(&self) -> Option<TablePrinter> {
        match self {
            Self::BuiltIn(printer) => printer.clone(),
            Self::Custom(custom) => custom.printer(),
        }
    }

    /// Keeps the definition of a custom resource up to date. It completes at once for other resources.
    pub(super) async fn follow_definition(&self, client: &Client) {
        if let Self::Custom(custom) = self {
            custom.follow_definition(client).await;
        }
    }
}

impl CustomPrinters {
    fn printer(&self) -> Option<TablePrinter> {
        let definition = self.definition.get(("", &*self.name))?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((version, printer)) = &*parsed
            && version == definition.resource_version()
        {
            return printer.clone();
        }
        let item = definition.item().ok()?;
        let printer = Printer::for_custom_resource(item.bytes(), &self.version);
        let printer = printer.inspect_err(|error| {
            tracing::warn!(name: "listwatch.mirror.columns", definition = %self.name, %error, "cannot read columns");
        });
        let printer = printer.ok().map(|printer| TablePrinter { printer, type_meta: self.type_meta.clone() });
        *parsed = Some((definition.resource_version().to_owned(), printer.clone()));
        printer
    }

    async fn follow_definition(&self, client: &Client) {
        let fields = FieldSelector::new().equal("metadata.name", &self.name);
        // Without the schema, which may have a megabyte.
        let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&meta::LAST_APPLIED).drop(&SCHEMA);
        let mut has_warned = false;
        loop {
            let reflector = Reflector::<[u8]>::new(client, &Resource::CUSTOM_RESOURCE_DEFINITIONS)
                .selection(Selection::default().json().fields(fields.clone()))
                .projection(slim.clone())
                .store(self.definition.clone())
                .fail_fast()
                .prepare();
            if let Err(error) = reflector.run().await
                && !std::mem::replace(&mut has_warned, true)
            {
                let name = &self.name;
                tracing::warn!(name: "listwatch.mirror.columns", definition = %name, %error, "Tables are forwarded");
            }
            sleep(DENIED_DELAY).await;
        }
    }
}
