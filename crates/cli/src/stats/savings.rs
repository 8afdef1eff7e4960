//! The bytes that dropping fields would save.

use listwatch::{ItemError, ItemRef, Projection};

use super::report::DropSaving;
use crate::field_paths::parse_drop_path;

/// The savings of each path in `--drop`, and of all paths together.
pub struct DropSavings {
    paths: Vec<String>,
    /// One per path, and one for all paths.
    saved: Vec<DropSaving>,
    /// The projections for `saved`. Empty until the first item, which has the kind of the objects.
    projections: Vec<Projection>,
    unknown_path: Option<String>,
}

impl DropSavings {
    pub fn new(paths: Vec<String>) -> Self {
        let names = paths.iter().cloned().chain(["all of them".to_owned()]);
        let saved = names.map(|path| DropSaving { path, bytes: 0, items: 0 }).collect();
        Self { saved, paths, projections: Vec::new(), unknown_path: None }
    }

    pub fn add_item(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        if self.paths.is_empty() {
            return Ok(());
        }
        if self.projections.is_empty() {
            let paths: Result<Vec<_>, _> =
                self.paths.iter().map(|path| parse_drop_path(path, item.type_meta())).collect();
            let paths = paths.map_err(|unknown| {
                self.unknown_path = Some(unknown.clone());
                ItemError::other(unknown)
            })?;
            self.projections = paths.iter().map(|path| Projection::new().drop(path)).collect();
            self.projections.push(paths.iter().fold(Projection::new(), Projection::drop));
        }
        for (projection, saved) in self.projections.iter().zip(&mut self.saved) {
            let bytes = (item.bytes().len() - item.project(projection)?.len()) as u64;
            saved.bytes += bytes;
            saved.items += u64::from(bytes > 0);
        }
        Ok(())
    }

    /// Returns the error of a path that the kind of the objects does not have. It also ended the list.
    pub fn unknown_path(&self) -> Option<&str> {
        self.unknown_path.as_deref()
    }

    /// Returns the saving of each path and, of several paths, of all together.
    pub fn report(mut self) -> Vec<DropSaving> {
        if self.paths.len() < 2 {
            self.saved.truncate(self.paths.len());
        }
        self.saved
    }
}
