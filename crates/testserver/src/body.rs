//! Response bodies, whole or with faults, made while they are sent.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::read::GzEncoder;
use hyper::body::Frame;
use tokio::time::{Sleep, sleep};

use crate::Synthesizer;

/// About as many bytes as an API server writes at a time.
const DEFAULT_CHUNK_SIZE: usize = 4096;

/// A response body: the source of its bytes, and its faults.
///
/// The server makes a chunk when the connection has room for it. A body of any length takes the memory of one chunk,
/// and stops when the client stops reading. A clone sends the same bytes again.
///
/// [`gzip`](Self::gzip) and [`gzip_members`](Self::gzip_members) ignore what the request accepts. The offsets of faults
/// count bytes after compression and before the framing of HTTP. [`cut_at`](Self::cut_at), [`reset_at`](Self::reset_at)
/// and [`stall_at`](Self::stall_at) replace each other: the last call counts. A fault past the body's end has no
/// effect.
#[derive(Clone, Debug)]
pub struct Body {
    source: Source,
    appended: Bytes,
    compression: Option<Gzip>,
    chunk_size: usize,
    content_length: bool,
    flip: Option<u64>,
    fault: Option<(u64, Fault)>,
    end_after: Option<Duration>,
}

#[derive(Clone)]
enum Source {
    Replay(Bytes),
    Synthesize(Synthesizer),
    Read { length: u64, open: Arc<dyn Fn() -> Box<dyn Read + Send> + Send + Sync> },
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(bytes) => f.debug_tuple("Replay").field(bytes).finish(),
            Self::Synthesize(synthesizer) => f.debug_tuple("Synthesize").field(synthesizer).finish(),
            Self::Read { length, .. } => f.debug_struct("Read").field("length", length).finish_non_exhaustive(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gzip {
    OneMember,
    MemberPerChunk,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut,
    Reset,
    Stall,
}

impl Body {
    /// Sends these bytes.
    #[must_use]
    pub fn replay(bytes: impl Into<Bytes>) -> Self {
        Self::new(Source::Replay(bytes.into()))
    }

    /// Sends a synthesized list, made while it is sent.
    #[must_use]
    pub fn synthesize(synthesizer: Synthesizer) -> Self {
        Self::new(Source::Synthesize(synthesizer))
    }

    /// Sends the bytes of a reader, which `open` makes for each response. It must yield `length` bytes, always the same
    /// ones. If the reader fails, the response is interrupted.
    #[must_use]
    pub fn read<R: Read + Send + 'static>(length: u64, open: impl Fn() -> R + Send + Sync + 'static) -> Self {
        Self::new(Source::Read { length, open: Arc::new(move || Box::new(open())) })
    }

    /// Sends chunks of this many bytes: 4096 unless set, about as many as an API server writes at a time. Chunked
    /// transfer in HTTP/1.1 keeps these chunks; HTTP/2 splits a chunk that is over the client's frame size or window.
    ///
    /// # Panics
    /// When `bytes` is 0.
    #[must_use]
    pub fn chunk_size(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a chunk must have at least one byte");
        self.chunk_size = bytes;
        self
    }

    /// Adds bytes to the end of the body, before it is compressed. An API server does so when its encoder fails
    /// halfway: it appends an encoded `Status`.
    #[must_use]
    pub fn append(mut self, bytes: impl Into<Bytes>) -> Self {
        self.appended = bytes.into();
        self
    }

    /// Compresses the body with gzip, level 1, into one member, as an API server does.
    #[must_use]
    pub fn gzip(mut self) -> Self {
        self.compression = Some(Gzip::OneMember);
        self
    }

    /// Compresses every chunk into a gzip member of its own, as an API server from 1.37 does with watches. The chunk
    /// size then counts bytes before compression, and an empty body has no member.
    #[must_use]
    pub fn gzip_members(mut self) -> Self {
        self.compression = Some(Gzip::MemberPerChunk);
        self
    }

    /// Declares the length that the body has without faults; without this call, HTTP/1.1 uses chunked transfer. A body
    /// that is then cut is shorter than declared. Has no effect on a compressed body, whose length is not known in
    /// advance.
    #[must_use]
    pub fn with_content_length(mut self) -> Self {
        self.content_length = true;
        self
    }

    /// Inverts every bit of the byte at this offset.
    #[must_use]
    pub fn flip_at(mut self, offset: u64) -> Self {
        self.flip = Some(offset);
        self
    }

    /// Ends the body cleanly after `length` bytes: with the last chunk in HTTP/1.1, `END_STREAM` in HTTP/2.
    #[must_use]
    pub fn cut_at(mut self, length: u64) -> Self {
        self.fault = Some((length, Fault::Cut));
        self
    }

    /// Interrupts the body after `length` bytes: HTTP/1.1 closes the connection (in TLS without `close_notify`), HTTP/2
    /// resets the stream. All `length` bytes are written first, as fast as the client reads them.
    #[must_use]
    pub fn reset_at(mut self, length: u64) -> Self {
        self.fault = Some((length, Fault::Reset));
        self
    }

    /// Stops sending after `length` bytes, and leaves the connection open.
    #[must_use]
    pub fn stall_at(mut self, length: u64) -> Self {
        self.fault = Some((length, Fault::Stall));
        self
    }

    /// Ends the body this long after its last byte, like the watch of a collection that does not change. The tokio
    /// runtime must have time enabled.
    #[must_use]
    pub fn end_after(mut self, time: Duration) -> Self {
        self.end_after = Some(time);
        self
    }

    /// The value of the `content-length` header, if the response has one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        (self.content_length && self.compression.is_none()).then(|| self.length())
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }

    /// Converts the body for hyper. The number of bytes that hyper gets is added to `handed_over`.
    pub(crate) fn stream(self, handed_over: Arc<AtomicU64>) -> BodyStream {
        let chunk_size = self.chunk_size.min(usize::try_from(self.length()).unwrap_or(usize::MAX)).max(1);
        let source: Box<dyn Read + Send> = match self.source {
            Source::Replay(bytes) => Box::new(Cursor::new(bytes)),
            Source::Synthesize(synthesizer) => Box::new(synthesizer.reader()),
            Source::Read { open, .. } => open(),
        };
        let mut reader: Box<dyn Read + Send> = Box::new(source.chain(Cursor::new(self.appended)));
        if self.compression == Some(Gzip::OneMember) {
            reader = Box::new(GzEncoder::new(reader, Compression::fast()));
        }
        BodyStream {
            reader,
            member_per_chunk: self.compression == Some(Gzip::MemberPerChunk),
            chunk_size,
            flip: self.flip,
            fault: self.fault,
            end_after: self.end_after,
            end: None,
            sent: 0,
            handed_over,
            unwritten: Arc::default(),
            head_written: HeadWritten::No,
        }
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            appended: Bytes::new(),
            compression: None,
            chunk_size: DEFAULT_CHUNK_SIZE,
            content_length: false,
            flip: None,
            fault: None,
            end_after: None,
        }
    }

    /// The length before compression, without faults.
    fn length(&self) -> u64 {
        let source = match &self.source {
            Source::Replay(bytes) => bytes.len() as u64,
            Source::Synthesize(synthesizer) => synthesizer.len(),
            Source::Read { length, .. } => *length,
        };
        source + self.appended.len() as u64
    }
}

/// A body that is being sent.
pub(crate) struct BodyStream {
    reader: Box<dyn Read + Send>,
    member_per_chunk: bool,
    chunk_size: usize,
    flip: Option<u64>,
    fault: Option<(u64, Fault)>,
    end_after: Option<Duration>,
    end: Option<Pin<Box<Sleep>>>,
    /// Bytes of this body handed to the connection.
    sent: u64,
    /// Bytes of all bodies of the server handed to connections.
    handed_over: Arc<AtomicU64>,
    unwritten: Arc<Unwritten>,
    head_written: HeadWritten,
}

/// Whether the head of the response is written: a cut or a reset waits for it.
enum HeadWritten {
    No,
    /// An empty chunk follows the head; HTTP/2 frames it like any other chunk.
    Followed,
    /// The body was pending once, and HTTP/1.1 writes the head while the body is pending.
    Yes,
}

impl BodyStream {
    /// Returns the next bytes to send, empty at the end.
    fn next_bytes(&mut self) -> io::Result<Vec<u8>> {
        let bytes = take(&mut self.reader, self.chunk_size)?;
        if self.member_per_chunk && !bytes.is_empty() {
            let mut member = Vec::new();
            GzEncoder::new(&bytes[..], Compression::fast()).read_to_end(&mut member)?;
            return Ok(member);
        }
        Ok(bytes)
    }

    fn hand_over(&mut self, mut bytes: Vec<u8>) -> Frame<Chunk> {
        if let Some(byte) =
            self.flip.and_then(|flip| bytes.get_mut(usize::try_from(flip.checked_sub(self.sent)?).ok()?))
        {
            *byte = !*byte;
        }
        self.sent += bytes.len() as u64;
        self.handed_over.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Frame::data(Chunk::new(bytes.into(), Arc::clone(&self.unwritten)))
    }

    /// Ends the body, cleanly or with an error. If the end breaks the connection, hyper drops what it has not written,
    /// so the end waits until the head and every chunk are written.
    fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        end: Option<io::Error>,
    ) -> Poll<Option<Result<Frame<Chunk>, io::Error>>> {
        match self.head_written {
            HeadWritten::No => {
                self.head_written = HeadWritten::Followed;
                Poll::Ready(Some(Ok(self.hand_over(Vec::new()))))
            }
            HeadWritten::Followed => {
                self.head_written = HeadWritten::Yes;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            HeadWritten::Yes => self.unwritten.poll_none(cx).map(|()| end.map(Err)),
        }
    }
}

impl hyper::body::Body for BodyStream {
    type Data = Chunk;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, io::Error>>> {
        let this = self.get_mut();
        let mut left = u64::MAX;
        if let Some((length, fault)) = this.fault {
            left = length - this.sent;
            if left == 0 {
                return match fault {
                    Fault::Cut => this.poll_end(cx, None),
                    Fault::Reset => this.poll_end(cx, Some(io::Error::other("reset on purpose"))),
                    Fault::Stall => Poll::Pending,
                };
            }
        }
        let mut bytes = match this.next_bytes() {
            Ok(bytes) => bytes,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        if bytes.is_empty() {
            let Some(time) = this.end_after else { return Poll::Ready(None) };
            return this.end.get_or_insert_with(|| Box::pin(sleep(time))).as_mut().poll(cx).map(|()| None);
        }
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        Poll::Ready(Some(Ok(this.hand_over(bytes))))
    }
}

/// Reads `length` bytes, fewer only at the end.
fn take(reader: impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    reader.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes that hyper holds, and drops as soon as it has written them.
pub(crate) struct Chunk {
    bytes: Bytes,
    unwritten: Arc<Unwritten>,
}

impl Chunk {
    fn new(bytes: Bytes, unwritten: Arc<Unwritten>) -> Self {
        unwritten.lock().0 += 1;
        Self { bytes, unwritten }
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = self.unwritten.lock();
        state.0 -= 1;
        if state.0 == 0
            && let Some(waker) = state.1.take()
        {
            drop(state);
            waker.wake();
        }
    }
}

/// How many chunks of a body hyper still holds, and the task to wake when it holds none.
#[derive(Default)]
struct Unwritten(Mutex<(usize, Option<Waker>)>);

impl Unwritten {
    fn poll_none(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.0 == 0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (usize, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
