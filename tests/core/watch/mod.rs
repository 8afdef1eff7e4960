//! Watches: the decoder returns what an independent decode reads from the full body, for every chunking.

mod faults;
mod memory;
mod properties;
mod recorded;
mod splits;

use listwatch::Limits;

use crate::support::watch::watch;
use crate::support::{body_of, cut, fixture, framed, len_field};

const PROTOBUF: &[&str] = &[
    "watch-configmaps.pb",
    "watch-configmaps-metadata.pb",
    "watch-expired.pb",
    "watch-initial-events.pb",
    "watch-initial-events-pods.pb",
    "watch-quiet-bookmarks.pb",
];

const JSON: &[&str] =
    &["watch-configmaps.json", "watch-expired.json", "watch-initial-events.json", "watch-widgets-negotiated.json"];

fn fixtures() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    PROTOBUF.iter().chain(JSON).map(|name| (*name, fixture(name)))
}

/// The lengths of the frames: the prefix of a protobuf frame and the line break of a JSON frame count.
fn frame_lengths(body: &[u8]) -> Vec<usize> {
    if body.starts_with(b"{") {
        return body.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
    }
    let (mut lengths, mut rest) = (Vec::new(), body);
    while let Some(length) = rest.first_chunk() {
        let length = 4 + usize::try_from(u32::from_be_bytes(*length)).unwrap();
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

/// A protobuf frame with this event.
fn protobuf(event: &str, api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let raw = len_field(1, &body_of(api_version, kind, object));
    framed(&[len_field(1, event.as_bytes()), len_field(2, &raw)].concat())
}

#[track_caller]
fn check(limits: Limits, body: &[u8], events: usize, expected: &str) {
    for chunk in [body.len(), 1, 3] {
        let (seen, end) = watch(limits, cut(body, &[chunk]));
        let text = String::from_utf8_lossy(body);
        assert_eq!(seen.len(), events, "{text:?} in chunks of {chunk}");
        let end = end.map_or_else(|error| error.to_string(), |()| "whole".to_owned());
        assert_eq!(end, expected, "{text:?} in chunks of {chunk}");
    }
}
