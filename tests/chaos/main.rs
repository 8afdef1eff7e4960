//! FAULTS, "Transport" and "HTTP body": whatever happens on the way, a list ends as complete or in an error that says what
//! came before it, in time, and leaves nothing behind; over real TCP.
//!
//! Each case checks every item against the whole list, searches the error for the token, and waits until the tasks and
//! sockets of the client are gone.

#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::future::Future;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use listwatch::client::{
    Client, Compression, ErrorKind, HttpTransport, HttpTransportBuilder, ListOptions, Resource, Retry,
};
use listwatch::{Limits, ListDecoder};
use listwatch_testserver::{Amplifier, Answer, Body, RawAnswer, RawEnd, RawServer, Server, TOKEN, leak, recorded_pods};
use support::{body_of, decode, fixture, len_field, memory, tag, varint};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

/// What a case may take, and the timeouts of the client that it does not mean to meet.
const DEADLINE: Duration = Duration::from_secs(20);

/// The timeouts of the client that a case means to meet.
const SOON: Duration = Duration::from_millis(60);

/// A list that is sent, and what its items are.
struct Whole {
    body: Vec<u8>,
    items: Vec<Vec<u8>>,
}

impl Whole {
    fn new(body: Vec<u8>) -> Self {
        let items = decode(Limits::default(), [&body[..]]).unwrap().0.items;
        Self { body, items }
    }

    /// Three items, one of them empty, in a few bytes.
    fn small() -> Self {
        Self::new(body_of("v1", "PodList", &small_raw()))
    }

    fn small_json() -> Self {
        let body = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"a":"}"},{"b":[]},{}]}"#;
        Self::new(body.into())
    }

    /// 3.4 MB.
    fn large() -> Self {
        Self::new(Amplifier::new(&recorded_pods(), 400).unwrap().to_vec())
    }
}

fn small_raw() -> Vec<u8> {
    [len_field(1, &len_field(2, b"7")), len_field(2, b"first"), len_field(2, b""), len_field(2, b"last")].concat()
}

/// The servers' tasks, which are none of the client's.
static ELSEWHERE: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// Any will do: to load the platform's would take longer than a case.
static AUTHORITY: LazyLock<String> = LazyLock::new(|| {
    let server = ELSEWHERE.block_on(RawServer::start_tls([RawAnswer::new("", RawEnd::Close)])).unwrap();
    server.ca_pem().unwrap().to_owned()
});

async fn elsewhere<T: Send + 'static>(future: impl Future<Output = std::io::Result<T>> + Send + 'static) -> T {
    ELSEWHERE.spawn(future).await.unwrap().unwrap()
}

async fn serve(answer: Answer) -> Server {
    elsewhere(Server::start(answer.always())).await
}

async fn raw(bytes: impl Into<Vec<u8>>, end: RawEnd) -> RawServer {
    elsewhere(RawServer::start([RawAnswer::new(bytes.into(), end)])).await
}

/// Runs a part of the suite on a runtime of its own, while no other runs: sockets and memory are counted for the process.
fn alone(part: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    /// When the first part had run, which loaded what there is to load.
    static RESIDENT: Mutex<Option<u64>> = Mutex::new(None);

    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LazyLock::force(&AUTHORITY);
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    here.block_on(async {
        let before = sockets();
        part.await;
        settle(before).await;
    });
    let mut first = RESIDENT.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, now) = (*first.get_or_insert_with(|| memory("VmRSS")), memory("VmRSS"));
    assert!(now < first + (48 << 20), "{first} bytes were resident after the first part, and now {now}");
}

/// Waits until there are no tasks here, and so many sockets in the process.
async fn settle(sockets_before: usize) {
    let metrics = Handle::current().metrics();
    let settled = timeout(DEADLINE, async {
        while metrics.num_alive_tasks() > 0 || sockets() > sockets_before {
            yield_now().await;
        }
    });
    let left = || format!("{} tasks, {} sockets and not {sockets_before}", metrics.num_alive_tasks(), sockets());
    assert!(settled.await.is_ok(), "left behind: {}", left());
}

fn sockets() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn builder(url: &str, http2: bool) -> HttpTransportBuilder {
    let builder = HttpTransport::builder(url).bearer_token(TOKEN).ca_pem(AUTHORITY.as_bytes()).connect_timeout(SOON);
    if http2 { builder.http2() } else { builder }
}

fn client(url: &str, http2: bool) -> Client {
    Client::new(builder(url, http2).build().unwrap()).retry(Retry::never()).read_idle_timeout(DEADLINE)
}

/// How a list ended.
#[derive(Debug)]
struct Ending {
    /// `complete`, or the error as it is displayed.
    text: String,
    delivered: usize,
    /// How many bytes of the body came, where it is incomplete.
    bytes: Option<u64>,
}

impl Ending {
    /// Whether it begins like one of these.
    #[track_caller]
    fn expect(&self, case: &str, expected: &[&str]) {
        assert!(expected.iter().any(|expected| self.text.starts_with(expected)), "{case}: {self:?}");
    }
}

const BROKEN: &str = "transport: broken off";
const INCOMPLETE: &str = "incomplete: the body ended before the list did";
const STALLED: &str = "incomplete: the body ended before the list did (stalled: no byte for ";

/// Lists in time, checks that what is delivered is exact and counted, and that nothing stays behind.
async fn list(case: &str, client: Client, whole: &Whole) -> Ending {
    list_within(case, client, whole, Limits::default()).await
}

async fn list_within(case: &str, client: Client, whole: &Whole, limits: Limits) -> Ending {
    let before = sockets();
    let ending = timeout(DEADLINE, async {
        let list = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).limits(limits);
        let mut items = list.stream();
        let mut delivered = 0;
        let error = loop {
            match items.next().await {
                Some(Ok(item)) => {
                    assert!(whole.items.get(delivered).is_some_and(|exact| **exact == *item), "{case}: {delivered}");
                    delivered += 1;
                }
                Some(Err(error)) => break error,
                None => {
                    let summary = items.summary().unwrap();
                    assert_eq!((delivered, summary.items), (whole.items.len(), delivered as u64), "{case}");
                    return Ending { text: "complete".to_owned(), delivered, bytes: None };
                }
            }
        };
        assert_eq!(error.items(), delivered as u64, "{case}: {error}");
        assert!(items.next().await.is_none() && items.summary().is_none(), "{case}: after {error}");
        let said = format!("{error}\n{error:?}\n{items:?}\n{client:?}");
        assert_eq!(leak(said.as_bytes()), None, "{case}");
        let bytes = match error.kind() {
            ErrorKind::Incomplete(incomplete) => Some(incomplete.bytes),
            _ => None,
        };
        Ending { text: error.to_string(), delivered, bytes }
    });
    let ending = ending.await.unwrap_or_else(|_| panic!("{case}: no end within {DEADLINE:?}"));
    drop(client);
    settle(before).await;
    ending
}

/// An answer of HTTP/1.1: how its length is said, and the bytes behind its head.
fn framed(framing: &str, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let head = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n").into_bytes();
    match framing {
        "length" => (head(&format!("content-length: {}", body.len())), body.to_vec()),
        "chunked" => {
            let mut chunks = Vec::new();
            for chunk in body.chunks(10) {
                chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                chunks.extend_from_slice(&[chunk, b"\r\n"].concat());
            }
            (head("transfer-encoding: chunked"), [&chunks[..], b"0\r\n\r\n"].concat())
        }
        _ => (head("connection: close"), body.to_vec()),
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;

/// The settings, and the head of a 200 on the first stream.
fn http2_head() -> Vec<u8> {
    [frame(SETTINGS, 0, 0, b""), frame(HEADERS, 4, 1, b"\x88")].concat()
}

fn data(body: &[u8]) -> Vec<u8> {
    body.chunks(16_000).flat_map(|chunk| frame(DATA, 0, 1, chunk)).collect()
}

fn goaway(last: u32, code: u32, text: &[u8]) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes(), &code.to_be_bytes(), text].concat())
}

#[test]
fn a_cut_and_a_reset_at_every_byte_of_a_small_list() {
    alone(async {
        for (format, whole) in [("protobuf", Whole::small()), ("JSON", Whole::small_json())] {
            for framing in ["length", "chunked", "until the end"] {
                let (head, behind) = framed(framing, &whole.body);
                let all = [&head[..], &behind].concat();
                for cut in 0..=all.len() {
                    for end in [RawEnd::Close, RawEnd::Reset] {
                        let case = format!("{format}, {framing}, {end:?} at {cut} of {}", all.len());
                        let server = raw(&all[..cut], end).await;
                        let ending = list(&case, client(&server.url(), false), &whole).await;
                        let in_body = cut.saturating_sub(head.len());
                        // Where the end of the connection is that of the body, the list tells when it is whole.
                        let is_whole = match framing {
                            "until the end" => ends_a_list(&whole, in_body),
                            _ => cut == all.len(),
                        };
                        match end {
                            RawEnd::Close if is_whole => ending.expect(&case, &["complete"]),
                            // What was not read when the reset came is lost.
                            _ if is_whole => ending.expect(&case, &["complete", INCOMPLETE, BROKEN]),
                            _ => ending.expect(&case, &[INCOMPLETE, BROKEN]),
                        }
                        if end == RawEnd::Close && framing != "chunked" && in_body > 0 && !is_whole {
                            assert_eq!(ending.bytes, Some(in_body as u64), "{case}: {ending:?}");
                            assert_eq!(ending.delivered, items_in(&whole.body[..in_body]), "{case}");
                        }
                    }
                }
            }
        }
    });
}

/// The same with the frames of HTTP/2.
#[test]
fn a_cut_and_a_reset_at_every_byte_of_the_frames() {
    alone(async {
        let whole = Whole::small();
        let (half, rest) = whole.body.split_at(40);
        let all = [http2_head(), data(half), frame(DATA, END_STREAM, 1, rest)].concat();
        for cut in 0..=all.len() {
            for end in [RawEnd::Close, RawEnd::Reset] {
                let case = format!("{end:?} at {cut} of {}", all.len());
                let server = raw(&all[..cut], end).await;
                let ending = list(&case, client(&server.url(), true), &whole).await;
                match end {
                    RawEnd::Close if cut == all.len() => ending.expect(&case, &["complete"]),
                    _ if cut == all.len() => ending.expect(&case, &["complete", INCOMPLETE, BROKEN]),
                    _ => ending.expect(&case, &[INCOMPLETE, BROKEN, "transport: connect"]),
                }
            }
        }
    });
}

/// Whether a list is whole that ends after so many bytes: nothing but the empty strings behind `raw` is missing.
fn ends_a_list(whole: &Whole, length: usize) -> bool {
    let mut decoder = ListDecoder::new();
    let mut body = &whole.body[..length];
    while decoder.decode(&mut body).unwrap().is_some() {}
    decoder.finish().is_ok()
}

/// How many items are whole in the beginning of a list.
fn items_in(mut beginning: &[u8]) -> usize {
    let mut decoder = ListDecoder::new();
    while decoder.decode(&mut beginning).unwrap().is_some() {}
    usize::try_from(decoder.items()).unwrap()
}

#[test]
fn a_cut_and_a_reset_at_200_places_of_a_large_list() {
    let seed = std::env::var("LISTWATCH_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seed: u64 = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    println!("LISTWATCH_CHAOS_SEED={seed}");
    alone(async {
        let whole = Whole::large();
        let length = whole.body.len() as u64;
        let json = Whole::new(fixture("pods.json"));
        for n in 0..200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 20) % length;
            let body = Body::replay(whole.body.clone()).chunk_size(1 << 16);
            for (fault, body) in [("cut", body.clone().cut_at(at)), ("reset", body.reset_at(at))] {
                let server = serve(Answer::ok(body)).await;
                for http2 in [false, true] {
                    let case = format!("{fault} at {at}, HTTP/2 {http2}");
                    let ending = list(&case, client(&server.url(), http2), &whole).await;
                    ending.expect(&case, &[INCOMPLETE, BROKEN]);
                    // A reset takes with it what the client's HTTP/2 has not handed over.
                    if fault == "cut" && at > 0 {
                        assert_eq!(ending.bytes, Some(at), "{case}");
                    }
                }
            }
            // RST, and JSON at every other place.
            let whole = if n % 2 == 0 { &whole } else { &json };
            let cut = usize::try_from(at).unwrap() % whole.body.len();
            let (head, _) = framed("until the end", b"");
            let server = raw([&head, &whole.body[..cut]].concat(), RawEnd::Reset).await;
            let case = format!("RST at {cut} of {}", whole.body.len());
            list(&case, client(&server.url(), false), whole).await.expect(&case, &[INCOMPLETE, BROKEN]);
        }
    });
}

#[test]
fn stalls() {
    alone(async {
        let whole = Whole::small();
        let impatient = |url: &str, http2| client(url, http2).read_idle_timeout(SOON);
        let (head, behind) = framed("length", &whole.body);
        let all = [&head[..], &behind].concat();
        let (until_end, _) = framed("until the end", b"");
        let (body, last) = (&whole.body, whole.body.len() - 1);
        for (phase, bytes, expected) in [
            ("before the head", vec![], "transport: stalled"),
            ("in the head", all[..30].to_vec(), "transport: stalled"),
            ("before the first byte", head.clone(), "transport: stalled"),
            ("in the list meta", all[..head.len() + 25].to_vec(), STALLED),
            ("in an item", all[..head.len() + 30].to_vec(), STALLED),
            ("before the last byte", all[..all.len() - 1].to_vec(), STALLED),
            ("behind the last byte", all.clone(), "complete"),
            ("before the end", [&until_end[..], body].concat(), STALLED),
        ] {
            let server = raw(bytes, RawEnd::Hold).await;
            list(phase, impatient(&server.url(), false), &whole).await.expect(phase, &[expected]);
        }
        let settings = frame(SETTINGS, 0, 0, b"");
        for (phase, bytes, expected) in [
            ("before the settings", vec![], "transport: stalled"),
            ("before the head", settings.clone(), "transport: stalled"),
            ("in the head", [&settings[..], &http2_head()[9..15]].concat(), "transport: stalled"),
            ("before the first byte", http2_head(), "transport: stalled"),
            ("in an item", [http2_head(), data(&body[..30])].concat(), STALLED),
            ("before the last byte", [http2_head(), data(&body[..last])].concat(), STALLED),
            ("in a frame", [http2_head(), data(&body[..30]), data(&body[30..])[..20].to_vec()].concat(), STALLED),
            ("before the end", [http2_head(), data(body)].concat(), STALLED),
            ("behind the end", [http2_head(), frame(DATA, END_STREAM, 1, body)].concat(), "complete"),
        ] {
            let case = format!("{phase}, HTTP/2");
            let server = raw(bytes, RawEnd::Hold).await;
            list(&case, impatient(&server.url(), true), &whole).await.expect(&case, &[expected]);
        }
        let (json, large) = (Whole::new(fixture("pods.json")), Whole::large());
        for (case, whole) in [("large", &large), ("JSON", &json)] {
            let half = whole.body.len() as u64 / 2;
            let plain = Body::replay(whole.body.clone());
            // What is compressed may not be enough for a byte of the body.
            for (body, expected) in [(plain.clone(), &[STALLED][..]), (plain.gzip(), &[STALLED, "transport: stalled"])]
            {
                let server = serve(Answer::ok(body.stall_at(half / 10))).await;
                for http2 in [false, true] {
                    let ending = list(case, impatient(&server.url(), http2), whole).await;
                    ending.expect(case, expected);
                    assert!(ending.delivered > 0 || expected.len() > 1, "{case}: {ending:?}");
                }
            }
        }
    });
}

#[test]
fn stalls_before_there_is_a_connection() {
    alone(async {
        let whole = Whole::small();
        for http2 in [false, true] {
            // Nobody accepts, and the queue is full.
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(0).unwrap();
            let address = listener.local_addr().unwrap();
            let mut queue = Vec::new();
            while let Ok(stream) = timeout(SOON, TcpStream::connect(address)).await {
                queue.push(stream);
            }
            let case = "before the connection";
            let ending = list(case, client(&format!("http://{address}"), http2), &whole).await;
            ending.expect(case, &["transport: connect"]);

            // Nobody answers the handshake; somebody begins to.
            for answer in [&b""[..], b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76"] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let before = sockets();
                let held = ELSEWHERE.spawn(async move {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let (mut stream, _) = listener.accept().await.unwrap();
                    stream.write_all(answer).await.unwrap();
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                });
                let client = client(&format!("https://{address}"), http2);
                let ending = list_held("in the handshake", client, &whole, held).await;
                ending.expect("in the handshake", &["transport: connect"]);
                settle(before - 1).await;
            }
        }
    });
}

/// [`list`] against a task that holds one connection and ends with it.
async fn list_held(case: &str, client: Client, whole: &Whole, held: tokio::task::JoinHandle<()>) -> Ending {
    let ending = list(case, client, whole).await;
    held.await.unwrap();
    ending
}

#[test]
fn a_late_head() {
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
            let mut items = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).stream();
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

#[test]
fn goaways() {
    const NO_ERROR: u32 = 0;
    const CALM: u32 = 11;

    alone(async {
        let whole = Whole::small();
        // With the first item, so that nothing is asked again.
        let (half, rest) = whole.body.split_at(35);
        let (settings, head) = (frame(SETTINGS, 0, 0, b""), http2_head());
        let whole_answer = [&head[..], &frame(DATA, END_STREAM, 1, &whole.body)].concat();
        let end = frame(DATA, END_STREAM, 1, rest);
        // At trace level h2 logs the text of a GOAWAY as it came, which is out of our hands.
        let watched = std::env::var_os("LISTWATCH_WATCH_LOGS").is_some();
        let text = if watched { "slow down".to_owned() } else { format!("slow down, {TOKEN}") };
        for (case, bytes, expected) in [
            ("before the head, below", [&settings[..], &goaway(0, NO_ERROR, b"")].concat(), &[BROKEN][..]),
            (
                "before the head, at it",
                [&settings[..], &goaway(1, NO_ERROR, b""), &head[9..], &data(half), &end].concat(),
                &["complete"],
            ),
            (
                "in the list, above",
                [&head[..], &data(half), &goaway(0x7fff_ffff, NO_ERROR, b""), &end].concat(),
                &["complete"],
            ),
            ("in the list, at it", [&head[..], &data(half), &goaway(1, NO_ERROR, b""), &end].concat(), &["complete"]),
            ("in the list, below", [&head[..], &data(half), &goaway(0, NO_ERROR, b""), &end].concat(), &[INCOMPLETE]),
            (
                "in the list, at it, and no more",
                [&head[..], &data(half), &goaway(1, NO_ERROR, b"")].concat(),
                &[INCOMPLETE, BROKEN],
            ),
            (
                "twice, graceful",
                [&head[..], &goaway(0x7fff_ffff, NO_ERROR, b""), &data(half), &goaway(1, NO_ERROR, b""), &end].concat(),
                &["complete"],
            ),
            (
                "an error with a text",
                [&head[..], &data(half), &goaway(0, CALM, text.as_bytes())].concat(),
                &[INCOMPLETE, BROKEN],
            ),
        ] {
            let answers = [RawAnswer::new(bytes, RawEnd::Close)];
            let server = elsewhere(RawServer::start(answers.clone())).await;
            list(case, client(&server.url(), true), &whole).await.expect(case, expected);
            // Where no item came before it, the next connection serves.
            let answers = answers.into_iter().chain([RawAnswer::new(whole_answer.clone(), RawEnd::Close)]);
            let server = elsewhere(RawServer::start(answers.collect::<Vec<_>>())).await;
            let again = client(&server.url(), true).retry(Retry::default().delay(Duration::from_nanos(1)));
            let ending = list(case, again, &whole).await;
            ending.expect(case, if case.starts_with("before") { &["complete"] } else { expected });
        }
    });
}

#[test]
fn streams_that_are_reset() {
    alone(async {
        let whole = Whole::small();
        let (head, all) = (http2_head(), data(&whole.body));
        for code in 0_u32..=14 {
            let reset = frame(RST_STREAM, 0, 1, &code.to_be_bytes());
            let ended = frame(DATA, END_STREAM, 1, &whole.body);
            for (place, bytes, expected) in [
                ("before the head", [&frame(SETTINGS, 0, 0, b"")[..], &reset].concat(), &[BROKEN][..]),
                ("behind the head", [&head[..], &reset].concat(), &[INCOMPLETE, BROKEN]),
                ("in an item", [&head[..], &data(&whole.body[..30]), &reset].concat(), &[INCOMPLETE, BROKEN]),
                // To hyper, NO_ERROR and CANCEL are an end like any other.
                ("in place of the end", [&head[..], &all, &reset].concat(), &["complete", INCOMPLETE, BROKEN]),
                ("behind the end", [&head[..], &ended, &reset].concat(), &["complete", INCOMPLETE, BROKEN]),
            ] {
                let case = format!("{place}, code {code}");
                let server = raw(bytes, RawEnd::Close).await;
                list(&case, client(&server.url(), true), &whole).await.expect(&case, expected);
            }
        }
    });
}

#[test]
fn tiny_frames() {
    alone(async {
        for (format, whole) in [("protobuf", Whole::small()), ("JSON", Whole::small_json())] {
            let server = serve(Answer::ok(Body::replay(whole.body.clone()).chunk_size(1))).await;
            for http2 in [false, true] {
                list(format, client(&server.url(), http2), &whole).await.expect(format, &["complete"]);
            }
        }
        let whole = Whole::small();
        let bytes = || whole.body.iter().map(std::slice::from_ref);
        let padded = |byte: &[u8]| frame(DATA, 8, 1, &[&[9], byte, &[0; 9]].concat());
        let ended = frame(DATA, END_STREAM, 1, b"");
        for (case, frames) in [
            ("of one byte", bytes().flat_map(data).collect::<Vec<_>>()),
            ("padded", bytes().flat_map(padded).collect()),
            ("some empty", bytes().flat_map(|byte| [frame(DATA, 0, 1, b""), data(byte)].concat()).collect()),
        ] {
            let server = raw([http2_head(), frames, ended.clone()].concat(), RawEnd::Close).await;
            list(case, client(&server.url(), true), &whole).await.expect(case, &["complete"]);
        }
    });
}

#[test]
fn wrong_content_lengths() {
    alone(async {
        for whole in [Whole::small(), Whole::small_json()] {
            let body = &whole.body;
            let head = |length: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
            let (short, long) = ((body.len() - 20).to_string(), (body.len() + 1).to_string());
            for (case, length, end, expected) in [
                ("right", body.len().to_string(), RawEnd::Close, "complete"),
                ("too short", short.clone(), RawEnd::Close, INCOMPLETE),
                ("0", "0".to_owned(), RawEnd::Close, INCOMPLETE),
                ("too long", long.clone(), RawEnd::Close, INCOMPLETE),
                ("too long, and held", long.clone(), RawEnd::Hold, STALLED),
                ("2^63", (1_u64 << 63).to_string(), RawEnd::Close, INCOMPLETE),
                ("over u64", "99999999999999999999999".to_owned(), RawEnd::Close, BROKEN),
                ("negative", "-1".to_owned(), RawEnd::Close, BROKEN),
            ] {
                let server = raw([&head(&length)[..], body].concat(), end).await;
                let client = client(&server.url(), false);
                let client = if end == RawEnd::Hold { client.read_idle_timeout(SOON) } else { client };
                list(case, client, &whole).await.expect(case, &[expected]);
            }
            for (case, length, expected) in [
                ("right", body.len().to_string(), &["complete"][..]),
                ("too short", short, &[INCOMPLETE, BROKEN]),
                ("too long", long, &[INCOMPLETE, BROKEN]),
            ] {
                // A literal without a name of its own: that of content-length is the 28th of the static table.
                let length = [&[0x0f, 13, u8::try_from(length.len()).unwrap()], length.as_bytes()].concat();
                let head = frame(HEADERS, 4, 1, &[b"\x88", &length[..]].concat());
                let bytes = [frame(SETTINGS, 0, 0, b""), head, frame(DATA, END_STREAM, 1, body)].concat();
                let server = raw(bytes, RawEnd::Hold).await;
                let case = format!("{case}, HTTP/2");
                list(&case, client(&server.url(), true), &whole).await.expect(&case, expected);
            }
        }
    });
}

#[test]
fn broken_gzip() {
    alone(async {
        for whole in [Whole::small(), Whole::small_json()] {
            let gzip = gzip(&whole.body);
            let answer = |bytes: &[u8]| Answer::ok(Body::replay(bytes.to_vec())).header("content-encoding", "gzip");
            for http2 in [false, true] {
                for cut in 0..gzip.len() {
                    let case = format!("gzip cut at {cut} of {}, HTTP/2 {http2}", gzip.len());
                    let server = serve(answer(&gzip[..cut])).await;
                    let ending = list(&case, client(&server.url(), http2), &whole).await;
                    ending.expect(&case, &[INCOMPLETE, BROKEN]);
                }
                for (case, bytes, expected) in [
                    ("whole", gzip.clone(), &["complete"][..]),
                    (
                        "two members",
                        self::gzip(&whole.body[..30]).into_iter().chain(self::gzip(&whole.body[30..])).collect(),
                        &["complete"],
                    ),
                    ("an empty member behind it", [&gzip[..], &self::gzip(b"")].concat(), &["complete"]),
                    ("garbage behind it", [&gzip[..], b"garbage behind it"].concat(), &["transport: compression"]),
                    ("the list twice", [&gzip[..], &gzip].concat(), &["malformed"]),
                    ("no gzip", whole.body.clone(), &["transport: compression"]),
                ] {
                    let server = serve(answer(&bytes)).await;
                    list(case, client(&server.url(), http2), &whole).await.expect(case, expected);
                }
                // Only the checksum at the end tells that the data was changed: what came before it may be items that are
                // none, but is never a complete list.
                for at in 0..gzip.len() {
                    let server = serve(
                        Answer::ok(Body::replay(gzip.clone()).flip_at(at as u64)).header("content-encoding", "gzip"),
                    );
                    let server = server.await;
                    let client = client(&server.url(), http2);
                    let all = client.list::<[u8]>(&Resource::PODS, &ListOptions::default()).into_vec();
                    if let Ok((items, _)) = timeout(DEADLINE, all).await.unwrap() {
                        assert!(items.iter().map(|item| &**item).eq(whole.items.iter().map(|item| &**item)), "at {at}");
                        // The time, the level and the system in the header.
                        assert!((4..10).contains(&at), "byte {at} of gzip changed unseen");
                    }
                }
            }
        }
    });
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut gzip = Vec::new();
    flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut gzip).unwrap();
    gzip
}

/// 64 MB of zeros in 64 KB.
fn zeros() -> Vec<u8> {
    gzip(&vec![0; 1 << 20]).repeat(64)
}

#[test]
fn gzip_bombs() {
    alone(async {
        let whole = Whole { body: Vec::new(), items: Vec::new() };
        let zeros = zeros();
        let in_raw = |field: Vec<u8>| {
            let mut body =
                [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
            body.extend_from_slice(&tag(2, 2));
            varint(1 << 40, &mut body);
            body.extend_from_slice(&[&len_field(1, b""), &field[..]].concat());
            varint(64 << 20, &mut body);
            body
        };
        let json = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"a":""#;
        let limits = Limits::default();
        for (case, beginning, limits, expected) in [
            ("an item", in_raw(tag(2, 2)), limits, "limit: an item's size"),
            ("a JSON item", json.into(), limits, "limit: an item's size"),
            ("a skipped field", in_raw(tag(9, 2)), limits.bytes(8 << 20), "limit: a body's size"),
            ("millions of items", in_raw(tag(9, 2)), limits.items(10), INCOMPLETE),
        ] {
            let bytes = [gzip(&beginning), zeros.clone()].concat();
            let server = serve(Answer::ok(Body::replay(bytes)).header("content-encoding", "gzip")).await;
            for http2 in [false, true] {
                let client = client(&server.url(), http2).compression(Compression::Gzip);
                list_within(case, client, &whole, limits).await.expect(case, &[expected]);
            }
        }
    });
}

#[test]
fn tls_that_ends_without_notice() {
    alone(async {
        let whole = Whole::small();
        for (framing, cut, end, expected) in [
            ("length", 0, RawEnd::CloseWithoutNotify, &["complete"][..]),
            ("chunked", 0, RawEnd::CloseWithoutNotify, &["complete"]),
            ("until the end", 0, RawEnd::Close, &["complete"]),
            // Anybody on the way could have cut it here.
            ("until the end", 0, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("length", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("chunked", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::CloseWithoutNotify, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::Close, &[INCOMPLETE]),
            ("until the end", 30, RawEnd::Reset, &[INCOMPLETE, BROKEN]),
        ] {
            let case = format!("{framing}, {cut} bytes short, {end:?}");
            let (head, behind) = framed(framing, &whole.body);
            let bytes = [&head[..], &behind[..behind.len() - cut]].concat();
            let server = elsewhere(RawServer::start_tls([RawAnswer::new(bytes, end)])).await;
            let builder = HttpTransport::builder(server.url()).bearer_token(TOKEN).ca_pem(server.ca_pem().unwrap());
            let client = Client::new(builder.build().unwrap()).retry(Retry::never());
            list(&case, client, &whole).await.expect(&case, expected);
        }
    });
}

#[test]
fn lies_about_the_length_of_raw() {
    alone(async {
        let whole = Whole::small();
        let raw = small_raw();
        let envelope =
            [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
        for claimed in (0..raw.len() as u64 + 8).chain([1 << 20, 1 << 31, 1 << 62, u64::MAX]) {
            let mut body = [&envelope[..], &tag(2, 2)].concat();
            varint(claimed, &mut body);
            body.extend_from_slice(&[&raw[..], b"\x1a\0\x22\0"].concat());
            let server = serve(Answer::ok(Body::replay(body))).await;
            for http2 in [false, true] {
                let case = format!("{claimed} for {}", raw.len());
                let ending = list(&case, client(&server.url(), http2), &whole).await;
                // The empty strings behind raw, two bytes each, read as fields of the list that nobody knows.
                let is_whole = [0, 2, 4].map(|more| raw.len() as u64 + more).contains(&claimed);
                ending.expect(&case, if is_whole { &["complete"] } else { &["malformed: ", INCOMPLETE] });
            }
        }
    });
}

#[test]
fn redirects() {
    alone(async {
        let whole = Whole::small();
        let elsewhere = serve(Answer::ok(Body::replay(whole.body.clone()))).await;
        for code in [300, 301, 302, 303, 304, 307, 308] {
            for (case, to) in [
                ("the same place", "/api/v1/pods".to_owned()),
                ("another place", format!("/elsewhere?token={TOKEN}")),
                ("another origin", format!("{}/api/v1/pods?token={TOKEN}", elsewhere.url())),
                ("a host like the token", format!("https://{}.example.com/", &TOKEN[..12])),
                ("no URL", "::".to_owned()),
                ("a user", format!("http://user:{TOKEN}@127.0.0.1:1/")),
            ] {
                let answer = Answer::ok(Body::replay(whole.body.clone())).status(code).header("location", &to);
                let server = serve(answer).await;
                for http2 in [false, true] {
                    list(case, client(&server.url(), http2), &whole).await.expect(case, &["redirect: "]);
                }
                assert_eq!(server.requests().len(), 2, "{case}");
            }
        }
        assert!(elsewhere.requests().is_empty());
    });
}

#[test]
fn proxies_that_echo_the_authorization() {
    alone(async {
        let whole = Whole::small();
        let pages = ["Bearer {}", "<p>your token {} is old</p>", "{\"token\": \"{}\"}", "k8s\0{}", "{}", "\"{}\""];
        for (page, code) in pages.iter().flat_map(|page| [200, 400, 401, 403, 407, 502, 503].map(|code| (page, code))) {
            let text = |authorization: &str| page.replace("{}", authorization);
            let server = elsewhere(Server::start(move |request, n| {
                let authorization = request.headers["authorization"].to_str().unwrap();
                let token = authorization.strip_prefix("Bearer ").unwrap();
                let echo = if n % 2 == 0 { text(authorization) } else { text(token) };
                let answer = Answer::ok(Body::replay(echo)).status(code).content_type(&format!("text/{token}"));
                answer
                    .header("audit-id", token)
                    .header("warning", &format!("299 - \"{token}\""))
                    .header("www-authenticate", authorization)
            }))
            .await;
            for http2 in [false, true, false, true] {
                let case = format!("{page} under {code}");
                let ending = list(&case, client(&server.url(), http2), &whole).await;
                let not_a_list = ["API error: ", "unexpected encoding: ", "malformed: ", INCOMPLETE];
                ending.expect(&case, &not_a_list);
            }
        }
        // Cut in the token.
        let page = format!("<html>{TOKEN}</html>");
        for cut in 0..page.len() as u64 {
            for code in [200, 502] {
                let server = serve(Answer::ok(Body::replay(page.clone()).reset_at(cut)).status(code)).await;
                let case = format!("{page} cut at {cut} under {code}");
                list(&case, client(&server.url(), cut % 2 == 0), &whole).await;
            }
        }
    });
}

/// This test again, in a process with 256 MB of address space: nothing is reserved because a body says so.
#[test]
fn sizes_that_are_claimed_in_a_small_address_space() {
    const CHILD: &str = "LISTWATCH_CHAOS_CHILD";
    const NAME: &str = "sizes_that_are_claimed_in_a_small_address_space";

    if std::env::var_os(CHILD).is_some() {
        return claims();
    }
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new("sh");
    child.args(["-c", "ulimit -v 262144; exec \"$0\" --exact \"$1\" --nocapture"]).arg(test).arg(NAME);
    let output = child.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    write!(said, "{}", String::from_utf8_lossy(&output.stderr)).unwrap();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("1 passed"), "{said}");
}

fn claims() {
    assert!(Vec::<u8>::new().try_reserve_exact(256 << 20).is_err(), "the address space is not capped");
    let envelope = [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
    let claim = |fields: &[(u32, u64)]| {
        let mut body = envelope.clone();
        for (number, length) in fields {
            body.extend_from_slice(&tag(*number, 2));
            varint(*length, &mut body);
        }
        body.resize(body.len() + (1 << 20), b'x');
        body
    };
    let json =
        |item: &str| format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{item}"#).into_bytes();
    let patient = Limits::default().item_size(u64::MAX).metadata_size(u64::MAX);
    let limits = Limits::default();
    alone(async {
        let whole = Whole { body: Vec::new(), items: Vec::new() };
        for (case, body, limits) in [
            ("an item of 2^31-1", claim(&[(2, 1 << 40), (2, (1 << 31) - 1)]), limits),
            ("an item of 2^31-1, allowed", claim(&[(2, 1 << 40), (2, (1 << 31) - 1)]), patient),
            ("an item of 2^31", claim(&[(2, 1 << 40), (2, 1 << 31)]), patient),
            ("raw of 2^62", claim(&[(2, 1 << 62)]), limits),
            ("a list meta of 2^61", claim(&[(2, 1 << 62), (1, 1 << 61)]), patient),
            ("a version of 2^60", claim(&[(2, 1 << 62), (1, 1 << 61), (2, 1 << 60)]), patient),
            ("a version of 2^60, not allowed", claim(&[(2, 1 << 62), (1, 1 << 61), (2, 1 << 60)]), limits),
            ("an unknown field of 2^61", claim(&[(2, 1 << 62), (9, 1 << 61)]), limits),
            ("a type meta of 2^62", claim(&[(1, 1 << 62)]), limits),
            ("JSON, deep", json(&"[".repeat(32 << 20)), limits),
            ("JSON, deep in an item", json(&"{\"a\":".repeat(1 << 20)), limits),
            ("JSON, a long string", json(&format!("{{\"a\":\"{}", "x".repeat(32 << 20))), limits),
        ] {
            let server = serve(Answer::ok(Body::replay(body))).await;
            let ending = list_within(case, client(&server.url(), false), &whole, limits).await;
            ending.expect(case, &["limit: ", "malformed: ", INCOMPLETE]);
        }
        let bomb = [gzip(&json("{\"a\":\"")), gzip(&vec![b'x'; 1 << 20]).repeat(300)].concat();
        let server = serve(Answer::ok(Body::replay(bomb)).header("content-encoding", "gzip")).await;
        list("a gzip bomb", client(&server.url(), false), &whole)
            .await
            .expect("a gzip bomb", &["limit: an item's size"]);
    });
}
