//! The progress of a reflector, and why waiting for it may fail.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Instant;

use listwatch::UndecodableObject;
use listwatch::client::{self, ErrorClass};
use tokio::sync::watch;

use crate::error::{EndReason, ObjectError};
use crate::reflector::sync::Strategy;

/// The progress of a [`Reflector`](super::Reflector).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReflectorStatus {
    /// The resource version up to which the store contains all changes; `None` before it first contains the collection.
    pub resource_version: Option<String>,
    /// The version from which a watch resumes: `resource_version`, or an older one while further changes may have that
    /// version.
    pub(super) resumes_from: Option<String>,
    /// The strategy of the current attempt.
    ///
    /// `None` before the first attempt, and while it resumes from a [loaded](super::PreparedReflector::load) file.
    pub strategy: Option<Strategy>,
    /// How often the server has sent the whole collection.
    pub syncs: u64,
    /// How often the reflector began to fetch the whole collection again.
    ///
    /// A relist that needs several attempts counts once.
    pub relists: u64,
    /// How many objects and deletions were received, including items of lists.
    pub events: u64,
    /// How many of them a watch delivered while the cache was synced.
    pub changes: u64,
    /// When the cache was last known to be synced, which bounds how far it is out of date.
    ///
    /// That is when a list was complete, when the watch delivered an event or a bookmark, or when the server was at the
    /// cache's version when the reflector asked. API servers send a bookmark about once a minute, and if the watch is
    /// silent, the reflector asks every two minutes. A relist does not change this time until it is complete.
    pub last_synced_at: Option<Instant>,
    /// How many connections and lists ended in an error.
    pub errors: u64,
    /// How many errors of each class there were.
    pub errors_by_class: BTreeMap<ErrorClass, u64>,
    /// The last of these errors.
    pub last_error: Option<client::Error>,
    /// How many objects are missing in their latest state: see [`skipped`](crate::StoreReader::skipped).
    ///
    /// The cache is complete only if this is 0.
    pub skipped: usize,
    /// The last object that could not be stored.
    pub last_skipped: Option<ObjectError>,
    /// How often index functions failed.
    ///
    /// [`Index::errors`](crate::Index::errors) lists the objects that an index lacks now.
    pub index_errors: u64,
    /// The last error of an index function.
    pub last_index_error: Option<ObjectError>,
    /// How many states of objects a reader could not decode: see [`decode_errors`](crate::StoreReader::decode_errors).
    pub decode_errors: u64,
    /// The last undecodable object that is still stored; `None` once such objects were repaired or deleted.
    pub last_decode_error: Option<UndecodableObject>,
    /// True while the cache follows the server's changes: see [`Cache::is_up_to_date`](super::Cache::is_up_to_date).
    pub is_up_to_date: bool,
    /// Why the reflector has ended; `None` until then.
    pub ended_by: Option<EndReason>,
}

/// Counts an error of a connection or a list.
pub(super) fn record_error(status: &watch::Sender<ReflectorStatus>, error: client::Error) {
    status.send_modify(|status| {
        status.errors += 1;
        *status.errors_by_class.entry(error.class()).or_default() += 1;
        status.last_error = Some(error);
    });
}

/// Why waiting for a [`Cache`](super::Cache) failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SyncError {
    /// The cache contains all changes, but lacks objects that its store could not hold.
    ///
    /// A caller that does not need them may continue. The cache receives such an object when it changes, or when the
    /// store has room.
    Incomplete {
        /// The resource version up to which the cache contains all other changes.
        resource_version: String,
        /// How many objects it lacks in their latest state.
        skipped: usize,
        /// The last skipped object.
        last: Option<ObjectError>,
    },
    /// The awaited resource version and the cache's cannot be compared, so waiting would never end.
    Incomparable {
        /// The version that the caller waited for.
        resource_version: String,
        /// The version of the cache.
        cached: String,
    },
    /// The reflector has ended, so the cache receives no more changes.
    Ended(EndReason),
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { resource_version, skipped, last } => {
                let were = if *skipped == 1 { "object was" } else { "objects were" };
                write!(f, "the cache is incomplete at version {resource_version}: {skipped} {were} skipped")?;
                last.as_ref().map_or(Ok(()), |last| write!(f, ": {last}"))
            }
            Self::Incomparable { resource_version, cached } => {
                write!(
                    f,
                    "the resource version {resource_version:?} does not compare with the cache's version {cached:?}"
                )
            }
            Self::Ended(reason) => reason.fmt(f),
        }
    }
}

impl Error for SyncError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Incomplete { last, .. } => last.as_ref().and_then(Error::source),
            Self::Incomparable { .. } => None,
            Self::Ended(reason) => reason.source(),
        }
    }
}
