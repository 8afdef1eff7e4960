//! A reflector that begins with what was saved before a restart.

use std::cmp::Ordering;
use std::io;
use std::path::Path;

use tokio::task::spawn_blocking;

use super::Reflector;
use crate::cache::{Identity, LoadError, ObjectKey, Saved, Stored};
use crate::client::{Error, ResourceVersion};
use crate::error::ItemError;
use crate::object::ItemRef;
use crate::object::{Item, compare_resource_versions};
use crate::wire::Encoding;

/// Why a [`Reflector`] begins without what was saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColdStart {
    /// The file is none, damaged, or of another collection.
    #[error("{0}")]
    File(#[from] LoadError),
    /// The server could not be asked for an object of the file; or it does not know the saved version, although it would be
    /// an old one ([`Error::is_too_large_version`]).
    #[error("whether the file is of this cluster: {0}")]
    Client(#[from] Error),
    /// The object is at a version that the file should have, or at an older one: the file is of another cluster, or the
    /// server's data is from a time before.
    #[error("{object} is at version {found} and in the file at {saved}, which has all changes up to {version}")]
    OtherHistory {
        /// Which object.
        object: ObjectKey,
        /// Its version in the file.
        saved: String,
        /// Its version on the server.
        found: String,
        /// That of the file.
        version: String,
    },
    /// The server has none of the objects that it was asked for: the file is of another cluster, or too old to tell. Also where
    /// nothing was saved but an empty collection, or objects without a uid.
    #[error("nothing of the file is on the server: it may be of another cluster")]
    Unknown,
}

impl<T: Item + Stored + ?Sized> Reflector<T> {
    /// Loads what [`Cache::save`](super::Cache::save) saved, into a store that is empty: [`run`](Self::run) then watches
    /// from the version of the file, and sends no list. An error leaves the reflector as it was, which is a cold start.
    ///
    /// The cache is synced as soon as the server has accepted that watch. It is then the collection at the saved version,
    /// and changes since then follow. Where the server has forgotten that version, the collection comes as without a file, and
    /// objects that did not change are neither decoded nor stored again.
    ///
    /// Options, namespace, projection and store are to be set before: what is set afterwards makes it a cold start. They
    /// must be those of the file, but for how the store holds objects.
    ///
    /// # What it protects from
    ///
    /// A file that is cut, damaged, of another collection or asked for in another way is an error, and so is one of another
    /// cluster or of another history of the same: the server must know the version of the file, and is asked for one or two
    /// of its objects, the one that was changed last and, where that has changed since or is gone, the one that was not for
    /// longest. Their uids and versions tell. It takes the right to `get`; an empty collection tells nothing, and is listed.
    ///
    /// It does not notice a server that was restored from a backup and has passed the saved version since, if the object that
    /// was changed last has changed again, or if there were only deletions between backup and file. Have
    /// backups restored as Kubernetes recommends (`etcdutl snapshot restore --bump-revision --mark-compacted`): then the
    /// saved version is forgotten.
    ///
    /// # Errors
    ///
    /// [`ColdStart`]; [`LoadError::Io`] with [`NotFound`](io::ErrorKind::NotFound) where nothing was saved yet.
    pub async fn load(&mut self, path: impl AsRef<Path>) -> Result<(), ColdStart> {
        let (store, path, holds) = (self.store.clone(), path.as_ref().to_owned(), self.holds()?);
        let reading = spawn_blocking(move || store.read_saved(&path, &holds));
        let saved = reading.await.map_err(|error| LoadError::from(io::Error::other(error)))??;
        self.is_of_this_server(&saved).await?;
        let (store, version) = (self.store.clone(), saved.version().to_owned());
        let putting = spawn_blocking(move || store.put_saved(saved));
        putting.await.map_err(|error| LoadError::from(io::Error::other(error)))??;
        tracing::info!(resource = %self.resource, version, objects = self.store.len(), "the cache was loaded");
        self.sync.loaded(&version);
        Ok(())
    }

    async fn is_of_this_server(&self, saved: &Saved<T>) -> Result<(), ColdStart> {
        let mut is_known = false;
        for object in saved.witnesses().into_iter().filter(|object| !object.uid.is_empty()) {
            let namespace = Some(&*object.namespace).filter(|namespace| !namespace.is_empty());
            // Of a server that knows the version of the file: one that does not answers with an error.
            let (name, version) = (&object.name, saved.version());
            let found = match self.client.get_at_least::<Found>(&self.resource, namespace, name, version).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            match found.judge(&object, version) {
                Verdict::Same => return Ok(()),
                Verdict::Other => {
                    return Err(ColdStart::OtherHistory {
                        object: ObjectKey { namespace: object.namespace.into_owned(), name: object.name.into_owned() },
                        saved: object.resource_version.into_owned(),
                        found: found.version,
                        version: version.to_owned(),
                    });
                }
                Verdict::Changed => is_known = true,
                Verdict::Recreated => {}
            }
        }
        if is_known { Ok(()) } else { Err(ColdStart::Unknown) }
    }

    /// Which collection it is, and in what form.
    pub(super) fn holds(&self) -> Result<String, Error> {
        let options = self.options.clone().without_timeout().resource_version(ResourceVersion::MostRecent);
        let options = if T::ENCODING == Some(Encoding::Json) { options.json() } else { options };
        let (path, query) = (self.resource.list_path(self.namespace.as_deref())?, options.query());
        let mut holds = format!("{path}?{query} as {}", options.accept());
        if let Some(projection) = &self.projection {
            holds = format!("{holds} {projection}");
        }
        Ok(holds)
    }
}

/// An object as the server has it.
struct Found {
    uid: String,
    version: String,
}

impl Item for Found {
    type Owned = Self;

    fn from_ref(item: ItemRef<'_>) -> Result<Self, ItemError> {
        let meta = item.meta()?;
        Ok(Self { uid: meta.uid().into_owned(), version: meta.resource_version().into_owned() })
    }
}

/// What the state of an object says of the history that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is that of the file.
    Same,
    /// It is not that of the file.
    Other,
    /// It was changed since. Another history has another object.
    Changed,
    /// It is another one of this name.
    Recreated,
}

impl Found {
    /// Beside its state in a file that has all changes up to a version which the server knows.
    fn judge(&self, saved: &Identity<'_>, version: &str) -> Verdict {
        let is_same = saved.uid == self.uid;
        if is_same && saved.resource_version == self.version {
            Verdict::Same
        } else if compare_resource_versions(&self.version, version).is_some_and(Ordering::is_le) {
            Verdict::Other
        } else if is_same {
            Verdict::Changed
        } else {
            Verdict::Recreated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_tells_one_history_from_another() {
        let mut saved = Identity::default();
        (saved.uid, saved.resource_version) = ("a".into(), "5".into());
        for (uid, version, expected) in [
            ("a", "5", Verdict::Same),
            // The file would have it.
            ("a", "7", Verdict::Other),
            ("a", "4", Verdict::Other),
            ("b", "5", Verdict::Other),
            ("a", "11", Verdict::Changed),
            ("b", "11", Verdict::Recreated),
            ("a", "x", Verdict::Changed),
        ] {
            let found = Found { uid: uid.to_owned(), version: version.to_owned() };
            assert_eq!(found.judge(&saved, "10"), expected, "{uid} {version}");
        }
    }
}
