//! The requests for the collection of an `Api`, as kube's watcher sends them.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::{Config, ListSemantic};
use listwatch::Projection;
use listwatch::client::{Client, List, ListParams, Resource, ResourceVersion, Selection, WatchEvents, WatchParams};
use serde::de::DeserializeOwned;

use super::decode::{DecodeItem, item_decoder};
use super::errors::{build_request_error, kube_error};

/// kube's default timeout of a watch.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(290);

/// Replaces a timeout of 0, for which a server chooses 30 to 60 minutes.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

/// The events of one watch request.
pub(super) type KubeWatchEvents<K> = WatchEvents<DecodeItem<K>>;

/// The collection of an `Api`, and how it is watched.
#[derive(Clone)]
pub(super) struct WatchedCollection {
    pub(super) client: Client,
    /// The path of the collection.
    pub(super) path: String,
    pub(super) namespace: Option<String>,
    pub(super) config: Config,
    /// Checked before each request.
    pub(super) projection: Option<Arc<Projection>>,
}

impl WatchedCollection {
    /// Returns the list of the collection, which sends nothing yet.
    pub(super) fn list<K: kube::Resource + DeserializeOwned + 'static>(&self) -> kube::Result<List<DecodeItem<K>>> {
        let (version, page_size) = match self.config.list_semantic {
            ListSemantic::MostRecent => (ResourceVersion::MostRecent, self.config.page_size.filter(|items| *items > 0)),
            // At version 0, servers ignore page sizes.
            ListSemantic::Any => (ResourceVersion::AtLeast("0".to_owned()), None),
        };
        let mut params = ListParams::new(self.selection(K::metadata_api())?).resource_version(version);
        if let Some(items) = page_size {
            params = params.page_size(items);
        }
        let list = self.client.list_with(&self.resource()?, &params, item_decoder(self.projection.clone())?);
        // A watch from the version of the first page follows.
        let list = list.accept_versions();
        Ok(match &self.namespace {
            Some(namespace) => list.namespace(namespace),
            None => list,
        })
    }

    /// Opens a watch that resumes from this version, or that begins with the initial events if there is none.
    pub(super) async fn watch<K>(&self, version: Option<&str>) -> kube::Result<KubeWatchEvents<K>>
    where
        K: kube::Resource + DeserializeOwned + 'static,
    {
        let timeout = match self.config.timeout {
            None => DEFAULT_TIMEOUT,
            Some(0) => LONG_TIMEOUT,
            Some(seconds) => Duration::from_secs(seconds.into()),
        };
        let params = match version {
            Some(version) => WatchParams::from_version(version),
            None => WatchParams::with_initial_state_at_least("0"),
        };
        let params = params.selection(self.selection(K::metadata_api())?).timeout(timeout);
        let watch = self.client.watch_with(&self.resource()?, &params, item_decoder(self.projection.clone())?);
        let mut watch = watch.bookmarks(self.config.bookmarks);
        if let Some(namespace) = &self.namespace {
            watch = watch.namespace(namespace);
        }
        if version.is_none() && !self.config.bookmarks {
            return Err(build_request_error("initial events end in a bookmark, but bookmarks are disabled"));
        }
        watch.open().await.map_err(kube_error)
    }

    fn selection(&self, metadata_only: bool) -> kube::Result<Selection> {
        let Config { label_selector, field_selector, .. } = &self.config;
        let labels = label_selector.as_deref().unwrap_or_default().parse().map_err(build_request_error)?;
        let fields = field_selector.as_deref().unwrap_or_default().parse().map_err(build_request_error)?;
        let selection = Selection::all().json().labels(labels).fields(fields);
        Ok(if metadata_only { selection.metadata_only() } else { selection })
    }

    /// Returns the resource of the path, with an empty kind, because an `Api` does not expose the kind.
    fn resource(&self) -> kube::Result<Resource> {
        let mut segments = self.path.split('/').skip(1);
        let mut next = || segments.next().unwrap_or_default().to_owned();
        let group = if next() == "api" { String::new() } else { next() };
        let version = next();
        let plural = segments.last().ok_or_else(|| build_request_error("the path is not a path of a collection"))?;
        Ok(Resource::new(group, version, plural.to_owned(), ""))
    }
}
