//! Pods as an API server sends them: a list, its pages, metadata alone or a watch, in protobuf and JSON.
//!
//! The server makes uniform Pods from the same recorded ones while it sends them. Each Pod has its own name, uid and
//! version, and about 30 Pods share a node. The crate `listwatch-corpus` makes diverse Pods. The server keeps each of
//! them in memory, as an item of a list and as an event of a watch. So it sends diverse Pods in one encoding only.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_pb::api::core::v1 as pb;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta, PartialObjectMetadata, WatchEvent};
use k8s_pb::apimachinery::pkg::runtime::{RawExtension, TypeMeta, Unknown};
use listwatch::{ItemError, ListReader};
use listwatch_testserver::{Answer, Body, RecordedRequest, Server, Synthesizer, recorded_pods};
use prost::Message;
use prost::encoding::encode_varint;
use serde_json::json;
use serde_json::value::RawValue;

use crate::add_key;

/// The resource version of the first list; each later list has the next one.
const LIST_VERSION: u64 = 5_000_000_000;
/// The difference between a Pod's versions in two successive lists, if they differ.
const RENEWAL: u64 = 100_000_000;
const VERSION_DIGITS: usize = 10;
/// Names of repeated Pods end in the index, and their uids begin with a number derived from it, in this many
/// hexadecimal digits.
const HEX_DIGITS: usize = 8;
const PODS_PER_NODE: u32 = 30;
const PODS_PER_WORKLOAD: u32 = 40;

/// Makes clients relist.
#[derive(Clone, Copy)]
pub struct Relists {
    /// The duration of a watch. The next watch gets 410: its version is too old.
    pub after: Duration,
    /// Whether every Pod has a new version in the next list.
    pub renewed: bool,
}

/// The Pods of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variety {
    Uniform,
    /// Diverse Pods, in protobuf.
    Diverse,
    /// Diverse Pods, in JSON.
    DiverseJson,
}

impl Variety {
    /// Returns the variety of this name on the command line.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Diverse, Self::DiverseJson].into_iter().find(|variety| variety.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Diverse => "diverse",
            Self::DiverseJson => "diverse-json",
        }
    }
}

/// Serves this many Pods. Also returns the sums of [`add_key`] over the first list and over the
/// second.
///
/// # Errors
/// If no port is free.
pub async fn start(pods: u32, variety: Variety, relists: Option<Relists>) -> anyhow::Result<(Server, [u64; 2])> {
    let (collection, hashes) = Collection::new(pods, variety, relists)?;
    Ok((Server::start(move |request, _| collection.answer(request)).await?, hashes))
}

/// The form in which a client requests Pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    List,
    Metadata,
    /// The initial events of a watch.
    Events,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Encoding {
    Protobuf,
    Json,
}

/// What the server sends of uniform Pods.
const UNIFORM: &[(Form, Encoding)] = &[
    (Form::List, Encoding::Protobuf),
    (Form::List, Encoding::Json),
    (Form::Metadata, Encoding::Protobuf),
    (Form::Metadata, Encoding::Json),
    (Form::Events, Encoding::Protobuf),
    (Form::Events, Encoding::Json),
];
/// What the server sends of diverse Pods: the requests of the ways that relist. Each takes the memory of all Pods.
const DIVERSE: &[(Form, Encoding)] = &[(Form::List, Encoding::Protobuf), (Form::Events, Encoding::Protobuf)];
/// The same for peers that read JSON only.
const DIVERSE_JSON: &[(Form, Encoding)] = &[(Form::List, Encoding::Json), (Form::Events, Encoding::Json)];

struct Collection {
    pods: u32,
    nodes: u32,
    relists: Option<Relists>,
    /// The number of lists begun.
    lists: AtomicU64,
    /// The number of watches since the last list.
    watches: AtomicU32,
    /// [`UNIFORM`], [`DIVERSE`] or [`DIVERSE_JSON`].
    templates: HashMap<(Form, Encoding), Arc<[Template]>>,
}

impl Collection {
    fn new(pods: u32, variety: Variety, relists: Option<Relists>) -> anyhow::Result<(Self, [u64; 2])> {
        let diverse = variety != Variety::Uniform;
        let (count, once, sent) = if diverse {
            let workloads = (pods / PODS_PER_WORKLOAD).max(1);
            let sent = if variety == Variety::DiverseJson { DIVERSE_JSON } else { DIVERSE };
            (pods, listwatch_corpus::pods_by_zipf(pods, workloads), sent)
        } else {
            let recorded = recorded_pods();
            let count = ListReader::new::<[u8]>(recorded.as_slice()).count().try_into()?;
            // Each recorded Pod once, with a name, uid and version of the right length.
            (count, Synthesizer::new(&recorded, count)?.to_vec(), UNIFORM)
        };
        let items = ListReader::with(once.as_slice(), |item| {
            let mut json = Vec::new();
            if variety != Variety::Diverse {
                item.to_json(&mut json)?;
            }
            Ok::<_, ItemError>((item.to_box(), String::from_utf8_lossy(&json).into_owned()))
        });

        let (mut templates, mut hashes) = (HashMap::<_, Vec<_>>::new(), [0; 2]);
        for (first, item) in (0..).zip(items) {
            let (protobuf, json) = item?;
            let pod = pb::Pod::decode(&protobuf[..])?;
            let meta = pod.metadata.context("a Pod without metadata")?;
            let node = pod.spec.context("a Pod without a spec")?.node_name.context("a Pod without a node")?;
            let base_version = meta.resource_version().parse::<u64>()? - u64::from(first);
            for &(form, encoding) in sent {
                let bytes = match encoding {
                    Encoding::Protobuf => protobuf_item(form, &protobuf)?,
                    Encoding::Json => json_item(form, &json)?,
                };
                let node = (form != Form::Metadata).then_some(&*node);
                let template = Template::new(bytes, &meta, base_version, node, diverse)?;
                templates.entry((form, encoding)).or_default().push(template);
            }
            for index in (first..pods).step_by(count as usize) {
                let name = if diverse { meta.name().to_owned() } else { repeated_name(meta.name(), index) };
                for (hash, list) in hashes.iter_mut().zip(0..) {
                    let version = base_version + u64::from(index) + renewal(relists, list);
                    add_key(hash, meta.namespace(), &name, &version.to_string());
                }
            }
        }
        let templates = templates.into_iter().map(|(key, templates)| (key, templates.into())).collect();
        // A node's name has four hexadecimal digits.
        let nodes = pods.div_ceil(PODS_PER_NODE).min(0x1_0000);
        let (lists, watches) = (AtomicU64::new(0), AtomicU32::new(0));
        Ok((Self { pods, nodes, relists, lists, watches, templates }, hashes))
    }

    fn answer(&self, request: &RecordedRequest) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if let Some(document) = discovery(path) {
            return Answer::ok(Body::replay(document)).content_type("application/json");
        }
        if path != "/api/v1/pods" {
            return Answer::ok(Body::replay("not found")).status(404).content_type("text/plain");
        }
        let query: HashMap<_, _> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let is_set = |name| matches!(query.get(name), Some(&("true" | "1")));
        let number = |name| query.get(name).and_then(|value| value.parse::<u32>().ok());
        // The client prefers the first media type that it accepts.
        let accept = request.headers.get("accept").and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let encoding =
            if accept.starts_with("application/vnd.kubernetes.protobuf") { Encoding::Protobuf } else { Encoding::Json };
        let content_type = match encoding {
            Encoding::Protobuf if is_set("watch") => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Json => "application/json",
        };
        let form = if is_set("sendInitialEvents") {
            Form::Events
        } else if accept.contains("as=PartialObjectMetadataList") {
            Form::Metadata
        } else {
            Form::List
        };
        if !self.templates.contains_key(&(form, encoding)) {
            return Answer::ok(Body::replay("not acceptable")).status(406).content_type("text/plain");
        }
        let body = if form == Form::Events {
            let events = self.events(encoding, self.begin(1));
            let length = events.length();
            self.watch(events.body(), length)
        } else if is_set("watch") {
            if self.relists.is_some() && self.watches.fetch_add(1, Ordering::Relaxed) > 0 {
                return Answer::ok(Body::replay(EXPIRED)).status(410).content_type("application/json");
            }
            self.watch(Body::replay(""), 0)
        } else {
            let start = number("continue").unwrap_or(0).min(self.pods);
            // Version 0 ignores the page size, as the watch cache of a real API server does.
            let limit = number("limit").filter(|limit| *limit > 0 && query.get("resourceVersion") != Some(&"0"));
            let end = limit.map_or(self.pods, |limit| start.saturating_add(limit)).min(self.pods);
            let list = if start > 0 { self.lists.load(Ordering::Relaxed) - 1 } else { self.begin(0) };
            self.list(form, encoding, list, start..end).body()
        };
        Answer::ok(body).content_type(content_type)
    }

    /// Begins a list and returns its number. `watches` is 1 if the list is itself a watch.
    fn begin(&self, watches: u32) -> u64 {
        self.watches.store(watches, Ordering::Relaxed);
        self.lists.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a watch that sends nothing after the first `length` bytes: it ends after a time, or never.
    fn watch(&self, body: Body, length: u64) -> Body {
        match self.relists {
            Some(Relists { after, .. }) => body.end_after(after),
            None => body.stall_at(length),
        }
    }

    /// Returns the list of the Pods in this range, with a continue token unless it is the last page.
    fn list(&self, form: Form, encoding: Encoding, list: u64, range: Range<u32>) -> Made {
        let remaining = self.pods - range.end;
        let version = (LIST_VERSION + list).to_string();
        let list_meta = ListMeta {
            resource_version: Some(version.clone()),
            r#continue: Some(if remaining > 0 { range.end.to_string() } else { String::new() }),
            remaining_item_count: (remaining > 0).then_some(remaining.into()),
            ..ListMeta::default()
        };
        let (api_version, kind) = match form {
            Form::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
            Form::List | Form::Events => ("v1", "PodList"),
        };
        let mut made = self.made(form, encoding, list, range);
        match encoding {
            Encoding::Protobuf => {
                let list = pb::PodList { metadata: Some(list_meta), ..pb::PodList::default() }.encode_to_vec();
                let raw_length = list.len() as u64 + made.items_length();
                made.head = envelope(api_version, kind, raw_length, &list);
                made.tail = ENVELOPE_END.to_vec();
            }
            Encoding::Json => {
                let list_meta = if remaining > 0 {
                    let token = list_meta.r#continue;
                    json!({"resourceVersion": version, "continue": token, "remainingItemCount": remaining})
                } else {
                    json!({"resourceVersion": version})
                };
                let head =
                    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{list_meta},"items":["#);
                made.head = head.into_bytes();
                made.tail = b"]}\n".to_vec();
            }
        }
        made
    }

    /// Returns all Pods as initial events of a watch, with the bookmark that ends them.
    fn events(&self, encoding: Encoding, list: u64) -> Made {
        let version = (LIST_VERSION + list).to_string();
        let metadata = ObjectMeta {
            resource_version: Some(version.clone()),
            annotations: [("k8s.io/initial-events-end".to_owned(), "true".to_owned())].into(),
            ..ObjectMeta::default()
        };
        let tail = match encoding {
            Encoding::Protobuf => {
                event("BOOKMARK", &pb::Pod { metadata: Some(metadata), ..pb::Pod::default() }.encode_to_vec())
            }
            Encoding::Json => {
                let metadata = json!({"resourceVersion": version, "annotations": metadata.annotations});
                let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into_bytes()
            }
        };
        Made { tail, ..self.made(Form::Events, encoding, list, 0..self.pods) }
    }

    fn made(&self, form: Form, encoding: Encoding, list: u64, range: Range<u32>) -> Made {
        let templates = Arc::clone(&self.templates[&(form, encoding)]);
        let renewal = renewal(self.relists, list);
        Made { head: Vec::new(), templates, nodes: self.nodes, renewal, range, tail: Vec::new() }
    }
}

/// Returns the difference between a Pod's versions in this list and in the first.
fn renewal(relists: Option<Relists>, list: u64) -> u64 {
    let is_renewed = relists.is_some_and(|relists| relists.renewed);
    if is_renewed { list * RENEWAL } else { 0 }
}

/// Returns the name of the Pod at this index, which repeats a Pod of this name.
fn repeated_name(name: &str, index: u32) -> String {
    format!("{}{index:0HEX_DIGITS$x}", &name[..name.len() - HEX_DIGITS])
}

/// A body that the server makes while it sends it.
#[derive(Clone)]
struct Made {
    head: Vec<u8>,
    templates: Arc<[Template]>,
    nodes: u32,
    renewal: u64,
    range: Range<u32>,
    tail: Vec<u8>,
}

impl Made {
    fn items_length(&self) -> u64 {
        self.range.clone().map(|index| self.template(index).bytes.len() as u64).sum()
    }

    fn length(&self) -> u64 {
        self.head.len() as u64 + self.items_length() + self.tail.len() as u64
    }

    fn body(self) -> Body {
        Body::read(self.length(), move || Reader {
            next: self.range.start,
            piece: self.head.clone(),
            read: 0,
            made: self.clone(),
        })
    }

    fn template(&self, index: u32) -> &Template {
        &self.templates[index as usize % self.templates.len()]
    }
}

struct Reader {
    made: Made,
    /// The index of the Pod after the piece; the end of the range plus one if the piece is the tail.
    next: u32,
    /// The head, a Pod or the tail.
    piece: Vec<u8>,
    read: usize,
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Range { start, end } = self.made.range;
        if self.read == self.piece.len() && self.next <= end {
            self.read = 0;
            self.piece.clear();
            if self.next == end {
                self.piece.extend_from_slice(&self.made.tail);
            } else {
                let (node, renewal) = (self.next % self.made.nodes, self.made.renewal);
                self.made.template(self.next).instantiate(self.next, node, renewal, &mut self.piece);
                if self.next == start && self.piece[0] == b',' {
                    self.piece[0] = b' ';
                }
            }
            self.next += 1;
        }
        let length = out.len().min(self.piece.len() - self.read);
        out[..length].copy_from_slice(&self.piece[self.read..][..length]);
        self.read += length;
        Ok(length)
    }
}

/// A Pod with its separator, and the places at which its instances differ.
struct Template {
    bytes: Vec<u8>,
    version: usize,
    /// An instance's version in the first list is the sum of this and its index.
    base_version: u64,
    /// `None` for a Pod that is sent once: it keeps its name, uid and node.
    copies: Option<Copies>,
}

/// The places at which copies of a Pod differ.
struct Copies {
    name_suffix: usize,
    uid: usize,
    /// `None` for metadata without a spec.
    node: Option<usize>,
}

impl Template {
    fn new(
        bytes: Vec<u8>,
        meta: &ObjectMeta,
        base_version: u64,
        node: Option<&str>,
        diverse: bool,
    ) -> anyhow::Result<Self> {
        let place = |text: &str| {
            let mut places = bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text.as_bytes());
            let (place, _) = places.next().with_context(|| format!("an item without {text}"))?;
            ensure!(places.next().is_none(), "an item that contains {text} twice");
            anyhow::Ok(place)
        };
        let version = place(meta.resource_version())?;
        ensure!(meta.resource_version().len() == VERSION_DIGITS, "a version without {VERSION_DIGITS} digits");
        let copies = if diverse {
            None
        } else {
            let name_suffix = place(meta.name())? + meta.name().len() - HEX_DIGITS;
            Some(Copies { name_suffix, uid: place(meta.uid())?, node: node.map(place).transpose()? })
        };
        Ok(Self { bytes, version, base_version, copies })
    }

    fn instantiate(&self, index: u32, node: u32, renewal: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
        let mut put = |place: usize, text: String| out[place..][..text.len()].copy_from_slice(text.as_bytes());
        let version = self.base_version + u64::from(index) + renewal;
        put(self.version, format!("{version:0VERSION_DIGITS$}"));
        let Some(copies) = &self.copies else { return };
        put(copies.name_suffix, format!("{index:0HEX_DIGITS$x}"));
        // Multiplying by an odd factor permutes the u32s: the result is as unique as the index, and spread like uids.
        put(copies.uid, format!("{:0HEX_DIGITS$x}", index.wrapping_mul(0x9e37_79b1)));
        if let Some(place) = copies.node {
            // The recorded nodes have names of the same form.
            put(place, format!("node-{node:04x}"));
        }
    }
}

/// Returns the document by which kubectl finds Pods.
fn discovery(path: &str) -> Option<&'static str> {
    Some(match path {
        "/api" => r#"{"kind":"APIVersions","versions":["v1"]}"#,
        "/apis" => r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#,
        "/api/v1" => {
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod",
"namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"]}]}"#
        }
        _ => return None,
    })
}

/// The response to a watch whose version is too old.
const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version",
"reason":"Expired","code":410}"#;

/// The end of every envelope: an empty content encoding and an empty content type.
const ENVELOPE_END: &[u8] = &[0x1a, 0, 0x22, 0];

/// Returns an envelope up to the end of `raw_start`, with which a message of `raw_length` bytes begins.
fn envelope(api_version: &str, kind: &str, raw_length: u64, raw_start: &[u8]) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: Some(api_version.into()), kind: Some(kind.into()) };
    let mut out = b"k8s\0".to_vec();
    out.extend(Unknown { type_meta: Some(type_meta), ..Unknown::default() }.encode_to_vec());
    put_header(2, raw_length, &mut out);
    out.extend_from_slice(raw_start);
    out
}

fn put_header(field: u64, length: u64, out: &mut Vec<u8>) {
    encode_varint(field << 3 | 2, out);
    encode_varint(length, out);
}

/// Returns a frame of a watch.
fn event(what: &str, pod: &[u8]) -> Vec<u8> {
    let mut raw = envelope("v1", "Pod", pod.len() as u64, pod);
    raw.extend_from_slice(ENVELOPE_END);
    let event = WatchEvent { r#type: Some(what.into()), object: Some(RawExtension { raw: Some(raw) }) }.encode_to_vec();
    let mut frame = u32::try_from(event.len()).expect("a Pod is smaller than 4 GiB").to_be_bytes().to_vec();
    frame.extend(event);
    frame
}

fn protobuf_item(form: Form, pod: &[u8]) -> anyhow::Result<Vec<u8>> {
    let in_list = |item: &[u8]| {
        let mut out = Vec::new();
        put_header(2, item.len() as u64, &mut out);
        out.extend_from_slice(item);
        out
    };
    Ok(match form {
        Form::List => in_list(pod),
        Form::Metadata => {
            let metadata = pb::Pod::decode(pod)?.metadata;
            in_list(&PartialObjectMetadata { metadata }.encode_to_vec())
        }
        Form::Events => event("ADDED", pod),
    })
}

/// `pod` begins with its kind and API version, which items of a list do not have.
fn json_item(form: Form, pod: &str) -> anyhow::Result<Vec<u8>> {
    Ok(match form {
        Form::List => {
            let rest = pod.strip_prefix(r#"{"kind":"Pod","apiVersion":"v1","#).context("a Pod without a kind")?;
            format!(",{{{rest}")
        }
        Form::Metadata => {
            let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(pod)?;
            let metadata = members.get("metadata").context("a Pod without metadata")?;
            format!(r#",{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#)
        }
        Form::Events => format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n"),
    }
    .into_bytes())
}
