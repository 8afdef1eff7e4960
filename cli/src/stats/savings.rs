//! The bytes that dropping fields would save.

use listwatch::{ItemError, ItemRef, Projection};

use crate::output::{drop_error, drop_path};

/// The savings of each path in `--drop`, and of all paths together.
pub struct Savings {
    paths: Vec<String>,
    /// One number per path, and one for all paths.
    saved: Vec<u64>,
    /// The projections for `saved`. Empty until the first item, which has the kind of the objects.
    projections: Vec<Projection>,
    unknown: Option<String>,
}

impl Savings {
    pub fn new(paths: Vec<String>) -> Self {
        Self { saved: vec![0; paths.len() + 1], paths, projections: Vec::new(), unknown: None }
    }

    pub fn add(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        if self.paths.is_empty() {
            return Ok(());
        }
        if self.projections.is_empty() {
            let paths: Result<Vec<_>, _> = self.paths.iter().map(|path| drop_path(path, item.type_meta())).collect();
            let paths = paths.map_err(|unknown| {
                self.unknown = Some(drop_error(&unknown));
                ItemError::other(unknown)
            })?;
            self.projections = paths.iter().map(|path| Projection::new().drop(path)).collect();
            self.projections.push(paths.iter().fold(Projection::new(), Projection::drop));
        }
        for (projection, saved) in self.projections.iter().zip(&mut self.saved) {
            *saved += (item.bytes().len() - item.project(projection)?.len()) as u64;
        }
        Ok(())
    }

    /// Returns the error of a path that the kind of the objects does not have. It also ended the list.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Returns the bytes that each path saves.
    pub fn each(&self) -> impl Iterator<Item = (&str, u64)> {
        self.paths.iter().map(String::as_str).zip(self.saved.iter().copied())
    }

    /// Returns the bytes that all paths save together.
    pub fn all(&self) -> u64 {
        self.saved.last().copied().unwrap_or_default()
    }
}
