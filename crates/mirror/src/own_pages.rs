//! The pages of a mirror about itself, and the listener that has only these.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use listwatch::Encoding;
use listwatch::client::Client;
use tokio::task::spawn_blocking;

use crate::accept::{Reader, RequestHandler};
use crate::metrics::{self, MirrorMetrics, ShownResources};
use crate::request::{OwnPage, RequestInfo, RequestRoute};
use crate::resource::{MirroredSet, ResourceStatus};
use crate::response::{Refusal, ResponseBody, status};
use crate::shutdown::Shutdown;

/// The pages of a mirror about itself.
pub(crate) struct OwnPages {
    resources: MirroredSet,
    metrics: MirrorMetrics,
    /// The client of the reflectors, if its counters are shown.
    client: Option<Client>,
    unready_after: Option<Duration>,
    /// Started before the mirror stops answering, so that no new readers come.
    pub(crate) leaving: Shutdown,
}

/// What a page may tell about the mirrored resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What a stranger may know: whether they are ready.
    Public,
    /// Everything.
    Full,
}

impl OwnPages {
    pub(crate) fn new(
        resources: MirroredSet,
        metrics: MirrorMetrics,
        client: Option<Client>,
        unready_after: Option<Duration>,
    ) -> Self {
        Self { resources, metrics, client, unready_after, leaving: Shutdown::default() }
    }

    pub(crate) async fn answer_page(
        &self,
        page: &OwnPage,
        headers: &HeaderMap,
        detail: Detail,
    ) -> Result<Response<ResponseBody>, Refusal> {
        match page {
            OwnPage::Live => Ok(text_response(StatusCode::OK, TEXT, "ok".to_owned())),
            OwnPage::Ready { resource: None, verbose } => Ok(self.readiness_response(*verbose)),
            OwnPage::Ready { resource: Some(name), verbose } => {
                let status = self.resources.statuses().into_iter().find(|status| status.name == *name);
                let status = status.ok_or_else(|| Refusal::from(status::no_such_path()))?;
                let is_ready = status.is_ready();
                Ok(checks_response(&[status], is_ready, *verbose, ""))
            }
            OwnPage::Metrics => {
                let (resources, metrics) = (self.resources.clone(), self.metrics.clone());
                let upstream = self.client.as_ref().map(Client::metrics);
                // The memory of a store is measured under the lock of its writer, and the process is read from files.
                let text = spawn_blocking(move || {
                    let missing = resources.statuses().into_iter().filter(|status| status.upstream == "missing");
                    let missing = missing.map(|status| status.name).collect();
                    let mirrored = resources.all().iter().map(|mirrored| mirrored.metrics()).collect();
                    let resources = ShownResources { mirrored, missing, are_named: detail == Detail::Full };
                    metrics.encode_text(resources, upstream)
                });
                let text = text.await.map_err(status::internal_error)?.map_err(status::internal_error)?;
                Ok(text_response(StatusCode::OK, metrics::content_type(headers), text))
            }
        }
    }

    /// A mirror is ready if it can answer reads at version 0 of some resource. It stays ready while the API server does
    /// not answer, because its memory is most useful then.
    fn readiness_response(&self, verbose: bool) -> Response<ResponseBody> {
        let statuses = self.resources.statuses();
        let is_old = |lag: Duration| self.unready_after.is_some_and(|limit| lag > limit);
        let answers = |status: &ResourceStatus| status.is_ready() && !status.lag.is_some_and(is_old);
        let failed = if self.leaving.has_started() {
            "[-]shutdown: the mirror is shutting down\n"
        } else if statuses.is_empty() {
            ""
        } else if !statuses.iter().any(ResourceStatus::is_ready) {
            "[-]resources: none is ready\n"
        } else if !statuses.iter().any(answers) {
            "[-]upstream: no resource is up to date\n"
        } else {
            ""
        };
        checks_response(&statuses, failed.is_empty(), verbose, failed)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Lists the resources if the reader wants them, or if one is not ready, as the API server's `/readyz` lists its
/// checks.
///
/// It does not contain the reason of a resource that is not ready, because it answers readers without a token.
fn checks_response(statuses: &[ResourceStatus], is_ready: bool, verbose: bool, failed: &str) -> Response<ResponseBody> {
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if is_ready && !verbose && statuses.iter().all(ResourceStatus::is_ready) {
        return text_response(code, TEXT, "ok".to_owned());
    }
    let mut lines = String::new();
    for status in statuses {
        let lag = status.lag.map_or_else(|| "never synced".to_owned(), |lag| format!("lag {:.1} s", lag.as_secs_f64()));
        let (sign, word) = if status.is_ready() { ('+', "ok") } else { ('-', "not ready") };
        // A write to a string does not fail.
        _ = writeln!(lines, "[{sign}]{} {word}: {lag}, upstream {}", status.name, status.upstream);
    }
    lines.push_str(failed);
    lines.push_str(if is_ready { "readyz check passed\n" } else { "readyz check failed\n" });
    text_response(code, TEXT, lines)
}

/// Answers the requests of a listener that has only these pages, to everybody.
pub(crate) struct ProbeHandler {
    pub(crate) pages: Arc<OwnPages>,
    pub(crate) detail: Detail,
}

impl RequestHandler for ProbeHandler {
    async fn handle_request(&self, request: Request<Incoming>, _: Reader) -> Response<ResponseBody> {
        let uri = request.uri();
        let answer = match RequestInfo::parse(request.method(), uri.path(), uri.query()).map(|info| info.route) {
            Ok(RequestRoute::Own(page)) => self.pages.answer_page(&page, request.headers(), self.detail).await,
            Ok(_) => Err(status::no_such_path().into()),
            Err(refusal) => Err(refusal),
        };
        answer.unwrap_or_else(|refusal| match refusal {
            Refusal::Status(status) => status::to_response(&status, Encoding::Json),
            Refusal::Forward(_) => status::to_response(&status::no_such_path(), Encoding::Json),
        })
    }
}

fn text_response(code: StatusCode, content_type: &'static str, body: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
