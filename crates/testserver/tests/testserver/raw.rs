//! A raw server sends the given bytes and ends a connection in the given way.

use std::io::ErrorKind;
use std::time::Duration;

use listwatch_testserver::{RawAnswer, RawEnd, RawServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const REQUEST: &str = "GET /api/v1/pods HTTP/1.1\r\nhost: testserver\r\n\r\n";
const HALF_A_CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf";

async fn connect(server: &RawServer) -> TcpStream {
    let mut client = TcpStream::connect(server.addr()).await.unwrap();
    client.write_all(REQUEST.as_bytes()).await.unwrap();
    client
}

#[tokio::test]
async fn sends_bytes_unchanged_and_repeats_the_last_answer() {
    let answers = ["garbage", HALF_A_CHUNK].map(|bytes| RawAnswer::new(bytes, RawEnd::Close));
    let server = RawServer::start(answers).await.unwrap();
    for expected in ["garbage", HALF_A_CHUNK, HALF_A_CHUNK] {
        let mut received = String::new();
        connect(&server).await.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, expected);
    }
    assert_eq!(server.requests(), [REQUEST; 3]);
    assert_eq!(server.url(), format!("http://{}", server.addr()));
}

#[tokio::test]
async fn resets_a_connection() {
    let server = RawServer::start([RawAnswer::new("", RawEnd::Reset)]).await.unwrap();
    let error = connect(&server).await.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn holds_a_connection_until_dropped() {
    let server = RawServer::start([RawAnswer::new(HALF_A_CHUNK, RawEnd::Hold)]).await.unwrap();
    let mut client = connect(&server).await;
    let mut received = vec![0; HALF_A_CHUNK.len()];
    client.read_exact(&mut received).await.unwrap();
    // The clock is paused: an hour passes once every task waits.
    let more = tokio::time::timeout(Duration::from_secs(3600), client.read_u8()).await;
    assert!(more.is_err());
    drop(server);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
