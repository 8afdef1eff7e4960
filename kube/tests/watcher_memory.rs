//! The watcher's memory, counted by the allocator. It includes the server's memory, which is the same for any list. There is
//! only one test, because the allocator counts for the whole process.

use std::alloc::System;
use std::io::{self, Cursor, Read};
use std::pin::pin;

use cap::Cap;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher as theirs;
use kube::{Api, Client};
use listwatch_kube::runtime::watcher as ours;
use listwatch_kube::runtime::watcher::{self, Config, Event};
use listwatch_testserver::{Answer, Body, Server};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const ITEM: usize = 2000;

fn object(number: usize) -> String {
    let data = "x".repeat(ITEM - 100);
    format!(r#"{{"metadata":{{"name":"{number:08}","resourceVersion":"1"}},"data":{{"x":"{data}"}}}}"#)
}

/// Returns the body of a list, which is generated while it is sent.
fn list(items: usize) -> Body {
    const HEAD: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    let length = HEAD.len() + items * (object(0).len() + 1) + 1;
    Body::read(length as u64, move || {
        let objects = (0..items).map(move |number| object(number) + if number + 1 < items { "," } else { "]}" });
        Pieces { piece: Cursor::new(HEAD.to_owned()), more: objects }
    })
}

struct Pieces<I> {
    piece: Cursor<String>,
    more: I,
}

impl<I: Iterator<Item = String>> Read for Pieces<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            match self.more.next() {
                Some(piece) => self.piece = Cursor::new(piece),
                None => return Ok(0),
            }
        }
    }
}

/// Returns the peak of the allocated bytes, measured at each object of the list.
async fn peak<S>(items: usize, watcher: impl FnOnce(Client) -> S) -> usize
where
    S: Stream<Item = watcher::Result<Event<ConfigMap>>>,
{
    let server = Server::start(Answer::ok(list(items)).content_type("application/json").always()).await.unwrap();
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let mut events = pin!(watcher(client));
    let (mut peak, mut seen) = (0, 0);
    loop {
        match events.next().await.unwrap().unwrap() {
            Event::InitApply(_) => seen += 1,
            Event::InitDone => break,
            _ => {}
        }
        peak = peak.max(ALLOCATOR.allocated());
    }
    assert_eq!(seen, items);
    peak
}

#[tokio::test]
async fn memory_does_not_depend_on_the_length_of_the_list() {
    let config = Config { page_size: None, ..Config::default() };
    let of_this = async |items| peak(items, |client| ours(Api::<ConfigMap>::all(client), config.clone())).await;
    let of_kube = async |items| peak(items, |client| theirs(Api::<ConfigMap>::all(client), config.clone())).await;
    // Allocations that outlive the first run are part of every later measurement.
    of_this(500).await;
    let (few, many) = (of_this(500).await, of_this(20_000).await);
    let of_kube = of_kube(20_000).await;
    println!("{few} bytes for 500 objects, {many} for 20,000; kube's {of_kube}");
    // The buffers of the sockets and of the server vary.
    assert!(many < few + 500_000, "{few} bytes for 500 objects, {many} for 20,000");
    assert!(of_kube > 20_000 * ITEM, "the test does not measure the list: {of_kube}");
}
