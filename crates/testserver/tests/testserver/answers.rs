//! A server answers as its handler decides, records requests, counts connections, and ends when it is dropped.

use http_body_util::BodyExt;
use hyper::Version;
use listwatch_testserver::{Answer, Body, Server};
use tokio::net::TcpStream;

use crate::client::{End, VERSIONS, get, receive, request};

#[tokio::test]
async fn answers_in_turn_and_repeats_the_last_answer() {
    let unavailable = Answer::ok(Body::replay("too many requests"))
        .status(429)
        .content_type("text/plain; charset=utf-8")
        .header("retry-after", "1");
    let timeout = Answer::ok(Body::replay("{}")).status(504).no_content_type();
    let answers = [unavailable, timeout, Answer::ok(Body::replay("list"))];
    for version in VERSIONS {
        let server = Server::start(Answer::in_turn(answers.clone())).await.unwrap();
        let first = get(&server, version).await;
        assert_eq!((first.status.as_u16(), &first.body[..]), (429, &b"too many requests"[..]));
        assert_eq!(first.headers["retry-after"], "1");
        assert_eq!(first.headers["content-type"], "text/plain; charset=utf-8");
        let second = get(&server, version).await;
        assert_eq!(second.status.as_u16(), 504);
        assert!(!second.headers.contains_key("content-type"));
        for _ in 0..2 {
            let last = get(&server, version).await;
            assert_eq!((last.status.as_u16(), &last.body[..]), (200, &b"list"[..]));
            assert_eq!(last.headers["content-type"], "application/vnd.kubernetes.protobuf");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_the_request_and_its_number_to_the_handler() {
    let server = Server::start(|request, n| Answer::ok(Body::replay(format!("{n} {}", request.path))));
    let server = server.await.unwrap();
    for (n, version) in VERSIONS.into_iter().enumerate() {
        let io = TcpStream::connect(server.addr()).await.unwrap();
        let received = receive(request(io, version, "/api/v1/pods?limit=500").await).await;
        assert_eq!(received.body, format!("{n} /api/v1/pods?limit=500").into_bytes());
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for (request, version) in requests.iter().zip(VERSIONS) {
        assert_eq!(request.method, "GET");
        assert_eq!(request.path, "/api/v1/pods?limit=500");
        assert_eq!(request.version, version);
    }
    assert_eq!(requests[0].headers["host"], "testserver");
    assert_eq!(server.url(), format!("http://{}", server.addr()));
}

#[tokio::test]
async fn opens_a_reader_for_each_response() {
    let body = Body::read(8, || &b"the list"[..]).chunk_size(3);
    let server = Server::start(Answer::ok(body.with_content_length()).always()).await.unwrap();
    for version in VERSIONS {
        for _ in 0..2 {
            let received = get(&server, version).await;
            assert_eq!(
                (&received.headers["content-length"], &received.body[..]),
                (&"8".parse().unwrap(), &b"the list"[..])
            );
        }
    }
}

#[tokio::test]
async fn counts_connections() {
    let server = Server::start(Answer::ok(Body::replay("list").stall_at(2)).always()).await.unwrap();
    server.no_connections().await;
    let mut responses = Vec::new();
    for version in VERSIONS {
        let io = TcpStream::connect(server.addr()).await.unwrap();
        responses.push(request(io, version, "/").await);
    }
    assert_eq!((server.connections(), server.accepted()), (2, 2));
    drop(responses);
    server.no_connections().await;
    assert_eq!((server.connections(), server.accepted()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closes_connections_and_ends_tasks_when_dropped() {
    for version in VERSIONS {
        let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let server = Server::start(Answer::ok(Body::replay("list").stall_at(2)).always()).await.unwrap();
        let addr = server.addr();
        let mut body = request(TcpStream::connect(addr).await.unwrap(), version, "/").await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "li");
        drop(server);
        assert!(body.frame().await.unwrap().is_err(), "{version:?}");
        drop(body);
        // The client's tasks end too, now that their connection is closed.
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
        assert!(TcpStream::connect(addr).await.is_err(), "{version:?}");
    }
}

#[tokio::test]
async fn survives_a_client_that_leaves_during_a_response() {
    let server = Server::start(Answer::ok(Body::replay(vec![7; 10_000_000])).always()).await.unwrap();
    for version in VERSIONS {
        let io = TcpStream::connect(server.addr()).await.unwrap();
        drop(request(io, version, "/").await);
        server.no_connections().await;
    }
    let received = get(&server, Version::HTTP_11).await;
    assert_eq!((received.body.len(), received.end), (10_000_000, End::Clean));
}
