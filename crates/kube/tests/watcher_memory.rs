//! The watcher's memory, counted by the allocator. It includes the server's memory, which is the same for any list.
//! There is only one test, because the allocator counts for the whole process.

use std::alloc::System;
use std::io::{self, Cursor, Read};
use std::pin::pin;

use cap::Cap;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher as theirs;
use kube::{Api, Client};
use listwatch::Projection;
use listwatch::path::meta;
use listwatch_kube::runtime::watcher as ours;
use listwatch_kube::runtime::watcher::{self, Config, Event};
use listwatch_testserver::{Answer, Body, Server};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const ITEM: usize = 2000;

const MANAGED: &str = r#","managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:x":{},"f:y":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}}]"#;

/// Returns an object with these managed fields.
fn object(number: usize, managed: &str) -> String {
    let data = "x".repeat(ITEM - 100);
    format!(r#"{{"metadata":{{"name":"{number:08}","resourceVersion":"1"{managed}}},"data":{{"x":"{data}"}}}}"#)
}

/// Returns the body of a list, which is generated while it is sent.
fn list(items: usize, managed: &'static str) -> Body {
    const HEAD: &str = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    let length = HEAD.len() + items * (object(0, managed).len() + 1) + 1;
    Body::read(length as u64, move || {
        let end = move |number| if number + 1 < items { "," } else { "]}" };
        let objects = (0..items).map(move |number| object(number, managed) + end(number));
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
    let mut peak = 0;
    listed(items, MANAGED, watcher, |_| peak = peak.max(ALLOCATOR.allocated())).await;
    peak
}

/// Returns the allocated bytes per object, if all objects are kept.
async fn kept<S>(items: usize, managed: &'static str, watcher: impl FnOnce(Client) -> S) -> usize
where
    S: Stream<Item = watcher::Result<Event<ConfigMap>>>,
{
    let mut kept = Vec::with_capacity(items);
    listed(items, managed, watcher, |object| kept.push(object)).await;
    let before = ALLOCATOR.allocated();
    drop(kept);
    (before - ALLOCATOR.allocated()) / items
}

async fn listed<S>(
    items: usize,
    managed: &'static str,
    watcher: impl FnOnce(Client) -> S,
    mut see: impl FnMut(ConfigMap),
) where
    S: Stream<Item = watcher::Result<Event<ConfigMap>>>,
{
    let body = list(items, managed);
    let server = Server::start(Answer::ok(body).content_type("application/json").always()).await.unwrap();
    let mut config = kube::Config::new(server.url().parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let mut events = pin!(watcher(client));
    let mut seen = 0;
    loop {
        match events.next().await.unwrap().unwrap() {
            Event::InitApply(object) => {
                seen += 1;
                see(object);
            }
            Event::InitDone => break,
            _ => {}
        }
    }
    assert_eq!(seen, items);
}

#[tokio::test]
async fn memory_does_not_depend_on_the_length_of_the_list_or_on_dropped_fields() {
    let config = Config { page_size: None, ..Config::default() };
    let drop = Projection::new().drop(&meta::MANAGED_FIELDS);
    let all = |client| Api::<ConfigMap>::all(client);
    let of_this = |client| ours(all(client), config.clone());
    let dropping = |client| of_this(client).projection(drop.clone());
    // Allocations that outlive the first run are part of every later measurement.
    peak(500, of_this).await;
    for (name, few, many) in [
        ("whole", peak(500, of_this).await, peak(20_000, of_this).await),
        ("projected", peak(500, dropping).await, peak(20_000, dropping).await),
    ] {
        println!("{name}: {few} bytes for 500 objects, {many} for 20,000");
        // The buffers of the sockets and of the server vary.
        assert!(many < few + 500_000, "{name}: {few} bytes for 500 objects, {many} for 20,000");
    }
    let of_kube = peak(20_000, |client| theirs(all(client), config.clone())).await;
    println!("kube's: {of_kube}");
    assert!(of_kube > 20_000 * ITEM, "the test does not measure the list: {of_kube}");

    let (whole, projected, without) =
        (kept(500, MANAGED, of_this).await, kept(500, MANAGED, dropping).await, kept(500, "", of_this).await);
    println!("per object: {whole} bytes, {projected} without managed fields, {without} if they are not sent");
    assert_eq!(projected, without);
    assert!(whole > projected + MANAGED.len(), "the managed fields take no memory: {whole}, {projected}");
}
