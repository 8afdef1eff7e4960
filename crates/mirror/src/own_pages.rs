//! The pages of a mirror about itself.

use std::fmt::Write as _;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use listwatch::client::Client;
use tokio::task::spawn_blocking;

use crate::metrics::{self, MirrorMetrics};
use crate::request::OwnPage;
use crate::resource::{MirroredSet, ResourceStatus};
use crate::response::{Refusal, ResponseBody, status};

pub(crate) async fn answer_own_page(
    resources: &MirroredSet,
    metrics: &MirrorMetrics,
    client: Option<&Client>,
    page: &OwnPage,
    headers: &HeaderMap,
) -> Result<Response<ResponseBody>, Refusal> {
    match page {
        OwnPage::Live => Ok(text_response(StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned())),
        OwnPage::Ready { resource, verbose } => {
            let named = |status: &ResourceStatus| resource.as_ref().is_none_or(|name| *name == status.name);
            let statuses: Vec<_> = resources.iter().map(|mirrored| mirrored.status()).filter(named).collect();
            if statuses.is_empty() && resource.is_some() {
                return Err(status::no_such_path().into());
            }
            Ok(readiness_response(&statuses, *verbose))
        }
        OwnPage::Metrics => {
            let (resources, metrics) = (resources.clone(), metrics.clone());
            let upstream = client.map(Client::metrics);
            // The memory of a store is measured under the lock of its writer, and the process is read from files.
            let text = spawn_blocking(move || {
                metrics.encode_text(resources.iter().map(|mirrored| mirrored.metrics()), upstream)
            });
            let text = text.await.map_err(status::internal_error)?.map_err(status::internal_error)?;
            Ok(text_response(StatusCode::OK, metrics::content_type(headers), text))
        }
    }
}

/// Lists the resources if the reader wants them, or if one is not ready, as the API server's `/readyz` lists its
/// checks.
///
/// It does not contain the reason of a resource that is not ready, because it answers readers without a token.
fn readiness_response(statuses: &[ResourceStatus], verbose: bool) -> Response<ResponseBody> {
    let is_ready = statuses.iter().all(|status| status.ready);
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if is_ready && !verbose {
        return text_response(code, "text/plain; charset=utf-8", "ok".to_owned());
    }
    let mut lines = String::new();
    for ResourceStatus { name, ready, lag, .. } in statuses {
        let lag = lag.map_or_else(|| "never synced".to_owned(), |lag| format!("lag {:.1} s", lag.as_secs_f64()));
        let (sign, word) = if *ready { ('+', "ok") } else { ('-', "not ready") };
        // A write to a string does not fail.
        _ = writeln!(lines, "[{sign}]{name} {word}: {lag}");
    }
    lines.push_str(if is_ready { "readyz check passed\n" } else { "readyz check failed\n" });
    text_response(code, "text/plain; charset=utf-8", lines)
}

fn text_response(code: StatusCode, content_type: &'static str, body: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
