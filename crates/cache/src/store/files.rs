//! The methods of a store for files.

use std::path::Path;

use crate::StoreType;
use crate::file::format::FileError;
use crate::file::load::{self, SavedStore};
use crate::file::save;
use crate::store::handle::Store;

impl<T: StoreType + ?Sized> Store<T> {
    /// Saves the collection of this moment with its resource version, so that a watch can resume from it after a
    /// restart. `holds` names the collection; [`load`](Self::load) expects the same text.
    ///
    /// Saves are atomic: a crash leaves the previous file intact. The new file is written next to it and renamed, and a
    /// save removes what a killed process left. Saves may run at the same time, also to the same path: then the last
    /// wins. A file that exists keeps its permissions, and only its owner can read a new one. A symbolic link stays,
    /// and the file to which it leads is replaced.
    ///
    /// Objects are saved compressed. A save blocks its caller, but not other writers. Measured with 50,000 Pods, it
    /// takes 0.1 s for a [compressed](crate::StorageFormat) store and 0.5 s for an encoded store. Meanwhile it holds a
    /// [`snapshot`](crate::StoreReader::snapshot), samples of up to 4 MiB, about 30 bytes for each delta group of a
    /// compressed store, and buffers that do not grow with the collection.
    ///
    /// ```
    /// # use listwatch_cache::{StorageFormat, Store};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pods");
    /// # let before = Store::<[u8]>::new(StorageFormat::Encoded);
    /// # before.begin_relist().commit("7")?;
    /// before.save(&path, "the Pods of cluster blue")?;
    ///
    /// let after = Store::<[u8]>::new(StorageFormat::Encoded);
    /// after.load(&path, "the Pods of cluster blue")?;
    /// assert_eq!((after.len(), after.resource_version()), (before.len(), before.resource_version()));
    /// assert!(after.load(&path, "the Pods of cluster green").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn save(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), FileError> {
        save::save(&self.core, path.as_ref(), holds, None)
    }

    /// As [`save`](Self::save), with the version from which a watch resumes.
    pub(crate) fn save_from(&self, path: &Path, holds: &str, resumes_from: Option<&str>) -> Result<(), FileError> {
        save::save(&self.core, path, holds, resumes_from)
    }

    /// Loads a file that [`save`](Self::save) wrote for the same collection into an empty store. Indexes and
    /// subscribers get the objects as if they were written. It blocks its caller, and at the end, while the objects are
    /// put into the store, other writers.
    ///
    /// The store keeps them in its own [format](crate::StorageFormat), except that a compressed store keeps objects
    /// encoded that the file has uncompressed. A file whose objects exceed the [budget](Store::set_budget) in that
    /// format is refused before any object is expanded. The store stays empty until the whole file has been checked.
    ///
    /// The checksum detects damage, not forgery. The file's size bounds allocations, whatever lengths it declares,
    /// except that a compressed object may expand to 16 MiB where the store does not keep it compressed, and a
    /// reference to 1 MiB.
    ///
    /// # Errors
    ///
    /// [`FileError`]. The store is then unchanged.
    pub fn load(&self, path: impl AsRef<Path>, holds: &str) -> Result<(), FileError> {
        self.put_saved(self.read_saved(path.as_ref(), holds)?)
    }

    pub(crate) fn read_saved(&self, path: &Path, holds: &str) -> Result<SavedStore, FileError> {
        load::read(&self.core, path, holds)
    }

    pub(crate) fn put_saved(&self, saved: SavedStore) -> Result<(), FileError> {
        load::put(&self.core, saved)
    }
}
