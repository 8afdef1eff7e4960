//! Any response, from a server or from a proxy in front of it, yields a list or an error. The error has one line, does
//! not contain the token, and shows at most a snippet of an unexpected body.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use listwatch::client::{
    Client, Error, ErrorKind, ListParams, Request, Resource, Response, ResponseFuture, Transport, TransportError,
    TransportErrorKind,
};
use tokio::runtime::Builder;

use super::support::{cut, said};

/// The token, which no error may contain.
const TOKEN: &str = "t0ken";

/// The maximum length of a snippet, in bytes.
const LONGEST: usize = 8000;

/// Takes an HTTP/1.1 response: a status line, headers, an empty line and the body. With the header `x-break`, the
/// connection breaks at the end of the body.
pub fn run(data: &[u8]) {
    let Some(answer) = Answer::parse(data) else { return };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let client = Client::new(answer);
    runtime.block_on(async {
        let params = ListParams::default();
        if let Err(error) = client.list::<[u8]>(&Resource::PODS, &params).into_vec().await {
            check(&error);
        }
        let pods = client.list::<[u8]>(&Resource::PODS, &params.page_size(2)).allow_inconsistent();
        if let Err(error) = pods.into_vec().await {
            check(&error);
        }
        if let Err(error) = client.get::<[u8]>(&Resource::PODS, Some("default"), "a").await {
            check(&error);
        }
        if let Err(error) = client.resolve("widgets").await {
            check(&error);
        }
    });
}

fn check(error: &Error) {
    let text = error.to_string();
    assert!(!text.contains(char::is_control), "an error with control characters: {text}");
    let texts = said(error);
    assert!(!texts.contains(TOKEN), "an error with the token: {texts}");
    if let ErrorKind::UnexpectedBody { snippet, .. } = error.kind() {
        assert!(snippet.as_ref().is_none_or(|snippet| snippet.len() <= LONGEST), "{error}");
    }
}

/// A transport that returns the same response to every request.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<Bytes>,
    breaks: bool,
}

impl Answer {
    fn parse(data: &[u8]) -> Option<Self> {
        let mut rest = data;
        let mut line = || {
            let at = rest.iter().position(|byte| *byte == b'\n')?;
            let (line, after) = (&rest[..at], &rest[at + 1..]);
            rest = after;
            Some(line.strip_suffix(b"\r").unwrap_or(line))
        };
        let status = StatusCode::from_bytes(line()?.split(|byte| *byte == b' ').nth(1)?).ok()?;
        let mut headers = HeaderMap::new();
        while let Some(line) = line().filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            headers.try_append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
        }
        let breaks = headers.contains_key("x-break");
        let length = 1 + rest.len() % 97;
        let body = cut(rest, &[length]).map(Bytes::copy_from_slice).collect();
        Some(Self { status, headers, body, breaks })
    }
}

impl Transport for Answer {
    fn get(&self, _: Request) -> ResponseFuture<'_> {
        let broken = self.breaks.then(|| Err(TransportError::new(TransportErrorKind::Broken, "reset")));
        let body = stream::iter(self.body.clone().into_iter().map(Ok).chain(broken)).boxed();
        future::ready(Ok(Response::new(self.status, self.headers.clone(), body))).boxed()
    }

    fn redact(&self, text: String) -> String {
        text.replace(TOKEN, "[redacted]")
    }
}
