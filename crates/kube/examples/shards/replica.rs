//! A replica that serves its shards of a collection.
//!
//! Each replica has a Lease that shows that it runs, and each shard has a Lease that names the replica that may serve
//! it. A replica lists all Leases, tries to acquire the free shards that are [assigned](assign) to it, and releases the
//! others.
//!
//! No two replicas serve a shard at once. A replica stops serving a shard before it releases the Lease, and when a
//! renewal fails. It detects a failed renewal long before the Lease expires: all requests of a renewal take less than
//! the time that is left. This holds while the clocks of replicas differ by less than a quarter of the Lease's
//! duration, and no process is suspended for longer. As with any lease, another system that replicas write to must do
//! its own check. After a replica dies, others serve its shards after about 1.5 times the Lease's duration.
//!
//! A replica needs permission to get, list, create and patch Leases, and to list and watch the collection.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_pb::api::coordination::v1::Lease;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseParams};
use listwatch::Shard;
use listwatch::client::{Client, ListParams, Resource, Retry, Selection};
use listwatch_cache::{Cache, Reflector};
use listwatch_kube::KubeTransport;
use tokio::select;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::assignment::assign;

pub type Error = Box<dyn StdError + Send + Sync>;

/// The prefixes of the names of Leases.
const REPLICA: &str = "listwatch-replica-";
const SHARD: &str = "listwatch-shard-";

#[derive(Clone)]
pub struct Replica {
    /// Unique among the running replicas, such as the name of a Pod.
    pub name: String,
    /// The collection.
    pub resource: Resource,
    /// The number of shards, the same for all replicas.
    pub shards: u32,
    /// The namespace of the Leases.
    pub namespace: String,
    /// The seconds that a Lease is valid without renewal, at least 3.
    pub lease_seconds: u64,
}

pub enum Change {
    /// The replica serves this shard from now on. The cache may not be synced yet.
    Taken(Shard, Cache<[u8]>),
    /// The replica no longer serves this shard. The cache must not be used after the call.
    Lost(Shard),
}

/// A running replica.
struct Member<F> {
    replica: Replica,
    client: Client,
    leases: kube::Client,
    on_change: F,
}

/// The state of the Leases.
struct Seen {
    replicas: BTreeSet<String>,
    /// The holder of each shard that has one.
    holders: BTreeMap<u32, String>,
}

impl Replica {
    /// Serves the assigned shards until `stop`, then releases them.
    pub async fn run(
        self,
        config: kube::Config,
        on_change: impl Fn(Change) + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut reads = config.clone();
        (reads.default_retry, reads.read_timeout) = (false, None);
        let client = Client::new(KubeTransport::new(kube::Client::try_from(reads)?)).retry(Retry::never());
        let leases = self.lease_client(config)?;
        let member = Arc::new(Member { replica: self, client, leases, on_change });
        let (is_there, leaving) = member.manager(format!("{REPLICA}{}", member.replica.name)).await?.watch().await;
        let (assigned, _) = watch::channel(BTreeSet::new());
        let mut holding = BTreeMap::<u32, JoinHandle<()>>::new();
        let mut stop = pin!(stop);
        loop {
            let seen = select! {
                () = &mut stop => break,
                seen = async { sleep(member.replica.request_timeout()).await; member.see().await } => seen,
            };
            let seen = match seen {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::warn!(%error, "cannot list the Leases");
                    continue;
                }
            };
            let shards = seen.assigned_to(&member.replica);
            assigned.send_replace(shards.clone());
            holding.retain(|_, task| !task.is_finished());
            for shard in shards {
                let is_free = seen.holders.get(&shard).is_none_or(|holder| *holder == member.replica.name);
                if is_free && !holding.contains_key(&shard) {
                    let (member, assigned) = (Arc::clone(&member), assigned.subscribe());
                    holding.insert(
                        shard,
                        tokio::spawn(async move {
                            if let Err(error) = member.hold(shard, assigned).await {
                                tracing::warn!(%error, shard, "gave up the shard");
                            }
                        }),
                    );
                }
            }
        }
        assigned.send_replace(BTreeSet::new());
        for task in holding.into_values() {
            task.await?;
        }
        drop(is_there);
        leaving.await??;
        Ok(())
    }

    /// Returns the client for Leases, with timeouts that are short enough for a renewal.
    fn lease_client(&self, mut config: kube::Config) -> Result<kube::Client, Error> {
        let timeout = Some(self.request_timeout());
        (config.connect_timeout, config.write_timeout, config.read_timeout) = (timeout, timeout, timeout);
        config.reset_reader_on_write = true;
        config.default_retry = false;
        Ok(kube::Client::try_from(config)?)
    }

    /// Returns the timeout for each of connecting, writing and reading.
    fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.lease_seconds) / 15
    }

    /// Returns the longest time of a renewal, which is two requests: a patch and a get.
    fn longest_renewal(&self) -> Duration {
        self.request_timeout() * 6
    }
}

impl<F: Fn(Change)> Member<F> {
    /// Acquires a shard's Lease, and serves the shard while it holds the Lease and the shard is assigned to it.
    async fn hold(&self, index: u32, mut assigned: watch::Receiver<BTreeSet<u32>>) -> Result<(), Error> {
        let Self { replica, client, on_change, .. } = self;
        let shard = Shard::new(index, replica.shards)?;
        let manager = self.manager(format!("{SHARD}{index}")).await?;
        match timeout(replica.longest_renewal(), manager.changed()).await {
            Ok(Ok(true)) => {}
            // Another replica was faster, and `changed` would wait until its Lease expires.
            Ok(Ok(false)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
        }
        // Returns when the Lease is lost, and when it could not be renewed.
        let mut lost = Box::pin(manager.changed());
        // kube-lease-manager acquires an expired Lease unconditionally, so several replicas may do so at the same time.
        // The replica that holds the Lease after all their requests have ended keeps it; the others leave it unchanged.
        let seen = select! {
            lost = &mut lost => return Ok(lost.map(drop)?),
            seen = async { sleep(replica.longest_renewal()).await; self.see().await } => seen?,
        };
        if seen.holders.get(&index) != Some(&replica.name) {
            return Ok(());
        }

        let selection = Selection::all().shard(shard);
        let reflector = Reflector::<[u8]>::new(client, &replica.resource).selection(selection).prepare();
        on_change(Change::Taken(shard, reflector.cache()));
        let ended: Option<Result<(), Error>> = select! {
            biased;
            lost = &mut lost => Some(lost.map(drop).map_err(Error::from)),
            ended = reflector.run() => Some(ended.map_err(Error::from)),
            _ = assigned.wait_for(|shards| !shards.contains(&index)) => None,
        };
        on_change(Change::Lost(shard));
        drop(lost);
        match ended {
            Some(ended) => ended,
            None => Ok(manager.release().await?),
        }
    }

    async fn see(&self) -> Result<Seen, Error> {
        let leases = self.client.list::<Lease>(&Resource::LEASES, &ListParams::default());
        let mut seen = Seen { replicas: BTreeSet::new(), holders: BTreeMap::new() };
        for lease in leases.namespace(&self.replica.namespace).into_vec().await?.0 {
            let Some(holder) = holder(&lease).map(str::to_owned) else { continue };
            let name = lease.metadata.as_ref().map_or("", |meta| meta.name());
            if name.starts_with(REPLICA) {
                seen.replicas.insert(holder);
            } else if let Some(Ok(shard)) = name.strip_prefix(SHARD).map(str::parse) {
                seen.holders.insert(shard, holder);
            }
        }
        Ok(seen)
    }

    /// Returns a manager that renews the Lease after a third of its duration.
    async fn manager(&self, lease: String) -> Result<LeaseManager, Error> {
        let Replica { name, namespace, lease_seconds, .. } = &self.replica;
        let params = LeaseParams::new(name, *lease_seconds, lease_seconds - lease_seconds / 3);
        let builder = LeaseManagerBuilder::new(self.leases.clone(), lease).with_namespace(namespace);
        Ok(builder.with_parameters(params).build().await?)
    }
}

impl Seen {
    fn assigned_to(&self, replica: &Replica) -> BTreeSet<u32> {
        let replicas = self.replicas.iter().map(String::as_str).collect();
        let holders: Vec<_> = (0..replica.shards).map(|shard| self.holders.get(&shard).map(String::as_str)).collect();
        assign(&replicas, &holders).remove(&*replica.name).unwrap_or_default()
    }
}

/// Returns the holder of a Lease, unless the Lease has expired.
fn holder(lease: &Lease) -> Option<&str> {
    let spec = lease.spec.as_ref()?;
    let renewed = spec.renew_time.as_ref()?;
    let since = Duration::new(renewed.seconds().try_into().ok()?, renewed.nanos().try_into().ok()?);
    let ends = SystemTime::UNIX_EPOCH + since + Duration::from_secs(spec.lease_duration_seconds?.try_into().ok()?);
    spec.holder_identity.as_deref().filter(|_| SystemTime::now() < ends)
}
