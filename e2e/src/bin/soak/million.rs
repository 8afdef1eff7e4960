//! `soak million`: lists a million Pods, 8 GB, over loopback, and fails if the client's memory reaches 32 MB.

use std::io::Read as _;
use std::process::{Command, Stdio};

use futures::TryStreamExt as _;
use listwatch::client::{Client, Config, ListParams, Resource};
use listwatch_e2e::Result;
use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};

use crate::memory::memory;

const PODS: u32 = 1_000_000;
const MOST: u64 = 32 << 20;

/// Serves the Pods, and starts this program as the client, whose memory is then only that of the list.
pub async fn serve() -> Result<()> {
    let pods = Synthesizer::new(&recorded_pods(), PODS)?;
    let bytes = pods.len();
    let server = Server::start(Answer::ok(Body::synthesize(pods)).always()).await?;
    let mut client = Command::new(std::env::current_exe()?);
    let mut client = client.args(["million", &server.url()]).stdout(Stdio::piped()).spawn()?;
    let output = tokio::task::spawn_blocking(move || {
        let mut output = String::new();
        client.stdout.take().ok_or("no stdout")?.read_to_string(&mut output)?;
        if client.wait()?.success() { Result::Ok(output) } else { Err("the client failed".into()) }
    });
    let output = output.await??;
    let numbers = output.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [items, received, peak] = numbers[..] else { return Err(format!("unexpected output: {output:?}").into()) };
    println!("{items} items, {received} bytes, at most {peak} bytes resident");
    if (items, received) != (u64::from(PODS), bytes) {
        return Err(format!("expected {PODS} items and {bytes} bytes").into());
    }
    if peak < MOST { Ok(()) } else { Err(format!("{peak} bytes is over {MOST}").into()) }
}

/// Lists the Pods, and prints the number of items and bytes, and the peak of this process's memory.
pub async fn list(url: &str) -> Result<()> {
    let client = Client::new(Config::new(url).build()?);
    let mut list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
    let mut items = 0_u64;
    while list.try_next().await?.is_some() {
        items += 1;
    }
    let summary = list.summary().ok_or("no summary")?;
    if summary.items != items {
        return Err(format!("{items} items, but the summary has {}", summary.items).into());
    }
    println!("{items} {} {}", summary.bytes, memory("VmHWM"));
    Ok(())
}
