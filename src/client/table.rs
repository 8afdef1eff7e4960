//! Tables, as kubectl requests them: a page of a collection, or one object.

use std::sync::Arc;

use http::header::{HeaderValue, WARNING};

use super::api_client::Client;
use super::document::{DOCUMENT_SIZE, DocumentRequest};
use super::error::Error;
use super::params::ListParams;
use super::progress::Counters;
use super::resource::Resource;
use super::warning::warning_texts;

/// What kubectl accepts. A server that does not know Tables sends the objects.
const ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
);

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
    ) -> Result<(Vec<u8>, Vec<String>), Error> {
        let path = format!("{}?{}", resource.list_path(namespace)?, params.query(continue_token));
        self.table(path).await
    }

    /// Requests an object as a Table with one row, for the command.
    ///
    /// Returns the body and the server's warnings.
    #[doc(hidden)]
    pub async fn table_of(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<(Vec<u8>, Vec<String>), Error> {
        self.table(resource.get_path(namespace, name)?).await
    }

    async fn table(&self, path: String) -> Result<(Vec<u8>, Vec<String>), Error> {
        let counters = Arc::new(Counters::new(&self.totals));
        let request = DocumentRequest { path, accept: ACCEPT, limit: DOCUMENT_SIZE, deadline: None, counters };
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
