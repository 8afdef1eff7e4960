//! The child process that serves the list.

use std::time::Duration;

use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};

use super::process::parent;

const REPORT_INTERVAL: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct DemoServerArgs {
    pods: u32,
}

/// Sends its URL to the parent, then every [`REPORT_INTERVAL`] the number of bytes that it has served.
pub async fn run(args: DemoServerArgs) -> anyhow::Result<()> {
    let pods = Synthesizer::new(&recorded_pods(), args.pods)?;
    let server = Server::start(Answer::ok(Body::synthesize(pods)).always()).await?;
    parent::send_message(&server.url())?;
    parent::exit_with_parent();
    loop {
        parent::send_message(&server.bytes_sent())?;
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}
