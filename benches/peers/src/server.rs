//! Pods as an API server sends them: a list, its pages, metadata alone or a watch, in protobuf and JSON.
//!
//! All are made from the same recorded Pods, while they are sent: each has a name, uid and version of its own, and a node
//! of not too many Pods.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, ensure};
use k8s_pb::api::core::v1 as pb;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta, PartialObjectMetadata, WatchEvent};
use k8s_pb::apimachinery::pkg::runtime::{RawExtension, TypeMeta, Unknown};
use listwatch::{ItemError, ListReader, fields};
use listwatch_testserver::{Amplifier, Answer, Body, RecordedRequest, Server, recorded_pods};
use prost::Message;
use prost::encoding::encode_varint;
use serde_json::json;
use serde_json::value::RawValue;

use crate::add_key;

/// Pod `i` has the resource version `FIRST_VERSION + i`.
const FIRST_VERSION: u64 = 1_000_000_000;
/// That of every list.
const LIST_VERSION: &str = "5000000000";
const VERSION_DIGITS: usize = 10;
/// Names end in the index, and uids begin with a number made from it, in this many hexadecimal digits.
const HEX_DIGITS: usize = 8;
const PODS_PER_NODE: u32 = 30;

/// Serves this many Pods; gives the hash of them all too.
///
/// # Errors
/// When no port is free.
pub async fn start(pods: u32) -> anyhow::Result<(Server, u64)> {
    let (collection, hash) = Collection::new(pods)?;
    Ok((Server::start(move |request, _| collection.answer(request)).await?, hash))
}

/// How Pods are asked for.
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

struct Collection {
    pods: u32,
    nodes: u32,
    templates: HashMap<(Form, Encoding), Arc<[Template]>>,
}

impl Collection {
    fn new(pods: u32) -> anyhow::Result<(Self, u64)> {
        let recorded = recorded_pods();
        let count = ListReader::<_, [u8]>::new(recorded.as_slice()).count();
        // Each once, so that its name, uid and version are of the right length.
        let once = Amplifier::new(&recorded, count.try_into()?)?.to_vec();
        let items: Vec<_> = ListReader::<_, [u8]>::new(once.as_slice())
            .map_item(|item| {
                let mut json = Vec::new();
                fields::to_json(item.type_meta(), item.bytes(), &mut json)?;
                Ok::<_, ItemError>((item.to_box(), String::from_utf8_lossy(&json).into_owned()))
            })
            .collect::<Result<_, _>>()?;

        let (mut templates, mut hash) = (HashMap::<_, Vec<_>>::new(), 0);
        for (index, (protobuf, json)) in items.iter().enumerate() {
            let pod = pb::Pod::decode(&protobuf[..])?;
            let meta = pod.metadata.context("no metadata")?;
            let node = pod.spec.context("no spec")?.node_name.context("no node")?;
            let name = &meta.name()[..meta.name().len() - HEX_DIGITS];
            for index in (index..pods as usize).step_by(items.len()) {
                let version = FIRST_VERSION + index as u64;
                add_key(&mut hash, meta.namespace(), &format!("{name}{index:08x}"), &version.to_string());
            }
            for form in [Form::List, Form::Metadata, Form::Events] {
                let node = (form != Form::Metadata).then_some(&*node);
                let encoded =
                    [(Encoding::Protobuf, protobuf_item(form, protobuf)?), (Encoding::Json, json_item(form, json)?)];
                for (encoding, bytes) in encoded {
                    templates.entry((form, encoding)).or_default().push(Template::new(bytes, &meta, node)?);
                }
            }
        }
        let templates = templates.into_iter().map(|(key, templates)| (key, templates.into())).collect();
        // Their names have four digits.
        let nodes = pods.div_ceil(PODS_PER_NODE).min(0x1_0000);
        Ok((Self { pods, nodes, templates }, hash))
    }

    fn answer(&self, request: &RecordedRequest) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        if path != "/api/v1/pods" {
            return Answer::ok(Body::replay("not found")).status(404).content_type("text/plain");
        }
        let query: HashMap<_, _> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let is_set = |name| matches!(query.get(name), Some(&("true" | "1")));
        let number = |name| query.get(name).and_then(|value| value.parse::<u32>().ok());
        // What is accepted first is preferred.
        let accept = request.headers.get("accept").and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let encoding =
            if accept.starts_with("application/vnd.kubernetes.protobuf") { Encoding::Protobuf } else { Encoding::Json };
        let content_type = match encoding {
            Encoding::Protobuf if is_set("watch") => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Json => "application/json",
        };
        let body = if is_set("sendInitialEvents") {
            let events = self.events(encoding);
            let length = events.length();
            // Nothing happens to the Pods any more.
            events.body().stall_at(length)
        } else if is_set("watch") {
            Body::replay("").stall_at(0)
        } else {
            let start = number("continue").unwrap_or(0).min(self.pods);
            // At version 0 the whole list comes, as from the watch cache of a real API server.
            let limit = number("limit").filter(|limit| *limit > 0 && query.get("resourceVersion") != Some(&"0"));
            let end = limit.map_or(self.pods, |limit| start.saturating_add(limit)).min(self.pods);
            let form = if accept.contains("as=PartialObjectMetadataList") { Form::Metadata } else { Form::List };
            self.list(form, encoding, start..end).body()
        };
        Answer::ok(body).content_type(content_type)
    }

    /// The list of the Pods in this range, with a continue token when it is not the end.
    fn list(&self, form: Form, encoding: Encoding, range: Range<u32>) -> Made {
        let remaining = self.pods - range.end;
        let list_meta = ListMeta {
            resource_version: Some(LIST_VERSION.into()),
            r#continue: Some(if remaining > 0 { range.end.to_string() } else { String::new() }),
            remaining_item_count: (remaining > 0).then_some(remaining.into()),
            ..ListMeta::default()
        };
        let (api_version, kind) = match form {
            Form::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
            Form::List | Form::Events => ("v1", "PodList"),
        };
        let mut made = self.made(form, encoding, range);
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
                    json!({"resourceVersion": LIST_VERSION, "continue": token, "remainingItemCount": remaining})
                } else {
                    json!({"resourceVersion": LIST_VERSION})
                };
                let head =
                    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{list_meta},"items":["#);
                made.head = head.into_bytes();
                made.tail = b"]}\n".to_vec();
            }
        }
        made
    }

    /// All Pods as events of a watch, and the bookmark that ends them.
    fn events(&self, encoding: Encoding) -> Made {
        let metadata = ObjectMeta {
            resource_version: Some(LIST_VERSION.into()),
            annotations: [("k8s.io/initial-events-end".to_owned(), "true".to_owned())].into(),
            ..ObjectMeta::default()
        };
        let tail = match encoding {
            Encoding::Protobuf => {
                event("BOOKMARK", &pb::Pod { metadata: Some(metadata), ..pb::Pod::default() }.encode_to_vec())
            }
            Encoding::Json => {
                let metadata = json!({"resourceVersion": LIST_VERSION, "annotations": metadata.annotations});
                let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into_bytes()
            }
        };
        Made { tail, ..self.made(Form::Events, encoding, 0..self.pods) }
    }

    fn made(&self, form: Form, encoding: Encoding, range: Range<u32>) -> Made {
        let templates = Arc::clone(&self.templates[&(form, encoding)]);
        Made { head: Vec::new(), templates, nodes: self.nodes, range, tail: Vec::new() }
    }
}

/// A body that is made while it is sent.
#[derive(Clone)]
struct Made {
    head: Vec<u8>,
    templates: Arc<[Template]>,
    nodes: u32,
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
    /// Of the Pod behind the piece; past the range by one when that is the tail.
    next: u32,
    /// Head, Pod or tail.
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
                let node = self.next % self.made.nodes;
                self.made.template(self.next).instantiate(self.next, node, &mut self.piece);
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

/// A Pod with what separates it from others, and the places where its instances differ.
struct Template {
    bytes: Vec<u8>,
    name_suffix: usize,
    uid: usize,
    version: usize,
    /// Metadata alone has none.
    node: Option<usize>,
}

impl Template {
    fn new(bytes: Vec<u8>, meta: &ObjectMeta, node: Option<&str>) -> anyhow::Result<Self> {
        let place = |text: &str| {
            let mut places = bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text.as_bytes());
            let (place, _) = places.next().with_context(|| format!("no {text} in an item"))?;
            ensure!(places.next().is_none(), "{text} is in an item twice");
            anyhow::Ok(place)
        };
        let name_suffix = place(meta.name())? + meta.name().len() - HEX_DIGITS;
        let (uid, version) = (place(meta.uid())?, place(meta.resource_version())?);
        let node = node.map(place).transpose()?;
        Ok(Self { bytes, name_suffix, uid, version, node })
    }

    fn instantiate(&self, index: u32, node: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
        let mut put = |place: usize, text: String| out[place..][..text.len()].copy_from_slice(text.as_bytes());
        put(self.name_suffix, format!("{index:0HEX_DIGITS$x}"));
        // An odd factor makes a permutation of the u32s: as unique as the index, and spread as uids are.
        put(self.uid, format!("{:0HEX_DIGITS$x}", index.wrapping_mul(0x9e37_79b1)));
        put(self.version, format!("{:0VERSION_DIGITS$}", FIRST_VERSION + u64::from(index)));
        if let Some(place) = self.node {
            // Those that were recorded are called so too.
            put(place, format!("node-{node:04x}"));
        }
    }
}

/// The end of every envelope: an empty content encoding and an empty content type.
const ENVELOPE_END: &[u8] = &[0x1a, 0, 0x22, 0];

/// The envelope up to the end of `raw_start`, which begins a message of `raw_length` bytes.
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

/// A frame of a watch.
fn event(what: &str, pod: &[u8]) -> Vec<u8> {
    let mut raw = envelope("v1", "Pod", pod.len() as u64, pod);
    raw.extend_from_slice(ENVELOPE_END);
    let event = WatchEvent { r#type: Some(what.into()), object: Some(RawExtension { raw: Some(raw) }) }.encode_to_vec();
    let mut frame = u32::try_from(event.len()).expect("a Pod is small").to_be_bytes().to_vec();
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

/// `pod` begins with kind and API version, which items of a list are sent without.
fn json_item(form: Form, pod: &str) -> anyhow::Result<Vec<u8>> {
    Ok(match form {
        Form::List => {
            let rest = pod.strip_prefix(r#"{"kind":"Pod","apiVersion":"v1","#).context("no kind first")?;
            format!(",{{{rest}")
        }
        Form::Metadata => {
            let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(pod)?;
            let metadata = members.get("metadata").context("no metadata")?;
            format!(r#",{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#)
        }
        Form::Events => format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n"),
    }
    .into_bytes())
}
