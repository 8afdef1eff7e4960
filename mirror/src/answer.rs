//! From a request to its response.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::body::Body;
use crate::request::{self, Asked, Own, Read, ReadKind, What};
use crate::shared::Shared;
use crate::status::{self, Refusal};
use crate::{accept, auth, forward, health, reads};

/// Answers a request. Errors are responses too.
pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // A body that is not read could be taken for the next request.
    let has_body = !body.is_end_stream() || has_body(&head);
    let (kind, response) = match asked(shared, &head, has_body) {
        Ok(asked) => (kind(&asked.what), granted(shared, &head, asked).await),
        Err(refusal) => ("refused", Err(refusal)),
    };
    let mut response = response.unwrap_or_else(refused);
    if has_body && head.version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if head.method == Method::HEAD {
        let length = response.body().size_hint().exact();
        if let Some(length) = length.filter(|_| !response.headers().contains_key(CONTENT_LENGTH)) {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        *response.body_mut() = Body::empty();
    }
    shared.metrics.request(kind, response.status());
    response
}

/// Reads a request, and refuses those that the mirror answers to nobody.
fn asked(shared: &Shared, head: &Parts, has_body: bool) -> Result<Asked, Refusal> {
    auth::check(shared, &head.uri, &head.headers)?;
    let asked = request::parse(&head.method, head.uri.path(), head.uri.query())?;
    if has_body {
        return Err(status::bad_request("a GET must not have a body").into());
    }
    // A server may ignore the offer of HTTP/2 in the clear, which some clients make in each first request.
    let is_upgrade =
        head.headers.get_all(UPGRADE).iter().any(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"));
    if is_upgrade {
        return Err(status::bad_request("the mirror does not upgrade connections").into());
    }
    Ok(asked)
}

fn has_body(head: &Parts) -> bool {
    let is_zero = |length: &HeaderValue| length.as_bytes() == b"0";
    head.headers.contains_key(TRANSFER_ENCODING) || !head.headers.get_all(CONTENT_LENGTH).iter().all(is_zero)
}

/// Authorizes a request and answers it.
async fn granted(shared: &Arc<Shared>, head: &Parts, asked: Asked) -> Result<Response<Body>, Refusal> {
    let own = match &asked.what {
        // Probes have no token. With one, they get the same answer.
        What::Own(own @ (Own::Live | Own::Ready { .. })) => return health::answer(shared, own),
        What::Own(own) => Some(own),
        What::Read(_) | What::Forward => None,
    };
    let granted = auth::authorize(shared, &head.headers, &asked.attributes).await?;
    if let Some(own) = own {
        return health::answer(shared, own);
    }
    if let What::Read(read) = &asked.what
        && let Some(mirrored) = shared.find(read)
    {
        let answered = match accept::negotiate(&head.headers, read.kind, mirrored.has_protobuf()) {
            Ok(form) => reads::answer(shared, mirrored, Read::clone(read), form, granted.clone()).await,
            Err(refusal) => Err(refusal),
        };
        match answered {
            Err(Refusal::Forward) => {}
            answered => return answered,
        }
    }
    forward::forward(shared, &asked, &head.headers, granted).await
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Status(status) => status::response(&status),
        // `granted` forwards instead.
        Refusal::Forward => status::response(&status::internal_error("the request was not forwarded")),
    }
}

/// Returns the label of a request in the metrics.
fn kind(what: &What) -> &'static str {
    match what {
        What::Read(read) => match read.kind {
            ReadKind::Get => "get",
            ReadKind::List => "list",
            ReadKind::Watch => "watch",
        },
        What::Forward => "other",
        What::Own(_) => "own",
    }
}
