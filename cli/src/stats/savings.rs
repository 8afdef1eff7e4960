//! What it would save to drop fields.

use listwatch::{Encoding, FieldPath, ItemError, ItemRef, Projection};

use crate::json::{inside, members, names, objects};

/// Of each path to drop, and of all together.
pub struct Savings {
    paths: Vec<String>,
    /// As many as there are paths, and one for all.
    saved: Vec<u64>,
    /// For these, once the kind of the objects is known.
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
        match item.encoding() {
            Encoding::Protobuf => self.add_protobuf(item),
            Encoding::Json => self.add_json(item.bytes()).map_err(ItemError::other),
        }
    }

    /// A path that the kind of the objects does not have, and why the list ended in an error.
    pub fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// What each path saves, in bytes.
    pub fn each(&self) -> impl Iterator<Item = (&str, u64)> {
        self.paths.iter().map(String::as_str).zip(self.saved.iter().copied())
    }

    /// What all paths save together.
    pub fn all(&self) -> u64 {
        self.saved.last().copied().unwrap_or_default()
    }

    fn add_protobuf(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        if self.projections.is_empty() {
            let paths: Result<Vec<_>, _> =
                self.paths.iter().map(|path| FieldPath::parse(path, item.type_meta())).collect();
            let paths = paths.map_err(|unknown| {
                self.unknown = Some(unknown.to_string());
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

    fn add_json(&mut self, object: &[u8]) -> Result<(), serde_json::Error> {
        let paths: Vec<Vec<&str>> = self.paths.iter().map(|path| names(path)).collect();
        let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
        for (path, saved) in paths.iter().zip(&mut self.saved) {
            *saved += size_at(object, &[path])?;
        }
        if let Some(all) = self.saved.last_mut() {
            *all += size_at(object, &paths)?;
        }
        Ok(())
    }
}

/// How much shorter a JSON object is without what is at these paths; they are not empty.
fn size_at(object: &[u8], paths: &[&[&str]]) -> Result<u64, serde_json::Error> {
    let mut size = 0;
    let mut is_left = false;
    members(object, |member| {
        let inside = inside(&member, paths);
        if inside.iter().any(|path| path.is_empty()) {
            size += member.size() as u64;
            return Ok(());
        }
        is_left = true;
        if inside.is_empty() {
            return Ok(());
        }
        objects(member.value, |object| {
            size += size_at(object, &inside)?;
            Ok(())
        })
    })?;
    // The only member has no comma.
    Ok(if is_left { size } else { size.saturating_sub(1) })
}
