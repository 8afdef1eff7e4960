//! Any path of the server, for `get --raw` of the command.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use tokio::time::Instant;

use super::api_client::Client;
use super::body;
use super::error::Error;
use super::progress::Counters;
use super::transport::Chunks;

/// The body of a response, as it arrives.
#[doc(hidden)]
pub struct RawBody {
    chunks: Chunks,
    client: Client,
}

impl Client {
    /// Requests a path with its query, once. A response other than 2xx is an error.
    #[doc(hidden)]
    pub async fn raw(&self, path_and_query: &str) -> Result<RawBody, Error> {
        let counters = Arc::new(Counters::new(&self.totals));
        let accept = HeaderValue::from_static("application/json, */*");
        let deadline = self.deadline.map(|time| Instant::now() + time);
        // A log or a watch may be quiet for long.
        let answer = self.head(path_and_query.to_owned(), accept, None, deadline, &counters).await;
        let chunks = answer.map_err(|error| error.redacted(&*self.transport))?.chunks;
        Ok(RawBody { chunks, client: self.clone() })
    }
}

impl RawBody {
    /// Returns the next bytes; `None` at the end.
    #[doc(hidden)]
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        body::next_chunk(&mut self.chunks).await.map_err(|error| Error::from(error).redacted(&*self.client.transport))
    }
}
