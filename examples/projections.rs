//! Drops all fields but labels, node name and phase, decodes the rest, and keeps it by name: `cargo run --example
//! projections [URL]`, with the URL that `kubectl proxy` prints.

use std::collections::HashMap;
use std::env::args;
use std::error::Error;

use k8s_pb::api::core::v1::Pod;
use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch::path::{meta, pod};
use listwatch::{ItemError, Projection};
use listwatch_testserver::{Answer, Body, Server, recorded_pods};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Without a URL, a local server replays recorded Pods.
    let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await?;
    let url = args().nth(1).unwrap_or_else(|| server.url());

    let client = Client::new(Config::new(url).build()?);
    let slim = Projection::new().keep(&meta::LABELS).keep(&pod::NODE_NAME).keep(&pod::PHASE);
    let pods = client.list_with(&Resource::PODS, &ListParams::default(), |item| {
        let key = item.meta().map(|meta| format!("{}/{}", meta.namespace(), meta.name()))?;
        Ok::<_, ItemError>((key, slim.decode::<Pod>(item)?))
    });
    let (pods, summary) = pods.into_vec().await?;
    let pods: HashMap<String, Box<Pod>> = pods.into_iter().collect();
    let running = pods.values().filter(|pod| pod.status.as_ref().is_some_and(|status| status.phase() == "Running"));
    println!(
        "{} of {} Pods are running, at version {}",
        running.count(),
        pods.len(),
        summary.list_meta.resource_version
    );
    Ok(())
}
