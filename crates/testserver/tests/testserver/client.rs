//! A minimal HTTP client: one connection, and everything that a response delivers until it ends or breaks.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

/// A response, as the client received it.
#[derive(Debug)]
pub struct Received {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The lengths of the chunks, as the client got them.
    pub chunks: Vec<usize>,
    pub end: End,
}

#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Clean,
    Broken,
}

/// Requests `/` on a new connection.
pub async fn get(server: &listwatch_testserver::Server, version: Version) -> Received {
    let io = TcpStream::connect(server.addr()).await.unwrap();
    receive(request(io, version, "/").await).await
}

/// Sends a request on this stream; the connection lives as long as the response.
pub async fn request<IO>(io: IO, version: Version, path: &str) -> Response<Incoming>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connect(io, version).await.get(path).await.unwrap()
}

/// Sends requests on a connection.
pub enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Sender {
    /// Waits for the connection to be free, and sends a request.
    pub async fn get(&mut self, path: &str) -> hyper::Result<Response<Incoming>> {
        let body = Empty::new();
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(Request::get(path).header("host", "testserver").body(body).unwrap()).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(Request::get(format!("http://testserver{path}")).body(body).unwrap()).await
            }
        }
    }
}

/// Starts HTTP on this stream.
pub async fn connect<IO>(io: IO, version: Version) -> Sender
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    if version == Version::HTTP_2 {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Sender::Http2(sender)
    } else {
        let (sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Sender::Http1(sender)
    }
}

/// Reads a response to its end.
pub async fn receive(response: Response<Incoming>) -> Received {
    let (head, mut incoming) = response.into_parts();
    let (status, headers) = (head.status, head.headers);
    let (mut body, mut chunks, mut end) = (Vec::new(), Vec::new(), End::Clean);
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else {
            end = End::Broken;
            break;
        };
        let data = frame.into_data().unwrap();
        body.extend_from_slice(&data);
        if !data.is_empty() {
            chunks.push(data.len());
        }
    }
    Received { status, headers, body, chunks, end }
}
