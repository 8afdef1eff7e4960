//! Tables, as kubectl requests them: a page of a collection, or one object.

use std::sync::Arc;

use http::header::{HeaderValue, WARNING};
use tokio::time::Instant;

use super::api_client::Client;
use super::document::{DOCUMENT_SIZE, DocumentRequest};
use super::error::Error;
use super::params::ListParams;
use super::progress::Counters;
use super::resource::{Resource, encode};
use super::warning::warning_texts;

/// What kubectl accepts. A server that does not know Tables sends the objects.
const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// What a server sends of a page or an object, for the command.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableForm {
    /// A Table whose rows have the metadata of their objects.
    Metadata,
    /// A Table whose rows have their objects, as kubectl requests it to sort them.
    Objects,
    /// The objects themselves, in JSON.
    NoTable,
}

impl Client {
    /// Requests a page of a collection as a Table, for the command.
    ///
    /// Returns the body and the server's warnings.
    #[doc(hidden)]
    pub async fn table_page(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        params: &ListParams,
        continue_token: Option<&str>,
        form: TableForm,
    ) -> Result<(Vec<u8>, Vec<String>), Error> {
        let path = format!("{}?{}", resource.list_path(namespace)?, params.query(continue_token));
        self.table(path, form).await
    }

    /// Requests an object, or a subresource such as `scale`, as a Table with one row, for the command.
    ///
    /// Returns the body and the server's warnings.
    #[doc(hidden)]
    pub async fn table_of(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        form: TableForm,
    ) -> Result<(Vec<u8>, Vec<String>), Error> {
        let mut path = resource.get_path(namespace, name)?;
        if let Some(subresource) = subresource {
            path.extend(["/", &encode(subresource).to_string()]);
        }
        self.table(path + "?", form).await
    }

    /// Requests a path that ends in a query.
    async fn table(&self, mut path: String, form: TableForm) -> Result<(Vec<u8>, Vec<String>), Error> {
        let counters = Arc::new(Counters::new(&self.totals));
        if form == TableForm::Objects {
            path.push_str(if path.ends_with('?') { "includeObject=Object" } else { "&includeObject=Object" });
        }
        let path = path.trim_end_matches('?').to_owned();
        let accept = HeaderValue::from_static(if form == TableForm::NoTable { "application/json" } else { TABLE });
        let deadline = self.deadline.map(|time| Instant::now() + time);
        let request = DocumentRequest { path, accept, limit: DOCUMENT_SIZE, deadline, counters };
        self.document(
            &request,
            |error| self.classify(error),
            |document| {
                let warnings =
                    document.headers.get_all(WARNING).iter().flat_map(|header| warning_texts(header.as_bytes()));
                Ok((document.body.clone(), warnings.collect()))
            },
        )
        .await
    }
}
