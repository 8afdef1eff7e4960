//! The messages around the items, written by hand from `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`.

use std::fmt;

/// The first bytes of every Kubernetes protobuf body (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
pub(crate) const MAGIC: [u8; 4] = *b"k8s\0";

/// The annotation of the bookmark that ends the initial events (KEP-3157).
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The `apiVersion` and `kind` of a list or an object, such as `v1` and `PodList`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TypeMeta {
    /// Group and version, such as `apps/v1`, or only the version in the core group.
    pub api_version: String,
    /// The kind, which ends in `List` for a list.
    pub kind: String,
}

impl TypeMeta {
    /// Creates a type meta: `TypeMeta::new("apps/v1", "DeploymentList")`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// Returns the kind of the list's items: [`kind`](Self::kind) without `List`.
    #[must_use]
    pub fn item_kind(&self) -> &str {
        self.kind.strip_suffix("List").unwrap_or(&self.kind)
    }

    /// Returns true if this is the expected type meta. If no kind is expected, any kind matches.
    pub(crate) fn is_expected(&self, expected: &Self) -> bool {
        self.api_version == expected.api_version && (self.kind == expected.kind || expected.kind.is_empty())
    }

    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version == api_version && self.kind == kind
    }
}

/// The metadata of a list.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
#[non_exhaustive]
pub struct ListMeta {
    /// The version of the collection that the list shows, from which a watch can resume.
    #[prost(string, tag = "2")]
    pub resource_version: String,
    /// The token that requests the next page; empty on the last page.
    #[prost(string, tag = "3")]
    pub continue_token: String,
    /// How many items the pages after this one contain, if the server counted them.
    #[prost(int64, optional, tag = "4")]
    pub remaining_item_count: Option<i64>,
    /// The shard to which the server restricted the list, if the request asked for a shard (KEP-5866).
    #[prost(message, optional, tag = "5")]
    pub shard_info: Option<ShardInfo>,
}

/// The shard to which the server restricted a list (KEP-5866).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The `shardSelector` as the server understood it.
    #[prost(string, tag = "1")]
    pub selector: String,
}

/// The type of a change in a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// `ADDED`: an object was created, or already existed when the watch began.
    Added,
    /// `MODIFIED`: an object was modified.
    Modified,
    /// `DELETED`: an object was deleted, or no longer matches the watch's selectors.
    Deleted,
}

impl EventType {
    /// Returns the name that the protocol uses, such as `ADDED`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// An error that an API server sent (`metav1.Status`).
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
#[non_exhaustive]
pub struct Status {
    /// The list meta of the error.
    ///
    /// If a page token expired, its [`continue_token`](ListMeta::continue_token) may continue the list at the latest
    /// version.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    /// `Success` or `Failure`.
    #[prost(string, tag = "2")]
    pub status: String,
    /// A description for people.
    #[prost(string, tag = "3")]
    pub message: String,
    /// The reason for programs, such as `Expired` or `Forbidden`.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// Details of the reason.
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code.
    #[prost(int32, tag = "6")]
    pub code: i32,
}

/// The most causes of a [`Status`] that are kept, because a cause may take only two bytes of the body.
pub(crate) const MAX_CAUSES: usize = 1000;

/// The object that a [`Status`] is about, and the causes of the error.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
#[non_exhaustive]
pub struct StatusDetails {
    /// The name of the object.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The group of the object.
    #[prost(string, tag = "2")]
    pub group: String,
    /// The kind or the resource of the object.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// The causes, if there are several. Only the first 1,000 are kept.
    #[prost(message, repeated, tag = "4")]
    pub causes: Vec<StatusCause>,
    /// How many seconds to wait before a retry; 0 if the server does not say.
    #[prost(int32, tag = "5")]
    pub retry_after_seconds: i32,
    /// The uid of the object.
    #[prost(string, tag = "6")]
    pub uid: String,
}

/// One cause of a [`Status`].
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
#[non_exhaustive]
pub struct StatusCause {
    /// The reason for programs, such as `ResourceVersionTooLarge` or `FieldValueInvalid`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// A description for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The path of the faulty field, with the names of JSON.
    #[prost(string, tag = "3")]
    pub field: String,
}

/// Writes code, reason and message on one line, with control characters escaped.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", OneLine(&self.reason))?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", OneLine(&self.message))?;
        }
        Ok(())
    }
}

pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}
