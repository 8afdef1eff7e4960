//! How the objects of a kind are laid out in JSON.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A Go struct.
    Typed,
    /// A Go struct whose items have a type meta in JSON: `PartialObjectMetadataList`.
    Metadata,
    /// A Go map: a custom resource.
    Unstructured,
}
