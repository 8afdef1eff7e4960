//! Three programs, each on kube alone and on listwatch.
//!
//! They were written from what public programs do: see `../../migrations.md`. The two files of a program differ as a
//! migration would make them differ. What a migration leaves alone is in the `mod.rs` of the program.

pub mod objects;
pub mod operator;
pub mod policies;
pub mod router;
pub mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;

use self::policies::Lookup;
use self::router::{Discovery, Workers};
use crate::{State, add_key, tell, wait};

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Router,
    Operator,
    Policies,
}

/// The kinds that the policies look up.
pub const LOOKED_UP: [(&str, &str); 4] =
    [("v1", "ConfigMap"), ("v1", "Namespace"), ("v1", "Service"), ("apps/v1", "Deployment")];

impl Program {
    pub const ALL: [Self; 3] = [Self::Router, Self::Operator, Self::Policies];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Operator => "operator",
            Self::Policies => "policies",
        }
    }
}

/// A program that runs.
pub enum Running {
    Router(Arc<Workers>),
    /// Its results are on the server.
    Operator,
    PoliciesWithKube(policies::with_kube::Caches),
    PoliciesWithListwatch(policies::with_listwatch::Caches),
}

impl Running {
    /// Starts a program, on kube or on listwatch.
    ///
    /// # Errors
    /// If the URL is none.
    pub fn start(program: Program, on_kube: bool, url: &str, repair_every: Duration) -> anyhow::Result<Self> {
        let config = kube::Config::new(url.parse()?);
        Ok(match program {
            Program::Router => {
                let workers = Arc::<Workers>::default();
                let label = ("role".to_owned(), "worker".to_owned());
                let discovery = Discovery { label, namespace: None, port: 8000, repair_every };
                let found = Arc::clone(&workers);
                tokio::spawn(async move {
                    if on_kube {
                        router::with_kube::discover(config, discovery, found).await
                    } else {
                        router::with_listwatch::discover(config, discovery, found).await
                    }
                });
                Self::Router(workers)
            }
            Program::Operator => {
                tokio::spawn(async move {
                    if on_kube {
                        operator::with_kube::run(config).await
                    } else {
                        operator::with_listwatch::run(config).await
                    }
                });
                Self::Operator
            }
            Program::Policies if on_kube => Self::PoliciesWithKube(policies::with_kube::Caches::new(config)?),
            Program::Policies => Self::PoliciesWithListwatch(policies::with_listwatch::Caches::new(config)?),
        })
    }

    /// Waits until the program has its objects: this many workers, or the caches of all kinds.
    async fn synced(&self, workers: usize) -> anyhow::Result<()> {
        match self {
            Self::Router(found) => {
                while found.endpoints().len() != workers {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Self::Operator => {}
            Self::PoliciesWithKube(caches) => fill(caches).await?,
            Self::PoliciesWithListwatch(caches) => fill(caches).await?,
        }
        Ok(())
    }

    /// Returns the number and the sum of hashes of what the program has: endpoints or objects.
    async fn state(&self) -> anyhow::Result<State> {
        let mut state = State::default();
        match self {
            Self::Router(workers) => {
                for ((namespace, name), endpoint) in &*workers.endpoints() {
                    state.items += 1;
                    add_key(&mut state.hash, namespace, name, endpoint);
                }
            }
            Self::Operator => {}
            Self::PoliciesWithKube(caches) => add_all(caches, &mut state).await?,
            Self::PoliciesWithListwatch(caches) => add_all(caches, &mut state).await?,
        }
        Ok(state)
    }
}

async fn fill(objects: &impl Lookup) -> anyhow::Result<()> {
    for (api_version, kind) in LOOKED_UP {
        objects.get(api_version, kind, ("none", "none")).await?;
    }
    Ok(())
}

async fn add_all(objects: &impl Lookup, state: &mut State) -> anyhow::Result<()> {
    for (api_version, kind) in LOOKED_UP {
        for object in objects.list(api_version, kind, None, None).await? {
            let object = serde_json::from_slice::<Versioned>(&object)?.metadata;
            state.items += 1;
            add_key(&mut state.hash, &object.namespace, &object.name, &object.resource_version);
        }
    }
    Ok(())
}

/// The identity of an object's state.
#[derive(Deserialize)]
pub struct Versioned {
    pub metadata: VersionedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionedMetadata {
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    pub resource_version: String,
}

/// Runs a program for the runner; the arguments are `PROGRAM kube|listwatch URL WORKERS`.
///
/// # Errors
/// If the program fails.
///
/// # Panics
/// If the system cannot start a thread.
#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [program, library, url, workers] = &*args else {
        bail!("usage: migrated PROGRAM kube|listwatch URL WORKERS");
    };
    let program = Program::ALL.into_iter().find(|known| known.name() == program).context("unknown program")?;
    tell(&"ready")?;
    wait()?;
    // The default of SGLang's gateway.
    let running = Running::start(program, library == "kube", url, Duration::from_secs(30))?;
    running.synced(workers.parse()?).await?;
    tell(&"synced")?;
    loop {
        tokio::task::spawn_blocking(wait).await??;
        tell(&running.state().await?)?;
    }
}
