//! Starts a reflector from a saved store.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use listwatch::client::Error;
use listwatch::internal::{MAX_RETRY_AFTER, RetryAdvice, chain, on_own_runtime};
use listwatch::{Item, ItemError, ItemRef, StoreType, compare_resource_versions};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::file::format::FileError;
use crate::file::load::SavedStore;
use crate::key::{Identity, ObjectKey};
use crate::reflector::prepared::PreparedReflector;
use crate::reflector::status::record_error;
use crate::reflector::sync::MAX_DELAY;
use crate::store::writable::Store;

impl<T: StoreType + ?Sized> PreparedReflector<T> {
    /// Lets [`load`](Self::load) put the file into the store as soon as the server turns out not to answer, so that
    /// readers have its objects during an outage.
    ///
    /// The cache is then synced at the version of the file, but not up to date, and
    /// [`last_synced_at`](crate::reflector::ReflectorStatus::last_synced_at) is when the file was written. The check
    /// follows once the server answers. If the file is of another cluster or history, `load` returns that error, and
    /// [`run`](Self::run) lists and replaces all objects. So call this only if the file was saved from this server.
    pub fn serve_unchecked(mut self) -> Self {
        self.serves_unchecked = true;
        self
    }

    /// Loads a file that [`Cache::save`](crate::reflector::Cache::save) wrote into the empty store.
    ///
    /// [`run`](Self::run) then watches from the resource version of the file, without a list. The cache is synced as
    /// soon as the server has accepted that watch: it contains the collection at the saved version, and the changes
    /// since then follow. If that version has expired, the reflector lists, and objects that did not change are neither
    /// decoded nor stored again. After an error of this call, the reflector is unchanged and starts without the file.
    ///
    /// Selection, namespace and projection must be the same as for the saved cache, but the storage format may differ.
    ///
    /// # Which files are refused
    ///
    /// A file that is truncated, damaged, of another collection or of another selection is an error. So is a file of
    /// another cluster, or of another history of the same cluster. To find out, the reflector checks that the server
    /// has reached the resource version of the file, and requests one or two of its objects to compare their uids and
    /// versions. The first is the object that was changed last. If it was changed or deleted since, the second is the
    /// object that has been unchanged for longest. This needs permission to `get`. A file without objects is not
    /// loaded.
    ///
    /// While the server cannot be reached, or answers with 408, 429 or 5xx, the method retries with the backoff of
    /// [`run`](Self::run) and without a limit, so that an outage discards no valid file. Until then the cache is empty,
    /// and [`last_error`](crate::reflector::ReflectorStatus::last_error) contains the last error. Drop the future to
    /// start without the file. With [`serve_unchecked`](Self::serve_unchecked), the cache has the objects of the file
    /// meanwhile.
    ///
    /// One case goes undetected: a server that was restored from a backup and has since passed the saved version, if
    /// the object that was changed last has changed again, or if there were only deletions between backup and file.
    /// Restore backups as Kubernetes recommends (`etcdutl snapshot restore --bump-revision --mark-compacted`), because
    /// the saved version has then expired.
    ///
    /// # Errors
    ///
    /// [`FileError`]. It is [`FileError::Io`] with [`NotFound`](io::ErrorKind::NotFound) when nothing was saved yet.
    pub async fn load(&mut self, path: impl AsRef<Path>) -> Result<(), FileError> {
        on_own_runtime(self.load_file(path.as_ref())).await
    }

    /// Saves a store as the file of this reflector's collection, from which [`load`](Self::load) then starts it.
    ///
    /// It is for callers that keep the collection in another form, such as a history. The store must contain the
    /// collection at its [resource version](crate::StoreReader::resource_version), from which the watch resumes;
    /// objects that are newer are delivered again.
    ///
    /// # Errors
    ///
    /// [`FileError`], as [`Store::save`](crate::Store::save) returns it.
    pub fn save_store(&self, path: impl AsRef<Path>, store: &Store<T>) -> Result<(), FileError> {
        store.save_from(path.as_ref(), &self.describe_collection()?, None)
    }

    async fn load_file(&mut self, path: &Path) -> Result<(), FileError> {
        let (store, path, holds) = (self.attached.store.clone(), path.to_owned(), self.describe_collection()?);
        let reading = spawn_blocking(move || {
            let written_at = path.metadata().and_then(|file| file.modified());
            store.read_saved(&path, &holds).map(|store| UncheckedFile { store, written_at: written_at.ok() })
        });
        let file = reading.await.map_err(|error| FileError::from(io::Error::other(error)))??;
        let (version, objects) = (file.store.resumes_from().to_owned(), file.store.identifying_objects());
        let objects: Vec<_> = objects.into_iter().map(Identity::into_owned).collect();
        let mut file = Some(file);
        self.check_origin(&version, objects, &mut file).await?;
        if let Some(file) = file {
            self.put_file(file.store).await?;
        }
        tracing::info!(resource = %self.resource, resource_version = version, objects = self.attached.store.len(), "loaded the cache");
        self.sync.record_load(&version);
        Ok(())
    }

    async fn put_file(&self, saved: SavedStore) -> Result<(), FileError> {
        let store = self.attached.store.clone();
        self.attached.store.set_type_meta(self.selection.type_meta(&self.resource));
        let putting = spawn_blocking(move || store.put_saved(saved));
        putting.await.map_err(|error| FileError::from(io::Error::other(error)))?
    }

    /// Gives readers the objects of a file that is not checked yet. Until the check has succeeded, the next attempt
    /// replaces them.
    async fn serve_file(&mut self, UncheckedFile { store, written_at }: UncheckedFile) -> Result<(), FileError> {
        let version = store.resumes_from().to_owned();
        self.put_file(store).await?;
        self.sync.record_load(&version);
        self.sync.record_older_server();
        self.attached.store.open_log(&version);
        let age = written_at.and_then(|at| SystemTime::now().duration_since(at).ok());
        self.status.send_modify(|status| {
            status.last_synced_at = age.and_then(|age| Instant::now().into_std().checked_sub(age));
            status.resumes_from = Some(version.clone());
            status.resource_version = Some(version);
        });
        Ok(())
    }

    /// Compares objects of the file with the server's. Takes the file to serve it, if the server does not answer.
    async fn check_origin(
        &mut self,
        version: &str,
        objects: Vec<Identity<'static>>,
        file: &mut Option<UncheckedFile>,
    ) -> Result<(), FileError> {
        let mut is_known = false;
        for object in objects.into_iter().filter(|object| !object.uid.is_empty()) {
            let namespace = Some(&*object.namespace).filter(|namespace| !namespace.is_empty());
            let name = &object.name;
            let found = match self.get_from_server(namespace, name, version, file).await? {
                Ok(found) => found,
                Err(error) if error.code() == Some(404) => continue,
                Err(error) => return Err(error.into()),
            };
            match found.compare(&object, version) {
                Verdict::Same => return Ok(()),
                Verdict::Other => {
                    return Err(FileError::OtherHistory {
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
        if is_known { Ok(()) } else { Err(FileError::Unknown) }
    }

    /// Requests the state of an object, and retries until the server answers. A server that has not reached this
    /// version returns an error. The outer error is that of the file, which is served meanwhile.
    async fn get_from_server(
        &mut self,
        namespace: Option<&str>,
        name: &str,
        version: &str,
        file: &mut Option<UncheckedFile>,
    ) -> Result<Result<ServerObject, Error>, FileError> {
        let client = self.once();
        let mut backoff = client.backoff(MAX_DELAY);
        loop {
            let error = match client.get::<ServerObject>(&self.resource, namespace, name).at_least(version).await {
                Ok(found) => return Ok(Ok(found)),
                Err(error) => error,
            };
            let asked = error.retry_after().unwrap_or_default();
            let is_transient = client.classify(&error) == RetryAdvice::Retry || asked > MAX_RETRY_AFTER;
            if !is_transient || error.is_too_large_version() {
                return Ok(Err(error));
            }
            if self.serves_unchecked
                && let Some(file) = file.take()
            {
                self.serve_file(file).await?;
            }
            let wait = backoff.next().unwrap_or(MAX_DELAY).max(asked.min(MAX_RETRY_AFTER));
            tracing::warn!(
                name: "listwatch.load_retry",
                resource = %self.resource,
                error = %chain(&error),
                seconds = wait.as_secs_f64(),
                "cannot compare the file with the server: retrying"
            );
            record_error(&self.status, error);
            sleep(wait).await;
        }
    }

    /// Returns a text that identifies the collection and the form of its objects.
    pub(super) fn describe_collection(&self) -> Result<String, Error> {
        self.resource.check_type::<T>()?;
        let selection = self.selection.clone().encoded_as(T::ENCODING);
        let path = self.resource.list_path(self.namespace.as_deref())?;
        let mut holds = format!("{path}?{}", selection.fingerprint());
        if let Some(projection) = &self.projection {
            holds = format!("{holds} {projection}");
        }
        // Other files may lack objects that were deleted after their version, so no log can begin there.
        if self.attached.store.keeps_changes() {
            holds.push_str(" of exactly one version");
        }
        Ok(holds)
    }
}

/// A file that was read, and is not yet compared with the server.
struct UncheckedFile {
    store: SavedStore,
    written_at: Option<SystemTime>,
}

/// The state of an object on the server.
struct ServerObject {
    uid: String,
    version: String,
}

impl Item for ServerObject {
    type Owned = Self;

    fn from_ref(item: ItemRef<'_>) -> Result<Self, ItemError> {
        let meta = item.meta()?;
        Ok(Self { uid: meta.uid().into_owned(), version: meta.resource_version().into_owned() })
    }
}

/// The result of comparing an object's state on the server with its state in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The same state as in the file.
    Same,
    /// A state that the file would contain if it was from this history.
    Other,
    /// The same object, changed since. In another history it would have another uid.
    Changed,
    /// Another object with this name.
    Recreated,
}

impl ServerObject {
    /// Compares the object with its state in a file that contains all changes up to `version`, which the server has
    /// reached.
    fn compare(&self, saved: &Identity<'_>, version: &str) -> Verdict {
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
    fn distinguishes_histories_by_an_object() {
        let mut saved = Identity::default();
        (saved.uid, saved.resource_version) = ("a".into(), "5".into());
        for (uid, version, expected) in [
            ("a", "5", Verdict::Same),
            // The file would have these states.
            ("a", "7", Verdict::Other),
            ("a", "4", Verdict::Other),
            ("b", "5", Verdict::Other),
            ("a", "11", Verdict::Changed),
            ("b", "11", Verdict::Recreated),
            ("a", "x", Verdict::Changed),
        ] {
            let found = ServerObject { uid: uid.to_owned(), version: version.to_owned() };
            assert_eq!(found.compare(&saved, "10"), expected, "{uid} {version}");
        }
    }
}
