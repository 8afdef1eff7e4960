//! A source as a transport: it answers requests as an API server does.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CONTENT_TYPE, HeaderValue, WARNING};
use http::{HeaderMap, StatusCode};
use listwatch::client::{Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind};
use listwatch::{Encoding, ListMeta};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval};

use super::builtin::built_in;
use super::discovery;
use super::objects::{Cursor, ListedResource, Object, ObjectSource};
use super::page::{Body, PageWriter};
use super::request::{Form, ListQuery, ResourcePath, Route, negotiate};
use super::select::selects;

/// The bytes after which a page ends, unless it is a Table, whose widths follow pages of 500.
const PAGE_BYTES: usize = 4 << 20;
/// The objects in a page of a Table for a reader that asks for no pages.
const TABLE_ROWS: usize = 500;
/// The cursors between two pages that are kept.
const MAX_PARKED: usize = 64;
/// The time between two bookmarks of a watch, as the API server's.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// What continue tokens begin with. No two of a process are the same, also of several sources.
const TOKEN: &str = "page-";
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// Returns true if a source may have sent this continue token.
pub fn is_page_token(token: &str) -> bool {
    token.strip_prefix(TOKEN).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Who may read what of a source.
pub enum Readers {
    /// The command itself.
    Own,
    /// Readers of a mirror that know this token. They see no Secrets unless this is allowed.
    Others { token: String, with_secrets: bool },
}

/// Answers requests from a source.
#[derive(Clone)]
pub struct SourceTransport(Arc<Shared>);

struct Shared {
    source: Box<dyn ObjectSource>,
    /// The name of the file in messages.
    name: String,
    readers: Readers,
    /// The resources of discovery, once they were needed.
    resources: Mutex<Option<Arc<Vec<ListedResource>>>>,
    parked: Mutex<Parked>,
}

#[derive(Default)]
struct Parked {
    cursors: VecDeque<(String, OpenList)>,
}

/// A list between two pages.
struct OpenList {
    path: ResourcePath,
    cursor: Box<dyn Cursor>,
    /// What was read to see whether there is a next page.
    ahead: Option<Result<Object, String>>,
    count: u64,
}

/// Why a request is not answered with objects.
enum Refusal {
    Status(StatusCode, &'static str, String),
    /// The source cannot be read.
    Source(String),
}

impl SourceTransport {
    pub fn new(source: Box<dyn ObjectSource>, name: String, readers: Readers) -> Self {
        Self(Arc::new(Shared { source, name, readers, resources: Mutex::default(), parked: Mutex::default() }))
    }

    /// Returns the resources whose objects the source contains, each in its first version, after reading the keys of
    /// the whole source.
    pub fn resources_with_objects(&self) -> Result<Vec<ListedResource>, String> {
        let found = self.0.source.found()?;
        let resources = self.0.resources()?;
        let mut taken = HashSet::new();
        let is_found = |listed: &&ListedResource| {
            let (group, plural) = (listed.resource.group(), listed.resource.plural());
            if !taken.insert((group.to_owned(), plural.to_owned())) {
                return false;
            }
            let is_hidden = plural == "secrets" && group.is_empty() && self.0.hides_secrets();
            let full = format!("{plural}.{group}");
            !is_hidden && found.iter().any(|name| *name == full || name == plural)
        };
        Ok(resources.iter().filter(is_found).cloned().collect())
    }
}

impl Transport for SourceTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (path, query) = request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
            let query = match ListQuery::parse(query) {
                Ok(query) => query,
                Err(error) => return Ok(status(StatusCode::BAD_REQUEST, "BadRequest", &error)),
            };
            let (route, headers, path) = (Route::parse(path), request.headers, path.to_owned());
            if let (Route::Resource(ResourcePath { name: None, .. }), true) = (&route, query.is_watch) {
                return watch(shared, route, &query, &headers).await;
            }
            let name = shared.name.clone();
            let answered = spawn_blocking(move || shared.answer(&route, &path, &query, &headers)).await;
            match answered {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(Refusal::Status(code, reason, message))) => Ok(status(code, reason, &message)),
                Ok(Err(Refusal::Source(error))) => Err(source_error(&name, &error)),
                Err(_) => Err(source_error(&name, "the read has failed")),
            }
        })
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        let answer = self.0.review(&request.path_and_query, &body);
        Box::pin(async move { Ok(answer) })
    }

    fn is_near(&self) -> bool {
        true
    }
}

fn source_error(name: &str, error: &str) -> TransportError {
    TransportError::new(TransportErrorKind::Other, format!("{name}: {error}"))
}

impl Shared {
    fn hides_secrets(&self) -> bool {
        matches!(self.readers, Readers::Others { with_secrets: false, .. })
    }

    fn resources(&self) -> Result<Arc<Vec<ListedResource>>, String> {
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resources) = &*resources {
            return Ok(Arc::clone(resources));
        }
        let mut all = built_in();
        all.extend(self.source.custom_resources()?);
        Ok(Arc::clone(resources.insert(Arc::new(all))))
    }

    /// Finds a resource. The definitions are read only for one that is not built in.
    fn find(&self, path: &ResourcePath) -> Result<ListedResource, Refusal> {
        if self.hides_secrets() && path.group.is_empty() && path.plural == "secrets" {
            let message = "secrets is forbidden: this mirror hides Secrets, unless it runs with --with-secrets";
            return Err(Refusal::Status(StatusCode::FORBIDDEN, "Forbidden", message.to_owned()));
        }
        if let Some(listed) = discovery::find(&built_in(), path) {
            return Ok(listed.clone());
        }
        let resources = self.resources().map_err(Refusal::Source)?;
        let found = discovery::find(&resources, path);
        let missing = || {
            let message = "the server could not find the requested resource".to_owned();
            Refusal::Status(StatusCode::NOT_FOUND, "NotFound", message)
        };
        found.cloned().ok_or_else(missing)
    }

    fn answer(&self, route: &Route, path: &str, query: &ListQuery, headers: &HeaderMap) -> Result<Response, Refusal> {
        match route {
            Route::Version => Ok(json_response(StatusCode::OK, &version_info())),
            Route::Discovery { is_core } => {
                let resources = self.resources().map_err(Refusal::Source)?;
                let accept =
                    headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
                let is_aggregated = accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2");
                let document = discovery::root_document(&resources, *is_core, is_aggregated);
                let mut response = json_response(StatusCode::OK, &document);
                if is_aggregated {
                    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                    response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
                }
                Ok(response)
            }
            Route::Resource(resource) => {
                let listed = self.find(resource)?;
                match &resource.name {
                    Some(name) => self.get(&listed, resource, name, query, headers),
                    None => self.list(&listed, resource, query, headers),
                }
            }
            Route::Other => {
                let resources = self.resources().map_err(Refusal::Source)?;
                let version = path.trim_matches('/').split_once('/').map(|(_, version)| version).unwrap_or_default();
                match discovery::version_document(&resources, version) {
                    Some(document) => Ok(json_response(StatusCode::OK, &document)),
                    None => Err(Refusal::Status(
                        StatusCode::NOT_FOUND,
                        "NotFound",
                        format!("{} is a file, and has no {path}", self.name),
                    )),
                }
            }
        }
    }

    fn get(
        &self,
        listed: &ListedResource,
        path: &ResourcePath,
        name: &str,
        query: &ListQuery,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let mut cursor =
            self.source.objects(&listed.resource, path.namespace.as_deref(), Some(name)).map_err(Refusal::Source)?;
        while let Some(object) = cursor.next().map_err(Refusal::Source)? {
            let is_it = object.item().meta().is_ok_and(|meta| meta.name() == name);
            if is_it {
                let body = self.writer(listed, query, headers).object(&object).map_err(Refusal::Source)?;
                return Ok(body_response(body));
            }
        }
        let resource = &listed.resource;
        let dot = if resource.group().is_empty() { "" } else { "." };
        let message = format!("{}{dot}{} {name:?} not found", resource.plural(), resource.group());
        Err(Refusal::Status(StatusCode::NOT_FOUND, "NotFound", message))
    }

    fn list(
        &self,
        listed: &ListedResource,
        path: &ResourcePath,
        query: &ListQuery,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let mut list = if let Some(token) = &query.token {
            self.take_parked(token, path)?
        } else {
            let cursor = self.source.objects(&listed.resource, path.namespace.as_deref(), None);
            OpenList { path: path.clone(), cursor: cursor.map_err(Refusal::Source)?, ahead: None, count: 0 }
        };
        let writer = self.writer(listed, query, headers);
        let objects = list.read_page(query, writer.form == Form::Table).map_err(Refusal::Source)?;
        let is_empty = objects.is_empty() && list.count == 0;
        list.count += objects.len() as u64;
        let mut meta = ListMeta::default();
        meta.resource_version = self.source.version();
        if list.ahead.is_some() {
            meta.continue_token = self.park(list);
        }
        let mut response = body_response(writer.list(&objects, &meta).map_err(Refusal::Source)?);
        if is_empty && matches!(self.readers, Readers::Own) {
            let warning = self.explain_empty(listed, path, query);
            let quoted = format!("299 - \"{}\"", warning.replace(['\\', '"'], "'"));
            response.headers.extend(HeaderValue::from_str(&quoted).ok().map(|value| (WARNING, value)));
        }
        Ok(response)
    }

    /// Says what the source has, if a list has nothing.
    fn explain_empty(&self, listed: &ListedResource, path: &ResourcePath, query: &ListQuery) -> String {
        let plural = listed.resource.plural();
        let place = path.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let has_selector = !query.labels.is_empty() || !query.fields.is_empty();
        let selected = if has_selector { " that the selector selects" } else { "" };
        let hint = self.source.hint(&listed.resource).map(|hint| format!("; {hint}")).unwrap_or_default();
        let found = match self.source.found() {
            Ok(found) if found.is_empty() => "it has no objects".to_owned(),
            Ok(found) => format!("it has {}", found.join(", ")),
            Err(error) => error,
        };
        format!("{} has no {plural}{place}{selected}: {found}{hint}", self.name)
    }

    fn writer<'a>(&self, listed: &'a ListedResource, query: &'a ListQuery, headers: &HeaderMap) -> PageWriter<'a> {
        let (form, accepts_protobuf) = negotiate(headers);
        PageWriter { listed, form, accepts_protobuf, include_object: &query.include_object, now: self.source.now() }
    }

    fn park(&self, list: OpenList) -> String {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let token = format!("{TOKEN}{}", NEXT_TOKEN.fetch_add(1, Ordering::Relaxed));
        if parked.cursors.len() == MAX_PARKED {
            parked.cursors.pop_front();
        }
        parked.cursors.push_back((token.clone(), list));
        token
    }

    fn take_parked(&self, token: &str, path: &ResourcePath) -> Result<OpenList, Refusal> {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let at = parked.cursors.iter().position(|(own, list)| own == token && list.path == *path);
        let expired = || {
            let message = "the continue token is too old: list again".to_owned();
            Refusal::Status(StatusCode::GONE, "Expired", message)
        };
        at.and_then(|at| parked.cursors.remove(at)).map(|(_, list)| list).ok_or_else(expired)
    }

    /// Answers a review of a token or of access: the only secret is the token.
    fn review(&self, path: &str, body: &[u8]) -> Response {
        let Readers::Others { token, .. } = &self.readers else {
            return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "a file is read-only");
        };
        let mut review: Value = serde_json::from_slice(body).unwrap_or_default();
        let answer = if path.contains("tokenreviews") {
            let is_known = review["spec"]["token"].as_str().is_some_and(|given| is_same(given, token));
            if is_known {
                json!({"authenticated": true, "user": {"username": "reader"}})
            } else {
                json!({"authenticated": false})
            }
        } else {
            json!({"allowed": true})
        };
        review["status"] = answer;
        json_response(StatusCode::CREATED, &review)
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(given: &str, token: &str) -> bool {
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl OpenList {
    /// Reads the objects of a page. A fault after the first object ends the page before it.
    fn read_page(&mut self, query: &ListQuery, is_table: bool) -> Result<Vec<Object>, String> {
        let limit = query.limit.or(is_table.then_some(TABLE_ROWS)).unwrap_or(usize::MAX);
        let (mut objects, mut bytes) = (Vec::new(), 0);
        loop {
            let next = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.next_selected(query).transpose(),
            };
            let is_full = objects.len() >= limit || !is_table && bytes >= PAGE_BYTES;
            match next {
                None => return Ok(objects),
                Some(Err(error)) if objects.is_empty() => return Err(error),
                Some(Ok(object)) if !is_full => {
                    bytes += object.bytes.len();
                    objects.push(object);
                }
                next => {
                    self.ahead = next;
                    return Ok(objects);
                }
            }
        }
    }

    fn next_selected(&mut self, query: &ListQuery) -> Result<Option<Object>, String> {
        while let Some(object) = self.cursor.next()? {
            if selects(query, &object)? {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }
}

/// Answers a watch: nothing changes, so after a bookmark it only shows that it is alive.
async fn watch(
    shared: Arc<Shared>,
    route: Route,
    query: &ListQuery,
    headers: &HeaderMap,
) -> Result<Response, TransportError> {
    let name = shared.name.clone();
    if query.sends_initial_events {
        // As a server without this feature: readers list instead.
        let message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Ok(status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message));
    }
    let found = spawn_blocking(move || match &route {
        Route::Resource(path) => shared.find(path).map(|listed| (listed, shared.source.version())),
        _ => Err(Refusal::Source("no resource".to_owned())),
    });
    let (listed, version) = match found.await {
        Ok(Ok(found)) => found,
        Ok(Err(Refusal::Status(code, reason, message))) => return Ok(status(code, reason, &message)),
        Ok(Err(Refusal::Source(error))) => return Err(source_error(&name, &error)),
        Err(_) => return Err(source_error(&name, "the read has failed")),
    };
    let (form, accepts_protobuf) = negotiate(headers);
    let encoding = if accepts_protobuf && listed.definition.is_none() { Encoding::Protobuf } else { Encoding::Json };
    let mut bookmark = Vec::new();
    if query.has_bookmarks {
        PageWriter { listed: &listed, form, accepts_protobuf, include_object: "", now: jiff::Timestamp::UNIX_EPOCH }
            .encoder(encoding)
            .bookmark(&version, false, &mut bookmark);
    }
    let bookmark = Bytes::from(bookmark);
    let end = query.timeout_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let ticks = stream::unfold(interval(BOOKMARK_INTERVAL), |mut interval| async move {
        interval.tick().await;
        Some(((), interval))
    });
    let body = ticks.map(move |()| Ok(bookmark.clone())).take_until(async move {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    });
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(encoding.watch_media_type()))]);
    Ok(Response::new(StatusCode::OK, headers, body.boxed()))
}

/// The version of the API whose resources discovery lists. Which release wrote a file is not in it.
fn version_info() -> Value {
    json!({"major": "1", "minor": "37", "gitVersion": "v1.37.0+file", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": ""})
}

fn body_response(Body { encoding, bytes }: Body) -> Response {
    response(StatusCode::OK, encoding.media_type(), bytes)
}

fn json_response(code: StatusCode, value: &Value) -> Response {
    response(code, "application/json", value.to_string().into_bytes())
}

fn response(code: StatusCode, media_type: &'static str, body: Vec<u8>) -> Response {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
    Response::new(code, headers, stream::iter([Ok(Bytes::from(body))]).boxed())
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    json_response(code, &status)
}
