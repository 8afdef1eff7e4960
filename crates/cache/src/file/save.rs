//! Saves a store to a file.

use std::path::Path;

use listwatch::StoreType;
use listwatch::internal::is_older;

use crate::compress::elide::ElidedObject;
use crate::compress::encoder::Encoder;
use crate::compress::training::{FEW_SAMPLES, SampleChoice};
use crate::file::format::{FileError, FileOutput};
use crate::file::replace::replace;
use crate::state::entry::StorageFormat;
use crate::state::object::Object;
use crate::state::snapshot::Snapshot;
use crate::write::core::StoreCore;

/// Saves the collection of this moment. A watch resumes from the version `resumes_from`, because the collection may
/// contain only a part of the changes up to its own version.
pub(crate) fn save<T: StoreType + ?Sized>(
    core: &StoreCore<T>,
    path: &Path,
    holds: &str,
    resumes_from: Option<&str>,
) -> Result<(), FileError> {
    let mut writer = core.writer();
    writer.compress_pending(&core.objects);
    // Resource versions of two epochs cannot be compared. A resumed watch does not deliver objects that were skipped
    // before.
    if core.objects.state().version.is_empty() || !writer.relists.is_consistent() || writer.skipped.len() > 0 {
        return Err(FileError::Incomplete);
    }
    let (snapshot, epoch) = (core.objects.snapshot(), writer.relists.begun());
    // So that the log can begin at the version of the file.
    let snapshot = if core.log.is_enabled() {
        // The log of a loaded store begins at this version, so readers at this version must lack no change.
        let version = core.log.lock().settled_version().ok_or(FileError::Incomplete)?.to_owned();
        snapshot.at_version(version)
    } else {
        snapshot
    };
    let (format, dictionary) = (writer.compressor.format, writer.compressor.compression.dictionary().cloned());
    drop(writer);
    replace(path, |file| {
        let mut output = FileOutput::new(file)?;
        let version = snapshot.resource_version();
        let resumes_from = resumes_from.filter(|from| is_older(from, version)).unwrap_or(version);
        output.head(epoch, &snapshot, resumes_from, holds)?;
        let mut encoder = if format == StorageFormat::Compressed { None } else { trained(&snapshot) };
        if let Some(dictionary) = &dictionary {
            output.dictionary(dictionary)?;
        }
        for object in snapshot.iter() {
            output.object(&object, encoder.as_mut())?;
        }
        Ok(output.finish()?)
    })
}

/// Trains an encoder with samples from the whole collection; `None` if it has too few objects.
fn trained<T: StoreType + ?Sized>(snapshot: &Snapshot<T>) -> Option<Encoder> {
    if snapshot.len() < FEW_SAMPLES {
        return None;
    }
    let len = snapshot.iter().map(|object| object.entry().wire_len() as usize).sum::<usize>();
    let choice = SampleChoice::of(snapshot.len(), len);
    let samples = snapshot.iter().zip(0..).filter(|(_, place)| choice.has(*place));
    let elided = |object: &Object<T>| ElidedObject::of(&object.entry().identity(), object.encoded().ok()?);
    Some(Encoder::trained_on(samples.filter_map(|(object, _)| elided(&object))))
}
