//! A stream that delivers everything that hyper writes, however the connection ends.

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that loses no written bytes when the connection ends.
///
/// A write waits until its bytes have left the buffer of TLS, which is lost when a connection breaks. A shutdown waits
/// until the client closes its side: the client's next frame would reset a closed socket, and the unsent bytes would be
/// lost.
pub(crate) struct Lossless<IO> {
    io: IO,
    /// How many bytes `io` has accepted that no write has returned yet.
    taken: usize,
}

impl<IO> Lossless<IO> {
    pub(crate) fn new(io: IO) -> Self {
        Self { io, taken: 0 }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Lossless<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

/// The caller must repeat a pending write with the same bytes, as hyper does.
impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lossless<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            self.taken = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs))?;
        }
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        Poll::Ready(Ok(mem::take(&mut self.taken)))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        let mut unread = [0; 1024];
        loop {
            let mut unread = ReadBuf::new(&mut unread);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut unread))?;
            if unread.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
