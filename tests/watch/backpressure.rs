//! A consumer that stops reading makes the server wait, in bounded memory.

use std::io::Read as _;

use listwatch::client::{Resource, WatchParams};
use listwatch_testserver::{Answer, Body};

use crate::support::config_maps::{added, error};
use crate::support::server::{client, serve};

/// The server never gets further ahead of the consumer than buffers hold. Then comes the 410 that a server sends to a
/// slow client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_makes_the_server_wait() {
    const BYTES: u64 = 100 << 20;
    /// The most that sockets and the transport buffer.
    const AHEAD: u64 = 20 << 20;

    let frame = added(&"x".repeat(4000), 8);
    let frames = BYTES / frame.len() as u64;
    let repeated = frame.clone();
    let length = frames * frame.len() as u64;
    let open = move || RepeatFrame { frame: repeated.clone(), at: 0 }.take(length);
    let body = Body::read(length, open).chunk_size(64 << 10).append(error(410));
    let server = serve(Answer::ok(body)).await;
    let client = client(&server, false);
    let watch = client.watch::<[u8]>(&Resource::CONFIG_MAPS, &WatchParams::with_initial_state());
    let mut events = watch.open().await.unwrap();
    let (mut seen, mut end) = (0, None);
    while let Some(event) = events.next().await {
        match event {
            Ok(_) => seen += 1,
            Err(error) => end = Some(error),
        }
        let ahead = server.bytes_sent().saturating_sub(seen * frame.len() as u64);
        assert!(ahead < AHEAD, "{ahead} bytes were sent that the consumer has not read, after {seen} events");
        // A server that does not wait sends more than the limit meanwhile.
        tokio::task::yield_now().await;
    }
    assert_eq!(seen, frames);
    assert!(end.unwrap().is_expired());
}

/// A reader that repeats a frame without end.
struct RepeatFrame {
    frame: Vec<u8>,
    at: usize,
}

impl std::io::Read for RepeatFrame {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = (&self.frame[self.at..]).read(buffer)?;
        self.at = (self.at + read) % self.frame.len();
        Ok(read)
    }
}
