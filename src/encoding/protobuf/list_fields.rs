//! The messages that the list decoder walks, and the fields that it reads.
//!
//! Sources: `runtime.Unknown` and `runtime.TypeMeta` in `k8s.io/apimachinery/pkg/runtime/generated.proto`, `ListMeta`
//! and `ShardInfo` in `pkg/apis/meta/v1/generated.proto`, `PartialObjectMetadataList` in
//! `pkg/apis/meta/v1beta1/generated.proto`.

use crate::encoding::protobuf::wire::WireType;
use crate::meta::TypeMeta;

/// A message that is walked field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMessage {
    /// runtime.Unknown, from the magic to the end of the body
    Envelope,
    TypeMeta,
    /// any `XxxList`
    List(ListShape),
    ListMeta,
    ShardInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListShape {
    MetadataFirst,
    /// meta.k8s.io/v1beta1 `PartialObjectMetadataList`
    ItemsFirst,
}

/// A field that the decoder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListField {
    TypeMeta,
    Raw,
    /// `contentEncoding` or `contentType`: must be empty
    Content(&'static str),
    ListMeta,
    Items,
    ShardInfo,
    RemainingItemCount,
    Text(ListText),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListText {
    ApiVersion,
    Kind,
    ResourceVersion,
    Continue,
    Selector,
}

impl ListMessage {
    pub(crate) fn field(self, number: u32) -> Option<ListField> {
        Some(match (self, number) {
            (Self::Envelope, 1) => ListField::TypeMeta,
            (Self::Envelope, 2) => ListField::Raw,
            (Self::Envelope, 3) => ListField::Content("contentEncoding"),
            (Self::Envelope, 4) => ListField::Content("contentType"),
            (Self::TypeMeta, 1) => ListField::Text(ListText::ApiVersion),
            (Self::TypeMeta, 2) => ListField::Text(ListText::Kind),
            (Self::List(ListShape::MetadataFirst), 1) | (Self::List(ListShape::ItemsFirst), 2) => ListField::ListMeta,
            (Self::List(ListShape::MetadataFirst), 2) | (Self::List(ListShape::ItemsFirst), 1) => ListField::Items,
            (Self::ListMeta, 2) => ListField::Text(ListText::ResourceVersion),
            (Self::ListMeta, 3) => ListField::Text(ListText::Continue),
            (Self::ListMeta, 4) => ListField::RemainingItemCount,
            (Self::ListMeta, 5) => ListField::ShardInfo,
            (Self::ShardInfo, 1) => ListField::Text(ListText::Selector),
            _ => return None,
        })
    }
}

impl ListField {
    pub(crate) fn wire_type(self) -> WireType {
        match self {
            Self::RemainingItemCount => WireType::Varint,
            _ => WireType::Len,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TypeMeta => "typeMeta",
            Self::Raw => "raw",
            Self::Content(name) => name,
            Self::ListMeta => "metadata",
            Self::Items => "items",
            Self::ShardInfo => "metadata.shardInfo",
            Self::RemainingItemCount => "metadata.remainingItemCount",
            Self::Text(ListText::ApiVersion) => "typeMeta.apiVersion",
            Self::Text(ListText::Kind) => "typeMeta.kind",
            Self::Text(ListText::ResourceVersion) => "metadata.resourceVersion",
            Self::Text(ListText::Continue) => "metadata.continue",
            Self::Text(ListText::Selector) => "metadata.shardInfo.selector",
        }
    }
}

impl ListShape {
    /// Returns `None` for a kind that is not a list of objects. Otherwise, the data of a single `ConfigMap` would be
    /// delivered as items.
    pub(crate) fn of(type_meta: &TypeMeta) -> Option<Self> {
        let TypeMeta { api_version, kind } = type_meta;
        match kind.as_str() {
            "PartialObjectMetadataList" if api_version == "meta.k8s.io/v1beta1" => Some(Self::ItemsFirst),
            kind if kind.ends_with("List") && !NOT_OF_OBJECTS.contains(&kind) => Some(Self::MetadataFirst),
            _ => None,
        }
    }
}

/// The kinds of lists whose items are not objects: `RawExtension`s in core/v1 `List`, and descriptions of the API.
const NOT_OF_OBJECTS: [&str; 3] = ["List", "APIResourceList", "APIGroupList"];
