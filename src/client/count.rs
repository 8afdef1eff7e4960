//! Counts the objects of a collection.

use tokio::time::Instant;

use super::api_client::Client;
use super::error::Error;
use super::list::{List, ListSummary};
use super::params::{ListParams, Selection};
use super::resource::Resource;
use super::watch::PAGE;
use crate::error::ItemError;
use crate::object::ItemRef;

/// How many objects a collection contains at one version: see [`Client::count`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// How many objects there are.
    pub objects: u64,
    /// The resource version at which they were counted.
    pub resource_version: String,
    /// True if each object was listed, and false if the server counted them.
    ///
    /// kube-apiserver counts exactly, but the Kubernetes API allows other servers to estimate (`remainingItemCount`).
    pub is_exact: bool,
}

impl Client {
    /// Counts objects without reading their contents.
    ///
    /// To count a whole collection, one request for a single object is enough if the server counts the rest. Servers do
    /// not count with label or field selectors, with shards, or in some aggregated APIs. The client then lists the
    /// metadata of all objects in pages of 500, and starts over if a page expires.
    ///
    /// The count is of one version, which is at least as new as the request. Later writes are not included.
    ///
    /// # Errors
    ///
    /// [`Error`], after the retries and within the [deadline](Self::deadline) of this client.
    pub async fn count(
        &self,
        resource: &Resource,
        selection: &Selection,
        namespace: Option<&str>,
    ) -> Result<Count, Error> {
        let end = self.deadline.map(|time| Instant::now() + time);
        let list = |page_size| {
            let params = ListParams::new(selection.clone().metadata_only()).page_size(page_size);
            let nothing = |_: ItemRef<'_>| Ok::<_, ItemError>(());
            // Nothing is kept, so the number of objects needs no limit.
            let limits = self.limits.items(u64::MAX).bytes(u64::MAX);
            let mut list = self.list_with(resource, &params, nothing).limits(limits);
            if let Some(end) = end {
                list = list.deadline(end.saturating_duration_since(Instant::now()));
            }
            match namespace {
                Some(namespace) => list.namespace(namespace),
                None => list,
            }
        };
        if selection.is_all() {
            let summary = summarize(list(1).single_page(None)).await?;
            let ListSummary { items, list_meta: meta, .. } = summary;
            let remaining = meta.remaining_item_count.and_then(|count| u64::try_from(count).ok());
            let is_exact = meta.continue_token.is_empty();
            if let Some(remaining) = if is_exact { Some(0) } else { remaining } {
                let resource_version = meta.resource_version;
                return Ok(Count { objects: items.saturating_add(remaining), resource_version, is_exact });
            }
        }
        let ListSummary { items, list_meta: meta, .. } = summarize(list(PAGE).on_restart(|_| {})).await?;
        Ok(Count { objects: items, resource_version: meta.resource_version, is_exact: true })
    }
}

async fn summarize<F>(mut list: List<F>) -> Result<ListSummary, Error>
where
    F: FnMut(ItemRef<'_>) -> Result<(), ItemError>,
{
    while let Some(item) = list.next().await {
        item?;
    }
    Ok(list.into_summary())
}
