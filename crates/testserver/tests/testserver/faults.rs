//! Every body, whole or broken, arrives as described over HTTP/1.1 and HTTP/2.

use std::io::Read;
use std::time::Duration;

use flate2::read::{GzDecoder, MultiGzDecoder};
use http_body_util::BodyExt;
use hyper::Version;
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::client::{End, VERSIONS, get, receive, request};

/// 100,000 bytes without a pattern that repeats within a chunk.
fn plain() -> Vec<u8> {
    (0..25_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect()
}

async fn serve(body: Body) -> Server {
    Server::start(Answer::ok(body).always()).await.unwrap()
}

#[tokio::test]
async fn delivers_bodies_up_to_their_fault() {
    let plain = plain();
    let flipped = |offset: usize| {
        let mut bytes = plain.clone();
        bytes[offset] ^= 0xff;
        bytes
    };
    let replay = || Body::replay(plain.clone());
    let cases = [
        ("whole", replay(), plain.clone(), End::Clean),
        ("empty", Body::replay(""), vec![], End::Clean),
        ("content length", replay().with_content_length(), plain.clone(), End::Clean),
        ("appended", replay().append("k8s"), [&plain[..], b"k8s"].concat(), End::Clean),
        (
            "appended with length",
            replay().append("k8s").with_content_length(),
            [&plain[..], b"k8s"].concat(),
            End::Clean,
        ),
        ("cut at 0", replay().cut_at(0), vec![], End::Clean),
        ("cut at 1", replay().cut_at(1), plain[..1].to_vec(), End::Clean),
        ("cut within a chunk", replay().cut_at(5000), plain[..5000].to_vec(), End::Clean),
        ("cut between chunks", replay().cut_at(8192), plain[..8192].to_vec(), End::Clean),
        ("cut in one-byte chunks", replay().chunk_size(1).cut_at(777), plain[..777].to_vec(), End::Clean),
        ("cut past the end", replay().cut_at(100_001), plain.clone(), End::Clean),
        ("cut with length", replay().with_content_length().cut_at(5000), plain[..5000].to_vec(), End::Broken),
        ("cut in the appended bytes", Body::replay("ab").append("cd").cut_at(3), b"abc".to_vec(), End::Clean),
        ("reset at 0", replay().reset_at(0), vec![], End::Broken),
        ("reset at 1", replay().reset_at(1), plain[..1].to_vec(), End::Broken),
        ("reset within a chunk", replay().reset_at(99_000), plain[..99_000].to_vec(), End::Broken),
        ("reset in one-byte chunks", replay().chunk_size(1).reset_at(777), plain[..777].to_vec(), End::Broken),
        ("reset with length", replay().with_content_length().reset_at(7), plain[..7].to_vec(), End::Broken),
        ("reset instead of the end", replay().reset_at(100_000), plain.clone(), End::Broken),
        ("reset past the end", replay().reset_at(100_001), plain.clone(), End::Clean),
        ("the last fault counts", replay().stall_at(5).reset_at(3).cut_at(4), plain[..4].to_vec(), End::Clean),
        ("flipped at 0", replay().flip_at(0), flipped(0), End::Clean),
        ("flipped in a later chunk", replay().flip_at(5000), flipped(5000), End::Clean),
        ("flipped and cut", replay().flip_at(5000).cut_at(5001), flipped(5000)[..5001].to_vec(), End::Clean),
    ];
    for (name, body, expected, end) in cases {
        let server = serve(body).await;
        for version in VERSIONS {
            println!("{name}, {version:?}");
            let received = get(&server, version).await;
            assert_eq!(received.body.len(), expected.len(), "{name}, {version:?}");
            assert!(received.body == expected, "{name}, {version:?}");
            // A body shorter than its content length is an error in HTTP/2 too, but hyper's client does not check it.
            if !(name == "cut with length" && version == Version::HTTP_2) {
                assert_eq!(received.end, end, "{name}, {version:?}");
            }
        }
        assert_eq!(server.bytes_sent(), 2 * expected.len() as u64, "{name}");
    }
}

/// All bytes before a reset arrive, even if the client's windows and the sockets hold only a part of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivers_all_bytes_before_a_reset() {
    let pods = Synthesizer::new(&recorded_pods(), 2000).unwrap();
    let expected = pods.to_vec();
    let length = expected.len() - 1234;
    let server = serve(Body::synthesize(pods).reset_at(length as u64)).await;
    for round in 0..5 {
        for version in VERSIONS {
            let received = get(&server, version).await;
            assert_eq!(received.body.len(), length, "{version:?}, round {round}");
            assert!(received.body == expected[..length]);
            assert_eq!(received.end, End::Broken, "{version:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delays_the_end_of_a_body() {
    let hour = Duration::from_secs(3600);
    let server = serve(Body::replay(plain()).end_after(hour)).await;
    for version in VERSIONS {
        let start = Instant::now();
        let received = get(&server, version).await;
        assert!(received.body == plain());
        assert_eq!(received.end, End::Clean, "{version:?}");
        // The clock is paused: the hour passes once every task waits.
        assert!(start.elapsed() >= hour, "{version:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_a_stalled_body_open() {
    for version in VERSIONS {
        for length in [0, 1, 5000, 100_000] {
            let server = serve(Body::replay(plain()).stall_at(length as u64)).await;
            let io = TcpStream::connect(server.addr()).await.unwrap();
            let mut body = request(io, version, "/").await.into_body();
            let mut received = 0;
            while received < length {
                received += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
            }
            assert_eq!(received, length);
            // The clock is paused: an hour passes once every task waits.
            let more = tokio::time::timeout(Duration::from_secs(3600), body.frame()).await;
            assert!(more.is_err(), "{version:?}, stalled at {length}");
            assert_eq!((server.bytes_sent(), server.connections()), (length as u64, 1));
        }
    }
}

#[tokio::test]
async fn sends_chunks_of_the_requested_size() {
    let cases = [
        (Body::replay(plain()), 4096, 25),
        (Body::replay(plain()).chunk_size(1).cut_at(300), 1, 300),
        (Body::replay(plain()).chunk_size(70), 70, 1429),
        (Body::replay(plain()).chunk_size(10_000), 10_000, 10),
    ];
    for (body, size, count) in cases {
        let server = serve(body).await;
        // An HTTP/1.1 client may join or split chunks, but hyper's does not join them. HTTP/2 frames arrive unchanged.
        let received = get(&server, Version::HTTP_2).await;
        assert!(received.chunks.iter().all(|length| *length <= size), "{size}");
        assert!(received.chunks.len() >= count, "{size}: {} chunks", received.chunks.len());
        let received = get(&server, Version::HTTP_11).await;
        assert!(received.chunks.iter().all(|length| *length <= size), "{size}");
        assert!(received.chunks.len() >= count, "{size}: {} chunks", received.chunks.len());
    }
}

#[tokio::test]
async fn gzips_in_one_member_or_one_per_chunk() {
    let pods = Synthesizer::new(&recorded_pods(), 300).unwrap();
    let plain = [&pods.to_vec()[..], b"status"].concat();
    for (members, name) in [(false, "one member"), (true, "a member per chunk")] {
        let body = Body::synthesize(pods.clone()).append("status").with_content_length();
        let body = if members { body.gzip_members() } else { body.gzip() };
        let server = serve(body.clone()).await;
        let mut compressed = Vec::new();
        for version in VERSIONS {
            let received = get(&server, version).await;
            assert_eq!(received.end, End::Clean, "{name}, {version:?}");
            assert_eq!(received.headers["content-encoding"], "gzip");
            assert!(!received.headers.contains_key("content-length"));
            assert!(gunzip(MultiGzDecoder::new(&received.body[..])).unwrap() == plain, "{name}, {version:?}");
            assert!(received.body.len() < plain.len() / 2);
            compressed = received.body;
        }
        let first_member = gunzip(GzDecoder::new(&compressed[..])).unwrap();
        assert_eq!(first_member.len(), if members { 4096 } else { plain.len() }, "{name}");

        // Cuts and flips apply after compression.
        let cut = compressed.len() as u64 - 3;
        let faulty = Server::start(Answer::in_turn([
            Answer::ok(body.clone().cut_at(cut)),
            Answer::ok(body.clone().flip_at(cut)),
        ]));
        let faulty = faulty.await.unwrap();
        for version in VERSIONS {
            let received = get(&faulty, version).await;
            assert!(gunzip(MultiGzDecoder::new(&received.body[..])).is_err(), "{name}, {version:?}");
        }
    }
}

fn gunzip(mut decoder: impl Read) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    decoder.read_to_end(&mut plain)?;
    Ok(plain)
}

#[tokio::test]
async fn uses_chunked_transfer_unless_a_content_length_is_requested() {
    let answers = [Answer::ok(Body::replay("list")), Answer::ok(Body::replay("list").with_content_length())];
    let server = Server::start(Answer::in_turn(answers)).await.unwrap();
    let chunked = get(&server, Version::HTTP_11).await.headers;
    assert_eq!(chunked["transfer-encoding"], "chunked");
    assert!(!chunked.contains_key("content-length"));
    let declared =
        receive(request(TcpStream::connect(server.addr()).await.unwrap(), Version::HTTP_11, "/").await).await;
    assert_eq!(declared.headers["content-length"], "4");
    assert!(!declared.headers.contains_key("transfer-encoding"));
}
