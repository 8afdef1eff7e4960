//! The start of the caches, and how they share the budget.

use std::io;
use std::path::Path;

use futures::future::try_join_all;
use indicatif::HumanCount;
use listwatch::client::{Error, Resource};
use listwatch::internal::chain;
use listwatch_cache::{FileError, PreparedReflector, SyncError};
use tokio::sync::mpsc::UnboundedSender;

use super::collection::MirroredCollection;
use crate::failure::Failure;
use crate::notices;

/// Loads the files, runs the reflectors, and returns once all collections are complete.
///
/// With a budget, one collection syncs after the other, so that each can have the memory that those before it leave.
/// Without one, a collection that the server does not answer for delays no other.
pub async fn start_all(
    collections: &[MirroredCollection],
    reflectors: Vec<PreparedReflector<[u8]>>,
    budget: Option<usize>,
    ended: UnboundedSender<(Resource, Error)>,
) -> Result<(), Failure> {
    let all = collections.iter().zip(reflectors);
    let Some(budget) = budget else {
        try_join_all(all.map(|(collection, reflector)| start_one(collection, reflector, ended.clone()))).await?;
        return Ok(());
    };
    for (at, (collection, reflector)) in all.enumerate() {
        share_budget(budget, &collections[..=at], Some(at));
        start_one(collection, reflector, ended.clone()).await?;
    }
    share_budget(budget, collections, None);
    Ok(())
}

async fn start_one(
    collection: &MirroredCollection,
    mut reflector: PreparedReflector<[u8]>,
    ended: UnboundedSender<(Resource, Error)>,
) -> Result<(), Failure> {
    if let Some(file) = &collection.file {
        load_file(&mut reflector, collection, file).await?;
    }
    let resource = collection.resource.clone();
    tokio::spawn(async move {
        if let Err(error) = reflector.run().await {
            // The receiver is dropped when the command ends.
            _ = ended.send((resource, error));
        }
    });
    wait_synced(collection).await
}

/// Waits until the collection is complete.
async fn wait_synced(collection: &MirroredCollection) -> Result<(), Failure> {
    match collection.cache.synced().await {
        Ok(_) => Ok(()),
        Err(error @ SyncError::Incomplete { .. }) => Err(collection.failure(&error)),
        // The error of the reflector follows.
        Err(_) => std::future::pending().await,
    }
}

/// Distributes the memory that no collection uses: 7/8 to the one that syncs, the rest equally to the others.
pub fn share_budget(budget: usize, collections: &[MirroredCollection], syncing: Option<usize>) {
    let used: Vec<_> = collections.iter().map(|collection| collection.cache.memory().total()).collect();
    let free = budget.saturating_sub(used.iter().sum());
    let others = collections.len() - usize::from(syncing.is_some());
    let of_syncing = match (syncing, others) {
        (None, _) => 0,
        (Some(_), 0) => free,
        (Some(_), _) => free - free / 8,
    };
    for (at, (collection, used)) in collections.iter().zip(used).enumerate() {
        let more = if syncing == Some(at) { of_syncing } else { (free - of_syncing) / others };
        collection.store.set_budget(Some(used + more));
    }
}

/// Loads the file. A file that is not a saved cache of this collection is an error, because saving would overwrite it.
async fn load_file(
    reflector: &mut PreparedReflector<[u8]>,
    collection: &MirroredCollection,
    file: &Path,
) -> Result<(), Failure> {
    let MirroredCollection { resource, cache, .. } = collection;
    match reflector.load(file).await {
        Ok(()) => {
            let objects = HumanCount(cache.len() as u64);
            notices::print_labelled(
                "loaded:",
                &format!("{resource}: {objects} objects at version {}", cache.resource_version()),
            );
        }
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error @ (FileError::NotSaved | FileError::Foreign { .. })) => {
            return Err(Failure::Error(format!("{}: {error}", file.to_string_lossy())));
        }
        Err(error) => {
            notices::warn(&format!("{resource}: cannot load the file, starting without it: {}", chain(&error)));
        }
    }
    Ok(())
}
