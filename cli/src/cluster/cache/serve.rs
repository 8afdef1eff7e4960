//! The HTTP server of a cache, on loopback.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http_body_util::channel::{Channel, Sender};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use listwatch::ItemError;
use listwatch::cache::Object;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::runtime;
use tokio::time::sleep;

use super::index::ByText;
use super::status::lag;
use super::{Cached, metrics};
use crate::failure::chain;
use crate::notices;

type Body = Either<Full<Bytes>, Channel<Bytes, ItemError>>;

/// A long response is written in pieces of about this size.
const PIECE: usize = 64 << 10;

/// The delay after a failed accept, for example with too many open connections.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Starts the server on its own thread, so that responses do not delay the watch. The thread ends with the process.
pub fn start(listener: TcpListener, cached: Arc<Cached>) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    thread::Builder::new().name("serve".to_owned()).spawn(move || runtime.block_on(accept(listener, cached)))?;
    Ok(address)
}

async fn accept(listener: tokio::net::TcpListener, cached: Arc<Cached>) {
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let cached = Arc::clone(&cached);
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer(&cached, &request).unwrap_or_else(Refused::into_response);
            async { Ok::<_, Infallible>(answer) }
        });
        let connection =
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(connection), service);
        // Fails if the client disconnects, or does not speak HTTP.
        tokio::spawn(async { _ = connection.await });
    }
}

/// A refused request: the status and the reason.
struct Refused(StatusCode, String);

impl Refused {
    fn not_found(reason: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, reason.into())
    }

    fn into_response(self) -> Response<Body> {
        let Self(status, reason) = self;
        let mut response = json(&json!({ "error": reason }));
        *response.status_mut() = status;
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

fn answer(cached: &Arc<Cached>, request: &Request<Incoming>) -> Result<Response<Body>, Refused> {
    // Prevents DNS rebinding: the browser sends the host name of the web page, even if it resolves to this machine.
    if !is_loopback(request.headers()) {
        return Err(Refused(StatusCode::FORBIDDEN, "the host of the request is not loopback".to_owned()));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refused(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported".to_owned()));
    }
    let segments = request.uri().path().split('/').skip(1).map(|segment| percent_decode_str(segment).decode_utf8());
    let segments: Vec<_> = segments
        .collect::<Result<_, _>>()
        .map_err(|_| Refused(StatusCode::BAD_REQUEST, "the path is not UTF-8".to_owned()))?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    match segments[..] {
        ["healthz"] => health(cached),
        ["metrics"] => match metrics::text(cached) {
            Ok(text) => Ok(respond(metrics::CONTENT_TYPE, Either::Left(text.into()))),
            Err(error) => Err(Refused(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))),
        },
        ["keys" | "objects" | "indexes", ..] => data(cached, &segments, request.uri().query().unwrap_or_default()),
        _ => Err(Refused::not_found("not found: the paths are /healthz, /metrics, /keys, /objects and /indexes")),
    }
}

fn health(cached: &Cached) -> Result<Response<Body>, Refused> {
    is_complete(cached)?;
    let status = cached.cache.status();
    Ok(json(&json!({
        "status": "ok",
        "resourceVersion": status.resource_version,
        "objects": cached.cache.len(),
        "skipped": status.skipped,
        "lagSeconds": lag(&status),
    })))
}

fn is_complete(cached: &Cached) -> Result<(), Refused> {
    let status = cached.cache.status();
    match (status.resource_version, status.last_error) {
        (Some(_), _) => Ok(()),
        (None, Some(error)) => Err(Refused(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the collection is not complete yet: {}", chain(&error)),
        )),
        (None, None) => Err(Refused(StatusCode::SERVICE_UNAVAILABLE, "the collection is not complete yet".to_owned())),
    }
}

fn data(cached: &Arc<Cached>, segments: &[&str], query: &str) -> Result<Response<Body>, Refused> {
    is_complete(cached)?;
    let parameter =
        |name| form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value);
    let namespace = parameter("namespace").map(Cow::into_owned);
    match *segments {
        ["keys"] => Ok(all(cached, namespace, Shown::Keys)),
        ["objects"] => Ok(all(cached, namespace, Shown::Objects)),
        ["objects", name] => object(cached, "", name),
        ["objects", namespace, name] => object(cached, namespace, name),
        ["indexes"] => {
            let indexes = cached.indexes.iter();
            let indexes =
                indexes.map(|(by, index)| json!({ "name": by.name, "path": by.path, "errors": index.errors().len() }));
            Ok(json(&indexes.collect()))
        }
        ["indexes", name] => Ok(values(index(cached, name)?)),
        // A value may contain slashes.
        ["indexes", name, ref value @ ..] => {
            let found = index(cached, name)?.get(&*value.join("/"));
            let shown = if parameter("objects").is_some() { Shown::Objects } else { Shown::Keys };
            let cached = Arc::clone(cached);
            Ok(stream(|sender| {
                send(sender, "[]", found.into_iter(), move |object, out| shown.write(&cached, &object, out))
            }))
        }
        _ => Err(Refused::not_found(
            "not found: the paths are /keys, /objects/[NAMESPACE/]NAME and /indexes/INDEX/VALUE",
        )),
    }
}

/// Whether a response contains keys or whole objects.
#[derive(Clone, Copy)]
enum Shown {
    Keys,
    Objects,
}

impl Shown {
    fn write(self, cached: &Cached, object: &Object<[u8]>, out: &mut Vec<u8>) -> Result<(), ItemError> {
        match self {
            Self::Keys => serde_json::to_writer(out, &object.key().to_string()).map_err(ItemError::other),
            Self::Objects => write_json(cached, object, out),
        }
    }
}

/// Writes an object as JSON. The first object with unknown fields, which the JSON lacks, causes a warning.
fn write_json(cached: &Cached, object: &Object<[u8]>, out: &mut Vec<u8>) -> Result<(), ItemError> {
    let unknown_fields = object.item()?.to_json(out)?;
    if unknown_fields > 0 {
        cached.unknown_fields.call_once(|| notices::unknown_fields(unknown_fields));
    }
    Ok(())
}

/// Returns all objects as they are now; changes while they are sent have no effect.
fn all(cached: &Arc<Cached>, namespace: Option<String>, shown: Shown) -> Response<Body> {
    let cached = Arc::clone(cached);
    stream(async move |sender| {
        let write = |object: Object<[u8]>, out: &mut Vec<u8>| shown.write(&cached, &object, out);
        match namespace {
            Some(namespace) => send(sender, "[]", cached.cache.list_namespace(&namespace).into_iter(), write).await,
            None => send(sender, "[]", cached.cache.snapshot().iter(), write).await,
        }
    })
}

fn object(cached: &Cached, namespace: &str, name: &str) -> Result<Response<Body>, Refused> {
    let slash = if namespace.is_empty() { "" } else { "/" };
    let found = cached.cache.get((namespace, name));
    let object = found.ok_or_else(|| Refused::not_found(format!("not found: {namespace}{slash}{name}")))?;
    let mut out = Vec::new();
    match write_json(cached, &object, &mut out) {
        Ok(()) => {
            out.push(b'\n');
            Ok(respond(JSON, Either::Left(out.into())))
        }
        Err(error) => Err(Refused(StatusCode::INTERNAL_SERVER_ERROR, chain(&error))),
    }
}

fn index<'a>(cached: &'a Cached, name: &str) -> Result<&'a ByText, Refused> {
    let found = cached.indexes.iter().find(|(by, _)| by.name == name);
    found.map(|(_, index)| index).ok_or_else(|| Refused::not_found(format!("not found: index {name}")))
}

/// Returns the values in an index, in order, with the number of objects for each.
fn values(index: &ByText) -> Response<Body> {
    let index = index.clone();
    stream(|sender| {
        send(sender, "{}", index.values().into_iter(), move |value, out| {
            serde_json::to_writer(&mut *out, &*value).map_err(ItemError::other)?;
            out.extend_from_slice(format!(":{}", index.count(&*value)).as_bytes());
            Ok(())
        })
    })
}

/// Sends a JSON array or object, one element per line, as fast as the client reads it. An interrupted body has no closing bracket.
async fn send<E>(
    mut sender: Sender<Bytes, ItemError>,
    brackets: &str,
    elements: impl Iterator<Item = E>,
    mut write: impl FnMut(E, &mut Vec<u8>) -> Result<(), ItemError>,
) {
    let (open, close) = brackets.split_at(1);
    let mut piece = open.as_bytes().to_vec();
    let mut comma = "";
    for element in elements {
        piece.extend_from_slice(mem::replace(&mut comma, ",\n").as_bytes());
        if let Err(error) = write(element, &mut piece) {
            return sender.abort(error);
        }
        if piece.len() >= PIECE && sender.send_data(mem::take(&mut piece).into()).await.is_err() {
            return;
        }
    }
    piece.extend_from_slice(close.as_bytes());
    piece.push(b'\n');
    // Fails if the client has disconnected.
    _ = sender.send_data(piece.into()).await;
}

fn stream<F: Future<Output = ()> + Send + 'static>(send: impl FnOnce(Sender<Bytes, ItemError>) -> F) -> Response<Body> {
    let (sender, body) = Channel::new(1);
    tokio::spawn(send(sender));
    respond(JSON, Either::Right(body))
}

const JSON: &str = "application/json";

fn json(value: &Value) -> Response<Body> {
    respond(JSON, Either::Left(format!("{value}\n").into()))
}

fn respond(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}
