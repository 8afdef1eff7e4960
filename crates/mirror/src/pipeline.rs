//! All steps of a request, in their order.
//!
//! | step | by | passes on |
//! |---|---|---|
//! | accept | `accept`, which calls [`Pipeline::respond`] | the request, and its [`Reader`] |
//! | filter | [`RequestFilter`] | or 403: impersonation; on loopback web pages and foreign hosts |
//! | read | [`RequestInfo::parse`] | a [`RequestRoute`] and the attributes of a review, or an error |
//! | authorize | [`Authorizer`] | a [`Grant`], or 401, 403, 429 or 503 |
//! | negotiate | [`negotiate_representation`] | a representation, or [`Refusal::Forward`] |
//! | answer | [`ReadHandler`] | a response from a cache, or [`Refusal::Forward`] |
//! | forward | [`Forwarder`] | the response of the API server |
//! | send | [`gzip`], then `accept` | bytes, which `accept` counts and bounds in time |
//!
//! # Before you change a step
//!
//! - A request is parsed once. Every later step reads [`RequestInfo`], never the URI again: the mirror must not answer
//!   or forward anything else than it has authorized.
//! - Authorization comes before negotiation and before the look-up of an object. A reader without rights learns from no
//!   404, 406 or 410 what exists.
//! - The API server sees the credentials of the mirror. So a request is forwarded only with a [`Grant`], and only with
//!   the headers that `forward.rs` names.
//! - [`Refusal::Forward`] means that the API server answers. It is possible until the response starts: an error after
//!   the first byte resets the connection or the stream. So gzip, which waits for the first 128 KiB, is a step here.
//! - Probes are answered before authorization, because the kubelet sends no token. They show no reason of a failure.
//! - A request with a body gets 400 only after its method and path were checked: a POST gets its 405. Over HTTP/1.1 the
//!   connection is then closed, because nobody reads the body.
//! - HEAD of the mirror's own pages, and of what the API server answers to HEAD, is answered as GET, and the body is
//!   dropped. `Content-Length` then needs a body of known length. Resources have no HEAD, as on the API server.
//! - Errors are in the encoding that the reader prefers, whatever it requests of the objects.
//!
//! # What was left out
//!
//! - One struct with all that requests share. 16 files imported each other through it. A step now has its own struct.
//! - Layers of tower. They pass results in the extensions of a request; here the types of the steps show what is
//!   needed.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use listwatch::Encoding;
use listwatch::client::{Client, Transport};
use listwatch::internal::json_of_body;
use serde_json::Value;
use tokio::time::Instant;

use crate::accept::{Connections, Reader, RequestHandler};
use crate::access_log::{AccessLog, AccessNotes, AnswerSource};
use crate::answer::ReadHandler;
use crate::authorize::{Authorizer, Grant};
use crate::fairness::PoolFull;
use crate::forward::Forwarder;
use crate::metrics::MirrorMetrics;
use crate::negotiate::{negotiate_error, negotiate_representation};
use crate::own_pages::{Detail, OwnPages};
use crate::request::{ListenerPort, OwnPage, ReadRequest, ReadVerb, RequestFilter, RequestInfo, RequestRoute};
use crate::resource::{Mirrored, MirroredSet};
use crate::response::{BodyError, ForwardReason, Refusal, ResponseBody, gzip, status};
use crate::settings::{Access, MirrorSettings};
use crate::shutdown::Shutdown;

/// The longest `SelfSubjectAccessReview`.
const MAX_REVIEW_BYTES: usize = 64 << 10;

/// The steps of a request. Each has what it needs, and no other step.
pub(crate) struct Pipeline {
    filter: RequestFilter,
    authorizer: Authorizer,
    reads: ReadHandler,
    forwarder: Forwarder,
    pub(crate) connections: Connections,
    pub(crate) resources: MirroredSet,
    pub(crate) pages: Arc<OwnPages>,
    pub(crate) metrics: MirrorMetrics,
    pub(crate) access_log: AccessLog,
    pub(crate) shutdown: Shutdown,
}

impl Pipeline {
    pub(crate) fn new(
        transport: &Arc<dyn Transport>,
        resources: MirroredSet,
        settings: &MirrorSettings,
        listener: ListenerPort,
        client: Option<Client>,
    ) -> Self {
        let (metrics, shutdown) = (MirrorMetrics::default(), Shutdown::default());
        let loopback = (settings.access == Access::Loopback).then_some(listener);
        Self {
            filter: RequestFilter::new(loopback, metrics.clone()),
            authorizer: Authorizer::new(settings, Arc::clone(transport), metrics.clone()),
            reads: ReadHandler::new(Arc::clone(transport), settings, metrics.clone(), shutdown.clone()),
            forwarder: Forwarder::new(
                Arc::clone(transport),
                settings,
                resources.clone(),
                metrics.clone(),
                shutdown.clone(),
            ),
            connections: Connections::new(settings.limits.connections, &metrics),
            pages: Arc::new(OwnPages::new(resources.clone(), metrics.clone(), client, settings.unready_after)),
            resources,
            metrics,
            access_log: AccessLog::default(),
            shutdown,
        }
    }

    /// Answers a request. Errors are responses too. Responses are not compressed for readers on this host.
    pub(crate) async fn respond(
        &self,
        request: Request<impl Body<Data = Bytes, Error: Into<BodyError>>>,
        reader: Reader,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        // A body that is not read could be taken for the next request.
        let has_body = !body.is_end_stream() || has_body(&head);
        let (started, mut notes) = (Instant::now(), AccessNotes::default());
        let (kind, info, response) = match self.read_request(&head, has_body) {
            Ok(info) if info.route == RequestRoute::SelfReview => {
                notes.source = AnswerSource::Own;
                ("own", Some(info), self.answer_self_review(&head, body, reader).await)
            }
            Ok(info) => {
                let response = self.authorize_and_answer(&head, &info, reader, &mut notes).await;
                (request_label(&info.route), Some(info), response)
            }
            Err(refusal) => ("refused", None, Err(refusal)),
        };
        if response.is_err() {
            notes.source = AnswerSource::Refused;
        }
        let mut response = response.unwrap_or_else(|refusal| error_response(refusal, &head.headers));
        if has_body && head.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if head.method == Method::HEAD {
            let length = response.body().size_hint().exact();
            if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
            *response.body_mut() = ResponseBody::empty();
        }
        let (code, time) = (response.status(), started.elapsed());
        self.metrics.count_request(kind, code, time);
        self.access_log.write_line(&head, info.as_ref(), &notes, code, time);
        response
    }

    /// Reads a request, and refuses those that the mirror answers to nobody.
    fn read_request(&self, head: &Parts, has_body: bool) -> Result<RequestInfo, Refusal> {
        self.filter.check_headers(&head.uri, &head.headers)?;
        let info = RequestInfo::parse(&head.method, head.uri.path(), head.uri.query())?;
        if has_body && info.route != RequestRoute::SelfReview {
            return Err(status::bad_request("a GET must not have a body").into());
        }
        // A server may ignore the offer of HTTP/2 in the clear, which some clients make in each first request.
        let is_upgrade =
            head.headers.get_all(UPGRADE).iter().any(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"));
        if is_upgrade {
            return Err(status::bad_request("the mirror does not upgrade connections").into());
        }
        Ok(info)
    }

    async fn authorize_and_answer(
        &self,
        head: &Parts,
        info: &RequestInfo,
        reader: Reader,
        notes: &mut AccessNotes,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let headers = &head.headers;
        notes.source = AnswerSource::Own;
        // Probes have no token. With one, they get the same answer.
        if let RequestRoute::Own(page @ (OwnPage::Live | OwnPage::Ready { .. })) = &info.route {
            return self.pages.answer_page(page, headers, Detail::Full).await;
        }
        let grant = self.authorizer.authorize_request(headers, &reader, &info.attributes, &mut notes.holder).await?;
        self.connections.set_holder(&reader.connection, grant.holder()).map_err(|PoolFull| {
            status::too_many_requests("too many connections of this user, please try again later", 1)
        })?;
        let mut reason = ForwardReason::Other;
        match &info.route {
            RequestRoute::Own(page) => return self.pages.answer_page(page, headers, Detail::Full).await,
            RequestRoute::Read(read) => {
                notes.source = AnswerSource::Memory;
                if let Some(mirrored) = self.resources.find_resource(read) {
                    match self.answer_from_cache(&mirrored, read, headers, grant.clone(), reader).await {
                        Err(Refusal::Forward(because)) => reason = because,
                        answered => return answered,
                    }
                }
            }
            RequestRoute::Forward | RequestRoute::SelfReview => {}
        }
        notes.source = AnswerSource::Forwarded;
        self.forwarder.forward_request(info, headers, grant, reason).await
    }

    /// Answers a `SelfSubjectAccessReview`, which creates nothing.
    async fn answer_self_review(
        &self,
        head: &Parts,
        body: impl Body<Data = Bytes, Error: Into<BodyError>>,
        reader: Reader,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let Some(encoding) = Encoding::from_media_type(&media_type) else {
            return Err(status::unsupported_media_type("the mirror reads reviews in JSON and protobuf only").into());
        };
        let body = Limited::new(body, MAX_REVIEW_BYTES).collect().await;
        let body = body.map_err(|_| status::bad_request("the review cannot be read, or is too long"))?.to_bytes();
        // kubectl sends protobuf, and reads the answer in JSON.
        let review = json_of_body(encoding, &body).and_then(|json| serde_json::from_slice(&json).ok());
        let mut review: Value = review.ok_or_else(|| status::bad_request("the review cannot be decoded"))?;
        let spec = review.get("spec").cloned().unwrap_or_default();
        if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() {
            let message = "the review must have either resourceAttributes or nonResourceAttributes";
            return Err(status::bad_request(message).into());
        }
        let reviewed = self.authorizer.review_self(&head.headers, &reader, &spec).await?;
        if let Some(review) = review.as_object_mut() {
            review.insert("status".to_owned(), reviewed);
        }
        let mut response = Response::new(ResponseBody::from(review.to_string()));
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Answers a read from the cache of its resource.
    async fn answer_from_cache(
        &self,
        mirrored: &Arc<Mirrored>,
        read: &ReadRequest,
        headers: &HeaderMap,
        grant: Grant,
        reader: Reader,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let representation = negotiate_representation(headers, read.verb, mirrored.has_protobuf())?;
        let response = self.reads.answer_read(mirrored, read.clone(), representation, grant).await?;
        let is_plain = reader.is_on_this_host || read.verb == ReadVerb::Watch;
        if is_plain || !gzip::is_accepted(headers) {
            return Ok(response);
        }
        // The response has not started, so the API server can still answer.
        gzip::compress_response(response).await.map_err(|_| Refusal::Forward(ForwardReason::UnknownFields))
    }
}

impl RequestHandler for Pipeline {
    async fn handle_request(&self, request: Request<Incoming>, reader: Reader) -> Response<ResponseBody> {
        self.respond(request, reader).await
    }
}

fn has_body(head: &Parts) -> bool {
    let is_zero = |length: &HeaderValue| length.as_bytes() == b"0";
    head.headers.contains_key(TRANSFER_ENCODING) || !head.headers.get_all(CONTENT_LENGTH).iter().all(is_zero)
}

fn error_response(refusal: Refusal, headers: &HeaderMap) -> Response<ResponseBody> {
    let encoding = negotiate_error(headers);
    match refusal {
        Refusal::Status(status) => status::to_response(&status, encoding),
        // `authorize_and_answer` forwards instead.
        Refusal::Forward(_) => status::to_response(&status::internal_error("the request was not forwarded"), encoding),
    }
}

/// Returns the label of a request in the metrics.
fn request_label(route: &RequestRoute) -> &'static str {
    match route {
        RequestRoute::Read(read) => read.verb.as_str(),
        RequestRoute::Forward => "other",
        RequestRoute::Own(_) | RequestRoute::SelfReview => "own",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use futures::FutureExt as _;
    use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, VARY};
    use http_body_util::Empty;

    use super::*;
    use crate::settings::Limits;
    use crate::testing::FakeApiServer;

    async fn get(
        mirror: &Pipeline,
        method: Method,
        path: &str,
        coding: &str,
        is_on_this_host: bool,
    ) -> Response<ResponseBody> {
        let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        let request = request.header(HOST, "localhost").header(ACCEPT_ENCODING, coding);
        let reader = Reader::of_test(is_on_this_host, [127, 0, 0, 1]);
        let response = mirror.respond(request.body(Empty::<Bytes>::new()).unwrap(), reader).await;
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response
    }

    async fn bytes(response: Response<ResponseBody>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn compresses_large_responses_to_other_hosts() {
        const LIST: &str = "/configmaps?resourceVersion=0";
        const OBJECT: &str = "/namespaces/web/configmaps/000001";

        let mirror = FakeApiServer::new(4, 200_000).mirror(Limits::default()).await;
        for path in [LIST, OBJECT] {
            let plain = bytes(get(&mirror, Method::GET, path, "gzip", true).await).await;
            let response = get(&mirror, Method::GET, path, "gzip", false).await;
            let headers = [CONTENT_ENCODING, VARY].map(|name| response.headers()[name].clone());
            assert_eq!(headers, ["gzip", "Accept-Encoding"], "{path}");
            let (compressed, mut decompressed) = (bytes(response).await, Vec::new());
            GzDecoder::new(&*compressed).read_to_end(&mut decompressed).unwrap();
            assert!(decompressed == plain && compressed.len() < plain.len() / 5, "{path}");
        }
        let small = FakeApiServer::new(4, 30_000).mirror(Limits::default()).await;
        for (mirror, method, path, coding, is_on_this_host) in [
            (&mirror, Method::GET, LIST, "gzip", true),
            (&mirror, Method::GET, LIST, "identity", false),
            (&mirror, Method::GET, "/configmaps?watch=1", "gzip", false),
            (&small, Method::GET, LIST, "gzip", false),
            (&small, Method::GET, OBJECT, "gzip", false),
        ] {
            let response = get(mirror, method.clone(), path, coding, is_on_this_host).await;
            let headers = [CONTENT_ENCODING, VARY].map(|name| response.headers().get(name).cloned());
            assert_eq!(headers, [None, None], "{method} {path}");
            let frame = response.into_body().frame().now_or_never().unwrap();
            if method == Method::GET {
                let frame = frame.unwrap().unwrap().into_data().unwrap();
                assert_eq!(frame[0], b'{', "{path}");
            }
        }
    }
}
