//! The child process that lists the Pods in one of the ways.

use std::any::Any;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::StreamExt;
use k8s_pb::api::core::v1::{Pod, PodList};
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use listwatch::{Item, ListStream};
use prost::Message;
use reqwest::Response;

use super::measurement::{ListMethod, ListingTimes};
use super::process::parent;

#[derive(clap::Args)]
pub struct DemoClientArgs {
    #[arg(value_enum)]
    way: ListMethod,
    url: String,
    pods: u64,
}

struct ListingResult {
    items: u64,
    first_item: Duration,
    kept: Box<dyn Any>,
}

pub async fn run(args: DemoClientArgs) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    parent::send_message(&())?;
    parent::wait_for_go()?;
    parent::exit_with_parent();

    let start = Instant::now();
    let request = http.get(format!("{}/api/v1/pods", args.url)).header("accept", "application/vnd.kubernetes.protobuf");
    let response = request.send().await?.error_for_status()?;
    let listed = match args.way {
        ListMethod::FullBuffer => full_buffer(response, start).await?,
        ListMethod::Drop => stream::<Pod, ()>(response, start, |pod| drop(black_box(pod))).await?,
        ListMethod::KeepPods => stream::<Pod, _>(response, start, |pod| pod).await?,
        ListMethod::KeepBytes => stream::<[u8], _>(response, start, |bytes| bytes).await?,
    };
    let wall = start.elapsed();
    ensure!(listed.items == args.pods, "received {} Pods, expected {}", listed.items, args.pods);
    parent::send_message(&ListingTimes { wall, first_item: listed.first_item })?;
    black_box(listed.kept);
    std::future::pending().await
}

/// Reads the whole body before it decodes the list, as clients without this crate do.
async fn full_buffer(response: Response, start: Instant) -> anyhow::Result<ListingResult> {
    let body = response.bytes().await?;
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").context("the body is not protobuf")?)?;
    drop(body);
    let list = PodList::decode(envelope.raw.context("the envelope has no list")?.as_slice())?;
    Ok(ListingResult { items: list.items.len() as u64, first_item: start.elapsed(), kept: Box::new(list) })
}

async fn stream<T: Item + ?Sized, K: 'static>(
    response: Response,
    start: Instant,
    keep: impl Fn(T::Owned) -> K,
) -> anyhow::Result<ListingResult> {
    let mut items = ListStream::new::<T>(response.bytes_stream());
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
