//! Finds the resources that the user typed, also those that the API server does not have yet.
//!
//! One resource that is missing must not keep the others from being served. So it is looked up again while the mirror
//! runs. With `--dir`, what was found is kept in a file, so that a mirror can serve its saved caches while the API
//! server does not answer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use listwatch::client::{Client, Resource};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::cluster::resource::{find_common, find_resource};
use crate::failure::Failure;
use crate::notices;
use crate::partial_file::{create_beside, replace};

/// The time that the API server has at the start for the discovery of a resource.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which a missing resource is looked up.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// The file of resources in the directory of the caches.
const FILE: &str = "resources.json";

/// A resource, and how the user typed it.
pub type FoundResource = (String, Resource);

/// The resources that the user typed.
pub struct Lookup {
    pub found: Vec<FoundResource>,
    /// The names of those that the API server does not have now.
    pub missing: Vec<String>,
}

/// The parts of a resource, as they are in the file.
#[derive(Deserialize, Serialize)]
struct KnownResource {
    group: String,
    version: String,
    plural: String,
    kind: String,
    namespaced: bool,
}

impl Lookup {
    /// Looks up the resources. Those that the API server does not show are taken from the file of `dir`, or are
    /// missing.
    ///
    /// # Errors
    ///
    /// The first failure if nothing was found. A resource that is named twice is a usage error.
    pub async fn start(client: &Client, names: &[String], dir: Option<&Path>) -> Result<Self, Failure> {
        let known = dir.map(read_known).unwrap_or_default();
        let (mut lookup, mut failed) = (Self { found: Vec::new(), missing: Vec::new() }, None);
        let answers = names.iter().map(|typed| async move {
            let late = || Failure::Error(format!("cannot look up {typed:?}: the API server did not answer in time"));
            timeout(LOOKUP_TIMEOUT, find_resource(client, typed)).await.unwrap_or_else(|_| Err(late()))
        });
        for (typed, answer) in names.iter().zip(join_all(answers).await) {
            let resource = match (answer, known.get(typed)) {
                (Ok(resource), _) => resource,
                (Err(_), Some(known)) => known.resource(),
                (Err(failure), None) => {
                    if let Failure::Error(text) | Failure::Usage(text) = &failure {
                        notices::warn(&format!("{text}; it is looked up again"));
                    }
                    failed.get_or_insert(failure);
                    lookup.missing.push(typed.clone());
                    continue;
                }
            };
            if lookup.found.iter().any(|(_, other)| *other == resource) {
                return Err(Failure::Usage(format!("{typed}: {resource} is named twice")));
            }
            lookup.found.push((typed.clone(), resource));
        }
        match failed {
            Some(failed) if lookup.found.is_empty() => Err(failed),
            _ => Ok(lookup),
        }
    }

    /// Keeps what was found in the file of `dir`, in addition to what earlier runs have found.
    pub fn keep(&self, dir: &Path) {
        let mut known = read_known(dir);
        for (typed, resource) in self.found.iter().filter(|(typed, _)| find_common(typed).is_none()) {
            known.insert(typed.clone(), KnownResource::new(resource));
        }
        if known.is_empty() {
            return;
        }
        let file = dir.join(FILE);
        let written = (|| {
            let mut temporary = create_beside(&file)?;
            temporary.write_all(&serde_json::to_vec_pretty(&known).map_err(io::Error::other)?)?;
            replace(&file, temporary)
        })();
        if let Err(error) = written {
            notices::warn(&format!("cannot write {}: {error}", file.to_string_lossy()));
        }
    }
}

/// Looks up a missing resource until the API server has it.
pub async fn find_later(client: &Client, typed: String) -> FoundResource {
    loop {
        sleep(LOOKUP_INTERVAL).await;
        if let Ok(resource) = find_resource(client, &typed).await {
            return (typed, resource);
        }
    }
}

/// Reads the file of resources. A file that cannot be read knows nothing.
fn read_known(dir: &Path) -> BTreeMap<String, KnownResource> {
    let text = fs::read(dir.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

impl KnownResource {
    fn new(resource: &Resource) -> Self {
        Self {
            group: resource.group().to_owned(),
            version: resource.version().to_owned(),
            plural: resource.plural().to_owned(),
            kind: resource.kind().to_owned(),
            namespaced: resource.is_namespaced(),
        }
    }

    fn resource(&self) -> Resource {
        let Self { group, version, plural, kind, namespaced } = self;
        let resource = Resource::new(group.clone(), version.clone(), plural.clone(), kind.clone());
        if *namespaced { resource } else { resource.cluster_scoped() }
    }
}
