//! Requests that the API server answers, with the mirror's credentials.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, HeaderName,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER, VARY, WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use listwatch::client::{Request, TransportErrorKind};
use tokio::time::timeout;

use crate::auth::Granted;
use crate::body::{Body, BodyError};
use crate::params;
use crate::request::{Asked, Attributes};
use crate::shared::Shared;
use crate::status::{self, Refusal};

/// The headers of a request that reach the API server. All others stay here, above all credentials.
const REQUEST: [HeaderName; 4] = [ACCEPT, ACCEPT_ENCODING, IF_MODIFIED_SINCE, IF_NONE_MATCH];

/// The headers of a response that reach the reader.
const RESPONSE: [HeaderName; 11] = [
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

/// Forwards a request. The reader must be authorized for its attributes, because the API server sees the mirror's credentials.
pub(crate) async fn forward(
    shared: &Arc<Shared>,
    asked: &Asked,
    headers: &HeaderMap,
    granted: Granted,
) -> Result<Response<Body>, Refusal> {
    check(shared, &asked.attributes)?;
    shared.metrics.forwarded();
    let sent = shared.transport.get(Request::new(asked.path_and_query.clone(), only(&REQUEST, headers)));
    let answer = match timeout(HEAD_TIMEOUT, sent).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::warn!(name: "listwatch.mirror.forward", error = %shared.transport.redact(error.to_string()), "cannot forward a request");
            return Err(match error.kind() {
                TransportErrorKind::Deadline | TransportErrorKind::ReadIdle => {
                    status::timeout("the API server did not answer the mirror in time")
                }
                kind => status::bad_gateway(format!("the mirror did not get an answer of the API server: {kind}")),
            }
            .into());
        }
        Err(_) => return Err(status::timeout("the API server did not answer the mirror in time").into()),
    };
    // These answers are about the mirror: its credentials are refused, or its URL is wrong.
    let is_of_mirror = answer.status == StatusCode::UNAUTHORIZED
        || answer.status.is_informational()
        || answer.status.is_redirection() && answer.status != StatusCode::NOT_MODIFIED;
    if is_of_mirror {
        return Err(status::bad_gateway(format!("the API server answered {} to the mirror", answer.status)).into());
    }
    let chunks = answer.body.map_err(BodyError::from);
    let body = if is_endless(asked) {
        let shutdown = shared.shutdown();
        let end = async move { futures::future::select(shutdown.boxed(), granted.withdrawn().boxed()).await };
        Body::endless(chunks.take_until(end))
    } else {
        Body::from_stream(chunks)
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = only(&RESPONSE, &answer.headers);
    Ok(response)
}

/// Refuses Secrets, unless they are a mirrored resource.
fn check(shared: &Shared, attributes: &Attributes) -> Result<(), Refusal> {
    let names_secrets = || {
        shared.resources.iter().any(|mirrored| {
            let resource = &mirrored.resource;
            resource.group().is_empty()
                && resource.plural() == "secrets"
                && match (&mirrored.namespace, attributes) {
                    (None, _) => true,
                    (Some(namespace), Attributes::Resource(of)) => of.namespace == *namespace,
                    (Some(_), Attributes::Path { .. }) => false,
                }
        })
    };
    if attributes.is_of_secrets() && !names_secrets() {
        shared.metrics.denied("secrets");
        let message = "secrets is forbidden: the mirror does not forward Secrets unless it mirrors them";
        return Err(status::forbidden(message).into());
    }
    Ok(())
}

/// Returns true for watches and followed logs, which may end at any time.
fn is_endless(asked: &Asked) -> bool {
    let Attributes::Resource(of) = &asked.attributes else { return false };
    let query = asked.path_and_query.split_once('?').map_or("", |(_, query)| query);
    let follows = || params::pairs(query).is_ok_and(|pairs| params::flag(&pairs, "follow").unwrap_or_default());
    of.verb == "watch" || of.subresource == "log" && follows()
}

fn only(names: &[HeaderName], headers: &HeaderMap) -> HeaderMap {
    let kept =
        names.iter().flat_map(|name| headers.get_all(name).iter().map(move |value| (name.clone(), value.clone())));
    let mut copy = HeaderMap::new();
    for (name, value) in kept {
        copy.append(name, value);
    }
    copy
}
