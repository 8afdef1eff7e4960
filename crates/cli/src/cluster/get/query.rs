//! What `get` reads.

use std::collections::HashMap;

use listwatch_tables::json_path::JsonPath;

use super::source::{Found, Source, Wanted};
use super::targets::Target;
use crate::cluster::limit::Rest;
use crate::failure::Failure;

/// What is read.
pub struct Query {
    pub source: Source,
    pub targets: Vec<Found>,
    pub wanted: Wanted,
    pub ignore_not_found: bool,
    /// True if one object was named, which is then not printed as a list.
    pub is_one: bool,
    pub limit: Option<u64>,
    pub sort_by: Option<JsonPath>,
    /// As the user typed it.
    pub chunk_size: Option<u32>,
}

/// Finds the resources of all targets. A resource that was named twice is listed once.
pub async fn find_targets(
    source: &Source,
    targets: Vec<Target>,
    all_namespaces: bool,
    namespace: &str,
) -> Result<Vec<Found>, Failure> {
    let (mut resources, mut found) = (HashMap::new(), Vec::<Found>::new());
    for Target { resource: typed, name } in targets {
        if !resources.contains_key(&typed) {
            let resource = source.find(&typed).await?;
            resources.insert(typed.clone(), resource);
        }
        let Some(resource) = resources.get(&typed).cloned() else { continue };
        if name.is_none() && found.iter().any(|other| other.resource == resource) {
            continue;
        }
        if name.is_some() && all_namespaces && resource.is_namespaced() {
            return Err(Failure::Error("an object cannot be named in all namespaces: use -n".to_owned()));
        }
        let namespace = (resource.is_namespaced() && !all_namespaces).then(|| namespace.to_owned());
        found.push(Found { resource, namespace, name });
    }
    Ok(found)
}

impl Query {
    /// Says what `--limit` left out, if it was reached.
    pub fn report(&self, left: Option<u64>, rest: Rest) {
        if let (Some(limit), Some(0)) = (self.limit, left) {
            rest.report(limit, limit);
        }
    }

    /// Returns the size of a page, which has no more objects than the limit still allows.
    pub fn page_size(page_size: Option<u32>, left: Option<u64>) -> Option<u32> {
        let left = left.and_then(|left| u32::try_from(left).ok());
        page_size.filter(|size| *size > 0).into_iter().chain(left).min()
    }
}
