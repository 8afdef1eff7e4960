//! The process that serves Pods: `server N`.

use anyhow::Context;
use listwatch_peers::{server, tell, wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let pods = std::env::args().nth(1).context("usage: server N")?.parse()?;
    let (server, hash) = server::start(pods).await?;
    tell(&listwatch_peers::Serving { url: server.url(), hash })?;
    tokio::task::spawn_blocking(wait).await??;
    Ok(())
}
