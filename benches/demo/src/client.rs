//! The child process that lists the Pods in one of the ways.

use std::any::Any;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use k8s_pb::api::core::v1::{Pod, PodList};
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use listwatch::{Item, ListStream};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::runtime;

use crate::method::ListMethod;

struct ListingResult {
    items: u64,
    first_item: Duration,
    kept: Box<dyn Any>,
}

/// Lists the Pods when stdin has a line, sends the times, and exits when stdin ends.
///
/// The first message says that the process has started.
pub fn run(way: &str, address: &str, pods: &str) -> anyhow::Result<()> {
    let way = ListMethod::IN_TURN.into_iter().find(|known| known.name() == way).context("an unknown way")?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    writeln!(io::stdout(), "started")?;
    io::stdin().read_line(&mut String::new())?;
    let (wall, listed) = runtime.block_on(async {
        thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            std::process::exit(0);
        });
        let start = Instant::now();
        let listed = list(way, address, start).await?;
        anyhow::Ok((start.elapsed(), listed))
    })?;
    ensure!(listed.items.to_string() == pods, "received {} Pods, expected {pods}", listed.items);
    writeln!(io::stdout(), "{} {}", wall.as_nanos(), listed.first_item.as_nanos())?;
    black_box(listed.kept);
    loop {
        thread::park();
    }
}

/// Parses the message with the times until the list was complete and until its first item.
pub fn parse_times(message: &str) -> anyhow::Result<(Duration, Duration)> {
    let (wall, first_item) = message.split_once(' ').context("a message without two times")?;
    Ok((Duration::from_nanos(wall.parse()?), Duration::from_nanos(first_item.parse()?)))
}

async fn list(way: ListMethod, address: &str, start: Instant) -> anyhow::Result<ListingResult> {
    let connection = TokioIo::new(TcpStream::connect(address).await?);
    let (mut requests, connection) = http1::handshake(connection).await?;
    tokio::spawn(connection);
    let request = Request::get("/api/v1/pods").header(header::HOST, address);
    let request = request.header(header::ACCEPT, "application/vnd.kubernetes.protobuf").body(Empty::<Bytes>::new())?;
    let response = requests.send_request(request).await?;
    ensure!(response.status().is_success(), "the server answered with {}", response.status());
    let body = response.into_body();
    match way {
        ListMethod::FullBuffer => full_buffer(body, start).await,
        ListMethod::Drop => stream::<Pod, ()>(body, start, |pod| drop(black_box(pod))).await,
        ListMethod::KeepPods => stream::<Pod, _>(body, start, |pod| pod).await,
        ListMethod::KeepBytes => stream::<[u8], _>(body, start, |bytes| bytes).await,
    }
}

/// Reads the whole body before it decodes the list, as clients without this crate do.
async fn full_buffer(body: Incoming, start: Instant) -> anyhow::Result<ListingResult> {
    let body = body.collect().await?.to_bytes();
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").context("the body is not protobuf")?)?;
    drop(body);
    let list = PodList::decode(envelope.raw.context("the envelope has no list")?.as_slice())?;
    Ok(ListingResult { items: list.items.len() as u64, first_item: start.elapsed(), kept: Box::new(list) })
}

async fn stream<T: Item + ?Sized, K: 'static>(
    body: Incoming,
    start: Instant,
    keep: impl Fn(T::Owned) -> K,
) -> anyhow::Result<ListingResult> {
    let mut items = ListStream::new::<T>(body.into_data_stream());
    let mut first_item = None;
    let mut kept = Vec::new();
    while let Some(item) = items.next().await {
        let item = item?;
        first_item.get_or_insert_with(|| start.elapsed());
        kept.push(keep(item));
    }
    let end = items.end().context("the list is not complete")?;
    Ok(ListingResult { items: end.items, first_item: first_item.context("no items")?, kept: Box::new(kept) })
}
