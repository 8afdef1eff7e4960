//! A connection or body that stalls ends in its timeout.

use std::sync::{Mutex, mpsc};

use futures::{FutureExt, StreamExt};
use listwatch::client::{Client, ListParams, Resource};
use listwatch_testserver::{Answer, Body, RawEnd, Server};
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::support::fixture;
use crate::{
    CONNECT, DATA, DEADLINE, ELSEWHERE, END_STREAM, Ending, NOTHING, SETTINGS, SOON, STALLED, Whole, alone, builder,
    client, client_of, data, elsewhere, frame, framed, http2_head, list, list_until_stalled, raw, serve, settle,
    sockets,
};

#[test]
fn a_stall_ends_in_the_read_idle_timeout() {
    alone(async {
        let whole = Whole::small();
        let (head, rest) = framed("length", &whole.body);
        let all = [&head[..], &rest].concat();
        let (until_end, _) = framed("until the end", b"");
        let (body, last) = (&whole.body, whole.body.len() - 1);
        for (phase, bytes, expected) in [
            ("before the head", vec![], NOTHING),
            ("in the head", all[..30].to_vec(), NOTHING),
            ("before the first byte", head.clone(), NOTHING),
            ("in the list meta", all[..head.len() + 25].to_vec(), STALLED),
            ("in an item", all[..head.len() + 30].to_vec(), STALLED),
            ("before the last byte", all[..all.len() - 1].to_vec(), STALLED),
            ("after the last byte", all.clone(), "complete"),
            ("before the end", [&until_end[..], body].concat(), STALLED),
        ] {
            let server = raw(bytes, RawEnd::Hold).await;
            list_until_stalled(phase, &server.url(), false, &whole, &[expected]).await;
        }
        let settings = frame(SETTINGS, 0, 0, b"");
        for (phase, bytes, expected) in [
            ("before the settings", vec![], NOTHING),
            ("before the head", settings.clone(), NOTHING),
            ("in the head", [&settings[..], &http2_head()[9..15]].concat(), NOTHING),
            ("before the first byte", http2_head(), NOTHING),
            ("in an item", [http2_head(), data(&body[..30])].concat(), STALLED),
            ("before the last byte", [http2_head(), data(&body[..last])].concat(), STALLED),
            ("in a frame", [http2_head(), data(&body[..30]), data(&body[30..])[..20].to_vec()].concat(), STALLED),
            ("before the end", [http2_head(), data(body)].concat(), STALLED),
            ("after the end", [http2_head(), frame(DATA, END_STREAM, 1, body)].concat(), "complete"),
        ] {
            let case = format!("{phase}, HTTP/2");
            let server = raw(bytes, RawEnd::Hold).await;
            list_until_stalled(&case, &server.url(), true, &whole, &[expected]).await;
        }
        let (json, large) = (Whole::new(fixture("pods.json")), Whole::large());
        for (case, whole) in [("large", &large), ("JSON", &json)] {
            let half = whole.body.len() as u64 / 2;
            let plain = Body::replay(whole.body.clone());
            // The compressed part may not yet decompress to a byte of the body.
            for (body, expected) in [(plain.clone(), &[STALLED][..]), (plain.gzip(), &[STALLED, NOTHING])] {
                let server = serve(Answer::ok(body.stall_at(half / 10))).await;
                for http2 in [false, true] {
                    let ending = list_until_stalled(case, &server.url(), http2, whole, expected).await;
                    assert!(ending.delivered > 0 || expected.len() > 1, "{case}: {ending:?}");
                }
            }
        }
    });
}

#[test]
fn a_stall_before_the_connection_ends_in_the_connect_timeout() {
    alone(async {
        let whole = Whole::small();
        #[cfg(target_os = "linux")]
        with_a_full_queue(&whole).await;
        // The server does not answer the handshake, or only begins its answer.
        for answer in [&b""[..], b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let before = sockets();
            let held = ELSEWHERE.spawn(async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let (mut stream, _) = listener.accept().await.unwrap();
                // The client may have closed the connection.
                let _ = stream.write_all(answer).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
            let client = hasty(&format!("https://{address}"));
            let ending = list_held("in the handshake", client, &whole, held).await;
            ending.expect("in the handshake", &[CONNECT]);
            settle(before.saturating_sub(1)).await;
        }
    });
}

/// The server accepts no connection, and Linux queues one: further connections get no answer.
#[cfg(target_os = "linux")]
async fn with_a_full_queue(whole: &Whole) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        let mut connecting = Box::pin(tokio::net::TcpStream::connect(address));
        let connected = connecting.as_mut().now_or_never();
        (connecting, connected)
    };
    let _queue: Vec<_> = (0..16).map(|_| connect()).collect();
    let case = "before the connection";
    let ending = list(case, hasty(&format!("http://{address}")), whole).await;
    ending.expect(case, &[CONNECT]);
}

/// A client with a short connect timeout.
fn hasty(url: &str) -> Client {
    client_of(builder(url, false).connect_timeout(SOON))
}

/// [`list`] against a task that holds one connection and ends with it.
async fn list_held(case: &str, client: Client, whole: &Whole, held: tokio::task::JoinHandle<()>) -> Ending {
    let ending = list(case, client, whole).await;
    timeout(DEADLINE, held).await.unwrap().unwrap();
    ending
}

#[test]
fn waits_for_a_late_head() {
    alone(async {
        let whole = Whole::small();
        for http2 in [false, true] {
            let (release, released) = mpsc::channel::<()>();
            let released = Mutex::new(released);
            let answer = Answer::ok(Body::replay(whole.body.clone()));
            let server = elsewhere(Server::start(move |_, _| {
                released.lock().unwrap().recv().unwrap();
                answer.clone()
            }))
            .await;
            let before = sockets();
            let client = client(&server.url(), http2);
            let mut items = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
            while server.requests().is_empty() {
                assert!(items.next().now_or_never().is_none());
                yield_now().await;
            }
            assert!(items.next().now_or_never().is_none());
            release.send(()).unwrap();
            assert_eq!(items.by_ref().map(Result::unwrap).count().await, whole.items.len());
            assert_eq!(items.summary().unwrap().attempts, 1);
            drop((items, client));
            settle(before).await;
        }
    });
}
