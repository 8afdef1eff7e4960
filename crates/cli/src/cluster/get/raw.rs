//! `--raw`: any path of the server, byte for byte.

use std::io::Write;

use listwatch::client::Client;
use listwatch::internal::chain;

use crate::failure::Failure;
use crate::signals::interrupted;

/// Prints what the server sends for a path.
pub async fn print_raw(client: &Client, path: &str) -> Result<(), Failure> {
    if !path.starts_with('/') {
        return Err(Failure::Usage(format!("--raw {path}: expected a path such as /api/v1/namespaces")));
    }
    let printing = async {
        let failed = |error| Failure::Error(chain(&error));
        let mut body = client.raw(path).await.map_err(failed)?;
        let mut out = std::io::stdout().lock();
        while let Some(chunk) = body.next().await.map_err(failed)? {
            out.write_all(&chunk)?;
            out.flush()?;
        }
        Ok(())
    };
    tokio::select! {
        biased;
        () = interrupted() => Err(Failure::Interrupted("the response is not complete".to_owned())),
        done = printing => done,
    }
}
