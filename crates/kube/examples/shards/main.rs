//! Replicas that share the Pods of a cluster: `cargo run -p listwatch-kube --example shards -- --replica a`, then the
//! same with `b` and `c` in other terminals. Each Pod is in the cache of one replica; when one ends, the others take
//! over its Pods.

mod assignment;
mod replica;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::Parser;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use listwatch::Shard;
use listwatch::client::Resource;
use listwatch_cache::Cache;
use replica::{Change, Error, Replica};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Args {
    /// Unique name of this replica
    #[arg(long)]
    replica: String,

    /// Number of shards, the same for all replicas
    #[arg(long, default_value_t = 3)]
    shards: u32,

    /// Namespace of the Leases
    #[arg(long, default_value = "default")]
    namespace: String,

    /// Seconds without a renewal after which other replicas may take the shards
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..))]
    lease_seconds: u64,

    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the service account of this Pod]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,

    /// URL of the API server, in place of a kubeconfig, for example `http://localhost:8001` while `kubectl proxy` runs
    #[arg(long, conflicts_with = "kubeconfig")]
    server: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Args { replica: name, shards, namespace, lease_seconds, kubeconfig, server } = Args::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let config = match (kubeconfig, server) {
        (Some(file), _) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?
        }
        (None, Some(url)) => Config::new(url.parse()?),
        (None, None) => Config::infer().await?,
    };
    let served = Arc::new(Mutex::new(HashMap::<Shard, Cache<[u8]>>::new()));
    let on_change = {
        let name = name.clone();
        move |change| match change {
            Change::Taken(shard, cache) => {
                served.lock().unwrap().insert(shard, cache.clone());
                let (name, served) = (name.clone(), Arc::clone(&served));
                tokio::spawn(async move {
                    if cache.synced().await.is_ok() {
                        println!("{name} took shard {shard}: {} Pods, {} in all", cache.len(), count(&served));
                    }
                });
            }
            Change::Lost(shard) => {
                served.lock().unwrap().remove(&shard);
                println!("{name} lost shard {shard}: {} Pods in all", count(&served));
            }
        }
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    let replica = Replica { name, resource: Resource::PODS, shards, namespace, lease_seconds };
    replica.run(config, on_change, stop).await
}

fn count(served: &Mutex<HashMap<Shard, Cache<[u8]>>>) -> usize {
    served.lock().unwrap().values().map(|cache| cache.len()).sum()
}
