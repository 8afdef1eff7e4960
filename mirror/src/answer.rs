//! From a request to its response.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body::Body as HttpBody;

use crate::auth::Granted;
use crate::body::Body;
use crate::mirrored::Mirrored;
use crate::request::{self, Asked, Own, Read, ReadKind, What};
use crate::shared::Shared;
use crate::status::{self, Refusal};
use crate::{accept, auth, forward, gzip, health, reads};

/// Answers a request. Errors are responses too. Responses are not compressed for readers on this host.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request: Request<impl HttpBody>,
    is_from_this_host: bool,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    // A body that is not read could be taken for the next request.
    let has_body = !body.is_end_stream() || has_body(&head);
    let (kind, response) = match asked(shared, &head, has_body) {
        Ok(asked) => (kind(&asked.what), granted(shared, &head, asked, is_from_this_host).await),
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
async fn granted(
    shared: &Arc<Shared>,
    head: &Parts,
    asked: Asked,
    is_from_this_host: bool,
) -> Result<Response<Body>, Refusal> {
    let own = match &asked.what {
        // Probes have no token. With one, they get the same answer.
        What::Own(own @ (Own::Live | Own::Ready { .. })) => return health::answer(shared, own, &head.headers),
        What::Own(own) => Some(own),
        What::Read(_) | What::Forward => None,
    };
    let granted = auth::authorize(shared, head, &asked.attributes).await?;
    if let Some(own) = own {
        return health::answer(shared, own, &head.headers);
    }
    if let What::Read(read) = &asked.what
        && let Some(mirrored) = shared.find(read)
    {
        match from_memory(shared, mirrored, read, &head.headers, granted.clone(), is_from_this_host).await {
            Err(Refusal::Forward) => {}
            answered => return answered,
        }
    }
    forward::forward(shared, &asked, &head.headers, granted).await
}

/// Answers a read from the cache of its resource.
async fn from_memory(
    shared: &Shared,
    mirrored: &Arc<Mirrored>,
    read: &Read,
    headers: &HeaderMap,
    granted: Granted,
    is_from_this_host: bool,
) -> Result<Response<Body>, Refusal> {
    let form = accept::negotiate(headers, read.kind, mirrored.has_protobuf())?;
    let response = reads::answer(shared, mirrored, read.clone(), form, granted).await?;
    if is_from_this_host || read.is_head || read.kind == ReadKind::Watch || !gzip::is_accepted(headers) {
        return Ok(response);
    }
    // The response has not started, so the API server can still answer.
    gzip::compress(response).await.map_err(|_| Refusal::Forward)
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bytes::Bytes;
    use flate2::read::GzDecoder;
    use futures::FutureExt as _;
    use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, VARY};
    use http_body_util::{BodyExt as _, Empty};

    use super::*;
    use crate::mirror::Limits;
    use crate::testing::Api;

    async fn get(
        shared: &Arc<Shared>,
        method: Method,
        path: &str,
        coding: &str,
        is_from_this_host: bool,
    ) -> Response<Body> {
        let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        let request = request.header(HOST, "localhost").header(ACCEPT_ENCODING, coding);
        let response = answer(shared, request.body(Empty::<Bytes>::new()).unwrap(), is_from_this_host).await;
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response
    }

    async fn bytes(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn compresses_large_responses_to_other_hosts() {
        const LIST: &str = "/configmaps?resourceVersion=0";
        const OBJECT: &str = "/namespaces/web/configmaps/000001";

        let shared = Api::new(4, 200_000).mirror(Limits::default()).await;
        for path in [LIST, OBJECT] {
            let plain = bytes(get(&shared, Method::GET, path, "gzip", true).await).await;
            let response = get(&shared, Method::GET, path, "gzip", false).await;
            let headers = [CONTENT_ENCODING, VARY].map(|name| response.headers()[name].clone());
            assert_eq!(headers, ["gzip", "Accept-Encoding"], "{path}");
            let (compressed, mut decompressed) = (bytes(response).await, Vec::new());
            GzDecoder::new(&*compressed).read_to_end(&mut decompressed).unwrap();
            assert!(decompressed == plain && compressed.len() < plain.len() / 5, "{path}");
        }
        let small = Api::new(4, 30_000).mirror(Limits::default()).await;
        for (shared, method, path, coding, is_from_this_host) in [
            (&shared, Method::GET, LIST, "gzip", true),
            (&shared, Method::GET, LIST, "identity", false),
            (&shared, Method::HEAD, LIST, "gzip", false),
            (&shared, Method::HEAD, OBJECT, "gzip", false),
            (&shared, Method::GET, "/configmaps?watch=1", "gzip", false),
            (&small, Method::GET, LIST, "gzip", false),
            (&small, Method::GET, OBJECT, "gzip", false),
        ] {
            let response = get(shared, method.clone(), path, coding, is_from_this_host).await;
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
