//! Response bodies: timed and decompressed while they arrive, and read as an error if they are not what was requested.
//!
//! ```text
//! Transport ──> Guarded (counts, idle timeout, deadline) ──> Gunzip, if the headers say gzip ──> Turns ──> decoder
//! ```
//!
//! - Bytes are counted and timed as they were sent. A small compressed body may decompress to gigabytes, which `Limits`
//!   bound.
//! - The idle timeout runs only while a poll finds no bytes, so the time of a slow consumer does not count.
//! - A body that arrives in drips never idles for long. Waits are therefore also added up: after the first byte of the
//!   body, and again after each [`PROGRESS`] bytes.
//! - Bytes are polled before the clock, because bytes that waited for the consumer are not late.
//! - The deadline is polled before the bytes, because it limits the consumer too.
//! - Servers from 1.37 write a gzip member for each flush, so another member may follow, and zeros in between are
//!   ignored.
//! - Bytes may contain nothing: empty chunks, empty members, white space. Each loop over them ends its poll after some,
//!   so that other tasks and timers can run, and compressed bytes without contents are limited.
//! - The end of the input inside a member is [`TransportErrorKind::Broken`], which is retried, while damaged data is
//!   [`TransportErrorKind::Compression`], which is not.
//! - Only the headers decide the content coding. An unknown coding is refused before the body is read.
//! - Of an error's body, at most 1 MiB is read, for at most 10 s however slowly the bytes arrive, and 300 characters
//!   are quoted. They are redacted before they are truncated, because half a token is a secret too.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{io, mem};

use async_compression::tokio::bufread::GzipDecoder;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use tokio::io::AsyncBufRead as _;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tokio_util::io::{StreamReader, poll_read_buf};

use super::error::ErrorKind;
use super::progress::Counters;
use super::redact::redact;
use super::runtime::OwnRuntime;
use super::transport::{Chunks, Transport, TransportError, TransportErrorKind};
use crate::encoding::with_codec;
use crate::meta::Status;
use crate::wire::Beginning;

const ERROR_SIZE: usize = 1 << 20;

const ERROR_TIME: Duration = Duration::from_secs(10);

const SNIPPET_CHARS: usize = 300;

/// After how many bytes on the network a body may use up [`MOST_WAITED`] again. Any useful link is faster.
const PROGRESS: usize = 64 << 10;

/// How long in total a body may let its reader wait for [`PROGRESS`] bytes, unless the idle timeout is longer. API
/// servers end a list after 60 s.
const MOST_WAITED: Duration = Duration::from_secs(90);

const DECOMPRESSED_CHUNK: usize = 64 << 10;

/// How many bytes a consumer receives before other tasks can run. Otherwise a body without an item, for example of
/// white space, would keep the consumer's task in a single poll.
const TURN: usize = 1 << 20;

/// The least that a chunk counts towards a turn.
const LEAST_OF_TURN: usize = 16 << 10;

/// How many gzip members may begin in one poll.
const MEMBERS_OF_TURN: u32 = 32;

/// How many compressed bytes there may be for each decompressed byte, in addition to [`COMPRESSED_EXCESS`]. Only a body
/// of empty members or blocks, or of long gzip headers, needs more.
const MOST_COMPRESSED: u64 = 32;

/// How many compressed bytes may precede any contents.
const COMPRESSED_EXCESS: u64 = 1 << 20;

/// Returns the decompressed body. Each wait for bytes is limited to `idle`, and the whole body to `deadline`.
pub(super) fn body(
    wire: Chunks,
    headers: &HeaderMap,
    idle: Option<Duration>,
    deadline: Option<Instant>,
    counters: Arc<Counters>,
) -> Result<Chunks, TransportError> {
    // The timers belong to this runtime.
    let mut runtime = OwnRuntime::default();
    runtime.check()?;
    let guarded = Guarded {
        chunks: wire,
        idle,
        waiting: None,
        progress: None,
        timer: Box::pin(sleep_until(Instant::now())),
        deadline: deadline.map(|deadline| Box::pin(sleep_until(deadline))),
        runtime,
        counters,
    };
    match content_coding(headers).as_deref() {
        None => Ok(Box::pin(Turns { chunks: guarded, spent: 0 })),
        Some("gzip" | "x-gzip") => {
            let compressed = StreamReader::new(ForReader { guarded, compressed: 0, contents: 0, has_read: false });
            let gunzip = Gunzip { state: Members::Before(compressed), chunk: BytesMut::new() };
            Ok(Box::pin(Turns { chunks: gunzip, spent: 0 }))
        }
        Some(coding) => {
            let message = format!("the content coding is {coding}, not gzip or identity");
            Err(TransportError::new(TransportErrorKind::Compression, message))
        }
    }
}

/// Returns the content coding in lower case, without `identity`; several codings are joined. Names of codings are
/// case-insensitive, and `x-gzip` is the same as `gzip` (RFC 9110, section 8.4.1).
fn content_coding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let all = values.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let codings = all.split(',').map(str::trim).filter(|coding| !matches!(*coding, "" | "identity"));
    let codings = codings.collect::<Vec<_>>().join(", ");
    (!codings.is_empty()).then_some(codings)
}

/// The bytes of a body on the network, counted and timed.
struct Guarded {
    chunks: Chunks,
    idle: Option<Duration>,
    /// When the wait that `timer` limits began. It begins with a poll that finds no bytes, so the time of the consumer
    /// does not count.
    waiting: Option<Instant>,
    /// `None` before the first byte.
    progress: Option<BodyProgress>,
    timer: Pin<Box<Sleep>>,
    deadline: Option<Pin<Box<Sleep>>>,
    runtime: OwnRuntime,
    counters: Arc<Counters>,
}

/// The waits for the next [`PROGRESS`] bytes of a body.
#[derive(Default)]
struct BodyProgress {
    waited: Duration,
    bytes: usize,
}

impl Guarded {
    fn receive(&mut self, bytes: usize) {
        self.counters.wire(bytes);
        // Bytes that are found after the limit have waited for a slow consumer.
        let waited = self.waiting.take().filter(|_| Instant::now() <= self.timer.deadline());
        let waited = waited.map_or(Duration::ZERO, |since| since.elapsed());
        let Some(progress) = &mut self.progress else {
            self.progress = (bytes > 0).then(BodyProgress::default);
            return;
        };
        progress.waited += waited;
        progress.bytes += bytes;
        if progress.bytes >= PROGRESS {
            *progress = BodyProgress::default();
        }
    }

    /// Polls the clock while no bytes can be read. Ready after a limit, with the error.
    fn poll_wait(&mut self, cx: &mut Context<'_>, idle: Duration) -> Poll<TransportError> {
        let since = self.waiting.unwrap_or_else(Instant::now);
        if self.waiting.replace(since).is_none() {
            let waited = self.progress.as_ref().map_or(Duration::ZERO, |progress| progress.waited);
            let left = idle.max(MOST_WAITED).saturating_sub(waited);
            self.timer.as_mut().reset(since + idle.min(left));
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(match &self.progress {
            Some(BodyProgress { waited, bytes }) if since.elapsed() < idle => {
                let message = format!(
                    "the server has sent only {bytes} bytes in {} s",
                    (*waited + since.elapsed()).as_secs_f32()
                );
                TransportError::new(TransportErrorKind::ReadIdle, message)
            }
            _ => idle_error(idle),
        })
    }
}

impl Stream for Guarded {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Err(error) = this.runtime.check() {
            return Poll::Ready(Some(Err(error)));
        }
        if this.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Some(Err(TransportError::new(TransportErrorKind::Deadline, ""))));
        }
        // The bytes are polled before the clock, because bytes that waited for a slow consumer are not late.
        if let Poll::Ready(next) = this.chunks.as_mut().poll_next(cx) {
            this.receive(next.as_ref().map_or(0, |next| next.as_ref().map_or(0, Bytes::len)));
            return Poll::Ready(next.map(|next| next.map_err(TransportError::in_body)));
        }
        let Some(idle) = this.idle else { return Poll::Pending };
        this.poll_wait(cx, idle).map(|error| Some(Err(error)))
    }
}

pub(super) fn idle_error(idle: Duration) -> TransportError {
    let message = format!("the server has sent no byte for {} s", idle.as_secs_f32());
    TransportError::new(TransportErrorKind::ReadIdle, message)
}

/// Lets other tasks run after each [`TURN`] of a body.
struct Turns<S> {
    chunks: S,
    /// How many bytes followed since the consumer last had to wait.
    spent: usize,
}

impl<S: Stream<Item = Result<Bytes, TransportError>> + Unpin> Stream for Turns<S> {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.spent >= TURN {
            self.spent = 0;
            return later(cx);
        }
        let next = Pin::new(&mut self.chunks).poll_next(cx);
        self.spent = match &next {
            Poll::Ready(Some(Ok(chunk))) => self.spent + chunk.len().max(LEAST_OF_TURN),
            _ => 0,
        };
        next
    }
}

/// Ends a poll and requests the next one.
fn later<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// The compressed bytes for `StreamReader`, with errors as `io::Error`.
struct ForReader {
    guarded: Guarded,
    /// How many compressed bytes there were.
    compressed: u64,
    /// To how many bytes they have decompressed.
    contents: u64,
    /// True if this poll of [`Gunzip`] read a chunk. If another one is read, the chunk had no contents.
    has_read: bool,
}

impl Stream for ForReader {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let most = this.contents.saturating_mul(MOST_COMPRESSED).saturating_add(COMPRESSED_EXCESS);
        if this.compressed > most {
            let message = format!("gzip: {} bytes contain only {}", this.compressed, this.contents);
            let error = TransportError::new(TransportErrorKind::Compression, message);
            return Poll::Ready(Some(Err(io::Error::other(error))));
        }
        if mem::replace(&mut this.has_read, true) {
            return later(cx);
        }
        let next = ready!(Pin::new(&mut this.guarded).poll_next(cx));
        if let Some(Ok(chunk)) = &next {
            this.compressed += chunk.len() as u64;
        }
        Poll::Ready(next.map(|chunk| chunk.map_err(io::Error::other)))
    }
}

struct Gunzip {
    state: Members,
    chunk: BytesMut,
}

type Compressed = StreamReader<ForReader, Bytes>;

enum Members {
    Before(Compressed),
    In(Box<GzipDecoder<Compressed>>),
    /// After a member. Another may follow, because servers from 1.37 write one for each flush; gzip ignores zeros here.
    After(Compressed),
    Ended,
}

impl Stream for Gunzip {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { state, chunk } = &mut *self;
        let mut members = 0;
        if let Members::Before(compressed) | Members::After(compressed) = state {
            compressed.get_mut().has_read = false;
        } else if let Members::In(decoder) = state {
            decoder.get_mut().get_mut().has_read = false;
        }
        loop {
            let next = match state {
                Members::Before(_) | Members::After(_) if members == MEMBERS_OF_TURN => return later(cx),
                Members::Before(_) => Ok(()),
                Members::In(decoder) => {
                    if chunk.capacity() == 0 {
                        chunk.reserve(DECOMPRESSED_CHUNK);
                    }
                    let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *decoder), cx, chunk) else {
                        // A body that waits for its server keeps no buffer.
                        *chunk = BytesMut::new();
                        return Poll::Pending;
                    };
                    match read {
                        Ok(0) => Ok(()),
                        Ok(read) => {
                            decoder.get_mut().get_mut().contents += read as u64;
                            return Poll::Ready(Some(Ok(chunk.split().freeze())));
                        }
                        Err(error) => Err(error),
                    }
                }
                Members::After(compressed) => match ready!(Pin::new(&mut *compressed).poll_fill_buf(cx)) {
                    Ok([]) => return Poll::Ready(None),
                    Ok(bytes) => {
                        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                        Pin::new(&mut *compressed).consume(zeros);
                        if zeros > 0 {
                            continue;
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Members::Ended => return Poll::Ready(None),
            };
            *state = match (mem::replace(state, Members::Ended), next) {
                (_, Err(error)) => return Poll::Ready(Some(Err(gzip_error(&error)))),
                (Members::Before(compressed) | Members::After(compressed), Ok(())) => {
                    members += 1;
                    Members::In(Box::new(GzipDecoder::new(compressed)))
                }
                (Members::In(decoder), Ok(())) => Members::After(decoder.into_inner()),
                (Members::Ended, Ok(())) => Members::Ended,
            };
        }
    }
}

fn gzip_error(error: &io::Error) -> TransportError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TransportError>()) {
        Some(error) => error.clone(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            TransportError::new(TransportErrorKind::Broken, "the gzip member is truncated")
        }
        None => TransportError::new(TransportErrorKind::Compression, format!("gzip: {error}")),
    }
}

pub(super) async fn next_chunk(chunks: &mut Chunks) -> Result<Option<Bytes>, TransportError> {
    loop {
        match poll_fn(|cx| chunks.as_mut().poll_next(cx)).await {
            Some(Ok(chunk)) if chunk.is_empty() => {}
            Some(chunk) => return chunk.map(Some),
            None => return Ok(None),
        }
    }
}

/// Returns the beginning of a body, including `first`, which was already read. The result is the whole body if it is
/// short and arrives in time, or everything before an interruption.
pub(super) async fn beginning(first: Bytes, chunks: &mut Chunks) -> Vec<u8> {
    let mut bytes = Vec::from(first);
    let end = Instant::now() + ERROR_TIME;
    while bytes.len() < ERROR_SIZE {
        match timeout_at(end, next_chunk(chunks)).await {
            Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        }
    }
    bytes.truncate(ERROR_SIZE);
    bytes
}

/// The body of an API server's 404 for a path that it does not serve (Go's `http.NotFound`), for example of a custom
/// resource whose definition was deleted. For an object that does not exist, the body is a Status instead.
const NO_SUCH_PATH: &str = "404 page not found";

/// Returns the error of a response with this status, whatever its body is.
pub(super) fn api_error(code: u16, headers: &HeaderMap, body: &[u8], transport: &dyn Transport) -> ErrorKind {
    if let Some(status) = self::status(body) {
        return of_status(status, code, headers);
    }
    let message = match snippet(body, transport) {
        Some(text) if code == 404 && text == NO_SUCH_PATH => {
            "the server does not serve this path: the resource does not exist, or no longer exists".to_owned()
        }
        text => text.unwrap_or_default(),
    };
    kind_of(Status { message, ..Status::default() }, code, headers, false)
}

/// Returns the error of a Status in a response with this HTTP status code.
pub(super) fn of_status(status: Status, code: u16, headers: &HeaderMap) -> ErrorKind {
    kind_of(status, code, headers, true)
}

fn kind_of(mut status: Status, code: u16, headers: &HeaderMap, is_kubernetes: bool) -> ErrorKind {
    let code = u16::try_from(status.code).ok().filter(|code| *code != 0).unwrap_or(code);
    status.code = i32::from(code);
    let in_header = headers.get(RETRY_AFTER).and_then(|text| seconds(text.to_str().ok()?.trim()));
    let in_status = status.details.as_ref().and_then(|details| u64::try_from(details.retry_after_seconds).ok());
    let retry_after = in_header.or(in_status.filter(|seconds| *seconds > 0)).map(Duration::from_secs);
    ErrorKind::Api { code, status: Box::new(status), retry_after, is_status: is_kubernetes }
}

/// Returns the seconds of a `Retry-After`. Like client-go, it ignores a date, because the clocks may differ.
fn seconds(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

pub(super) fn status(body: &[u8]) -> Option<Status> {
    let Some((Beginning::Encoded(encoding), body)) = Beginning::find(body) else { return None };
    with_codec!(encoding, C => {
        let (found, status) = C::document(body).ok()?;
        if found.kind == "Status" { C::status(status) } else { None }
    })
}

pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    Some(headers.get(CONTENT_TYPE)?.to_str().ok()?.to_owned())
}

/// Returns the beginning of a text, on one line and without credentials; `None` for a body that is not text.
pub(super) fn snippet(body: &[u8], transport: &dyn Transport) -> Option<String> {
    let text = String::from_utf8_lossy(body.get(..ERROR_SIZE).unwrap_or(body));
    if text.chars().take(SNIPPET_CHARS).any(|c| c == char::REPLACEMENT_CHARACTER || c == '\0') {
        return None;
    }
    // Redaction comes before truncation, because half a token is a secret too.
    let text = redact(transport, text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut snippet: String = text.chars().take(SNIPPET_CHARS).collect();
    if snippet.len() < text.len() {
        snippet.push('…');
    }
    (!snippet.is_empty()).then_some(snippet)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _, stream};

    use super::*;
    use crate::client::transport::{Request, ResponseFuture};

    struct Secretive;

    impl Transport for Secretive {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            unreachable!()
        }

        fn redact(&self, text: String) -> String {
            text.replace("s3cret", "[redacted]")
        }
    }

    /// A body that repeats a piece for ever and never lets its reader wait.
    fn endless(piece: &'static [u8], coding: &'static str) -> Chunks {
        let chunks = std::iter::repeat_with(move || Ok(Bytes::from_static(piece)));
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, http::HeaderValue::from_static(coding))]);
        let counters = Arc::new(Counters::new(&Arc::default()));
        body(Box::pin(futures::stream::iter(chunks)), &headers, None, None, counters).unwrap()
    }

    /// `gzip` of no bytes, with 10 bytes of header.
    const EMPTY_MEMBER: [u8; 20] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// An empty block that is not the last one.
    const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

    #[tokio::test(start_paused = true)]
    async fn a_body_without_contents_gives_other_tasks_turns() {
        let members: &[u8] = EMPTY_MEMBER.repeat(10_000).leak();
        let spaces: &[u8] = vec![b' '; 100_000].leak();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (piece, coding) in [(&b""[..], "identity"), (spaces, "identity"), (members, "gzip"), (&[], "gzip")] {
            let mut chunks = endless(piece, coding);
            let pending = (0..100).filter(|_| chunks.as_mut().poll_next(&mut cx).is_pending());
            assert!(pending.count() >= 1, "{} bytes in {coding}", piece.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn compressed_bytes_without_contents_are_limited() {
        let blocks = [&EMPTY_MEMBER[..10], &EMPTY_BLOCK.repeat(2000)].concat();
        let (head, zeros): (&[u8], &[u8]) = (blocks.leak(), vec![0; 10_000].leak());
        for (case, first, piece) in [
            ("empty members", &[][..], &EMPTY_MEMBER.repeat(500).leak()[..]),
            ("empty blocks", head, &EMPTY_BLOCK.repeat(2000).leak()[..]),
            ("a long name", b"\x1f\x8b\x08\x08\0\0\0\0\0\x03", &[b'x'; 10_000]),
            ("zeros after a member", &EMPTY_MEMBER, zeros),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"))]);
            let counters = Arc::new(Counters::new(&Arc::default()));
            let rest = std::iter::repeat_with(move || Ok(Bytes::from_static(piece)));
            let wire = futures::stream::iter(std::iter::once(Ok(Bytes::from_static(first))).chain(rest));
            let mut chunks = body(Box::pin(wire), &headers, None, None, Arc::clone(&counters)).unwrap();
            let error = next_chunk(&mut chunks).await.unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Compression, "{case}: {error}");
            assert!(error.to_string().contains("bytes contain only 0"), "{case}: {error}");
        }
    }

    #[tokio::test]
    async fn a_silent_gzip_body_keeps_no_buffer() {
        use std::io::Write as _;

        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"event").unwrap();
        gzip.flush().unwrap();
        let wire = stream::iter([Ok(Bytes::from(gzip.get_ref().clone()))]).chain(stream::pending());
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"))]);
        let counters = Arc::new(Counters::new(&Arc::default()));
        let mut body = body(Box::pin(wire), &headers, None, None, counters).unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "event");
        let counted = allocation_counter::measure(|| assert!(body.next().now_or_never().is_none()));
        // The buffer of the event was freed.
        assert!(counted.bytes_current <= -i64::try_from(DECOMPRESSED_CHUNK).unwrap(), "{counted:?}");
    }

    #[test]
    fn joins_the_content_codings_of_all_headers() {
        for (headers, expected) in [
            (&[][..], None),
            (&["identity", ""], None),
            (&["identity", "GZip"], Some("gzip")),
            (&["gzip", " br ,identity"], Some("gzip, br")),
        ] {
            let headers = headers.iter().map(|coding| (CONTENT_ENCODING, http::HeaderValue::from_static(coding)));
            let headers = headers.fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
            assert_eq!(content_coding(&headers).as_deref(), expected, "{headers:?}");
        }
    }

    #[test]
    fn snippets_are_short_and_hold_no_credentials() {
        for (body, expected) in [
            ("", None),
            (" \n ", None),
            ("<h1>Bad\n  Gateway</h1>", Some("<h1>Bad Gateway</h1>")),
            ("token s3cret, again s3cret", Some("token [redacted], again [redacted]")),
            ("authorization: Bearer s3cret end", Some("authorization: Bearer [redacted] end")),
            ("authorization: Bearer abc.def end", Some("authorization: Bearer [redacted] end")),
            ("\"bearer\": \"abc\", Basic dXNlcjpwYXNz", Some("\"bearer\": \"[redacted]\", Basic [redacted]")),
            // Messages of API servers.
            ("[invalid bearer token, token expired]", Some("[invalid bearer token, token expired]")),
            ("basic authentication is off", Some("basic authentication is off")),
            ("Bearer s3cret: invalid bearer token", Some("Bearer [redacted]: invalid bearer token")),
            ("Bearer abcdef.0123456789abcdef", Some("Bearer [redacted]")),
            ("t=eyJhbGciOiJSUzI1NiJ9.eyJpc3Mi.x", Some("[redacted]")),
            ("binary \0", None),
        ] {
            assert_eq!(snippet(body.as_bytes(), &Secretive).as_deref(), expected, "{body:?}");
        }
        let long = snippet(&b"a ".repeat(1000), &Secretive).unwrap();
        assert_eq!(long.chars().count(), SNIPPET_CHARS + 1);
        // A token across the end of the snippet is redacted whole.
        let body = format!("{}s3cret", "x".repeat(SNIPPET_CHARS - 3));
        assert!(!snippet(body.as_bytes(), &Secretive).unwrap().contains("s3c"));
    }
}
