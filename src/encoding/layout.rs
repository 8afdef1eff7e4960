//! What the writers of both encodings share: how the objects of a kind are laid out in JSON, and the metadata of bookmarks.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A Go struct.
    Typed,
    /// A Go struct whose items have a type meta in JSON: `PartialObjectMetadataList`.
    Metadata,
    /// A Go map: a custom resource.
    Unstructured,
}

/// The only values of a zero object.
pub(crate) struct ZeroMeta<'a> {
    pub(crate) resource_version: &'a str,
    /// Key and value.
    pub(crate) annotation: Option<(&'a str, &'a str)>,
}
