//! `ServiceTransport`: what its function gets, and what becomes of its responses and errors.

use std::future::pending;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use listwatch::client::{
    self, Client, Error, ErrorKind, ListParams, Resource, Retry, ServiceTransport, Transport as _, TransportError,
    TransportErrorKind,
};
use listwatch_testserver::{Answer, Body, TOKEN, recorded_pods};
use tokio::time::Instant;

use crate::support::server::{Pods, pods, serve};

/// On the caller's runtime, and on a thread of the transport.
fn both(open: impl Fn() -> ServiceTransport) -> [Client; 2] {
    [open(), open().on_own_thread()].map(|transport| Client::new(transport).retry(Retry::never()))
}

/// A transport over reqwest, which needs the base URL.
fn over_reqwest(url: &str, http2: bool) -> ServiceTransport {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let client = if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap();
    let base = url.to_owned();
    ServiceTransport::new(move |mut request: Request<reqwest::Body>| {
        *request.uri_mut() = format!("{base}{}", request.uri()).parse().unwrap();
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
    })
}

type Frames = Vec<io::Result<Frame<Bytes>>>;

/// A transport over a function that returns this body, and stays silent after it if `stalls`.
fn over_frames(frames: impl Fn() -> Frames + Send + Sync + 'static, stalls: bool) -> ServiceTransport {
    ServiceTransport::new(move |_: Request<Full<Bytes>>| {
        let end = if stalls { stream::pending().left_stream() } else { stream::empty().right_stream() };
        let body = StreamBody::new(stream::iter(frames()).chain(end));
        async move { Ok::<_, io::Error>(Response::new(body)) }
    })
}

/// A transport over a function that fails.
fn failing<E>(error: impl Fn() -> E + Send + Sync + 'static) -> ServiceTransport
where
    E: std::error::Error + Send + Sync + 'static,
{
    ServiceTransport::new(move |_: Request<Full<Bytes>>| {
        let error = error();
        async move { Err::<Response<Full<Bytes>>, _>(error) }
    })
}

/// Returns the URL of a port that refuses connections.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[track_caller]
fn kind(error: &Error) -> TransportErrorKind {
    match error.kind() {
        ErrorKind::Transport(error) | ErrorKind::Incomplete { cause: Some(error), .. } => error.kind(),
        _ => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_function_gets_path_query_and_negotiation() {
    let (seen, requests) = mpsc::channel();
    let transport = ServiceTransport::new(move |request: Request<Full<Bytes>>| {
        seen.send(request).unwrap();
        async { Ok::<_, io::Error>(Response::new(Full::from(recorded_pods()))) }
    });
    let post = client::Request::new("/apis/a".to_owned(), HeaderMap::new());
    transport.post(post, Bytes::from_static(b"{}")).await.unwrap();
    let client = Client::new(transport);
    let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default().page_size(500));
    assert_eq!(list.into_vec().await.unwrap().0.len(), 120);

    let post = requests.recv().unwrap();
    assert_eq!((post.method(), post.uri().to_string().as_str()), (&Method::POST, "/apis/a"));
    assert_eq!(http_body::Body::size_hint(post.body()).exact(), Some(2));
    let get = requests.recv().unwrap();
    assert_eq!((get.method(), get.uri().to_string().as_str()), (&Method::GET, "/api/v1/pods?limit=500"));
    assert!(http_body::Body::is_end_stream(get.body()));
    let mut names: Vec<_> = get.headers().keys().collect();
    names.sort_by_key(|name| name.as_str());
    assert_eq!(names, ["accept", "accept-encoding"]);
    assert_eq!(get.headers()["accept-encoding"], "identity");
}

#[tokio::test]
async fn lists_through_another_http_client() {
    let server = serve(Answer::ok(Body::replay(recorded_pods()))).await;
    for http2 in [false, true] {
        for client in both(|| over_reqwest(&server.url(), http2)) {
            assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        }
    }
    assert!(server.requests().iter().all(|request| request.path == "/api/v1/pods"));
}

#[tokio::test]
async fn bodies_stream_and_a_dropped_list_closes_its_connection() {
    let server = serve(Answer::ok(Body::replay(recorded_pods()).stall_at(200_000))).await;
    for client in both(|| over_reqwest(&server.url(), false)) {
        let mut items = pods(&client);
        items.next().await.unwrap().unwrap();
        drop(items);
        server.no_connections().await;
    }
}

#[tokio::test]
async fn reads_data_and_ignores_trailers_and_empty_frames() {
    let body = recorded_pods();
    let frames = move || {
        let trailers = || Ok(Frame::trailers(HeaderMap::new()));
        let pieces = body.chunks(100_000).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))));
        [Ok(Frame::data(Bytes::new())), trailers()].into_iter().chain(pieces).chain([trailers()]).collect()
    };
    for client in both(|| over_frames(frames.clone(), false)) {
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
    }
}

#[tokio::test]
async fn a_body_that_breaks_is_incomplete() {
    let first = Bytes::from(recorded_pods()).split_to(100_000);
    // A record that was damaged on the way, and an alert of a server that fails.
    let alert = || {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
        io::Error::new(io::ErrorKind::InvalidData, alert)
    };
    let breaks: [(fn() -> io::Error, _); 4] = [
        (|| io::ErrorKind::UnexpectedEof.into(), io::ErrorKind::UnexpectedEof),
        (|| io::ErrorKind::ConnectionRefused.into(), io::ErrorKind::ConnectionRefused),
        (|| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError), io::ErrorKind::InvalidData),
        (alert, io::ErrorKind::InvalidData),
    ];
    for (error, io_error) in breaks {
        let first = first.clone();
        let frames = move || vec![Ok(Frame::data(first.clone())), Err(error())];
        for client in both(|| over_frames(frames.clone(), false)) {
            let error = pods(&client).into_vec().await.unwrap_err();
            let ErrorKind::Incomplete { cause: Some(cause), .. } = error.kind() else { panic!("{error}") };
            assert_eq!(cause.kind(), TransportErrorKind::Broken);
            assert_eq!(cause.io_error_kind(), Some(io_error));
            assert!(error.items() > 0 && error.is_retryable() && error.is_incomplete());
        }
    }
}

#[tokio::test]
async fn errors_keep_their_kind() {
    let gone = closed_port();
    let credentials = TransportError::new(TransportErrorKind::Credentials, "the plugin failed");
    let opens: [(&dyn Fn() -> ServiceTransport, _, _); 5] = [
        (&|| over_reqwest(&gone, false), TransportErrorKind::Connect, true),
        (&|| failing(|| io::Error::from(io::ErrorKind::ConnectionRefused)), TransportErrorKind::Connect, true),
        (&|| failing(|| io::Error::from(io::ErrorKind::ConnectionReset)), TransportErrorKind::Broken, true),
        (&|| failing(|| io::Error::other(rustls::Error::DecryptError)), TransportErrorKind::Tls, false),
        (
            &|| {
                failing({
                    let error = credentials.clone();
                    move || io::Error::other(error.clone())
                })
            },
            TransportErrorKind::Credentials,
            false,
        ),
    ];
    for (open, expected, is_retryable) in opens {
        for client in both(open) {
            let error = pods(&client).into_vec().await.unwrap_err();
            assert_eq!((kind(&error), error.is_retryable()), (expected, is_retryable), "{error}");
        }
    }
}

#[tokio::test]
async fn statuses_and_redirects_are_of_the_server_and_sent_once() {
    for (code, expected) in [(401, Some(401)), (403, Some(403)), (410, Some(410)), (503, Some(503)), (307, None)] {
        let server = serve(Answer::ok(Body::replay("")).status(code).header("location", "http://10.0.0.1/")).await;
        for client in both(|| over_reqwest(&server.url(), false)) {
            assert_eq!(pods(&client).into_vec().await.unwrap_err().code(), expected);
        }
        assert_eq!(server.requests().len(), 2, "{code}");
    }
}

#[tokio::test]
async fn redacts_secrets() {
    let transport = ServiceTransport::new(|_: Request<Full<Bytes>>| async {
        let mut response = Response::new(Full::from("not with s3cret-t0ken"));
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        Ok::<_, io::Error>(response)
    });
    let transport = transport.secret("s3cret-t0ken");
    assert!(!format!("{transport:?}").contains("s3cret"));
    let error = pods(&Client::new(transport)).into_vec().await.unwrap_err();
    assert_eq!(error.to_string(), "API error: 400: not with [redacted]");
    let bearer = failing(|| io::Error::other(format!("sent Bearer {TOKEN}")));
    let error = pods(&Client::new(bearer).retry(Retry::never())).into_vec().await.unwrap_err();
    assert_eq!(error.to_string(), "the connection was interrupted: sent Bearer [redacted]");
}

/// A function without timeouts.
#[tokio::test(start_paused = true)]
async fn the_client_ends_a_silent_function_and_a_silent_body() {
    let silent = ServiceTransport::new(|_: Request<Full<Bytes>>| pending::<io::Result<Response<Full<Bytes>>>>());
    let first = Bytes::from(recorded_pods()).split_to(100_000);
    for transport in [silent, over_frames(move || vec![Ok(Frame::data(first.clone()))], true)] {
        let started = Instant::now();
        let error = pods(&Client::new(transport).retry(Retry::never())).into_vec().await.unwrap_err();
        assert_eq!((kind(&error), started.elapsed()), (TransportErrorKind::ReadIdle, Duration::from_secs(90)));
    }
}

/// Returns a value, and a function that waits until the value is dropped.
fn guard() -> (mpsc::Sender<()>, impl Fn()) {
    let (guard, gone) = mpsc::channel();
    (guard, move || assert_eq!(gone.recv(), Err(mpsc::RecvError)))
}

#[tokio::test]
async fn dropping_a_request_drops_what_the_function_returned() {
    for answers in [false, true] {
        for own_thread in [false, true] {
            let (held, is_gone) = guard();
            let (call, called) = mpsc::channel();
            let held = std::sync::Mutex::new(Some(held));
            let transport = ServiceTransport::new(move |_: Request<Full<Bytes>>| {
                call.send(()).unwrap();
                let held = held.lock().unwrap().take();
                async move {
                    if !answers {
                        pending::<()>().await;
                    }
                    let body = stream::pending::<io::Result<Frame<Bytes>>>().inspect(move |_| _ = &held);
                    Ok::<_, io::Error>(Response::new(StreamBody::new(body)))
                }
            });
            let client = Client::new(if own_thread { transport.on_own_thread() } else { transport });
            let mut list: Pods = pods(&client);
            assert!(list.next().now_or_never().is_none());
            called.recv().unwrap();
            drop(list);
            is_gone();
        }
    }
}
