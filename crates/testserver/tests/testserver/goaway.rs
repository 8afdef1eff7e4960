//! GOAWAY closes open connections, but neither interrupts a body nor ends the server.

use http_body_util::BodyExt;
use hyper::Version;
use listwatch_testserver::{Answer, Body, Server};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Sender, VERSIONS, connect};

/// More bytes than the windows of a client and the sockets hold.
const LONG: usize = 20_000_000;

async fn server() -> Server {
    let long = Body::replay(vec![7; LONG]);
    let answer = move |path: &str| if path == "/long" { long.clone() } else { Body::replay("short") };
    Server::start(move |request, _| Answer::ok(answer(&request.path))).await.unwrap()
}

/// Connects with a small receive buffer, so that most of the unread bytes stay on the server.
async fn tcp(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(server.addr()).await.unwrap()
}

async fn get_short(sender: &mut Sender) -> hyper::Result<()> {
    let body = sender.get("/short").await?.into_body().collect().await?;
    assert_eq!(body.to_bytes(), "short");
    Ok(())
}

/// Sends two requests: a request that an HTTP/2 client sends before it gets the GOAWAY is answered, but after the
/// GOAWAY.
async fn takes_requests(sender: &mut Sender) -> bool {
    get_short(sender).await.is_ok() && get_short(sender).await.is_ok()
}

#[tokio::test]
async fn finishes_a_body_and_refuses_later_requests_after_goaway() {
    for version in VERSIONS {
        let server = server().await;
        // GOAWAY closes later connections like the first one.
        for round in 1..3 {
            let mut sender = connect(tcp(&server).await, version).await;
            assert!(takes_requests(&mut sender).await);
            let mut long = sender.get("/long").await.unwrap().into_body();
            let mut read = 0;
            while read < LONG / 3 {
                read += long.frame().await.unwrap().unwrap().into_data().unwrap().len();
            }
            server.goaway();

            // An HTTP/1.1 connection is busy with the body.
            if version == Version::HTTP_2 {
                assert!(!takes_requests(&mut sender).await);
            }
            while let Some(frame) = long.frame().await {
                read += frame.unwrap().into_data().unwrap().len();
            }
            assert_eq!(read, LONG, "{version:?}");
            assert!(!takes_requests(&mut sender).await, "{version:?}");
            // The server closed the connection: the client would have kept it.
            server.no_connections().await;
            assert_eq!(server.accepted(), round);
        }
    }
}

#[tokio::test]
async fn goaway_closes_idle_and_silent_connections() {
    let server = server().await;
    let mut idle = Vec::new();
    for version in VERSIONS {
        let mut sender = connect(tcp(&server).await, version).await;
        assert!(takes_requests(&mut sender).await);
        idle.push(sender);
    }
    let mut silent = tcp(&server).await;
    while server.connections() < 3 {
        tokio::task::yield_now().await;
    }
    server.goaway();
    for sender in &mut idle {
        assert!(!takes_requests(sender).await);
    }
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    server.no_connections().await;
}
