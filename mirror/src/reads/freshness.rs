//! Waits until a cache is as new as a read requires.

use std::cmp::Ordering;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::Shared as SharedFuture;
use listwatch::client::{Client, Error, Selection};
use listwatch::compare_resource_versions;
use tokio::time::timeout;

use crate::mirrored::Mirrored;
use crate::shared::Shared;
use crate::status::{self, Refusal};

/// How long a read waits for a version that the API server has before it is forwarded.
const BRIEFLY: Duration = Duration::from_millis(100);

/// How long a read waits for a version that the API server does not have. As in the API server (`blockTimeout` in apiserver `cacher/watch_cache.go`).
const LONG: Duration = Duration::from_secs(3);

/// Waits until the cache is new enough for a read of this version: `""` is the newest, `"0"` any.
pub(super) async fn wait(shared: &Shared, mirrored: &Arc<Mirrored>, resource_version: &str) -> Result<(), Refusal> {
    match resource_version {
        "0" => Ok(()),
        "" if shared.stale_reads => Ok(()),
        "" => {
            let newest = mirrored.probe.newest(&shared.client, mirrored).await.map_err(|_| Refusal::Forward)?;
            let waits = mirrored.cache.wait_for_resource_version(&newest);
            match timeout(BRIEFLY, waits).await {
                Ok(Ok(())) => Ok(()),
                _ => Err(Refusal::Forward),
            }
        }
        version => at_least(shared, mirrored, version).await,
    }
}

/// Waits until the cache has a version that the reader names. If the API server has it already, and the cache learns it only from
/// the next bookmark, the API server answers.
pub(super) async fn at_least(shared: &Shared, mirrored: &Arc<Mirrored>, resource_version: &str) -> Result<(), Refusal> {
    if !is_version(resource_version) {
        return Err(status::bad_request(format!("invalid resource version {resource_version:?}")).into());
    }
    let has_it = |waited| matches!(waited, Ok(Ok(())));
    let waits = || mirrored.cache.wait_for_resource_version(resource_version);
    if has_it(timeout(BRIEFLY, waits()).await) {
        return Ok(());
    }
    let newest = mirrored.probe.newest(&shared.client, mirrored).await.map_err(|_| Refusal::Forward)?;
    if compare_resource_versions(resource_version, &newest).is_some_and(Ordering::is_le) {
        return Err(Refusal::Forward);
    }
    if has_it(timeout(LONG, waits()).await) {
        return Ok(());
    }
    Err(status::version_too_large(resource_version, &mirrored.cache.resource_version()).into())
}

/// Returns true if the text is a version that compares with others.
pub(super) fn is_version(text: &str) -> bool {
    compare_resource_versions(text, "1").is_some()
}

/// Requests the version of the API server. Reads that arrive while a request is open share the next request.
#[derive(Default)]
pub(crate) struct Probe {
    next: Arc<Mutex<Option<Pending>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

type Pending = SharedFuture<Pin<Box<dyn Future<Output = Result<String, Arc<Error>>> + Send>>>;

impl Probe {
    /// Returns a version that the API server had after this call.
    async fn newest(&self, client: &Client, mirrored: &Mirrored) -> Result<String, Arc<Error>> {
        let pending = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.get_or_insert_with(|| self.pending(client, mirrored)).clone()
        };
        pending.await
    }

    fn pending(&self, client: &Client, mirrored: &Mirrored) -> Pending {
        let (next, turn, client) = (Arc::clone(&self.next), Arc::clone(&self.turn), client.clone());
        let (resource, namespace) = (mirrored.resource.clone(), mirrored.namespace.clone());
        let request: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let _turn = turn.lock().await;
            // Reads that arrive from now on need a later request.
            next.lock().unwrap_or_else(PoisonError::into_inner).take();
            let version = client.current_version(&resource, &Selection::default(), namespace.as_deref());
            version.await.map_err(Arc::new)
        });
        request.shared()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http::header::HOST;
    use http_body_util::Empty;

    use crate::answer::answer;
    use crate::mirror::Limits;
    use crate::reads::LAG;
    use crate::testing::Api;

    /// A write to another resource advances the version of the API server, and the cache does not learn of it before a bookmark.
    #[tokio::test(start_paused = true)]
    async fn forwards_reads_at_versions_that_only_the_api_server_has() {
        let api = Api::new(2, 100);
        let shared = api.mirror(Limits::default()).await;
        api.advance(1005);
        for (version, expected) in [
            ("1000", (200, true)),
            ("1003", (200, false)),
            ("1005", (200, false)),
            ("1006", (504, false)),
            ("01", (400, false)),
        ] {
            for rest in [
                "",
                "&resourceVersionMatch=NotOlderThan",
                "&watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=1",
            ] {
                let request = Request::builder().uri(format!("/api/v1/configmaps?resourceVersion={version}{rest}"));
                let request = request.header(HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
                let response = answer(&shared, request, true).await;
                let found = (response.status().as_u16(), response.headers().contains_key(LAG));
                assert_eq!(found, expected, "{version}{rest}");
            }
        }
    }
}
