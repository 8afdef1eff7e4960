//! Discovery, which finds the resource of a typed name in the server's documents.
//!
//! ```text
//! /api, /apis ─┬─ APIGroupDiscoveryList: all versions with their resources
//!              └─ APIVersions, APIGroupList: versions ── /apis/GROUP/VERSION: APIResourceList
//! ```
//!
//! A document is a [`Part`] of the catalog until it is read. A part that fails never fails the others, because the name
//! may be in one of them. The facts are in docs/protocol.md, "Discovery".

mod document;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use self::document::{DiscoveryDocument, Part, PartState};
use super::api_client::Client;
use super::body;
use super::classify::classify_version;
use super::document::{DOCUMENT_SIZE, Document, DocumentRequest};
use super::error::{Error, ErrorKind};
use super::progress::Counters;
use super::redact::redact;
use super::resolve::{self, Wanted};
use super::resource::Resource;
use super::runtime::on_own_runtime;
use super::transport::{TransportError, TransportErrorKind, chain};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::meta::OneLine;

/// Requests aggregated discovery (1.26 and later), or otherwise the older documents.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
const PLAIN: &str = "application/json";

/// The kinds of the documents at `/api` and `/apis`.
const OF_ROOTS: &[&str] = &["APIGroupDiscoveryList", "APIVersions", "APIGroupList"];
const OF_VERSIONS: &[&str] = &["APIResourceList"];

/// The time for all documents of one name, including retries. client-go allows 32 s for each request
/// (`discovery_client.go`).
const TOTAL: Duration = Duration::from_secs(30);

/// The time for the document of one version of a group, whose server may hang.
const OF_VERSION: Duration = Duration::from_secs(10);

/// How many documents are requested at the same time. Over HTTP/1.1, each needs a connection.
const PARALLEL: usize = 16;

impl Client {
    /// Finds the resource of a name that a user typed, as `kubectl get` does.
    ///
    /// `typed` is a plural, a singular, a short name or a kind, alone or followed by `.group` or `.version.group`. A
    /// version of the core group ends in a dot: `pods.v1.`. Case is ignored. Plurals and singulars come before short
    /// names, and both before kinds. A whole group comes before the beginning of one (`deployments.ap`). Among several
    /// groups and versions, the first in the server's order wins, and in each group the preferred version.
    ///
    /// `typed` may also be the `apiVersion/kind` of a manifest, such as `cert-manager.io/v1/Certificate` or `v1/Pod`,
    /// for a kind that is known only at run time. It names a single group and version. kubectl has no such form.
    ///
    /// The rules come from cli-runtime `Builder.mappingFor` and client-go's restmapper, with these differences:
    /// resources without `list` are ignored, a short name keeps the version that was typed with it (kubectl drops it),
    /// categories such as `all` are errors, and kubectl accepts short names only in lower case, and kinds outside the
    /// core group only with their group.
    ///
    /// The client sends two requests at once, for `/api` and `/apis`, or only for `/apis` if the name contains a group.
    /// A server without aggregated discovery (before 1.26) needs one more for each version of each group, or of the
    /// typed group. At most 16 requests are open at the same time. Each may take 10 s, and all together 30 s. Nothing
    /// is cached.
    ///
    /// If a document cannot be read, for example because a server is down, a warning is logged, and resources of other
    /// groups are still found.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unresolved`] when no listed resource has the name; it names the documents that could not be read.
    /// The error of the failed request when none could be read, or the typed group's could not. The same applies if the
    /// core group could not be read and one of its resources has the name, because `pods` must not become the Pods of
    /// `metrics.k8s.io`.
    pub async fn resolve(&self, typed: &str) -> Result<Resource, Error> {
        let found = on_own_runtime(self.find_resources(typed, false)).await?;
        // A name that is no category has one resource.
        found.into_iter().next().ok_or_else(|| self.redacted(ErrorKind::Unresolved(format!("no resource {typed:?}"))))
    }

    /// Finds the resources of a name that a user typed, which may also be a category such as `all`, for the command.
    ///
    /// As in kubectl, a category comes before a resource of the same name.
    #[doc(hidden)]
    pub async fn resolve_all(&self, typed: &str) -> Result<Vec<Resource>, Error> {
        on_own_runtime(self.find_resources(typed, true)).await
    }

    async fn find_resources(&self, typed: &str, with_categories: bool) -> Result<Vec<Resource>, Error> {
        let end = Instant::now() + TOTAL;
        let has_group = resolve::has_group(typed);
        let roots = if has_group { &["/apis"][..] } else { &["/api", "/apis"] };
        let parts = roots.iter().map(|root| {
            let (client, typed) = (self.clone(), typed.to_owned());
            async move { client.parts(root, &Wanted::exactly(&typed), end).await }
        });
        let mut parts: Vec<Part> = all(parts).await.into_iter().flatten().collect();
        for wanted in [Wanted::exactly(typed), Wanted::by_prefix(typed)] {
            self.read(&mut parts, &wanted, end).await;
            if with_categories {
                let members = resolve::members(typed, parts.iter().flat_map(Part::resources));
                if !members.is_empty() {
                    self.warn(parts.iter());
                    return Ok(members);
                }
            }
            let of_wanted = || parts.iter().filter(|part| wanted.has(&part.group, &part.version));
            let found = resolve::find(typed, of_wanted().flat_map(Part::resources));
            if let Some(found) = found.map_err(|ambiguous| self.redacted(ambiguous))? {
                let found: Resource = found.into();
                if let Some(error) = hides_core(&parts, &found).filter(|_| !has_group) {
                    return Err(error.clone());
                }
                self.warn(of_wanted());
                return Ok(vec![found]);
            }
            if let Some(error) = of_wanted().find_map(Part::error).filter(|_| has_group) {
                return Err(error.clone());
            }
        }
        if let (true, Some(error)) = (parts.iter().all(|part| !part.is_read()), parts.iter().find_map(Part::error)) {
            return Err(error.clone());
        }
        self.warn(parts.iter());
        let unread = parts.iter().filter(|part| part.error().is_some()).map(|part| &*part.path);
        let text = resolve::unresolved(typed, &parts.iter().flat_map(Part::resources).collect::<Vec<_>>(), unread);
        Err(self.redacted(ErrorKind::Unresolved(text)))
    }

    fn redacted(&self, error: impl Into<Error>) -> Error {
        error.into().redacted(&*self.transport)
    }

    /// Returns the parts of the catalog below a root, after reading the wanted ones.
    async fn parts(&self, root: &'static str, wanted: &Wanted<'_>, end: Instant) -> Vec<Part> {
        let mut read = self.json(root, AGGREGATED, OF_ROOTS, end).await;
        // The server does not know the parameters of the media type, or its aggregated document cannot be read.
        let may_have_old = |error: &Error| error.code() == Some(406) || matches!(error.kind(), ErrorKind::Discovery(_));
        if read.as_ref().is_err_and(may_have_old) {
            read = self.json(root, PLAIN, OF_ROOTS, end).await;
        }
        let mut parts = match read {
            Ok(document) => document.parts(root),
            // An API server without a core group, such as an aggregated one or kcp.
            Err(error) if root == "/api" && error.code() == Some(404) => Vec::new(),
            Err(error) => vec![Part { state: PartState::Failed(error), ..Part::unread(root.to_owned(), "", "") }],
        };
        self.read(&mut parts, wanted, end).await;
        parts
    }

    async fn read(&self, parts: &mut [Part], wanted: &Wanted<'_>, end: Instant) {
        let is_next = |part: &Part| matches!(part.state, PartState::Unread) && wanted.has(&part.group, &part.version);
        let next: Vec<&mut Part> = parts.iter_mut().filter(|part| is_next(part)).collect();
        let documents = next.iter().map(|part| {
            let (client, path) = (self.clone(), part.path.clone());
            async move {
                let end = end.min(Instant::now() + OF_VERSION);
                client.json(&path, PLAIN, OF_VERSIONS, end).await
            }
        });
        let documents = all(documents.collect::<Vec<_>>()).await;
        for (part, document) in next.into_iter().zip(documents) {
            part.state = match document {
                Ok(document) => PartState::Read(document.resources(&part.group, &part.version)),
                Err(error) => PartState::Failed(error),
            };
        }
    }

    /// Logs what could not be read, and what may be outdated.
    fn warn<'a>(&self, parts: impl Iterator<Item = &'a Part>) {
        for Part { path, state, is_stale, .. } in parts {
            let path = redact(&*self.transport, path.clone());
            match state {
                PartState::Failed(error) => tracing::warn!(
                    name: "listwatch.discovery",
                    path,
                    error = %chain(error),
                    "the resources of this group are unknown"
                ),
                PartState::Read(_) if *is_stale => tracing::warn!(
                    name: "listwatch.discovery",
                    path,
                    "the resources of this group may be outdated: its server does not respond"
                ),
                PartState::Read(_) | PartState::Unread => {}
            }
        }
    }

    async fn json(
        &self,
        path: &str,
        accept: &'static str,
        kinds: &'static [&'static str],
        end: Instant,
    ) -> Result<DiscoveryDocument, Error> {
        let read = |Document { headers, body, audit_id: _ }: &Document| {
            let document = serde_json::from_slice::<DiscoveryDocument>(body).map_err(|error| error.to_string());
            document.and_then(|document| document.checked(kinds)).map_err(|reason| {
                match body.trim_ascii_start().first() {
                    None => ErrorKind::Decode(DecodeError::new(DecodeErrorKind::Incomplete, 0, None, 0)),
                    Some(b'{') if body::status(body).is_none() => {
                        // serde's message quotes the document.
                        ErrorKind::Discovery(format!("{path}: {}", OneLine(&reason)))
                    }
                    Some(_) => self.unexpected(body, headers),
                }
            })
        };
        let was_reached = || self.was_reached.load(Ordering::Relaxed);
        let classify = |error: &Error| match kinds {
            OF_VERSIONS => classify_version(error, was_reached()),
            _ => self.classify(error),
        };
        let request = DocumentRequest {
            path: path.to_owned(),
            accept: HeaderValue::from_static(accept),
            limit: DOCUMENT_SIZE,
            deadline: None,
            counters: Arc::new(Counters::new(&self.totals)),
        };
        let document = self.document(&request, classify, read);
        let late = || {
            self.redacted(TransportError::new(
                TransportErrorKind::Deadline,
                format!("the server has not sent {path} in time"),
            ))
        };
        if Instant::now() >= end {
            // `timeout_at` would still send the request.
            return Err(late());
        }
        timeout_at(end, document).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Returns the error of the core group's document, if the core group has a resource with the name of the found one.
fn hides_core<'a>(parts: &'a [Part], found: &Resource) -> Option<&'a Error> {
    let is_of_core = |known: &&Resource| known.group().is_empty() && known.plural() == found.plural();
    if found.group().is_empty() || !Resource::BUILT_IN.iter().any(|known| is_of_core(&known)) {
        return None;
    }
    parts.iter().filter(|part| part.path.starts_with("/api") && !part.path.starts_with("/apis")).find_map(Part::error)
}

/// Runs the futures, some of them at the same time, and returns their results in order.
async fn all<F>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = JoinSet::new();
    for (at, future) in futures.into_iter().enumerate() {
        let permits = Arc::clone(&permits);
        let task = async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            (at, future.await)
        };
        tasks.spawn(task.in_current_span().with_current_subscriber());
    }
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(joined) = tasks.join_next().await {
        match joined.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(result) => done.push(result),
            // A transport of the caller panicked.
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime shuts down, so this future is not polled again.
            Err(Err(_)) => {}
        }
    }
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, output)| output).collect()
}
