//! Serves Pods: `server N uniform|diverse`, or `server N uniform|diverse SECONDS same|renewed`, whose watches expire
//! after SECONDS so that clients relist.

use std::time::Duration;

use anyhow::Context;
use listwatch_peers::server::{self, Relists};
use listwatch_peers::{tell, wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let pods = args.next().context("usage: server N uniform|diverse [SECONDS same|renewed]")?.parse()?;
    let diverse = args.next().is_some_and(|variety| variety == "diverse");
    let relists = args.next().map(|seconds| seconds.parse()).transpose()?;
    let renewed = args.next().is_some_and(|versions| versions == "renewed");
    let relists = relists.map(|seconds| Relists { after: Duration::from_secs(seconds), renewed });
    let (server, [hash, relisted]) = server::start(pods, diverse, relists).await?;
    tell(&listwatch_peers::Serving { url: server.url(), hash, relisted })?;
    tokio::task::spawn_blocking(wait).await??;
    Ok(())
}
