//! How `get` and `count` read from an API server, or from a file that answers as one.
//!
//! A source finds the resource of a typed name, lists the objects of a resource
//! as rows, gets one object, and makes Tables.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use listwatch::client::{Client, Error, List, ListParams, ListSummary, Progress, Resource, Selection, TableForm};
use listwatch::internal::chain;
use listwatch::{FieldSelector, ItemError, ItemRef, Json, LabelSelector};
use serde_json::value::RawValue;

use super::table::Table;
use crate::cluster::listing::{SMALLER_PAGES, list_failure, list_progress, list_resource};
use crate::cluster::query::VersionArgs;
use crate::cluster::resource::{find_resource, find_resources};
use crate::failure::Failure;
use crate::notices;
use crate::output::{ListProgress, Row};

/// The source of objects: a client, which also reads files that answer as an API server does.
pub struct Source(pub Client);

/// A resource, where its objects are, and the name of one of them.
#[derive(Clone)]
pub struct Found {
    pub resource: Resource,
    /// `None` for all namespaces, and for resources without.
    pub namespace: Option<String>,
    pub name: Option<String>,
}

/// Which objects of a resource are wanted, and what of them.
#[derive(Clone, Default)]
pub struct Wanted {
    pub labels: Option<LabelSelector>,
    pub fields: Option<FieldSelector>,
    pub version: VersionArgs,
    /// False if the metadata is enough.
    pub all_fields: bool,
    /// With all fields: true if protobuf is enough, which lacks those that the table of fields does not have.
    pub only_known_fields: bool,
}

/// A part of a list.
#[derive(Clone, Default)]
pub struct Page {
    /// The number of objects in a response; `None` for all.
    pub size: Option<u32>,
    /// Where the page begins.
    pub token: Option<String>,
}

/// Why a source gave no object or Table.
pub enum SourceError {
    Request(Box<Error>),
    Table(String),
}

/// The rows of a list, while it is read.
pub struct Rows<F> {
    items: List<F>,
    progress: Progress,
}

impl Source {
    /// Finds the resource of a name that the user typed.
    pub async fn find(&self, typed: &str) -> Result<Resource, Failure> {
        let Self(client) = self;
        find_resource(client, typed).await
    }

    /// Finds the resources of a name that the user typed, which may be a category.
    pub async fn find_all(&self, typed: &str) -> Result<Vec<Resource>, Failure> {
        let Self(client) = self;
        find_resources(client, typed).await
    }

    /// Returns the rows that `decode` makes of the objects of a resource. With a page, they end with it.
    pub fn rows<F>(&self, found: &Found, wanted: &Wanted, page: Page, is_single: bool, decode: F) -> Rows<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<Option<Row>, ItemError>,
    {
        let Self(client) = self;
        let selection = wanted.selection();
        let selection = match (wanted.all_fields, wanted.only_known_fields) {
            (false, _) => selection.metadata_only(),
            (true, false) => selection.json(),
            (true, true) => selection,
        };
        let place = (found.resource.clone(), found.namespace.clone());
        let items = list_resource(client, &place, &page.params(wanted, selection), decode);
        let items = if is_single { items.single_page(page.token) } else { items };
        Rows { progress: items.progress(), items }
    }

    /// Returns the number of objects of a resource, which the server may know without listing them.
    pub async fn count(&self, found: &Found, wanted: &Wanted) -> Result<u64, Failure> {
        let Self(client) = self;
        let count = client.count(&found.resource, &wanted.selection(), found.namespace.as_deref()).await;
        count.map(|count| count.objects).map_err(|error| list_failure(&error, None))
    }

    /// Returns the object of a name, or a subresource of it, in JSON.
    pub async fn object(&self, found: &Found, subresource: Option<&str>) -> Result<Vec<u8>, SourceError> {
        let Self(client) = self;
        let (namespace, name) = (found.namespace.as_deref(), found.name.as_deref().unwrap_or_default());
        if subresource.is_some() {
            let form = TableForm::NoTable;
            let answer = client.table_of(&found.resource, namespace, name, subresource, form).await;
            return answer.map(|(body, _)| body).map_err(SourceError::request);
        }
        let got = client.get::<Json<Box<RawValue>>>(&found.resource, namespace, name).any_kind().await;
        got.map(|object| object.get().as_bytes().to_vec()).map_err(SourceError::request)
    }

    /// Returns a page of a collection, or an object, as a Table.
    pub async fn table(
        &self,
        found: &Found,
        wanted: &Wanted,
        page: Page,
        subresource: Option<&str>,
        form: TableForm,
    ) -> Result<Table, SourceError> {
        let Self(client) = self;
        let (Found { resource, namespace, name }, token) = (found, page.token.as_deref());
        let namespace = namespace.as_deref();
        let answer = if let Some(name) = name {
            client.table_of(resource, namespace, name, subresource, form).await
        } else {
            let params = page.params(wanted, wanted.selection());
            client.table_page(resource, namespace, &params, token, form).await
        };
        let (body, warnings) = answer.map_err(SourceError::request)?;
        // Later pages repeat them.
        if token.is_none() {
            for warning in &warnings {
                notices::warn(warning);
            }
        }
        Table::parse(&body).map_err(SourceError::Table)
    }
}

impl Wanted {
    /// Returns true if no selector is set.
    pub fn selects_all(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    pub fn selection(&self) -> Selection {
        let mut selection = Selection::all();
        if let Some(selector) = &self.labels {
            selection = selection.labels(selector.clone());
        }
        if let Some(selector) = &self.fields {
            selection = selection.fields(selector.clone());
        }
        selection
    }
}

impl Page {
    fn params(&self, wanted: &Wanted, selection: Selection) -> ListParams {
        wanted.version.list_params(selection, self.size)
    }
}

impl SourceError {
    fn request(error: Error) -> Self {
        Self::Request(Box::new(error))
    }

    /// Returns true if the source has no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Request(error) if error.code() == Some(404))
    }

    pub fn text(&self) -> String {
        match self {
            Self::Request(error) => chain(&**error),
            Self::Table(text) => text.clone(),
        }
    }
}

impl<F> Unpin for Rows<F> {}

impl<F> Rows<F> {
    pub fn progress(&self) -> ListProgress {
        list_progress(&self.progress)
    }

    /// Returns what is known of the list at its end; `None` before.
    pub fn summary(&self) -> Option<&ListSummary> {
        self.items.summary()
    }
}

impl<F> Stream for Rows<F>
where
    F: FnMut(ItemRef<'_>) -> Result<Option<Row>, ItemError>,
{
    type Item = Result<Option<Row>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let items = &mut self.items;
        items.poll_next_unpin(context).map_err(|error| list_failure(&error, SMALLER_PAGES))
    }
}
