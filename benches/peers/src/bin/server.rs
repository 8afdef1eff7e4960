//! Serves Pods: `server N uniform|diverse|diverse-json`, or the same with `SECONDS same|renewed`, whose watches expire
//! after SECONDS so that clients relist.

use std::time::Duration;

use anyhow::Context;
use listwatch_peers::server::{self, Relists, Variety};
use listwatch_peers::{tell, wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: server N uniform|diverse|diverse-json [SECONDS same|renewed]";
    let pods = args.next().context(usage)?.parse()?;
    let variety = args.next().and_then(|name| Variety::by_name(&name)).context(usage)?;
    let relists = args.next().map(|seconds| seconds.parse()).transpose()?;
    let renewed = args.next().is_some_and(|versions| versions == "renewed");
    let relists = relists.map(|seconds| Relists { after: Duration::from_secs(seconds), renewed });
    let (server, [hash, relisted]) = server::start(pods, variety, relists).await?;
    tell(&listwatch_peers::Serving { url: server.url(), hash, relisted })?;
    tokio::task::spawn_blocking(wait).await??;
    Ok(())
}
