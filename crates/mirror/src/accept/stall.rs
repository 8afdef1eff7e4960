//! A connection that fails if its reader accepts no byte for a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that fails if the peer accepts no byte for a time.
pub(crate) struct StallTimeout<IO> {
    io: IO,
    after: Duration,
    /// Set while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<IO> StallTimeout<IO> {
    pub(crate) fn new(io: IO, after: Duration) -> Self {
        Self { io, after, waiting: None }
    }

    fn check_write<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let after = self.after;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(after)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallTimeout<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StallTimeout<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.check_write(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.check_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_write(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_write(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, advance};

    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_no_byte_is_accepted_in_time() {
        let (mut reader, writer) = duplex(2);
        let mut writer = StallTimeout::new(writer, AFTER);
        let started = Instant::now();
        let mut writing = Box::pin(writer.write_all(b"abcdef"));
        // Each accepted byte starts the time anew.
        for _ in 0..2 {
            assert!(writing.as_mut().now_or_never().is_none());
            advance(Duration::from_secs(29)).await;
            reader.read_u8().await.unwrap();
        }
        assert!(writing.as_mut().now_or_never().is_none());
        assert_eq!(writing.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), Duration::from_secs(2 * 29 + 30));
    }
}
