//! Requests of the version of the API server, which concurrent reads share.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::Shared;
use listwatch::client::{Client, Error, Resource, Selection};

/// The version of a collection on the API server. Reads that arrive while a request is open share the next request.
pub(crate) struct CurrentVersion {
    resource: Resource,
    namespace: Option<String>,
    /// The request that has not been sent yet.
    next: Arc<Mutex<Option<VersionRequest>>>,
    /// Held by the request that is open.
    in_flight: Arc<tokio::sync::Mutex<()>>,
}

type VersionRequest = Shared<Pin<Box<dyn Future<Output = Result<String, Arc<Error>>> + Send>>>;

impl CurrentVersion {
    pub(super) fn new(resource: Resource, namespace: Option<String>) -> Self {
        Self { resource, namespace, next: Arc::default(), in_flight: Arc::default() }
    }

    /// Returns a version that the API server had after this call.
    ///
    /// # Errors
    ///
    /// The error of the request.
    pub(crate) async fn request_version(&self, client: &Client) -> Result<String, Arc<Error>> {
        let request = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.get_or_insert_with(|| self.prepare_request(client)).clone()
        };
        request.await
    }

    fn prepare_request(&self, client: &Client) -> VersionRequest {
        let (next, in_flight, client) = (Arc::clone(&self.next), Arc::clone(&self.in_flight), client.clone());
        let (resource, namespace) = (self.resource.clone(), self.namespace.clone());
        let request: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let _in_flight = in_flight.lock().await;
            // Reads that arrive from now on need a later request.
            next.lock().unwrap_or_else(PoisonError::into_inner).take();
            let version = client.current_version(&resource, &Selection::default(), namespace.as_deref());
            version.await.map_err(Arc::new)
        });
        request.shared()
    }
}
