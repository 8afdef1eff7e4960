//! The attributes of a request: what a SubjectAccessReview is about.

/// The verb of a read from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReadVerb {
    Get,
    List,
    Watch,
}

impl ReadVerb {
    /// Returns the verb as in a review.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// What a SubjectAccessReview is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Attributes {
    Resource(ResourceAttributes),
    /// A path that is not of a resource. The verb is the method in lower case.
    Path {
        verb: &'static str,
        path: String,
    },
}

/// The attributes of a request for a resource, as the API server derives them. Empty fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResourceAttributes {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The selectors of a list or watch, as the reader sent them.
    pub(crate) field_selector: String,
    pub(crate) label_selector: String,
}

impl Attributes {
    /// Returns true if a response may contain Secrets.
    pub(crate) fn is_of_secrets(&self) -> bool {
        matches!(self, Self::Resource(of) if of.group.is_empty() && of.resource == "secrets")
    }
}
