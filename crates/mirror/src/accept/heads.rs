//! The memory of request heads that are not complete.
//!
//! hyper keeps what it has read of a head, up to the limit of its size, and thousands of connections may each send a
//! part of one. So the bytes of unfinished heads come from a pool, except for the first [`FREE`] of each connection,
//! which hyper allocates anyway and which hold almost every head. A connection that gets no more bytes from the pool is
//! closed.
//!
//! Over HTTP/2, a connection also sends frames that belong to no head, so frames are counted until they are complete,
//! and the frames of a head until its last one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::Connection;
use crate::fairness::{FairPool, PoolPermit};

/// The bytes of an unfinished head that take nothing from the pool.
const FREE: usize = 8 << 10;

/// The bytes of a unit of the pool.
pub(super) const UNIT: usize = 1 << 10;

/// The bytes that an HTTP/1.1 connection has sent since its last complete head. Clones share them.
#[derive(Clone, Default)]
pub(super) struct UnfinishedHead(Arc<AtomicUsize>);

impl UnfinishedHead {
    /// Notes that a request is complete.
    pub(super) fn finish(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A connection whose unfinished heads come from a pool.
pub(super) struct HeadMeter<IO> {
    io: IO,
    connection: Connection,
    pool: FairPool,
    head: UnfinishedHead,
    frames: Protocol,
    permits: Vec<PoolPermit>,
    units: usize,
}

/// What the first bytes of a connection show.
enum Protocol {
    Unknown,
    Http1,
    Http2(FrameCounter),
}

impl<IO> HeadMeter<IO> {
    pub(super) fn new(io: IO, connection: Connection, pool: FairPool, head: UnfinishedHead) -> Self {
        Self { io, connection, pool, head, frames: Protocol::Unknown, permits: Vec::new(), units: 0 }
    }

    /// Counts what was read, and takes units for what is unfinished.
    fn count(&mut self, read: &[u8]) -> io::Result<()> {
        if let (Protocol::Unknown, Some(first)) = (&self.frames, read.first()) {
            // No method of HTTP/1.1 that a mirror answers begins with this letter.
            let is_preface = *first == b'P';
            self.frames = if is_preface { Protocol::Http2(FrameCounter::default()) } else { Protocol::Http1 };
        }
        let unfinished = match &mut self.frames {
            Protocol::Http2(frames) => frames.count(read),
            Protocol::Unknown | Protocol::Http1 => self.head.0.fetch_add(read.len(), Ordering::Relaxed) + read.len(),
        };
        let units = unfinished.saturating_sub(FREE).div_ceil(UNIT);
        if units == 0 {
            self.permits.clear();
            self.units = 0;
        } else if units > self.units {
            let permit = self.pool.try_acquire(&self.connection.holder(), units - self.units);
            let permit = permit.inspect_err(|_| self.pool.count_refused());
            self.permits.push(permit.map_err(|_| io::Error::other("too many unfinished requests"))?);
            self.units = units;
        }
        Ok(())
    }
}

/// Counts the bytes of frames of HTTP/2 that are not complete, and of heads.
struct FrameCounter {
    /// The bytes of the preface that are left.
    preface: usize,
    /// The head of the frame, as far as it is known.
    head: [u8; 9],
    known: usize,
    /// The bytes of its payload that are left.
    left: usize,
    /// The bytes of the complete frames of an unfinished head.
    of_head: usize,
}

impl Default for FrameCounter {
    fn default() -> Self {
        Self { preface: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len(), head: [0; 9], known: 0, left: 0, of_head: 0 }
    }
}

impl FrameCounter {
    /// Counts these bytes, and returns how many of all are unfinished.
    fn count(&mut self, read: &[u8]) -> usize {
        let (skipped, mut rest) = read.split_at(self.preface.min(read.len()));
        self.preface -= skipped.len();
        while !rest.is_empty() {
            if self.known < self.head.len() {
                let (head, after) = rest.split_at((self.head.len() - self.known).min(rest.len()));
                for (to, from) in self.head.iter_mut().skip(self.known).zip(head) {
                    *to = *from;
                }
                self.known += head.len();
                rest = after;
                self.left = self.len();
            } else {
                let taken = self.left.min(rest.len());
                self.left -= taken;
                rest = rest.get(taken..).unwrap_or_default();
            }
            if self.known == self.head.len() && self.left == 0 {
                self.end_frame();
            }
        }
        self.of_head + if self.known > 0 { self.known + self.len() - self.left } else { 0 }
    }

    /// Returns the length of the payload; 0 while the head of the frame is not complete.
    fn len(&self) -> usize {
        let [a, b, c, ..] = self.head.map(usize::from);
        if self.known < self.head.len() { 0 } else { a << 16 | b << 8 | c }
    }

    fn end_frame(&mut self) {
        // RFC 9113, section 6: HEADERS and CONTINUATION, and the flag END_HEADERS.
        let [_, _, _, kind, flags, ..] = self.head;
        if matches!(kind, 1 | 9) {
            self.of_head = if flags & 4 == 0 { self.of_head + self.known + self.len() } else { 0 };
        }
        self.known = 0;
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for HeadMeter<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let counted = self.count(buf.filled().get(before..).unwrap_or_default());
        if counted.is_err() {
            buf.set_filled(before);
        }
        Poll::Ready(counted)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for HeadMeter<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn frame(len: usize, kind: u8, flags: u8) -> Vec<u8> {
        let len = u8::try_from(len).unwrap();
        [&[0, 0, len, kind, flags, 0, 0, 0, 1][..], &vec![b'x'; usize::from(len)]].concat()
    }

    #[test]
    fn counts_unfinished_frames_and_heads_at_every_split() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let (settings, headers, continued, data) = (frame(6, 4, 0), frame(50, 1, 0), frame(20, 9, 4), frame(7, 0, 4));
        for (frames, unfinished) in [
            (vec![&preface], 0),
            (vec![&preface, &settings], 0),
            (vec![&preface, &headers], 59),
            (vec![&preface, &headers, &data], 59),
            (vec![&preface, &headers, &continued], 0),
            (vec![&preface, &settings, &headers, &continued, &headers], 59),
        ] {
            let bytes = frames.into_iter().flatten().copied().collect::<Vec<_>>();
            for at in 0..bytes.len() {
                let mut counter = FrameCounter::default();
                counter.count(&bytes[..at]);
                assert_eq!(counter.count(&bytes[at..]), unfinished, "{at}");
            }
        }
        let mut counter = FrameCounter::default();
        counter.count(&preface);
        assert_eq!(counter.count(&frame(200, 0, 0)[..100]), 100);
    }

    #[tokio::test]
    async fn an_address_gets_no_more_than_its_share_of_unfinished_heads() {
        let pool = FairPool::of_test(16, 0);
        let read = async |bytes: &[u8], host: u8| {
            let connection = Connection::of_peer(crate::fairness::Peer::new([10, 0, 0, host].into()));
            let mut meter =
                HeadMeter::new(io::Cursor::new(bytes.to_vec()), connection, pool.clone(), UnfinishedHead::default());
            let result = meter.read_to_end(&mut Vec::new()).await;
            result.map(|_| meter)
        };
        let [small, large] = [FREE, FREE + 12 * UNIT].map(|len| vec![b'G'; len]);
        let _flood = read(&large, 1).await.unwrap();
        assert!(read(&large, 1).await.is_err());
        assert_eq!(pool.used(), 12);
        // Other heads of the same address, and somewhat larger ones of others.
        assert!(read(&small, 1).await.is_ok());
        assert!(read(&large[..FREE + 2 * UNIT], 2).await.is_ok());
        assert!(read(&large, 2).await.is_err());
    }
}
