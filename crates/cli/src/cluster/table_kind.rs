//! The columns of a resource's table.

use listwatch::client::{Client, Resource};
use listwatch::internal::chain;
use listwatch::{Json, TypeMeta};
use listwatch_tables::Printer;
use serde_json::value::RawValue;

use crate::cluster::query::SelectionArgs;
use crate::failure::Failure;
use crate::notices;
use crate::output::{Needs, OutputArgs, TableKind};

/// Finds the resource of these options with its namespace, and the kind of a table's columns.
///
/// The columns of a custom resource are in its definition, which it gets. Without the right to read that, it prints a
/// warning.
pub async fn find_printed_resource(
    client: &Client,
    selection: SelectionArgs,
    default_namespace: String,
    output: &OutputArgs,
) -> Result<((Resource, Option<String>), Option<TableKind>), Failure> {
    let prints_columns = output.needs() == Needs::Columns && !selection.metadata_only;
    let found = selection.find_resource(client, default_namespace).await?;
    let kind = if prints_columns { table_kind(client, &found.0).await } else { None };
    Ok((found, kind))
}

/// Returns the kind of a table's columns, if kubectl's are known.
async fn table_kind(client: &Client, resource: &Resource) -> Option<TableKind> {
    let type_meta = TypeMeta::new(resource.api_version(), resource.kind());
    if Resource::BUILT_IN.iter().any(|known| known.group() == resource.group()) {
        return TableKind::built_in(type_meta);
    }
    let name = format!("{}.{}", resource.plural(), resource.group());
    let got = client.get::<Json<Box<RawValue>>>(&Resource::CUSTOM_RESOURCE_DEFINITIONS, None, &name).await;
    let printer = match got {
        Ok(definition) => {
            Printer::for_custom_resource(definition.get().as_bytes(), resource.version()).map_err(|error| chain(&error))
        }
        // It is of an aggregated API server.
        Err(error) if error.code() == Some(404) => return None,
        Err(error) => Err(chain(&error)),
    };
    match printer {
        Ok(printer) => Some(TableKind::new(type_meta, printer)),
        Err(error) => {
            notices::warn(&format!("cannot read the columns of {name}: {error}"));
            None
        }
    }
}
