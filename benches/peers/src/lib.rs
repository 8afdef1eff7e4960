//! Messages and helpers that the runner, the server and the clients share.

pub mod chunks;
pub mod client;
mod custom_client;
mod custom_follower;
mod custom_types;
pub mod follower;
pub mod migrations;
pub mod server;

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// The message of a server that is ready.
#[derive(Serialize, Deserialize)]
pub struct Serving {
    pub url: String,
    /// The sum of [`add_key`] over the Pods of the first list.
    pub hash: u64,
    /// The same for the second list.
    pub relisted: u64,
}

/// The message of a client that has read all Pods.
#[derive(Default, Serialize, Deserialize)]
pub struct Done {
    pub items: u64,
    /// The sum of [`add_key`] over all Pods.
    pub hash: u64,
    /// When the client could use the first Pod, in nanoseconds since the runner's signal.
    pub first_item: u64,
}

/// The state of a follower's cache and handler.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub items: u64,
    /// The sum of [`add_key`] over all Pods.
    pub hash: u64,
    /// The collection's resource version; empty if the cache does not expose it.
    pub version: String,
    /// Changes that the handler received since the follower started.
    pub changes: u64,
    /// The time from a change to the call of the handler, in microseconds.
    pub latency: Latency,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// The times of calls to a full store, in seconds per call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreTimes {
    /// Look up a Pod by its key.
    pub look_up: f64,
    /// Look up a Pod by its key and decode it. `None` in results of older runs, which did not measure it.
    #[serde(default)]
    pub look_up_decoded: Option<f64>,
    /// Look up a Pod by its key and read six fields. `None` in results of older runs.
    #[serde(default)]
    pub look_up_six: Option<f64>,
    /// Iterate over the whole store, per Pod.
    pub iterate: f64,
    /// Add an index by node, per Pod; `None` if the store has no indexes.
    pub add_index: Option<f64>,
    /// Look up all Pods of a node.
    pub look_up_node: Option<f64>,
}

/// Adds the FNV-1a hash of `namespace/name/resourceVersion`: the sum does not depend on the order.
pub fn add_key(sum: &mut u64, namespace: &str, name: &str, version: &str) {
    let bytes = [namespace, "/", name, "/", version].into_iter().flat_map(str::bytes);
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    *sum = sum.wrapping_add(hash);
}

/// Sends a message to the runner, as a line of JSON.
///
/// # Errors
/// If the runner is gone.
pub fn tell(message: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(message)?)?)
}

/// Waits until the runner sends a line. Ends this process when the runner is gone.
///
/// # Errors
/// If stdin cannot be read.
pub fn wait() -> io::Result<()> {
    if io::stdin().lock().read_line(&mut String::new())? == 0 {
        std::process::exit(0);
    }
    Ok(())
}
