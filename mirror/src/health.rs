//! The pages of a mirror about itself.

use std::fmt::Write as _;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::Body;
use crate::metrics;
use crate::mirrored::ResourceStatus;
use crate::request::Own;
use crate::shared::Shared;
use crate::status::{self, Refusal};

pub(crate) fn answer(shared: &Shared, own: &Own, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    match own {
        Own::Live => Ok(text(StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned())),
        Own::Ready { resource, verbose } => {
            let named = |status: &ResourceStatus| resource.as_ref().is_none_or(|name| *name == status.name);
            let resources: Vec<_> = shared.resources.iter().map(|mirrored| mirrored.status()).filter(named).collect();
            if resources.is_empty() && resource.is_some() {
                return Err(status::no_such_path().into());
            }
            Ok(ready(&resources, *verbose))
        }
        Own::Metrics => {
            let metrics = shared.metrics.text(&shared.resources).map_err(status::internal_error)?;
            Ok(text(StatusCode::OK, metrics::content_type(headers), metrics))
        }
    }
}

/// Lists the resources if the reader wants them, or if one is not ready, as the API server's `/readyz` lists its checks.
///
/// It does not contain the reason of a resource that is not ready, because it answers readers without a token.
fn ready(resources: &[ResourceStatus], verbose: bool) -> Response<Body> {
    let is_ready = resources.iter().all(|status| status.ready);
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if is_ready && !verbose {
        return text(code, "text/plain; charset=utf-8", "ok".to_owned());
    }
    let mut lines = String::new();
    for ResourceStatus { name, ready, lag, .. } in resources {
        let lag = lag.map_or_else(|| "never synced".to_owned(), |lag| format!("lag {:.1} s", lag.as_secs_f64()));
        let (sign, word) = if *ready { ('+', "ok") } else { ('-', "not ready") };
        // A write to a string does not fail.
        _ = writeln!(lines, "[{sign}]{name} {word}: {lag}");
    }
    lines.push_str(if is_ready { "readyz check passed\n" } else { "readyz check failed\n" });
    text(code, "text/plain; charset=utf-8", lines)
}

fn text(code: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
