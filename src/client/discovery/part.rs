//! A part of the catalog of resources, which has a document of its own.

use crate::client::error::Error;
use crate::client::resolve::DiscoveredResource;

/// A version of a group, or a root that could not be read.
pub(super) struct Part {
    /// The path of its own document.
    pub(super) path: String,
    /// `""` for core.
    pub(super) group: String,
    pub(super) version: String,
    /// True if the API server could not ask the server of the group.
    pub(super) is_stale: bool,
    pub(super) state: PartState,
}

/// ```text
/// Unread ──> Read, Failed
/// ```
pub(super) enum PartState {
    Unread,
    Read(Vec<DiscoveredResource>),
    Failed(Error),
}

impl Part {
    pub(super) fn unread(path: String, group: &str, version: &str) -> Self {
        Self { path, group: group.to_owned(), version: version.to_owned(), is_stale: false, state: PartState::Unread }
    }

    pub(super) fn resources(&self) -> &[DiscoveredResource] {
        if let PartState::Read(resources) = &self.state { resources } else { &[] }
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.state, PartState::Read(_))
    }

    pub(super) fn error(&self) -> Option<&Error> {
        if let PartState::Failed(error) = &self.state { Some(error) } else { None }
    }
}
