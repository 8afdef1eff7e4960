//! Reads one event of a watch in JSON.

use std::borrow::Cow;

use super::watch_frame::{EventType, Frame};
use crate::meta::INITIAL_EVENTS_END;
use crate::wire::json::Reader;
use crate::wire::{Fault, FieldFault, at};

/// Returns whether a body is a watch, by the name of its first member; `None` while the name is incomplete.
///
/// Lists, single objects and Statuses begin with other names.
pub(super) fn is_event(beginning: &[u8]) -> Option<bool> {
    let name = beginning.strip_prefix(b"{")?.trim_ascii_start();
    let names = [&br#""type""#[..], br#""object""#];
    if names.iter().any(|known| name.starts_with(known)) {
        return Some(true);
    }
    if names.iter().any(|known| known.starts_with(name)) { None } else { Some(false) }
}

/// Reads an event: one JSON object.
pub(super) fn read(event: &[u8]) -> Result<Frame<'_>, FieldFault> {
    let (mut frame, mut annotations) = (Frame::default(), &b""[..]);
    let mut json = Reader::new(event, 0);
    let mut members = json.object().map_err(at("the frame"))?;
    while let Some(name) = members.next(&mut json).map_err(at("the frame"))? {
        match &*name {
            "type" => {
                if let Some(event) = json.text().map_err(at("type"))? {
                    frame.event = Some(EventType::of(event.as_bytes()));
                }
            }
            "object" => {
                let first = json.peek();
                let from = json.rest();
                if first == Some(b'n') {
                    return Err(("object", Fault::Type));
                }
                annotations = b"";
                frame = Frame { event: frame.event, ..object(&mut json, &mut annotations)? };
                frame.object = from.get(..from.len() - json.rest().len());
            }
            _ => _ = json.value().map_err(at("the frame"))?,
        }
    }
    json.end().map_err(at("the frame"))?;
    if frame.event == Some(EventType::Bookmark) && !annotations.is_empty() {
        frame.ends_initial_events = ends_initial_events(annotations).map_err(at("metadata.annotations"))?;
    }
    Ok(frame)
}

fn object<'a>(json: &mut Reader<'a>, annotations: &mut &'a [u8]) -> Result<Frame<'a>, FieldFault> {
    let mut frame = Frame::default();
    let mut members = json.object().map_err(at("object"))?;
    while let Some(name) = members.next(json).map_err(at("object"))? {
        match &*name {
            "apiVersion" => set(&mut frame.api_version, json, "apiVersion")?,
            "kind" => set(&mut frame.kind, json, "kind")?,
            "metadata" if json.peek() == Some(b'{') => {
                let mut members = json.object().map_err(at("metadata"))?;
                while let Some(name) = members.next(json).map_err(at("metadata"))? {
                    match &*name {
                        "resourceVersion" => set(&mut frame.resource_version, json, "metadata.resourceVersion")?,
                        "annotations" if json.peek() == Some(b'{') => {
                            *annotations = json.value().map_err(at("metadata"))?;
                        }
                        _ => _ = json.value().map_err(at("metadata"))?,
                    }
                }
            }
            _ => _ = json.value().map_err(at("object"))?,
        }
    }
    Ok(frame)
}

fn set<'a>(place: &mut Cow<'a, str>, json: &mut Reader<'a>, field: &'static str) -> Result<(), FieldFault> {
    if let Some(text) = json.text().map_err(at(field))? {
        *place = text;
    }
    Ok(())
}

fn ends_initial_events(annotations: &[u8]) -> Result<bool, Fault> {
    let mut json = Reader::new(annotations, 3);
    let mut ends = false;
    let mut members = json.object()?;
    while let Some(name) = members.next(&mut json)? {
        if name == INITIAL_EVENTS_END {
            ends = json.text()?.as_deref() == Some("true");
        } else {
            json.value()?;
        }
    }
    Ok(ends)
}
