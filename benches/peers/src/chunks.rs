//! Bodies of responses, in chunks.

use std::io::{self, Write};
use std::net::TcpStream;

/// As the other server, and an API server, sends.
const CHUNK: usize = 4096;

/// Chunked transfer coding.
pub struct Chunks<'a> {
    out: &'a mut TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Chunks<'a> {
    /// Creates an empty body.
    pub fn new(out: &'a mut TcpStream) -> Self {
        Self { out, buffer: Vec::with_capacity(2 * CHUNK) }
    }

    /// Adds bytes to the body, and sends each full chunk.
    ///
    /// # Errors
    /// If the connection is broken, as for all methods.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.buffer.len() + bytes.len() >= CHUNK {
            let (now, later) = bytes.split_at(CHUNK - self.buffer.len());
            self.buffer.extend_from_slice(now);
            self.flush()?;
            bytes = later;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends the bytes so far.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut chunk = format!("{:x}\r\n", self.buffer.len()).into_bytes();
        chunk.append(&mut self.buffer);
        chunk.extend_from_slice(b"\r\n");
        self.out.write_all(&chunk)
    }

    /// Ends the body.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.write_all(b"0\r\n\r\n")
    }
}
