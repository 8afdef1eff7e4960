//! Lists Pods over HTTP, one at a time: `cargo run --example http [URL]`, with the URL that `kubectl proxy` prints.

use std::env::args;
use std::error::Error;

use futures::TryStreamExt as _;
use k8s_pb::api::core::v1::Pod;
use listwatch::ListStream;
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded Pods.
    let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await?;
    let url = args().nth(1).unwrap_or_else(|| server.url());

    let request = reqwest::Client::new().get(format!("{url}/api/v1/pods"));
    let response = request.header("accept", "application/vnd.kubernetes.protobuf").send().await?;
    let mut pods = ListStream::new::<Pod>(response.bytes_stream());
    while let Some(pod) = pods.try_next().await? {
        let name = pod.metadata.unwrap_or_default().name.unwrap_or_default();
        let node = pod.spec.unwrap_or_default().node_name.unwrap_or_default();
        println!("{name} runs on {node}");
    }
    let end = pods.end().ok_or("the list is not complete")?;
    eprintln!("{} Pods at version {}", end.items, end.list_meta.resource_version);
    Ok(())
}
