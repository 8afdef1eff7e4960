//! What `get` reads.

use std::collections::HashMap;

use listwatch::client::{Resource, TableForm};
use listwatch_tables::json_path::JsonPath;

use super::source::{Found, Source, SourceError, Wanted};
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
    /// `scale`, `status` and others of the named objects.
    pub subresource: Option<String>,
    /// What tables are made of.
    pub form: TableForm,
    /// Changes to print after the objects.
    pub changes: Option<Changes>,
    /// Why some targets are left out, which is reported at the end.
    pub faults: Vec<String>,
}

/// What `-w` and `--watch-only` print.
#[derive(Clone)]
pub struct Changes {
    /// Only changes, without the objects at the beginning.
    pub only: bool,
    /// `--output-watch-events`: with the type of each change.
    pub has_events: bool,
    /// The name of the only object that is watched.
    pub name: Option<String>,
}

/// Finds the resources of all targets. A resource that was named twice is listed once, and a category stands for all
/// its resources.
pub async fn find_targets(
    source: &Source,
    targets: Vec<Target>,
    all_namespaces: bool,
    namespace: &str,
) -> Result<Vec<Found>, Failure> {
    let (mut resources, mut found) = (HashMap::<String, Vec<Resource>>::new(), Vec::<Found>::new());
    for Target { resource: typed, name } in targets {
        if !resources.contains_key(&typed) {
            resources.insert(typed.clone(), source.find_all(&typed).await?);
        }
        let members = resources.get(&typed).map_or(&[][..], Vec::as_slice);
        if members.len() > 1 && name.is_some() {
            return Err(Failure::Error(format!("{typed:?} is a category, whose objects cannot be named")));
        }
        for resource in members {
            if name.is_none() && found.iter().any(|other| other.resource == *resource) {
                continue;
            }
            if name.is_some() && all_namespaces && resource.is_namespaced() {
                return Err(Failure::Error("an object cannot be named in all namespaces: use -n".to_owned()));
            }
            let namespace = (resource.is_namespaced() && !all_namespaces).then(|| namespace.to_owned());
            found.push(Found { resource: resource.clone(), namespace, name: name.clone() });
        }
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

    /// Returns the text of an error, unless it is to be ignored.
    pub fn reported(&self, error: &SourceError) -> Option<String> {
        (!self.ignore_not_found || !error.is_not_found()).then(|| error.text())
    }

    /// Returns the error of a watched object that the list does not have; `None` if that is to be ignored.
    pub async fn missing(&self, name: &str) -> Option<String> {
        let target = self.targets.first()?;
        let named = Found { name: Some(name.to_owned()), ..target.clone() };
        match self.source.object(&named, None).await {
            // It was created in between, and will be seen by the next command.
            Ok(_) => Some(format!("{} {name:?} not found", target.resource.plural())),
            Err(error) => self.reported(&error),
        }
    }
}
