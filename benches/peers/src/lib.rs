//! What the runner, the server and the clients share.

pub mod client;
pub mod follower;
pub mod server;

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// What a server tells when it is ready.
#[derive(Serialize, Deserialize)]
pub struct Serving {
    pub url: String,
    /// Of all Pods, as [`add_key`] has it.
    pub hash: u64,
    /// Of what the second list has.
    pub relisted: u64,
}

/// What a client tells when it has seen all Pods.
#[derive(Default, Serialize, Deserialize)]
pub struct Done {
    pub items: u64,
    /// Of all Pods, as [`add_key`] has it.
    pub hash: u64,
    /// When the first Pod was there to be used, in nanoseconds since the request.
    pub first_item: u64,
}

/// What a follower has, and what its handler was told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct State {
    pub items: u64,
    /// Of all Pods, as [`add_key`] has it.
    pub hash: u64,
    /// That of the collection; empty where it cannot be asked for.
    pub version: String,
    /// Changes since it began.
    pub changes: u64,
    /// How long after its change the handler had a Pod, in microseconds.
    pub latency: Latency,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// What the calls of a full store take, in seconds each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreTimes {
    /// To look up a Pod by its key.
    pub look_up: f64,
    /// To look up a Pod by its key and have it decoded. `None` in results of runs that did not measure it.
    #[serde(default)]
    pub look_up_decoded: Option<f64>,
    /// To iterate over the whole store, per Pod.
    pub iterate: f64,
    /// To add an index by node, per Pod; `None` where there is no such thing.
    pub add_index: Option<f64>,
    /// To look up the Pods of a node, all of them.
    pub look_up_node: Option<f64>,
}

/// Adds the FNV-1a hash of `namespace/name/resourceVersion`: the sum does not depend on the order.
pub fn add_key(sum: &mut u64, namespace: &str, name: &str, version: &str) {
    let bytes = [namespace, "/", name, "/", version].into_iter().flat_map(str::bytes);
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    *sum = sum.wrapping_add(hash);
}

/// Says a line of JSON to the runner.
///
/// # Errors
/// When the runner is gone.
pub fn tell(message: &impl Serialize) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(message)?)?)
}

/// Waits until the runner says so, and ends this process when it is gone.
///
/// # Errors
/// When stdin cannot be read.
pub fn wait() -> io::Result<()> {
    if io::stdin().lock().read_line(&mut String::new())? == 0 {
        std::process::exit(0);
    }
    Ok(())
}
