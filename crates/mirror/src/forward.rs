//! Requests that the API server answers, with the mirror's credentials.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, HeaderName,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER, VARY, WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use listwatch::client::{Request, Transport, TransportError, TransportErrorKind};
use listwatch::internal::WarningLimit;
use tokio::time::{Instant, timeout};

use crate::authorize::Grant;
use crate::fairness::{FairPool, PoolFull};
use crate::metrics::MirrorMetrics;
use crate::request::{Attributes, QueryPairs, RequestInfo};
use crate::resource::MirroredSet;
use crate::response::{BodyError, ForwardReason, Refusal, ResponseBody, status};
use crate::settings::MirrorSettings;
use crate::shutdown::Shutdown;

/// The headers of a request that reach the API server. All others stay here, above all credentials.
const REQUEST_HEADERS: [HeaderName; 4] = [ACCEPT, ACCEPT_ENCODING, IF_MODIFIED_SINCE, IF_NONE_MATCH];

/// The headers of a response that reach the reader.
const RESPONSE_HEADERS: [HeaderName; 11] = [
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    RETRY_AFTER,
    VARY,
    WARNING,
    HeaderName::from_static("audit-id"),
];

/// The time for the head of a response. The API server has 60 s for a list.
const HEAD_TIMEOUT: Duration = Duration::from_secs(70);

/// Forwards requests to the API server.
pub(crate) struct Forwarder {
    transport: Arc<dyn Transport>,
    /// The requests whose responses end.
    pool: FairPool,
    /// The others.
    watches: FairPool,
    resources: MirroredSet,
    metrics: MirrorMetrics,
    shutdown: Shutdown,
    warnings: WarningLimit,
}

impl Forwarder {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        settings: &MirrorSettings,
        resources: MirroredSet,
        metrics: MirrorMetrics,
        shutdown: Shutdown,
    ) -> Self {
        let limits = &settings.limits;
        let pool = |name, units| FairPool::new(units, limits.waiting, metrics.pool(name, units));
        let (pool, watches) = (pool("forwards", limits.forwards), pool("forwarded_watches", limits.forwarded_watches));
        Self { transport, pool, watches, resources, metrics, shutdown, warnings: WarningLimit::default() }
    }

    /// Forwards a request. The reader must be authorized for its attributes, because the API server sees the mirror's
    /// credentials.
    ///
    /// # Errors
    ///
    /// 403 for Secrets that are not mirrored, 429 if too many requests wait, 502 and 504 if the API server sends no
    /// answer for the reader.
    pub(crate) async fn forward_request(
        &self,
        info: &RequestInfo,
        headers: &HeaderMap,
        grant: Grant,
        reason: ForwardReason,
    ) -> Result<Response<ResponseBody>, Refusal> {
        self.check_secrets(&info.attributes)?;
        let is_endless = is_endless(info);
        let pool = if is_endless { &self.watches } else { &self.pool };
        let permit = pool
            .acquire(grant.holder())
            .await
            .map_err(|PoolFull| status::too_many_requests("too many forwarded requests, please try again later", 1))?;
        self.metrics.count_forwarded(reason.as_str());
        let started = Instant::now();
        let request = Request::new(info.path_and_query.clone(), copy_headers(&REQUEST_HEADERS, headers));
        let answer = match timeout(HEAD_TIMEOUT, self.transport.get(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.transport_failure(&error)),
            Err(_) => {
                let message = format!("the API server has not responded for {} s", HEAD_TIMEOUT.as_secs());
                return Err(self.transport_failure(&TransportError::new(TransportErrorKind::ReadIdle, message)));
            }
        };
        self.metrics.observe_forward(started.elapsed());
        if answer.status == StatusCode::FORBIDDEN && grant.is_reviewed() {
            return Err(self.mirror_forbidden(&info.attributes));
        }
        // These answers are about the mirror: its credentials are refused, or its URL is wrong.
        let is_about_mirror = answer.status == StatusCode::UNAUTHORIZED
            || answer.status.is_informational()
            || answer.status.is_redirection() && answer.status != StatusCode::NOT_MODIFIED;
        if is_about_mirror {
            return Err(status::bad_gateway(format!("the API server answered {} to the mirror", answer.status)).into());
        }
        // The body holds the permit.
        let chunks = answer.body.map_err(BodyError::from).inspect(move |_| _ = &permit);
        let body = if is_endless {
            let shutdown = self.shutdown.started();
            let end = async move { futures::future::select(shutdown.boxed(), grant.withdrawn().boxed()).await };
            ResponseBody::endless(chunks.take_until(end))
        } else {
            ResponseBody::from_stream(chunks)
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = copy_headers(&RESPONSE_HEADERS, &answer.headers);
        Ok(response)
    }

    /// Refuses Secrets, unless they are a mirrored resource.
    fn check_secrets(&self, attributes: &Attributes) -> Result<(), Refusal> {
        if attributes.is_of_secrets() && !self.resources.has_secrets(attributes) {
            self.metrics.count_denied("secrets");
            let message = "secrets is forbidden: the mirror does not forward Secrets unless it mirrors them";
            return Err(status::forbidden(message).into());
        }
        Ok(())
    }

    /// Returns the 403 of a request that the reader may send, and the mirror may not. The API server's names the
    /// account of the mirror as if it were the reader's.
    fn mirror_forbidden(&self, attributes: &Attributes) -> Refusal {
        let (what, details) = match attributes {
            Attributes::Resource(of) => {
                let resource = status::group_resource(&of.group, &of.resource);
                (format!("{} {resource}", of.verb), Some(status::details(&of.group, &of.resource, &of.name)))
            }
            Attributes::Path { verb, path } => (format!("{verb} {path:?}"), None),
        };
        if let Some(left_out) = self.warnings.admit(&what) {
            let message = "the mirror may not forward a request, because its own account lacks the right";
            tracing::warn!(name: "listwatch.mirror.forward", request = what, left_out, message);
        }
        let mut status = status::forbidden(format!(
            "forbidden: you may {what}, but the mirror must ask the API server for it with its own account, which may not"
        ));
        status.details = details;
        status.into()
    }

    fn transport_failure(&self, error: &TransportError) -> Refusal {
        let text = self.transport.redact(error.to_string());
        if let Some(left_out) = self.warnings.admit(&text) {
            tracing::warn!(name: "listwatch.mirror.forward", error = %text, left_out, "cannot forward a request");
        }
        match error.kind() {
            TransportErrorKind::Deadline | TransportErrorKind::ReadIdle => answer_timeout(),
            kind => {
                // Without the message, which is for the log.
                let what = TransportError::new(kind, "");
                status::bad_gateway(format!("the mirror did not get an answer of the API server: {what}")).into()
            }
        }
    }
}

fn answer_timeout() -> Refusal {
    status::timeout("the API server did not answer the mirror in time").into()
}

/// Returns true for watches and followed logs, which may end at any time.
fn is_endless(info: &RequestInfo) -> bool {
    let Attributes::Resource(of) = &info.attributes else { return false };
    let query = info.path_and_query.split_once('?').map_or("", |(_, query)| query);
    let follows = || QueryPairs::parse(query).is_ok_and(|query| query.parse_flag("follow").unwrap_or_default());
    of.verb == "watch" || of.subresource == "log" && follows()
}

fn copy_headers(names: &[HeaderName], headers: &HeaderMap) -> HeaderMap {
    let kept =
        names.iter().flat_map(|name| headers.get_all(name).iter().map(move |value| (name.clone(), value.clone())));
    let mut copy = HeaderMap::new();
    for (name, value) in kept {
        copy.append(name, value);
    }
    copy
}
