//! An independent decode of the full body of a watch, by prost with the messages of k8s-pb, or by `serde_json`.

use k8s_pb::apimachinery::pkg::apis::meta::v1::WatchEvent as PbWatchEvent;
use listwatch::{DecodeError, Encoding, Limits, Status, TypeMeta, WatchEventRef};
use prost::Message as _;
use serde_json::value::RawValue;

use super::Unknown;
use super::members::Members;
use super::reference::RuntimeTypeMeta;

/// An event, as the decoder or the reference returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Changed { event: &'static str, encoding: Encoding, type_meta: TypeMeta, object: Vec<u8>, version: String },
    Bookmark { version: String, ends_initial_events: bool },
    Error(Status),
}

/// Returns the events that the decoder returns, and how the watch ended.
pub fn watch<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Result<(), DecodeError>) {
    let mut decoder = super::watch_decoder(limits);
    let (mut seen, mut received) = (Vec::new(), 0);
    for mut chunk in chunks {
        received += chunk.len() as u64;
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(event)) => seen.push(see(event, seen.len() as u64)),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.finish().unwrap_err().to_string(), error.to_string(), "the same error");
                    return (seen, Err(error));
                }
            }
        }
        assert!(chunk.is_empty());
        assert_eq!(decoder.position(), received);
    }
    let end = decoder.finish();
    (seen, end)
}

pub fn see(event: WatchEventRef<'_>, index: u64) -> Seen {
    let (event, object, version) = match event {
        WatchEventRef::Added { object, resource_version, .. } => ("ADDED", object, resource_version),
        WatchEventRef::Modified { object, resource_version, .. } => ("MODIFIED", object, resource_version),
        WatchEventRef::Deleted { object, resource_version, .. } => ("DELETED", object, resource_version),
        WatchEventRef::Bookmark { resource_version, ends_initial_events, .. } => {
            return Seen::Bookmark { version: resource_version.to_owned(), ends_initial_events };
        }
        WatchEventRef::Error(status) => return Seen::Error(status.clone()),
        event => panic!("{event:?}"),
    };
    assert_eq!(object.index(), index);
    Seen::Changed {
        event,
        encoding: object.encoding(),
        type_meta: object.type_meta().clone(),
        object: object.bytes().to_vec(),
        version: version.to_owned(),
    }
}

/// Returns the events of the full body up to its first fault, and true if it has no fault.
pub fn reference(body: &[u8]) -> (Vec<Seen>, bool) {
    let is_json = is_json(body);
    let (mut seen, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        let Some((frame, after)) = (if is_json { line(rest) } else { frame(rest) }) else { return (seen, false) };
        rest = after;
        if is_json && is_blank(frame) {
            continue;
        }
        let Some(event) = (if is_json { by_serde(frame) } else { by_prost(frame) }) else { return (seen, false) };
        seen.push(event);
    }
    (seen, true)
}

/// Returns true if the body begins as JSON, or is blank.
pub fn is_json(body: &[u8]) -> bool {
    matches!(body.iter().find(|byte| !is_blank(&[**byte])), Some(b'{') | None)
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

fn frame(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = body.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

fn line(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = body.iter().position(|byte| *byte == b'\n');
    // Spaces after the last line count as a blank line.
    let end = end.or(is_blank(body).then_some(body.len() - 1))?;
    Some(body.split_at(end + 1))
}

/// The part of an object that every event needs.
#[derive(Clone, PartialEq, prost::Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ObjectMeta {
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Bookmark {
    #[prost(message, optional, tag = "1")]
    metadata: Option<BookmarkMeta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BookmarkMeta {
    #[prost(message, repeated, tag = "12")]
    annotations: Vec<Annotation>,
}

/// An entry of a map. Its texts may not be UTF-8.
#[derive(Clone, PartialEq, prost::Message)]
struct Annotation {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

fn by_prost(frame: &[u8]) -> Option<Seen> {
    let PbWatchEvent { r#type, object } = PbWatchEvent::decode(frame).ok()?;
    let raw = match object.and_then(|object| object.raw) {
        // Some servers send bookmarks without an object.
        None if r#type.as_deref() == Some("BOOKMARK") => {
            return Some(Seen::Bookmark { version: String::new(), ends_initial_events: false });
        }
        raw => raw?,
    };
    let Unknown { type_meta, raw, content_encoding, content_type } =
        Unknown::decode(raw.strip_prefix(b"k8s\0")?).ok()?;
    if !content_encoding.is_empty() || !content_type.is_empty() {
        return None;
    }
    let RuntimeTypeMeta { api_version, kind } = type_meta.unwrap_or_default();
    if r#type.as_deref() == Some("ERROR") {
        return (kind == "Status" || kind.is_empty()).then(|| Status::decode(&raw[..]).ok().map(Seen::Error))?;
    }
    let version = Object::decode(&raw[..]).ok()?.metadata.unwrap_or_default().resource_version;
    let ends = || {
        let annotations = Bookmark::decode(&raw[..]).ok()?.metadata.unwrap_or_default().annotations;
        let end = annotations.iter().rfind(|annotation| annotation.key == END.as_bytes());
        Some(end.is_some_and(|annotation| annotation.value == b"true"))
    };
    change(&r#type?, ends, Encoding::Protobuf, [api_version, kind], raw.clone(), version)
}

const END: &str = "k8s.io/initial-events-end";

fn change(
    event: &str,
    ends: impl FnOnce() -> Option<bool>,
    encoding: Encoding,
    [api_version, kind]: [String; 2],
    object: Vec<u8>,
    version: String,
) -> Option<Seen> {
    if version.is_empty() && matches!(event, "ADDED" | "MODIFIED") {
        return None;
    }
    if event == "BOOKMARK" {
        return Some(Seen::Bookmark { version, ends_initial_events: ends()? });
    }
    let event = ["ADDED", "MODIFIED", "DELETED"].into_iter().find(|known| *known == event)?;
    let mut type_meta = TypeMeta::default();
    (type_meta.api_version, type_meta.kind) = (api_version, kind);
    Some(Seen::Changed { event, encoding, type_meta, object, version })
}

/// Reads a frame as Go does: the last member of a name counts, `null` sets nothing, a second `metadata` is merged into
/// the first.
fn by_serde(line: &[u8]) -> Option<Seen> {
    let (mut event, mut object) = (None, None);
    for (name, value) in &serde_json::from_slice::<Members<'_>>(line).ok()?.0 {
        match name.as_str() {
            "type" => set(&mut event, value)?,
            "object" => object = Some(value.get()),
            _ => {}
        }
    }
    let (event, object) = (event?, object?);
    let (mut api_version, mut kind, mut version, mut ends) = (None, None, None, false);
    for (name, value) in &serde_json::from_str::<Members<'_>>(object).ok()?.0 {
        match name.as_str() {
            "apiVersion" => set(&mut api_version, value)?,
            "kind" => set(&mut kind, value)?,
            "metadata" if value.get().starts_with('{') => {
                for (name, value) in &serde_json::from_str::<Members<'_>>(value.get()).ok()?.0 {
                    match name.as_str() {
                        "resourceVersion" => set(&mut version, value)?,
                        "annotations" if value.get().starts_with('{') => {
                            let annotations = serde_json::from_str::<Members<'_>>(value.get()).ok()?.0;
                            let end = annotations.iter().rfind(|(name, _)| name == END);
                            ends = end.is_some_and(|(_, value)| value.get() == r#""true""#);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let kind = kind.unwrap_or_default();
    if event == "ERROR" {
        return (kind == "Status").then(|| status(object).map(Seen::Error))?;
    }
    let type_meta = [api_version.unwrap_or_default(), kind];
    change(&event, || Some(ends), Encoding::Json, type_meta, object.into(), version.unwrap_or_default())
}

/// Reads the fields of a Status that the recorded watches have.
fn status(json: &str) -> Option<Status> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut status = Status::default();
    status.metadata = value.get("metadata").map(|_| listwatch::ListMeta::default());
    [status.status, status.message, status.reason] = ["status", "message", "reason"].map(text);
    status.code = i32::try_from(value["code"].as_i64().unwrap_or_default()).ok()?;
    Some(status)
}

fn set(place: &mut Option<String>, value: &RawValue) -> Option<()> {
    if value.get() != "null" {
        *place = Some(serde_json::from_str(value.get()).ok()?);
    }
    Some(())
}
