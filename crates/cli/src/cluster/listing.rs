//! The list of a resource: its request, its progress, its errors and its warnings.

use listwatch::client::{Client, Error, ErrorKind, List, ListParams, ListSummary, Progress, Resource};
use listwatch::internal::chain;
use listwatch::{ItemError, ItemRef};

use crate::failure::Failure;
use crate::notices;
use crate::output::ListProgress;

/// The remedy of commands with `--chunk-size`.
pub const SMALLER_PAGES: Option<&str> = Some("use --chunk-size to request pages, or smaller pages");

/// Returns the list of a resource, in one namespace or in all. It sends nothing yet.
pub fn list_resource<F, O, E>(
    client: &Client,
    (resource, namespace): &(Resource, Option<String>),
    params: &ListParams,
    decode: F,
) -> List<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    let list = client.list_with(resource, params, decode);
    match namespace {
        Some(namespace) => list.namespace(namespace),
        None => list,
    }
}

/// Converts the error of a list. Parameters that were refused before a request was sent are a usage error.
///
/// `remedy` is for a list that takes longer than the server's request timeout.
pub fn list_failure(error: &Error, remedy: Option<&str>) -> Failure {
    match error.kind() {
        ErrorKind::Params(error) => Failure::Usage(chain(error)),
        ErrorKind::Incomplete { request_timeout: Some(_), .. } => {
            let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            Failure::Error(chain(error) + &remedy)
        }
        _ if remedy.is_some() && error.is_expired() => {
            let remedy = "in a list in pages, use a larger --chunk-size, --metadata-only, or one namespace at a time";
            Failure::Error(format!("{}; {remedy}", chain(error)))
        }
        _ => Failure::Error(chain(error)),
    }
}

/// Returns the progress of a list.
pub fn list_progress(progress: &Progress) -> ListProgress {
    ListProgress {
        bytes: progress.bytes(),
        items: progress.items(),
        expected_bytes: progress.expected_bytes(),
        expected_items: progress.expected_items(),
    }
}

/// Prints the warnings of a complete list.
pub fn print_warnings(summary: &ListSummary) {
    if summary.other_shards > 0 {
        notices::warn(&format!(
            "the server does not support shards: {} items of other shards were filtered out here",
            summary.other_shards
        ));
    }
    for warning in &summary.warnings {
        notices::warn(warning);
    }
}
