//! Objects to write to a store, in both encodings.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;

use listwatch::Encoding;
use prost::Message as _;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Object {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(string, tag = "2")]
    pub data: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub generate_name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OwnerReference {
    #[prost(string, tag = "4")]
    pub uid: String,
    #[prost(bool, tag = "6")]
    pub controller: bool,
}

/// Object `name` of `namespace`, with a unique uid.
pub fn object(namespace: &str, name: &str, version: &str) -> Object {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        generate_name: String::new(),
        namespace: namespace.to_owned(),
        uid: format!("uid of {namespace}/{name}"),
        resource_version: version.to_owned(),
        labels: BTreeMap::new(),
        owner_references: Vec::new(),
    };
    Object { metadata: Some(metadata), data: String::new() }
}

impl Object {
    pub fn meta(&mut self) -> &mut ObjectMeta {
        self.metadata.get_or_insert_default()
    }

    pub fn uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.meta().uid);
        self
    }

    /// Sets the controlling owner.
    pub fn owner(mut self, uid: &str) -> Self {
        self.meta().owner_references = vec![OwnerReference { uid: uid.to_owned(), controller: true }];
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.meta().labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn data(mut self, data: impl Into<String>) -> Self {
        self.data = data.into();
        self
    }

    pub fn to_bytes(&self, encoding: Encoding) -> Vec<u8> {
        let meta = self.metadata.clone().unwrap_or_default();
        match encoding {
            Encoding::Protobuf => self.encode_to_vec(),
            Encoding::Json => serde_json::json!({
                "metadata": {
                    "name": meta.name,
                    "namespace": meta.namespace,
                    "uid": meta.uid,
                    "resourceVersion": meta.resource_version,
                    "labels": meta.labels,
                    "generateName": meta.generate_name,
                    "ownerReferences": meta.owner_references.iter().map(|owner| {
                        serde_json::json!({ "uid": owner.uid, "controller": owner.controller })
                    }).collect::<Vec<_>>(),
                },
                "data": self.data,
            })
            .to_string()
            .into_bytes(),
            encoding => panic!("unknown encoding {encoding}"),
        }
    }
}
