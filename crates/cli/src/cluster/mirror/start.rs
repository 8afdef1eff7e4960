//! The start of the caches, and how they share the budget.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use indicatif::HumanCount;
use listwatch::client::ErrorClass;
use listwatch::internal::chain;
use listwatch_cache::{EndReason, FileError, PreparedReflector, SyncError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::collection::MirroredCollection;
use crate::failure::Failure;
use crate::notices;

/// How long the start waits for a collection while none of its objects arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval at which the start looks whether a collection fails.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A collection, and the reflector that keeps its cache synced.
pub type CollectionAndReflector = (Arc<MirroredCollection>, PreparedReflector<[u8]>);

/// Loads the files, runs the reflectors, and returns once each collection is complete, has failed, or does not arrive.
/// Those that fail are retried, and keep no other from being served.
///
/// With a budget, one collection syncs after the other, so that each can have the memory that those before it leave.
///
/// # Errors
///
/// The first failure, if all collections fail.
pub async fn start_all(
    all: Vec<CollectionAndReflector>,
    budget: Option<usize>,
    frozen: CancellationToken,
) -> Result<(), Failure> {
    let collections: Vec<_> = all.iter().map(|(collection, _)| Arc::clone(collection)).collect();
    let mut started = Vec::new();
    if let Some(budget) = budget {
        for (at, (collection, reflector)) in all.into_iter().enumerate() {
            share_budget(budget, collections.get(..=at).unwrap_or_default(), Some(at));
            started.push(start_one(&collection, reflector, frozen.clone()).await);
        }
        share_budget(budget, &collections, None);
    } else {
        let all = all.into_iter().map(|(collection, reflector)| {
            let frozen = frozen.clone();
            async move { start_one(&collection, reflector, frozen).await }
        });
        started = join_all(all).await;
    }
    let all_failed = started.iter().all(Result::is_err);
    for failure in started.into_iter().filter_map(Result::err) {
        match failure {
            Failure::Error(text) if !all_failed => notices::warn(&text),
            failure => return Err(failure),
        }
    }
    Ok(())
}

/// Loads the file of a collection, runs its reflector, and returns once it is complete, has failed, or does not arrive.
///
/// The reflector stops once `frozen` is cancelled. The cache stays as it is then, and its watches stay open.
///
/// # Errors
///
/// A failure that lasts until somebody intervenes: missing rights, an unknown resource, a foreign file. The reflector
/// retries all but the file.
pub async fn start_one(
    collection: &Arc<MirroredCollection>,
    mut reflector: PreparedReflector<[u8]>,
    frozen: CancellationToken,
) -> Result<(), Failure> {
    let (failed, failure) = oneshot::channel();
    let of_task = Arc::clone(collection);
    tokio::spawn(async move {
        let mut running = pin!(async {
            // It waits for the API server, which may not answer.
            if let Err(failure) = load_file(&mut reflector, &of_task).await {
                // The receiver waits for it, unless the collection did not arrive.
                _ = failed.send(failure);
                return;
            }
            if let Err(error) = reflector.run().await {
                notices::warn(&format!("{}: {}", of_task.resource, chain(&error)));
            }
        });
        tokio::select! {
            () = &mut running => {}
            () = frozen.cancelled() => pending().await,
        }
    });
    tokio::select! {
        // A reflector whose file failed is dropped, which ends the cache too, but only the failure says why.
        biased;
        Ok(failure) = failure => Err(failure),
        started = wait_started(collection) => started,
    }
}

/// Waits until the collection is complete, fails, or does not arrive.
async fn wait_started(collection: &MirroredCollection) -> Result<(), Failure> {
    let failed = async {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let status = collection.cache.status();
            if let Some(error) = &status.last_error
                && matches!(error.class(), ErrorClass::Denied | ErrorClass::Rejected | ErrorClass::Response)
            {
                return Err(collection.failure(error));
            }
            if status.events != seen {
                (seen, since) = (status.events, Instant::now());
            }
            if since.elapsed() >= PATIENCE {
                return Ok(());
            }
            sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::select! {
        synced = collection.cache.synced() => match synced {
            Ok(_) => Ok(()),
            Err(SyncError::Ended(EndReason::Failed(error))) => Err(collection.failure(&error)),
            Err(error) => Err(collection.failure(&error)),
        },
        failed = failed => failed,
    }
}

/// Distributes the memory that no collection uses: 7/8 to the one that syncs, the rest equally to the others.
pub fn share_budget(budget: usize, collections: &[Arc<MirroredCollection>], syncing: Option<usize>) {
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

/// Loads the file, if there is one. A file that is not a saved cache of this collection is an error, because saving
/// would overwrite it.
async fn load_file(reflector: &mut PreparedReflector<[u8]>, collection: &MirroredCollection) -> Result<(), Failure> {
    let MirroredCollection { resource, cache, file: Some(file), .. } = collection else { return Ok(()) };
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
