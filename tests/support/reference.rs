//! An independent decode of a whole list by prost.

use listwatch::{ListMeta, TypeMeta};
use prost::Message as _;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub type_meta: Option<RuntimeTypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    pub raw: Vec<u8>,
    #[prost(string, tag = "3")]
    pub content_encoding: String,
    #[prost(string, tag = "4")]
    pub content_type: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeTypeMeta {
    #[prost(string, tag = "1")]
    pub api_version: String,
    #[prost(string, tag = "2")]
    pub kind: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RawList {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub items: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RawListItemsFirst {
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub items: Vec<Vec<u8>>,
}

/// A list, decoded one way or the other.
#[derive(Debug, PartialEq)]
pub struct List {
    pub type_meta: TypeMeta,
    pub list_meta: ListMeta,
    pub items: Vec<Vec<u8>>,
}

/// The list that prost decodes from the full body; `None` if the body is no list.
pub fn reference(body: &[u8]) -> Option<List> {
    let unknown = Unknown::decode(body.strip_prefix(b"k8s\0")?).ok()?;
    let RuntimeTypeMeta { api_version, kind } = unknown.type_meta?;
    if !kind.ends_with("List") {
        return None;
    }
    let RawList { metadata, items } = if api_version == "meta.k8s.io/v1beta1" {
        let RawListItemsFirst { metadata, items } = RawListItemsFirst::decode(&unknown.raw[..]).ok()?;
        RawList { metadata, items }
    } else {
        RawList::decode(&unknown.raw[..]).ok()?
    };
    let mut type_meta = TypeMeta::default();
    (type_meta.api_version, type_meta.kind) = (api_version, kind);
    Some(List { type_meta, list_meta: metadata.unwrap_or_default(), items })
}
