//! The process that serves the list.

use std::time::Duration;

use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};

use super::process::parent;

const REPORT_EVERY: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct Args {
    pods: u32,
}

/// Tells its URL, and then again and again how many bytes it has sent.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let pods = Synthesizer::new(&recorded_pods(), args.pods)?;
    let server = Server::start(Answer::ok(Body::synthesize(pods)).always()).await?;
    parent::tell(&server.url())?;
    parent::end_with_it();
    loop {
        parent::tell(&server.bytes_sent())?;
        tokio::time::sleep(REPORT_EVERY).await;
    }
}
