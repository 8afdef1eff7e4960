//! The lists that the workers repeat, and the expected result of each, determined without the library.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;

use flate2::read::GzDecoder;
use k8s_pb::apimachinery::pkg::apis::meta::v1::PartialObjectMetadata;
use listwatch::client::{Client, Compression, List, ListParams, Resource, ResourceVersion, Selection};
use listwatch::{ItemError, ItemRef};
use listwatch_e2e::{Result, Server};
use prost::Message as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::reference::reference;

type Decode = fn(ItemRef<'_>) -> std::result::Result<Object, ItemError>;

pub struct Query {
    pub name: &'static str,
    /// The paths that curl would request to get the same objects.
    paths: &'static [&'static str],
    accept: &'static str,
    /// The body has a checksum, which detects a changed byte.
    pub gzip: bool,
    pub list: fn(&Client) -> List<Decode>,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WIDGETS: Resource = Resource::from_static("example.com", "v1", "widgets", "Widget");

pub const QUERIES: [Query; 13] = [
    Query {
        name: "pods",
        paths: &["/api/v1/pods"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| list(client, &Resource::PODS, &ListParams::default()),
    },
    Query {
        name: "pods, gzip",
        paths: &["/api/v1/pods"],
        accept: PROTOBUF,
        gzip: true,
        list: |client| list(&gzip(client), &Resource::PODS, &ListParams::default()),
    },
    Query {
        name: "pods, in pages",
        paths: &["/api/v1/pods"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| list(client, &Resource::PODS, &ListParams::default().page_size(300)),
    },
    Query {
        name: "pods, as JSON",
        paths: &["/api/v1/pods"],
        accept: JSON,
        gzip: false,
        list: |client| list(client, &Resource::PODS, &ListParams::new(Selection::all().json())),
    },
    Query {
        name: "pods, as JSON, in pages, gzip",
        paths: &["/api/v1/pods"],
        accept: JSON,
        gzip: true,
        list: |client| list(&gzip(client), &Resource::PODS, &ListParams::new(Selection::all().json()).page_size(500)),
    },
    Query {
        name: "pods, metadata",
        paths: &["/api/v1/pods"],
        accept: METADATA,
        gzip: false,
        list: |client| list(client, &Resource::PODS, &ListParams::new(Selection::all().metadata_only())),
    },
    Query {
        name: "pods, from the cache",
        paths: &["/api/v1/pods"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| list(client, &Resource::PODS, &ListParams::default().resource_version(ResourceVersion::Any)),
    },
    Query {
        name: "pods, by labels",
        paths: &["/api/v1/pods?labelSelector=app.kubernetes.io/name%20in%20(ledger,feed)"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| {
            let labels = "app.kubernetes.io/name in (ledger, feed)".parse().expect("a selector");
            list(client, &Resource::PODS, &ListParams::new(Selection::all().labels(labels)))
        },
    },
    Query {
        name: "pods, by fields",
        paths: &["/api/v1/pods?fieldSelector=metadata.namespace!%3Dteam-01,status.phase%3DRunning"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| {
            let fields = "metadata.namespace!=team-01,status.phase=Running".parse().expect("a selector");
            list(client, &Resource::PODS, &ListParams::new(Selection::all().fields(fields)))
        },
    },
    Query {
        name: "pods of namespaces",
        paths: &[
            "/api/v1/namespaces/team-02/pods",
            "/api/v1/namespaces/no-such-team/pods",
            "/api/v1/namespaces/team-03/pods",
        ],
        accept: PROTOBUF,
        gzip: false,
        list: |client| {
            list(client, &Resource::PODS, &ListParams::default()).namespaces(["team-02", "no-such-team", "team-03"])
        },
    },
    Query {
        name: "namespaces",
        paths: &["/api/v1/namespaces"],
        accept: PROTOBUF,
        gzip: false,
        list: |client| list(client, &Resource::NAMESPACES, &ListParams::default()),
    },
    Query {
        name: "widgets",
        paths: &["/apis/example.com/v1/widgets"],
        accept: JSON,
        gzip: false,
        list: |client| list(client, &WIDGETS, &ListParams::default()),
    },
    Query {
        name: "widgets, metadata, in pages",
        paths: &["/apis/example.com/v1/widgets"],
        accept: METADATA,
        gzip: false,
        list: |client| list(client, &WIDGETS, &ListParams::new(Selection::all().metadata_only()).page_size(50)),
    },
];

impl Query {
    pub fn is_json(&self) -> bool {
        self.accept == JSON
    }
}

fn list(client: &Client, resource: &Resource, params: &ListParams) -> List<Decode> {
    client.list_with(resource, params, object)
}

fn gzip(client: &Client) -> Client {
    client.clone().compression(Compression::Gzip)
}

/// The expected result of a list: by namespace and name, the version and a hash of all bytes.
pub struct Known {
    objects: HashMap<String, (String, u64)>,
    /// The length of the bodies as they are sent.
    pub wire_bytes: u64,
}

impl Known {
    pub async fn ask(server: &Server, query: &Query) -> Result<Self> {
        let ca = reqwest::Certificate::from_pem(&server.ca()?)?;
        let http = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build()?;
        let mut known = Self { objects: HashMap::new(), wire_bytes: 0 };
        for path in query.paths {
            let encoding = if query.gzip { "gzip" } else { "identity" };
            let get = http.get(format!("{}{path}", server.url)).header("accept", query.accept);
            let get = get.header("accept-encoding", encoding).header("authorization", "Bearer admin");
            let response = get.send().await?.error_for_status()?;
            let is_gzip = response.headers().contains_key("content-encoding");
            let mut body = Vec::from(response.bytes().await?);
            known.wire_bytes += body.len() as u64;
            if is_gzip {
                let wire = std::mem::take(&mut body);
                GzDecoder::new(&wire[..]).read_to_end(&mut body)?;
            }
            if query.is_json() {
                let list: JsonList<'_> = serde_json::from_slice(&body)?;
                for item in list.items {
                    let meta = serde_json::from_str::<JsonObject>(item.get())?.metadata;
                    known.insert(&meta.namespace, &meta.name, meta.resource_version, item.get().as_bytes());
                }
            } else {
                for item in reference(&body).ok_or("no list")?.items {
                    let meta = PartialObjectMetadata::decode(&item[..])?.metadata.unwrap_or_default();
                    let [namespace, name, version] =
                        [meta.namespace, meta.name, meta.resource_version].map(Option::unwrap_or_default);
                    known.insert(&namespace, &name, version, &item);
                }
            }
        }
        Ok(known)
    }

    fn insert(&mut self, namespace: &str, name: &str, version: String, bytes: &[u8]) {
        self.objects.insert(format!("{namespace}/{name}"), (version, hash(bytes)));
    }

    pub fn len(&self) -> u64 {
        self.objects.len() as u64
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    pub fn check(&self) -> Check<'_> {
        Check { known: self, seen: HashSet::new() }
    }
}

/// Compares the items of one list with the expected items.
pub struct Check<'a> {
    known: &'a Known,
    seen: HashSet<&'a str>,
}

impl Check<'_> {
    pub fn item(&mut self, item: &Object) -> std::result::Result<(), String> {
        let Object { key, version, bytes } = item;
        let Some((known, of_known)) = self.known.objects.get_key_value(key) else {
            return Err(format!("unexpected {key:?}"));
        };
        if *of_known != (version.clone(), hash(bytes)) {
            return Err(format!("{key} differs at version {version}"));
        }
        if self.seen.insert(known) { Ok(()) } else { Err(format!("{key} was delivered twice")) }
    }

    pub fn end(&self) -> std::result::Result<(), String> {
        let (delivered, all) = (self.seen.len(), self.known.objects.len());
        if delivered == all { Ok(()) } else { Err(format!("complete with {delivered} items of {all}")) }
    }
}

/// An item as it was delivered.
pub struct Object {
    pub key: String,
    pub version: String,
    pub bytes: Box<[u8]>,
}

fn object(item: ItemRef<'_>) -> std::result::Result<Object, ItemError> {
    let meta = item.meta()?;
    let key = format!("{}/{}", meta.namespace(), meta.name());
    Ok(Object { key, version: meta.resource_version().into_owned(), bytes: item.to_box() })
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[derive(Deserialize)]
struct JsonList<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct JsonObject {
    metadata: JsonMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMeta {
    #[serde(default)]
    namespace: String,
    name: String,
    resource_version: String,
}
